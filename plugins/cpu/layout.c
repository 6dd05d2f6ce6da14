/* layout - see layout.h. */
#include "layout.h"

#include <string.h>

#define ROW(name, ...) {__VA_ARGS__},
static const layout table[] = {{.dtype = FAK_F32, .cols = 8, .row_bytes = 32},
                               {.dtype = FAK_F16, .cols = 8, .row_bytes = 16},
                               {.dtype = FAK_BF16, .cols = 8, .row_bytes = 16},
                               BLOCK_LAYOUTS(ROW)};

const layout *layout_find(uint32_t dtype)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].dtype == dtype) return &table[i];
    return NULL;
}

size_t layout_group(const layout *l, uint32_t cols)
{
    return (size_t)GROUP * ((cols + l->cols - 1) / l->cols) * l->row_bytes;
}

uint64_t layout_bytes(uint32_t dtype, uint32_t rows, uint32_t cols)
{
    const layout *l = layout_find(dtype);
    uint64_t groups = ((uint64_t)rows + GROUP - 1) / GROUP;
    return l && (cols % l->cols == 0 || plain_bytes(dtype)) ? groups * layout_group(l, cols) : 0;
}

/* ---- a row as the file has it ---- */

typedef struct row_block { /* 32 columns of a row: codes and what scales them */
    uint8_t code[BLOCK];
} row_block;

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Codes of block j of 32 columns, as unsigned numbers (Q8_0: the highest bit turned). */
static void read_codes(const layout *l, const uint8_t *src, uint32_t j, row_block *out)
{
    const uint8_t *q;
    for (uint32_t i = 0; i < BLOCK; i++) {
        uint32_t low, high = 0, g, n;
        switch (l->dtype) {
        case FAK_Q8_0:
            out->code[i] = src[2 + i] ^ 0x80;
            continue;
        case FAK_Q4_K:
        case FAK_Q5_K:
            q = src + (l->dtype == FAK_Q4_K ? 16 : 48) + 32 * (j / 2);
            low = j & 1 ? q[i] >> 4 : q[i] & 15;
            if (l->bits) high = src[16 + i] >> j & 1;
            break;
        case FAK_Q6_K:
            n = j / 4, g = j & 3;
            low = src[64 * n + 32 * (g & 1) + i];
            low = g < 2 ? low & 15 : low >> 4;
            high = src[128 + 32 * n + i] >> 2 * g & 3;
            break;
        default:
            q = src + l->row_bytes - 16;
            low = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
            if (l->bits) high = get32(q - 4) >> i & 1;
        }
        out->code[i] = (uint8_t)(low | high << 4);
    }
}

/* ---- packing ---- */

static void put_codes(const layout *l, uint32_t j, uint32_t r, const row_block *b, uint8_t *group)
{
    if (l->dtype == FAK_Q8_0) {
        for (uint32_t k = 0; k < 8; k++) memcpy(group + 64 * k + 4 * r, b->code + 4 * k, 4);
        return;
    }
    for (uint32_t k = 0; k < 4; k++)
        for (uint32_t i = 0; i < 4; i++)
            group[256 * j + 64 * k + 4 * r + i] =
                (uint8_t)((b->code[4 * k + i] & 15) | (b->code[4 * k + 16 + i] & 15) << 4);
    for (uint32_t plane = 0; plane < l->bits; plane++)
        for (uint32_t c = 0; c < BLOCK; c++) {
            uint32_t bit = 4 * r + c % 4;
            uint8_t *at = group + l->planes + (j * l->bits + plane) * 64 + 8 * (c / 4) + bit / 8;
            *at |= (uint8_t)((b->code[c] >> (4 + plane) & 1) << bit % 8);
        }
}

/* An f16 of the file's order, little-endian, in the host's. */
static void put_half(uint8_t *to, const uint8_t *from)
{
    uint16_t h = (uint16_t)(from[0] | from[1] << 8);
    memcpy(to, &h, sizeof h);
}

