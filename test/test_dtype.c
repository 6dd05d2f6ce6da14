/* dtype: rounding against double arithmetic of its own, rows and forms of every format. */
#include "../core/dtype.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

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

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static void assert_same(float a, float b)
{
    if (bits_of(a) != bits_of(b) && !(isnan(a) && isnan(b)))
        fail_msg("%a (%08x) is not %a (%08x)", (double)a, bits_of(a), (double)b, bits_of(b));
}

/* ---- small floats ---------------------------------------------------------------------------- */

typedef struct format { /* of 16 bits */
    int fraction, bias;
    float (*from)(uint16_t);
    uint16_t (*to)(float);
} format;

static const format f16 = {10, 15, dtype_from_f16, dtype_to_f16};
static const format bf16 = {7, 127, dtype_from_bf16, dtype_to_bf16};

static uint32_t exponent_mask(const format *f)
{
    return 0x7fffu >> f->fraction << f->fraction;
}

static double value_of(const format *f, uint32_t h)
{
    int exponent = (int)((h & 0x7fffu) >> f->fraction);
    double fraction = (double)(h & ((1u << f->fraction) - 1)), sign = h & 0x8000u ? -1 : 1;
    if ((h & exponent_mask(f)) == exponent_mask(f)) return fraction != 0 ? NAN : sign * INFINITY;
    double one = exponent ? ldexp(1, f->fraction) : 0;
    return sign * ldexp(fraction + one, (exponent ? exponent : 1) - f->bias - f->fraction);
}

/* x to the nearest, ties to even: by quanta of its binade, in double. */
static uint32_t rounded(const format *f, float x)
{
    uint32_t sign = signbit(x) ? 0x8000u : 0;
    double v = fabs((double)x);
    if (isinf(x)) return sign | exponent_mask(f);
    int binade = v > 0 ? ilogb(v) : 1 - f->bias;
    if (binade < 1 - f->bias) binade = 1 - f->bias;
    double quanta = nearbyint(ldexp(v, f->fraction - binade)), one = ldexp(1, f->fraction);
    if (quanta < one) return sign | (uint32_t)quanta; /* subnormal */
    if (quanta >= 2 * one) {
        quanta = one;
        binade++;
    }
    if (binade > f->bias) return sign | exponent_mask(f);
    return sign | (uint32_t)(binade + f->bias) << f->fraction | (uint32_t)(quanta - one);
}

static void assert_rounds(const format *f, float x)
{
    uint16_t h = f->to(x);
    if (isnan(x)) {
        assert_true(isnan(value_of(f, h)));
        assert_int_equal(h >> 15, bits_of(x) >> 31);
    } else if (h != rounded(f, x)) {
        fail_msg("%a becomes %04x, not %04x", (double)x, h, rounded(f, x));
    }
}

static void test_every_pattern(void **unused)
{
    (void)unused;
    for (const format *f = &f16; f; f = f == &f16 ? &bf16 : NULL) {
        for (uint32_t h = 0; h < 0x10000; h++) {
            float x = f->from((uint16_t)h);
            double expected = value_of(f, h);
            if (isnan(expected)) {
                assert_true(isnan(x));
                assert_true(isnan(value_of(f, f->to(x))));
                assert_int_equal(f->to(x) >> 15, h >> 15);
                if (f == &f16) assert_true(bits_of(x) & 0x400000u); /* quiet */
                continue;
            }
            assert_true((double)x == expected && !signbit(x) == !(h >> 15));
            assert_int_equal(f->to(x), h);
        }
    }
}

