/* test_cuda_steps - plugins/cuda in emulation, in steps that opcheck does not take: several long spans that
 * meet within a block of attention, an eviction of more positions than a kernel moves at once. */
#include "engine.h"

#include "../core/rig.h"
#include "../core/session.h"

#include <stdlib.h>

static const char *sim; /* the plugin's file */

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
    uint32_t q = rig_input(&r, 64, 0), k = rig_input(&r, 16, 0), v = rig_input(&r, 16, 0);
    uint32_t tab = rig_table(&r, 16);
    fak_op append = {.id = FAK_OP_KV_APPEND, .in = {k, v, tab}, .kv_heads = 1};
    fak_op attend = {.id = FAK_OP_ATTENTION, .in = {q}, .heads = 4, .kv_heads = 1, .scale = 0.25f};
    append.head_dim = append.rot_dim = attend.head_dim = 16;
    rig_op(&r, append);
    rig_op(&r, attend);
    assert_int_equal(rig_ready(&r, &e), FAK_OK);
    assert_true(r.taken);
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

/* The last logits of a sequence from whose middle positions were dropped. */
static void evict(device *dev, device *host, toy *g, float *logits)
{
    session s = {0};
    fak_error e;
    uint32_t slot, id[150];
    const session_options o = {.rows = 70, .flags = FAK_EVICTABLE};
    for (uint32_t i = 0; i < 150; i++) id[i] = (i * 37 + 11) % 190;
    int32_t rc = session_open(&s, &g->m, dev, host, &o, NULL, NULL, &e);
    if (!rc) rc = kv_take(&s.kv, &slot, &e);
    if (!rc) rc = session_feed(&s, slot, id, 150, FAK_WANT_NONE, 0, NULL, &e);
    if (!rc) rc = kv_evict(&s.kv, slot, 5, 40, &e);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_spans),
                                       cmocka_unit_test(test_far_eviction)};
    if (argc != 2) return 2;
    sim = argv[1];
    setenv("FAK_CUDA_SIM", "order=2", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
