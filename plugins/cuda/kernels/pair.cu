/* GLU, ADD and ADD_BIAS: y = f(a, b), as F32, as Q8, or both.  grid (columns / THREADS, rows) */
#include "common.h"
#include "op.h"

DEV float pair_of(const pair_args &a, float x, float y)
{
    return a.op == OP_GLU ? glu(a.act, x, y) : x + y;
}

KERNEL(pair, pair_args)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, r = blockIdx.y;
    if (r >= rows_of(a.step, a.scope) || i >= a.cols) return; /* where Q8 is asked, by whole warps */
    uint64_t e = static_cast<uint64_t>(r) * a.cols + i, other = a.op == OP_ADD_BIAS ? i : e;
    float v = pair_of(a, at<const float>(a.a)[e], at<const float>(a.b)[other]);
    if (a.y) at<float>(a.y)[e] = v;
    if (a.q.codes) quantise_block(v, a.q, e / 32);
}
