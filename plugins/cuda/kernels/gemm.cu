/* MATMUL for many rows: a tile of GEMM_OUTPUTS by GEMM_ROWS a block, GEMM_COLS columns at a time through
 * shared memory; a thread has four outputs of four rows.
 * grid (outputs / GEMM_OUTPUTS, rows / GEMM_ROWS) */
#include "eight.h"
#include "matmul.h"

struct gemm_shared { /* by columns */
    alignas(16) float w[GEMM_COLS][GEMM_OUTPUTS], x[GEMM_COLS][GEMM_ROWS];
};

/* Tile of w: rows o.., and of x: rows first.., columns col..; zeros beyond.  Neighbours of a warp have
 * neighbouring rows: they store to different banks. */
template <class F>
DEV void fill(const matmul_args &a, const matmul_part &p, uint32_t o, uint32_t first, uint32_t rows,
              uint32_t col, gemm_shared &s)
{
    float v[8];
    for (uint32_t e = threadIdx.x; e < GEMM_OUTPUTS * GEMM_COLS / 8; e += THREADS) {
        uint32_t i = e % GEMM_OUTPUTS, c = e / GEMM_OUTPUTS * 8;
        UNROLL for (int j = 0; j < 8; j++) v[j] = 0;
        if (o + i < p.out && col + c < a.in) load_any<F>(p.w, p.scales, o + i, col + c, a.in, v);
        UNROLL for (uint32_t j = 0; j < 8; j++) s.w[c + j][i] = v[j];
    }
    for (uint32_t e = threadIdx.x; e < GEMM_ROWS * GEMM_COLS / 8; e += THREADS) {
        uint32_t i = e % GEMM_ROWS, c = e / GEMM_ROWS * 8;
        UNROLL for (int j = 0; j < 8; j++) v[j] = 0;
        if (i < rows && col + c < a.in) load_any<f32>(a.x, 0, first + i, col + c, a.in, v);
        UNROLL for (uint32_t j = 0; j < 8; j++) s.x[c + j][i] = v[j];
    }
}

DEV void four(const float *shared, float *out) /* at once: aligned to 16 bytes */
{
    float4 v = reinterpret_cast<const float4 *>(shared)[0];
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
}

/* sum[i][j]: output (t % 16)*4 + i of the tile, row (t / 16)*4 + j */
template <class F>
DEV void tile(const matmul_args &a, const matmul_part &p, uint32_t o, uint32_t first, uint32_t rows,
              gemm_shared &s, float sum[4][4])
{
    uint32_t to = threadIdx.x % 16 * 4, tr = threadIdx.x / 16 * 4;
    UNROLL for (int e = 0; e < 16; e++) sum[e / 4][e % 4] = 0;
    for (uint32_t col = 0; col < a.in; col += GEMM_COLS) {
        __syncthreads(); /* the tile before has been used */
        fill<F>(a, p, o, first, rows, col, s);
        __syncthreads();
        UNROLL for (uint32_t c = 0; c < GEMM_COLS; c++) {
            float w[4], x[4];
            four(&s.w[c][to], w);
            four(&s.x[c][tr], x);
            UNROLL for (int e = 0; e < 16; e++)
                sum[e / 4][e % 4] = fmaf(w[e / 4], x[e % 4], sum[e / 4][e % 4]);
        }
    }
}

template <class F> DEV void gemm(const matmul_args &a, gemm_shared &s)
{
    const matmul_part &p = part_of(a);
    uint32_t o = (blockIdx.x - p.first) * GEMM_OUTPUTS, first = blockIdx.y * GEMM_ROWS;
    uint32_t live = rows_of(a.step, a.scope);
    if (first >= live) return;
    uint32_t rows = least(live - first, GEMM_ROWS);
    float v[4][4], up[4][4];
    tile<F>(a, p, o, first, rows, s, v);
    if (a.epilogue == EPILOGUE_GLU) tile<F>(a, a.part[1], o, first, rows, s, up);
    UNROLL for (uint32_t e = 0; e < 16; e++) {
        uint32_t i = threadIdx.x % 16 * 4 + e / 4, j = threadIdx.x / 16 * 4 + e % 4;
        if (o + i >= p.out || j >= rows) continue;
        float y = v[e / 4][e % 4];
        if (a.epilogue == EPILOGUE_GLU) y = glu(a.act, y, up[e / 4][e % 4]);
        store(a, p, first + j, o + i, y);
    }
}

#define GEMM(f)                                                                                    \
    KERNEL(gemm_##f, matmul_args)                                                                  \
    {                                                                                              \
        SHARED(gemm_shared, s);                                                                    \
        gemm<f>(a, s);                                                                             \
    }
GEMM(f32)
GEMM(f16)
GEMM(bf16)
GEMM(q8_0)
GEMM(q4_0)
GEMM(q4_1)
GEMM(q4_k)
GEMM(q6_k)
