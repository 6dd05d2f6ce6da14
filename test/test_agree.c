/* A device and the reference on a model: what is compared, in what order, and what must be caught. */
#include "engine.h"

#include "../core/agree.h"
#include "../core/ref.h"

#include <math.h>

enum { PROMPT = 40, GREEDY = 9, POSITIONS = PROMPT + GREEDY }; /* more than a step of the prompt */

static uint32_t prompt[PROMPT], ids[GREEDY];
static uint64_t by_id[SIDES][EXEC_IDS];

static agree_options options_of(const engine *g)
{
    engine_tokens(g, 3, prompt, PROMPT);
    return (agree_options){
        .context = POSITIONS, .greedy = GREEDY, .prompt = prompt, .prompt_count = PROMPT};
}

static gate_tally run(engine *g, const agree_options *o)
{
    gate_tally t;
    fak_error e = {0};
    if (agree_run(&g->tiny.model, &g->backend.dev, &g->backend.host, o, &t, by_id, ids, &e))
        fail_msg("%s", e.message);
    assert_int_equal(t.positions, POSITIONS);
    assert_int_equal(t.logits.values, POSITIONS * g->V);
    return t;
}

static int32_t judge(engine *g, const gate_tally *t, fak_error *e)
{
    gate_bound b = agree_bound(&g->tiny.model, &g->backend.dev, 0, 0);
    int32_t s = gate_positions(t, &b, e);
    return s ? s : gate_native_counts(&g->backend.dev, by_id[0], e);
}

/* ---- devices that are right ---- */

static void test_an_honest_device(void **state)
{
    (void)state;
    for (int exact = 0; exact < 2; exact++)
        for (uint32_t i = 0; i < TINY_MODELS; i++) {
            engine g;
            fak_error e = {0};
            engine_begin(&g, tiny_names[i], "honest", exact ? "exact=1" : NULL);
            agree_options o = options_of(&g);
            gate_tally t = run(&g, &o);
            if (judge(&g, &t, &e)) fail_msg("%s: %s", tiny_names[i], e.message);
            assert_int_equal(t.logits.differ > 0, !exact); /* another order of sums is seen */
            assert_int_equal(agree_bound(&g.tiny.model, &g.backend.dev, 0, 0).exact, exact);
            engine_close(&g);
        }
}

/* The reference's ids are those of a plain greedy run, and depend on the device in nothing. */
static void test_greedy_ids(void **state)
{
    static float logits[PROMPT * ENGINE_VOCAB];
    (void)state;
    engine g;
    fak_limits limits = engine_limits(FAK_ACT_Q8, FAK_F16);
    limits.context = POSITIONS;
    limits.kv_tokens = ENGINE_SLOTS * POSITIONS;
    engine_open(&g, "tiny-q8_0.gguf", "refuser", "fused=1 refuse=rope", &limits, 0);
    agree_options o = options_of(&g);
    o.act = FAK_ACT_Q8;
    o.kv_dtype = FAK_F16;
    gate_tally t = run(&g, &o);
    assert_int_equal(t.logits.differ, 0);
    engine_feed(&g, 0, 0, prompt, PROMPT, FAK_WANT_LOGITS, logits);
    uint32_t id = ref_argmax(g.V, logits + (size_t)(PROMPT - 1) * g.V);
    for (uint32_t i = 0; i < GREEDY; i++) {
        assert_int_equal(ids[i], id);
        engine_feed(&g, 0, PROMPT + i, &id, 1, FAK_WANT_LOGITS, logits);
        id = ref_argmax(g.V, logits);
    }
    engine_close(&g);
}

static void test_counts(void **state)
{
    (void)state;
    engine g;
    fak_error e = {0};
    enum { STEPS = 2 + GREEDY };
    engine_begin(&g, "tiny-f32.gguf", "refuser", "refuse=att+glu-layer1");
    agree_options o = options_of(&g);
    gate_tally t = run(&g, &o);
    assert_int_equal(by_id[SIDE_DEVICE][FAK_OP_MATMUL], 15 * STEPS);
    assert_int_equal(by_id[SIDE_HOST][FAK_OP_MATMUL], 0);
    assert_int_equal(by_id[SIDE_HOST][FAK_OP_ATTENTION], 2 * STEPS);
    assert_int_equal(by_id[SIDE_HOST][FAK_OP_GLU], STEPS);
    assert_int_equal(judge(&g, &t, &e), STATUS_GATE);
    assert_message(&e, "left 0 matmuls and 22 attentions");
    engine_close(&g);
}

