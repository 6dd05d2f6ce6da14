/* kv - clones, trims, evictions, rows of the kv in and out.  Pages are numbers (pages.c); the device only
 * copies a page before one of its holders writes, and moves what survives an eviction. */
#include "vk.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- beside a step ---- */

/* Sends the words of the side's step that are set, then runs jobs [first, end) with it. */
static int32_t run_beside(fak_program *p, uint32_t words, uint32_t first, uint32_t end,
                          fak_error *e)
{
    ring_part *t;
    int32_t s =
        vk_upload(p, &p->store.at[p->side.block], p->side.at, p->side_step, words * 4ull, e);
    if (!s) s = vk_slot_begin(p, &p->queue.eager, &t, e);
    if (s) return s;
    uint32_t n = vk_record(p, t->cb, first, end, SHAPE_ONE);
    return vk_slot_end(p, t, n, e);
}

int32_t vk_copy_pages(fak_program *p, fak_error *e)
{
    kv_pages *g = &p->pages;
    int32_t s = FAK_OK;
    for (uint32_t i = 0, n; !s && i < g->copies; i += n) {
        n = g->copies - i < p->side_copies ? g->copies - i : p->side_copies;
        vk_write_head(p, p->side_step, &p->side_words, 0, 0, 0, n);
        memcpy(p->side_step + p->side_words.copy, g->copy + 2 * i, 8ul * n);
        s = run_beside(p, p->side_words.all, p->copy_job, p->copy_job + p->layers, e);
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
    if (to == from || len > g->now.length[from])
        return vk_fail(e, FAK_E_ARGUMENT, to, "a clone of itself, or of more than there is");
    for (uint32_t i = 0; i < vk_pages_of(len); i++) g->now.refs[*vk_page_at(g, &g->now, from, i)]++;
    vk_pages_shorten(g, to, 0);
    memcpy(vk_page_at(g, &g->now, to, 0), vk_page_at(g, &g->now, from, 0), g->slot_pages * 4ul);
    g->now.length[to] = len;
    return FAK_OK;
}

int32_t vk_kv_trim(fak_program *p, uint32_t slot, uint32_t len, fak_error *e)
{
    int32_t s = find_slot(p, slot, e);
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
    uint32_t *step = p->side_step, pages_bytes = g->slot_pages * 4;
    vk_write_head(p, step, w, rows, 0, 0, 0);
    memcpy(step + w->page, vk_page_at(g, &g->before, slot, 0), pages_bytes);
    memcpy(step + w->page + g->slot_pages, vk_page_at(g, &g->now, slot, 0), pages_bytes);
    for (uint32_t r = 0; r < rows; r++) {
        const uint32_t row[4] = {w->page, w->page + g->slot_pages, to + r, to + r + by};
        memcpy(step + w->row + 4 * r, row, sizeof row);
    }
    return run_beside(p, w->copy, p->evict_job, p->evict_job + 2 * p->layers, e);
}

int32_t vk_kv_evict(fak_program *p, uint32_t slot, uint32_t first, uint32_t len, fak_error *e)
{
    kv_pages *g = &p->pages;
    int32_t s = find_slot(p, slot, e);
    if (s) return s;
    uint32_t had = g->now.length[slot];
    if (!(p->flags & FAK_EVICTABLE) || first > had || len > had - first)
        return vk_fail(e, FAK_E_ARGUMENT, slot,
                       "evicts [%" PRIu32 ", +%" PRIu32 ") of %" PRIu32 ", or without raw keys",
                       first, len, had);
    vk_pages_remember(g);
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
    if (*l && first <= p->pages.now.length[slot] && len <= p->limits.context - first) return FAK_OK;
    return vk_fail(e, FAK_E_ARGUMENT, slot,
                   "layer %" PRIu32 ", positions [%" PRIu32 ", +%" PRIu32 ") are not here", layer,
                   first, len);
}

typedef struct run {
    uint64_t key, value, bytes;
    uint32_t positions;
} run; /* in one page */

/* The positions from `at` on that lie in one page, before `end`. */
static run find_run(const fak_program *p, const kv_layer *l, uint32_t slot, uint32_t at,
                    uint32_t end)
{
    const kv_pages *g = &p->pages;
    uint32_t n = PAGE - at % PAGE, row = l->cols * vk_element_bytes(p->limits.kv_dtype);
    uint64_t cell = *vk_page_at(g, &g->now, slot, at / PAGE) * (uint64_t)PAGE + at % PAGE;
    if (n > end - at) n = end - at;
    return (run){l->at.at + cell * row, l->at.at + 4ull * l->values + cell * row, (uint64_t)n * row,
                 n};
}

int32_t vk_kv_read(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                   void *k, void *v, uint64_t *ticket, fak_error *e)
{
    const kv_layer *l;
    uint32_t dtype = p->limits.kv_dtype;
    int32_t s = find_layer(p, slot, layer, first, len, &l, e);
    if (s) return s;
    const block *from = &p->store.at[l->at.block];
    run r;
    if (first + len > p->pages.now.length[slot])
        return vk_fail(e, FAK_E_ARGUMENT, slot, "the slot ends before position %" PRIu32,
                       first + len);
    for (uint32_t at = first; !s && at < first + len; at += r.positions) {
        uint64_t done = (uint64_t)(at - first) * l->cols;
        r = find_run(p, l, slot, at, first + len);
        s = vk_download(p, from, r.key, r.bytes, (float *)k + done, dtype, e);
        if (!s) s = vk_download(p, from, r.value, r.bytes, (float *)v + done, dtype, e);
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
    const block *to = &p->store.at[l->at.block];
    uint32_t dtype = p->limits.kv_dtype;
    int32_t s = FAK_OK;
    run r;
    for (uint32_t at = first; !s && at < first + len; at += r.positions) {
        uint64_t done = (uint64_t)(at - first) * l->cols;
        r = find_run(p, l, slot, at, first + len);
        vk_narrow(dtype, (uint64_t)r.positions * l->cols, k + done, narrow);
        s = vk_upload(p, to, r.key, narrow, r.bytes, e);
        vk_narrow(dtype, (uint64_t)r.positions * l->cols, v + done, narrow);
        if (!s) s = vk_upload(p, to, r.value, narrow, r.bytes, e);
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
