/* The honest device when things go wrong, and what it is seen doing: every allocation and every submit
 * fails once, the device is lost at every submit; tickets and counts. */
#include "honest_fixture.h"

#include <inttypes.h>
#include <pthread.h>

enum { N = 9, NEW = 8, V_MAX = ENGINE_VOCAB };

static float want[64 * V_MAX], got[64 * V_MAX];

/* ---- what it is seen doing ---- */

static void test_counts(void **state)
{
    (void)state;
    engine g;
    uint32_t token[N], id[N], slot;
    fak_error e;
    fak_limits limits = paged(FAK_ACT_F32);
    engine_open(&g, "tiny-q8_0.gguf", "honest", "exact=1", &limits, FAK_EVICTABLE);
    engine_tokens(&g, 1, token, N);
    fak_stats a = stats_of(&g), b;
    assert_in_range(a.allocations, 4, 5); /* weights, activations, steps, kv, raw keys */
    assert_in_range(a.bytes_up, g.program.report[SIDE_DEVICE].weight_bytes - 64 * 40,
                    g.program.report[SIDE_DEVICE].weight_bytes);
    for (uint32_t n = N; n; n = n == N ? 1 : 0) { /* a prefill and a decode */
        a = stats_of(&g);
        engine_feed(&g, 0, n == N ? 0 : N, token, n, FAK_WANT_ARGMAX, id);
        b = stats_of(&g);
        assert_int_equal(b.bytes_down - a.bytes_down, 4 * n);
        assert_int_equal(b.submits - a.submits, 1);
        assert_int_equal(b.dispatches - a.dispatches,
                         g.exec.ops[SIDE_DEVICE] - (n == N ? 0 : a.dispatches));
        assert_in_range(b.bytes_up - a.bytes_up, n * 4, 200 + n * 8);
        engine_feed(&g, 1, 0, token, n, FAK_WANT_LOGITS, got);
        a = stats_of(&g);
        assert_int_equal(a.bytes_down - b.bytes_down, 4ull * n * g.V);
    }
    a = stats_of(&g);
    assert_int_equal(kv_take(&g.kv, &slot, &e), FAK_OK);
    engine_feed(&g, slot, 0, token, N, FAK_WANT_NONE, NULL);
    kv_extend(&g.kv, slot, N);
    assert_int_equal(kv_clone(&g.kv, slot, 5, &slot, &e), FAK_OK);
    assert_int_equal(kv_evict(&g.kv, slot, 1, 2, &e), FAK_OK);
    engine_feed(&g, slot, 3, token, 2, FAK_WANT_LOGITS, got);
    assert_int_equal(stats_of(&g).allocations, a.allocations); /* none after prepare */
    engine_close(&g);
}

/* A ticket is pending, and its rows untouched, until somebody waits. */
static void test_pending(void **state)
{
    (void)state;
    engine g;
    uint32_t token[N];
    fak_error e = {0};
    uint64_t ticket = 0;
    fak_limits limits = paged(FAK_ACT_F32);
    engine_open(&g, "tiny-f32.gguf", "honest", "hold=1", &limits, 0);
    engine_tokens(&g, 1, token, N);
    engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, want);
    fak_stats before = stats_of(&g);
    fak_span span = {1, 0, N, 0};
    step_spec spec = engine_spec(&span, token, FAK_WANT_LOGITS);
    assert_int_equal(engine_step(&g, &spec, NULL, &e), FAK_OK);
    fak_tail tail = plan_tail(g.program.fused.block, 0);
    memset(got, 0x5a, sizeof got);
    assert_int_equal(api(&g)->read(handle(&g), tail.out, 0, N, got, &ticket, &e), FAK_OK);
    assert_true(ticket > 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(api(&g)->wait(handle(&g), ticket, 0, &e), FAK_PENDING);
    for (size_t i = 0; i < sizeof got; i++) assert_int_equal(((unsigned char *)got)[i], 0x5a);
    assert_int_equal(stats_of(&g).host_waits, before.host_waits); /* no call has blocked */
    assert_int_equal(api(&g)->wait(handle(&g), ticket, 60000, &e), FAK_OK);
    assert_int_equal(stats_of(&g).host_waits, before.host_waits + 1);
    assert_rows(got, want, N * (size_t)g.V);
    assert_int_equal(api(&g)->wait(handle(&g), ticket, 0, &e), FAK_OK); /* and stays done */
    engine_close(&g);
}

