/* Activations to Q8, a warp a block of 32.  grid (columns / THREADS, rows) */
#include "common.h"

KERNEL(quantise, quantise_args)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, r = blockIdx.y;
    if (r >= rows_of(a.step, a.scope) || i >= a.cols) return; /* by whole warps */
    uint64_t e = static_cast<uint64_t>(r) * a.cols + i;
    quantise_block(at<const float>(a.x)[e], a.q, e / 32);
}
