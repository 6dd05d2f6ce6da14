/* Measures: medians, what is run while the clock runs, and that nothing is kept. */
#include "engine.h"

#include "../core/measure.h"

enum { SLOTS = 3, CONTEXT = 40 };

typedef struct opened {
    engine g;
    session s;
    uint32_t id[CONTEXT];
} opened;

static void open_it(opened *o, const char *backend)
{
    fak_error e = {0};
    session_options options = {.context = CONTEXT, .slots = SLOTS, .wanted = SLOTS};
    engine_begin(&o->g, "tiny-f32.gguf", backend, NULL);
    engine_tokens(&o->g, 2, o->id, CONTEXT);
    if (session_open(&o->s, &o->g.tiny.model, &o->g.backend.dev, &o->g.backend.host, &options, NULL,
                     NULL, &e))
        fail_msg("%s", e.message);
}

/* Every slot is free again. */
static void close_it(opened *o)
{
    for (uint32_t i = 0; i < SLOTS; i++) assert_int_equal(o->s.kv.used[i], 0);
    session_close(&o->s);
    engine_close(&o->g);
}

/* One run of decoding after MEASURE_PROMPT ids, whose sequences are given back. */
static int32_t decode_once(session *s, const uint32_t *id, uint32_t batch, uint32_t count,
                           double *seconds, fak_error *e)
{
    decoding d;
    fak_error later;
    int32_t rc = decoding_begin(&d, s, id, batch, MEASURE_PROMPT, e);
    if (!rc) rc = decoding_run(&d, count, seconds, e);
    int32_t ended = decoding_end(&d, rc ? &later : e);
    return rc ? rc : ended;
}

static uint64_t steps(const opened *o)
{
    return o->s.exec.by_id[SIDE_DEVICE][FAK_OP_EMBED];
}

static void test_median(void **state)
{
    (void)state;
    double one[] = {3}, two[] = {4, 1}, five[] = {9, 1, 8, 2, 3}, six[] = {6, 5, 4, 3, 2, 1};
    measure m = measure_of(one, 1);
    assert_true(m.median == 3 && m.low == 3 && m.high == 3);
    m = measure_of(two, 2);
    assert_true(m.median == 2.5 && m.low == 1 && m.high == 4);
    m = measure_of(five, 5);
    assert_true(m.median == 3 && m.low == 1 && m.high == 9);
    m = measure_of(six, 6);
    assert_true(m.median == 3.5 && m.low == 1 && m.high == 6);
}

static void test_steps(void **state)
{
    (void)state;
    opened o;
    fak_error e;
    double seconds = -1;
    open_it(&o, "cpu-ref");
    assert_int_equal(measure_prefill(&o.s, o.id, CONTEXT, &seconds, &e), FAK_OK);
    assert_true(seconds > 0 && seconds < 60);
    assert_int_equal(steps(&o), 1);
    seconds = -1;
    assert_int_equal(decode_once(&o.s, o.id, 1, CONTEXT - MEASURE_PROMPT, &seconds, &e), FAK_OK);
    assert_true(seconds > 0);
    assert_int_equal(steps(&o), 2 + CONTEXT - MEASURE_PROMPT);
    assert_int_equal(decode_once(&o.s, o.id, SLOTS, 10, &seconds, &e), FAK_OK);
    assert_int_equal(steps(&o), 2 + CONTEXT - MEASURE_PROMPT + SLOTS + 10);
    close_it(&o);
}

/* The clock runs while the steps do, and not before. */
static void test_clock(void **state)
{
    (void)state;
    opened o;
    fak_error e;
    double few, many, low = 1e9, high = 1e9;
    open_it(&o, "cpu-ref");
    for (int i = 0; i < 20; i++) { /* the quickest of several: the machine may be busy */
        assert_int_equal(decode_once(&o.s, o.id, 1, 1, &few, &e), FAK_OK);
        assert_int_equal(decode_once(&o.s, o.id, 1, 32, &many, &e), FAK_OK);
        low = few < low ? few : low;
        high = many < high ? many : high;
    }
    if (!(high > 8 * low)) fail_msg("32 tokens take %g s, one %g s", high, low);
    close_it(&o);
}

