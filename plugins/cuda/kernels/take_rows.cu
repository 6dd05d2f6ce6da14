/* TAKE_ROWS: y[w] = x[wanted[w]].  grid (columns / THREADS, rows) */
#include "common.h"

KERNEL(take_rows, rows_args)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, r = blockIdx.y;
    if (r >= rows_of(a.step, SCOPE_WANTED) || i >= a.cols) return;
    uint64_t from = static_cast<uint64_t>(row_of(a.step, r).wanted) * a.cols + i;
    at<float>(a.y)[static_cast<uint64_t>(r) * a.cols + i] = at<const float>(a.x)[from];
}
