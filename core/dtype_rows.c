/* dtype_rows - see dtype.h: small floats, and rows taken apart.  Block layouts are llama.cpp's, as
 * abi/README.md has them under "Loading":
 *
 *   Q8_0 {f16 d; i8 q[32]}            Q4_0 {f16 d; u8 q[16]}           Q4_1 {f16 d, m; u8 q[16]}
 *   Q5_0 {f16 d; u32 h; u8 q[16]}     Q5_1 {f16 d, m; u32 h; u8 q[16]}
 *   Q4_K {f16 d, dmin; u8 s[12], q[128]}        Q5_K {f16 d, dmin; u8 s[12], h[32], q[128]}
 *   Q6_K {u8 ql[128], qh[64]; i8 sc[16]; f16 d}
 *
 * In a block of 32 the low nibble of q[i] is weight i, the high one weight i + 16, and bit i of h the
 * fifth bit of weight i. */
#include "dtype.h"

#include <assert.h>
#include <string.h>

enum { K_BLOCK = 256 };

/* ---- small floats ---- */

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

float dtype_from_f16(uint16_t h)
{
    uint32_t magnitude = h & 0x7fffu, sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t finite = bits_of(float_of(magnitude << 13) * 0x1p112f); /* exact, subnormals too */
    uint32_t special = 0x7f800000u | magnitude << 13 | (magnitude > 0x7c00u ? 0x400000u : 0);
    return float_of(sign | (magnitude >= 0x7c00u ? special : finite));
}

