/* test_toy - weights and models made in memory: the same bytes for a seed, other ones for another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../core/toy.h"

static const toy_shape shape = {.width = 64,
                                .ffn = 96,
                                .heads = 4,
                                .kv_heads = 2,
                                .head_dim = 16,
                                .vocab = 100,
                                .layers = 2,
                                .context = 32};

static uint64_t bytes_of(const weight *w)
{
    return weights_bytes(w);
}

/* FNV-1a over all weights. */
static uint64_t hash(const toy *t)
{
    uint64_t h = 14695981039346656037ull;
    for (uint32_t i = 0; i < t->m.weights.count; i++) {
        const uint8_t *at = toy_rows(t, i);
        for (uint64_t b = 0; b < bytes_of(&t->m.weights.at[i]); b++)
            h = (h ^ at[b]) * 1099511628211ull;
    }
    return h;
}

static uint64_t hash_of(uint32_t dtype, uint64_t seed)
{
    toy t;
    fak_error e;
    if (toy_make(&t, &shape, dtype, seed, &e)) fail_msg("%s", e.message);
    uint64_t h = hash(&t);
    toy_free(&t);
    return h;
}

static void test_seeds(void **state)
{
    static const uint32_t dtypes[] = {FAK_F32, FAK_F16, FAK_BF16, FAK_Q8_0, FAK_Q4_0, FAK_Q4_1};
    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        uint64_t h = hash_of(dtypes[i], TOY_SEED);
        assert_true(h == hash_of(dtypes[i], TOY_SEED));
        assert_true(h != hash_of(dtypes[i], TOY_SEED + 1));
        assert_true(h != hash_of(dtypes[(i + 1) % 6], TOY_SEED));
    }
}

/* Every matrix has its shape and dtype, norms are F32 near 1, and all that a plan needs is there. */
static void test_model(void **state)
{
    toy t;
    fak_error e;
    (void)state;
    if (toy_make(&t, &shape, FAK_Q8_0, TOY_SEED, &e)) fail_msg("%s", e.message);
    assert_int_equal(t.m.weights.count, 4 + 9 * shape.layers);
    uint32_t norms = 0;
    for (uint32_t i = 0; i < t.m.weights.count; i++) {
        const weight *w = &t.m.weights.at[i];
        if (i == t.m.index[MODEL_ROPE]) {
            assert_int_equal(w->rows, shape.context);
            assert_int_equal(w->cols, shape.head_dim);
            continue;
        }
        assert_int_equal(w->dtype, w->rows == 1 ? FAK_F32 : FAK_Q8_0);
        if (w->rows > 1) continue;
        norms++;
        const float *x = toy_rows(&t, i);
        for (uint32_t c = 0; c < w->cols; c++)
            if (!(x[c] >= 0.75f && x[c] <= 1.25f)) fail_msg("a norm is %g", (double)x[c]);
    }
    assert_int_equal(norms, 1 + 2 * shape.layers);
    const weight *head = &t.m.weights.at[t.m.index[MODEL_HEAD]];
    assert_int_equal(head->rows, shape.vocab);
    assert_int_equal(head->cols, shape.width);
    assert_true(t.used <= t.room);
    toy_free(&t);
}

/* Rows are what dtype_encode_row makes of center + scale * noise, and begin at multiples of 64. */
static void test_rows(void **state)
{
    enum { ROWS = 3, COLS = 64 };
    static const uint32_t dtypes[] = {FAK_F32, FAK_F16, FAK_BF16, FAK_Q8_0, FAK_Q4_0, FAK_Q4_1};
    toy t;
    fak_error e;
    uint64_t random = 77;
    (void)state;
    assert_int_equal(toy_open(&t, 7, 6 * ROWS * COLS * 4, random, &e), FAK_OK);
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t index;
        uint64_t row_bytes = dtype_row_bytes(dtypes[i], COLS);
        uint8_t *row = malloc((size_t)row_bytes);
        assert_int_equal(toy_add(&t, "w", dtypes[i], ROWS, COLS, 2, 0.5f, &index, &e), FAK_OK);
        assert_int_equal(index, i);
        const uint8_t *at = toy_rows(&t, index);
        assert_int_equal((uintptr_t)at % 64, 0);
        for (uint32_t r = 0; r < ROWS; r++) {
            float x[COLS];
            for (int c = 0; c < COLS; c++) x[c] = 2 + 0.5f * toy_noise(&random);
            dtype_encode_row(dtypes[i], COLS, x, row);
            assert_memory_equal(at + r * row_bytes, row, row_bytes);
        }
        free(row);
    }
    for (uint32_t i = 1; i < 6; i++) /* what is added does not move what was there */
        assert_true((const uint8_t *)toy_rows(&t, i) >=
                    (const uint8_t *)toy_rows(&t, i - 1) + bytes_of(&t.m.weights.at[i - 1]));
    toy_free(&t);
}

static void test_draws(void **state)
{
    static const uint32_t bounds[] = {1, 2, 3, 7, 100, 65537, UINT32_MAX};
    uint64_t random = TOY_SEED;
    double sum = 0, low = 1, high = -1;
    (void)state;
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        for (int n = 0; n < 5000; n++) assert_true(toy_below(&random, bounds[i]) < bounds[i]);
    uint32_t seen[7] = {0};
    for (int n = 0; n < 7000; n++) seen[toy_below(&random, 7)]++;
    for (int i = 0; i < 7; i++) assert_in_range(seen[i], 800, 1200);
    for (int n = 0; n < 20000; n++) {
        double x = (double)toy_noise(&random);
        assert_true(x >= -1 && x < 1);
        sum += x;
        low = x < low ? x : low;
        high = x > high ? x : high;
    }
    assert_true(sum > -500 && sum < 500);
    assert_true(low < -0.99 && high > 0.99);
}

/* A sanitizer would end the process instead of answering NULL. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

/* What no machine has is told, and what is half made can be freed. */
static void test_no_memory(void **state)
{
    toy t;
    fak_error e = {0};
    (void)state;
    assert_int_equal(toy_open(&t, 4, UINT64_MAX / 2, 1, &e), FAK_E_MEMORY);
    assert_non_null(strstr(e.message, "not enough memory for a model in memory"));
    toy_free(&t);
    toy_free(&t);
    toy_shape big = shape;
    big.vocab = UINT32_MAX;
    big.width = 1u << 30;
    assert_int_equal(toy_make(&t, &big, FAK_F32, 1, &e), FAK_E_MEMORY);
    assert_null(t.data);
    toy_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeds), cmocka_unit_test(test_model),     cmocka_unit_test(test_rows),
        cmocka_unit_test(test_draws), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