typedef struct waiter {
    engine *g;
    uint64_t ticket;
    int32_t status;
} waiter;

static void *wait_beside(void *self)
{
    waiter *w = self;
    fak_error e;
    w->status = api(w->g)->wait(handle(w->g), w->ticket, FAK_FOREVER, &e);
    return NULL;
}

/* wait is [any]: one thread waits for a step while another begins the next. */
static void test_wait_beside(void **state)
{
    (void)state;
    engine g;
    uint32_t token[N];
    fak_error e = {0};
    fak_limits limits = paged(FAK_ACT_F32);
    limits.steps = 2;
    engine_open(&g, "tiny-q4_0.gguf", "honest", NULL, &limits, 0);
    engine_tokens(&g, 1, token, N);
    engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, want);
    fak_tail tail = plan_tail(g.program.fused.block, 0);
    for (uint32_t i = 0; i < 8; i++) {
        pthread_t thread;
        waiter w = {.g = &g, .status = -1};
        fak_span span = {i % 4, 0, N, 0};
        step_spec spec = engine_spec(&span, token, FAK_WANT_LOGITS);
        assert_int_equal(engine_step(&g, &spec, NULL, &e), FAK_OK);
        assert_int_equal(api(&g)->read(handle(&g), tail.out, 0, N, got, &w.ticket, &e), FAK_OK);
        assert_int_equal(pthread_create(&thread, NULL, wait_beside, &w), 0);
        span.slot = (i + 1) % 4;
        assert_int_equal(engine_step(&g, &spec, NULL, &e), FAK_OK);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(w.status, FAK_OK);
        assert_rows(got, want, N * (size_t)g.V);
    }
    engine_close(&g);
}

/* More steps than are reserved for: begin blocks until an older one is over, and nothing is mixed up. */
static void test_begin_blocks(void **state)
{
    (void)state;
    engine g;
    uint32_t token[N], id[N], last = 0;
    fak_error e;
    fak_limits limits = paged(FAK_ACT_F32);
    engine_open(&g, "tiny-f32.gguf", "honest", "exact=1 hold=1", &limits, 0);
    engine_tokens(&g, 1, token, N);
    for (uint32_t i = 0; i < N; i++)
        engine_feed(&g, 0, i, i ? &id[i - 1] : token, 1, FAK_WANT_ARGMAX, &id[i]);
    fak_stats before = stats_of(&g);
    for (uint32_t i = 0; i < N; i++) {
        fak_span span = {1, 0, 1, i};
        step_spec spec = engine_spec(&span, i ? NULL : token, FAK_WANT_ARGMAX);
        spec.flags = i ? FAK_TOKENS_FROM_ARGMAX : 0;
        if (engine_step(&g, &spec, i + 1 < N ? NULL : &last, &e)) fail_msg("%s", e.message);
    }
    assert_int_equal(last, id[N - 1]);
    assert_in_range(stats_of(&g).host_waits - before.host_waits, N - 2, N); /* two at a time */
    engine_close(&g);
}

/* ---- device memory that fails ---- */

