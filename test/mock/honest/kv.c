/* kv - which page holds which positions: the caller's side.  No data moves here; pages that have two
 * holders are copied by the worker before one of them writes. */
#include "honest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- page tables ---- */

static uint32_t pages_of(uint32_t length)
{
    return length / PAGE + (length % PAGE != 0);
}

static uint32_t *page_at(const fak_program *p, uint32_t slot, uint32_t index)
{
    return &p->now.page[(size_t)slot * p->slot_pages + index];
}

static void copy_table(const fak_program *p, page_table *to, const page_table *from)
{
    memcpy(to->length, from->length, p->limits.slots * 4ul);
    memcpy(to->page, from->page, (size_t)p->limits.slots * p->slot_pages * 4ul);
    memcpy(to->refs, from->refs, p->pages * 4ul);
}

/* Everything from here to a failure can be undone. */
static void remember(fak_program *p)
{
    copy_table(p, &p->before, &p->now);
    p->copies = 0;
}

static int32_t undo(fak_program *p, uint32_t index, uint32_t slot, fak_error *e)
{
    uint32_t used = 0;
    copy_table(p, &p->now, &p->before);
    p->copies = 0;
    for (uint32_t i = 0; i < p->pages; i++) used += p->now.refs[i] > 0;
    return honest_fail(e, FAK_E_KV_FULL, index,
                       "slot %" PRIu32 " finds no page; %" PRIu32 " of %" PRIu32 " are in use",
                       slot, used, p->pages);
}

static void shorten(fak_program *p, uint32_t slot, uint32_t length)
{
    uint32_t *have = &p->now.length[slot];
    if (*have <= length) return;
    for (uint32_t i = pages_of(length); i < pages_of(*have); i++)
        p->now.refs[*page_at(p, slot, i)]--;
    *have = length;
}

/* A free page, held once from now on; -1 when there is none. */
static int take_page(fak_program *p, uint32_t *page)
{
    for (uint32_t i = 0; i < p->pages; i++) {
        if (p->now.refs[i]) continue;
        p->now.refs[i] = 1;
        *page = i;
        return 0;
    }
    return -1;
}

/* Makes positions [first, end) of a slot writable, end the new length where it is longer. */
static int own(fak_program *p, uint32_t slot, uint32_t first, uint32_t end)
{
    uint32_t have = pages_of(p->now.length[slot]);
    for (uint32_t i = first / PAGE; i < pages_of(end); i++) {
        uint32_t *page = page_at(p, slot, i), old = *page;
        if (i < have && p->now.refs[old] == 1) continue;
        if (take_page(p, page)) return -1;
        if (i >= have) continue;
        p->now.refs[old]--;
        p->copy[2 * p->copies] = old;
        p->copy[2 * p->copies + 1] = *page;
        p->copies++;
    }
    if (p->now.length[slot] < end) p->now.length[slot] = end;
    return 0;
}

int32_t honest_reserve(fak_program *p, const fak_step *step, fak_error *e)
{
    fak_span span;
    remember(p);
    for (uint32_t i = 0; i < step->span.count; i++) {
        FAK_GET(&span, step, span, i);
        if (span.slot >= p->limits.slots || span.first > p->now.length[span.slot])
            return honest_fail(e, FAK_E_ARGUMENT, i,
                               "span %" PRIu32 " begins at %" PRIu32 "; its slot ends before", i,
                               span.first);
        if (span.rows > p->limits.context - span.first)
            return honest_fail(e, FAK_E_KV_FULL, i,
                               "%" PRIu32 " positions after %" PRIu32 "; the context is %" PRIu32,
                               span.rows, span.first, p->limits.context);
    }
    for (uint32_t i = 0; i < step->span.count; i++) {
        FAK_GET(&span, step, span, i);
        shorten(p, span.slot, span.first);
    }
    for (uint32_t i = 0; i < step->span.count; i++) {
        FAK_GET(&span, step, span, i);
        if (own(p, span.slot, span.first, span.first + span.rows)) return undo(p, i, span.slot, e);
    }
    return FAK_OK;
}

void honest_send_copies(fak_program *p)
{
    for (uint32_t i = 0; i < p->copies; i++)
        honest_record(
            p->d, &(job){.kind = JOB_COPY, .p = p, .a = p->copy[2 * i], .b = p->copy[2 * i + 1]});
    p->copies = 0;
}

/* ---- sequences ---- */

static int32_t find_slot(fak_program *p, uint32_t slot, fak_error *e)
{
    int32_t s = honest_lost(p->d, e);
    if (s) return s;
    if (p->kv_layers && slot < p->limits.slots) return FAK_OK;
    return honest_fail(e, FAK_E_ARGUMENT, slot,
                       "slot %" PRIu32 " of %" PRIu32 ", with the kv of %" PRIu32 " layers", slot,
                       p->limits.slots, p->kv_layers);
}

int32_t honest_kv_clone(fak_program *p, uint32_t to, uint32_t from, uint32_t len, fak_error *e)
{
    int32_t s = find_slot(p, to > from ? to : from, e);
    if (s) return s;
    if (to == from || len > p->now.length[from])
        return honest_fail(e, FAK_E_ARGUMENT, to, "a clone of itself, or of more than there is");
    for (uint32_t i = 0; i < pages_of(len); i++) p->now.refs[*page_at(p, from, i)]++;
    shorten(p, to, 0);
    memcpy(page_at(p, to, 0), page_at(p, from, 0), p->slot_pages * 4ul);
    p->now.length[to] = len;
    return FAK_OK;
}

