/* dtype - see dtype.h.  Block layouts are llama.cpp's:
 * Q8_0 {f16 d; i8 q[32]}   Q4_0 {f16 d; u8 q[16]}   Q4_1 {f16 d, m; u8 q[16]}
 * where the low nibble of q[i] is weight i and the high one weight i + 16. */
#include "dtype.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

enum {
    PLAIN = 1u << FAK_NATIVE | 1u << FAK_AS_F32,
    SCALED = PLAIN | 1u << FAK_CODES | 1u << FAK_SCALES,
    SHIFTED = SCALED | 1u << FAK_ZEROS
};

/* clang-format off */
static const dtype_info table[] = {
    {FAK_F32, "f32", 1, 4, PLAIN},     {FAK_F16, "f16", 1, 2, PLAIN},
    {FAK_BF16, "bf16", 1, 2, PLAIN},   {FAK_I32, "i32", 1, 4, 1u << FAK_NATIVE},
    {FAK_Q8_0, "q8_0", 32, 34, SCALED}, {FAK_Q4_0, "q4_0", 32, 18, SCALED},
    {FAK_Q4_1, "q4_1", 32, 20, SHIFTED},
};
/* clang-format on */

const dtype_info *dtype_find(uint32_t id)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].id == id) return &table[i];
    return NULL;
}

const dtype_info *dtype_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name)) return &table[i];
    return NULL;
}

const char *dtype_name(uint32_t id)
{
    const dtype_info *info = dtype_find(id);
    return info ? info->name : "?";
}

uint64_t dtype_row_bytes(uint32_t id, uint32_t cols)
{
    const dtype_info *info = dtype_find(id);
    return info && cols % info->block == 0 ? (uint64_t)cols / info->block * info->block_bytes : 0;
}

uint64_t dtype_form_bytes(uint32_t id, uint32_t form, uint32_t cols)
{
    const dtype_info *info = dtype_find(id);
    if (!info || form > FAK_ZEROS || !(info->form_mask >> form & 1) || cols % info->block) return 0;
    if (form == FAK_NATIVE) return dtype_row_bytes(id, cols);
    if (form == FAK_AS_F32) return (uint64_t)cols * 4;
    return form == FAK_CODES ? cols : (uint64_t)cols / info->block * 4;
}

/* ---- numbers ---- */

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

static void store_f16(uint8_t *p, float x)
{
    uint16_t h = dtype_to_f16(x);
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
}

/* ---- blocks ---- */

static void codes(uint32_t id, const uint8_t *block, int8_t *restrict q)
{
    uint8_t nibbles[16]; /* a copy, so that the compiler knows that q is elsewhere */
    if (id == FAK_Q8_0) {
        memcpy(q, block + 2, 32);
        return;
    }
    memcpy(nibbles, block + (id == FAK_Q4_1 ? 4 : 2), 16);
    int shift = id == FAK_Q4_0 ? 8 : 0;
    for (int i = 0; i < 16; i++) q[i] = (int8_t)((nibbles[i] & 15) - shift);
    for (int i = 0; i < 16; i++) q[16 + i] = (int8_t)((nibbles[i] >> 4) - shift);
}

static void decode_block(uint32_t id, const uint8_t *block, float *out)
{
    int8_t q[32];
    float d = load_f16(block);
    codes(id, block, q);
    for (int i = 0; i < 32; i++) out[i] = d * (float)q[i];
    if (id != FAK_Q4_1) return;
    float m = load_f16(block + 2);
    for (int i = 0; i < 32; i++) out[i] = out[i] + m;
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
        for (uint32_t b = 0; b < cols / 32; b++)
            decode_block(id, (const uint8_t *)row + b * dtype_row_bytes(id, 32), out + b * 32);
    }
}

static void swap(uint8_t *p, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes / 2; i++) {
        uint8_t low = p[i];
        p[i] = p[bytes - 1 - i];
        p[bytes - 1 - i] = low;
    }
}

void dtype_swap_row(uint32_t id, uint32_t cols, void *row)
{
    const dtype_info *info = dtype_find(id);
    uint8_t *block = row;
    for (uint32_t b = 0; b < cols / info->block; b++, block += info->block_bytes) {
        swap(block, info->block > 1 ? 2 : info->block_bytes);
        if (id == FAK_Q4_1) swap(block + 2, 2);
    }
}

int dtype_is_foreign(uint32_t id, int file_is_big)
{
    const uint16_t one = 1;
    uint8_t low;
    memcpy(&low, &one, 1);
    int host_is_big = !low, here_is_big = dtype_find(id)->block > 1 ? 0 : host_is_big;
    return !file_is_big != !here_is_big;
}