static void test_every_allocation(void **state)
{
    (void)state;
    uint32_t token[N], failed = 0;
    for (uint32_t k = 0;; k++) { /* 0: none */
        char option[64];
        engine g;
        fak_error e = {0};
        fak_limits limits = paged(FAK_ACT_F32);
        snprintf(option, sizeof option, "exact=1 fail-alloc=%" PRIu32, k);
        engine_begin(&g, "tiny-q4_0.gguf", "honest", option);
        engine_tokens(&g, 1, token, N);
        int32_t s = engine_try(&g, &limits, FAK_EVICTABLE, &e);
        if (s) {
            failed++;
            assert_int_equal(s, FAK_E_MEMORY);
            assert_int_equal(e.code, FAK_E_MEMORY);
            assert_message(&e, "bytes of device memory; 0 of 67108864 are free");
            engine_end(&g);
            if (engine_try(&g, &limits, FAK_EVICTABLE, &e))
                fail_msg("%u: %s", (unsigned)k, e.message);
        }
        engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, k ? got : want);
        if (k) assert_rows(got, want, N * (size_t)g.V);
        engine_close(&g);
        if (k && !s) break;
    }
    assert_int_equal(failed, 5);
}

/* ---- submits that fail ---- */

/* A prompt, a clone of it that goes on, then ids one by one; step i of NEW + 2.  Logits to out. */
static int32_t go(engine *g, uint32_t i, const uint32_t *token, float *out, fak_error *e)
{
    fak_span span = {i == 1 ? 1 : 0, 0, i ? 1 : N, i < 2 ? i * 6 : N + i - 2};
    step_spec spec = engine_spec(&span, token + span.first, FAK_WANT_LOGITS);
    return engine_step(g, &spec, out + (size_t)span.first * g->V, e);
}

static void clone_prompt(engine *g, uint32_t i)
{
    fak_error e;
    if (i == 1) assert_int_equal(api(g)->kv_clone(handle(g), 1, 0, 6, &e), FAK_OK);
}

static void test_every_submit(void **state)
{
    static const char *const way[] = {"", "eager=1 fused=0", "hold=1 graph-only=1",
                                      "leave=5 fused=0"};
    (void)state;
    for (uint32_t w = 0; w < 4; w++) {
        uint32_t token[N + NEW + 2], failed = 0, k = 0;
        for (int more = 1; more; k++) { /* 0: none */
            char option[80];
            engine g;
            fak_error e = {0};
            fak_limits limits = paged(FAK_ACT_Q8);
            snprintf(option, sizeof option, "exact=1 fail-submit=%" PRIu32 " %s", k, way[w]);
            engine_open(&g, "tiny-q8_0.gguf", "honest", option, &limits, 0);
            engine_tokens(&g, 1, token, N + NEW + 2);
            more = !k;
            memset(got, 0, sizeof got);
            for (uint32_t i = 0; i < NEW + 2; i++) {
                clone_prompt(&g, i);
                int32_t s = go(&g, i, token, k ? got : want, &e);
                if (!s) continue;
                assert_int_equal(s, FAK_E_STEP);
                assert_int_equal(e.code, FAK_E_STEP);
                assert_message(&e, "failed at op");
                assert_in_range(e.index, 0, g.program.ops - 1);
                failed++;
                more = 1;
                if (go(&g, i, token, got, &e)) fail_msg("submit %u: %s", (unsigned)k, e.message);
            }
            if (k) assert_rows(got, want, (N + NEW) * (size_t)g.V);
            engine_close(&g);
        }
        assert_in_range(failed, NEW + 2, 20 * NEW); /* holes make more submits of a step */
    }
}

