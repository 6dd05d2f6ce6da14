/* kernels_blocks - panels, and MATMUL by block weights; see kernels_tier.h. */
#ifndef KERNELS_BLOCKS_H
#define KERNELS_BLOCKS_H
#include "kernels_rows.h"
#include "layout.h"

/* ---- panels ---- */

typedef struct panel_block { /* where a block's parts lie, for so many tokens */
    int32_t *sum, *half;
    float *d, *t;
    int8_t *q;
} panel_block;

INLINE panel_block block_at(void *panel, uint32_t tokens, size_t b)
{
    int32_t *at = (int32_t *)panel + b * tokens * (PANEL_BLOCK_BYTES / 4);
    return (panel_block){at, at + tokens, (float *)(at + 2 * tokens), (float *)(at + 3 * tokens),
                         (int8_t *)(at + 4 * tokens)};
}

/* 32 floats: d = m/127, q = rint(x*(127/m)); tiny blocks are zero, what is no number makes d a NaN. */
INLINE void quantise_block(const float *x, int8_t q[BLOCK], float *d, int32_t *sum, int32_t *half)
{
    enum { N = BLOCK / W };
    const vi magnitude = vi_set(0x7fffffff);
    vi most = vi_set(0), low = vi_set(0), high = vi_set(0);
    for (int i = 0; i < N; i++) most = vi_max(most, vi_and(vi_cast(vf_load(x + i * W)), magnitude));
    int32_t bits = vi_highest(most);
    float m;
    memcpy(&m, &bits, sizeof m);
    *sum = *half = 0;
    *d = 0;
    memset(q, 0, BLOCK);
    if (bits >= 0x7f800000) *d = NAN;
    if (bits >= 0x7f800000 || !(m > 0x1p-100f)) return;
    *d = m / 127.0f;
    const vf inverse = vf_set(127.0f / m);
    for (int i = 0; i < N; i++) {
        vi v = vi_from_float(vf_mul(vf_load(x + i * W), inverse));
        vi_store_bytes(q + i * W, v);
        if (i < N / 2)
            low = vi_add(low, v);
        else
            high = vi_add(high, v);
    }
    *half = vi_sum(low);
    *sum = *half + vi_sum(high);
}

static void quantise(const panel_args *a)
{
    uint32_t tokens = a->tokens;
    for (uint32_t b = 0; b < a->cols / BLOCK; b++) {
        panel_block p = block_at(a->panel, tokens, b);
        for (uint32_t c = 0; c < tokens; c++) {
            int8_t q[BLOCK] = {0};
            p.d[c] = 0;
            p.sum[c] = p.half[c] = 0;
            if (c < a->rows)
                quantise_block(a->x + c * a->stride + (size_t)b * BLOCK, q, &p.d[c], &p.sum[c],
                               &p.half[c]);
            p.t[c] = p.d[c] * (float)p.sum[c];
            for (int k = 0; k < 8; k++) memcpy(p.q + ((size_t)k * tokens + c) * 4, q + 4 * k, 4);
        }
    }
}

static void pack(const panel_args *a)
{
    float *to = a->panel;
    for (uint32_t i = 0; i < a->cols; i += 8)
        for (uint32_t c = 0; c < a->tokens; c++) {
            uint32_t n = a->cols - i < 8 ? a->cols - i : 8;
            float eight[8] = {0};
            if (c < a->rows) memcpy(eight, a->x + c * a->stride + i, n * sizeof *eight);
            for (int same = 0; same < PAIR; same++, to += 8) memcpy(to, eight, sizeof eight);
        }
}

/* ---- MATMUL by block weights, Q8 activations ---- */

/* W rows s*W.. of a group, columns 4k..4k+3 of 32-column block j: 4 bytes a row. */
INLINE vi codes(const layout *l, const uint8_t *g, int j, int k, int s)
{
    const int at = s * W * 4, line = 64;
    if (l->dtype == FAK_Q8_0) return vi_load(g + k * line + at);
    vi four = vi_load(g + j * 256 + k % 4 * line + at);
    if (k >= 4) four = vi_shift_right(four, 4);
    four = vi_and(four, vi_set(0x0f0f0f0f));
    for (uint32_t plane = 0; plane < l->bits; plane++)
        four = vi_or(four, vi_spread_bits(g + l->planes + ((uint32_t)j * l->bits + plane) * 64 +
                                              8 * k + s * W / 2,
                                          16 << plane));
    return four;
}

INLINE vi broadcast4(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, 4);
    return vi_set(four);
}

/* The sums of one block for `tokens` tokens: columns 0..15 in low, 16..31 in high (Q6_K), else all in low. */
INLINE void sums(const layout *l, const uint8_t *g, int j, int s, const panel_block *p,
                 int tokens, vi *low, vi *high)
{
    const int halves = l->dtype == FAK_Q6_K;
    const int32_t bias = l->dtype == FAK_Q8_0 ? BYTES_BIAS : l->offset;
#pragma GCC unroll 12
    for (int c = 0; c < tokens; c++) {
        low[c] = vi_set(-bias * (halves ? p->half[c] : p->sum[c]));
        if (halves) high[c] = vi_set(-bias * (p->sum[c] - p->half[c]));
    }
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        vi w = codes(l, g, j, k, s);
#pragma GCC unroll 12
        for (int c = 0; c < tokens; c++) {
            vi x = broadcast4(p->q + (k * tokens + c) * 4);
            vi *sum = halves && k >= 4 ? &high[c] : &low[c];
            *sum = l->dtype == FAK_Q8_0 ? vi_dot_bytes(*sum, w, x) : vi_dot_codes(*sum, w, x);
        }
    }
}

