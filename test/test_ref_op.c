/* ref: plan ops over a memory of a few values, by the leaves that test_ref.c proves; kv over its
 * life; fused ops against their parts, bit for bit.  All buffers are exact. */
#include "ref_fixture.h"
#include "../core/rope.h"
#include "../core/step.h"

static void assert_same_kv(const ref_kv *a, const ref_kv *b)
{
    assert_memory_equal(a->k, b->k, (size_t)ref_kv_bytes(a, LAYERS));
    assert_memory_equal(a->v, b->v, (size_t)ref_kv_bytes(a, LAYERS));
    if (a->raw)
        assert_memory_equal(a->raw, b->raw, (size_t)LAYERS * SLOTS * CONTEXT * a->width * 4);
}

/* ---- plan ops: a memory of a few values ------------------------------------------------------ */

enum { VALUES_MAX = 40, T = 5, W = 2 };
static const uint32_t tokens[T] = {3, 0, 6, 7, 0xffffffff}, wanted[W] = {1, 4};
static const fak_span spans[2] = {{1, 0, 3, 2}, {0, 3, 2, 0}}; /* slot, row, rows, first */
static uint32_t step_block[64];
static fak_value value[VALUES_MAX + OP_PARTS];
static void *at[VALUES_MAX + OP_PARTS];
static ref_memory memory;

static void memory_open(ref_kv kv, int act_q8)
{
    step_spec spec = {.rows = T, .wanted = W, .spans = 2, .token = tokens, .span = spans};
    spec.wanted_row = wanted;
    assert_true(step_bytes(T, W, 2) <= sizeof step_block);
    memset(value, 0, sizeof value);
    memory = (ref_memory){value, at, 1, step_write(step_block, &spec), kv, act_q8, NULL};
}

static void memory_close(void)
{
    for (uint32_t i = 1; i < memory.values; i++) free(at[i]);
    kv_close(&memory.kv);
}

static uint32_t add_value(uint32_t kind, uint32_t dtype, uint32_t rows, uint32_t cols)
{
    uint32_t id = memory.values++, stored;
    assert_true(id < VALUES_MAX);
    value[id] = (fak_value){.kind = kind, .dtype = dtype, .rows = rows, .cols = cols};
    stored = ref_rows(&value[id], T, W);
    assert_int_equal(stored, rows == FAK_STEP_ROWS ? T : rows == FAK_WANTED_ROWS ? W : rows);
    at[id] = kind == FAK_WEIGHT || kind == FAK_CONST ? draw_weights(dtype, stored, cols)
                                                     : (void *)draw_row(stored * cols, 2);
    return id;
}

static uint32_t add_act(uint32_t cols)
{
    return add_value(FAK_ACT, FAK_F32, FAK_STEP_ROWS, cols);
}

static void run_op(const fak_op *op) /* with temporaries and scratch of exactly what is asked for */
{
    uint32_t temp[OP_PARTS];
    uint64_t bytes = ref_op_scratch(op, value, memory.values, T, CONTEXT, temp);
    memory.scratch = need((size_t)bytes);
    for (uint32_t k = 0; k < OP_PARTS; k++)
        at[memory.values + k] = temp[k] ? need((size_t)temp[k] * T * 4) : NULL;
    assert_int_equal(ref_op(&memory, op), FAK_OK);
    for (uint32_t k = 0; k < OP_PARTS; k++) free(at[memory.values + k]);
    free(memory.scratch);
}

/* Parameters of every op of these tests; an op reads its own. */
static fak_op make_op(uint32_t id, const uint32_t *in, const uint32_t *out)
{
    fak_op o = {.id = id, .layer = 1, .heads = 4, .kv_heads = 2, .head_dim = 16, .rot_dim = 12};
    o.eps = 1e-5f, o.scale = 0.25f, o.softcap = 2, o.window = 3, o.act = FAK_GELU_TANH;
    memcpy(o.in, in, sizeof o.in);
    memcpy(o.out, out, sizeof o.out);
    return o;
}

