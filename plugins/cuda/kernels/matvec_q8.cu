/* MATMUL of block weights by Q8 activations, for a few rows: a warp an output, a lane a block of 32;
 * a block is loaded once for VEC_ROWS rows; the terms are added in order of blocks.
 * grid (outputs / WARPS, rows / VEC_ROWS) */
#include "matmul.h"

/* The term of block b of a row's activations, number r. */
template <class F> DEV float term(const matmul_args &a, const codes32 &w, uint64_t r, uint32_t b)
{
    uint64_t block = r * (a.in / 32) + b;
    codes32 x;
    load32(x, a.q.codes + block * 32);
    int low = 0, high = 0;
    UNROLL for (int i = 0; i < 4; i++) low = __dp4a(w.q[i], x.q[i], low);
    UNROLL for (int i = 4; i < 8; i++) high = __dp4a(w.q[i], x.q[i], high);
    return F::term(w, low, high, at<const float>(a.q.d)[block], at<const int>(a.q.sum)[block]);
}

/* sum[r] = w[o] . x[first + r], in every lane */
template <class F>
DEV void products_q8(const matmul_args &a, const matmul_part &p, uint32_t o, uint32_t first,
                     uint32_t rows, float sum[VEC_ROWS])
{
    uint32_t lane = threadIdx.x % 32, blocks = a.in / 32;
    UNROLL for (uint32_t r = 0; r < VEC_ROWS; r++) sum[r] = 0;
    for (uint32_t at_block = 0; at_block < blocks; at_block += 32) {
        uint32_t b = at_block + lane, n = blocks - at_block < 32 ? blocks - at_block : 32;
        codes32 w;
        if (lane < n) w = F::block(p.w, p.scales, static_cast<uint64_t>(o) * blocks + b);
        UNROLL for (uint32_t r = 0; r < VEC_ROWS; r++) {
            if (r >= rows) break;
            float v = lane < n ? term<F>(a, w, first + r, b) : 0.0f;
            for (uint32_t i = 0; i < n; i++)
                sum[r] = sum[r] + __shfl_sync(FULL, v, static_cast<int>(i));
        }
    }
}

template <class F> DEV void matvec_q8(const matmul_args &a)
{
    const matmul_part &p = part_of(a);
    uint32_t o = (blockIdx.x - p.first) * WARPS + threadIdx.x / 32, first = blockIdx.y * VEC_ROWS;
    uint32_t live = rows_of(a.step, a.scope);
    if (first >= live || o >= p.out) return; /* by whole warps */
    uint32_t rows = least(live - first, VEC_ROWS);
    float v[VEC_ROWS], up[VEC_ROWS];
    products_q8<F>(a, p, o, first, rows, v);
    if (a.epilogue == EPILOGUE_GLU) products_q8<F>(a, a.part[1], o, first, rows, up);
    UNROLL for (uint32_t r = 0; r < VEC_ROWS; r++) {
        if (r >= rows || threadIdx.x % 32 != r) continue;
        store(a, p, first + r, o, a.epilogue == EPILOGUE_GLU ? glu(a.act, v[r], up[r]) : v[r]);
    }
}

#define MATVEC_Q8(f)                                                                               \
    KERNEL(matvec_##f##_q8, matmul_args)                                                           \
    {                                                                                              \
        matvec_q8<f>(a);                                                                           \
    }
MATVEC_Q8(q8_0)
MATVEC_Q8(q4_0)
MATVEC_Q8(q4_1)
MATVEC_Q8(q4_k)
MATVEC_Q8(q6_k)
