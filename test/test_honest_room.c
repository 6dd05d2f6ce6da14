/* Room on the honest device: capacity to the byte, limits that fit, pages of kv and who shares them, rows
 * of kv by hand, weights that are borrowed. */
#include "honest_fixture.h"

#include "../core/session.h"

#include <inttypes.h>

enum { N = 9, V_MAX = ENGINE_VOCAB };

static float want[64 * V_MAX], got[64 * V_MAX];

/* ---- capacity ---- */

static uint64_t device_bytes(const fak_report *r)
{
    return r->weight_bytes + r->kv_bytes + r->scratch_bytes;
}

static void open_sized(engine *g, uint64_t bytes)
{
    char option[64];
    snprintf(option, sizeof option, "memory=%" PRIu64, bytes);
    engine_begin(g, "tiny-q4_1.gguf", "honest", option);
}

static fak_report dry_run(engine *g, const fak_limits *limits)
{
    fak_error e = {0};
    if (program_prepare(&g->program, &g->backend.dev, &g->backend.host, &g->tiny.model, limits,
                        FAK_DRY_RUN, &e))
        fail_msg("%s", e.message);
    assert_null(handle(g));
    return g->program.report[SIDE_DEVICE];
}

/* The report of a dry run is what is asked for, to the byte. */
static void test_capacity_is_exact(void **state)
{
    (void)state;
    engine g;
    fak_error e = {0};
    fak_limits limits = paged(FAK_ACT_F32);
    engine_begin(&g, "tiny-q4_1.gguf", "honest", NULL);
    fak_report r = dry_run(&g, &limits);
    assert_true(r.flags & FAK_EXACT);
    assert_int_equal(r.kv_page, KV_PAGE);
    assert_int_equal(r.kv_bytes, r.kv_token_bytes * limits.kv_tokens);
    assert_int_equal(stats_of(&g).allocations, 0);
    engine_close(&g);
    for (uint32_t less = 0; less <= 64; less += 64) {
        open_sized(&g, device_bytes(&r) - less);
        int32_t s = engine_try(&g, &limits, 0, &e);
        assert_int_equal(s, less ? STATUS_REFUSED : FAK_OK);
        if (less) {
            char part[40];
            snprintf(part, sizeof part, "takes %" PRIu64 " bytes", device_bytes(&r));
            assert_message(&e, part);
            snprintf(part, sizeof part, "%" PRIu64 " are free", device_bytes(&r) - less);
            assert_message(&e, part);
        }
        engine_close(&g);
    }
}

/* After MEMORY the report says limits that fit, and they do; one page more does not. */
static void test_fit_fits(void **state)
{
    (void)state;
    engine g;
    fak_error e = {0};
    fak_limits limits = paged(FAK_ACT_F32);
    engine_begin(&g, "tiny-q4_1.gguf", "honest", NULL);
    fak_report r = dry_run(&g, &limits);
    engine_close(&g);
    for (uint32_t i = 1; i <= 8; i++) {
        limits = paged(FAK_ACT_F32);
        open_sized(&g, device_bytes(&r) - i * (r.kv_bytes + r.scratch_bytes) / 10);
        assert_int_equal(engine_try(&g, &limits, 0, &e), STATUS_REFUSED);
        fak_report fit = g.program.report[SIDE_DEVICE];
        engine_end(&g);
        assert_in_range(fit.fit_kv_tokens, KV_PAGE, limits.kv_tokens);
        assert_in_range(fit.fit_rows, 1, limits.rows);
        limits.rows = fit.fit_rows;
        limits.wanted = fit.fit_wanted;
        limits.kv_tokens = fit.fit_kv_tokens;
        if (engine_try(&g, &limits, 0, &e)) fail_msg("%s", e.message);
        engine_close(&g);
    }
    open_sized(&g, 4096); /* not even the weights */
    limits = paged(FAK_ACT_F32);
    assert_int_equal(engine_try(&g, &limits, 0, &e), STATUS_REFUSED);
    assert_int_equal(g.program.report[SIDE_DEVICE].fit_rows, 0);
    engine_close(&g);
}

/* ---- pages ---- */

/* Three pages: shared ones count once, a shared page is copied by whom it is written, and a begin that
 * finds no page has changed nothing. */
