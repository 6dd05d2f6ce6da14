/* RMSNORM: y = (x * (1/sqrt(ss/n + eps))) * w by groups of n columns; as F32, as Q8, or both.
 * exact: ss is summed in order by one thread.  grid (groups, rows) */
#include "common.h"

struct norm_shared {
    float square[THREADS], warp[WARPS], sum;
};

/* The squares of a tile, then one thread adds them: the contract's order. */
DEV float sum_exactly(const float *x, uint32_t n, norm_shared &s)
{
    uint32_t t = threadIdx.x;
    float ss = 0;
    for (uint32_t first = 0; first < n; first += THREADS) {
        uint32_t here = least(n - first, THREADS);
        if (t < here) s.square[t] = x[first + t] * x[first + t];
        __syncthreads();
        if (t == 0)
            for (uint32_t i = 0; i < here; i++) ss = ss + s.square[i];
        __syncthreads();
    }
    if (t == 0) s.sum = ss;
    __syncthreads();
    return s.sum;
}

DEV float sum_fast(const float *x, uint32_t n, norm_shared &s)
{
    float ss = 0;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) ss = fmaf(x[i], x[i], ss);
    ss = warp_sum(ss);
    if (threadIdx.x % 32 == 0) s.warp[threadIdx.x / 32] = ss;
    __syncthreads();
    return (s.warp[0] + s.warp[1]) + (s.warp[2] + s.warp[3]);
}

KERNEL(rmsnorm, norm_args)
{
    SHARED(norm_shared, s);
    uint32_t r = blockIdx.y, n = a.group;
    if (r >= rows_of(a.step, a.scope)) return;
    uint64_t base = static_cast<uint64_t>(r) * a.cols + static_cast<uint64_t>(blockIdx.x) * n;
    const float *x = at<const float>(a.x) + base, *w = at<const float>(a.w);
    float ss = a.exact ? sum_exactly(x, n, s) : sum_fast(x, n, s);
    float inverse = 1.0f / sqrtf(ss / static_cast<float>(n) + a.eps);
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) { /* where Q8 is asked, by whole warps */
        float v = (x[i] * inverse) * w[i];
        if (a.y) at<float>(a.y)[base + i] = v;
        if (a.q.codes) quantise_block(v, a.q, (base + i) / 32);
    }
}
