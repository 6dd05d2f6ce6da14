/* kv - elements of the pages of a layer: [page][head][KV_PAGE][dim], F32, F16 or BF16. */
#ifndef KV_H
#define KV_H
#include "common.h"

enum { KV_F32 = 1, KV_F16 = 2, KV_BF16 = 3 }; /* fak_dtype */

/* Element 0 of a head at a position. */
DEV uint64_t kv_index(const kv_shape &kv, uint32_t page, uint32_t head, uint32_t pos)
{
    return static_cast<uint64_t>(page) * kv.page_elements +
           (static_cast<uint64_t>(head) * KV_PAGE + pos % KV_PAGE) * kv.dim;
}

DEV float kv_load(const kv_shape &kv, gpu_ptr base, uint64_t e)
{
    if (kv.dtype == KV_F32) return at<const float>(base)[e];
    uint16_t h = at<const uint16_t>(base)[e];
    return kv.dtype == KV_F16 ? f32_of_f16(h) : f32_of_bf16(h);
}

/* N elements, `step` apart: all loads are on their way before the first is looked at. */
template <uint32_t N>
DEV void kv_load_each(const kv_shape &kv, gpu_ptr base, uint64_t e, uint64_t step, float v[N])
{
    uint16_t h[N];
    if (kv.dtype == KV_F32) {
        UNROLL for (uint32_t k = 0; k < N; k++) v[k] = fixed<float>(base + (e + k * step) * 4);
        return;
    }
    UNROLL for (uint32_t k = 0; k < N; k++) h[k] = fixed<uint16_t>(base + (e + k * step) * 2);
    UNROLL for (uint32_t k = 0; k < N; k++)
        v[k] = kv.dtype == KV_F16 ? f32_of_f16(h[k]) : f32_of_bf16(h[k]);
}

DEV void kv_store(const kv_shape &kv, gpu_ptr base, uint64_t e, float v)
{
    if (kv.dtype == KV_F32)
        at<float>(base)[e] = v;
    else
        at<uint16_t>(base)[e] = kv.dtype == KV_F16 ? f16_of_f32(v) : bf16_of_f32(v);
}

/* Element i of heads x, rotated in halves by a row of the table (cos, then sin). */
DEV float rotated(const float *x, const float *tab, uint32_t i, uint32_t dim, uint32_t rot)
{
    uint32_t half = rot / 2, j = i % dim;
    if (j >= rot) return x[i];
    if (j < half) return x[i] * tab[j] - x[i + half] * tab[half + j];
    return x[i - half] * tab[j] + x[i] * tab[j - half];
}
#endif
