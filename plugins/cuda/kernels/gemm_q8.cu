/* MATMUL of block weights by Q8 activations, for many rows: a tile of GEMM_OUTPUTS by GEMM_ROWS a block,
 * 32 columns at a time through shared memory.  An output is one sum in order of blocks: the
 * contract's bits.  grid (outputs / GEMM_OUTPUTS, rows / GEMM_ROWS) */
#include "matmul.h"

struct gemm_q8_shared {
    codes32 w[GEMM_OUTPUTS];
    int pad[8]; /* w ends, x begins at another bank */
    int x[GEMM_ROWS][9], sum[GEMM_ROWS];
    float d[GEMM_ROWS];
};

/* Block b of rows o.. of w and of rows first.. of x.  What is beyond is not read. */
template <class F>
DEV void fill_q8(const matmul_args &a, const matmul_part &p, uint32_t o, uint32_t first,
                 uint32_t rows, uint32_t b, gemm_q8_shared &s)
{
    uint32_t t = threadIdx.x, blocks = a.in / 32;
    if (t < GEMM_OUTPUTS && o + t < p.out)
        s.w[t] = F::block(p.w, p.scales, static_cast<uint64_t>(o + t) * blocks + b);
    for (uint32_t e = t; e < GEMM_ROWS * 8; e += THREADS) {
        if (e / 8 >= rows) continue;
        uint64_t block = static_cast<uint64_t>(first + e / 8) * blocks + b;
        s.x[e / 8][e % 8] = at<const int>(a.q.codes)[block * 8 + e % 8];
        if (e % 8 == 0) s.d[e / 8] = at<const float>(a.q.d)[block];
        if (e % 8 == 1) s.sum[e / 8] = at<const int>(a.q.sum)[block];
    }
}

/* sum[i][j]: output t % 16 + 16*i of the tile, row t / 16 + 8*j */
template <class F>
DEV void tile_q8(const matmul_args &a, const matmul_part &p, uint32_t o, uint32_t first,
                 uint32_t rows, gemm_q8_shared &s, float sum[4][4])
{
    uint32_t to = threadIdx.x % 16, tr = threadIdx.x / 16;
    UNROLL for (int e = 0; e < 16; e++) sum[e / 4][e % 4] = 0;
    for (uint32_t b = 0; b < a.in / 32; b++) {
        __syncthreads(); /* the tile before has been used */
        fill_q8<F>(a, p, o, first, rows, b, s);
        __syncthreads();
        UNROLL for (uint32_t i = 0; i < 4; i++) {
            if (o + to + 16 * i >= p.out) break;
            const codes32 w = s.w[to + 16 * i];
            UNROLL for (uint32_t j = 0; j < 4; j++) {
                uint32_t r = tr + 8 * j;
                int low = 0, high = 0;
                if (r >= rows) break;
                UNROLL for (int k = 0; k < 4; k++) low = __dp4a(w.q[k], s.x[r][k], low);
                UNROLL for (int k = 4; k < 8; k++) high = __dp4a(w.q[k], s.x[r][k], high);
                sum[i][j] = sum[i][j] + F::term(w, low, high, s.d[r], s.sum[r]);
            }
        }
    }
}

template <class F> DEV void gemm_q8(const matmul_args &a, gemm_q8_shared &s)
{
    const matmul_part &p = part_of(a);
    uint32_t o = (blockIdx.x - p.first) * GEMM_OUTPUTS, first = blockIdx.y * GEMM_ROWS;
    uint32_t live = rows_of(a.step, a.scope);
    if (first >= live) return;
    uint32_t rows = least(live - first, GEMM_ROWS);
    float v[4][4], up[4][4];
    tile_q8<F>(a, p, o, first, rows, s, v);
    if (a.epilogue == EPILOGUE_GLU) tile_q8<F>(a, a.part[1], o, first, rows, s, up);
    UNROLL for (uint32_t e = 0; e < 16; e++) {
        uint32_t i = threadIdx.x % 16 + 16 * (e / 4), r = threadIdx.x / 16 + 8 * (e % 4);
        if (o + i >= p.out || r >= rows) continue;
        float y = v[e / 4][e % 4];
        if (a.epilogue == EPILOGUE_GLU) y = glu(a.act, y, up[e / 4][e % 4]);
        store(a, p, first + r, o + i, y);
    }
}

#define GEMM_Q8(f)                                                                                 \
    KERNEL(gemm_##f##_q8, matmul_args)                                                             \
    {                                                                                              \
        SHARED(gemm_q8_shared, s);                                                                 \
        gemm_q8<f>(a, s);                                                                          \
    }
GEMM_Q8(q8_0)
GEMM_Q8(q4_0)
GEMM_Q8(q4_1)
GEMM_Q8(q4_k)
GEMM_Q8(q6_k)
