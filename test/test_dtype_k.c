/* dtype: the K formats, blocks of 256 with whole-number scales: decoding against the page's formulas,
 * forms, quantisers against what dtype_encode.c promises, broken scales. */
#include "../core/dtype.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { K = 256, COLS = 3 * K };

static uint64_t state;

static uint32_t draw(void) /* splitmix64 */
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 32);
}

static void set_seed(void)
{
    const char *set = getenv("FAK_TEST_SEED");
    state = set ? strtoul(set, NULL, 10) : (unsigned long)time(NULL);
    print_message("FAK_TEST_SEED=%lu\n", (unsigned long)state);
}

static float draw_unit(void) /* within [-1, 1) */
{
    return (float)((int32_t)(draw() >> 8) - 0x800000) * 0x1p-23f;
}

static void assert_same(float a, float b)
{
    uint32_t x, y;
    memcpy(&x, &a, 4);
    memcpy(&y, &b, 4);
    if (x != y && !(isnan(a) && isnan(b))) fail_msg("%a is not %a", (double)a, (double)b);
}

/* ---- the page's table, a weight at a time ---- */

static float half_at(const uint8_t *p)
{
    return dtype_from_f16((uint16_t)(p[0] | p[1] << 8));
}

static int bits_at(const uint8_t *p, int first, int bits) /* of a little-endian string of bits */
{
    int value = 0;
    for (int i = 0; i < bits; i++) value |= (p[(first + i) / 8] >> (first + i) % 8 & 1) << i;
    return value;
}

static float d_of(uint32_t id, const uint8_t *b)
{
    return half_at(b + (id == FAK_Q6_K ? 208 : 0));
}

/* sc, or mn, of weight i. */
static int scale_at(uint32_t id, const uint8_t *b, int i)
{
    if (id == FAK_Q6_K) return b[192 + i / 16] < 128 ? b[192 + i / 16] : b[192 + i / 16] - 256;
    int j = i / 32;
    if (j < 4) return bits_at(b + 4, 8 * j, 6);
    return bits_at(b + 4, 8 * (j + 4), 4) + 16 * bits_at(b + 4, 8 * (j - 4) + 6, 2);
}

static int min_at(const uint8_t *b, int i)
{
    int j = i / 32;
    if (j < 4) return bits_at(b + 4, 8 * (j + 4), 6);
    return bits_at(b + 4, 8 * (j + 4) + 4, 4) + 16 * bits_at(b + 4, 8 * j + 6, 2);
}

static int code_at(uint32_t id, const uint8_t *b, int i)
{
    int j = i / 32, n = i / 128, g = i / 32 % 4, l = i % 32;
    if (id == FAK_Q6_K)
        return bits_at(b + 64 * n + 32 * (g % 2) + l, 4 * (g / 2), 4) +
               16 * bits_at(b + 128 + 32 * n + l, 2 * g, 2) - 32;
    int nibble = bits_at(b + (id == FAK_Q4_K ? 16 : 48) + 32 * (j / 2) + l, 4 * (j % 2), 4);
    return nibble + (id == FAK_Q5_K ? 16 * bits_at(b + 16 + l, j, 1) : 0);
}

static float weight_at(uint32_t id, const uint8_t *b, int i)
{
    float scale = d_of(id, b) * (float)scale_at(id, b, i);
    float w = scale * (float)code_at(id, b, i);
    if (id == FAK_Q6_K) return w;
    float zero = half_at(b + 2) * (float)min_at(b, i);
    return w - zero;
}

/* ---- rows ---- */

/* Random bytes at an odd address; calm: scales near 2^-6, so that nothing overflows. */
static uint8_t *draw_blocks(uint32_t id, uint8_t *memory, int calm)
{
    uint32_t step = dtype_find(id)->block_bytes;
    uint8_t *row = memory + 1;
    for (uint32_t i = 0; i < 3 * step; i++) row[i] = (uint8_t)draw();
    for (uint32_t b = 0; calm && b < 3; b++) {
        uint8_t *at = row + b * step + (id == FAK_Q6_K ? 208 : 0);
        at[1] = (uint8_t)((at[1] & 0x83) | 0x24);
        if (id != FAK_Q6_K) at[3] = (uint8_t)((at[3] & 0x83) | 0x28);
    }
    return row;
}

static void test_decode(void **unused)
{
    uint8_t memory[3 * 210 + 1];
    float x[COLS];
    (void)unused;
    set_seed();
    for (uint32_t id = FAK_Q4_K; id <= FAK_Q6_K; id++) {
        uint32_t step = dtype_find(id)->block_bytes;
        for (int turn = 0; turn < 500; turn++) {
            const uint8_t *row = draw_blocks(id, memory, turn % 2);
            dtype_decode_row(id, COLS, row, x);
            for (int i = 0; i < COLS; i++)
                assert_same(x[i], weight_at(id, row + (uint32_t)i / K * step, i % K));
        }
    }
}

