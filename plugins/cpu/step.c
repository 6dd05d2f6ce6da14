/* step - begin, runs of ops, rows in and out. */
#include "cpu.h"

#include <string.h>

/* ---- begin ---- */

/* Positions and slots of the rows; some rows of a span together. */
static void read_spans(fak_program *p)
{
    p->strips = 0;
    p->singles = 1;
    for (uint32_t i = 0; i < p->step->span.count; i++) {
        fak_span s;
        FAK_GET(&s, p->step, span, i);
        for (uint32_t k = 0; k < s.rows; k++) {
            p->position[s.row + k] = s.first + k;
            p->slot[s.row + k] = s.slot;
            if (k % QUERIES) continue;
            uint32_t n = s.rows - k < QUERIES ? s.rows - k : QUERIES;
            p->strip[p->strips++] = (strip){s.row + k, n, s.slot, s.first + k};
            if (n > 1) p->singles = 0;
        }
    }
}

int32_t cpu_begin(fak_program *p, const fak_step *s, fak_error *e)
{
    int from_argmax = s->flags & FAK_TOKENS_FROM_ARGMAX && p->embeds;
    if (from_argmax && (!p->argmax || !p->at[p->argmax] || p->step->want != FAK_WANT_ARGMAX ||
                        p->wants != s->rows))
        return cpu_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX,
                        "the step before did not leave an argmax for every row");
    int32_t status = p->kv.layers ? cpu_reserve(p, s, e) : FAK_OK;
    if (status) return status;
    memcpy(p->step, s, s->bytes);
    p->rows = s->rows;
    p->wants = s->wanted.count;
    p->token = FAK_AT(p->step, token);
    p->wanted = FAK_AT(p->step, wanted);
    if (from_argmax) {
        uint32_t *ids = (uint32_t *)(void *)((char *)p->step + s->bytes);
        memcpy(ids, p->at[p->argmax], s->rows * sizeof *ids);
        p->token = ids;
    }
    read_spans(p);
    return FAK_OK;
}

/* ---- ops ---- */

int32_t cpu_run(fak_program *p, uint32_t first, uint32_t ops, fak_error *e)
{
    if (first > p->ops || ops > p->ops - first)
        return cpu_fail(e, FAK_E_ARGUMENT, first, "ops that are not in the plan");
    pool_run(p->d->pool,
             &(pool_job){p, p->first_job[first], p->first_job[first + ops], cpu_chunks, cpu_work});
    return FAK_OK;
}

int32_t cpu_call(fak_program *p, uint32_t op, fak_error *e)
{
    return cpu_run(p, op, 1, e);
}

/* ---- rows ---- */

uint32_t cpu_rows(const fak_program *p, uint32_t value)
{
    return p->value[value].rows == FAK_WANTED_ROWS ? p->wants : p->rows;
}

static int32_t not_here(const fak_program *p, uint32_t value, fak_error *e)
{
    if (value < p->values && p->at[value]) return FAK_OK;
    return cpu_fail(e, FAK_E_ARGUMENT, value, "a value that has no storage here");
}

int32_t cpu_read(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                 uint64_t *ticket, fak_error *e)
{
    int32_t s = not_here(p, value, e);
    size_t cols = s ? 0 : p->value[value].cols;
    *ticket = 0;
    if (!s) memcpy(dst, p->at[value] + first * cols, rows * cols * sizeof(float));
    return s;
}

int32_t cpu_write(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, const void *src,
                  fak_error *e)
{
    int32_t s = not_here(p, value, e);
    size_t cols = s ? 0 : p->value[value].cols;
    if (!s) memcpy(p->at[value] + first * cols, src, rows * cols * sizeof(float));
    return s;
}

const void *cpu_view(fak_program *p, uint32_t value)
{
    return value < p->values ? p->at[value] : NULL;
}