#define IN(...) ((const uint32_t[8]){__VA_ARGS__})
#define OUT(...) ((const uint32_t[3]){__VA_ARGS__})

static void run(uint32_t id, const uint32_t *in, const uint32_t *out)
{
    fak_op o = make_op(id, in, out);
    run_op(&o);
}

static const float *row(uint32_t id, uint32_t r)
{
    return (const float *)at[id] + (size_t)r * value[id].cols;
}

static void test_embed(void **unused)
{
    (void)unused;
    set_seed();
    enum { V = 7, D = 256 };
    for (size_t n = 0; n < DTYPES; n++) {
        memory_open((ref_kv){0}, 0);
        uint32_t w = add_value(FAK_WEIGHT, dtypes[n], V, D), y = add_act(D);
        run(FAK_OP_EMBED, IN(w), OUT(y));
        for (uint32_t r = 0; r < T; r++) {
            float expected[D];
            for (uint32_t i = 0; i < D; i++) expected[i] = NAN;
            const char *from = at[w];
            if (tokens[r] < V)
                dtype_decode_row(dtypes[n], D, from + tokens[r] * dtype_row_bytes(dtypes[n], D),
                                 expected);
            assert_bits(row(y, r), expected, D);
            assert_int_equal(isnan(row(y, r)[D - 1]) != 0, r >= 3); /* tokens 7 and -1 of 7 */
        }
        memory_close();
    }
}

/* Sums and products of two floats are exact in double up to a harmless second rounding. */
static void test_elementwise(void **unused)
{
    (void)unused;
    set_seed();
    enum { D = 37 };
    memory_open((ref_kv){0}, 0);
    uint32_t a = add_act(D), b = add_act(D), bias = add_value(FAK_WEIGHT, FAK_F32, 1, D);
    uint32_t sum = add_act(D), biased = add_act(D), scaled = add_act(D), capped = add_act(D);
    uint32_t gated = add_act(D), normed = add_act(D);
    uint32_t some = add_value(FAK_ACT, FAK_F32, FAK_WANTED_ROWS, D);
    uint32_t ids = add_value(FAK_OUT, FAK_I32, FAK_WANTED_ROWS, 1);
    run(FAK_OP_ADD, IN(a, b), OUT(sum));
    run(FAK_OP_ADD_BIAS, IN(a, bias), OUT(biased));
    run(FAK_OP_SCALE, IN(a), OUT(scaled));
    run(FAK_OP_SOFTCAP, IN(a), OUT(capped));
    run(FAK_OP_GLU, IN(a, b), OUT(gated));
    run(FAK_OP_RMSNORM, IN(a, bias), OUT(normed));
    run(FAK_OP_TAKE_ROWS, IN(a), OUT(some));
    ((float *)at[some])[D + 5] = NAN;
    run(FAK_OP_ARGMAX, IN(some), OUT(ids));
    for (uint32_t r = 0; r < T; r++) {
        const float *x = row(a, r);
        float expected[D];
        for (uint32_t i = 0; i < D; i++) {
            assert_true(row(sum, r)[i] == (float)((double)x[i] + (double)row(b, r)[i]));
            assert_true(row(biased, r)[i] == (float)((double)x[i] + (double)row(bias, 0)[i]));
            assert_true(row(scaled, r)[i] == (float)((double)x[i] * 0.25));
        }
        ref_softcap(D, 2, x, expected);
        assert_bits(row(capped, r), expected, D);
        ref_glu(D, FAK_GELU_TANH, x, row(b, r), expected);
        assert_bits(row(gated, r), expected, D);
        ref_rmsnorm(D, 0, 1e-5f, x, row(bias, 0), expected);
        assert_bits(row(normed, r), expected, D);
    }
    assert_bits(row(some, 0), row(a, wanted[0]), D);
    assert_bits(row(some, 1), row(a, wanted[1]), 5);
    assert_int_equal(((uint32_t *)at[ids])[0], ref_argmax(D, row(a, wanted[0])));
    assert_int_equal(((uint32_t *)at[ids])[1], 0xffffffff);
    memory_close();
}

