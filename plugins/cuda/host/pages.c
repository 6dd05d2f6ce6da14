/* pages - which page of kv holds which positions of a slot.  No data moves here; a page that two slots hold
 * is copied on the card before one of them writes into it. */
#include "cuda.h"

#include <inttypes.h>
#include <string.h>

uint32_t cuda_pages(uint32_t positions)
{
    return positions / KV_PAGE + (positions % KV_PAGE != 0);
}

uint32_t *cuda_page_at(const fak_program *p, uint32_t slot, uint32_t index)
{
    return &p->kv.now.page[(size_t)slot * p->kv.slot_pages + index];
}

static void copy_table(const fak_program *p, page_table *to, const page_table *from)
{
    memcpy(to->length, from->length, p->limits.slots * 4ul);
    memcpy(to->page, from->page, (size_t)p->limits.slots * p->kv.slot_pages * 4ul);
    memcpy(to->refs, from->refs, p->kv.pages * 4ul);
}

void cuda_remember(fak_program *p)
{
    copy_table(p, &p->kv.before, &p->kv.now);
    p->kv.copies = 0;
}

int32_t cuda_undo(fak_program *p, uint32_t index, uint32_t slot, fak_error *e)
{
    uint32_t used = 0;
    copy_table(p, &p->kv.now, &p->kv.before);
    p->kv.copies = 0;
    for (uint32_t i = 0; i < p->kv.pages; i++) used += p->kv.now.refs[i] > 0;
    return cuda_fail(e, FAK_E_KV_FULL, index,
                     "slot %" PRIu32 " finds no page of kv; %" PRIu32 " of %" PRIu32 " are in use",
                     slot, used, p->kv.pages);
}

void cuda_shorten(fak_program *p, uint32_t slot, uint32_t length)
{
    uint32_t *have = &p->kv.now.length[slot];
    if (*have <= length) return;
    for (uint32_t i = cuda_pages(length); i < cuda_pages(*have); i++)
        p->kv.now.refs[*cuda_page_at(p, slot, i)]--;
    *have = length;
}

/* A free page, held once from now on; -1 when there is none. */
static int take_page(fak_program *p, uint32_t *page)
{
    for (uint32_t i = 0; i < p->kv.pages; i++) {
        if (p->kv.now.refs[i]) continue;
        p->kv.now.refs[i] = 1;
        *page = i;
        return 0;
    }
    return -1;
}

/* Makes positions [first, end) of a slot writable, end the new length where it is longer. */
int cuda_own(fak_program *p, uint32_t slot, uint32_t first, uint32_t end)
{
    kv_store *kv = &p->kv;
    uint32_t have = cuda_pages(kv->now.length[slot]);
    for (uint32_t i = first / KV_PAGE; i < cuda_pages(end); i++) {
        uint32_t *page = cuda_page_at(p, slot, i), old = *page;
        if (i < have && kv->now.refs[old] == 1) continue;
        if (take_page(p, page)) return -1;
        if (i >= have) continue;
        kv->now.refs[old]--;
        kv->copy[2 * kv->copies] = old;
        kv->copy[2 * kv->copies + 1] = *page;
        kv->copies++;
    }
    if (kv->now.length[slot] < end) kv->now.length[slot] = end;
    return 0;
}

int32_t cuda_reserve(fak_program *p, const fak_step *st, fak_error *e)
{
    fak_span s;
    cuda_remember(p);
    for (uint32_t i = 0; i < st->span.count; i++) {
        FAK_GET(&s, st, span, i);
        if (s.slot >= p->limits.slots || s.first > p->kv.now.length[s.slot])
            return cuda_fail(e, FAK_E_ARGUMENT, i,
                             "span %" PRIu32 " begins at %" PRIu32 "; its slot ends before", i,
                             s.first);
        if (s.rows > p->limits.context - s.first)
            return cuda_fail(e, FAK_E_KV_FULL, i,
                             "%" PRIu32 " positions after %" PRIu32 "; the context is %" PRIu32,
                             s.rows, s.first, p->limits.context);
    }
    for (uint32_t i = 0; i < st->span.count; i++) {
        FAK_GET(&s, st, span, i);
        cuda_shorten(p, s.slot, s.first);
    }
    for (uint32_t i = 0; i < st->span.count; i++) {
        FAK_GET(&s, st, span, i);
        if (cuda_own(p, s.slot, s.first, s.first + s.rows)) return cuda_undo(p, i, s.slot, e);
    }
    return FAK_OK;
}

int32_t cuda_send_copies(fak_program *p, fak_error *e)
{
    const kv_store *kv = &p->kv;
    uint64_t elements = (uint64_t)kv->heads * kv->dim * KV_PAGE;
    copy_args a = {.k = kv->k, .v = kv->v, .raw = kv->raw};
    a.page_words = (uint32_t)(elements * kv->element / 4);
    a.raw_page_words = (uint32_t)elements;
    a.layer_words = (uint64_t)a.page_words * kv->pages;
    a.raw_layer_words = elements * kv->pages;
    uint32_t widest = kv->raw ? a.raw_page_words : a.page_words;
    int32_t s = FAK_OK;
    for (uint32_t i = 0; !s && i < kv->copies; i++) {
        a.from = kv->copy[2 * i];
        a.to = kv->copy[2 * i + 1];
        gpu_grid grid = {(widest + THREADS - 1) / THREADS, kv->layers, 1, 0};
        s = gpu_launch(p->d->g, KERNEL_kv_copy, grid, &a, e);
    }
    p->kv.copies = 0;
    return s;
}
