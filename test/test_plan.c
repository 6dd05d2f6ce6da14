/* The plan of a model: its ops, values, tails and repeats as they must be, and its hash. */
#include "support.h"

#include "../core/plan_check.h"

#define NONE FAK_NO_INDEX

/* ---- the plan of a tied model of 2 layers, to the last field ---- */

enum { /* values of tiny-f32.gguf; those of layer 1 lie STRIDE further, but for those before X */
       ROPE = 1,
       EMBED,
       OUT_NORM,
       X,
       NORM_W,
       N,
       Q_W,
       Q,
       K_W,
       K,
       V_W,
       V,
       Q_TURNED,
       ATTENDED,
       O_W,
       O,
       X_MID,
       FFN_NORM_W,
       FFN_N,
       GATE_W,
       GATE,
       UP_W,
       UP,
       H,
       DOWN_W,
       DOWN,
       X_NEXT,
       STRIDE = X_NEXT - X,
       LAYER_OPS = 15,
       BODY = 1 + 2 * LAYER_OPS
};

#define MATMUL(y, x, w)                                                                            \
    {                                                                                              \
        .id = FAK_OP_MATMUL, .in = {x, w}, .out = { y }                                            \
    }
#define NORM(y, x, w)                                                                              \
    {                                                                                              \
        .id = FAK_OP_RMSNORM, .in = {x, w}, .out = {y}, .eps = 1e-5f                               \
    }

static const fak_op layer_ops[LAYER_OPS] = {
    /* clang-format off */
    NORM(N, X, NORM_W),
    MATMUL(Q, N, Q_W),
    MATMUL(K, N, K_W),
    MATMUL(V, N, V_W),
    {.id = FAK_OP_ROPE, .in = {Q, ROPE}, .out = {Q_TURNED}, .heads = 4, .head_dim = 16,
     .rot_dim = 16},
    {.id = FAK_OP_KV_APPEND, .in = {K, V, ROPE}, .kv_heads = 2, .head_dim = 16, .rot_dim = 16},
    {.id = FAK_OP_ATTENTION, .in = {Q_TURNED}, .out = {ATTENDED}, .heads = 4, .kv_heads = 2,
     .head_dim = 16, .scale = 0.25f},
    MATMUL(O, ATTENDED, O_W),
    {.id = FAK_OP_ADD, .in = {X, O}, .out = {X_MID}},
    NORM(FFN_N, X_MID, FFN_NORM_W),
    MATMUL(GATE, FFN_N, GATE_W),
    MATMUL(UP, FFN_N, UP_W),
    {.id = FAK_OP_GLU, .in = {GATE, UP}, .out = {H}, .act = FAK_SILU},
    MATMUL(DOWN, H, DOWN_W),
    {.id = FAK_OP_ADD, .in = {X_MID, DOWN}, .out = {X_NEXT}},
    /* clang-format on */
};

static void assert_op(const fak_plan *p, uint32_t i, fak_op expected, uint32_t layer)
{
    fak_op o = plan_op(p, i);
    expected.revision = 1;
    expected.layer = layer;
    if (memcmp(&o, &expected, sizeof o)) fail_msg("op %u is not as expected", (unsigned)i);
}

/* The same op, `by` value ids further; what all layers share stays. */
static fak_op shifted(fak_op o, uint32_t by)
{
    for (int j = 0; j < OP_INPUTS; j++) o.in[j] += o.in[j] >= X ? by : 0;
    for (int j = 0; j < OP_OUTPUTS; j++) o.out[j] += o.out[j] ? by : 0;
    return o;
}

static void assert_tail(const fak_plan *p, uint32_t i, uint32_t want, uint32_t first, uint32_t ops,
                        uint32_t out)
{
    fak_tail t = plan_tail(p, i);
    assert_int_equal(t.want, want);
    assert_int_equal(t.first, first);
    assert_int_equal(t.ops, ops);
    assert_int_equal(t.out, out);
}