static void test_unsupported(void **unused)
{
    (void)unused;
    memory_open((ref_kv){0}, 0);
    static const uint32_t ids[] = {0, 14, 71, FAK_OP_ALLREDUCE_SUM, 0xffffffff};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(ref_op(&memory, &(fak_op){.id = ids[i]}), FAK_E_UNSUPPORTED);
}

/* ---- ops that know their position ------------------------------------------------------------ */

enum { H = 4, K = 2, HEAD = 16, ROT = 12, KV_COLS = K * HEAD };

static uint32_t add_table(void)
{
    uint32_t tab = add_value(FAK_CONST, FAK_F32, CONTEXT, ROT);
    rope_table(CONTEXT, ROT, 10000, at[tab]);
    return tab;
}

/* What kv holds at a position after its raw key and value were appended there. */
static void assert_position(const ref_kv *kv, uint32_t layer, uint32_t slot, uint32_t pos,
                            const float *raw_k, const float *v, const float *tab)
{
    float turned[KV_COLS], key[KV_COLS], val[KV_COLS], got_k[KV_COLS], got_v[KV_COLS];
    uint32_t coded[KV_COLS];
    ref_rope(K, HEAD, ROT, raw_k, tab + pos * ROT, turned);
    dtype_encode_row(kv->dtype, KV_COLS, turned, coded);
    dtype_decode_row(kv->dtype, KV_COLS, coded, key);
    dtype_encode_row(kv->dtype, KV_COLS, v, coded);
    dtype_decode_row(kv->dtype, KV_COLS, coded, val);
    ref_kv_read(kv, layer, slot, pos, KV_COLS, got_k, got_v);
    assert_bits(got_k, key, KV_COLS);
    assert_bits(got_v, val, KV_COLS);
    size_t cell = ((size_t)layer * SLOTS + slot) * CONTEXT + pos;
    if (kv->raw) assert_bits(kv->raw + cell * kv->width, raw_k, KV_COLS);
}

static void test_spans(void **unused)
{
    (void)unused;
    set_seed();
    for (uint32_t c = 0; c < 6; c++) {
        memory_open(kv_open(FAK_F32 + c % 3, KV_COLS + 5, c >= 3), 0);
        uint32_t q = add_act(H * HEAD), k = add_act(KV_COLS), v = add_act(KV_COLS);
        uint32_t tab = add_table(), turned = add_act(H * HEAD), y = add_act(H * HEAD);
        float *past = draw_row(4 * KV_COLS, 1), expected[H * HEAD];
        for (uint32_t i = 0; i < 2; i++) /* positions 0 and 1 of slot 1 are there already */
            ref_kv_write(&memory.kv, 1, 1, i, KV_COLS, past + i * KV_COLS,
                         past + (2 + i) * KV_COLS);
        run(FAK_OP_ROPE, IN(q, tab), OUT(turned));
        run(FAK_OP_KV_APPEND, IN(k, v, tab), OUT(0));
        run(FAK_OP_ATTENTION, IN(turned), OUT(y));
        ref_heads h = {H, K, HEAD, 3, 0.25f, 2};
        float *scratch = need((size_t)ref_attention_scratch(CONTEXT, HEAD));
        for (uint32_t r = 0; r < T; r++) {
            uint32_t slot = r < 3, pos = r < 3 ? 2 + r : r - 3;
            ref_rope(H, HEAD, ROT, row(q, r), row(tab, pos), expected);
            assert_bits(row(turned, r), expected, H * HEAD);
            assert_position(&memory.kv, 1, slot, pos, row(k, r), row(v, r), row(tab, 0));
            ref_attention(&h, &memory.kv, 1, slot, pos, row(turned, r), expected, scratch);
            assert_bits(row(y, r), expected, H * HEAD);
            assert_true(expected[0] == expected[0]);
        }
        ref_kv blank = kv_open(memory.kv.dtype, KV_COLS + 5, 0); /* nothing else was written */
        size_t cell = (size_t)dtype_row_bytes(blank.dtype, 1);
        for (size_t i = 0; i < (size_t)LAYERS * SLOTS * CONTEXT * blank.width; i++) {
            size_t layer = i / blank.width / CONTEXT / SLOTS,
                   slot = i / blank.width / CONTEXT % SLOTS;
            size_t pos = i / blank.width % CONTEXT, column = i % blank.width;
            if (layer == 1 && column < KV_COLS &&
                ((slot == 1 && pos < 5) || (slot == 0 && pos < 2)))
                continue;
            assert_memory_equal((char *)memory.kv.k + i * cell, (char *)blank.k + i * cell, cell);
            assert_memory_equal((char *)memory.kv.v + i * cell, (char *)blank.v + i * cell, cell);
            if (memory.kv.raw) assert_true(isnan(memory.kv.raw[i]));
        }
        kv_close(&blank);
        free(past), free(scratch);
        memory_close();
    }
}