static void put_scales(const layout *l, uint32_t r, const uint8_t *src, uint8_t *group)
{
    put_half(group + l->scale + 2 * r, l->dtype == FAK_Q6_K ? src + 208 : src);
    if (l->zero) put_half(group + l->zero + 2 * r, src + 2);
    for (uint32_t i = 0; l->sub && i < (l->dtype == FAK_Q6_K ? 16u : 12u); i++)
        group[l->sub + 16 * i + r] = src[(l->dtype == FAK_Q6_K ? 192 : 4) + i];
}

/* The two that matter most, four bytes at a time. */
static void pack_row_fast(const layout *l, uint32_t r, const uint8_t *src, uint8_t *group)
{
    if (l->dtype == FAK_Q8_0) {
        for (uint32_t k = 0; k < 8; k++) {
            uint32_t four;
            memcpy(&four, src + 2 + 4 * k, 4);
            four ^= 0x80808080u;
            memcpy(group + 64 * k + 4 * r, &four, 4);
        }
    } else { /* low nibbles are columns 0..15, high ones 16..31: as they come */
        for (uint32_t k = 0; k < 4; k++)
            memcpy(group + 64 * k + 4 * r, src + l->row_bytes - 16 + 4 * k, 4);
    }
    put_scales(l, r, src, group);
}

static void pack_plain(const layout *l, uint32_t cols, uint32_t rows, const uint8_t *src,
                       uint8_t *group)
{
    const size_t eight = l->row_bytes, row = (size_t)cols * (eight / 8);
    for (size_t at = 0; at < row; at += eight)
        for (uint32_t r = 0; r < GROUP; r++, group += eight) {
            size_t n = row - at < eight ? row - at : eight;
            if (n == 32 && r < rows) {
                memcpy(group, src + r * row + at, 32);
            } else if (n == 16 && r < rows && eight == 16) {
                memcpy(group, src + r * row + at, 16);
            } else {
                memset(group, 0, eight);
                if (r < rows) memcpy(group, src + r * row + at, n);
            }
        }
}

void layout_pack(const layout *l, uint32_t cols, uint32_t rows, const uint8_t *src, uint8_t *group)
{
    if (plain_bytes(l->dtype)) {
        pack_plain(l, cols, rows, src, group);
        return;
    }
    uint32_t blocks = cols / l->cols, fast = l->cols == BLOCK && !l->bits;
    size_t group_block = (size_t)GROUP * l->row_bytes;
    if (!fast || rows < GROUP) memset(group, 0, blocks * group_block);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t b = 0; b < blocks; b++) {
            const uint8_t *from = src + ((size_t)r * blocks + b) * l->row_bytes;
            uint8_t *to = group + b * group_block;
            if (fast) {
                pack_row_fast(l, r, from, to);
                continue;
            }
            for (uint32_t j = 0; j < l->cols / BLOCK; j++) {
                row_block codes;
                read_codes(l, from, j, &codes);
                put_codes(l, j, r, &codes, to);
            }
            put_scales(l, r, from, to);
        }
}

/* ---- decoding ---- */

static uint32_t get_code(const layout *l, const uint8_t *block, uint32_t j, uint32_t r, uint32_t c)
{
    if (l->dtype == FAK_Q8_0) return block[64 * (c / 4) + 4 * r + c % 4];
    uint8_t byte = block[256 * j + 64 * (c % 16 / 4) + 4 * r + c % 4];
    uint32_t code = c < 16 ? byte & 15u : byte >> 4, bit = 4 * r + c % 4;
    for (uint32_t plane = 0; plane < l->bits; plane++)
        code |= (uint32_t)(block[l->planes + (j * l->bits + plane) * 64 + 8 * (c / 4) + bit / 8] >>
                               bit % 8 &
                           1)
                << (4 + plane);
    return code;
}

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return half_to_float(h);
}

