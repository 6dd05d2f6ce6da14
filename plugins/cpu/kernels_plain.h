/* kernels_plain - MATMUL by plain weights; see kernels_tier.h. */
#ifndef KERNELS_PLAIN_H
#define KERNELS_PLAIN_H
#include "kernels.h"

/* ---- MATMUL by plain weights: eight sums, then ((0+1)+(2+3))+((4+5)+(6+7)) ---- */

INLINE vp plain_load(uint32_t dtype, const uint8_t *w)
{
    const void *at = w;
    if (dtype == FAK_F32) return vp_load(at);
    return dtype == FAK_F16 ? vp_from_f16(at) : vp_from_bf16(at);
}

/* Outputs of rows [first, first + n) of a token. */
INLINE void plain_put(const matmul_args *a, uint32_t first, uint32_t n, uint32_t token, const float *y)
{
    size_t at = (size_t)token * a->stride + first;
    if (token >= a->tokens || first >= a->rows) return;
    if (n > a->rows - first) n = a->rows - first;
    for (uint32_t i = 0; i < n; i++) a->y[at + i] = a->add ? a->add[at + i] + y[i] : y[i];
}

/* A tile: so many vectors of PAIR rows by so many tokens of a panel. */
INLINE void plain_tile(uint32_t dtype, const matmul_args *a, uint32_t first, int vectors,
                       uint32_t token, int tokens, uint32_t panel)
{
    enum { VECTORS = 8, TOKENS = TILE_MAX };
    const uint32_t size = dtype == FAK_F32 ? 4 : 2;
    const uint8_t *w = a->w + first * 8 * size, *next = w + a->cols * GROUP * size;
    const float *x = (const float *)a->x + token * PAIR * 8;
    vp s[TOKENS * VECTORS], v[VECTORS];
    float y[TOKENS * VECTORS * PAIR];
#pragma GCC unroll 24
    for (int i = 0; i < tokens * vectors; i++) s[i] = vp_zero();
#pragma GCC unroll 1
    for (uint32_t i = 0; i < a->cols; i += 8, w += GROUP * 8 * size, x += panel * PAIR * 8) {
        if (panel == 4 || panel == 8)
#pragma GCC unroll 8
            for (uint32_t at = 0; at < (uint32_t)vectors * PAIR * 8 * size; at += 64)
                __builtin_prefetch(next + at, 0, 2);
        next += GROUP * 8 * size;
#pragma GCC unroll 8
        for (int r = 0; r < vectors; r++) v[r] = plain_load(dtype, w + (uint32_t)r * PAIR * 8 * size);
#pragma GCC unroll 12
        for (int c = 0; c < tokens; c++) {
            vp z = vp_load(x + c * PAIR * 8);
#pragma GCC unroll 8
            for (int r = 0; r < vectors; r++)
                s[c * vectors + r] = vp_muladd(s[c * vectors + r], v[r], z);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < tokens * vectors; i += 4) vp_trees(s + i, y + i * PAIR);
    for (int c = 0; c < tokens; c++)
        plain_put(a, first, (uint32_t)vectors * PAIR, token + (uint32_t)c, y + c * vectors * PAIR);
}

/* Tiles that fill the registers, and load as little as they can: what turns 16 bits into floats is shared
 * by more tokens. */
INLINE void matmul_plain(uint32_t dtype, const matmul_args *a, uint32_t panel)
{
    const int most = WIDE && dtype == FAK_F32 ? 4 : 2, vectors = panel == 1 ? ALONE : most;
    const uint32_t tokens = panel == 12 && dtype == FAK_F32 ? 6 : panel;
    for (uint32_t first = 0; first < GROUP; first += (uint32_t)vectors * PAIR)
        for (uint32_t token = 0; token < panel; token += tokens)
            plain_tile(dtype, a, first, vectors, token, (int)tokens, panel);
}

INLINE void widen_values(uint32_t dtype, uint32_t n, const uint8_t *from, float *to)
{
    for (uint32_t i = 0; i < n; i += PAIR * 8) vp_store(to + i, plain_load(dtype, from + i * 2));
}

static void widen_f16(uint32_t n, const uint8_t *from, float *to)
{
    widen_values(FAK_F16, n, from, to);
}

static void widen_bf16(uint32_t n, const uint8_t *from, float *to)
{
    widen_values(FAK_BF16, n, from, to);
}
#endif