void dtype_serve_row(uint32_t id, uint32_t form, uint32_t cols, const void *row, void *out)
{
    assert(dtype_form_bytes(id, form, cols));
    if (form == FAK_NATIVE) memcpy(out, row, (size_t)dtype_row_bytes(id, cols));
    if (form == FAK_AS_F32) dtype_decode_row(id, cols, row, out);
    if (form < FAK_CODES) return;
    const uint8_t *block = row;
    size_t step = (size_t)dtype_row_bytes(id, 32);
    for (uint32_t b = 0; b < cols / 32; b++, block += step) {
        if (form == FAK_CODES)
            codes(id, block, (int8_t *)out + b * 32);
        else
            ((float *)out)[b] = load_f16(block + (form == FAK_ZEROS ? 2 : 0));
    }
}

uint32_t dtype_bad_block(uint32_t id, uint32_t cols, const void *row, uint16_t *bits)
{
    const dtype_info *info = dtype_find(id);
    const uint8_t *block = row;
    uint32_t scales = id == FAK_Q4_1 ? 2 : 1;
    if (info->block == 1) return FAK_NO_INDEX;
    for (uint32_t b = 0; b < cols / info->block; b++, block += info->block_bytes)
        for (uint32_t i = 0; i < scales; i++) {
            *bits = (uint16_t)(block[2 * i] | block[2 * i + 1] << 8);
            if ((*bits & 0x7c00u) == 0x7c00u) return b;
        }
    return FAK_NO_INDEX;
}

/* ---- quantisers ---- */

/* 1/d, or 0 where that is no number to multiply by. */
static float inverse_of(float d)
{
    float inverse = d != 0 ? 1 / d : 0;
    return inverse >= -FLT_MAX && inverse <= FLT_MAX ? inverse : 0;
}

/* d, or NaN where one of the 32 is no finite number, so that it is not hidden. */
static float scale_of(const float *x, float d)
{
    float sum = 0;
    for (int k = 0; k < 32; k++) sum += x[k] * 0;
    return sum == 0 ? d : sum;
}

static uint8_t byte_of(float x) /* the nearest of -127..127; 0 for a NaN */
{
    float q = roundf(x);
    q = q < -127 ? -127 : q > 127 ? 127 : q;
    return (uint8_t)(int8_t)(q == q ? q : 0);
}

static uint8_t nibble_of(float x) /* cut to 0..15; 0 for a NaN */
{
    return (uint8_t)(x >= 15 ? 15 : x > 0 ? x : 0);
}

static void encode_q8_0(const float *x, uint8_t *block)
{
    float most = 0;
    for (int i = 0; i < 32; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    float d = scale_of(x, most / 127), inverse = inverse_of(d);
    store_f16(block, d);
    for (int i = 0; i < 32; i++) block[2 + i] = byte_of(x[i] * inverse);
}

static void encode_q4_0(const float *x, uint8_t *block)
{
    float most = 0, extreme = 0;
    for (int i = 0; i < 32; i++)
        if (fabsf(x[i]) > most) {
            most = fabsf(x[i]);
            extreme = x[i];
        }
    float d = scale_of(x, extreme / -8), inverse = inverse_of(d);
    store_f16(block, d);
    for (int i = 0; i < 16; i++)
        block[2 + i] = (uint8_t)(nibble_of(x[i] * inverse + 8.5f) |
                                 nibble_of(x[16 + i] * inverse + 8.5f) << 4);
}

static void encode_q4_1(const float *x, uint8_t *block)
{
    float low = x[0], high = x[0];
    for (int i = 1; i < 32; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    float d = scale_of(x, (high - low) / 15), inverse = inverse_of(d);
    store_f16(block, d);
    store_f16(block + 2, low);
    for (int i = 0; i < 16; i++)
        block[4 + i] = (uint8_t)(nibble_of((x[i] - low) * inverse + 0.5f) |
                                 nibble_of((x[16 + i] - low) * inverse + 0.5f) << 4);
}

void dtype_encode_row(uint32_t id, uint32_t cols, const float *x, void *row)
{
    uint16_t *half = row;
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
        break;
    }
    uint8_t *block = row;
    size_t step = (size_t)dtype_row_bytes(id, 32);
    for (uint32_t b = 0; b < cols / 32; b++, x += 32, block += step) {
        if (id == FAK_Q8_0) encode_q8_0(x, block);
        if (id == FAK_Q4_0) encode_q4_0(x, block);
        if (id == FAK_Q4_1) encode_q4_1(x, block);
    }
}
