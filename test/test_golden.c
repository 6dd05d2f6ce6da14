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

/* The model is the same wherever it is made: its bytes are pinned. */
static void test_model_is_pinned(void **state)
{
    static const struct {
        uint32_t dtype;
        uint64_t hash;
    } pinned[] = {
        {FAK_F32, 0x05e6465e082fb6d8},
        {FAK_Q4_1, 0x48e70dd5e3e7909c},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pinned / sizeof *pinned; i++) {
        toy g;
        fak_error e = {0};
        uint64_t h = 14695981039346656037ull;
        assert_int_equal(toy_make(&g, &golden_shape, pinned[i].dtype, TOY_SEED, &e), 0);
        for (uint32_t w = 0; w < g.m.weights.count; w++) {
            const weight *x = &g.m.weights.at[w];
            const uint8_t *at = x->tensor ? x->tensor->data : (const uint8_t *)x->made;
            for (uint32_t r = 0; r < x->rows; r++, at += dtype_row_bytes(x->dtype, x->cols)) {
                float row[128];
                uint32_t word[128];
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
        cmocka_unit_test(test_reference_passes),
        cmocka_unit_test(test_refuser_passes),
        cmocka_unit_test(test_wrong_bit_is_named),
        cmocka_unit_test(test_model_is_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
