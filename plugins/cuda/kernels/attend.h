/* attend - ATTENTION in one pass over tiles of KV_PAGE keys, for up to QUERIES queries of one kv head at
 * once: the keys and values are loaded once for all of them.  A query is a head of a row. */
#ifndef ATTEND_H
#define ATTEND_H
#include "kv.h"

enum { PER_THREAD = QUERIES * HEAD_DIM_MAX / THREADS }; /* sums of a thread */

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
    uint32_t dim = a.kv.dim;
    __syncthreads(); /* the queries are set */
    for (uint32_t e = threadIdx.x; e < j.n * dim; e += THREADS) {
        uint64_t head = static_cast<uint64_t>(s.row[e / dim]) * a.heads + s.head[e / dim];
        j.q[e] = at<const float>(a.q)[head * dim + e % dim];
    }
    if (threadIdx.x < j.n) s.m[threadIdx.x] = -infinity(), s.l[threadIdx.x] = 0;
}

/* Keys or values of page number t of the sequence; what no query sees is not read.  A warp takes keys
 * warp, warp + WARPS ...: all of its loads of a column are on their way before the first is stored. */
DEV void load_tile(const attend_args &a, const attend_job &j, gpu_ptr base, uint32_t t)
{
    enum { KEYS = KV_PAGE / WARPS };
    uint32_t dim = a.kv.dim, warp = threadIdx.x / 32, page = page_of(a.step, j.span, t * KV_PAGE);
    uint64_t first = kv_index(a.kv, page, j.kv_head, 0);
    for (uint32_t i = threadIdx.x % 32; i < dim; i += 32) {
        float v[KEYS] = {};
        UNROLL for (uint32_t k = 0; k < KEYS; k++) {
            uint32_t key = warp + k * WARPS, pos = t * KV_PAGE + key;
            if (pos >= j.begin && pos < j.end) v[k] = kv_load(a.kv, base, first + key * dim + i);
        }
        UNROLL for (uint32_t k = 0; k < KEYS; k++) {
            uint32_t key = warp + k * WARPS, pos = t * KV_PAGE + key;
            if (pos >= j.begin && pos < j.end) j.tile[key * (dim + 1) + i] = v[k];
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

DEV void accumulate(const attend_args &a, const attend_job &j, const attend_shared &s, float *o)
{
    uint32_t dim = a.kv.dim;
    UNROLL for (uint32_t k = 0; k < PER_THREAD; k++) {
        uint32_t e = threadIdx.x + k * THREADS, i = e / dim;
        if (e >= j.n * dim) break;
        float sum = o[k] * s.fix[i];
        for (uint32_t key = 0; key < KV_PAGE; key++) {
            float p = s.p[i][key];
            if (!(p < 0)) sum = fmaf(p, j.tile[key * (dim + 1) + e % dim], sum);
        }
        o[k] = sum;
    }
}

/* o[k]: element e = threadIdx.x + k*THREADS of the queries' sums, [n][dim] */
DEV void attend(const attend_args &a, const attend_job &j, attend_shared &s, float o[PER_THREAD])
{
    UNROLL for (uint32_t k = 0; k < PER_THREAD; k++) o[k] = 0;
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

DEV void store_rows(const attend_args &a, const attend_job &j, const attend_shared &s, const float *o)
{
    uint32_t dim = a.kv.dim;
    UNROLL for (uint32_t k = 0; k < PER_THREAD; k++) {
        uint32_t e = threadIdx.x + k * THREADS, i = e / dim;
        if (e >= j.n * dim) break;
        uint64_t head = static_cast<uint64_t>(s.row[i]) * a.heads + s.head[i];
        at<float>(a.y)[head * dim + e % dim] = o[k] * (1.0f / s.l[i]);
    }
}
#endif
