/* kv outside of steps.
 * kv_copy   a page to another, in all layers.  grid (words of a page / THREADS, layers)
 * kv_evict  later positions of a layer move down, their keys rotated anew.  grid (kv heads)
 * kv_get, kv_put  rows of a layer to and from F32 in host memory.  grid (columns / THREADS, rows) */
#include "kv.h"

KERNEL(kv_copy, copy_args)
{
    uint64_t i = static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x, layer = blockIdx.y;
    if (i < a.page_words) {
        uint64_t to = layer * a.layer_words + static_cast<uint64_t>(a.to) * a.page_words + i;
        uint64_t from = layer * a.layer_words + static_cast<uint64_t>(a.from) * a.page_words + i;
        at<uint32_t>(a.k)[to] = at<const uint32_t>(a.k)[from];
        at<uint32_t>(a.v)[to] = at<const uint32_t>(a.v)[from];
    }
    if (a.raw && i < a.raw_page_words) {
        uint64_t base = layer * a.raw_layer_words + i;
        at<uint32_t>(a.raw)[base + static_cast<uint64_t>(a.to) * a.raw_page_words] =
            at<const uint32_t>(a.raw)[base + static_cast<uint64_t>(a.from) * a.raw_page_words];
    }
}

/* Rows [first, first + n) of raw keys or of values, from `count` further on, into memory. */
DEV void lift(const evict_args &a, gpu_ptr base, bool raw, uint32_t first, uint32_t n, float *memory)
{
    const uint32_t *from = at<const uint32_t>(a.pages);
    uint32_t dim = a.kv.dim;
    for (uint32_t e = threadIdx.x; e < n * dim; e += THREADS) {
        uint32_t pos = first + a.count + e / dim;
        uint64_t at_row = kv_index(a.kv, from[pos / KV_PAGE], blockIdx.x, pos) + e % dim;
        memory[e] = raw ? at<const float>(base)[at_row] : kv_load(a.kv, base, at_row);
    }
}

KERNEL(kv_evict, evict_args)
{
    DYNAMIC(float, memory); /* [KV_PAGE][dim] */
    const uint32_t *to = at<const uint32_t>(a.pages) + a.slot_pages;
    uint32_t dim = a.kv.dim;
    for (uint32_t first = a.first, n; first < a.end; first += n) { /* rising: none is lost */
        n = least(a.end - first, KV_PAGE);
        lift(a, a.kv.raw, true, first, n, memory);
        __syncthreads();
        for (uint32_t e = threadIdx.x; e < n * dim; e += THREADS) {
            uint32_t pos = first + e / dim, i = e % dim;
            uint64_t row = kv_index(a.kv, to[pos / KV_PAGE], blockIdx.x, pos);
            const float *tab = at<const float>(a.tab) + static_cast<uint64_t>(pos) * a.rot;
            at<float>(a.kv.raw)[row + i] = memory[e];
            kv_store(a.kv, a.kv.k, row + i, rotated(memory + e - i, tab, i, dim, a.rot));
        }
        __syncthreads();
        lift(a, a.kv.v, false, first, n, memory); /* what a thread lifts of v it puts down itself */
        __syncthreads();
        for (uint32_t e = threadIdx.x; e < n * dim; e += THREADS) {
            uint32_t pos = first + e / dim;
            uint64_t row = kv_index(a.kv, to[pos / KV_PAGE], blockIdx.x, pos);
            kv_store(a.kv, a.kv.v, row + e % dim, memory[e]);
        }
    }
}

/* Where element i of row r lies. */
DEV uint64_t element_of(const move_args &a, uint32_t r, uint32_t i)
{
    uint32_t pos = a.first + r, page = at<const uint32_t>(a.pages)[pos / KV_PAGE];
    return kv_index(a.kv, page, i / a.kv.dim, pos) + i % a.kv.dim;
}

KERNEL(kv_get, move_args)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, r = blockIdx.y, cols = a.kv.heads * a.kv.dim;
    if (i >= cols) return;
    uint64_t e = static_cast<uint64_t>(r) * cols + i, from = element_of(a, r, i);
    at<float>(a.k)[e] = kv_load(a.kv, a.kv.k, from);
    at<float>(a.v)[e] = kv_load(a.kv, a.kv.v, from);
}

KERNEL(kv_put, move_args)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, r = blockIdx.y, cols = a.kv.heads * a.kv.dim;
    if (i >= cols) return;
    uint64_t e = static_cast<uint64_t>(r) * cols + i, to = element_of(a, r, i);
    kv_store(a.kv, a.kv.k, to, at<const float>(a.k)[e]);
    kv_store(a.kv, a.kv.v, to, at<const float>(a.v)[e]);
}
