/* test_golden - the proof of a Reference claim: equal bits pass, one wrong bit is named. */
#include "../core/golden.h"
#include "engine.h"

/* The device beside the reference: cpu-ref again, some op's result changed by one unit in the last place
 * through read, as a wrong backend would answer. */
static int32_t (*inner_read)(fak_program *, uint32_t, uint32_t, uint32_t, void *, uint64_t *,
                             fak_error *);
static uint32_t spoil_value;
static int32_t spoiled_read(fak_program *p, uint32_t value, uint32_t first, uint32_t rows,
                            void *dst, uint64_t *ticket, fak_error *e)
{
    int32_t s = inner_read(p, value, first, rows, dst, ticket, e);
    if (!s && value == spoil_value && rows > 1) ((uint32_t *)dst)[5] ^= 1;
    return s;
}

static void test_reference_passes(void **state)
{
    static const char *const options[] = {NULL, "fused=1"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        backend_pair b;
        fak_error e = {0};
        backend_open(&b, "cpu-ref", options[i]);
        if (golden_compare(&b.dev, &b.host, &e)) fail_msg("%s", e.message);
        backend_close(&b);
    }
}

/* Through a device with holes, tickets and ranges, too. */
static void test_refuser_passes(void **state)
{
    static const char *const options[] = {"refuse=rope", "async=1", "graph=1 fused=1", "refuse=kv"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        backend_pair b;
        fak_error e = {0};
        backend_open(&b, "refuser", options[i]);
        if (golden_compare(&b.dev, &b.host, &e)) fail_msg("%s: %s", options[i], e.message);
        backend_close(&b);
    }
}

static void test_wrong_bit_is_named(void **state)
{
    toy g;
    plan p;
    fak_error e = {0};
    (void)state;
    assert_int_equal(toy_make(&g, &golden_shape, FAK_F32, TOY_SEED, &e), 0);
    assert_int_equal(plan_build(&p, &g.m, &e), 0);
    for (uint32_t op = 0; op < p.block->body_ops; op++) {
        backend_pair b;
        fak_op o = plan_op(p.block, op);
        char part[96];
        if (!o.out[0]) continue;
        backend_open(&b, "cpu-ref", NULL);
        inner_read = b.dev.api.read;
        b.dev.api.read = spoiled_read;
        spoil_value = o.out[0];
        memset(&e, 0, sizeof e);
        assert_int_equal(golden_compare(&b.dev, &b.host, &e), STATUS_REFUSED);
        snprintf(part, sizeof part, "claims class reference, but op %u (%s, ", op, ops_name(o.id));
        assert_message(&e, part);
        assert_message(&e, "in row 0, column 5 where the reference gives");
        assert_int_equal(e.index, op);
        backend_close(&b);
    }
    plan_free(&p);
    toy_free(&g);
}

/* Every dtype that the device keeps is looked at: wrong in the programs of one alone, it is refused. */
static int32_t (*inner_prepare)(fak_device *, const fak_plan *, const fak_limits *, fak_program *,
                                uint32_t, uint32_t *, fak_report *, fak_program **, fak_error *);
static uint32_t spoil_dtype;
static int32_t spoiled_prepare(fak_device *d, const fak_plan *p, const fak_limits *limits,
                               fak_program *of, uint32_t flags, uint32_t *verdict,
                               fak_report *report, fak_program **out, fak_error *e)
{
    spoil_value = 0;
    for (uint32_t i = 0; i < p->values.count; i++) {
        fak_value v = plan_value(p, i);
        if (v.kind == FAK_WEIGHT && v.dtype == spoil_dtype) spoil_value = plan_op(p, 1).out[0];
    }
    return inner_prepare(d, p, limits, of, flags, verdict, report, out, e);
}

static void test_every_dtype_is_proven(void **state)
{
    static const uint32_t dtypes[] = {FAK_F32,  FAK_F16,  FAK_BF16, FAK_Q8_0, FAK_Q4_0, FAK_Q4_1,
                                      FAK_Q5_0, FAK_Q5_1, FAK_Q4_K, FAK_Q5_K, FAK_Q6_K};
    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        backend_pair b;
        fak_error e = {0};
        backend_open(&b, "cpu-ref", NULL);
        assert_true(b.dev.facts.upload_dtypes >> dtypes[i] & 1);
        spoil_dtype = dtypes[i];
        inner_prepare = b.dev.api.prepare;
        inner_read = b.dev.api.read;
        b.dev.api.prepare = spoiled_prepare;
        b.dev.api.read = spoiled_read;
        if (golden_compare(&b.dev, &b.host, &e) != STATUS_REFUSED)
            fail_msg("%s is not compared", dtype_name(dtypes[i]));
        assert_message(&e, "claims class reference, but op 1 (");
        backend_close(&b);
    }
}