static void test_ops(void **state)
{
    tiny t;
    uint32_t x = X + 2 * STRIDE, y = x + 1; /* what the body leaves; the tails' values follow */
    (void)state;
    tiny_open(&t, "tiny-f32.gguf");
    const fak_plan *p = t.plan.block;
    assert_int_equal(p->body_ops, BODY);
    assert_int_equal(p->ops.count, BODY + 3 + 4);
    assert_op(p, 0, (fak_op){.id = FAK_OP_EMBED, .in = {EMBED}, .out = {X}}, NONE);
    for (uint32_t l = 0; l < 2; l++)
        for (uint32_t i = 0; i < LAYER_OPS; i++)
            assert_op(p, 1 + l * LAYER_OPS + i, shifted(layer_ops[i], l * STRIDE), l);

    assert_op(p, BODY, (fak_op){.id = FAK_OP_TAKE_ROWS, .in = {x}, .out = {y}}, NONE);
    assert_op(p, BODY + 1, (fak_op)NORM(y + 1, y, OUT_NORM), NONE);
    assert_op(p, BODY + 2, (fak_op)MATMUL(y + 2, y + 1, EMBED), NONE);
    assert_op(p, BODY + 3, (fak_op){.id = FAK_OP_TAKE_ROWS, .in = {x}, .out = {y + 3}}, NONE);
    assert_op(p, BODY + 4, (fak_op)NORM(y + 4, y + 3, OUT_NORM), NONE);
    assert_op(p, BODY + 5, (fak_op)MATMUL(y + 5, y + 4, EMBED), NONE);
    assert_op(p, BODY + 6, (fak_op){.id = FAK_OP_ARGMAX, .in = {y + 5}, .out = {y + 6}}, NONE);
    assert_int_equal(p->tails.count, 2);
    assert_tail(p, 0, FAK_WANT_LOGITS, BODY, 3, y + 2);
    assert_tail(p, 1, FAK_WANT_ARGMAX, BODY + 3, 4, y + 6);
    for (uint32_t i = 0; i < p->ops.count; i++) assert_int_equal(t.plan.origin[i], i);
    tiny_close(&t);
}

static const struct {
    uint32_t id, kind, rows, cols; /* rows or cols 0: the vocabulary */
    enum model_role role;          /* MODEL_ROLES: not a weight */
} layer_values[] = {
    /* clang-format off */
    {NORM_W, FAK_WEIGHT, 1, 64, MODEL_ATTN_NORM},  {N, FAK_ACT, FAK_STEP_ROWS, 64, MODEL_ROLES},
    {Q_W, FAK_WEIGHT, 64, 64, MODEL_Q},            {Q, FAK_ACT, FAK_STEP_ROWS, 64, MODEL_ROLES},
    {K_W, FAK_WEIGHT, 32, 64, MODEL_K},            {K, FAK_ACT, FAK_STEP_ROWS, 32, MODEL_ROLES},
    {V_W, FAK_WEIGHT, 32, 64, MODEL_V},            {V, FAK_ACT, FAK_STEP_ROWS, 32, MODEL_ROLES},
    {Q_TURNED, FAK_ACT, FAK_STEP_ROWS, 64, MODEL_ROLES},
    {ATTENDED, FAK_ACT, FAK_STEP_ROWS, 64, MODEL_ROLES},
    {O_W, FAK_WEIGHT, 64, 64, MODEL_O},            {O, FAK_ACT, FAK_STEP_ROWS, 64, MODEL_ROLES},
    {X_MID, FAK_ACT, FAK_STEP_ROWS, 64, MODEL_ROLES},
    {FFN_NORM_W, FAK_WEIGHT, 1, 64, MODEL_FFN_NORM},
    {FFN_N, FAK_ACT, FAK_STEP_ROWS, 64, MODEL_ROLES},
    {GATE_W, FAK_WEIGHT, 96, 64, MODEL_GATE},      {GATE, FAK_ACT, FAK_STEP_ROWS, 96, MODEL_ROLES},
    {UP_W, FAK_WEIGHT, 96, 64, MODEL_UP},          {UP, FAK_ACT, FAK_STEP_ROWS, 96, MODEL_ROLES},
    {H, FAK_ACT, FAK_STEP_ROWS, 96, MODEL_ROLES},
    {DOWN_W, FAK_WEIGHT, 64, 96, MODEL_DOWN},      {DOWN, FAK_ACT, FAK_STEP_ROWS, 64, MODEL_ROLES},
    {X_NEXT, FAK_ACT, FAK_STEP_ROWS, 64, MODEL_ROLES},
    /* clang-format on */
};

static void assert_value(const tiny *t, uint32_t id, uint32_t kind, uint32_t dtype, uint32_t rows,
                         uint32_t cols, uint32_t source)
{
    fak_value v = plan_value(t->plan.block, id);
    fak_value expected = {.kind = kind, .dtype = dtype, .rows = rows, .cols = cols};
    if (memcmp(&v, &expected, sizeof v)) fail_msg("value %u is not as expected", (unsigned)id);
    assert_int_equal(t->plan.weight[id], source);
}

