/* test_cuda_steps - plugins/cuda in emulation, in steps that opcheck does not take: several long spans that
 * meet within a block of attention, contexts of more parts than a warp adds up, rows beyond twice what a
 * kernel or a ring takes at once, an eviction of more positions than a kernel moves at once. */
#include "engine.h"

#include "../core/rig.h"
#include "../core/session.h"
#include "../plugins/cuda/args.h"

#include <stdlib.h>

static const char *sim; /* the plugin's file */

/* The plan: rows are appended to kv, and heads of 16 columns that read one kv head attend. */
static void attention_of(rig *r, uint32_t heads)
{
    fak_error e;
    uint32_t q = rig_input(r, 16 * heads, 0), k = rig_input(r, 16, 0), v = rig_input(r, 16, 0);
    uint32_t tab = rig_table(r, 16);
    fak_op append = {.id = FAK_OP_KV_APPEND, .in = {k, v, tab}, .kv_heads = 1};
    fak_op attend = {
        .id = FAK_OP_ATTENTION, .in = {q}, .heads = heads, .kv_heads = 1, .scale = 0.25f};
    append.head_dim = append.rot_dim = attend.head_dim = 16;
    rig_op(r, append);
    rig_op(r, attend);
    assert_int_equal(rig_ready(r, &e), FAK_OK);
    assert_true(r->taken);
}

/* Rows 8 and 9 are queries of one block, and of two spans that are both tiled. */
static void test_long_spans(void **state)
{
    static const fak_span span[] = {{0, 0, 9, 0}, {1, 9, 10, 0}, {2, 19, 9, 0}};
    backend_pair b;
    fak_error e;
    rig r;
    uint32_t wanted[28];
    (void)state;
    backend_open(&b, sim, NULL);
    assert_int_equal(rig_open(&r, &b.dev, FAK_ACT_F32, 28, 3, 64, 21, &e), FAK_OK);
    for (uint32_t i = 0; i < 28; i++) wanted[i] = i;
    attention_of(&r, 4);
    for (uint32_t turn = 0; turn < 3; turn++) {
        fak_span now[3];
        for (uint32_t i = 0; i < 3; i++) now[i] = span[i], now[i].first = turn * span[i].rows;
        const rig_spec spec = {
            .rows = 28, .spans = 3, .span = now, .wanted_row = wanted, .wanted = 28};
        if (rig_step(&r, &spec, &e)) fail_msg("step %u: %s", turn, e.message);
    }
    rig_close(&r);
    backend_close(&b);
}

/* A step must give what the reference gives. */
static void must_step(rig *r, const fak_span *span, uint32_t rows)
{
    static uint32_t wanted[512];
    fak_error e;
    assert_in_range(rows, 1, 512);
    for (uint32_t i = 0; i < rows; i++) wanted[i] = i;
    const rig_spec spec = {
        .rows = rows, .spans = 1, .span = span, .wanted_row = wanted, .wanted = rows};
    if (rig_step(r, &spec, &e)) fail_msg("%u rows: %s", (unsigned)rows, e.message);
}

/* One row over 2305 keys: 73 parts, which three warps of attend_merge weigh. */
static void test_long_context(void **state)
{
    backend_pair b;
    fak_error e;
    rig r;
    (void)state;
    backend_open(&b, sim, NULL);
    assert_int_equal(rig_open(&r, &b.dev, FAK_ACT_F32, 256, 1, 2432, 22, &e), FAK_OK);
    attention_of(&r, 2);
    for (uint32_t first = 0; first < 2304; first += 256)
        must_step(&r, &(fak_span){0, 0, 256, first}, 256);
    must_step(&r, &(fak_span){0, 0, 1, 2304}, 1);
    must_step(&r, &(fak_span){0, 0, 1, 40}, 1); /* two parts have keys, the others what was there */
    rig_close(&r);
    backend_close(&b);
}

/* Two inputs and an output of 1.3 MB each: more than the rings hold, up and down. */
static void test_rings(void **state)
{
    backend_pair b;
    fak_error e;
    rig r;
    (void)state;
    backend_open(&b, sim, "exact=1");
    assert_int_equal(rig_open(&r, &b.dev, FAK_ACT_F32, 130, 1, 130, 23, &e), FAK_OK);
    uint32_t x = rig_input(&r, 2500, 0), y = rig_input(&r, 2500, 0);
    rig_op(&r, (fak_op){.id = FAK_OP_ADD, .in = {x, y}});
    assert_int_equal(rig_ready(&r, &e), FAK_OK);
    assert_true(r.taken);
    for (int turn = 0; turn < 3; turn++) must_step(&r, &(fak_span){0, 0, 130, 0}, 130);
    rig_close(&r);
    backend_close(&b);
}

/* Beyond twice each kernel's tile, and no multiple of one.  A warp of matvec has 1024 columns on their way
 * at most; only plain dtypes can have rows that are no multiple of GEMM_COLS. */
enum { ROWS = 75, COLS = 2304, ODD_COLS = 2307, OUTS = 131, SWEEP = 1024 };
#define BEYOND(n, tile) _Static_assert((n) > 2 * (tile) && (n) % (tile), "beyond " #tile)
BEYOND(ROWS, GEMM_ROWS);
BEYOND(ROWS, VEC_ROWS);
BEYOND(OUTS, GEMM_OUTPUTS);
BEYOND(OUTS, DOT_OUTPUTS);
BEYOND(OUTS, WARPS);
BEYOND(COLS, SWEEP);
BEYOND(ODD_COLS, GEMM_COLS);

