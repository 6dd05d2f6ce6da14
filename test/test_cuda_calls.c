/* test_cuda_calls - plugins/cuda in emulation, as the calls of the ABI go: what a token launches, copies and
 * allocates; reads that are waited for by another thread; a call that finds no memory, whichever it is.
 * usage: test_cuda_calls PLUGIN.so [MODEL.gguf].  With MODEL only: what a token launches, on standard output. */
#include "engine.h"

#include "../core/rig.h"
#include "../core/session.h"

#include <pthread.h>
#include <stdlib.h>

static const char *sim; /* the plugin's file */

static const toy_shape small = {.width = 64,
                                .ffn = 96,
                                .heads = 4,
                                .kv_heads = 2,
                                .head_dim = 16,
                                .vocab = 300,
                                .layers = 2,
                                .context = 64};

static void must(int32_t s, const fak_error *e)
{
    if (s) fail_msg("%d: %s", (int)s, e->message);
}

/* ---- what a token costs ---- */

typedef struct cost {
    uint64_t launches, submits, bytes_up, bytes_down, allocations;
} cost;

/* Of a token that follows a prompt of five. */
static cost cost_of_token(const model *m, device *dev, device *host)
{
    static const uint32_t id[] = {5, 17, 101, 2, 33};
    const session_options o = {.context = 64, .rows = 16, .act = FAK_ACT_F32};
    session s = {0};
    fak_error e = {0};
    uint32_t slot, next;
    int there;
    must(session_open(&s, m, dev, host, &o, NULL, NULL, &e), &e);
    assert_int_equal(s.program.holes, 0);
    must(kv_take(&s.kv, &slot, &e), &e);
    must(session_feed(&s, slot, id, 5, FAK_WANT_ARGMAX, 0, &next, &e), &e);
    fak_stats a = rig_stats(dev, &there);
    must(session_feed(&s, slot, &next, 1, FAK_WANT_ARGMAX, 0, &next, &e), &e);
    fak_stats b = rig_stats(dev, &there);
    assert_true(there);
    session_close(&s);
    return (cost){b.dispatches - a.dispatches, b.submits - a.submits, b.bytes_up - a.bytes_up,
                  b.bytes_down - a.bytes_down, b.allocations - a.allocations};
}

/* By layers: plan.py has the same numbers, and the README's table is made of them. */
static void test_launches(void **state)
{
    static const struct {
        const char *options;
        uint64_t layer, outside, submits;
    } of[] = {
        {"fused=1", 9, 6, 2}, /* a graph of the body, a graph of the tail */
        {"fused=0", 16, 6, 2},
    };
    (void)state;
    for (int i = 0; i < 2; i++)
        for (uint32_t layers = 1; layers <= 3; layers++) {
            toy_shape shape = small;
            backend_pair b;
            fak_error e;
            toy g = {0};
            shape.layers = layers;
            must(toy_make(&g, &shape, FAK_F32, TOY_SEED, &e), &e);
            backend_open(&b, sim, of[i].options);
            cost c = cost_of_token(&g.m, &b.dev, &b.host);
            assert_int_equal(c.launches, of[i].layer * layers + of[i].outside);
            assert_int_equal(c.submits, of[i].submits);
            assert_int_equal(c.bytes_down, 4);
            assert_int_equal(c.allocations, 0);
            assert_in_range(c.bytes_up, 1, 256);
            backend_close(&b);
            toy_free(&g);
        }
}

static int tell_launches(const char *file)
{
    backend_pair b;
    gguf *g = NULL;
    model m;
    fak_error e;
    must(gguf_open(&g, file, &e), &e);
    must(model_open(&m, g, 0, 64, &e), &e);
    backend_open(&b, sim, NULL);
    cost c = cost_of_token(&m, &b.dev, &b.host);
    printf("{\"layers\": %u, \"launches\": %llu, \"submits\": %llu}\n", (unsigned)m.layers,
           (unsigned long long)c.launches, (unsigned long long)c.submits);
    backend_close(&b);
    model_close(&m);
    gguf_close(g);
    return 0;
}

/* ---- waits of other threads ---- */

enum { ASKED = 40 }; /* more than the ring has room for */

