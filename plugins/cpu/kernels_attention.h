/* kernels_attention - ATTENTION; see kernels_tier.h. */
#ifndef KERNELS_ATTENTION_H
#define KERNELS_ATTENTION_H
#include "kernels_rows.h"

/* ---- ATTENTION ---- */

INLINE vf kv_load(uint32_t dtype, const void *base, size_t at)
{
    if (dtype == FAK_F32) return vf_load((const float *)base + at);
    const uint16_t *h = (const uint16_t *)base + at;
    return dtype == FAK_F16 ? vf_from_f16(h) : vf_from_bf16(h);
}

/* Asks for n elements that are needed soon: keys are streams too short for a processor to see. */
INLINE void kv_fetch(uint32_t dtype, const void *base, size_t at, uint32_t n)
{
    const uint32_t size = dtype == FAK_F32 ? 4 : 2;
#pragma GCC unroll 6
    for (uint32_t i = 0; i < n * size; i += 64) __builtin_prefetch((const char *)base + at * size + i);
}

/* Scores of positions [t, t + 2W), one sum over the head in order for each position and query. */
INLINE void score_two(uint32_t dtype, const attention_args *a, uint32_t t, int queries)
{
    uint32_t d = a->op->head_dim, t2 = t + W;
    size_t first = (size_t)(t / 16) * d * 16 + t % 16, second = (size_t)(t2 / 16) * d * 16 + t2 % 16;
    const vf by = vf_set(a->op->scale), cap = vf_set(a->op->softcap);
    vf s[QUERIES][2];
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++) s[i][0] = s[i][1] = vf_zero();
    for (uint32_t c = 0; c < d; c++) {
        kv_fetch(dtype, a->keys, first + (size_t)(d + c) * 2 * W, 2 * W); /* of the next positions */
        vf k0 = kv_load(dtype, a->keys, first + c * 16ul), k1 = kv_load(dtype, a->keys, second + c * 16ul);
#pragma GCC unroll 6
        for (int i = 0; i < queries; i++) {
            vf q = vf_set(a->q[i][c]);
            s[i][0] = vf_add(s[i][0], vf_mul(q, k0));
            s[i][1] = vf_add(s[i][1], vf_mul(q, k1));
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
        for (int half = 0; half < 2; half++) {
            vf x = vf_mul(s[i][half], by);
            if (a->op->softcap > 0) x = vf_mul(cap, tanh_v(vf_div(x, cap)));
            vf_store(a->scratch + (size_t)i * a->score_stride + t + (uint32_t)half * W, x);
        }
}

/* e = exp(s - m) over the visible positions of a query. */
INLINE void exponents(float *s, uint32_t from, uint32_t end)
{
    vf most = vf_set(-INFINITY);
    uint32_t t = from;
    for (; t + W <= end; t += W) most = vf_max(vf_load(s + t), most);
    float m = vf_highest(most);
    for (; t < end; t++) m = s[t] > m ? s[t] : m;
    const vf high = vf_set(m);
    for (t = from; t + W <= end; t += W) vf_store(s + t, exp_v(vf_sub(vf_load(s + t), high)));
    if (t < end) store_some(s + t, exp_v(vf_sub(load_some(s + t, end - t), high)), end - t);
}

enum { VALUES = W >= 16 ? 4 : 2 }; /* vectors of a head that are summed at once */

/* o = o + e*v for positions [from, end), of `vectors` vectors of the head from column `col` on. */
INLINE void weigh(uint32_t dtype, const attention_args *a, uint32_t from, uint32_t end,
                  uint32_t col, int vectors, int first, int queries, vf o[QUERIES][VALUES])
{
    for (uint32_t t = from; t < end; t++) {
        size_t at = (size_t)t * a->value_stride + col;
        vf v[VALUES];
#pragma GCC unroll 6
        for (int j = 0; j < vectors; j++) v[j] = kv_load(dtype, a->values, at + (uint32_t)j * W);
#pragma GCC unroll 6
        for (int i = first; i < first + queries; i++) {
            vf e = vf_set(a->scratch[(size_t)i * a->score_stride + t]);
#pragma GCC unroll 6
            for (int j = 0; j < vectors; j++) o[i][j] = vf_add(o[i][j], vf_mul(e, v[j]));
        }
    }
}

/* l = l + e in order of position, for all queries side by side: each alone would wait for its own sum. */
INLINE void sums_in_order(const attention_args *a, int queries, float l[QUERIES])
{
    uint32_t from = a->from[queries - 1], end = a->end[0];
    if (from > end) from = end;
    for (int i = 0; i < queries; i++) {
        const float *e = a->scratch + (size_t)i * a->score_stride;
        l[i] = 0;
        for (uint32_t t = a->from[i]; t < from; t++) l[i] = l[i] + e[t];
    }
    for (uint32_t t = from; t < end; t++)
#pragma GCC unroll 6
        for (int i = 0; i < queries; i++) l[i] = l[i] + a->scratch[(size_t)i * a->score_stride + t];
    for (int i = 0; i < queries; i++) {
        const float *e = a->scratch + (size_t)i * a->score_stride;
        uint32_t t = a->from[i] > end ? a->from[i] : end;
        for (; t < a->end[i]; t++) l[i] = l[i] + e[t];
    }
}

/* Vectors [col, col + vectors*W) of the head: what all queries see together in one pass, what only some
 * see alone, each in order of position. */
INLINE void attend_columns(uint32_t dtype, const attention_args *a, uint32_t col, int vectors,
                           int queries, const float inverse[QUERIES])
{
    vf o[QUERIES][VALUES];
    uint32_t d = a->op->head_dim, from = a->from[queries - 1], end = a->end[0];
    int together = queries > 1 && from < end;
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++) {
#pragma GCC unroll 6
        for (int j = 0; j < vectors; j++) o[i][j] = vf_zero();
        if (!together) weigh(dtype, a, a->from[i], a->end[i], col, vectors, i, 1, o);
        if (together) weigh(dtype, a, a->from[i], from, col, vectors, i, 1, o);
    }
    if (together) {
        weigh(dtype, a, from, end, col, vectors, 0, queries, o);
#pragma GCC unroll 6
        for (int i = 0; i < queries; i++) weigh(dtype, a, end, a->end[i], col, vectors, i, 1, o);
    }
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 6
        for (int j = 0; j < vectors; j++) {
            uint32_t c = col + (uint32_t)j * W, n = d > c ? d - c : 0;
            vf y = vf_mul(o[i][j], vf_set(inverse[i]));
            if (n >= W)
                vf_store(a->y[i] + c, y);
            else if (n)
                store_some(a->y[i] + c, y, n);
        }
}

