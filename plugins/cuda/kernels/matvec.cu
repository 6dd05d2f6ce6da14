/* MATMUL for a few rows: a warp an output, whose lanes take eight columns at a time, several such at once on
 * their way; a weight is loaded once for all rows.
 * matvec    one row.  grid (outputs / WARPS, rows)
 * matvec8   VEC_ROWS rows.  grid (outputs / WARPS, rows / VEC_ROWS) */
#include "eight.h"
#include "matmul.h"

constexpr uint32_t SWEEP = 32 * 8; /* columns of a warp */

/* sum[r] += w . x[r], of the columns of one eight: x is where they are in row 0 */
template <uint32_t R>
DEV void add_eight(const matmul_args &a, const float w[8], const spot &x, uint32_t rows,
                   uint32_t sweep, float sum[R])
{
    UNROLL for (uint32_t r = 0; r < R; r++) {
        eight<f32> e;
        float v[8];
        if (r >= rows) break;
        spot s = {x.codes + static_cast<uint64_t>(r) * a.in * 4, 0, 0};
        e.load(s, sweep);
        e.decode(s, v);
        UNROLL for (int i = 0; i < 8; i++) sum[r] = fmaf(w[i], v[i], sum[r]);
    }
}

/* Of rows that are not aligned: a lane a column. */
template <class F, uint32_t R>
DEV void add_any(const matmul_args &a, const matmul_part &p, uint32_t o, uint32_t first,
                 uint32_t rows, float sum[R])
{
    for (uint32_t col = threadIdx.x % 32; col < a.in; col += 32) {
        float w = F::weight(p.w, p.scales, static_cast<uint64_t>(o) * a.in + col);
        UNROLL for (uint32_t r = 0; r < R; r++) {
            if (r >= rows) break;
            uint64_t e = static_cast<uint64_t>(first + r) * a.in + col;
            sum[r] = fmaf(w, at<const float>(a.x)[e], sum[r]);
        }
    }
}

/* sum[r] = w[o] . x[first + r], in every lane */
template <class F, uint32_t R>
DEV void products(const matmul_args &a, const matmul_part &p, uint32_t o, uint32_t first,
                  uint32_t rows, float sum[R])
{
    constexpr uint32_t AHEAD = R == 1 ? eight<F>::AHEAD : eight<F>::AHEAD / 2;
    bool any = F::PLAIN && a.in % 8;
    UNROLL for (uint32_t r = 0; r < R; r++) sum[r] = 0;
    if (any) add_any<F, R>(a, p, o, first, rows, sum);
    uint32_t col = threadIdx.x % 32 * 8;
    spot s = eight<F>::find(p.w, p.scales, static_cast<uint64_t>(o) * a.in + col);
    spot x = eight<f32>::find(a.x, 0, static_cast<uint64_t>(first) * a.in + col);
    for (; !any && col < a.in; col += AHEAD * SWEEP) {
        eight<F> e[AHEAD];
        UNROLL for (uint32_t k = 0; k < AHEAD; k++)
            if (col + k * SWEEP < a.in) e[k].load(s, k);
        UNROLL for (uint32_t k = 0; k < AHEAD; k++) {
            float w[8];
            if (col + k * SWEEP >= a.in) break;
            e[k].decode(s, w);
            add_eight<R>(a, w, x, rows, k, sum);
        }
        s.codes += AHEAD * eight<F>::CODES, s.scales += AHEAD * eight<F>::SCALES;
        x.codes += AHEAD * eight<f32>::CODES;
    }
    UNROLL for (uint32_t r = 0; r < R; r++)
        if (r < rows) sum[r] = warp_sum(sum[r]);
}

template <class F, uint32_t R> DEV void matvec(const matmul_args &a)
{
    const matmul_part &p = part_of(a);
    uint32_t o = (blockIdx.x - p.first) * WARPS + threadIdx.x / 32, first = blockIdx.y * R;
    uint32_t live = rows_of(a.step, a.scope);
    if (first >= live || o >= p.out) return; /* by whole warps */
    uint32_t rows = R == 1 ? 1 : least(live - first, R);
    float v[R], up[R] = {};
    products<F, R>(a, p, o, first, rows, v);
    if (a.epilogue == EPILOGUE_GLU) products<F, R>(a, a.part[1], o, first, rows, up);
    uint32_t lane = threadIdx.x % 32; /* each row's is told by a lane of its own */
    float mine = v[0], other = up[0];
    UNROLL for (uint32_t r = 1; r < R; r++)
        if (lane == r) mine = v[r], other = up[r];
    if (lane >= rows) return;
    store(a, p, first + lane, o, a.epilogue == EPILOGUE_GLU ? glu(a.act, mine, other) : mine);
}

#define MATVEC(f)                                                                                  \
    KERNEL(matvec_##f, matmul_args)                                                                \
    {                                                                                              \
        matvec<f, 1>(a);                                                                           \
    }                                                                                              \
    KERNEL(matvec8_##f, matmul_args)                                                               \
    {                                                                                              \
        matvec<f, VEC_ROWS>(a);                                                                    \
    }
MATVEC(f32)
MATVEC(f16)
MATVEC(bf16)
MATVEC(q8_0)
MATVEC(q4_0)
MATVEC(q4_1)
MATVEC(q4_k)
MATVEC(q6_k)