static void test_values(void **state)
{
    tiny t;
    (void)state;
    tiny_open(&t, "tiny-bf16.gguf");
    const model *m = &t.model;
    uint32_t W = FAK_WANTED_ROWS, y = X + 2 * STRIDE + 1, vocab = m->vocab;
    assert_int_equal(t.plan.block->values.count, y + 7);
    assert_value(&t, 0, FAK_UNUSED, 0, 0, 0, NONE);
    assert_value(&t, ROPE, FAK_CONST, FAK_F32, 128, 16, model_weight(m, MODEL_ROPE, 0));
    assert_value(&t, EMBED, FAK_WEIGHT, FAK_BF16, vocab, 64, model_weight(m, MODEL_EMBED, 0));
    assert_value(&t, OUT_NORM, FAK_WEIGHT, FAK_F32, 1, 64, model_weight(m, MODEL_OUT_NORM, 0));
    assert_value(&t, X, FAK_ACT, FAK_F32, FAK_STEP_ROWS, 64, NONE);
    assert_int_equal(sizeof layer_values / sizeof *layer_values, STRIDE);
    for (uint32_t l = 0; l < 2; l++)
        for (uint32_t i = 0; i < STRIDE; i++) {
            enum model_role role = layer_values[i].role;
            uint32_t source = role < MODEL_ROLES ? model_weight(m, role, l) : NONE;
            int matrix = role < MODEL_ROLES && layer_values[i].rows > 1;
            assert_value(&t, layer_values[i].id + l * STRIDE, layer_values[i].kind,
                         matrix ? FAK_BF16 : FAK_F32, layer_values[i].rows, layer_values[i].cols,
                         source);
        }
    assert_value(&t, y, FAK_ACT, FAK_F32, W, 64, NONE);
    assert_value(&t, y + 1, FAK_ACT, FAK_F32, W, 64, NONE);
    assert_value(&t, y + 2, FAK_OUT, FAK_F32, W, vocab, NONE);
    assert_value(&t, y + 3, FAK_ACT, FAK_F32, W, 64, NONE);
    assert_value(&t, y + 4, FAK_ACT, FAK_F32, W, 64, NONE);
    assert_value(&t, y + 5, FAK_ACT, FAK_F32, W, vocab, NONE);
    assert_value(&t, y + 6, FAK_OUT, FAK_I32, W, 1, NONE);
    tiny_close(&t);
}

/* ---- all tiny models ---- */

static void test_check_passes(void **state)
{
    (void)state;
    for (int i = 0; i < TINY_MODELS; i++) {
        tiny t;
        fak_error e = {0};
        tiny_open(&t, tiny_names[i]);
        const fak_plan *p = t.plan.block;
        if (plan_check(p, p->bytes, &e)) fail_msg("%s: %s", tiny_names[i], e.message);
        assert_int_equal(p->struct_size, sizeof *p);
        assert_int_equal(p->layers, t.model.layers);
        tiny_close(&t);
    }
}

static void test_repeats(void **state)
{
    (void)state;
    for (int i = 0; i < TINY_MODELS; i++) {
        tiny t;
        fak_error e = {0};
        tiny_open(&t, tiny_names[i]);
        const fak_plan *p = t.plan.block;
        assert_int_equal(p->repeats.count, 1);
        fak_repeat r = plan_repeat(p, 0);
        assert_int_equal(r.first, 1);
        assert_int_equal(r.ops, LAYER_OPS);
        assert_int_equal(r.times, i == TINY_MODELS - 1 ? 3 : 2);
        assert_int_equal(r.stride, STRIDE);
        assert_int_equal(r.first + r.ops * r.times, p->body_ops);
        assert_int_equal(plan_check_repeat(p, &r, &e), FAK_OK);
        tiny_close(&t);
    }
}

static void test_untied(void **state)
{
    tiny t;
    (void)state;
    tiny_open(&t, "tiny-untied.gguf");
    const fak_plan *p = t.plan.block;
    uint32_t head = OUT_NORM + 1; /* a value more than where the head is the embedding */
    assert_value(&t, head, FAK_WEIGHT, FAK_F32, t.model.vocab, 64,
                 model_weight(&t.model, MODEL_HEAD, 0));
    assert_int_equal(plan_op(p, p->body_ops + 2).in[1], head);
    assert_int_equal(plan_op(p, p->body_ops + 5).in[1], head);
    assert_int_equal(plan_op(p, 0).in[0], EMBED);
    tiny_close(&t);
}

static void open_cut(tiny *t, uint32_t layers)
{
    fak_error e = {0};
    tiny_open(t, "tiny-f32.gguf");
    plan_free(&t->plan);
    t->model.layers = layers;
    if (plan_build(&t->plan, &t->model, &e)) fail_msg("%s", e.message);
}

static void test_one_layer(void **state)
{
    tiny t;
    fak_error e = {0};
    (void)state;
    open_cut(&t, 1);
    assert_int_equal(t.plan.block->repeats.count, 0);
    assert_int_equal(t.plan.block->body_ops, 1 + LAYER_OPS);
    assert_int_equal(plan_check(t.plan.block, t.plan.block->bytes, &e), FAK_OK);
    tiny_close(&t);
}

