/* ARGMAX: the first maximum of a row, 0xffffffff where it has a NaN.
 * argmax        the best of ARGMAX_COLS columns.  grid (parts, rows)
 * argmax_merge  the best of the parts; only where there are several.  grid (1, rows) */
#include "common.h"

struct champion { /* where FULL: of nothing; a NaN beats all */
    float value;
    uint32_t where;
};
struct argmax_shared {
    champion of[WARPS];
};

DEV champion better(const champion &a, const champion &b)
{
    if (b.where == FULL || a.value != a.value) return a;
    if (a.where == FULL || b.value != b.value || b.value > a.value) return b;
    return b.value == a.value && b.where < a.where ? b : a;
}

/* Of all threads, in thread 0. */
DEV champion best_of_block(champion mine, argmax_shared &s)
{
    for (int d = 16; d; d /= 2) {
        champion other;
        other.value = __shfl_xor_sync(FULL, mine.value, d);
        other.where = __shfl_xor_sync(FULL, mine.where, d);
        mine = better(mine, other);
    }
    if (threadIdx.x % 32 == 0) s.of[threadIdx.x / 32] = mine;
    __syncthreads();
    for (uint32_t i = 1; threadIdx.x == 0 && i < WARPS; i++) mine = better(mine, s.of[i]);
    return mine;
}

DEV void tell(const argmax_args &a, uint32_t r, const champion &best)
{
    at<uint32_t>(a.y)[r] = best.value != best.value ? FULL : best.where;
}

KERNEL(argmax, argmax_args)
{
    SHARED(argmax_shared, s);
    uint32_t r = blockIdx.y, first = blockIdx.x * ARGMAX_COLS;
    if (r >= rows_of(a.step, a.scope)) return;
    const float *x = at<const float>(a.x) + static_cast<uint64_t>(r) * a.cols;
    champion best = {0, FULL};
    for (uint32_t i = first + threadIdx.x; i < a.cols && i < first + ARGMAX_COLS; i += THREADS) {
        champion other = {x[i], i};
        best = better(best, other);
    }
    best = best_of_block(best, s);
    if (threadIdx.x) return;
    if (a.parts > 1)
        at<champion>(a.partial)[static_cast<uint64_t>(r) * a.parts + blockIdx.x] = best;
    else
        tell(a, r, best);
}

KERNEL(argmax_merge, argmax_args)
{
    SHARED(argmax_shared, s);
    uint32_t r = blockIdx.y;
    if (r >= rows_of(a.step, a.scope)) return;
    const champion *part = at<const champion>(a.partial) + static_cast<uint64_t>(r) * a.parts;
    champion best = {0, FULL};
    for (uint32_t i = threadIdx.x; i < a.parts; i += THREADS) best = better(best, part[i]);
    best = best_of_block(best, s);
    if (threadIdx.x == 0) tell(a, r, best);
}