INLINE void attend(uint32_t dtype, const attention_args *a, int queries)
{
    float inverse[QUERIES];
    uint32_t d = a->op->head_dim, c = 0;
    for (uint32_t t = a->from[0] / (2 * W) * (2 * W); t < a->end[queries - 1]; t += 2 * W)
        score_two(dtype, a, t, queries);
    for (int i = 0; i < queries; i++)
        exponents(a->scratch + (size_t)i * a->score_stride, a->from[i], a->end[i]);
    sums_in_order(a, queries, inverse);
    for (int i = 0; i < queries; i++) inverse[i] = 1.0f / inverse[i];
    for (; c + VALUES * W <= a->value_stride && c < d; c += VALUES * W)
        attend_columns(dtype, a, c, VALUES, queries, inverse);
    for (; c < d; c += W) attend_columns(dtype, a, c, 1, queries, inverse);
}

INLINE void attention(uint32_t dtype, const attention_args *a)
{
    switch (a->queries) {
    case 1: attend(dtype, a, 1); return;
    case 2: attend(dtype, a, 2); return;
    case 3: attend(dtype, a, 3); return;
    case 4: attend(dtype, a, 4); return;
    case 5: attend(dtype, a, 5); return;
    default: attend(dtype, a, 6);
    }
}
static void attention_f32(const attention_args *a) { attention(FAK_F32, a); }
static void attention_f16(const attention_args *a) { attention(FAK_F16, a); }
static void attention_bf16(const attention_args *a) { attention(FAK_BF16, a); }
#endif
