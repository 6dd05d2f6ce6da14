/* step - begin, ops, rows out and in: what they enqueue. */
#include "program.h"

#include <inttypes.h>
#include <string.h>

/* ---- begin ---- */

void vk_write_head(const fak_program *p, uint32_t *w, const step_words *at, uint32_t rows,
                   uint32_t wanted, uint32_t flags)
{
    const uint32_t head[GRID_WORD] = {rows, wanted, flags, 0, at->row, at->wanted, at->state, 0};
    memcpy(w, head, sizeof head);
    for (uint32_t i = 0; i < p->grid_count; i++) {
        const grid *g = &p->grids[i];
        uint32_t n = g->per == PER_WANTED ? wanted : rows;
        const uint32_t size[4] = {g->x, (n + g->tile - 1) / g->tile, 1, 0};
        memcpy(w + GRID_WORD + 4 * i, size, sizeof size);
    }
}

static void write_step(const fak_program *p, uint32_t *w, const fak_step *step)
{
    vk_write_head(p, w, &p->words, step->rows, step->wanted.count, step->flags);
    for (uint32_t i = 0; i < step->span.count; i++) {
        fak_span span;
        FAK_GET(&span, step, span, i);
        uint32_t list = p->words.page + i * p->pages.slot_pages;
        for (uint32_t r = 0; r < span.rows; r++) {
            uint32_t row[4] = {0, list, span.first + r, 0};
            if (!(step->flags & FAK_TOKENS_FROM_ARGMAX))
                FAK_GET(&row[0], step, token, span.row + r);
            memcpy(w + p->words.row + 4 * (span.row + r), row, sizeof row);
        }
        if (p->layers)
            memcpy(w + list, vk_page_at(&p->pages, span.slot, 0),
                   vk_pages_of(span.first + span.rows) * 4ul);
    }
    for (uint32_t i = 0; i < step->wanted.count; i++)
        FAK_GET(&w[p->words.wanted + i], step, wanted, i);
}

/* The parts of a step that hold something go to the device; their words. */
static uint32_t copy_step(const fak_program *p, VkCommandBuffer cb, const ring_part *t,
                          uint32_t rows, uint32_t wanted, uint32_t spans)
{
    const step_words *w = &p->words;
    const uint32_t part[][2] = {{0, GRID_WORD + 4 * p->grid_count},
                                {w->row, 4 * rows},
                                {w->wanted, wanted},
                                {w->page, p->layers ? spans * p->pages.slot_pages : 0}};
    VkBufferCopy copy[4];
    uint32_t n = 0, words = 0;
    for (int i = 0; i < 4; i++) {
        if (!part[i][1]) continue;
        copy[n++] = (VkBufferCopy){t->at + 4ull * part[i][0], p->step.at + 4ull * part[i][0],
                                   4ull * part[i][1]};
        words += part[i][1];
    }
    vkCmdCopyBuffer(cb, p->queue.step.mem.vk, p->store.at[p->step.block].vk, n, copy);
    return words;
}

uint32_t vk_send_one(const fak_program *p, const ring_part *t)
{
    return copy_step(p, t->ready, t, 1, p->limits.wanted > 0, 1);
}

static int32_t send_step(fak_program *p, ring_part *t, const fak_step *step, fak_error *e)
{
    uint32_t words = t->ready_words;
    int32_t s = FAK_OK;
    if (step->rows == 1 && t->ready) {
        s = vk_enqueue(p, t->ready, 0, 0, e);
    } else {
        s = vk_commands_begin(p->d, t->cb, 1, e);
        if (s) return s;
        words = copy_step(p, t->cb, t, step->rows, step->wanted.count, step->span.count);
        s = vk_slot_end(p, t, 0, 0, e);
    }
    if (!s) vk_count(p->d, &p->d->stats.bytes_up, 4ull * words);
    return s;
}

static int32_t check_step(const fak_program *p, const fak_step *step, fak_error *e)
{
    if (step->flags & ~(uint32_t)FAK_TOKENS_FROM_ARGMAX)
        return vk_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "unknown step flags %" PRIx32,
                       step->flags);
    if (step->flags & FAK_TOKENS_FROM_ARGMAX && p->embeds && p->chained != step->rows)
        return vk_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX,
                       "the step before left the argmax of %" PRIu32 " rows, not of %" PRIu32,
                       p->chained, step->rows);
    return FAK_OK;
}