/* Steps begun before the failure was told are skipped, and say so; the begin after clears. */
static void test_steps_in_between(void **state)
{
    (void)state;
    engine g;
    uint32_t token[N];
    uint64_t ticket[3];
    fak_error e = {0};
    fak_limits limits = paged(FAK_ACT_F32);
    limits.steps = 3;
    engine_open(&g, "tiny-f32.gguf", "honest", "exact=1 fail-submit=2", &limits, 0);
    engine_tokens(&g, 1, token, N);
    engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, want);
    fak_tail tail = plan_tail(g.program.fused.block, 0);
    memset(got, 0, sizeof got);
    for (uint32_t i = 0; i < 3; i++) {
        fak_span span = {i, 0, N, 0};
        step_spec spec = engine_spec(&span, token, FAK_WANT_LOGITS);
        assert_int_equal(engine_step(&g, &spec, NULL, &e), FAK_OK);
        assert_int_equal(api(&g)->read(handle(&g), tail.out, 0, N, got, &ticket[i], &e), FAK_OK);
    }
    for (uint32_t i = 3; i-- > 0;) {
        e = (fak_error){0};
        assert_int_equal(api(&g)->wait(handle(&g), ticket[i], FAK_FOREVER, &e), FAK_E_STEP);
        assert_message(&e, "submit 2 failed at op"); /* the first cause */
    }
    for (size_t i = 0; i < N * (size_t)g.V; i++) assert_true(got[i] == 0);
    engine_feed(&g, 3, 0, token, N, FAK_WANT_LOGITS, got);
    assert_rows(got, want, N * (size_t)g.V);
    for (uint32_t i = 0; i < 3; i++) /* their tickets do not become good */
        assert_int_equal(api(&g)->wait(handle(&g), ticket[i], 0, &e), FAK_E_STEP);
    fak_span span = {0, 0, N, 0};
    step_spec spec = engine_spec(&span, NULL, FAK_WANT_ARGMAX);
    spec.flags = FAK_TOKENS_FROM_ARGMAX;
    assert_int_equal(engine_step(&g, &spec, NULL, &e), FAK_E_ARGUMENT);
    engine_close(&g);
}

/* What is done to kv between a failure and its telling is done: a page that a skipped step would have
 * written was copied all the same. */
static void test_copies_in_between(void **state)
{
    (void)state;
    engine g;
    uint32_t token[N];
    uint64_t ticket;
    fak_error e = {0};
    fak_limits limits = paged(FAK_ACT_F32);
    limits.steps = 3;
    engine_open(&g, "tiny-f32.gguf", "honest", "exact=1 fail-submit=2", &limits, FAK_EVICTABLE);
    engine_tokens(&g, 1, token, N);
    engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, want);
    fak_tail tail = plan_tail(g.program.fused.block, 0);
    const fak_span span[3] = {{2, 0, N, 0}, {1, 0, N - 6, 6}, {3, 0, N - 6, 6}};
    for (uint32_t i = 0; i < 3; i++) { /* fails; two that are skipped */
        step_spec spec = engine_spec(&span[i], token + span[i].first, FAK_WANT_LOGITS);
        if (i) assert_int_equal(api(&g)->kv_clone(handle(&g), i * 2 - 1, 0, 8, &e), FAK_OK);
        if (i == 2) assert_int_equal(api(&g)->kv_evict(handle(&g), 3, 6, 2, &e), FAK_OK);
        assert_int_equal(engine_step(&g, &spec, NULL, &e), FAK_OK);
        assert_int_equal(api(&g)->read(handle(&g), tail.out, 0, 1, got, &ticket, &e), FAK_OK);
    }
    assert_int_equal(api(&g)->wait(handle(&g), ticket, FAK_FOREVER, &e), FAK_E_STEP);
    for (uint32_t i = 1; i < 3; i++) {
        engine_feed(&g, span[i].slot, 6, token + 6, N - 6, FAK_WANT_LOGITS, got);
        assert_rows(got, want + 6ul * g.V, (N - 6) * (size_t)g.V);
    }
    engine_close(&g);
}

/* ---- a device that is lost ---- */

static void assert_lost(int32_t s, fak_error *e, const char *first)
{
    assert_int_equal(s, FAK_E_LOST);
    assert_int_equal(e->code, FAK_E_LOST);
    assert_string_equal(e->message, first);
    *e = (fak_error){0};
}

