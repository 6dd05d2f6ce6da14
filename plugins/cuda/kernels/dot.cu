/* MATMUL in the contract's order: eight threads an output, thread j takes columns j, j + 8, ...; the
 * butterfly is ((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7)).  grid (outputs / DOT_OUTPUTS, rows) */
#include "matmul.h"

template <class F>
DEV float dot(const matmul_args &a, const matmul_part &p, uint32_t o, const float *x)
{
    float s = 0;
    if (o < p.out)
        for (uint32_t i = threadIdx.x % 8; i < a.in; i += 8)
            s = s + F::weight(p.w, p.scales, static_cast<uint64_t>(o) * a.in + i) * x[i];
    for (int d = 1; d < 8; d *= 2) s = s + __shfl_xor_sync(FULL, s, d);
    return s;
}

template <class F> DEV void dots(const matmul_args &a)
{
    const matmul_part &p = part_of(a);
    uint32_t o = (blockIdx.x - p.first) * DOT_OUTPUTS + threadIdx.x / 8, r = blockIdx.y;
    if (r >= rows_of(a.step, a.scope)) return;
    const float *x = at<const float>(a.x) + static_cast<uint64_t>(r) * a.in;
    float v = dot<F>(a, p, o, x);
    if (a.epilogue == EPILOGUE_GLU) v = glu(a.act, v, dot<F>(a, a.part[1], o, x));
    if (threadIdx.x % 8 == 0 && o < p.out) store(a, p, r, o, v);
}

#define DOT(f)                                                                                     \
    KERNEL(dot_##f, matmul_args)                                                                   \
    {                                                                                              \
        dots<f>(a);                                                                                \
    }
DOT(f32)
DOT(f16)
DOT(bf16)
DOT(q8_0)
DOT(q4_0)
DOT(q4_1)
DOT(q4_k)
DOT(q6_k)