int32_t honest_kv_trim(fak_program *p, uint32_t slot, uint32_t len, fak_error *e)
{
    int32_t s = find_slot(p, slot, e);
    if (!s) shorten(p, slot, len);
    return s;
}

static kv_job *new_job(const fak_program *p, uint32_t slot, fak_error *e)
{
    kv_job *j = calloc(1, sizeof *j + 2ul * p->slot_pages * 4);
    if (!j)
        honest_fail(e, FAK_E_MEMORY, slot, "no host memory for a kv call");
    else
        memcpy(j->page, page_at(p, slot, 0), p->slot_pages * 4ul);
    return j;
}

int32_t honest_kv_evict(fak_program *p, uint32_t slot, uint32_t first, uint32_t len, fak_error *e)
{
    int32_t s = find_slot(p, slot, e);
    if (s) return s;
    uint32_t had = p->now.length[slot];
    if (!(p->flags & FAK_EVICTABLE) || first > had || len > had - first)
        return honest_fail(e, FAK_E_ARGUMENT, slot,
                           "evicts [%" PRIu32 ", +%" PRIu32 ") of %" PRIu32 ", or without raw keys",
                           first, len, had);
    kv_job *j = new_job(p, slot, e);
    if (!j) return FAK_E_MEMORY;
    remember(p);
    if (first < had - len && own(p, slot, first, had - len)) {
        free(j);
        return undo(p, slot, slot, e);
    }
    honest_send_copies(p); /* what stays of the first page, and more than is needed of the others */
    *j = (kv_job){.first = first, .count = len, .end = had - len};
    memcpy(j->page, &p->before.page[(size_t)slot * p->slot_pages], p->slot_pages * 4ul);
    memcpy(j->page + p->slot_pages, page_at(p, slot, 0), p->slot_pages * 4ul);
    honest_record(p->d, &(job){.kind = JOB_EVICT, .p = p, .kv = j});
    shorten(p, slot, had - len);
    return FAK_OK;
}

static uint32_t layer_cols(const fak_program *p, uint32_t layer)
{
    uint32_t operand[3];
    for (uint32_t i = 0; layer < p->layers && i < p->ops; i++)
        if (p->taken[i] && honest_appends(&p->op[i], operand) &&
            p->op[i].layer == p->layer_at[layer])
            return p->op[i].kv_heads * p->op[i].head_dim;
    return 0;
}

static int32_t find_rows(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first,
                         uint32_t len, kv_job **j, fak_error *e)
{
    uint32_t cols = layer_cols(p, layer);
    int32_t s = find_slot(p, slot, e);
    if (s) return s;
    if (!cols || first > p->now.length[slot] || len > p->limits.context - first)
        return honest_fail(e, FAK_E_ARGUMENT, slot,
                           "layer %" PRIu32 ", positions [%" PRIu32 ", +%" PRIu32 ") are not here",
                           layer, first, len);
    *j = new_job(p, slot, e);
    if (!*j) return FAK_E_MEMORY;
    (*j)->layer = p->layer_at[layer];
    (*j)->first = first;
    (*j)->count = len;
    (*j)->cols = cols;
    return FAK_OK;
}

int32_t honest_kv_read(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                       void *k, void *v, uint64_t *ticket, fak_error *e)
{
    kv_job *j;
    int32_t s = find_rows(p, slot, layer, first, len, &j, e);
    if (s) return s;
    j->k = k;
    j->v = v;
    pthread_mutex_lock(&p->d->lock);
    p->d->stats.bytes_down += 8ull * len * j->cols;
    pthread_mutex_unlock(&p->d->lock);
    *ticket = honest_record(p->d, &(job){.kind = JOB_KV_READ, .p = p, .kv = j});
    honest_submit(p->d);
    return FAK_OK;
}

int32_t honest_kv_write(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                        const void *k, const void *v, fak_error *e)
{
    kv_job *j;
    int32_t s = find_rows(p, slot, layer, first, len, &j, e);
    if (s) return s;
    size_t bytes = (size_t)len * j->cols * 4;
    char *copy = malloc(2 * bytes + 1);
    remember(p);
    if (!copy)
        s = honest_fail(e, FAK_E_MEMORY, slot, "no host memory for %zu bytes", 2 * bytes);
    else if (own(p, slot, first, first + len))
        s = undo(p, slot, slot, e);
    if (s) {
        free(copy);
        free(j);
        return s;
    }
    memcpy(copy, k, bytes);
    memcpy(copy + bytes, v, bytes);
    j->k = (float *)(void *)copy;
    j->v = (float *)(void *)(copy + bytes);
    memcpy(j->page, page_at(p, slot, 0), p->slot_pages * 4ul);
    honest_send_copies(p);
    honest_record(p->d, &(job){.kind = JOB_KV_WRITE, .p = p, .kv = j});
    pthread_mutex_lock(&p->d->lock);
    p->d->stats.bytes_up += 2 * bytes;
    pthread_mutex_unlock(&p->d->lock);
    return FAK_OK;
}
