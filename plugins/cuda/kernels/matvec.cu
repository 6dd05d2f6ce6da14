/* MATMUL for a few rows: a warp an output, whose lanes take eight columns at a time; a weight is loaded
 * once for VEC_ROWS rows.  grid (outputs / WARPS, rows / VEC_ROWS) */
#include "matmul.h"

/* sum[r] = w[o] . x[first + r], in every lane */
template <class F>
DEV void products(const matmul_args &a, const matmul_part &p, uint32_t o, uint32_t first,
                  uint32_t rows, float sum[VEC_ROWS])
{
    UNROLL for (uint32_t r = 0; r < VEC_ROWS; r++) sum[r] = 0;
    for (uint32_t col = threadIdx.x % 32 * 8; col < a.in; col += 256) {
        float w[8], x[8];
        load8(F(), p.w, p.scales, o, col, a.in, w);
        UNROLL for (uint32_t r = 0; r < VEC_ROWS; r++) {
            if (r >= rows) break;
            load8(f32(), a.x, 0, first + r, col, a.in, x);
            UNROLL for (int i = 0; i < 8; i++) sum[r] = fmaf(w[i], x[i], sum[r]);
        }
    }
    UNROLL for (uint32_t r = 0; r < VEC_ROWS; r++)
        if (r < rows) sum[r] = warp_sum(sum[r]);
}

template <class F> DEV void matvec(const matmul_args &a)
{
    const matmul_part &p = part_of(a);
    uint32_t o = (blockIdx.x - p.first) * WARPS + threadIdx.x / 32, first = blockIdx.y * VEC_ROWS;
    uint32_t live = rows_of(a.step, a.scope);
    if (first >= live || o >= p.out) return; /* by whole warps */
    uint32_t rows = least(live - first, VEC_ROWS);
    float v[VEC_ROWS], up[VEC_ROWS];
    products<F>(a, p, o, first, rows, v);
    if (a.epilogue == EPILOGUE_GLU) products<F>(a, a.part[1], o, first, rows, up);
    UNROLL for (uint32_t r = 0; r < VEC_ROWS; r++) {
        if (r >= rows || threadIdx.x % 32 != r) continue;
        store(a, p, first + r, o, a.epilogue == EPILOGUE_GLU ? glu(a.act, v[r], up[r]) : v[r]);
    }
}

#define MATVEC(f)                                                                                  \
    KERNEL(matvec_##f, matmul_args)                                                                \
    {                                                                                              \
        matvec<f>(a);                                                                              \
    }
MATVEC(f32)
MATVEC(f16)
MATVEC(bf16)
MATVEC(q8_0)
MATVEC(q4_0)
MATVEC(q4_1)
MATVEC(q4_k)
MATVEC(q6_k)
