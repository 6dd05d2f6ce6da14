/* The tokens of a step are the ids that the last step left.  grid (rows / THREADS) */
#include "common.h"

KERNEL(step_chain, chain_args)
{
    uint32_t r = blockIdx.x * THREADS + threadIdx.x;
    if (r >= rows_of(a.step, SCOPE_ROWS)) return;
    at<step_row>(a.step + head_of(a.step)->row_at)[r].token = at<const uint32_t>(a.ids)[r];
}