/* Layers whose weights differ in dtype cannot be stacked: they are no turns of a repeat. */
static void test_mixed_dtypes(void **state)
{
    static const enum model_role roles[] = {MODEL_Q, MODEL_DOWN};
    (void)state;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        for (uint32_t layer = 0; layer < 2; layer++) {
            tiny t;
            fak_error e = {0};
            tiny_open(&t, "tiny-f32.gguf");
            plan_free(&t.plan);
            t.model.weights.at[model_weight(&t.model, roles[i], layer)].dtype = FAK_F16;
            assert_int_equal(plan_build(&t.plan, &t.model, &e), FAK_OK);
            assert_int_equal(t.plan.block->repeats.count, 0);
            assert_int_equal(plan_check(t.plan.block, t.plan.block->bytes, &e), FAK_OK);
            tiny_close(&t);
        }
}

/* ---- hash ---- */

static uint64_t fnv1a(const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t h = 0xcbf29ce484222325u;
    while (bytes--) {
        h ^= *p++;
        h *= 0x100000001b3u;
    }
    return h;
}

static void test_hash(void **state)
{
    uint64_t hash[TINY_MODELS];
    (void)state;
    assert_true(fnv1a("foobar", 6) == 0x85944171f73967e8u); /* from the algorithm's own page */
    for (int i = 0; i < TINY_MODELS; i++) {
        tiny t, again;
        tiny_open(&t, tiny_names[i]);
        tiny_open(&again, tiny_names[i]);
        hash[i] = plan_hash(t.plan.block);
        assert_true(hash[i] == fnv1a(t.plan.block, t.plan.block->bytes));
        assert_true(hash[i] == plan_hash(again.plan.block));
        assert_memory_equal(t.plan.block, again.plan.block, t.plan.block->bytes);
        for (int j = 0; j < i; j++) assert_true(hash[i] != hash[j]);
        t.plan.block->layers++;
        assert_true(hash[i] != plan_hash(t.plan.block));
        tiny_close(&t);
        tiny_close(&again);
    }
}

/* ---- drafts ---- */

static void test_draft(void **state)
{
    plan_draft d = {0};
    plan p;
    fak_error e = {0};
    (void)state;
    for (uint32_t i = 0; i < 1000; i++) {
        fak_value v = {.kind = FAK_WEIGHT, .dtype = FAK_F32, .rows = 1, .cols = i + 1};
        fak_op o = {.id = FAK_OP_ADD, .layer = i};
        assert_int_equal(plan_add_value(&d, &v, 7 * i), i);
        assert_int_equal(plan_add_op(&d, &o, 5 * i), i);
    }
    d.body_ops = 33;
    d.layers = 44;
    d.repeats = 8;
    d.tails = 4;
    for (uint32_t i = 0; i < 8; i++) d.repeat[i] = (fak_repeat){i, 10 + i, 20 + i, 30 + i};
    for (uint32_t i = 0; i < 4; i++) d.tail[i] = (fak_tail){i, 40 + i, 50 + i, 60 + i};
    assert_int_equal(plan_pack(&p, &d, &e), FAK_OK);
    assert_int_equal(p.block->body_ops, 33);
    assert_int_equal(p.block->layers, 44);
    assert_int_equal(p.block->bytes, sizeof *p.block + 1000 * (sizeof(fak_value) + sizeof(fak_op)) +
                                         8 * sizeof(fak_repeat) + 4 * sizeof(fak_tail));
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(plan_value(p.block, i).cols, i + 1);
        assert_int_equal(plan_op(p.block, i).layer, i);
        assert_int_equal(p.weight[i], 7 * i);
        assert_int_equal(p.origin[i], 5 * i);
    }
    for (uint32_t i = 0; i < 8; i++) {
        fak_repeat r = plan_repeat(p.block, i);
        assert_memory_equal(&r, &d.repeat[i], sizeof r);
    }
    for (uint32_t i = 0; i < 4; i++) assert_tail(p.block, i, i, 40 + i, 50 + i, 60 + i);
    plan_free(&p);
    plan_free(&p);
    plan_draft_free(&d);
    assert_int_equal(d.values, 0);
}

static void test_failed_draft(void **state)
{
    plan_draft d = {0};
    plan p = {0};
    fak_error e = {0};
    (void)state;
    draft_begin(&d);
    d.failed = 1;
    assert_int_equal(plan_add_op(&d, &(fak_op){0}, 0), 0);
    assert_int_equal(d.ops, 0);
    assert_int_equal(plan_pack(&p, &d, &e), FAK_E_MEMORY);
    assert_message(&e, "not enough memory for the plan");
    assert_null(p.block);
    plan_draft_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops),          cmocka_unit_test(test_values),
        cmocka_unit_test(test_check_passes), cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_untied),       cmocka_unit_test(test_one_layer),
        cmocka_unit_test(test_mixed_dtypes), cmocka_unit_test(test_hash),
        cmocka_unit_test(test_draft),        cmocka_unit_test(test_failed_draft),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