/* ---- wrong only when ... ---- */

static fak_backend real;
static struct {
    uint32_t act;       /* of the program; 0 = any */
    int ranges, greedy; /* ... ops are run in ranges: the logits, or the ids */
} when;
static int now;

static int32_t prepare_seen(fak_device *d, const fak_plan *block, const fak_limits *limits,
                            fak_program *weights_of, uint32_t flags, uint32_t *verdict,
                            fak_report *r, fak_program **out, fak_error *e)
{
    now = !when.ranges && (!when.act || limits->numerics & when.act);
    return real.prepare(d, block, limits, weights_of, flags, verdict, r, out, e);
}

static int32_t run_seen(fak_program *p, uint32_t first, uint32_t ops, fak_error *e)
{
    if (when.ranges) now = ops > 1;
    return real.run(p, first, ops, e);
}

static int32_t read_seen(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                         uint64_t *ticket, fak_error *e)
{
    int32_t s = real.read(p, value, first, rows, dst, ticket, e);
    if (!s && now && (rows == 1) == when.greedy) ((uint32_t *)dst)[0] ^= 1;
    return s;
}

static void expect_refused(uint32_t act, int ranges, int greedy, const char *part)
{
    backend_pair b;
    fak_error e = {0};
    backend_open(&b, "refuser", "graph=1");
    real = b.dev.api;
    b.dev.api.prepare = prepare_seen;
    b.dev.api.run = run_seen;
    b.dev.api.read = read_seen;
    when.act = act;
    when.ranges = ranges;
    when.greedy = greedy;
    now = 0;
    if (golden_compare(&b.dev, &b.host, &e) != STATUS_REFUSED)
        fail_msg("act %u, %d, %d: passed", act, ranges, greedy);
    assert_message(&e, part);
    backend_close(&b);
}

/* A difference that shows in one mode, or in ranges only. */
static void test_every_way_is_tried(void **state)
{
    (void)state;
    expect_refused(FAK_ACT_F32, 0, 0, "op 0 (embed");
    expect_refused(FAK_ACT_Q8, 0, 0, "op 0 (embed");
    expect_refused(0, 1, 0, "but logit 0 of row 0 is ");
    expect_refused(0, 1, 1, "but its argmax differs");
}

/* The model is the same wherever it is made: its bytes are pinned. */
static void test_model_is_pinned(void **state)
{
    static const struct {
        uint32_t dtype;
        uint64_t hash;
    } pinned[] = {
        {FAK_F32, 0x05e6465e082fb6d8},  {FAK_Q4_1, 0x48e70dd5e3e7909c},
        {FAK_Q5_0, 0xbe29080dc7a1729c}, {FAK_Q5_1, 0x23484644c146389c},
        {FAK_Q4_K, 0x4becabb44badfc1a}, {FAK_Q5_K, 0x77ca82aecbf041a2},
        {FAK_Q6_K, 0x86b99c29b02671f6},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pinned / sizeof *pinned; i++) {
        toy g;
        fak_error e = {0};
        uint64_t h = 14695981039346656037ull;
        assert_int_equal(
            toy_make(&g, golden_shape_of(pinned[i].dtype), pinned[i].dtype, TOY_SEED, &e), 0);
        for (uint32_t w = 0; w < g.m.weights.count; w++) {
            const weight *x = &g.m.weights.at[w];
            const uint8_t *at = x->tensor ? x->tensor->data : (const uint8_t *)x->made;
            for (uint32_t r = 0; r < x->rows; r++, at += dtype_row_bytes(x->dtype, x->cols)) {
                float row[512];
                uint32_t word[512];
                dtype_decode_row(x->dtype, x->cols, at, row);
                memcpy(word, row, sizeof word);
                for (uint32_t c = 0; c < x->cols; c++) h = (h ^ word[c]) * 1099511628211ull;
            }
        }
        if (h != pinned[i].hash)
            fail_msg("%s: %016llx", dtype_name(pinned[i].dtype), (unsigned long long)h);
        toy_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_passes),   cmocka_unit_test(test_refuser_passes),
        cmocka_unit_test(test_wrong_bit_is_named), cmocka_unit_test(test_every_dtype_is_proven),
        cmocka_unit_test(test_every_way_is_tried), cmocka_unit_test(test_model_is_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
