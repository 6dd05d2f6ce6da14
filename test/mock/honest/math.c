/* math - numbers, rows and matrices on plain pointers.  Knows no program. */
#include "honest.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static float from_bits(uint32_t b)
{
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

/* ---- formats ---- */

static float half_value(uint16_t h)
{
    uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
    float sign = h >> 15 ? -1.0f : 1.0f;
    if (exponent == 31) return fraction ? from_bits(0x7fc00000u) : sign * INFINITY;
    if (!exponent) return sign * ldexpf((float)fraction, -24);
    return sign * ldexpf((float)(fraction + 1024), (int)exponent - 25);
}

static uint16_t to_half(float x)
{
    uint32_t b = bits_of(x), sign = b >> 16 & 0x8000u, size = b & 0x7fffffffu;
    if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (size >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
    if (size < 0x38800000u) return (uint16_t)(sign | (uint32_t)rintf(from_bits(size) * 0x1p24f));
    size += 0xfffu + (size >> 13 & 1u);
    return (uint16_t)(sign | (size - 0x38000000u) >> 13);
}

static uint16_t to_bfloat(float x)
{
    uint32_t b = bits_of(x);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(b >> 16 | 64u);
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}

static float half_at(const unsigned char *at)
{
    return half_value((uint16_t)(at[0] | at[1] << 8)); /* blocks are little-endian */
}

uint64_t honest_row_bytes(uint32_t dtype, uint32_t cols)
{
    uint64_t blocks = cols % 32 ? 0 : cols / 32;
    switch (dtype) {
    case FAK_F32:
        return cols * 4ull;
    case FAK_F16:
    case FAK_BF16:
        return cols * 2ull;
    case FAK_Q8_0:
        return blocks * 34;
    case FAK_Q4_0:
        return blocks * 18;
    case FAK_Q4_1:
        return blocks * 20;
    case FAK_Q5_0:
        return blocks * 22;
    case FAK_Q5_1:
        return blocks * 24;
    default:
        return 0;
    }
}

typedef struct packed { /* one block of 32 weights, taken apart */
    float scale, zero;
    int8_t code[32];
} packed;

static int has_zero(uint32_t dtype)
{
    return dtype == FAK_Q4_1 || dtype == FAK_Q5_1;
}

static packed unpack(uint32_t dtype, const unsigned char *b)
{
    packed p = {.scale = half_at(b), .zero = has_zero(dtype) ? half_at(b + 2) : 0.0f};
    const unsigned char *q = b + (has_zero(dtype) ? 4 : 2), *fifth = NULL;
    int middle = dtype == FAK_Q4_0 ? 8 : dtype == FAK_Q5_0 ? 16 : 0;
    if (dtype == FAK_Q5_0 || dtype == FAK_Q5_1) fifth = q, q += 4;
    for (int i = 0; i < 32; i++) {
        int high = fifth ? (fifth[i / 8] >> i % 8 & 1) * 16 : 0;
        if (dtype == FAK_Q8_0)
            p.code[i] = (int8_t)(q[i] < 128 ? q[i] : q[i] - 256);
        else
            p.code[i] = (int8_t)((i < 16 ? q[i] & 15 : q[i - 16] >> 4) + high - middle);
    }
    return p;
}

void honest_decode(uint32_t dtype, uint32_t cols, const void *row, float *out)
{
    uint64_t block_bytes = honest_row_bytes(dtype, 32);
    for (uint32_t i = 0; i < cols; i++) {
        uint16_t h = 0;
        if (dtype == FAK_F32) memcpy(&out[i], (const char *)row + i * 4ul, 4);
        if (dtype == FAK_F16 || dtype == FAK_BF16) memcpy(&h, (const char *)row + i * 2ul, 2);
        if (dtype == FAK_F16) out[i] = half_value(h);
        if (dtype == FAK_BF16) out[i] = from_bits((uint32_t)h << 16);
    }
    if (dtype < FAK_Q8_0) return;
    for (uint32_t b = 0; b < cols / 32; b++) {
        packed p = unpack(dtype, (const unsigned char *)row + b * block_bytes);
        for (uint32_t i = 0; i < 32; i++) {
            float x = p.scale * (float)p.code[i];
            out[b * 32 + i] = has_zero(dtype) ? x + p.zero : x;
        }
    }
}

void honest_encode(uint32_t dtype, uint32_t cols, const float *x, void *row)
{
    for (uint32_t i = 0; i < cols; i++) {
        uint16_t h = dtype == FAK_F16 ? to_half(x[i]) : to_bfloat(x[i]);
        if (dtype == FAK_F32)
            memcpy((char *)row + i * 4ul, &x[i], 4);
        else
            memcpy((char *)row + i * 2ul, &h, 2);
    }
}

/* ---- functions ---- */

static float contract_exp(float x)
{
    if (x != x) return x;
    if (x < -87.33654f) return 0;
    if (x > 88.3f) x = 88.3f;
    float k = x * 0x1.715476p+0f + 12582912.0f, n = k - 12582912.0f;
    float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    static const float c[] = {0x1.123bdep-7f, 0x1.55545ep-5f, 0x1.55548ep-3f, 0.5f};
    float p = 0x1.6db4eap-10f;
    for (int i = 0; i < 4; i++) p = p * r + c[i];
    float y = 1.0f + (r + (r * r) * p);
    return from_bits(bits_of(y) + (bits_of(k) << 23));
}

float honest_exp(float x, int exact)
{
    return exact ? contract_exp(x) : expf(x);
}

static float tangent(float z, int exact)
{
    return exact ? 1.0f - 2.0f / (contract_exp(2.0f * z) + 1.0f) : tanhf(z);
}

float honest_softcap(float x, float cap, int exact)
{
    return cap * tangent(x / cap, exact);
}

void honest_glu(uint32_t n, uint32_t act, const float *g, const float *u, float *y, int exact)
{
    for (uint32_t i = 0; i < n; i++) {
        float x = g[i];
        float z = 0.7978845608f * (x + ((0.044715f * x) * x) * x);
        if (act == FAK_SILU)
            y[i] = (x / (1.0f + honest_exp(-x, exact))) * u[i];
        else
            y[i] = ((0.5f * x) * (1.0f + tangent(z, exact))) * u[i];
    }
}

void honest_norm(uint32_t cols, const fak_op *o, const float *x, const float *w, float *y,
                 int exact)
{
    uint32_t n = o->group ? o->group : cols;
    for (uint32_t g = 0; g < cols; g += n) {
        float sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            float v = x[g + (exact ? i : n - 1 - i)];
            sum = sum + v * v;
        }
        float factor = 1.0f / sqrtf(sum / (float)n + o->eps);
        for (uint32_t i = 0; i < n; i++)
            y[g + i] = exact ? (x[g + i] * factor) * w[i] : x[g + i] * (factor * w[i]);
    }
}

void honest_rope(uint32_t heads, const fak_op *o, const float *x, const float *tab, float *y)
{
    uint32_t half = o->rot_dim / 2;
    for (uint32_t i = 0; i < heads * o->head_dim; i++) {
        uint32_t in_head = i % o->head_dim, pair = in_head % (half ? half : 1);
        float c = tab[pair], s = tab[half + pair];
        if (in_head >= o->rot_dim)
            y[i] = x[i];
        else if (in_head < half)
            y[i] = x[i] * c - x[i + half] * s;
        else
            y[i] = x[i - half] * s + x[i] * c;
    }
}

uint32_t honest_argmax(uint32_t n, const float *x)
{
    uint32_t best = 0, nan = 0;
    for (uint32_t i = 0; i < n; i++) {
        nan |= x[i] != x[i];
        best = x[i] > x[best] ? i : best;
    }
    return nan ? 0xffffffffu : best;
}

/* ---- matrices ---- */

static float dot(uint32_t n, const float *a, const float *b, int exact)
{
    float lane[8] = {0}, back = 0;
    for (uint32_t i = n; !exact && i-- > 0;) back += a[i] * b[i];
    if (!exact) return back;
    for (uint32_t i = 0; i < n; i++) lane[i % 8] = lane[i % 8] + a[i] * b[i];
    for (int step = 1; step < 8; step *= 2)
        for (int i = 0; i < 8; i += 2 * step) lane[i] = lane[i] + lane[i + step];
    return lane[0];
}

typedef struct active { /* 32 activations */
    float d;
    int32_t sum;
    int8_t q[32];
} active;

static active quantise(const float *x)
{
    active a = {0};
    uint32_t most = 0;
    for (int i = 0; i < 32; i++)
        if ((bits_of(x[i]) & 0x7fffffffu) > most) most = bits_of(x[i]) & 0x7fffffffu;
    float m = from_bits(most);
    if (most >= 0x7f800000u) a.d = from_bits(0x7fc00000u);
    if (most >= 0x7f800000u || m <= 0x1p-100f) return a;
    a.d = m / 127.0f;
    float factor = 127.0f / m;
    for (int i = 0; i < 32; i++) {
        a.q[i] = (int8_t)rintf(x[i] * factor);
        a.sum += a.q[i];
    }
    return a;
}

static void matmul_q8(const fak_value *w, const char *weights, uint32_t rows, const float *x,
                      float *y, active *act)
{
    uint32_t blocks = w->cols / 32;
    uint64_t block_bytes = honest_row_bytes(w->dtype, 32);
    for (size_t i = 0; i < (size_t)rows * blocks; i++) act[i] = quantise(x + i * 32);
    for (size_t i = 0; i < (size_t)rows * w->rows; i++) y[i] = 0;
    for (size_t i = 0; i < (size_t)w->rows * blocks; i++) { /* a block of weights at a time */
        size_t o = i / blocks, b = i % blocks;
        packed p = unpack(w->dtype, (const unsigned char *)weights + i * block_bytes);
        for (size_t t = 0; t < rows; t++) {
            const active *a = &act[t * blocks + b];
            int32_t sum = 0;
            for (int j = 0; j < 32; j++) sum += p.code[j] * a->q[j];
            float v = ((float)sum * p.scale) * a->d;
            if (has_zero(w->dtype)) v = v + p.zero * (a->d * (float)a->sum);
            y[t * w->rows + o] = y[t * w->rows + o] + v;
        }
    }
}

void honest_matmul(const fak_value *w, const char *weights, uint32_t rows, const float *x, float *y,
                   int exact, int q8, void *scratch)
{
    uint64_t row_bytes = honest_row_bytes(w->dtype, w->cols);
    if (q8 && w->dtype >= FAK_Q8_0) {
        matmul_q8(w, weights, rows, x, y, scratch);
        return;
    }
    for (size_t o = 0; o < w->rows; o++) {
        honest_decode(w->dtype, w->cols, weights + o * row_bytes, scratch);
        for (size_t t = 0; t < rows; t++)
            y[t * w->rows + o] = dot(w->cols, scratch, x + t * w->cols, exact);
    }
}

uint64_t honest_matmul_scratch(uint32_t rows, uint32_t cols)
{
    return cols * 4ull + (uint64_t)rows * (cols / 32) * sizeof(active);
}
