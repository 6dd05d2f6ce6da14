/* dtype_encode - see dtype.h: quantisers.  Of blocks of 32 they are llama.cpp's reference ones, to the bit.
 *
 * Of K blocks llama.cpp's search for the scales that lose least; here the extremes alone give them, which
 * is deterministic, loses a little more and makes blocks that anyone reads alike.  Per run j of a block:
 *
 *   Q4_K, Q5_K  low = min(0, least x), high = greatest x: sc[j] ~ (high - low)/15 or /31, mn[j] ~ -low
 *   Q6_K        the x of the greatest magnitude: sc[j] ~ x/-32
 *
 * d (dmin likewise) makes the greatest of them 63, or -128 in Q6_K, and is rounded to f16 first; then sc
 * and mn are the nearest whole numbers, and the codes the nearest to x in those stored scales. */
#include "dtype.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { K_BLOCK = 256 };

/* ---- numbers ---- */

/* Returns what is stored. */
static float store_f16(uint8_t *p, float x)
{
    uint16_t h = dtype_to_f16(x);
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
    return dtype_from_f16(h);
}

/* 1/d, or 0 where that is no number to multiply by. */
static float inverse_of(float d)
{
    float inverse = d != 0 ? 1 / d : 0;
    return inverse >= -FLT_MAX && inverse <= FLT_MAX ? inverse : 0;
}

/* d, or NaN where one of the n is no finite number, so that it is not hidden. */
static float scale_of(uint32_t n, const float *x, float d)
{
    float sum = 0;
    for (uint32_t k = 0; k < n; k++) sum += x[k] * 0;
    return sum == 0 ? d : sum;
}

static int8_t byte_of(float x, float least, float most) /* the nearest; 0 for a NaN */
{
    float q = roundf(x);
    q = q < least ? least : q > most ? most : q;
    return (int8_t)(q == q ? q : 0);
}

static uint8_t code_of(float x, float most) /* cut to 0..most; 0 for a NaN */
{
    return (uint8_t)(x >= most ? most : x > 0 ? x : 0);
}

/* The first x of the greatest magnitude; 0 for none. */
static float extreme_of(uint32_t n, const float *x)
{
    float most = 0, extreme = 0;
    for (uint32_t i = 0; i < n; i++)
        if (fabsf(x[i]) > most) {
            most = fabsf(x[i]);
            extreme = x[i];
        }
    return extreme;
}

/* ---- blocks of 32 ---- */

static void encode_q8_0(const float *x, uint8_t *block)
{
    float d = scale_of(32, x, fabsf(extreme_of(32, x)) / 127), inverse = inverse_of(d);
    store_f16(block, d);
    for (int i = 0; i < 32; i++) block[2 + i] = (uint8_t)byte_of(x[i] * inverse, -127, 127);
}

/* 32 codes of 4 bits at q; of 5 with the last bits at h, where it is not NULL. */
static void put_codes(const uint8_t *code, uint8_t *h, uint8_t *q)
{
    for (int i = 0; i < 16; i++) q[i] = (uint8_t)((code[i] & 15) | (code[16 + i] & 15) << 4);
    for (int k = 0; h && k < 4; k++) {
        h[k] = 0;
        for (int i = 0; i < 8; i++) h[k] = (uint8_t)(h[k] | code[8 * k + i] >> 4 << i);
    }
}

/* Q4_0 with 8 codes below zero, Q5_0 with 16. */
static void encode_scaled(const float *x, float below, uint8_t *block, uint8_t *h, uint8_t *q)
{
    float d = scale_of(32, x, extreme_of(32, x) / -below), inverse = inverse_of(d);
    uint8_t code[32];
    store_f16(block, d);
    for (int i = 0; i < 32; i++) code[i] = code_of(x[i] * inverse + (below + 0.5f), 2 * below - 1);
    put_codes(code, h, q);
}