/* y = x w, for a few rows and for many. */
static void multiply(const char *options, uint32_t act, uint32_t dtype, uint32_t cols)
{
    backend_pair b;
    fak_error e;
    rig r;
    backend_open(&b, sim, options);
    assert_int_equal(rig_open(&r, &b.dev, act, ROWS, 1, ROWS, 24 + dtype, &e), FAK_OK);
    uint32_t x = rig_input(&r, cols, 0), w = rig_weight(&r, dtype, OUTS, cols, 0, 0.5f);
    rig_op(&r, (fak_op){.id = FAK_OP_MATMUL, .in = {x, w}});
    assert_int_equal(rig_ready(&r, &e), FAK_OK);
    assert_true(r.taken);
    must_step(&r, &(fak_span){0, 0, 3, 0}, 3);
    must_step(&r, &(fak_span){0, 0, 1, 0}, 1);
    must_step(&r, &(fak_span){0, 0, ROWS, 0}, ROWS);
    rig_close(&r);
    backend_close(&b);
}

static void test_wide_matrices(void **state)
{
    static const uint32_t dtype[] = {FAK_F32,  FAK_F16,  FAK_BF16, FAK_Q8_0,
                                     FAK_Q4_0, FAK_Q4_1, FAK_Q4_K, FAK_Q6_K};
    (void)state;
    for (int i = 0; i < 8; i++) {
        multiply("exact=0", FAK_ACT_F32, dtype[i], COLS);
        if (i < 3) multiply("exact=0", FAK_ACT_F32, dtype[i], ODD_COLS);
        if (i >= 3) multiply("exact=1", FAK_ACT_Q8, dtype[i], COLS);
    }
    multiply("exact=1", FAK_ACT_F32, FAK_F32, ODD_COLS);
}

/* With equal maxima, of which the first counts, zeros and NaNs. */
BEYOND(2500, ARGMAX_COLS);
static void test_wide_argmax(void **state)
{
    backend_pair b;
    fak_error e;
    rig r;
    (void)state;
    backend_open(&b, sim, NULL);
    assert_int_equal(rig_open(&r, &b.dev, FAK_ACT_F32, 12, 1, 16, 25, &e), FAK_OK);
    r.special = 1;
    uint32_t x = rig_input(&r, 2500, 1);
    rig_op(&r, (fak_op){.id = FAK_OP_ARGMAX, .in = {x}});
    assert_int_equal(rig_ready(&r, &e), FAK_OK);
    assert_true(r.taken);
    for (int turn = 0; turn < 4; turn++) must_step(&r, &(fak_span){0, 0, 12, 0}, 12);
    rig_close(&r);
    backend_close(&b);
}

/* The last logits of a sequence from whose middle positions were dropped, after another one went on from its
 * first 40 in the page that both have. */
static void evict(device *dev, device *host, toy *g, float *logits)
{
    session s = {0};
    fak_error e;
    uint32_t slot, other, id[150];
    const session_options o = {.rows = 70, .slots = 2, .flags = FAK_EVICTABLE};
    for (uint32_t i = 0; i < 150; i++) id[i] = (i * 37 + 11) % 190;
    int32_t rc = session_open(&s, &g->m, dev, host, &o, NULL, NULL, &e);
    if (!rc) rc = kv_take(&s.kv, &slot, &e);
    if (!rc) rc = session_feed(&s, slot, id, 150, FAK_WANT_NONE, 0, NULL, &e);
    if (!rc) rc = kv_clone(&s.kv, slot, 40, &other, &e);
    if (!rc) rc = session_feed(&s, other, id + 7, 3, FAK_WANT_NONE, 0, NULL, &e);
    if (!rc) rc = kv_evict(&s.kv, slot, 10, 20, &e);
    if (!rc) rc = kv_evict(&s.kv, slot, 0, 3, &e);
    if (!rc) rc = session_feed(&s, slot, id, 3, FAK_WANT_LOGITS, 0, logits, &e);
    if (rc) fail_msg("%s", e.message);
    session_close(&s);
}

static void test_far_eviction(void **state)
{
    static const toy_shape shape = {.width = 64,
                                    .ffn = 96,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .head_dim = 16,
                                    .vocab = 192,
                                    .layers = 2,
                                    .context = 200};
    static float mine[192], right[192];
    backend_pair b;
    fak_error e;
    toy g;
    (void)state;
    assert_int_equal(toy_make(&g, &shape, FAK_F32, TOY_SEED, &e), FAK_OK);
    backend_open(&b, sim, "exact=1");
    evict(&b.host, &b.host, &g, right);
    evict(&b.dev, &b.host, &g, mine);
    assert_rows(mine, right, 192);
    backend_close(&b);
    toy_free(&g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_spans),  cmocka_unit_test(test_long_context),
        cmocka_unit_test(test_rings),       cmocka_unit_test(test_wide_matrices),
        cmocka_unit_test(test_wide_argmax), cmocka_unit_test(test_far_eviction)};
    if (argc != 2) return 2;
    sim = argv[1];
    setenv("FAK_CUDA_SIM", "order=2", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
