/* SCALE and SOFTCAP: y = f(x).  grid (columns / THREADS, rows) */
#include "common.h"
#include "op.h"

KERNEL(map, map_args)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, r = blockIdx.y;
    if (r >= rows_of(a.step, a.scope) || i >= a.cols) return;
    uint64_t e = static_cast<uint64_t>(r) * a.cols + i;
    float x = at<const float>(a.x)[e];
    at<float>(a.y)[e] = a.op == OP_SCALE ? x * a.factor : a.factor * tanh_(x / a.factor);
}
