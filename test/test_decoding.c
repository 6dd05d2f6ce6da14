/* Decoding as it is measured: every run begins where the last one began, and nothing is kept. */
#include "engine.h"

#include "../core/measure.h"

enum { SLOTS = 2, CONTEXT = 40, STEPS = 3 };

typedef struct opened {
    engine g;
    session s;
    uint32_t id[CONTEXT];
} opened;

static void open_it(opened *o)
{
    fak_error e = {0};
    session_options options = {.context = CONTEXT, .slots = SLOTS, .wanted = SLOTS};
    *o = (opened){0};
    engine_begin(&o->g, "tiny-f32.gguf", "cpu-ref", NULL);
    engine_tokens(&o->g, 2, o->id, CONTEXT);
    if (session_open(&o->s, &o->g.tiny.model, &o->g.backend.dev, &o->g.backend.host, &options, NULL,
                     NULL, &e))
        fail_msg("%s", e.message);
}

static void close_it(opened *o)
{
    for (uint32_t i = 0; i < SLOTS; i++) assert_int_equal(o->s.kv.used[i], 0);
    session_close(&o->s);
    engine_close(&o->g);
}

static void test_runs_begin_alike(void **state)
{
    (void)state;
    static const uint32_t depths[] = {0, 1, 9, CONTEXT - STEPS};
    opened o;
    fak_error e;
    open_it(&o);
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        uint32_t last[SLOTS];
        decoding d;
        assert_int_equal(decoding_begin(&d, &o.s, o.id, SLOTS, depths[i], &e), FAK_OK);
        for (uint32_t b = 0; b < SLOTS; b++) {
            assert_int_equal(o.s.kv.length[d.slot[b]], depths[i]);
            if (!depths[i]) assert_int_equal(d.first[b], o.id[b]);
        }
        for (int run = 0; run < 3; run++) {
            double seconds = -1;
            assert_int_equal(decoding_run(&d, STEPS, &seconds, &e), FAK_OK);
            assert_true(seconds > 0 && seconds < 60);
            for (uint32_t b = 0; b < SLOTS; b++)
                assert_int_equal(o.s.kv.length[d.slot[b]], depths[i] + STEPS);
            if (run) assert_memory_equal(d.next, last, sizeof last);
            memcpy(last, d.next, sizeof last);
        }
        if (depths[i]) assert_int_equal(last[0], last[1]); /* the same context */
        assert_int_equal(decoding_end(&d, &e), FAK_OK);
    }
    close_it(&o);
}

/* The clock runs while the steps do: the context's prompt is not in it. */
static void test_clock(void **state)
{
    (void)state;
    opened o;
    fak_error e;
    open_it(&o);
    decoding d;
    double few, many, low = 1e9, high = 1e9;
    assert_int_equal(decoding_begin(&d, &o.s, o.id, 1, 4, &e), FAK_OK);
    for (int i = 0; i < 20; i++) { /* the quickest of several: the machine may be busy */
        assert_int_equal(decoding_run(&d, 1, &few, &e), FAK_OK);
        assert_int_equal(decoding_run(&d, 32, &many, &e), FAK_OK);
        low = few < low ? few : low;
        high = many < high ? many : high;
    }
    if (!(high > 8 * low)) fail_msg("32 tokens take %g s, one %g s", high, low);
    assert_int_equal(decoding_end(&d, &e), FAK_OK);
    close_it(&o);
}

static int stop_it(void *self)
{
    return *(int *)self;
}

static void test_half_begun(void **state)
{
    (void)state;
    opened o;
    fak_error e;
    decoding d;
    double seconds;
    int stop = 0;
    open_it(&o);
    assert_int_equal(decoding_begin(&d, &o.s, o.id, SLOTS + 1, 4, &e), FAK_E_KV_FULL);
    assert_int_equal(d.batch, SLOTS);
    assert_int_equal(decoding_end(&d, &e), FAK_OK);
    assert_int_equal(decoding_end(&d, &e), FAK_OK); /* of none */
    assert_int_equal(decoding_begin(&d, &o.s, o.id, 1, CONTEXT, &e), FAK_OK);
    assert_int_equal(decoding_run(&d, 1, &seconds, &e), FAK_E_KV_FULL);
    assert_int_equal(decoding_end(&d, &e), FAK_OK);
    o.s.stop = stop_it;
    o.s.stop_self = &stop;
    assert_int_equal(decoding_begin(&d, &o.s, o.id, 1, 4, &e), FAK_OK);
    stop = 1;
    assert_int_equal(decoding_run(&d, 2, &seconds, &e), FAK_E_CANCELLED);
    assert_int_equal(decoding_end(&d, &e), FAK_OK);
    close_it(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_begin_alike),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_half_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
