/* MATMUL for a few rows: a warp an output, whose lanes take eight columns at a time, several such at once on
 * their way; a weight is loaded once for VEC_ROWS rows.  grid (outputs / WARPS, rows / VEC_ROWS) */
#include "eight.h"
#include "matmul.h"

constexpr uint32_t SWEEP = 32 * 8; /* columns of a warp */

/* sum[r] += w . x[first + r], of columns col .. col + 7 */
DEV void add_eight(const matmul_args &a, const float w[8], uint32_t first, uint32_t rows, uint32_t col,
                   float sum[VEC_ROWS])
{
    UNROLL for (uint32_t r = 0; r < VEC_ROWS; r++) {
        eight<f32> e;
        float x[8];
        if (r >= rows) break;
        e.load(a.x, 0, static_cast<uint64_t>(first + r) * a.in + col);
        e.decode(x);
        UNROLL for (int i = 0; i < 8; i++) sum[r] = fmaf(w[i], x[i], sum[r]);
    }
}

/* Of rows that are not aligned: a lane a column. */
template <class F>
DEV void add_any(const matmul_args &a, const matmul_part &p, uint32_t o, uint32_t first, uint32_t rows,
                 float sum[VEC_ROWS])
{
    for (uint32_t col = threadIdx.x % 32; col < a.in; col += 32) {
        float w = F::weight(p.w, p.scales, static_cast<uint64_t>(o) * a.in + col);
        UNROLL for (uint32_t r = 0; r < VEC_ROWS; r++) {
            if (r >= rows) break;
            sum[r] = fmaf(w, at<const float>(a.x)[static_cast<uint64_t>(first + r) * a.in + col], sum[r]);
        }
    }
}

/* sum[r] = w[o] . x[first + r], in every lane */
template <class F>
DEV void products(const matmul_args &a, const matmul_part &p, uint32_t o, uint32_t first,
                  uint32_t rows, float sum[VEC_ROWS])
{
    constexpr uint32_t AHEAD = eight<F>::AHEAD;
    uint64_t row = static_cast<uint64_t>(o) * a.in;
    bool any = F::PLAIN && a.in % 8;
    UNROLL for (uint32_t r = 0; r < VEC_ROWS; r++) sum[r] = 0;
    if (any) add_any<F>(a, p, o, first, rows, sum);
    for (uint32_t col = threadIdx.x % 32 * 8; !any && col < a.in; col += SWEEP * AHEAD) {
        eight<F> e[AHEAD];
        UNROLL for (uint32_t k = 0; k < AHEAD; k++)
            if (col + k * SWEEP < a.in) e[k].load(p.w, p.scales, row + col + k * SWEEP);
        UNROLL for (uint32_t k = 0; k < AHEAD; k++) {
            float w[8];
            if (col + k * SWEEP >= a.in) break;
            e[k].decode(w);
            add_eight(a, w, first, rows, col + k * SWEEP, sum);
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