/* Appends `len` positions to a slot through steps of one row each; keeps k and v in rows[len*2]. */
static void fill_slot(uint32_t k, uint32_t v, uint32_t tab, uint32_t slot, uint32_t len,
                      float *rows)
{
    for (uint32_t pos = 0; pos < len; pos++) {
        fak_span s = {slot, 0, 1, pos};
        step_spec spec = {.rows = 1, .spans = 1, .token = tokens, .span = &s};
        memory.step = step_write(step_block, &spec);
        for (uint32_t i = 0; i < KV_COLS; i++) {
            rows[pos * 2 * KV_COLS + i] = ((float *)at[k])[i] = draw_unit();
            rows[(pos * 2 + 1) * KV_COLS + i] = ((float *)at[v])[i] = draw_unit();
        }
        run(FAK_OP_KV_APPEND, IN(k, v, tab), OUT(0));
    }
}

static ref_kv kv_copy(const ref_kv *kv)
{
    ref_kv copy = kv_open(kv->dtype, kv->width, kv->raw != NULL);
    memcpy(copy.k, kv->k, (size_t)ref_kv_bytes(kv, LAYERS));
    memcpy(copy.v, kv->v, (size_t)ref_kv_bytes(kv, LAYERS));
    if (kv->raw) memcpy(copy.raw, kv->raw, (size_t)LAYERS * SLOTS * CONTEXT * kv->width * 4);
    return copy;
}

