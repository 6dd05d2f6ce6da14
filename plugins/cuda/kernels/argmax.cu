/* ARGMAX: the first maximum of a row, 0xffffffff where it has a NaN.  grid (1, rows) */
#include "common.h"

struct argmax_shared {
    float best[THREADS];
    uint32_t where[THREADS];
};

KERNEL(argmax, rows_args)
{
    SHARED(argmax_shared, s);
    uint32_t t = threadIdx.x, r = blockIdx.y, where = FULL;
    if (r >= rows_of(a.step, a.scope)) return;
    const float *x = at<const float>(a.x) + static_cast<uint64_t>(r) * a.cols;
    float best = -infinity();
    bool nan = false;
    for (uint32_t i = t; i < a.cols; i += THREADS) {
        nan = nan || x[i] != x[i];
        if (where == FULL || x[i] > best) best = x[i], where = i;
    }
    s.best[t] = nan ? quiet_nan() : best;
    s.where[t] = where;
    __syncthreads();
    for (uint32_t d = THREADS / 2; d; d /= 2) {
        float other = t < d ? s.best[t + d] : 0;
        if (t < d && (other != other || other > s.best[t] ||
                      (other == s.best[t] && s.where[t + d] < s.where[t])))
            s.best[t] = other, s.where[t] = s.where[t + d];
        __syncthreads();
    }
    if (t == 0) at<uint32_t>(a.y)[r] = s.best[0] != s.best[0] ? FULL : s.where[0];
}