/* Around every boundary between two neighbours, both signs: the tie and the floats beside it. */
static void test_ties(void **unused)
{
    (void)unused;
    for (const format *f = &f16; f; f = f == &f16 ? &bf16 : NULL) {
        for (uint32_t h = 0; h < exponent_mask(f); h++) {
            double next = h + 1 < exponent_mask(f) ? value_of(f, h + 1) : ldexp(1, f->bias + 1);
            float tie = (float)((value_of(f, h) + next) / 2);
            assert_true((double)tie == (value_of(f, h) + next) / 2);
            for (int sign = -1; sign <= 1; sign += 2) {
                assert_rounds(f, (float)sign * tie);
                assert_rounds(f, (float)sign * nextafterf(tie, 0));
                assert_rounds(f, (float)sign * nextafterf(tie, INFINITY));
            }
        }
    }
    assert_int_equal(dtype_to_f16(65519.996f), 0x7bff);
    assert_int_equal(dtype_to_f16(65520.0f), 0x7c00);
    assert_int_equal(dtype_to_f16(-FLT_MAX), 0xfc00);
    assert_int_equal(dtype_to_f16(0x1p-25f), 0); /* to even */
    assert_int_equal(dtype_to_f16(0x1.000002p-25f), 1);
    assert_int_equal(dtype_to_bf16(FLT_MAX), 0x7f80);
    assert_int_equal(dtype_to_bf16(0x1.fefffep127f), 0x7f7f);
}

static void test_random_bits(void **unused)
{
    (void)unused;
    set_seed();
    for (uint32_t i = 0; i < 3000000; i++) {
        uint32_t u = draw(), middle = (u & 0x807fffffu) | (100 + u % 45) << 23;
        assert_rounds(&bf16, float_of(u));
        assert_rounds(&f16, float_of(u));
        assert_rounds(&f16, float_of(middle)); /* exponents where f16 has values */
    }
}

/* ---- names and sizes ------------------------------------------------------------------------- */

/* clang-format off */
static const struct {
    uint32_t id;
    const char *name;
    uint32_t block, scale_cols;
    uint64_t bytes_of_256, forms; /* forms: a bit for each */
} kinds[] = {
    {FAK_F32, "f32", 1, 1, 1024, 3}, {FAK_F16, "f16", 1, 1, 512, 3},
    {FAK_BF16, "bf16", 1, 1, 512, 3}, {FAK_I32, "i32", 1, 1, 1024, 1},
    {FAK_Q8_0, "q8_0", 32, 32, 272, 15}, {FAK_Q4_0, "q4_0", 32, 32, 144, 15},
    {FAK_Q4_1, "q4_1", 32, 32, 160, 31}, {FAK_Q5_0, "q5_0", 32, 32, 176, 15},
    {FAK_Q5_1, "q5_1", 32, 32, 192, 31}, {FAK_Q4_K, "q4_k", 256, 32, 144, 31},
    {FAK_Q5_K, "q5_k", 256, 32, 176, 31}, {FAK_Q6_K, "q6_k", 256, 16, 210, 15},
};
/* clang-format on */
enum { KINDS = sizeof kinds / sizeof *kinds, COLS = 160, BLOCKS = COLS / 32 };

static void test_names_and_sizes(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < KINDS; i++) {
        const dtype_info *info = dtype_find(kinds[i].id);
        assert_non_null(info);
        assert_int_equal(info->id, kinds[i].id);
        assert_string_equal(dtype_name(kinds[i].id), kinds[i].name);
        assert_ptr_equal(dtype_by_name(kinds[i].name), info);
        assert_int_equal(info->form_mask, kinds[i].forms);
        uint32_t block = kinds[i].block;
        assert_int_equal(info->block, block);
        assert_int_equal(info->scale_cols, kinds[i].scale_cols);
        assert_int_equal(dtype_row_bytes(info->id, 256), kinds[i].bytes_of_256);
        assert_int_equal(dtype_row_bytes(info->id, 0), 0);
        for (uint32_t cols = 1; cols < 800; cols++)
            assert_int_equal(dtype_row_bytes(info->id, cols),
                             cols % block ? 0 : cols * kinds[i].bytes_of_256 / 256);
        uint64_t numbers = 2 * 256 / kinds[i].scale_cols * 4;
        uint64_t form_bytes[] = {2 * kinds[i].bytes_of_256, 2048, 512, numbers, numbers};
        for (uint32_t form = 0; form < 40; form++)
            assert_int_equal(dtype_form_bytes(info->id, form, 512),
                             form < 5 && kinds[i].forms >> form & 1 ? form_bytes[form] : 0);
        for (uint32_t form = 0; block > 1 && form < 5; form++)
            assert_int_equal(dtype_form_bytes(info->id, form, 33), 0);
    }
    /* 2^32 - 32 columns: no overflow */
    assert_true(dtype_row_bytes(FAK_F32, 0xffffffe0u) == 4 * UINT64_C(0xffffffe0));
    assert_true(dtype_row_bytes(FAK_Q8_0, 0xffffffe0u) == 34 * UINT64_C(0x7ffffff));
}