/* 6-bit scale and minimum of block j of a K format, of row r. */
static void get_sub(const uint8_t *sub, uint32_t j, uint32_t r, uint32_t *sc, uint32_t *mn)
{
    const uint8_t *s = sub + r; /* s[16*i] is byte i of the row */
    if (j < 4) {
        *sc = s[16 * j] & 63u;
        *mn = s[16 * (j + 4)] & 63u;
    } else {
        *sc = (s[16 * (j + 4)] & 15u) | (uint32_t)(s[16 * (j - 4)] >> 6) << 4;
        *mn = (s[16 * (j + 4)] >> 4) | (uint32_t)(s[16 * j] >> 6) << 4;
    }
}

static void decode_block(const layout *l, const uint8_t *block, uint32_t j, uint32_t r, float *out)
{
    float d = half_at(block + l->scale + 2 * r), m = 0;
    uint32_t sc = 0, mn = 0;
    if (l->zero) m = half_at(block + l->zero + 2 * r);
    if (l->sub && l->zero) get_sub(block + l->sub, j, r, &sc, &mn);
    for (uint32_t c = 0; c < BLOCK; c++) {
        uint32_t code = get_code(l, block, j, r, c);
        float q = l->dtype == FAK_Q8_0 ? (float)(int8_t)(code ^ 0x80)
                                       : (float)((int32_t)code - l->offset);
        if (l->sub && l->zero) {
            out[c] = (d * (float)sc) * q - m * (float)mn;
        } else if (l->sub) {
            int8_t s = (int8_t)block[l->sub + 16 * (2 * j + c / 16) + r];
            out[c] = (d * (float)s) * q;
        } else {
            out[c] = l->zero ? d * q + m : d * q;
        }
    }
}

static void decode_plain(const layout *l, uint32_t cols, const uint8_t *at, float *out)
{
    for (uint32_t c = 0; c < cols; c++) {
        uint16_t half;
        if (l->dtype == FAK_F32) {
            memcpy(out + c, at + c % 8 * 4, 4);
        } else {
            memcpy(&half, at + c % 8 * 2, 2);
            out[c] = l->dtype == FAK_F16 ? half_to_float(half) : bfloat_to_float(half);
        }
        if (c % 8 == 7) at += (size_t)GROUP * l->row_bytes;
    }
}

void layout_decode(const layout *l, uint32_t cols, const uint8_t *group, uint32_t r, float *out)
{
    if (plain_bytes(l->dtype)) {
        decode_plain(l, cols, group + (size_t)r * l->row_bytes, out);
        return;
    }
    for (uint32_t b = 0; b < cols / l->cols; b++, group += (size_t)GROUP * l->row_bytes)
        for (uint32_t j = 0; j < l->cols / BLOCK; j++, out += BLOCK)
            decode_block(l, group, j, r, out);
}

/* ---- plain numbers ---- */

static float from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
    if (rest > 0x7c00u) return from_bits(sign | 0x7fc00000u | (rest & 0x3ffu) << 13);
    if (rest == 0x7c00u) return from_bits(sign | 0x7f800000u);
    if (rest >= 0x400u) return from_bits(sign | (rest + 0x1c000u) << 13);
    float x = (float)rest * 0x1p-24f;
    return sign ? -x : x;
}

uint16_t float_to_half(float x)
{
    uint32_t u = bits_of(x), sign = u >> 16 & 0x8000u, rest = u & 0x7fffffffu;
    if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
    if (rest >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above */
    if (rest < 0x38800000u) /* below 2^-14: adding 0.5 rounds to a multiple of 2^-24 */
        return (uint16_t)(sign | (bits_of(from_bits(rest) + 0.5f) - 0x3f000000u));
    rest += 0xfffu + (rest >> 13 & 1);
    return (uint16_t)(sign | (rest - 0x38000000u) >> 13);
}

float bfloat_to_float(uint16_t h)
{
    return from_bits((uint32_t)h << 16);
}

uint16_t float_to_bfloat(float x)
{
    uint32_t u = bits_of(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

uint32_t plain_bytes(uint32_t dtype)
{
    return dtype == FAK_F32 ? 4 : dtype == FAK_F16 || dtype == FAK_BF16 ? 2 : 0;
}