static void test_pages(void **state)
{
    (void)state;
    engine g;
    uint32_t token[40], from, to;
    fak_error e = {0};
    fak_limits limits = paged(FAK_ACT_F32);
    limits.kv_tokens = 3 * KV_PAGE;
    engine_open(&g, "tiny-f32.gguf", "honest", "exact=1", &limits, 0);
    engine_tokens(&g, 3, token, 40);
    engine_feed(&g, 3, 0, token, 40, FAK_WANT_LOGITS, want);
    assert_int_equal(api(&g)->kv_trim(handle(&g), 3, 0, &e), FAK_OK);
    assert_int_equal(kv_take(&g.kv, &from, &e), FAK_OK);
    engine_feed(&g, from, 0, token, 32, FAK_WANT_NONE, NULL);
    kv_extend(&g.kv, from, 32);
    assert_int_equal(kv_clone(&g.kv, from, 32, &to, &e), FAK_OK); /* two pages, shared */
    engine_feed(&g, to, 32, token + 32, 8, FAK_WANT_LOGITS, got); /* the third */
    assert_rows(got, want + 32ul * g.V, 8ul * g.V);
    fak_span span = {from, 0, 1, 32};
    step_spec spec = engine_spec(&span, token + 32, FAK_WANT_LOGITS);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(engine_step(&g, &spec, got, &e), FAK_E_KV_FULL);
        assert_int_equal(e.index, 0);
        assert_message(&e, "3 of 3 are in use");
    }
    span.first = 31; /* a page that is shared: it would take one more */
    assert_int_equal(engine_step(&g, &spec, got, &e), FAK_E_KV_FULL);
    const fak_span two[2] = {{to, 0, 1, 20}, {from, 1, 1, 32}};
    spec = (step_spec){FAK_WANT_LOGITS, 0, 2, 2, 2, token, engine_rows, two};
    assert_int_equal(engine_step(&g, &spec, got, &e),
                     FAK_E_KV_FULL); /* the first would have room */
    assert_int_equal(e.index, 1);
    engine_feed(&g, to, 39, token + 39, 1, FAK_WANT_LOGITS, got); /* nobody has lost anything */
    assert_rows(got, want + 39ul * g.V, g.V);
    assert_int_equal(api(&g)->kv_trim(handle(&g), to, 32, &e), FAK_OK);
    engine_feed(&g, from, 31, token + 31, 1, FAK_WANT_LOGITS, got);
    assert_rows(got, want + 31ul * g.V, g.V);
    engine_close(&g);
}

/* A session has room for the context of every slot at once, whatever the pages are. */
static void test_session_fills_every_slot(void **state)
{
    (void)state;
    engine g;
    session s;
    uint32_t token[40], id, slot;
    fak_error e = {0};
    engine_begin(&g, "tiny-f32.gguf", "honest", NULL);
    engine_tokens(&g, 3, token, 40);
    session_options options = {.context = 40, .slots = 4, .rows = 16};
    if (session_open(&s, &g.tiny.model, &g.backend.dev, &g.backend.host, &options, NULL, NULL, &e))
        fail_msg("%s", e.message);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(kv_take(&s.kv, &slot, &e), FAK_OK);
        if (session_feed(&s, slot, token, 40, FAK_WANT_ARGMAX, 0, &id, &e))
            fail_msg("sequence %u: %s", (unsigned)i, e.message);
    }
    session_close(&s);
    engine_close(&g);
}

/* What a session of so many rows takes of the device; 0 rows: as it chooses. */
static fak_report session_report(uint32_t rows)
{
    engine g;
    session s;
    fak_error e = {0};
    engine_begin(&g, "tiny-q4_1.gguf", "honest", NULL);
    if (session_open(&s, &g.tiny.model, &g.backend.dev, &g.backend.host,
                     &(session_options){.rows = rows}, NULL, NULL, &e))
        fail_msg("%s", e.message);
    fak_report r = s.program.report[SIDE_DEVICE];
    session_close(&s);
    engine_close(&g);
    return r;
}

