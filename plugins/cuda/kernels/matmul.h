/* matmul - what the kernels of MATMUL share: several weights in one launch, and what is done to an
 * output before it is stored.  The grid's x runs over the outputs of all parts, y over rows. */
#ifndef MATMUL_H
#define MATMUL_H
#include "format.h"

/* The part that block blockIdx.x works on. */
DEV const matmul_part &part_of(const matmul_args &a)
{
    uint32_t i = a.parts - 1;
    while (i && blockIdx.x < a.part[i].first) i--;
    return a.part[i];
}

DEV void store(const matmul_args &a, const matmul_part &p, uint32_t row, uint32_t o, float v)
{
    uint64_t e = static_cast<uint64_t>(row) * p.out + o;
    if (a.epilogue == EPILOGUE_ADD) v = at<const float>(a.residual)[e] + v;
    at<float>(p.y)[e] = v;
}
#endif