/* ---- devices that are wrong ---- */

static int32_t (*real_read)(fak_program *, uint32_t, uint32_t, uint32_t, void *, uint64_t *,
                            fak_error *);
static uint32_t spoil_from, rows_read, V;
static void (*spoil)(float *row);

static int32_t spoiled_read(fak_program *p, uint32_t value, uint32_t first, uint32_t rows,
                            void *dst, uint64_t *ticket, fak_error *e)
{
    int32_t s = real_read(p, value, first, rows, dst, ticket, e);
    for (uint32_t i = 0; i < rows; i++)
        if (rows_read++ == spoil_from) spoil((float *)dst + (size_t)i * V);
    return s;
}

static void scale(float *row)
{
    for (uint32_t i = 0; i < V; i++) row[i] *= 1.02f;
}

static void swap_best(float *row)
{
    uint32_t best = ref_argmax(V, row);
    row[(best + 1) % V] = row[best] + 0.01f;
}

static void lose_a_bit(float *row)
{
    row[7] = nextafterf(row[7], 1e9f);
}

static void make_nan(float *row)
{
    row[9] = NAN;
}

static void check_spoiled(uint32_t klass, void (*how)(float *), const char *sentence)
{
    static const uint32_t at[] = {0, 31, 32, PROMPT, POSITIONS - 1};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        engine g;
        fak_error e = {0};
        engine_begin(&g, "tiny-f32.gguf", "refuser", NULL); /* cpu-ref's own bits */
        g.backend.dev.facts.klass = klass;
        V = g.V;
        spoil = how;
        spoil_from = at[i];
        rows_read = 0;
        real_read = g.backend.dev.api.read;
        g.backend.dev.api.read = spoiled_read;
        agree_options o = options_of(&g);
        gate_tally t = run(&g, &o);
        assert_int_equal(rows_read, POSITIONS);
        assert_int_equal(judge(&g, &t, &e), STATUS_GATE);
        assert_message(&e, sentence);
        engine_close(&g);
    }
}

/* One row of all is spoiled: in the first step of the prompt, at its edge, and among the greedy ones. */
static void test_wrong_devices(void **state)
{
    (void)state;
    check_spoiled(FAK_REFERENCE, lose_a_bit, "1 of ");
    check_spoiled(FAK_APPROX, scale, "norm ratio 1.02");
    check_spoiled(FAK_APPROX, swap_best, "have another argmax");
    check_spoiled(FAK_APPROX, make_nan, "have another argmax");
}

/* ---- order, stops, refusals ---- */

typedef struct watch {
    uint64_t last, stop_at;
    uint32_t early; /* calls in which the device held a program while the reference ran */
    uint32_t most;  /* programs at once */
} watch;

static int look(void *self, uint64_t done, uint64_t of)
{
    watch *w = self;
    assert_int_equal(of, 2 * POSITIONS);
    assert_true(done >= w->last && done <= of);
    if (done < POSITIONS && refuser_seen.programs) w->early++;
    if (refuser_seen.programs > w->most) w->most = refuser_seen.programs;
    w->last = done;
    return done >= w->stop_at;
}

static void test_one_after_the_other(void **state)
{
    (void)state;
    engine g;
    watch w = {.stop_at = UINT64_MAX};
    engine_begin(&g, "tiny-q4_1.gguf", "refuser", NULL);
    refuser_seen.programs = 0;
    agree_options o = options_of(&g);
    o.progress = look;
    o.self = &w;
    run(&g, &o);
    assert_int_equal(w.last, 2 * POSITIONS);
    assert_int_equal(w.early, 0);
    assert_int_equal(refuser_seen.programs, 0);
    device host = g.backend.host; /* and the reference's is gone before the device's comes */
    g.backend.host = g.backend.dev;
    w = (watch){.stop_at = UINT64_MAX};
    run(&g, &o);
    assert_int_equal(w.most, 1);
    assert_int_equal(refuser_seen.programs, 0);
    g.backend.host = host;
    engine_close(&g);
}