/* Two evictions, so that a rotation on top of a rotation would show; then the clone of a part. */
static void test_evict_and_clone(void **unused)
{
    (void)unused;
    set_seed();
    enum { LEN = 20 };
    for (uint32_t c = 0; c < 30; c++) {
        memory_open(kv_open(FAK_F32 + c % 3, KV_COLS + 5 * (c & 1), 1), 0);
        uint32_t k = add_act(KV_COLS), v = add_act(KV_COLS), tab = add_table(), left[LEN],
                 len = LEN;
        float rows[LEN * 2 * KV_COLS], other[LEN * 2 * KV_COLS];
        fill_slot(k, v, tab, 2, LEN, rows);
        fill_slot(k, v, tab, 0, LEN, other);
        fak_op append = make_op(FAK_OP_KV_APPEND, IN(k, v, tab), OUT(0));
        for (uint32_t i = 0; i < LEN; i++) left[i] = i;
        for (int turn = 0; turn < 2; turn++) {
            uint32_t first = draw() % len, count = 1 + draw() % (len - first);
            ref_kv_evict(&memory.kv, &append, 2, first, count, len, row(tab, 0));
            for (uint32_t i = first; i + count < len; i++) left[i] = left[i + count];
            len -= count;
            for (uint32_t i = 0; i < len; i++)
                assert_position(&memory.kv, 1, 2, i, rows + left[i] * 2 * KV_COLS,
                                rows + (left[i] * 2 + 1) * KV_COLS, row(tab, 0));
            for (uint32_t i = 0; i < LEN; i++) /* the other slot is as it was */
                assert_position(&memory.kv, 1, 0, i, other + i * 2 * KV_COLS,
                                other + (i * 2 + 1) * KV_COLS, row(tab, 0));
            if (!len) break;
        }
        ref_kv before = kv_copy(&memory.kv);
        uint32_t part = draw() % (LEN + 1);
        ref_kv_clone(&memory.kv, 1, 1, 0, part);
        for (uint32_t i = 0; i < part; i++)
            assert_position(&memory.kv, 1, 1, i, other + i * 2 * KV_COLS,
                            other + (i * 2 + 1) * KV_COLS, row(tab, 0));
        size_t slot1 = ((size_t)SLOTS + 1) * CONTEXT * before.width; /* layer 1 */
        size_t cell = (size_t)dtype_row_bytes(before.dtype, 1), n = (size_t)part * before.width;
        memset((char *)memory.kv.k + slot1 * cell, 0xff, n * cell); /* and nothing else */
        memset((char *)memory.kv.v + slot1 * cell, 0xff, n * cell);
        memset(memory.kv.raw + slot1, 0xff, n * 4);
        assert_same_kv(&memory.kv, &before);
        kv_close(&before);
        memory_close();
    }
}

/* ---- fused ops are their parts --------------------------------------------------------------- */

static void assert_same_value(uint32_t a, uint32_t b)
{
    assert_bits(at[a], at[b], ref_rows(&value[a], T, W) * value[a].cols);
    assert_int_equal(value[a].cols, value[b].cols);
}

