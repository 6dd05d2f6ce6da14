/* attend - ATTENTION in one pass over tiles of KV_PAGE keys, for up to QUERIES queries of one kv head at
 * once: the keys and values are loaded once for all of them.  A query is a head of a row. */
#ifndef ATTEND_H
#define ATTEND_H
#include "kv.h"

/* A warp has queries warp, warp + WARPS ..., a lane columns lane, lane + 32 ... of each: its sums. */
enum { PER_WARP = QUERIES / WARPS, PER_LANE = HEAD_DIM_MAX / 32 };
typedef float sums[PER_WARP][PER_LANE];

/* Body for every query i, its sums o[k], and every column c, its sum number m. */
#define EACH_QUERY(k, i, n)                                                                        \
    UNROLL for (uint32_t k = 0, i = threadIdx.x / 32; k < PER_WARP && i < (n); k++, i += WARPS)
#define EACH_COLUMN(m, c, dim)                                                                     \
    UNROLL for (uint32_t m = 0, c = threadIdx.x % 32; m < PER_LANE && c < (dim); m++, c += 32)

struct attend_shared {
    uint32_t row[QUERIES], head[QUERIES], from[QUERIES], end[QUERIES]; /* keys that it sees */
    float p[QUERIES][KV_PAGE + 1]; /* weight of a key; below 0 where it is not seen */
    float m[QUERIES], l[QUERIES], fix[QUERIES];
};

/* The dynamic shared memory: queries [QUERIES][dim], then keys or values [KV_PAGE][dim + 1]. */
struct attend_job {
    uint32_t n, span, kv_head, begin, end; /* queries; keys that any of them sees */
    float *q, *tile;
};

/* Query i of the block; before load_queries, by one thread each. */
DEV void set_query(const attend_args &a, attend_shared &s, uint32_t i, uint32_t row, uint32_t head)
{
    uint32_t end = row_of(a.step, row).pos + 1;
    s.row[i] = row;
    s.head[i] = head;
    s.end[i] = end;
    s.from[i] = a.window && end > a.window ? end - a.window : 0;
}

DEV void load_queries(const attend_args &a, const attend_job &j, attend_shared &s)
{
    __syncthreads(); /* the queries are set */
    EACH_QUERY (k, i, j.n) {
        uint64_t head = static_cast<uint64_t>(s.row[i]) * a.heads + s.head[i];
        for (uint32_t c = threadIdx.x % 32; c < a.kv.dim; c += 32)
            j.q[i * a.kv.dim + c] = at<const float>(a.q)[head * a.kv.dim + c];
    }
    if (threadIdx.x < j.n) s.m[threadIdx.x] = -infinity(), s.l[threadIdx.x] = 0;
}

/* Keys or values of page number t of the sequence, those that a query sees.  A warp takes keys warp,
 * warp + WARPS ... of the page, which is there as a whole, a lane a column of them. */
DEV void load_tile(const attend_args &a, const attend_job &j, gpu_ptr base, uint32_t t)
{
    constexpr uint32_t KEYS = KV_PAGE / WARPS;
    uint32_t dim = a.kv.dim, warp = threadIdx.x / 32, page = page_of(a.step, j.span, t * KV_PAGE);
    uint64_t first = kv_index(a.kv, page, j.kv_head, warp);
    for (uint32_t c = threadIdx.x % 32; c < dim; c += 32) {
        float v[KEYS];
        kv_load_each<KEYS>(a.kv, base, first + c, WARPS * dim, v);
        UNROLL for (uint32_t k = 0; k < KEYS; k++) {
            uint32_t key = warp + k * WARPS, pos = t * KV_PAGE + key;
            if (pos >= j.begin && pos < j.end) j.tile[key * (dim + 1) + c] = v[k];
        }
    }
}

DEV float score(const attend_args &a, const float *q, const float *k)
{
    float s = 0;
    for (uint32_t i = 0; i < a.kv.dim; i++) s = fmaf(q[i], k[i], s);
    s = s * a.scale;
    return a.softcap > 0 ? a.softcap * tanh_(s / a.softcap) : s;
}

/* A warp a query, a lane a key: weights of this tile, and what the sums so far are scaled by. */
DEV void weigh(const attend_args &a, const attend_job &j, attend_shared &s, uint32_t t)
{
    uint32_t lane = threadIdx.x % 32, pos = t * KV_PAGE + lane;
    for (uint32_t i = threadIdx.x / 32; i < j.n; i += WARPS) {
        bool seen = pos >= s.from[i] && pos < s.end[i] && pos >= j.begin && pos < j.end;
        float v = seen ? score(a, j.q + i * a.kv.dim, j.tile + lane * (a.kv.dim + 1)) : -infinity();
        float before = s.m[i], m = warp_max(v);
        m = m > before ? m : before;
        float against = m == -infinity() ? 0.0f : m; /* nothing finite yet: no NaN of inf - inf */
        float p = seen ? exp_(v - against) : -1.0f, sum = warp_sum(seen ? p : 0.0f);
        s.p[i][lane] = p;
        if (lane) continue;
        s.fix[i] = exp_(before - against);
        s.l[i] = s.l[i] * s.fix[i] + sum;
        s.m[i] = m;
    }
}

DEV void accumulate(const attend_args &a, const attend_job &j, const attend_shared &s, sums o)
{
    EACH_QUERY (k, i, j.n) {
        EACH_COLUMN (m, c, a.kv.dim)
            o[k][m] = o[k][m] * s.fix[i];
        for (uint32_t key = 0; key < KV_PAGE; key++) {
            float p = s.p[i][key];
            const float *row = j.tile + key * (a.kv.dim + 1);
            if (p < 0) continue; /* a NaN is seen */
            EACH_COLUMN (m, c, a.kv.dim)
                o[k][m] = fmaf(p, row[c], o[k][m]);
        }
    }
}

DEV void attend(const attend_args &a, const attend_job &j, attend_shared &s, sums o)
{
    UNROLL for (uint32_t k = 0; k < PER_WARP; k++)
        UNROLL for (uint32_t m = 0; m < PER_LANE; m++) o[k][m] = 0;
    load_queries(a, j, s);
    for (uint32_t t = j.begin / KV_PAGE; t * KV_PAGE < j.end; t++) {
        __syncthreads(); /* queries are there; the values before have been used */
        load_tile(a, j, a.kv.k, t);
        __syncthreads();
        weigh(a, j, s, t);
        __syncthreads();
        load_tile(a, j, a.kv.v, t);
        __syncthreads();
        accumulate(a, j, s, o);
    }
}

DEV void store_rows(const attend_args &a, const attend_job &j, const attend_shared &s, const sums o)
{
    EACH_QUERY (k, i, j.n) {
        float inverse = 1.0f / s.l[i];
        uint64_t head = static_cast<uint64_t>(s.row[i]) * a.heads + s.head[i];
        EACH_COLUMN (m, c, a.kv.dim)
            at<float>(a.y)[head * a.kv.dim + c] = o[k][m] * inverse;
    }
}
#endif
