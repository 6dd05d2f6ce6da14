/* kv - clones, trims, evictions, rows of the kv in and out.  Pages are numbers (pages.c); the device only
 * copies a page before one of its holders writes, and moves what survives an eviction. */
#include "program.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- pages ---- */

enum { COPIED_TOGETHER = 64 };

typedef struct page_place { /* in a layer */
    const block *in;
    uint64_t keys, values, raw; /* bytes into it */
} page_place;

static page_place find_page(const fak_program *p, const kv_layer *l, uint32_t page)
{
    uint32_t piece = page / l->piece_pages, first = piece * l->piece_pages;
    uint32_t rest = p->pages.count - first, pages = rest < l->piece_pages ? rest : l->piece_pages;
    const place *at = &l->piece[piece];
    uint64_t bytes = 4ull * l->page_words;
    return (page_place){&p->store.at[at->block], at->at + (page - first) * bytes,
                        at->at + (pages + page - first) * bytes,
                        at->at + 2 * pages * bytes + (page - first) * 4ull * PAGE * l->cols};
}

static void copy_page(const fak_program *p, VkCommandBuffer cb, const kv_layer *l, uint32_t from,
                      uint32_t to)
{
    page_place a = find_page(p, l, from), b = find_page(p, l, to);
    const VkBufferCopy part[] = {{a.keys, b.keys, 4ull * l->page_words},
                                 {a.values, b.values, 4ull * l->page_words},
                                 {a.raw, b.raw, 4ull * PAGE * l->cols}};
    vkCmdCopyBuffer(cb, a.in->vk, b.in->vk, l->keeps_raw ? 3 : 2, part);
}

int32_t vk_copy_pages(fak_program *p, fak_error *e)
{
    kv_pages *g = &p->pages;
    int32_t s = FAK_OK;
    for (uint32_t i = 0, end; !s && i < g->copies; i = end) {
        ring_part *t;
        end = g->copies - i < COPIED_TOGETHER ? g->copies : i + COPIED_TOGETHER;
        s = vk_slot_begin(p, &p->queue.eager, &t, e);
        if (s) return s;
        for (uint32_t k = 0; k < p->layers * (end - i); k++) {
            const uint32_t *pair = &g->copy[2 * (i + k % (end - i))];
            copy_page(p, t->cb, &p->layer[k / (end - i)], pair[0], pair[1]);
        }
        s = vk_slot_end(p, t, 0, 0, e);
    }
    return s;
}

/* ---- sequences ---- */

static int32_t find_slot(fak_program *p, uint32_t slot, fak_error *e)
{
    int32_t s = vk_lost(p->d, e);
    if (s) return s;
    if (p->layers && slot < p->limits.slots) return FAK_OK;
    return vk_fail(e, FAK_E_ARGUMENT, slot,
                   "slot %" PRIu32 " of %" PRIu32 ", with the kv of %" PRIu32 " layers", slot,
                   p->limits.slots, p->layers);
}

int32_t vk_kv_clone(fak_program *p, uint32_t to, uint32_t from, uint32_t len, fak_error *e)
{
    kv_pages *g = &p->pages;
    int32_t s = find_slot(p, to > from ? to : from, e);
    if (s) return s;
    if (to == from || len > g->length[from])
        return vk_fail(e, FAK_E_ARGUMENT, to, "a clone of itself, or of more than there is");
    vk_pages_remember(g);
    for (uint32_t i = 0; i < vk_pages_of(len); i++) g->refs[*vk_page_at(g, from, i)]++;
    vk_pages_shorten(g, to, 0);
    memcpy(vk_page_at(g, to, 0), vk_page_at(g, from, 0), g->slot_pages * 4ul);
    g->length[to] = len;
    return FAK_OK;
}

int32_t vk_kv_trim(fak_program *p, uint32_t slot, uint32_t len, fak_error *e)
{
    int32_t s = find_slot(p, slot, e);
    vk_pages_remember(&p->pages);
    if (!s) vk_pages_shorten(&p->pages, slot, len);
    return s;
}

/* ---- eviction ---- */

/* Moves [to, to + rows) of a slot down from `by` further on: all is read before any is written. */
static int32_t move_down(fak_program *p, uint32_t slot, uint32_t to, uint32_t rows, uint32_t by,
                         fak_error *e)
{
    const kv_pages *g = &p->pages;
    const step_words *w = &p->side_words;
    uint32_t *step = p->side_step;
    ring_part *t;
    vk_write_head(p, step, w, rows, 0, 0); /* the pages before stand already */
    memcpy(step + w->page + g->slot_pages, vk_page_at(g, slot, 0), g->slot_pages * 4ul);
    for (uint32_t r = 0; r < rows; r++) {
        const uint32_t row[4] = {w->page, w->page + g->slot_pages, to + r, to + r + by};
        memcpy(step + w->row + 4 * r, row, sizeof row);
    }
    int32_t s = vk_upload(p, &p->store.at[p->side.block], p->side.at, step, w->state * 4ull, e);
    if (!s) s = vk_slot_begin(p, &p->queue.eager, &t, e);
    if (s) return s;
    uint32_t n = vk_record(p, t->cb, p->evict_job, p->job_count, SHAPE_ONE);
    return vk_slot_end(p, t, n, 0, e);
}