static void check_fused(uint32_t dtype, int act_q8)
{
    enum { V = 11 };
    uint32_t D = dtype < FAK_Q4_K ? 64 : 256, F = dtype < FAK_Q4_K ? 96 : 512;
    memory_open((ref_kv){0}, act_q8);
    uint32_t x = add_act(D), r = add_act(D), g = add_act(F), u = add_act(F);
    uint32_t n = add_value(FAK_WEIGHT, FAK_F32, 1, D), wd = add_value(FAK_WEIGHT, dtype, D, F);
    uint32_t wg = add_value(FAK_WEIGHT, dtype, F, D), wu = add_value(FAK_WEIGHT, dtype, F, D);
    uint32_t head = add_value(FAK_WEIGHT, dtype, V, D), y[3] = {add_act(F), add_act(F), add_act(V)};
    uint32_t out = add_act(D), some = add_value(FAK_ACT, FAK_F32, FAK_WANTED_ROWS, D);
    uint32_t ids = add_value(FAK_OUT, FAK_I32, FAK_WANTED_ROWS, 1);
    uint32_t p_ids = add_value(FAK_OUT, FAK_I32, FAK_WANTED_ROWS, 1);
    uint32_t p_v = add_value(FAK_ACT, FAK_F32, FAK_WANTED_ROWS, V); /* p_: written by parts */
    uint32_t p_n = add_act(D), p_g = add_act(F), p_u = add_act(F), p_h = add_act(V),
             p_f = add_act(F);
    uint32_t p_z = add_act(D), p_out = add_act(D);
    run(FAK_OP_RMSNORM, IN(x, n), OUT(p_n));
    run(FAK_OP_MATMUL, IN(p_n, wg), OUT(p_g));
    run(FAK_OP_MATMUL, IN(p_n, wu), OUT(p_u));
    run(FAK_OP_MATMUL, IN(p_n, head), OUT(p_h));
    float leaf[T * V];
    void *scratch = need((size_t)ref_matmul_scratch(T, D));
    ref_matmul(dtype, T, V, D, at[head], at[p_n], leaf, act_q8, scratch);
    assert_bits(at[p_h], leaf, T * V);
    free(scratch);
    for (uint32_t weights = 1; weights <= 3; weights++) {
        for (uint32_t i = 0; i < 3; i++) memset(at[y[i]], 0, T * 4ul * value[y[i]].cols);
        run(FAK_OP_NORM_MATMUL, IN(x, n, wg, weights > 1 ? wu : 0, weights > 2 ? head : 0),
            OUT(y[0], weights > 1 ? y[1] : 0, weights > 2 ? y[2] : 0));
        assert_same_value(y[0], p_g);
        if (weights > 1) assert_same_value(y[1], p_u);
        if (weights > 2) assert_same_value(y[2], p_h);
        assert_true(weights > 1 || row(y[1], 0)[0] == 0);
    }
    run(FAK_OP_GLU, IN(p_g, p_u), OUT(p_f));
    run(FAK_OP_NORM_MATMUL_GLU, IN(x, n, wg, wu), OUT(y[0]));
    assert_same_value(y[0], p_f);
    run(FAK_OP_MATMUL, IN(p_f, wd), OUT(p_z));
    run(FAK_OP_ADD, IN(x, p_z), OUT(p_out));
    run(FAK_OP_FFN, IN(x, n, wg, wu, wd), OUT(out));
    assert_same_value(out, p_out);
    run(FAK_OP_ADD, IN(r, p_z), OUT(p_out));
    run(FAK_OP_MATMUL_ADD, IN(p_f, wd, r), OUT(out));
    assert_same_value(out, p_out);
    run(FAK_OP_GLU, IN(g, u), OUT(p_f));
    run(FAK_OP_MATMUL, IN(p_f, wd), OUT(p_z));
    run(FAK_OP_ADD, IN(r, p_z), OUT(p_out));
    run(FAK_OP_GLU_MATMUL_ADD, IN(g, u, wd, r), OUT(out));
    assert_same_value(out, p_out);
    run(FAK_OP_MATMUL, IN(some, head), OUT(p_v));
    run(FAK_OP_ARGMAX, IN(p_v), OUT(p_ids));
    run(FAK_OP_MATMUL_ARGMAX, IN(some, head), OUT(ids));
    assert_memory_equal(at[ids], at[p_ids], W * 4);
    assert_true(*(uint32_t *)at[ids] < V);
    memory_close();
}

static void test_fused(void **unused)
{
    (void)unused;
    set_seed();
    for (size_t n = 0; n < DTYPES * 2; n++) check_fused(dtypes[n % DTYPES], n >= DTYPES);
}

static void test_rope_append(void **unused)
{
    (void)unused;
    set_seed();
    for (uint32_t c = 0; c < 6; c++) {
        memory_open(kv_open(FAK_F32 + c % 3, KV_COLS + 5, c >= 3), 0);
        uint32_t q = add_act(H * HEAD), k = add_act(KV_COLS), v = add_act(KV_COLS);
        uint32_t tab = add_table(), y = add_act(H * HEAD), p_y = add_act(H * HEAD);
        ref_kv blank = kv_copy(&memory.kv);
        run(FAK_OP_ROPE, IN(q, tab), OUT(p_y));
        run(FAK_OP_KV_APPEND, IN(k, v, tab), OUT(0));
        ref_kv parts = memory.kv;
        memory.kv = blank;
        run(FAK_OP_ROPE_APPEND, IN(q, k, v, tab), OUT(y));
        assert_same_value(y, p_y);
        assert_same_kv(&memory.kv, &parts);
        assert_position(&memory.kv, 1, 0, 1, row(k, 4), row(v, 4), row(tab, 0));
        kv_close(&parts);
        memory_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed),           cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_unsupported),     cmocka_unit_test(test_spans),
        cmocka_unit_test(test_evict_and_clone), cmocka_unit_test(test_fused),
        cmocka_unit_test(test_rope_append),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
