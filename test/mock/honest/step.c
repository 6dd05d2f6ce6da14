/* step - begin, ops, read, write: calls that record what the worker will do. */
#include "honest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- begin ---- */

/* Has the caller been told of the failure that is open?  Then this step clears it. */
static uint32_t clears(fak_program *p)
{
    pthread_mutex_lock(&p->d->lock);
    uint32_t told = p->told;
    p->told = 0;
    pthread_mutex_unlock(&p->d->lock);
    return told;
}

/* The place for a step's copy, when the step that had it before is over. */
static uint32_t step_slot(fak_program *p)
{
    uint32_t slot = (uint32_t)(p->begins % p->step_slots);
    uint64_t next = p->begun[(slot + 1) % p->step_slots]; /* the begin after the one that had it */
    if (p->begins >= p->step_slots) honest_fence(p->d, next - 1);
    return slot;
}

static void upload_step(fak_program *p, uint32_t slot, const fak_step *step)
{
    char *at = p->d->block + p->steps + slot * p->size.step;
    uint32_t *page = (uint32_t *)(void *)(at + honest_align(step->bytes) + p->limits.rows * 4ull);
    memcpy(at, step, step->bytes);
    for (uint32_t i = 0; p->kv_layers && i < step->span.count; i++) {
        fak_span span;
        FAK_GET(&span, step, span, i);
        memcpy(page + (size_t)i * p->slot_pages, p->now.page + (size_t)span.slot * p->slot_pages,
               p->slot_pages * 4ul);
    }
    pthread_mutex_lock(&p->d->lock);
    p->d->stats.bytes_up += step->bytes;
    pthread_mutex_unlock(&p->d->lock);
}

int32_t honest_begin(fak_program *p, const fak_step *step, fak_error *e)
{
    int32_t s = honest_lost(p->d, e);
    if (s) return s;
    honest_submit(p->d);
    if (step->flags & ~(uint32_t)FAK_TOKENS_FROM_ARGMAX)
        return honest_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "unknown step flags %" PRIx32,
                           step->flags);
    uint32_t clear = clears(p);
    if (clear) p->chained = 0; /* what failed has left no ids */
    if (step->flags & FAK_TOKENS_FROM_ARGMAX && p->embeds && p->chained != step->rows)
        s = honest_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX,
                        "the step before left the argmax of %" PRIu32 " rows, not of %" PRIu32,
                        p->chained, step->rows);
    if (!s && p->kv_layers) s = honest_reserve(p, step, e);
    if (s) {
        pthread_mutex_lock(&p->d->lock);
        p->told |= clear; /* the next one clears it */
        pthread_mutex_unlock(&p->d->lock);
        return s;
    }
    uint32_t slot = step_slot(p);
    upload_step(p, slot, step);
    honest_send_copies(p);
    p->begun[slot] = honest_record(p->d, &(job){.kind = JOB_BEGIN, .p = p, .a = slot, .b = clear});
    p->begins++;
    p->begun_yet = 1;
    p->chained = step->want == FAK_WANT_ARGMAX && p->argmax && p->at[p->argmax] ? step->wanted.count
                                                                                : 0;
    return FAK_OK;
}

/* ---- ops ---- */

int32_t honest_run(fak_program *p, uint32_t first, uint32_t ops, fak_error *e)
{
    fak_device *d = p->d;
    int32_t s = honest_lost(d, e);
    if (s) return s;
    if (!p->begun_yet) return honest_fail(e, FAK_E_ARGUMENT, first, "an op before the first step");
    for (uint32_t i = first; i < first + ops; i++)
        if (i >= p->ops || !p->taken[i])
            return honest_fail(e, FAK_E_ARGUMENT, i, "op %" PRIu32 " was not taken", i);
    honest_record(d, &(job){.kind = JOB_OPS, .p = p, .a = first, .b = ops});
    return FAK_OK;
}

int32_t honest_op(fak_program *p, uint32_t op, fak_error *e)
{
    return honest_run(p, op, 1, e);
}

/* ---- rows ---- */

static int32_t find_value(const fak_program *p, uint32_t value, fak_error *e)
{
    if (value < p->values && p->at[value] && p->value[value].kind >= FAK_ACT) return FAK_OK;
    return honest_fail(e, FAK_E_ARGUMENT, value, "value %" PRIu32 " has no rows here", value);
}

int32_t honest_read(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                    uint64_t *ticket, fak_error *e)
{
    fak_device *d = p->d;
    int32_t s = honest_lost(d, e);
    if (s || (s = find_value(p, value, e))) return s;
    *ticket = honest_record(
        d, &(job){.kind = JOB_READ, .p = p, .a = value, .b = first, .c = rows, .host = dst});
    honest_submit(d);
    pthread_mutex_lock(&d->lock);
    d->stats.bytes_down += rows * 4ull * p->value[value].cols;
    pthread_mutex_unlock(&d->lock);
    return FAK_OK;
}

int32_t honest_write(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, const void *src,
                     fak_error *e)
{
    fak_device *d = p->d;
    int32_t s = honest_lost(d, e);
    if (s || (s = find_value(p, value, e))) return s;
    uint64_t bytes = rows * 4ull * p->value[value].cols;
    void *copy = malloc(bytes + 1);
    if (!copy)
        return honest_fail(e, FAK_E_MEMORY, value, "no host memory for %" PRIu64 " bytes", bytes);
    memcpy(copy, src, bytes);
    honest_record(
        d, &(job){.kind = JOB_WRITE, .p = p, .a = value, .b = first, .c = rows, .host = copy});
    pthread_mutex_lock(&d->lock);
    d->stats.bytes_up += bytes;
    pthread_mutex_unlock(&d->lock);
    return FAK_OK;
}