static void test_forms_recombine(void **unused)
{
    static const int least[] = {0, 0, -32}, most[] = {15, 31, 31};
    uint8_t memory[3 * 210 + 1];
    int8_t code[COLS];
    float scale[COLS / 16], zero[COLS / 32], whole[COLS];
    (void)unused;
    set_seed();
    for (uint32_t id = FAK_Q4_K; id <= FAK_Q6_K; id++) {
        uint32_t n = dtype_find(id)->scale_cols, step = dtype_find(id)->block_bytes;
        for (int turn = 0; turn < 200; turn++) {
            const uint8_t *row = draw_blocks(id, memory, turn % 2);
            dtype_serve_row(id, FAK_CODES, COLS, row, code);
            dtype_serve_row(id, FAK_SCALES, COLS, row, scale);
            if (id != FAK_Q6_K) dtype_serve_row(id, FAK_ZEROS, COLS, row, zero);
            dtype_serve_row(id, FAK_AS_F32, COLS, row, whole);
            for (uint32_t i = 0; i < COLS; i++) {
                dtype_k k;
                float w = scale[i / n] * (float)code[i];
                if (id != FAK_Q6_K) w = w + zero[i / n];
                assert_same(w, whole[i]);
                assert_in_range(code[i] + 128, least[id - FAK_Q4_K] + 128,
                                most[id - FAK_Q4_K] + 128);
                dtype_k_scales(id, row + i / K * step, &k);
                assert_same(k.d * (float)k.sc[i % K / n], scale[i / n]);
                assert_int_equal(k.sc[i % K / n], scale_at(id, row + i / K * step, (int)(i % K)));
                if (id != FAK_Q6_K) assert_same(-(k.dmin * (float)k.mn[i % K / n]), zero[i / n]);
            }
        }
    }
}

static void test_bad_blocks(void **unused)
{
    uint8_t memory[3 * 210 + 1];
    uint16_t bits;
    (void)unused;
    set_seed();
    for (uint32_t id = FAK_Q4_K; id <= FAK_Q6_K; id++)
        for (int turn = 0; turn < 60; turn++) {
            uint32_t b = draw() % 3, at = id == FAK_Q6_K ? 208 : turn % 2 ? 2 : 0;
            uint8_t *row = draw_blocks(id, memory, 1);
            assert_int_equal(dtype_bad_block(id, COLS, row, &bits), FAK_NO_INDEX);
            uint8_t *h = row + b * dtype_find(id)->block_bytes + at;
            h[1] = (uint8_t)(h[1] | 0x7c);
            assert_int_equal(dtype_bad_block(id, COLS, row, &bits), b);
            assert_int_equal(bits, h[0] | h[1] << 8);
        }
}

/* ---- quantisers ---- */

static double nearest(double x, double least, double most)
{
    return fmin(most, fmax(least, x < 0 ? -floor(0.5 - x) : floor(x + 0.5)));
}

/* Is the whole number within rounding of what it should be the nearest to? */
static void assert_nearest(int got, double x, double least, double most)
{
    if (fabs(got - nearest(x, least, most)) > 0.5 && fabs(x - got) > 0.5 + 1e-4)
        fail_msg("%g becomes %d", x, got);
}

/* Of run j of x: the scale and, but in Q6_K, how far below zero it begins. */
static double wanted_scale(uint32_t id, const float *x, int n, double *below)
{
    double low = 0, high = -INFINITY, extreme = 0;
    for (int i = 0; i < n; i++) {
        low = fmin(low, (double)x[i]);
        high = fmax(high, (double)x[i]);
        if (fabs((double)x[i]) > fabs(extreme)) extreme = (double)x[i];
    }
    *below = -low;
    return id == FAK_Q6_K ? extreme / -32 : (fmax(high, low) - low) / (id == FAK_Q4_K ? 15 : 31);
}

static double rounded_half(double x)
{
    return (double)dtype_from_f16(dtype_to_f16((float)x));
}

static void assert_near(double a, double b) /* one place of f16, where the nearest may be either */
{
    if (fabs(a - b) > 0x1p-10 * fabs(b) + 0x1p-24) fail_msg("%g is not %g", a, b);
}