/* Every call answers with the first cause. */
static void each_call(engine *g, const char *first)
{
    const fak_backend *b = api(g);
    fak_program *p = handle(g), *out = NULL;
    fak_report r = {.struct_size = sizeof r};
    fak_source source = {.struct_size = sizeof source};
    uint32_t verdict[512] = {0}, id = 1, token[2] = {1, 2};
    uint64_t ticket = 1ull << 40;
    fak_span span = {0, 0, 2, 0};
    step_spec spec = engine_spec(&span, token, FAK_WANT_LOGITS);
    const fak_step *step = step_write(g->block, &spec);
    fak_error e = {0};
    assert_lost(b->prepare(g->backend.dev.handle, g->program.fused.block, &g->program.limits, NULL,
                           0, verdict, &r, &out, &e),
                &e, first);
    assert_null(out);
    assert_lost(b->load(p, &id, 1, &source, &e), &e, first);
    assert_lost(b->unload(p, &id, 1, &e), &e, first);
    assert_lost(b->begin(p, step, &e), &e, first);
    assert_lost(b->run(p, 0, 1, &e), &e, first);
    assert_lost(g->backend.dev.facts.op->call(p, 0, &e), &e, first);
    assert_lost(b->read(p, plan_tail(g->program.fused.block, 0).out, 0, 1, got, &ticket, &e), &e,
                first);
    assert_lost(b->write(p, plan_tail(g->program.fused.block, 0).out, 0, 1, got, &e), &e, first);
    assert_lost(b->kv_clone(p, 1, 0, 0, &e), &e, first);
    assert_lost(b->kv_trim(p, 0, 0, &e), &e, first);
    assert_lost(b->kv_evict(p, 0, 0, 0, &e), &e, first);
    assert_lost(b->kv_read(p, 0, 0, 0, 0, got, got, &ticket, &e), &e, first);
    assert_lost(b->kv_write(p, 0, 0, 0, 0, got, got, &e), &e, first);
}

static void test_lost_at_every_submit(void **state)
{
    (void)state;
    for (uint32_t k = 1; k <= NEW + 2; k++) {
        char option[64], first[sizeof((fak_error *)0)->message];
        uint32_t token[N + NEW + 2], i = 0;
        engine g;
        fak_error e = {0};
        int32_t s = FAK_OK;
        fak_limits limits = paged(FAK_ACT_F32);
        snprintf(option, sizeof option, "lose-device=%" PRIu32, k);
        engine_open(&g, "tiny-f32.gguf", "honest", option, &limits, FAK_EVICTABLE);
        engine_tokens(&g, 1, token, N + NEW + 2);
        for (; !s && i < NEW + 2; i++) {
            clone_prompt(&g, i);
            s = go(&g, i, token, got, &e);
        }
        assert_int_equal(i, k); /* one submit a step */
        assert_int_equal(s, FAK_E_LOST);
        assert_message(&e, "lost at submit");
        strcpy(first, e.message);
        for (int again = 0; again < 2; again++) each_call(&g, first);
        engine_close(&g); /* release and close work */
    }
}

/* Closed with work under way: nothing is waited for by the host, all is joined and freed. */
static void test_closed_in_flight(void **state)
{
    static const char *const way[] = {"", "hold=1", "lose-device=2", "fail-submit=2"};
    (void)state;
    for (uint32_t w = 0; w < 4; w++) {
        engine g;
        uint32_t token[N];
        fak_error e = {0};
        fak_limits limits = paged(FAK_ACT_F32);
        engine_open(&g, "tiny-f32.gguf", "honest", way[w], &limits, FAK_EVICTABLE);
        engine_tokens(&g, 1, token, N);
        for (uint32_t i = 0; i < 2; i++) {
            fak_span span = {i, 0, N, 0};
            step_spec spec = engine_spec(&span, token, FAK_WANT_LOGITS);
            engine_step(&g, &spec, NULL, &e);
            api(&g)->kv_clone(handle(&g), 3, i, 4, &e);
            api(&g)->kv_evict(handle(&g), 3, 1, 1, &e);
        }
        engine_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_pending),
        cmocka_unit_test(test_wait_beside),
        cmocka_unit_test(test_begin_blocks),
        cmocka_unit_test(test_every_allocation),
        cmocka_unit_test(test_every_submit),
        cmocka_unit_test(test_steps_in_between),
        cmocka_unit_test(test_copies_in_between),
        cmocka_unit_test(test_lost_at_every_submit),
        cmocka_unit_test(test_closed_in_flight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