/* What cannot be a weight is not hidden by rounding, and tiny ones are no undefined behaviour. */
static void test_quantising_hard_rows(void **unused)
{
    (void)unused;
    static const float hard[] = {NAN, INFINITY, -INFINITY};
    for (uint32_t id = FAK_Q8_0; id <= FAK_Q6_K; id++) {
        uint32_t n = dtype_find(id)->block;
        unsigned char row[210];
        float x[256], y[256];
        for (uint32_t j = 0; j < n; j++) x[j] = 1e-40f * ((float)j - 16);
        dtype_encode_row(id, n, x, row);
        dtype_decode_row(id, n, row, y);
        for (uint32_t j = 0; j < n; j++) assert_true(fabsf(y[j]) < 1e-7f);
        for (size_t k = 0; k < sizeof hard / sizeof *hard; k++) {
            uint32_t at = k ? n - 1 : 5;
            uint16_t bits;
            x[at] = hard[k];
            dtype_encode_row(id, n, x, row);
            dtype_decode_row(id, n, row, y);
            assert_true(isnan(y[at]) && isnan(y[0]));
            assert_int_equal(dtype_bad_block(id, n, row, &bits), 0);
            x[at] = 0;
        }
    }
}

static void test_unknown(void **unused)
{
    (void)unused;
    static const uint32_t ids[] = {0, FAK_F8E4M3, FAK_I8, FAK_I4, 9, 15, 24, 31, 32, 0xffffffff};
    static const char *const names[] = {"", "?", "F32", "f3", "f320", "q8", "q4_0 "};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        assert_null(dtype_find(ids[i]));
        assert_string_equal(dtype_name(ids[i]), "?");
        assert_int_equal(dtype_row_bytes(ids[i], 64), 0);
        assert_int_equal(dtype_form_bytes(ids[i], FAK_NATIVE, 64), 0);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_null(dtype_by_name(names[i]));
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A row of the format at an odd address, as a GGUF tensor may have it inside a file. */
typedef struct odd_row {
    uint8_t *memory, *row;
    size_t bytes;
} odd_row;

static odd_row odd_open(uint32_t id)
{
    size_t bytes = (size_t)dtype_row_bytes(id, COLS);
    odd_row r = {malloc(bytes + 1), NULL, bytes};
    assert_non_null(r.memory);
    r.row = r.memory + 1;
    for (size_t i = 0; i < bytes; i++) r.row[i] = (uint8_t)draw();
    return r;
}

/* Has a block a minimum? */
static int shifted(uint32_t id)
{
    return id == FAK_Q4_1 || id == FAK_Q5_1;
}

/* Code i of a block of 32 from the page's table. */
static int code_at(uint32_t id, const uint8_t *block, uint32_t i)
{
    const uint8_t *at = block + (shifted(id) ? 4 : 2);
    if (id == FAK_Q8_0) return at[i] < 128 ? at[i] : at[i] - 256;
    int five = id == FAK_Q5_0 || id == FAK_Q5_1, high = five ? at[i / 8] >> i % 8 & 1 : 0;
    uint8_t byte = at[(five ? 4 : 0) + i % 16];
    int code = (i < 16 ? byte & 15 : byte >> 4) + 16 * high;
    return shifted(id) ? code : code - (five ? 16 : 8);
}

/* Weight i of a block from the page's formula, in double; rounded once. */
static float weight(uint32_t id, const uint8_t *block, uint32_t i)
{
    double w = value_of(&f16, block[0] | (uint32_t)block[1] << 8) * code_at(id, block, i);
    return (float)(shifted(id) ? w + value_of(&f16, block[2] | (uint32_t)block[3] << 8) : w);
}

static void assert_decodes(uint32_t id, const uint8_t *row)
{
    float out[COLS];
    uint32_t step = (uint32_t)dtype_row_bytes(id, 32);
    dtype_decode_row(id, COLS, row, out);
    for (uint32_t i = 0; i < COLS; i++) {
        float expected = weight(id, row + i / 32 * step, i % 32);
        if (expected == 0 && out[i] == 0) continue; /* double has no sign for 0*d with d = -0 */
        assert_same(out[i], expected);
    }
}

static void test_decode_blocks(void **unused)
{
    (void)unused;
    set_seed();
    static const uint16_t scale[] = {0x3c00, 0xbc00, 0x0001, 0x83ff, 0x7bff, 0xfbff,
                                     0,      0x8000, 0x7c00, 0x7e01, 0x2e66, 0x0400};
    for (uint32_t id = FAK_Q8_0; id <= FAK_Q5_1; id++) {
        odd_row r = odd_open(id);
        uint32_t step = (uint32_t)dtype_row_bytes(id, 32);
        for (uint32_t turn = 0; turn < 300; turn++) {
            for (size_t i = 0; i < r.bytes; i++) r.row[i] = (uint8_t)draw();
            for (uint32_t b = 0; b < BLOCKS && turn < 200; b++) { /* then any scale at all */
                uint16_t d = scale[draw() % 12], m = scale[draw() % 12];
                r.row[b * step] = (uint8_t)d;
                r.row[b * step + 1] = (uint8_t)(d >> 8);
                if (shifted(id)) {
                    r.row[b * step + 2] = (uint8_t)m;
                    r.row[b * step + 3] = (uint8_t)(m >> 8);
                }
            }
            assert_decodes(id, r.row);
        }
        free(r.memory);
    }
    /* by hand: d = 0.5, m = -1; codes 1 and 14 in the first byte */
    uint8_t q4_1[20] = {0x00, 0x38, 0x00, 0xbc, 0xe1}, q4_0[18] = {0x00, 0x38, 0xe1};
    float out[32];
    dtype_decode_row(FAK_Q4_1, 32, q4_1, out);
    assert_true(out[0] == -0.5f && out[16] == 6.0f && out[1] == -1.0f && out[31] == -1.0f);
    dtype_decode_row(FAK_Q4_0, 32, q4_0, out);
    assert_true(out[0] == -3.5f && out[16] == 3.0f && out[1] == -4.0f && out[31] == -4.0f);
}

static void *serve(uint32_t id, uint32_t form, const uint8_t *row)
{
    void *out = malloc((size_t)dtype_form_bytes(id, form, COLS)); /* exactly */
    assert_non_null(out);
    dtype_serve_row(id, form, COLS, row, out);
    return out;
}

static void test_forms_recombine(void **unused)
{
    (void)unused;
    set_seed();
    static const int least[] = {-128, -8, 0, -16, 0}, most[] = {127, 7, 15, 15, 31};
    for (uint32_t id = FAK_Q8_0; id <= FAK_Q5_1; id++) {
        for (uint32_t turn = 0; turn < 200; turn++) {
            odd_row r = odd_open(id);
            int8_t *code = serve(id, FAK_CODES, r.row);
            float *scale = serve(id, FAK_SCALES, r.row), *whole = serve(id, FAK_AS_F32, r.row);
            float *zero = shifted(id) ? serve(id, FAK_ZEROS, r.row) : NULL;
            uint8_t *native = serve(id, FAK_NATIVE, r.row);
            assert_memory_equal(native, r.row, r.bytes);
            for (uint32_t i = 0; i < COLS; i++) {
                float w = scale[i / 32] * (float)code[i];
                if (zero) w = w + zero[i / 32];
                assert_same(w, whole[i]);
                assert_in_range(code[i] + 128, least[id - FAK_Q8_0] + 128,
                                most[id - FAK_Q8_0] + 128);
            }
            free(code), free(scale), free(whole), free(zero), free(native), free(r.memory);
        }
    }
}

static void test_plain_rows(void **unused)
{
    (void)unused;
    set_seed();
    float x[COLS], back[COLS], served[COLS];
    uint16_t half[COLS];
    for (uint32_t i = 0; i < COLS; i++) x[i] = float_of(draw());
    float row[COLS];
    dtype_encode_row(FAK_F32, COLS, x, row);
    assert_memory_equal(row, x, sizeof x);
    dtype_decode_row(FAK_F32, COLS, row, back);
    assert_memory_equal(back, x, sizeof x);
    for (uint32_t id = FAK_F16; id <= FAK_BF16; id++) {
        const format *f = id == FAK_F16 ? &f16 : &bf16;
        dtype_encode_row(id, COLS, x, half);
        dtype_decode_row(id, COLS, half, back);
        dtype_serve_row(id, FAK_AS_F32, COLS, half, served);
        for (uint32_t i = 0; i < COLS; i++) {
            assert_int_equal(half[i], f->to(x[i]));
            assert_same(back[i], f->from(half[i]));
            assert_same(served[i], back[i]);
        }
    }
}

/* ---- quantisers ------------------------------------------------------------------------------ */

/* What the block should say: d and m before they are rounded, and the codes within half a step. */
static void assert_block(uint32_t id, const float *x, const uint8_t *block)
{
    double low = (double)x[0], high = low, extreme = 0;
    for (int i = 0; i < 32; i++) {
        low = fmin(low, (double)x[i]);
        high = fmax(high, (double)x[i]);
        if (fabs((double)x[i]) > fabs(extreme)) extreme = (double)x[i];
    }
    double range = (double)((float)high - (float)low);
    double d = id == FAK_Q8_0   ? fabs(extreme) / 127
               : id == FAK_Q4_0 ? extreme / -8
               : id == FAK_Q5_0 ? extreme / -16
                                : range / (id == FAK_Q4_1 ? 15 : 31);
    uint16_t stored = (uint16_t)(block[0] | block[1] << 8);
    assert_int_equal(stored, rounded(&f16, (float)d));
    double d16 = value_of(&f16, stored), m16 = 0;
    if (shifted(id)) {
        stored = (uint16_t)(block[2] | block[3] << 8);
        m16 = value_of(&f16, stored);
        assert_true(m16 == value_of(&f16, rounded(&f16, (float)low)));
    }
    for (uint32_t i = 0; i < 32; i++) {
        double from = shifted(id) ? low : 0, step = ((double)x[i] - from) / d;
        int code = code_at(id, block, i);
        int most = id == FAK_Q4_0 ? 7 : id == FAK_Q5_0 ? 15 : 1000;
        int clipped = code == most && step > most + 0.4; /* 8, or 16, does not exist */
        if (!clipped && !(fabs(step - code) <= 0.5 + 2e-5)) fail_msg("%g becomes %d", step, code);
        if (clipped) assert_true(step <= most + 1);
        /* so the decoded weight is within half a step, and the rounding of d and m */
        double off = fabs((double)weight(id, block, i) - (double)x[i]);
        double worst = fabs(d) * (clipped ? 1.0 : 0.5 + 2e-5) + abs(code) * fabs(d16 - d) +
                       fabs(m16 - from) + 0x1p-23 * fabs((double)x[i]);
        assert_true(off <= worst);
    }
}

static void test_quantisers(void **unused)
{
    (void)unused;
    set_seed();
    for (uint32_t id = FAK_Q8_0; id <= FAK_Q5_1; id++) {
        for (int turn = 0; turn < 3000; turn++) {
            float x[COLS], scale = ldexpf(1, (int)(draw() % 24) - 12), shift = scale * draw_unit();
            odd_row r = odd_open(id);
            for (uint32_t i = 0; i < COLS; i++) x[i] = draw_unit() * scale + (turn & 1 ? shift : 0);
            dtype_encode_row(id, COLS, x, r.row);
            for (uint32_t b = 0; b < BLOCKS; b++)
                assert_block(id, x + b * 32, r.row + b * (size_t)dtype_row_bytes(id, 32));
            free(r.memory);
        }
    }
}

static void assert_idempotent(uint32_t id, const float *x, int expected)
{
    uint8_t row[BLOCKS * 34], again[BLOCKS * 34];
    float decoded[COLS];
    size_t bytes = (size_t)dtype_row_bytes(id, COLS);
    dtype_encode_row(id, COLS, x, row);
    dtype_decode_row(id, COLS, row, decoded);
    dtype_encode_row(id, COLS, decoded, again);
    assert_int_equal(!memcmp(row, again, bytes), expected);
}

/* Encoding what a row decodes to gives the row again: always for Q8_0, Q4_0 and Q5_0, and for Q4_1 and
 * Q5_1 while m is not so large beside d that d*15 + m loses d; not where d underflows to 0. */
static void test_idempotent(void **unused)
{
    (void)unused;
    set_seed();
    float x[COLS] = {0};
    for (uint32_t id = FAK_Q8_0; id <= FAK_Q5_1; id++) {
        assert_idempotent(id, (const float[COLS]){0}, 1);
        for (int turn = 0; turn < 3000; turn++) {
            float scale = ldexpf(1, (int)(draw() % 24) - 12);
            for (uint32_t i = 0; i < COLS; i++) x[i] = (draw_unit() + 0.5f) * scale;
            assert_idempotent(id, x, 1);
        }
        for (uint32_t i = 0; i < COLS; i++) x[i] = (i & 1 ? 1 : -1) * 0x1p-27f;
        assert_idempotent(id, x, 0);
    }
}

/* What llama.cpp's quantiser makes of corners: a constant row, zeros, the first of two extremes. */
static void test_quantiser_corners(void **unused)
{
    (void)unused;
    float x[32] = {0};
    uint8_t block[34];
    static const uint8_t zeros[34] = {0};
    dtype_encode_row(FAK_Q8_0, 32, x, block);
    assert_memory_equal(block, zeros, 34);
    dtype_encode_row(FAK_Q4_1, 32, x, block);
    assert_memory_equal(block, zeros, 20);
    dtype_encode_row(FAK_Q4_0, 32, x, block); /* d = 0/-8 */
    assert_int_equal(block[0] | block[1] << 8, 0x8000);
    for (int i = 2; i < 18; i++) assert_int_equal(block[i], 0x88);
    for (int i = 0; i < 32; i++) x[i] = -3;
    dtype_encode_row(FAK_Q4_1, 32, x, block);
    assert_memory_equal(block, ((const uint8_t[20]){0, 0, 0x00, 0xc2}), 20);
    x[0] = 8, x[1] = -8; /* the first: d = -1; 8 is code 0, -8 is clipped to 15 */
    dtype_encode_row(FAK_Q4_0, 32, x, block);
    assert_int_equal(block[0] | block[1] << 8, 0xbc00);
    assert_int_equal(block[2] & 15, 0);
    assert_int_equal(block[3] & 15, 15);
    x[0] = 127, x[1] = 2.5f, x[2] = -2.5f; /* Q8_0 rounds half away from zero */
    dtype_encode_row(FAK_Q8_0, 32, x, block);
    assert_memory_equal(block, ((const uint8_t[6]){0x00, 0x3c, 127, 3, 0xfd, 0xfd}), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pattern),        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_random_bits),          cmocka_unit_test(test_names_and_sizes),
        cmocka_unit_test(test_quantising_hard_rows), cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_decode_blocks),        cmocka_unit_test(test_forms_recombine),
        cmocka_unit_test(test_plain_rows),           cmocka_unit_test(test_quantisers),
        cmocka_unit_test(test_idempotent),           cmocka_unit_test(test_quantiser_corners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