static void assert_block(uint32_t id, const float *x, const uint8_t *b)
{
    int n = id == FAK_Q6_K ? 16 : 32, top = id == FAK_Q4_K ? 15 : 31;
    double scale[16], below[16], d = (double)d_of(id, b), dmin = 0, most = 0, lowest = 0;
    for (int j = 0; j < K / n; j++) {
        scale[j] = wanted_scale(id, x + j * n, n, &below[j]);
        if (fabs(scale[j]) > fabs(most)) most = scale[j];
        lowest = fmax(lowest, below[j]);
    }
    assert_near(d, rounded_half(id == FAK_Q6_K ? most / -128 : most / 63));
    if (id != FAK_Q6_K) assert_near(dmin = (double)half_at(b + 2), rounded_half(lowest / 63));
    for (int i = 0; i < K; i++) {
        int j = i / n, sc = scale_at(id, b, i), mn = id == FAK_Q6_K ? 0 : min_at(b, i);
        int code = code_at(id, b, i), least = id == FAK_Q6_K ? -32 : 0;
        assert_nearest(sc, d != 0 ? scale[j] / d : 0, id == FAK_Q6_K ? -128 : 0,
                       id == FAK_Q6_K ? 127 : 63);
        if (id != FAK_Q6_K) assert_nearest(mn, dmin > 0 ? below[j] / dmin : 0, 0, 63);
        double step = d * sc;
        if (step != 0) assert_nearest(code, ((double)x[i] + dmin * mn) / step, least, top);
    }
}

static void test_quantisers(void **unused)
{
    uint8_t row[3 * 210];
    float x[COLS];
    (void)unused;
    set_seed();
    for (uint32_t id = FAK_Q4_K; id <= FAK_Q6_K; id++)
        for (int turn = 0; turn < 600; turn++) {
            float scale = ldexpf(1, (int)(draw() % 16) - 8), shift = scale * draw_unit() * 2;
            for (int i = 0; i < COLS;
                 i++) { /* runs differ in size; some are zero, or of one sign */
                float size = turn % 4 ? ldexpf(1, -(i / 32 * 7 % 5)) : i / 32 % 3 == 1 ? 0 : 1;
                x[i] = (draw_unit() * scale + (turn & 1 ? shift : 0)) * size;
            }
            dtype_encode_row(id, COLS, x, row);
            for (uint32_t b = 0; b < 3; b++)
                assert_block(id, x + b * K, row + b * dtype_find(id)->block_bytes);
        }
}

/* Uniform noise keeps its shape: the root of the mean square of what is lost, of it. */
static void test_loss(void **unused)
{
    static const double most[] = {0.07, 0.035, 0.018}, least[] = {0.05, 0.025, 0.012};
    uint8_t row[3 * 210];
    float x[COLS], y[COLS];
    (void)unused;
    set_seed();
    for (uint32_t id = FAK_Q4_K; id <= FAK_Q6_K; id++) {
        double lost = 0, all = 0;
        for (int turn = 0; turn < 100; turn++) {
            for (int i = 0; i < COLS; i++) x[i] = draw_unit();
            dtype_encode_row(id, COLS, x, row);
            dtype_decode_row(id, COLS, row, y);
            for (int i = 0; i < COLS; i++) {
                lost += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
                all += (double)x[i] * (double)x[i];
            }
        }
        double loss = sqrt(lost / all);
        if (loss > most[id - FAK_Q4_K] || loss < least[id - FAK_Q4_K])
            fail_msg("%s loses %g", dtype_name(id), loss);
    }
}

/* By hand: a block of zeros stays one, and what fits exactly comes back. */
static void test_corners(void **unused)
{
    uint8_t row[210];
    float x[K] = {0}, y[K];
    (void)unused;
    for (uint32_t id = FAK_Q4_K; id <= FAK_Q6_K; id++) {
        dtype_encode_row(id, K, x, row);
        dtype_decode_row(id, K, row, y);
        for (int i = 0; i < K; i++) assert_true(y[i] == 0);
    }
    for (uint32_t id = FAK_Q4_K; id <= FAK_Q5_K; id++) { /* sc 63 - j and mn 9*j, d = dmin = 1/4 */
        int top = id == FAK_Q4_K ? 15 : 31;
        for (int i = 0; i < K; i++) {
            int j = i / 32, code = i % 32 < 2 ? i % 2 * top : i * 5 % (top + 1);
            x[i] = 0.25f * (float)((63 - j) * code - 9 * j);
        }
        dtype_encode_row(id, K, x, row);
        dtype_decode_row(id, K, row, y);
        assert_int_equal(row[0] | row[1] << 8, 0x3400);
        assert_int_equal(row[2] | row[3] << 8, 0x3400);
        for (int i = 0; i < K; i++) assert_true(x[i] == y[i]);
    }
    for (int i = 0; i < K; i++) { /* sc -128 + 3*j, d = 1/8 */
        int j = i / 16, code = i % 16 ? i * 5 % 64 - 32 : -32;
        x[i] = 0.125f * (float)((-128 + 3 * j) * code);
    }
    dtype_encode_row(FAK_Q6_K, K, x, row);
    dtype_decode_row(FAK_Q6_K, K, row, y);
    assert_int_equal(row[208] | row[209] << 8, 0x3000);
    for (int i = 0; i < K; i++) assert_true(x[i] == y[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),     cmocka_unit_test(test_forms_recombine),
        cmocka_unit_test(test_bad_blocks), cmocka_unit_test(test_quantisers),
        cmocka_unit_test(test_loss),       cmocka_unit_test(test_corners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
