/* pages - which page of the kv holds which positions of a slot.  Numbers only: no data moves here; what must
 * be copied before a step writes is in a list. */
#include "vk.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

uint32_t vk_pages_of(uint32_t positions)
{
    return positions / PAGE + (positions % PAGE != 0);
}

uint32_t *vk_page_at(const kv_pages *g, const page_table *t, uint32_t slot, uint32_t index)
{
    return &t->page[(size_t)slot * g->slot_pages + index];
}

/* ---- tables ---- */

int32_t vk_pages_make(kv_pages *g, uint32_t slots, uint32_t context, uint32_t count, fak_error *e)
{
    page_table *const both[] = {&g->now, &g->before};
    int failed = 0;
    g->slots = slots;
    g->context = context;
    g->slot_pages = vk_pages_of(context);
    g->count = count;
    for (int i = 0; i < 2; i++) {
        both[i]->length = calloc(slots + 1ul, 4);
        both[i]->page = calloc((size_t)slots * g->slot_pages + 1, 4);
        both[i]->refs = calloc(count + 1ul, 4);
        failed |= !both[i]->length || !both[i]->page || !both[i]->refs;
    }
    g->copy = calloc(2 * (count + 1ul), 4);
    if (!failed && g->copy) return FAK_OK;
    return vk_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for page tables");
}

void vk_pages_free(kv_pages *g)
{
    void *own[] = {g->now.length,  g->now.page,    g->now.refs, g->before.length,
                   g->before.page, g->before.refs, g->copy};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) free(own[i]);
}

static void copy_table(const kv_pages *g, page_table *to, const page_table *from)
{
    memcpy(to->length, from->length, g->slots * 4ul);
    memcpy(to->page, from->page, (size_t)g->slots * g->slot_pages * 4ul);
    memcpy(to->refs, from->refs, g->count * 4ul);
}

void vk_pages_remember(kv_pages *g)
{
    copy_table(g, &g->before, &g->now);
    g->copies = 0;
}

void vk_pages_restore(kv_pages *g)
{
    copy_table(g, &g->now, &g->before);
    g->copies = 0;
}

int32_t vk_pages_undo(kv_pages *g, uint32_t index, uint32_t slot, fak_error *e)
{
    uint32_t used = 0;
    vk_pages_restore(g);
    for (uint32_t i = 0; i < g->count; i++) used += g->now.refs[i] > 0;
    return vk_fail(e, FAK_E_KV_FULL, index,
                   "slot %" PRIu32 " finds no page of kv; %" PRIu32 " of %" PRIu32 " are in use",
                   slot, used, g->count);
}

/* ---- pages ---- */

void vk_pages_shorten(kv_pages *g, uint32_t slot, uint32_t length)
{
    uint32_t *have = &g->now.length[slot];
    if (*have <= length) return;
    for (uint32_t i = vk_pages_of(length); i < vk_pages_of(*have); i++)
        g->now.refs[*vk_page_at(g, &g->now, slot, i)]--;
    *have = length;
}

/* A free page, held once from now on; -1 when there is none. */
static int take_page(kv_pages *g, uint32_t *page)
{
    for (uint32_t i = 0; i < g->count; i++, g->hint++) {
        if (g->hint >= g->count) g->hint = 0;
        if (g->now.refs[g->hint]) continue;
        g->now.refs[g->hint] = 1;
        *page = g->hint;
        return 0;
    }
    return -1;
}

int vk_pages_own(kv_pages *g, uint32_t slot, uint32_t first, uint32_t end)
{
    uint32_t have = vk_pages_of(g->now.length[slot]);
    for (uint32_t i = first / PAGE; i < vk_pages_of(end); i++) {
        uint32_t *page = vk_page_at(g, &g->now, slot, i), old = *page;
        if (i < have && g->now.refs[old] == 1) continue;
        if (take_page(g, page)) return -1;
        if (i >= have) continue;
        g->now.refs[old]--;
        g->copy[2 * g->copies] = old;
        g->copy[2 * g->copies + 1] = *page;
        g->copies++;
    }
    if (g->now.length[slot] < end) g->now.length[slot] = end;
    return 0;
}

int32_t vk_pages_reserve(kv_pages *g, const fak_step *step, fak_error *e)
{
    fak_span span;
    vk_pages_remember(g);
    for (uint32_t i = 0; i < step->span.count; i++) {
        FAK_GET(&span, step, span, i);
        if (span.slot >= g->slots || span.first > g->now.length[span.slot])
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