int32_t vk_begin(fak_program *p, const fak_step *step, fak_error *e)
{
    ring_part *t;
    int32_t s = vk_flush(p, e);
    if (!s) s = check_step(p, step, e);
    if (!s) s = vk_slot_next(p, &p->queue.step, &t, e);
    if (s) return s;
    if (p->layers) {
        s = vk_pages_reserve(&p->pages, step, e);
        if (s) return s;
    }
    write_step(p, (uint32_t *)(void *)t->map, step);
    if (p->layers) s = vk_copy_pages(p, e);
    if (!s) s = send_step(p, t, step, e);
    if (s) {
        if (p->layers) vk_pages_restore(&p->pages);
        return s;
    }
    p->rows = step->rows;
    p->wanted = step->wanted.count;
    p->begun = 1;
    p->chained = step->want == FAK_WANT_ARGMAX && p->argmax && p->at[p->argmax].bytes
                     ? step->wanted.count
                     : 0;
    return FAK_OK;
}

/* ---- ops ---- */

static int32_t run_now(fak_program *p, uint32_t first, uint32_t ops, uint32_t rows, fak_error *e)
{
    ring_part *t;
    int32_t s = vk_slot_begin(p, &p->queue.eager, &t, e);
    if (s) return s;
    uint32_t n =
        vk_record(p, t->cb, p->first_job[first], p->first_job[first + ops], vk_shape(rows));
    return vk_slot_end(p, t, n, rows * vk_work(p, first, ops), e);
}

int32_t vk_run(fak_program *p, uint32_t first, uint32_t ops, fak_error *e)
{
    uint32_t rows = first < p->body_ops ? p->rows : p->wanted;
    int32_t s = vk_lost(p->d, e);
    if (s) return s;
    if (!p->begun) return vk_fail(e, FAK_E_ARGUMENT, first, "an op before the first step");
    for (uint32_t i = first; i < first + ops; i++)
        if (i >= p->ops || !p->taken[i])
            return vk_fail(e, FAK_E_ARGUMENT, i, "op %" PRIu32 " was not taken", i);
    for (uint32_t i = first, end = first + ops, n; !s && i < end; i += n) {
        const recording *r = &p->range[i];
        enum shape shape = vk_shape(rows);
        n = r->ops && r->ops <= end - i ? r->ops : vk_part(p, i, end - i);
        if (n == r->ops)
            s = vk_enqueue(p, r->cb[shape], r->dispatches[shape], rows * r->work, e);
        else
            s = run_now(p, i, n, rows, e);
    }
    return s;
}

int32_t vk_call(fak_program *p, uint32_t op, fak_error *e)
{
    return vk_run(p, op, 1, e);
}

/* ---- rows ---- */

static int32_t find_rows(const fak_program *p, uint32_t value, uint32_t first, place *at,
                         fak_error *e)
{
    int32_t s = vk_lost(p->d, e);
    if (s) return s;
    if (value >= p->values || !p->at[value].bytes || p->value[value].kind < FAK_ACT)
        return vk_fail(e, FAK_E_ARGUMENT, value, "value %" PRIu32 " has no rows here", value);
    *at = p->at[value];
    at->at += first * 4ull * p->value[value].cols;
    return FAK_OK;
}

/* The id of a step that wanted one: how it comes is recorded. */
static int32_t read_id(fak_program *p, void *dst, fak_error *e)
{
    ring_part *t;
    int32_t s = vk_slot_next(p, &p->queue.stage, &t, e);
    if (s) return s;
    vk_slot_deliver(p, t, dst, 4, FAK_F32);
    return vk_enqueue(p, t->ready, 0, 0, e);
}

int32_t vk_read(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                uint64_t *ticket, fak_error *e)
{
    place at = {0};
    int32_t s = find_rows(p, value, first, &at, e);
    if (s) return s;
    uint64_t bytes = rows * 4ull * p->value[value].cols;
    const ring *r = &p->queue.stage;
    if (value == p->argmax && !first && rows == 1 && r->slot[r->next].ready)
        s = read_id(p, dst, e);
    else
        s = vk_download(p, &p->store.at[at.block], at.at, bytes, dst, FAK_F32, e);
    if (!s) s = vk_flush(p, e);
    if (s) {
        vk_slot_forget(p, dst, bytes);
        return s;
    }
    *ticket = p->d->submitted;
    vk_count(p->d, &p->d->stats.bytes_down, bytes);
    return FAK_OK;
}

int32_t vk_write(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, const void *src,
                 fak_error *e)
{
    place at = {0};
    int32_t s = find_rows(p, value, first, &at, e);
    if (s) return s;
    uint64_t bytes = rows * 4ull * p->value[value].cols;
    s = vk_upload(p, &p->store.at[at.block], at.at, src, bytes, e);
    if (!s) vk_count(p->d, &p->d->stats.bytes_up, bytes);
    return s;
}