static void test_ops(void **state)
{
    (void)state;
    opened o;
    fak_error e;
    uint64_t by_id[SIDES][EXEC_IDS];
    open_it(&o, TEST_BUILT "/../plugins/fak-backend-template.so");
    assert_int_equal(measure_ops(&o.s, o.id, by_id, &e), FAK_OK);
    assert_int_equal(by_id[SIDE_DEVICE][FAK_OP_MATMUL], 15);
    assert_int_equal(by_id[SIDE_HOST][FAK_OP_MATMUL], 0);
    assert_int_equal(by_id[SIDE_HOST][FAK_OP_ATTENTION], 2);
    assert_int_equal(by_id[SIDE_HOST][FAK_OP_EMBED], 1);
    assert_int_equal(by_id[SIDE_HOST][FAK_OP_ARGMAX], 1);
    close_it(&o);
}

static int32_t (*real_read)(fak_program *, uint32_t, uint32_t, uint32_t, void *, uint64_t *,
                            fak_error *);
static uint32_t reads, spoil_at;

/* The answer of a row that holds a NaN. */
static int32_t no_id(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                     uint64_t *ticket, fak_error *e)
{
    int32_t s = real_read(p, value, first, rows, dst, ticket, e);
    if (reads++ == spoil_at) ((uint32_t *)dst)[rows - 1] = FAK_NO_INDEX;
    return s;
}

static void test_no_id(void **state)
{
    (void)state;
    for (spoil_at = 0; spoil_at < SLOTS + 2; spoil_at++) {
        opened o;
        fak_error e;
        double seconds;
        open_it(&o, "cpu-ref");
        real_read = o.g.backend.dev.api.read;
        o.g.backend.dev.api.read = no_id;
        reads = 0;
        assert_int_equal(decode_once(&o.s, o.id, SLOTS, 4, &seconds, &e), STATUS_NAN);
        assert_message(&e, "backend cpu-ref answers id 4294967295 of a vocabulary of ");
        reads = spoil_at;
        assert_int_equal(measure_prefill(&o.s, o.id, 5, &seconds, &e), STATUS_NAN);
        close_it(&o);
    }
}

static int stop_after(void *self)
{
    return !(*(int *)self)--;
}

static void test_stops(void **state)
{
    (void)state;
    for (int after = 0; after < SLOTS + 3; after++) {
        opened o;
        fak_error e;
        double seconds;
        int left = after;
        open_it(&o, "cpu-ref");
        o.s.stop = stop_after;
        o.s.stop_self = &left;
        assert_int_equal(decode_once(&o.s, o.id, SLOTS, 4, &seconds, &e), FAK_E_CANCELLED);
        close_it(&o);
    }
}

/* Too many sequences, too many tokens: nothing is kept then either. */
static void test_too_much(void **state)
{
    (void)state;
    opened o;
    fak_error e;
    double seconds;
    open_it(&o, "cpu-ref");
    assert_int_equal(decode_once(&o.s, o.id, SLOTS + 1, 4, &seconds, &e), FAK_E_KV_FULL);
    uint32_t room = CONTEXT - MEASURE_PROMPT;
    assert_int_equal(decode_once(&o.s, o.id, 1, room + 1, &seconds, &e), FAK_E_KV_FULL);
    assert_int_equal(decode_once(&o.s, o.id, 1, room, &seconds, &e), FAK_OK);
    close_it(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median),   cmocka_unit_test(test_steps), cmocka_unit_test(test_clock),
        cmocka_unit_test(test_ops),      cmocka_unit_test(test_no_id), cmocka_unit_test(test_stops),
        cmocka_unit_test(test_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