/* Opens a session on a device of so many bytes; of a good one answers the rows, and runs it. */
static uint32_t rows_within(uint64_t bytes, const session_options *o, fak_error *e)
{
    engine g;
    session s;
    uint32_t token[100], slot, id;
    open_sized(&g, bytes);
    int32_t rc = session_open(&s, &g.tiny.model, &g.backend.dev, &g.backend.host, o, NULL, NULL, e);
    uint32_t rows = rc ? 0 : s.program.limits.rows;
    engine_tokens(&g, 3, token, 100);
    if (!rc && (kv_take(&s.kv, &slot, e) ||
                session_feed(&s, slot, token, o->context ? 9 : 100, FAK_WANT_ARGMAX, 0, &id, e)))
        fail_msg("%s", e->message);
    if (rc) assert_int_equal(rc, STATUS_REFUSED);
    session_close(&s);
    engine_close(&g);
    return rows;
}

/* A session that chooses its rows takes fewer on a device without memory for many; one that is told how
 * many does not, and is refused.  Without room for kv the context is told that fits, and it does. */
static void test_session_takes_fewer_rows(void **state)
{
    (void)state;
    fak_error e = {0};
    const session_options chooses = {0}, told = {.rows = 128};
    const fak_report most = session_report(0), few = session_report(32), least = session_report(16);
    assert_int_equal(rows_within(device_bytes(&most), &chooses, &e), 128);
    assert_int_equal(rows_within(device_bytes(&most) - 64, &chooses, &e), 64);
    assert_int_equal(rows_within(device_bytes(&few), &chooses, &e), 32);
    assert_int_equal(rows_within(device_bytes(&least), &chooses, &e), 16);
    assert_int_equal(rows_within(device_bytes(&least), &told, &e), 0);
    assert_int_equal(rows_within(device_bytes(&least) - 64, &chooses, &e), 0);
    assert_message(&e, "takes");
    const char *named = strstr(e.message, "the largest context that fits is ");
    if (!named) fail_msg("%s", e.message);
    uint32_t context =
        (uint32_t)strtoul(named + strlen("the largest context that fits is "), NULL, 10);
    assert_in_range(context, 16, 127);
    assert_in_range(
        rows_within(device_bytes(&least) - 64, &(session_options){.context = context}, &e), 1, 16);
    assert_int_equal(rows_within(4096, &chooses, &e), 0);
    assert_null(strstr(e.message, "the largest context"));
}

/* Rows of kv read, written into another slot, and gone on with. */
static void test_kv_rows(void **state)
{
    (void)state;
    engine g;
    uint32_t token[40];
    uint64_t ticket;
    fak_error e = {0};
    fak_limits limits = paged(FAK_ACT_F32);
    engine_open(&g, "tiny-f32.gguf", "honest", "exact=1", &limits, 0);
    engine_tokens(&g, 3, token, 40);
    engine_feed(&g, 0, 0, token, 40, FAK_WANT_LOGITS, want);
    uint32_t cols = g.tiny.model.kv_heads * g.tiny.model.head_dim;
    float *k = malloc(34ul * cols * 4), *v = malloc(34ul * cols * 4);
    assert_non_null(k);
    assert_non_null(v);
    for (uint32_t l = 0; l < g.tiny.model.layers; l++) {
        assert_int_equal(api(&g)->kv_read(handle(&g), 0, l, 0, 34, k, v, &ticket, &e), FAK_OK);
        assert_int_equal(api(&g)->wait(handle(&g), ticket, FAK_FOREVER, &e), FAK_OK);
        assert_int_equal(api(&g)->kv_write(handle(&g), 2, l, 0, 30, k, v, &e), FAK_OK);
        assert_int_equal(
            api(&g)->kv_write(handle(&g), 2, l, 30, 4, k + 30ul * cols, v + 30ul * cols, &e),
            FAK_OK);
    }
    engine_feed(&g, 2, 34, token + 34, 6, FAK_WANT_LOGITS, got);
    assert_rows(got, want + 34ul * g.V, 6ul * g.V);
    assert_int_equal(api(&g)->kv_write(handle(&g), 1, 0, 1, 1, k, v, &e),
                     FAK_E_ARGUMENT); /* a gap */
    assert_int_equal(api(&g)->kv_read(handle(&g), 0, 99, 0, 1, k, v, &ticket, &e), FAK_E_ARGUMENT);
    free(k);
    free(v);
    engine_close(&g);
}