int32_t vk_kv_evict(fak_program *p, uint32_t slot, uint32_t first, uint32_t len, fak_error *e)
{
    kv_pages *g = &p->pages;
    int32_t s = find_slot(p, slot, e);
    if (s) return s;
    uint32_t had = g->length[slot];
    if (!(p->flags & FAK_EVICTABLE) || first > had || len > had - first)
        return vk_fail(e, FAK_E_ARGUMENT, slot,
                       "evicts [%" PRIu32 ", +%" PRIu32 ") of %" PRIu32 ", or without raw keys",
                       first, len, had);
    vk_pages_remember(g);
    memcpy(p->side_step + p->side_words.page, vk_page_at(g, slot, 0), g->slot_pages * 4ul);
    if (first < had - len && vk_pages_own(g, slot, first, had - len))
        return vk_pages_undo(g, slot, slot, e);
    s = vk_copy_pages(p, e); /* what stays of the first page, and more than is needed of others */
    for (uint32_t at = first, n; !s && len && at < had - len; at += n) {
        n = had - len - at < p->side_rows ? had - len - at : p->side_rows;
        s = move_down(p, slot, at, n, len, e);
    }
    if (s)
        vk_pages_restore(g);
    else
        vk_pages_shorten(g, slot, had - len);
    return s;
}

/* ---- rows of a layer ---- */

static int32_t find_layer(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first,
                          uint32_t len, const kv_layer **l, fak_error *e)
{
    int32_t s = find_slot(p, slot, e);
    if (s) return s;
    *l = vk_layer(p, layer);
    if (*l && first <= p->pages.length[slot] && len <= p->limits.context - first) return FAK_OK;
    return vk_fail(e, FAK_E_ARGUMENT, slot,
                   "layer %" PRIu32 ", positions [%" PRIu32 ", +%" PRIu32 ") are not here", layer,
                   first, len);
}

typedef struct run { /* positions in one page */
    const block *in;
    uint64_t key, value, bytes;
    uint32_t positions;
} run;

/* The positions from `at` on that lie in one page, before `end`. */
static run find_run(const fak_program *p, const kv_layer *l, uint32_t slot, uint32_t at,
                    uint32_t end)
{
    page_place page = find_page(p, l, *vk_page_at(&p->pages, slot, at / PAGE));
    uint32_t n = PAGE - at % PAGE;
    uint64_t row = l->cols * vk_element_bytes(p->limits.kv_dtype), first = at % PAGE * row;
    if (n > end - at) n = end - at;
    return (run){page.in, page.keys + first, page.values + first, n * row, n};
}

int32_t vk_kv_read(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                   void *k, void *v, uint64_t *ticket, fak_error *e)
{
    const kv_layer *l;
    uint32_t dtype = p->limits.kv_dtype;
    int32_t s = find_layer(p, slot, layer, first, len, &l, e);
    if (s) return s;
    run r;
    if (first + len > p->pages.length[slot])
        return vk_fail(e, FAK_E_ARGUMENT, slot, "the slot ends before position %" PRIu32,
                       first + len);
    for (uint32_t at = first; !s && at < first + len; at += r.positions) {
        uint64_t done = (uint64_t)(at - first) * l->cols;
        r = find_run(p, l, slot, at, first + len);
        s = vk_download(p, r.in, r.key, r.bytes, (float *)k + done, dtype, e);
        if (!s) s = vk_download(p, r.in, r.value, r.bytes, (float *)v + done, dtype, e);
    }
    if (!s) s = vk_flush(p, e);
    if (s) {
        vk_slot_forget(p, k, 4ull * len * l->cols);
        vk_slot_forget(p, v, 4ull * len * l->cols);
        return s;
    }
    *ticket = p->d->submitted;
    vk_count(p->d, &p->d->stats.bytes_down, 8ull * len * l->cols);
    return FAK_OK;
}

static int32_t write_rows(fak_program *p, const kv_layer *l, uint32_t slot, uint32_t first,
                          uint32_t len, const float *k, const float *v, char *narrow, fak_error *e)
{
    uint32_t dtype = p->limits.kv_dtype;
    int32_t s = FAK_OK;
    run r;
    for (uint32_t at = first; !s && at < first + len; at += r.positions) {
        uint64_t done = (uint64_t)(at - first) * l->cols;
        r = find_run(p, l, slot, at, first + len);
        vk_narrow(dtype, (uint64_t)r.positions * l->cols, k + done, narrow);
        s = vk_upload(p, r.in, r.key, narrow, r.bytes, e);
        vk_narrow(dtype, (uint64_t)r.positions * l->cols, v + done, narrow);
        if (!s) s = vk_upload(p, r.in, r.value, narrow, r.bytes, e);
    }
    return s;
}

int32_t vk_kv_write(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                    const void *k, const void *v, fak_error *e)
{
    const kv_layer *l;
    kv_pages *g = &p->pages;
    int32_t s = find_layer(p, slot, layer, first, len, &l, e);
    if (s) return s;
    vk_pages_remember(g);
    if (vk_pages_own(g, slot, first, first + len)) return vk_pages_undo(g, slot, slot, e);
    char *narrow = malloc(PAGE * 4ul * l->cols);
    if (!narrow) s = vk_fail(e, FAK_E_MEMORY, slot, "no host memory for a page of kv");
    if (!s) s = vk_copy_pages(p, e);
    if (!s) s = write_rows(p, l, slot, first, len, k, v, narrow, e);
    free(narrow);
    if (s)
        vk_pages_restore(g);
    else
        vk_count(p->d, &p->d->stats.bytes_up, 8ull * len * l->cols);
    return s;
}
