/* ROPE of q, KV_APPEND of k and v, or both at once, by the row's position.
 * grid (columns of the wider / THREADS, rows) */
#include "kv.h"

DEV void append(const rope_args &a, const step_row &row, uint32_t r, uint32_t i, const float *tab)
{
    const kv_shape &kv = a.kv;
    uint64_t e = static_cast<uint64_t>(r) * (kv.heads * kv.dim);
    uint64_t to = kv_index(kv, page_of(a.step, row.span, row.pos), i / kv.dim, row.pos) + i % kv.dim;
    const float *k = at<const float>(a.k) + e;
    kv_store(kv, kv.k, to, rotated(k, tab, i, kv.dim, a.rot));
    kv_store(kv, kv.v, to, at<const float>(a.v)[e + i]);
    if (kv.raw) at<float>(kv.raw)[to] = k[i];
}

KERNEL(rope, rope_args)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, r = blockIdx.y, n = a.heads * a.dim;
    if (r >= rows_of(a.step, SCOPE_ROWS)) return;
    step_row row = row_of(a.step, r);
    const float *tab = at<const float>(a.tab) + static_cast<uint64_t>(row.pos) * a.rot;
    uint64_t e = static_cast<uint64_t>(r) * n;
    if (i < n) at<float>(a.y)[e + i] = rotated(at<const float>(a.q) + e, tab, i, a.dim, a.rot);
    if (i < a.kv.heads * a.kv.dim) append(a, row, r, i, tab);
}
