/* dtype_rows - see dtype.h: rows taken apart.  Block layouts are llama.cpp's (abi/README.md, "Loading"):
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

static float load_f16(const uint8_t *p)
{
    return dtype_from_f16((uint16_t)(p[0] | p[1] << 8));
}

/* ---- codes ---- */

/* Of a block of 32 but Q8_0; least: what code 0 means. */
static void nibble_codes(const uint8_t *at, int least, int8_t *restrict q)
{
    uint8_t nibbles[16]; /* a copy, so that the compiler knows that q is elsewhere */
    memcpy(nibbles, at, 16);
    for (int i = 0; i < 16; i++) q[i] = (int8_t)((nibbles[i] & 15) + least);
    for (int i = 0; i < 16; i++) q[16 + i] = (int8_t)((nibbles[i] >> 4) + least);
}

static void add_fifth_bits(const uint8_t *at, int8_t *q)
{
    uint32_t h = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                 (uint32_t)at[3] << 24;
    for (int i = 0; i < 32; i++) q[i] = (int8_t)(q[i] + (int)(h >> i & 1) * 16);
}

/* Q4_K and Q5_K: 32 bytes have the codes of two runs of 32; h: the fifth bits, or NULL. */
static void k_codes(const uint8_t *q, const uint8_t *h, int8_t *restrict out)
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

/* All codes of one block. */
static void codes(uint32_t id, const uint8_t *block, int8_t *q)
{
    switch (id) {
    case FAK_Q8_0:
        memcpy(q, block + 2, 32);
        break;
    case FAK_Q4_0:
        nibble_codes(block + 2, -8, q);
        break;
    case FAK_Q4_1:
        nibble_codes(block + 4, 0, q);
        break;
    case FAK_Q5_0:
        nibble_codes(block + 6, -16, q);
        add_fifth_bits(block + 2, q);
        break;
    case FAK_Q5_1:
        nibble_codes(block + 8, 0, q);
        add_fifth_bits(block + 4, q);
        break;
    case FAK_Q4_K:
        k_codes(block + 16, NULL, q);
        break;
    case FAK_Q5_K:
        k_codes(block + 48, block + 16, q);
        break;
    default:
        assert(id == FAK_Q6_K);
        q6_k_codes(block, block + 128, q);
    }
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

/* A float for each scale_cols of a block. */
static void scales(const dtype_info *info, const uint8_t *block, float *out)
{
    dtype_k k;
    if (info->block < K_BLOCK) {
        *out = load_f16(block);
        return;
    }
    dtype_k_scales(info->id, block, &k);
    for (uint32_t j = 0; j < K_BLOCK / info->scale_cols; j++) out[j] = k.d * (float)k.sc[j];
}

/* Likewise what is added; a - b is a + -b, to the bit. */
static void zeros(const dtype_info *info, const uint8_t *block, float *out)
{
    dtype_k k;
    if (info->block < K_BLOCK) {
        *out = load_f16(block + 2);
        return;
    }
    dtype_k_scales(info->id, block, &k);
    for (uint32_t j = 0; j < K_BLOCK / info->scale_cols; j++) out[j] = -(k.dmin * (float)k.mn[j]);
}

/* ---- rows ---- */

static void decode_block(const dtype_info *info, const uint8_t *block, float *out)
{
    int8_t q[K_BLOCK];
    float scale[16], zero[16];
    uint32_t n = info->scale_cols, shifted = info->form_mask >> FAK_ZEROS & 1;
    codes(info->id, block, q);
    scales(info, block, scale);
    if (shifted) zeros(info, block, zero);
    for (uint32_t j = 0; j < info->block / n; j++) {
        for (uint32_t i = 0; i < n; i++) out[j * n + i] = scale[j] * (float)q[j * n + i];
        for (uint32_t i = 0; shifted && i < n; i++) out[j * n + i] = out[j * n + i] + zero[j];
    }
}

void dtype_decode_row(uint32_t id, uint32_t cols, const void *row, float *out)
{
    const dtype_info *info = dtype_find(id);
    const uint16_t *half = row;
    const uint8_t *block = row;
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
        for (uint32_t i = 0; i < cols; i += info->block, block += info->block_bytes)
            decode_block(info, block, out + i);
    }
}

void dtype_serve_row(uint32_t id, uint32_t form, uint32_t cols, const void *row, void *out)
{
    const dtype_info *info = dtype_find(id);
    assert(dtype_form_bytes(id, form, cols));
    if (form == FAK_NATIVE) memcpy(out, row, (size_t)dtype_row_bytes(id, cols));
    if (form == FAK_AS_F32) dtype_decode_row(id, cols, row, out);
    if (form < FAK_CODES) return;
    const uint8_t *block = row;
    for (uint32_t i = 0; i < cols; i += info->block, block += info->block_bytes) {
        float *number = (float *)out + i / info->scale_cols;
        if (form == FAK_CODES) codes(id, block, (int8_t *)out + i);
        if (form == FAK_SCALES) scales(info, block, number);
        if (form == FAK_ZEROS) zeros(info, block, number);
    }
}