static void test_stops(void **state)
{
    (void)state;
    for (uint64_t at = 0; at <= 2 * POSITIONS; at += 7) {
        engine g;
        gate_tally t;
        fak_error e = {0};
        watch w = {.stop_at = at};
        engine_begin(&g, "tiny-f32.gguf", "refuser", NULL);
        agree_options o = options_of(&g);
        o.progress = look;
        o.self = &w;
        assert_int_equal(
            agree_run(&g.tiny.model, &g.backend.dev, &g.backend.host, &o, &t, by_id, NULL, &e),
            FAK_E_CANCELLED);
        assert_int_equal(refuser_seen.programs, 0);
        engine_close(&g);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    engine g;
    gate_tally t;
    fak_error e = {0};
    engine_begin(&g, "tiny-f32.gguf", "refuser", NULL);
    agree_options o = options_of(&g);
    o.context--;
    const model *m = &g.tiny.model;
    device *dev = &g.backend.dev, *host = &g.backend.host;
    assert_int_equal(agree_run(m, dev, host, &o, &t, by_id, NULL, &e), STATUS_REFUSED);
    assert_message(&e, "a prompt of 40 ids and 9 steps are to be compared; the context is 48");
    o = options_of(&g);
    o.prompt_count = 0;
    assert_int_equal(agree_run(m, dev, host, &o, &t, by_id, NULL, &e), STATUS_REFUSED);
    o = options_of(&g);
    o.kv_dtype = FAK_I8;
    assert_true(agree_run(m, dev, host, &o, &t, by_id, NULL, &e) < 0);
    assert_message(&e, "kv");
    o = options_of(&g);
    prompt[3] = g.V;
    assert_int_equal(agree_run(m, dev, host, &o, &t, by_id, NULL, &e), FAK_E_ARGUMENT);
    engine_close(&g);
}

/* The loosest of the model's matrices; plain weights are held to the F32 line in Q8 mode as well. */
static void test_bounds(void **state)
{
    (void)state;
    static const fak_bound theirs = {FAK_Q4_1, FAK_F16, 0.9995f, 0.005f, 0, 0};
    engine g;
    engine_begin(&g, "tiny-q4_1.gguf", TEST_BUILT "/../plugins/fak-backend-template.so", NULL);
    device *d = &g.backend.dev;
    d->facts.bound = &theirs;
    d->facts.bound_stride = sizeof theirs;
    d->facts.bounds = 1;
    gate_bound q8 = agree_bound(&g.tiny.model, d, FAK_ACT_Q8, FAK_F32);
    assert_true(q8.cosine == 0.999 && q8.norm_ratio == 0.01 && q8.max_abs == 0.5 && !q8.exact);
    assert_string_equal(q8.mode, "Q8 activations");
    q8 = agree_bound(&g.tiny.model, d, FAK_ACT_Q8, FAK_F16);
    assert_true(q8.cosine > 0.9994 && q8.norm_ratio < 0.0051 && q8.max_abs == 0.5);
    gate_bound f32 = agree_bound(&g.tiny.model, d, 0, 0); /* all that it offers */
    assert_true(f32.cosine == 0.9999 && f32.max_abs == 0.1);
    model *m = &g.tiny.model; /* one matrix of another dtype */
    m->weights.at[model_weight(m, MODEL_UP, 1)].dtype = FAK_I4;
    q8 = agree_bound(m, d, FAK_ACT_Q8, FAK_F16);
    assert_true(q8.cosine == 0.995 && q8.norm_ratio == 0.03 && q8.rel_l2 == 0.1);
    assert_true(q8.max_abs == 1.5 && q8.op_l2 == 0.05);
    m->weights.at[model_weight(m, MODEL_UP, 1)].dtype = FAK_Q4_1;
    engine_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_honest_device),
        cmocka_unit_test(test_greedy_ids),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_wrong_devices),
        cmocka_unit_test(test_one_after_the_other),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