/* Q4_1 with codes to 15, Q5_1 to 31. */
static void encode_shifted(const float *x, float top, uint8_t *block, uint8_t *h, uint8_t *q)
{
    float low = x[0], high = x[0];
    uint8_t code[32];
    for (int i = 1; i < 32; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    float d = scale_of(32, x, (high - low) / top), inverse = inverse_of(d);
    store_f16(block, d);
    store_f16(block + 2, low);
    for (int i = 0; i < 32; i++) code[i] = code_of((x[i] - low) * inverse + 0.5f, top);
    put_codes(code, h, q);
}

/* ---- K blocks ---- */

/* 6 bits each of sc[8] and mn[8] in 12 bytes: see dtype_k_scales. */
static void put_scales(const uint8_t *sc, const uint8_t *mn, uint8_t *s)
{
    for (int j = 0; j < 4; j++) {
        s[j] = (uint8_t)(sc[j] | sc[j + 4] >> 4 << 6);
        s[j + 4] = (uint8_t)(mn[j] | mn[j + 4] >> 4 << 6);
        s[j + 8] = (uint8_t)((sc[j + 4] & 15) | (mn[j + 4] & 15) << 4);
    }
}

/* Q4_K with codes to 15, Q5_K to 31; h[32]: the fifth bits, or NULL. */
static void encode_k(const float *x, float top, uint8_t *block, uint8_t *h, uint8_t *q)
{
    float scale[8], shift[8], d = 0, dmin = 0;
    uint8_t sc[8], mn[8];
    for (int j = 0; j < 8; j++) {
        float low = 0;
        for (int i = 0; i < 32; i++) low = x[32 * j + i] < low ? x[32 * j + i] : low;
        float high = low;
        for (int i = 0; i < 32; i++) high = x[32 * j + i] > high ? x[32 * j + i] : high;
        scale[j] = (high - low) / top;
        shift[j] = -low;
        d = scale[j] > d ? scale[j] : d;
        dmin = shift[j] > dmin ? shift[j] : dmin;
    }
    d = store_f16(block, scale_of(K_BLOCK, x, d / 63));
    dmin = store_f16(block + 2, dmin / 63);
    float inverse = inverse_of(d), inverse_min = inverse_of(dmin);
    for (int j = 0; j < 8; j++) {
        sc[j] = code_of(scale[j] * inverse + 0.5f, 63);
        mn[j] = code_of(shift[j] * inverse_min + 0.5f, 63);
        float step = inverse_of(d * sc[j]), zero = dmin * mn[j];
        for (int i = 0; i < 32; i++) {
            uint8_t code = code_of((x[32 * j + i] + zero) * step + 0.5f, top);
            uint8_t *at = &q[32 * (j / 2) + i];
            *at = (uint8_t)(j & 1 ? *at | (code & 15) << 4 : code & 15);
            if (h) h[i] = (uint8_t)((j ? h[i] : 0) | code >> 4 << j);
        }
    }
    put_scales(sc, mn, block + 4);
}

static void encode_q6_k(const float *x, uint8_t *block)
{
    float scale[16];
    uint8_t *low = block, *high = block + 128;
    for (int j = 0; j < 16; j++) scale[j] = extreme_of(16, x + 16 * j) / -32;
    float d = store_f16(block + 208, scale_of(K_BLOCK, x, extreme_of(16, scale) / -128));
    float inverse = inverse_of(d);
    memset(block, 0, 192);
    for (int j = 0; j < 16; j++) {
        int8_t sc = byte_of(scale[j] * inverse, -128, 127);
        float step = inverse_of(d * sc);
        block[192 + j] = (uint8_t)sc;
        for (int i = 16 * j; i < 16 * j + 16; i++) { /* weight 128*n + 32*g + l */
            int n = i / 128, g = i / 32 % 4, l = i % 32;
            uint8_t code = code_of(x[i] * step + 32.5f, 63);
            low[64 * n + 32 * (g & 1) + l] |= (uint8_t)((code & 15) << 4 * (g >> 1));
            high[32 * n + l] |= (uint8_t)(code >> 4 << 2 * g);
        }
    }
}

/* ---- rows ---- */

static void encode_block(uint32_t id, const float *x, uint8_t *block)
{
    switch (id) {
    case FAK_Q8_0:
        encode_q8_0(x, block);
        break;
    case FAK_Q4_0:
        encode_scaled(x, 8, block, NULL, block + 2);
        break;
    case FAK_Q4_1:
        encode_shifted(x, 15, block, NULL, block + 4);
        break;
    case FAK_Q5_0:
        encode_scaled(x, 16, block, block + 2, block + 6);
        break;
    case FAK_Q5_1:
        encode_shifted(x, 31, block, block + 4, block + 8);
        break;
    case FAK_Q4_K:
        encode_k(x, 15, block, NULL, block + 16);
        break;
    case FAK_Q5_K:
        encode_k(x, 31, block, block + 16, block + 48);
        break;
    case FAK_Q6_K:
        encode_q6_k(x, block);
        break;
    default:
        break;
    }
}

void dtype_encode_row(uint32_t id, uint32_t cols, const float *x, void *row)
{
    const dtype_info *info = dtype_find(id);
    uint16_t *half = row;
    uint8_t *block = row;
    switch (id) {
    case FAK_F32:
        memcpy(row, x, (size_t)cols * 4);
        return;
    case FAK_F16:
        for (uint32_t i = 0; i < cols; i++) half[i] = dtype_to_f16(x[i]);
        return;
    case FAK_BF16:
        for (uint32_t i = 0; i < cols; i++) half[i] = dtype_to_bf16(x[i]);
        return;
    default:
        for (uint32_t i = 0; i < cols; i += info->block, block += info->block_bytes)
            encode_block(id, x + i, block);
    }
}