uint16_t dtype_to_f16(float x)
{
    uint32_t u = bits_of(x), sign = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (u >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 rounds to infinity */
    if (u < 0x38800000u) /* a subnormal: an addition whose last place is 2^-24 rounds it */
        return (uint16_t)(sign | (bits_of(float_of(u) + 0.5f) - 0x3f000000u));
    u += 0xfffu + (u >> 13 & 1);
    return (uint16_t)(sign | (u - 0x38000000u) >> 13);
}

float dtype_from_bf16(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

uint16_t dtype_to_bf16(float x)
{
    uint32_t u = bits_of(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static float load_f16(const uint8_t *p)
{
    return dtype_from_f16((uint16_t)(p[0] | p[1] << 8));
}

/* ---- codes ---- */

/* 16 bytes of nibbles; below: what code 0 is less than 0. */
static void nibbles(const uint8_t *at, int below, int8_t *restrict q)
{
    uint8_t byte[16]; /* a copy, so that the compiler knows that q is elsewhere */
    memcpy(byte, at, 16);
    for (int i = 0; i < 16; i++) q[i] = (int8_t)((byte[i] & 15) - below);
    for (int i = 0; i < 16; i++) q[16 + i] = (int8_t)((byte[i] >> 4) - below);
}

static void add_fifth_bits(const uint8_t *at, int8_t *q)
{
    uint32_t h = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                 (uint32_t)at[3] << 24;
    for (int i = 0; i < 32; i++) q[i] = (int8_t)(q[i] + (int)(h >> i & 1) * 16);
}

/* Of a block of 32. */
static void codes_32(uint32_t id, const uint8_t *block, int8_t *q)
{
    if (id == FAK_Q8_0) {
        memcpy(q, block + 2, 32);
    } else if (id < FAK_Q5_0) {
        nibbles(block + (id == FAK_Q4_1 ? 4 : 2), id == FAK_Q4_0 ? 8 : 0, q);
    } else {
        nibbles(block + (id == FAK_Q5_1 ? 8 : 6), id == FAK_Q5_0 ? 16 : 0, q);
        add_fifth_bits(block + (id == FAK_Q5_1 ? 4 : 2), q);
    }
}

/* Q4_K and Q5_K: 32 bytes have the codes of two runs of 32; h: the fifth bits, or NULL. */
static void q4_k_codes(const uint8_t *q, const uint8_t *h, int8_t *restrict out)
{
    for (int j = 0; j < K_BLOCK / 32; j++)
        for (int i = 0; i < 32; i++) {
            int nibble = q[32 * (j / 2) + i] >> 4 * (j & 1) & 15;
            out[32 * j + i] = (int8_t)(nibble + (h ? (h[i] >> j & 1) * 16 : 0));
        }
}

/* 128 weights have 64 bytes of low nibbles and 32 of high pairs, a pair for each 32 of them. */
static void q6_k_codes(const uint8_t *low, const uint8_t *high, int8_t *restrict out)
{
    for (int n = 0; n < 2; n++)
        for (int g = 0; g < 4; g++)
            for (int i = 0; i < 32; i++) {
                int nibble = low[64 * n + 32 * (g & 1) + i] >> 4 * (g >> 1) & 15;
                int pair = high[32 * n + i] >> 2 * g & 3;
                out[128 * n + 32 * g + i] = (int8_t)(nibble + 16 * pair - 32);
            }
}

/* Of a K block. */
static void codes_k(uint32_t id, const uint8_t *block, int8_t *q)
{
    if (id == FAK_Q4_K) q4_k_codes(block + 16, NULL, q);
    if (id == FAK_Q5_K) q4_k_codes(block + 48, block + 16, q);
    if (id == FAK_Q6_K) q6_k_codes(block, block + 128, q);
}

/* ---- scales ---- */

void dtype_k_scales(uint32_t id, const void *block, dtype_k *out)
{
    const uint8_t *b = block, *s = b + 4;
    *out = (dtype_k){0};
    if (id == FAK_Q6_K) {
        out->d = load_f16(b + 208);
        memcpy(out->sc, b + 192, 16);
        return;
    }
    out->d = load_f16(b);
    out->dmin = load_f16(b + 2);
    for (int j = 0; j < 4; j++) { /* 6 bits each: of the last four the upper 2 stand in the first */
        out->sc[j] = (int8_t)(s[j] & 63);
        out->mn[j] = (int8_t)(s[j + 4] & 63);
        out->sc[j + 4] = (int8_t)((s[j + 8] & 15) | (s[j] >> 6) << 4);
        out->mn[j + 4] = (int8_t)((s[j + 8] >> 4) | (s[j + 4] >> 6) << 4);
    }
}

/* What a K block's codes are multiplied with, and what is added: a float for each scale_cols.  a - b is
 * a + -b, to the bit. */
static void k_numbers(const dtype_info *info, uint32_t form, const uint8_t *block, float *out)
{
    dtype_k k;
    dtype_k_scales(info->id, block, &k);
    for (uint32_t j = 0; j < K_BLOCK / info->scale_cols; j++)
        out[j] = form == FAK_SCALES ? k.d * (float)k.sc[j] : -(k.dmin * (float)k.mn[j]);
}

/* ---- rows ---- */

static void decode_32(uint32_t id, const uint8_t *block, int shifted, float *out)
{
    int8_t q[32];
    float d = load_f16(block);
    codes_32(id, block, q);
    for (int i = 0; i < 32; i++) out[i] = d * (float)q[i];
    if (!shifted) return;
    float m = load_f16(block + 2);
    for (int i = 0; i < 32; i++) out[i] = out[i] + m;
}

static void decode_k(const dtype_info *info, const uint8_t *block, float *out)
{
    int8_t q[K_BLOCK];
    float scale[16], zero[16];
    uint32_t n = info->scale_cols, shifted = info->form_mask >> FAK_ZEROS & 1;
    codes_k(info->id, block, q);
    k_numbers(info, FAK_SCALES, block, scale);
    if (shifted) k_numbers(info, FAK_ZEROS, block, zero);
    for (uint32_t i = 0; i < K_BLOCK; i++) out[i] = scale[i / n] * (float)q[i];
    for (uint32_t i = 0; shifted && i < K_BLOCK; i++) out[i] = out[i] + zero[i / n];
}

static void decode_blocks(const dtype_info *info, uint32_t cols, const uint8_t *block, float *out)
{
    uint32_t id = info->id, step = info->block_bytes; /* nothing that a store could change */
    int shifted = info->form_mask >> FAK_ZEROS & 1;
    if (info->block == 32)
        for (uint32_t i = 0; i < cols; i += 32, block += step)
            decode_32(id, block, shifted, out + i);
    else
        for (uint32_t i = 0; i < cols; i += K_BLOCK, block += step) decode_k(info, block, out + i);
}

void dtype_decode_row(uint32_t id, uint32_t cols, const void *row, float *out)
{
    const uint16_t *half = row;
    switch (id) {
    case FAK_F32:
        memcpy(out, row, (size_t)cols * 4);
        return;
    case FAK_F16:
        for (uint32_t i = 0; i < cols; i++) out[i] = dtype_from_f16(half[i]);
        return;
    case FAK_BF16:
        for (uint32_t i = 0; i < cols; i++) out[i] = dtype_from_bf16(half[i]);
        return;
    default:
        decode_blocks(dtype_find(id), cols, row, out);
    }
}

static void serve_codes(const dtype_info *info, uint32_t cols, const uint8_t *block, int8_t *out)
{
    uint32_t id = info->id, step = info->block_bytes;
    if (info->block == 32)
        for (uint32_t i = 0; i < cols; i += 32, block += step) codes_32(id, block, out + i);
    else
        for (uint32_t i = 0; i < cols; i += K_BLOCK, block += step) codes_k(id, block, out + i);
}

static void serve_numbers(const dtype_info *info, uint32_t form, uint32_t cols,
                          const uint8_t *block, float *out)
{
    uint32_t step = info->block_bytes;
    if (info->block == 32)
        for (uint32_t i = 0; i < cols; i += 32, block += step)
            *out++ = load_f16(block + (form == FAK_ZEROS ? 2 : 0));
    else
        for (uint32_t i = 0; i < cols; i += K_BLOCK, block += step)
            k_numbers(info, form, block, out + i / info->scale_cols);
}

void dtype_serve_row(uint32_t id, uint32_t form, uint32_t cols, const void *row, void *out)
{
    assert(dtype_form_bytes(id, form, cols));
    if (form == FAK_NATIVE)
        memcpy(out, row, (size_t)dtype_row_bytes(id, cols));
    else if (form == FAK_AS_F32)
        dtype_decode_row(id, cols, row, out);
    else if (form == FAK_CODES)
        serve_codes(dtype_find(id), cols, row, out);
    else
        serve_numbers(dtype_find(id), form, cols, row, out);
}