/* Scale and minimum of block j of a K format: 6 bits each. */
INLINE void sub_scales(const uint8_t *sub, int j, vi *sc, vi *mn)
{
    const vi low6 = vi_set(63), low4 = vi_set(15);
    if (j < 4) {
        *sc = vi_and(vi_from_ubytes(sub + 16 * j), low6);
        *mn = vi_and(vi_from_ubytes(sub + 16 * (j + 4)), low6);
        return;
    }
    vi both = vi_from_ubytes(sub + 16 * (j + 4));
    vi high = vi_shift_right(vi_from_ubytes(sub + 16 * (j - 4)), 6);
    vi high_mn = vi_shift_right(vi_from_ubytes(sub + 16 * j), 6);
    *sc = vi_or(vi_and(both, low4), vi_shift_left(high, 4));
    *mn = vi_or(vi_shift_right(both, 4), vi_shift_left(high_mn, 4));
}

INLINE vf half_floats(const uint8_t *p)
{
    return vf_from_f16((const uint16_t *)(const void *)p);
}

/* acc[c] = acc[c] + what one block is worth. */
INLINE void add_block(const layout *l, const uint8_t *g, int j, int s, const panel_block *p,
                      int tokens, vf *acc)
{
    vi low[TILE_MAX], high[TILE_MAX], sc, mn;
    const uint8_t *sub = g + l->sub + s * W;
    sums(l, g, j, s, p, tokens, low, high);
    vf dw = half_floats(g + l->scale + s * W * 2), mw = dw;
    if (l->zero) mw = half_floats(g + l->zero + s * W * 2);
    if (l->sub && l->zero) sub_scales(sub, j, &sc, &mn);
#pragma GCC unroll 12
    for (int c = 0; c < tokens; c++) {
        vf dx = vf_set(p->d[c]), v;
        if (l->sub && l->zero) { /* (((float)(sc*isum)*d)*dx) - (((float)(mn*sx)*dmin)*dx) */
            v = vf_mul(vf_mul(vf_from_int(vi_mul(sc, low[c])), dw), dx);
            vf m = vf_mul(vf_mul(vf_from_int(vi_mul(mn, vi_set(p->sum[c]))), mw), dx);
            v = vf_sub(v, m);
        } else if (l->sub) { /* ((float)(sc0*i0 + sc1*i1)*d)*dx */
            vi a = vi_mul(vi_from_bytes((const int8_t *)sub + 16 * (2 * j)), low[c]);
            vi b = vi_mul(vi_from_bytes((const int8_t *)sub + 16 * (2 * j + 1)), high[c]);
            v = vf_mul(vf_mul(vf_from_int(vi_add(a, b)), dw), dx);
        } else { /* (((float)isum*dw)*dx) [+ (mw*(dx*(float)sx))] */
            v = vf_mul(vf_mul(vf_from_int(low[c]), dw), dx);
            if (l->zero) v = vf_add(v, vf_mul(mw, vf_set(p->t[c])));
        }
        acc[c] = vf_add(acc[c], v);
    }
}

/* What is left of W outputs of a token: rows that are there, added to what is there. */
INLINE void put(const matmul_args *a, int s, int c, vf v)
{
    uint32_t first = (uint32_t)(s * W), n = a->rows > first ? a->rows - first : 0;
    size_t at = (size_t)c * a->stride + first;
    if ((uint32_t)c >= a->tokens) return;
    if (n >= W) {
        vf_store(a->y + at, a->add ? vf_add(vf_load(a->add + at), v) : v);
    } else if (n) {
        if (a->add) v = vf_add(load_some(a->add + at, n), v);
        store_some(a->y + at, v, n);
    }
}

INLINE void matmul_blocks(const layout *l, const matmul_args *a, int tokens)
{
    const size_t group_block = (size_t)GROUP * l->row_bytes;
    const int inner = (int)(l->cols / BLOCK);
#pragma GCC unroll 1
    for (int s = 0; s < GROUP / W; s++) {
        vf acc[TILE_MAX];
        const uint8_t *g = a->w;
#pragma GCC unroll 12
        for (int c = 0; c < tokens; c++) acc[c] = vf_zero();
        for (uint32_t b = 0; b < a->cols / BLOCK; g += group_block)
#pragma GCC unroll 1
            for (int j = 0; j < inner; j++, b++) {
                panel_block p = block_at((void *)(uintptr_t)a->x, (uint32_t)tokens, b);
                add_block(l, g, j, s, &p, tokens, acc);
            }
#pragma GCC unroll 12
        for (int c = 0; c < tokens; c++) put(a, s, c, acc[c]);
    }
}
#endif