/* A twin that borrows the loaded weights: no second copy of them, nothing to load. */
static void test_borrowed_weights(void **state)
{
    (void)state;
    engine g;
    uint32_t token[N], verdict[512], id[512], n = 0;
    fak_error e = {0};
    uint64_t ticket;
    fak_limits limits = paged(FAK_ACT_F32);
    engine_open(&g, "tiny-f32.gguf", "honest", "exact=1", &limits, 0);
    engine_tokens(&g, 1, token, N);
    engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, want);
    const fak_plan *block = g.program.fused.block;
    fak_report r = {.struct_size = sizeof r};
    fak_program *twin;
    for (uint32_t i = 0; i < block->ops.count; i++) verdict[i] = FAK_TAKEN;
    for (uint32_t i = 0; i < g.program.values; i++)
        if (g.program.value[i].kind == FAK_WEIGHT) id[n++] = i;
    fak_stats before = stats_of(&g);
    if (api(&g)->prepare(g.backend.dev.handle, block, &g.program.limits, handle(&g), FAK_KEEP_ALL,
                         verdict, &r, &twin, &e))
        fail_msg("%s", e.message);
    assert_int_equal(r.weight_bytes, 0);
    assert_int_equal(
        api(&g)->load(twin, id, n, &(fak_source){.struct_size = sizeof(fak_source)}, &e), FAK_OK);
    assert_int_equal(stats_of(&g).bytes_up, before.bytes_up);
    fak_span span = {0, 0, N, 0};
    step_spec spec = engine_spec(&span, token, FAK_WANT_LOGITS);
    fak_tail tail = plan_tail(block, 0);
    assert_int_equal(api(&g)->begin(twin, step_write(g.block, &spec), &e), FAK_OK);
    for (uint32_t i = 0; i < block->body_ops; i++) /* KEEP_ALL: one at a time */
        assert_int_equal(api(&g)->run(twin, i, 1, &e), FAK_OK);
    assert_int_equal(api(&g)->run(twin, tail.first, tail.ops, &e), FAK_OK);
    assert_int_equal(api(&g)->read(twin, tail.out, 0, N, got, &ticket, &e), FAK_OK);
    assert_int_equal(api(&g)->wait(twin, ticket, FAK_FOREVER, &e), FAK_OK);
    assert_rows(got, want, N * (size_t)g.V);
    api(&g)->release(twin);
    engine_feed(&g, 1, 0, token, N, FAK_WANT_LOGITS, got); /* the lender has them still */
    assert_rows(got, want, N * (size_t)g.V);
    engine_close(&g);
}

/* What staging is made of: a weight that is unloaded is gone, and loaded again it is in its place.
 * A limit of resident weights is refused, not passed over, where they are always all there. */
static void test_weights_go_and_come(void **state)
{
    (void)state;
    engine g;
    uint32_t token[N], tried = 0;
    fak_error e = {0};
    fak_limits limits = paged(FAK_ACT_F32);
    engine_open(&g, "tiny-q8_0.gguf", "honest", "exact=1", &limits, 0);
    engine_tokens(&g, 1, token, N);
    engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, want);
    uint64_t allocations = stats_of(&g).allocations;
    for (uint32_t i = 0; i < g.program.values; i++) {
        if (g.program.value[i].kind != FAK_WEIGHT) continue;
        assert_int_equal(api(&g)->unload(handle(&g), &i, 1, &e), FAK_OK);
        engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, got);
        assert_memory_not_equal(got, want, N * (size_t)g.V * sizeof *got);
        uint64_t before = stats_of(&g).bytes_up;
        if (program_load(&g.program, NULL, NULL, &e)) fail_msg("%s", e.message);
        uint64_t again = stats_of(&g).bytes_up - before; /* this one, and no other */
        assert_in_range(again, 1, g.program.report[SIDE_DEVICE].weight_bytes / 2);
        engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, got);
        assert_rows(got, want, N * (size_t)g.V);
        tried++;
    }
    assert_true(tried > 10);
    assert_int_equal(stats_of(&g).allocations, allocations);
    engine_end(&g);
    limits.weight_bytes = 1 << 20;
    assert_int_equal(engine_try(&g, &limits, 0, &e), FAK_E_UNSUPPORTED);
    assert_message(&e, "weights are all resident");
    engine_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_capacity_is_exact),
        cmocka_unit_test(test_fit_fits),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_session_fills_every_slot),
        cmocka_unit_test(test_session_takes_fewer_rows),
        cmocka_unit_test(test_kv_rows),
        cmocka_unit_test(test_borrowed_weights),
        cmocka_unit_test(test_weights_go_and_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
