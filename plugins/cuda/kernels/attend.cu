/* ATTENTION, flash-style.
 * attend_row    short spans: a block takes heads of one row, and one part of the keys
 *               grid (kv heads * groups of QUERIES heads, rows, splits)
 * attend_merge  adds the parts up; only where splits > 1.  grid (heads, rows)
 * attend_tile   long spans: a block takes QUERIES of a span's (row, head)s that share a kv head
 *               grid (kv heads, rows * heads of a group / QUERIES) */
#include "attend.h"

/* Does attend_tile take this span? */
DEV bool is_tiled(const step_span &span)
{
    return span.rows >= TILED_ROWS;
}

DEV float *partial_of(const attend_args &a, uint64_t row, uint32_t head, uint32_t split)
{
    return at<float>(a.partial) + ((row * a.heads + head) * a.splits + split) * (a.kv.dim + 2);
}

/* The keys that a row at a position sees, cut at pages into parts: some may have none of a short context. */
struct cut {
    uint32_t begin, end;        /* keys */
    uint32_t first, each, used; /* the first page, pages of a part, parts that have any */
};

DEV cut cut_of(const attend_args &a, uint32_t pos)
{
    cut c;
    c.end = pos + 1;
    c.begin = a.window && c.end > a.window ? c.end - a.window : 0;
    c.first = c.begin / KV_PAGE;
    uint32_t pages = (c.end + KV_PAGE - 1) / KV_PAGE - c.first;
    c.each = (pages + a.splits - 1) / a.splits;
    c.used = (pages + c.each - 1) / c.each;
    return c;
}

DEV void store_partial(const attend_args &a, const attend_job &j, const attend_shared &s,
                       uint32_t split, const sums o)
{
    EACH_QUERY (k, i, j.n) {
        float *part = partial_of(a, s.row[i], s.head[i], split);
        EACH_COLUMN (m, c, a.kv.dim)
            part[c] = o[k][m];
        if (threadIdx.x % 32) continue;
        part[a.kv.dim] = s.m[i];
        part[a.kv.dim + 1] = s.l[i];
    }
}

KERNEL(attend_row, attend_args)
{
    SHARED(attend_shared, s);
    DYNAMIC(float, memory);
    uint32_t r = blockIdx.y, group = a.heads / a.kv.heads, groups = (group + QUERIES - 1) / QUERIES;
    if (r >= rows_of(a.step, SCOPE_ROWS)) return;
    step_row row = row_of(a.step, r);
    if (is_tiled(span_of(a.step, row.span))) return;
    cut c = cut_of(a, row.pos);
    if (blockIdx.z >= c.used) return;
    uint32_t begin = (c.first + blockIdx.z * c.each) * KV_PAGE, end = begin + c.each * KV_PAGE;
    uint32_t first = blockIdx.x % groups * QUERIES, left = group - first;
    if (begin < c.begin) begin = c.begin;
    attend_job j = {least(left, QUERIES), row.span, blockIdx.x / groups, begin,
                    least(end, c.end), memory, memory + QUERIES * a.kv.dim};
    if (threadIdx.x < j.n)
        set_query(a, s, threadIdx.x, r, j.kv_head * group + first + threadIdx.x);
    sums o;
    attend(a, j, s, o);
    if (a.splits > 1)
        store_partial(a, j, s, blockIdx.z, o);
    else
        store_rows(a, j, s, o);
}

struct merge_shared {
    float weight[SPLITS], m[WARPS], l[WARPS];
};

/* What each part weighs, into s.weight: a thread a part.  Returns the sum of all weights. */
DEV float weigh_parts(const attend_args &a, uint32_t r, uint32_t h, uint32_t used, merge_shared &s)
{
    uint32_t t = threadIdx.x, warp = t / 32;
    const float *part = partial_of(a, r, h, t) + a.kv.dim;
    float mine = t < used ? part[0] : -infinity(), m = warp_max(mine);
    if (t % 32 == 0) s.m[warp] = m;
    __syncthreads();
    m = s.m[0];
    UNROLL for (uint32_t i = 1; i < WARPS; i++) m = s.m[i] > m ? s.m[i] : m;
    float against = m == -infinity() ? 0.0f : m;
    float weight = t < used ? exp_(mine - against) : 0.0f;
    float l = warp_sum(t < used ? part[1] * weight : 0.0f);
    s.weight[t] = weight;
    if (t % 32 == 0) s.l[warp] = l;
    __syncthreads();
    return (s.l[0] + s.l[1]) + (s.l[2] + s.l[3]);
}

KERNEL(attend_merge, attend_args)
{
    SHARED(merge_shared, s);
    uint32_t h = blockIdx.x, r = blockIdx.y, dim = a.kv.dim;
    if (r >= rows_of(a.step, SCOPE_ROWS)) return;
    step_row row = row_of(a.step, r);
    if (is_tiled(span_of(a.step, row.span))) return;
    uint32_t used = cut_of(a, row.pos).used;
    float inverse = 1.0f / weigh_parts(a, r, h, used, s);
    for (uint32_t c = threadIdx.x; c < dim; c += THREADS) {
        float o = 0;
        for (uint32_t i = 0; i < used; i++) o = fmaf(partial_of(a, r, h, i)[c], s.weight[i], o);
        at<float>(a.y)[(static_cast<uint64_t>(r) * a.heads + h) * dim + c] = o * inverse;
    }
}

/* Queries [from, end) of all (row, head of the group)s, which are of one span. */
DEV void attend_some(const attend_args &a, attend_shared &s, float *memory, uint32_t span,
                     uint32_t from, uint32_t end)
{
    uint32_t group = a.heads / a.kv.heads, t = threadIdx.x;
    attend_job j = {end - from, span, blockIdx.x, 0, row_of(a.step, (end - 1) / group).pos + 1,
                    memory, memory + QUERIES * a.kv.dim};
    uint32_t lowest = row_of(a.step, from / group).pos + 1;
    if (a.window && lowest > a.window) j.begin = lowest - a.window;
    if (t < j.n) set_query(a, s, t, (from + t) / group, j.kv_head * group + (from + t) % group);
    sums o;
    attend(a, j, s, o);
    store_rows(a, j, s, o);
    __syncthreads(); /* the next ones set the queries anew */
}

KERNEL(attend_tile, attend_args)
{
    SHARED(attend_shared, s);
    DYNAMIC(float, memory);
    uint32_t group = a.heads / a.kv.heads, all = rows_of(a.step, SCOPE_ROWS) * group;
    uint32_t i = blockIdx.y * QUERIES, stop = least(i + QUERIES, all);
    while (i < stop) { /* span by span */
        uint32_t number = row_of(a.step, i / group).span;
        step_span span = span_of(a.step, number);
        uint32_t end = (span.row + span.rows) * group;
        end = least(end, stop);
        if (is_tiled(span)) attend_some(a, s, memory, number, i, end);
        i = end;
    }
}
