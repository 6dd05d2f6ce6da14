/* ATTENTION in the contract's order: a block a (head, row), two passes over the keys: the maximum, then
 * weights and values in order of positions.  A thread takes a key of a tile, then a column of the
 * head.  grid (heads, rows) */
#include "kv.h"

struct exact_shared {
    float q[HEAD_DIM_MAX], p[THREADS];
};

struct exact_job { /* of one kv head */
    uint32_t span, head, from, end;
};

DEV uint64_t key_index(const attend_args &a, const exact_job &j, uint32_t pos)
{
    return kv_index(a.kv, page_of(a.step, j.span, pos), j.head, pos);
}

DEV float score(const attend_args &a, const exact_job &j, const float *q, uint32_t pos)
{
    uint64_t k = key_index(a, j, pos);
    float s = 0;
    for (uint32_t i = 0; i < a.kv.dim; i++) s = s + q[i] * kv_load(a.kv, a.kv.k, k + i);
    s = s * a.scale;
    return a.softcap > 0 ? a.softcap * tanh_(s / a.softcap) : s;
}

DEV float highest(const attend_args &a, const exact_job &j, exact_shared &s)
{
    uint32_t t = threadIdx.x;
    float m = -infinity();
    for (uint32_t pos = j.from + t; pos < j.end; pos += THREADS) {
        float v = score(a, j, s.q, pos);
        m = v > m ? v : m;
    }
    s.p[t] = m;
    __syncthreads();
    for (uint32_t d = THREADS / 2; d; d /= 2) {
        if (t < d) s.p[t] = s.p[t + d] > s.p[t] ? s.p[t + d] : s.p[t];
        __syncthreads();
    }
    return s.p[0];
}

KERNEL(attend_exact, attend_args)
{
    SHARED(exact_shared, s);
    uint32_t t = threadIdx.x, h = blockIdx.x, r = blockIdx.y, dim = a.kv.dim;
    if (r >= rows_of(a.step, SCOPE_ROWS)) return;
    step_row row = row_of(a.step, r);
    exact_job j = {row.span, h / (a.heads / a.kv.heads), 0, row.pos + 1};
    if (a.window && j.end > a.window) j.from = j.end - a.window;
    uint64_t base = (static_cast<uint64_t>(r) * a.heads + h) * dim;
    for (uint32_t i = t; i < dim; i += THREADS) s.q[i] = at<const float>(a.q)[base + i];
    __syncthreads();
    float m = highest(a, j, s), l = 0, o[HEAD_DIM_MAX / THREADS] = {}; /* columns t, t + THREADS */
    for (uint32_t first = j.from; first < j.end; first += THREADS) {
        uint32_t n = least(j.end - first, THREADS);
        __syncthreads(); /* the maximum, or the tile before, has been read */
        if (t < n) s.p[t] = exp_(score(a, j, s.q, first + t) - m);
        __syncthreads();
        for (uint32_t k = 0; k < n; k++) {
            uint64_t v = key_index(a, j, first + k);
            l = l + s.p[k];
            UNROLL for (uint32_t e = 0, i = t; e < HEAD_DIM_MAX / THREADS; e++, i += THREADS)
                if (i < dim) o[e] = o[e] + s.p[k] * kv_load(a.kv, a.kv.v, v + i);
        }
    }
    float inverse = 1.0f / l;
    UNROLL for (uint32_t e = 0, i = t; e < HEAD_DIM_MAX / THREADS; e++, i += THREADS)
        if (i < dim) at<float>(a.y)[base + i] = o[e] * inverse;
}