typedef struct waiter {
    const device *dev;
    fak_program *program;
    uint64_t ticket[ASKED];
    int32_t status[ASKED];
} waiter;

static void *wait_backwards(void *self)
{
    waiter *w = self;
    fak_error e;
    for (int i = ASKED; i-- > 0;)
        w->status[i] = w->dev->api.wait(w->program, w->ticket[i], i % 3 ? FAK_FOREVER : 60000, &e);
    return NULL;
}

static uint32_t find_logits(const program *p)
{
    for (uint32_t v = 1; v < p->values; v++)
        if (p->value[v].kind == FAK_OUT && p->value[v].cols == p->m->vocab) return v;
    return 0;
}

static void test_other_threads(void **state)
{
    static float right[300], got[ASKED][300];
    static const uint32_t id[] = {5, 17, 101};
    session s = {0};
    backend_pair b;
    fak_error e;
    toy g = {0};
    uint32_t slot;
    pthread_t thread;
    (void)state;
    must(toy_make(&g, &small, FAK_F32, TOY_SEED, &e), &e);
    backend_open(&b, sim, NULL);
    must(session_open(&s, &g.m, &b.dev, &b.host, &(session_options){.rows = 8}, NULL, NULL, &e),
         &e);
    must(kv_take(&s.kv, &slot, &e), &e);
    must(session_feed(&s, slot, id, 3, FAK_WANT_LOGITS, 0, right, &e), &e);
    waiter w = {.dev = &b.dev, .program = s.program.handle[SIDE_DEVICE]};
    uint32_t value = find_logits(&s.program);
    assert_true(value);
    for (int i = 0; i < ASKED; i++)
        must(b.dev.api.read(w.program, value, 0, 1, got[i], &w.ticket[i], &e), &e);
    assert_int_equal(pthread_create(&thread, NULL, wait_backwards, &w), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (int i = 0; i < ASKED; i++) {
        assert_int_equal(w.status[i], FAK_OK);
        assert_rows(got[i], right, 300);
    }
    session_close(&s);
    backend_close(&b);
    toy_free(&g);
}

/* ---- no memory ---- */

/* A session on a card whose K-th call that takes memory finds none; 0: it was not so many. */
static int32_t try_without(const backend_pair *b, device *host, const toy *g, int k, fak_error *e)
{
    static const uint32_t id[] = {5, 17, 101};
    char setting[64];
    device dev = {0};
    session s = {0};
    uint32_t slot, next;
    snprintf(setting, sizeof setting, "order=1,fail-memory=%d", k);
    setenv("FAK_CUDA_SIM", setting, 1);
    int32_t rc = device_open(&dev, &b->all.at[0], 0, NULL, 0, e);
    if (!rc) rc = session_open(&s, &g->m, &dev, host, &(session_options){.rows = 8}, NULL, NULL, e);
    if (!rc) rc = kv_take(&s.kv, &slot, e);
    if (!rc) rc = session_feed(&s, slot, id, 3, FAK_WANT_ARGMAX, 0, &next, e);
    session_close(&s);
    device_close(&dev); /* the emulation ends the process where anything is left */
    return rc;
}

static void test_no_memory(void **state)
{
    backend_pair b;
    fak_error e;
    toy g = {0};
    int k = 1;
    (void)state;
    must(toy_make(&g, &small, FAK_Q4_1, TOY_SEED, &e), &e);
    backend_open(&b, sim, NULL);
    device_close(&b.dev);
    for (int32_t s; (s = try_without(&b, &b.host, &g, k, &e)); k++) {
        if (s != FAK_E_MEMORY && s != STATUS_REFUSED)
            fail_msg("call %d: %d, %s", k, (int)s, e.message);
        if (k > 1 && !strstr(e.message, " are free")) fail_msg("call %d: %s", k, e.message);
    }
    assert_in_range(k, 80, 400);
    backend_close(&b);
    toy_free(&g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_launches),
                                       cmocka_unit_test(test_other_threads),
                                       cmocka_unit_test(test_no_memory)};
    if (argc < 2) return 2;
    sim = argv[1];
    setenv("FAK_CUDA_SIM", "order=2", 0);
    return argc > 2 ? tell_launches(argv[2]) : cmocka_run_group_tests(tests, NULL, NULL);
}
