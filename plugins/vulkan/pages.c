/* pages - which page of the kv holds which positions of a slot.  Numbers only: no data moves here; what must
 * be copied before a step writes is in a list. */
#include "program.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

uint32_t vk_pages_of(uint32_t positions)
{
    return positions / PAGE + (positions % PAGE != 0);
}

uint32_t *vk_page_at(const kv_pages *g, uint32_t slot, uint32_t index)
{
    return &g->page[(size_t)slot * g->slot_pages + index];
}

/* ---- tables ---- */

/* A call changes a page's number and counts of both holders at most, and drops each page once. */
static uint64_t most_changes(uint64_t slots, uint64_t slot_pages)
{
    return slots * (4 * slot_pages + 2) + 1;
}

uint64_t vk_pages_bytes(uint32_t slots, uint32_t context, uint32_t count)
{
    uint64_t each = vk_pages_of(context);
    return 4 * (slots * (each + 1) + 3ull * count) +
           most_changes(slots, each) * (uint64_t)sizeof(page_change);
}

int32_t vk_pages_make(kv_pages *g, uint32_t slots, uint32_t context, uint32_t count, fak_error *e)
{
    g->slots = slots;
    g->context = context;
    g->slot_pages = vk_pages_of(context);
    g->count = count;
    g->change_room = (uint32_t)most_changes(slots, g->slot_pages);
    g->length = calloc(slots + 1ul, 4);
    g->page = calloc((size_t)slots * g->slot_pages + 1, 4);
    g->refs = calloc(count + 1ul, 4);
    g->change = calloc(g->change_room, sizeof *g->change);
    g->copy = calloc(2 * (count + 1ul), 4);
    if (g->length && g->page && g->refs && g->change && g->copy) return FAK_OK;
    return vk_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for page tables");
}

void vk_pages_free(kv_pages *g)
{
    void *own[] = {g->length, g->page, g->refs, g->change, g->copy};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) free(own[i]);
}

static void set(kv_pages *g, uint32_t *at, uint32_t value)
{
    assert(g->changes < g->change_room);
    g->change[g->changes++] = (page_change){at, *at};
    *at = value;
}

void vk_pages_remember(kv_pages *g)
{
    g->changes = 0;
    g->copies = 0;
}

void vk_pages_restore(kv_pages *g)
{
    while (g->changes) {
        const page_change *c = &g->change[--g->changes];
        *c->at = c->was;
    }
    g->copies = 0;
}

int32_t vk_pages_undo(kv_pages *g, uint32_t index, uint32_t slot, fak_error *e)
{
    uint32_t used = 0;
    vk_pages_restore(g);
    for (uint32_t i = 0; i < g->count; i++) used += g->refs[i] > 0;
    return vk_fail(e, FAK_E_KV_FULL, index,
                   "slot %" PRIu32 " finds no page of kv; %" PRIu32 " of %" PRIu32 " are in use",
                   slot, used, g->count);
}

/* ---- pages ---- */

void vk_pages_shorten(kv_pages *g, uint32_t slot, uint32_t length)
{
    uint32_t have = g->length[slot];
    if (have <= length) return;
    for (uint32_t i = vk_pages_of(length); i < vk_pages_of(have); i++) {
        uint32_t *refs = &g->refs[*vk_page_at(g, slot, i)];
        set(g, refs, *refs - 1);
    }
    set(g, &g->length[slot], length);
}

/* *page is a free page, held once from now on; -1 when there is none. */
static int take_page(kv_pages *g, uint32_t *page)
{
    for (uint32_t i = 0; i < g->count; i++, g->hint++) {
        if (g->hint >= g->count) g->hint = 0;
        if (g->refs[g->hint]) continue;
        set(g, &g->refs[g->hint], 1);
        set(g, page, g->hint);
        return 0;
    }
    return -1;
}

int vk_pages_own(kv_pages *g, uint32_t slot, uint32_t first, uint32_t end)
{
    uint32_t have = vk_pages_of(g->length[slot]);
    for (uint32_t i = first / PAGE; i < vk_pages_of(end); i++) {
        uint32_t *page = vk_page_at(g, slot, i), old = *page;
        if (i < have && g->refs[old] == 1) continue;
        if (take_page(g, page)) return -1;
        if (i >= have) continue;
        set(g, &g->refs[old], g->refs[old] - 1);
        g->copy[2 * g->copies] = old;
        g->copy[2 * g->copies + 1] = *page;
        g->copies++;
    }
    if (g->length[slot] < end) set(g, &g->length[slot], end);
    return 0;
}

int32_t vk_pages_reserve(kv_pages *g, const fak_step *step, fak_error *e)
{
    fak_span span;
    vk_pages_remember(g);
    for (uint32_t i = 0; i < step->span.count; i++) {
        FAK_GET(&span, step, span, i);
        if (span.slot >= g->slots || span.first > g->length[span.slot])
            return vk_fail(e, FAK_E_ARGUMENT, i,
                           "span %" PRIu32 " begins at %" PRIu32 "; its slot ends before", i,
                           span.first);
        if (span.rows > g->context - span.first)
            return vk_fail(e, FAK_E_KV_FULL, i,
                           "%" PRIu32 " positions after %" PRIu32 "; the context is %" PRIu32,
                           span.rows, span.first, g->context);
    }
    for (uint32_t i = 0; i < step->span.count; i++) { /* all frees come before any page is taken */
        FAK_GET(&span, step, span, i);
        vk_pages_shorten(g, span.slot, span.first);
    }
    for (uint32_t i = 0; i < step->span.count; i++) {
        FAK_GET(&span, step, span, i);
        if (vk_pages_own(g, span.slot, span.first, span.first + span.rows))
            return vk_pages_undo(g, i, span.slot, e);
    }
    return FAK_OK;
}
