/* step - begin: a step's numbers go to the card; run: the graph of a range, captured in prepare. */
#include "cuda.h"

#include <inttypes.h>
#include <string.h>

/* ---- graphs ---- */

static uint32_t bucket_of(const fak_program *p, uint32_t scope, uint32_t rows)
{
    uint32_t b = 0;
    while (b + 1 < p->buckets[scope] && p->bucket[scope][b] < rows) b++;
    return b;
}

int32_t cuda_capture(fak_program *p, fak_error *e)
{
    fak_error later;
    if (!p->d->graph || p->flags & FAK_KEEP_ALL) return FAK_OK; /* ops are run one at a time */
    for (uint32_t i = 0; i < p->range_count; i++) {
        range *r = &p->ranges[i];
        for (uint32_t b = 0; r->scope != MIXED && b < p->buckets[r->scope]; b++) {
            int32_t s = gpu_capture_begin(p->d->g, e);
            if (s) return s;
            s = cuda_emit(p, r->first, r->ops, p->bucket[r->scope][b], e);
            int32_t end = gpu_capture_end(p->d->g, &r->graph[b], s ? &later : e);
            if (s || end) return s ? s : end;
        }
    }
    return FAK_OK;
}

static range *find_range(fak_program *p, uint32_t first, uint32_t ops)
{
    for (uint32_t i = 0; i < p->range_count; i++)
        if (p->ranges[i].first == first && p->ranges[i].ops == ops) return &p->ranges[i];
    return NULL;
}

int32_t cuda_run(fak_program *p, uint32_t first, uint32_t ops, fak_error *e)
{
    const range *r = find_range(p, first, ops);
    int32_t s = gpu_lost(p->d->g, e);
    if (s) return s;
    if (!p->begun)
        return cuda_fail(e, FAK_E_ARGUMENT, first, "op %" PRIu32 " before the first step", first);
    for (uint32_t i = first; i < first + ops; i++)
        if (i >= p->ops || !p->taken[i])
            return cuda_fail(e, FAK_E_ARGUMENT, i, "op %" PRIu32 " was not taken", i);
    if (r && r->graph[0]) {
        uint32_t rows = p->rows[r->scope];
        return rows ? gpu_replay(p->d->g, r->graph[bucket_of(p, r->scope, rows)], e) : FAK_OK;
    }
    for (uint32_t i = first; !s && i < first + ops; i++) {
        uint32_t scope = cuda_scope(p, &p->op[i]), rows = p->rows[scope];
        if (rows) s = cuda_emit(p, i, 1, p->bucket[scope][bucket_of(p, scope, rows)], e);
    }
    return s;
}

/* ---- begin ---- */

static uint32_t word_of(const fak_step *st, fak_array a, uint32_t i)
{
    return *(const uint32_t *)(const void *)((const char *)st + a.offset + (size_t)i * a.stride);
}

typedef struct layout { /* of a step in a slot of the ring */
    step_head *head;
    step_row *row;
    step_span *span;
    uint32_t *page;
    uint64_t bytes;
} layout;

static layout lay_out(const fak_program *p, const fak_step *st, char *base)
{
    uint32_t most = st->rows > st->wanted.count ? st->rows : st->wanted.count;
    uint32_t row_at = sizeof(step_head), span_at = row_at + most * (uint32_t)sizeof(step_row);
    uint32_t page_at = span_at + st->span.count * (uint32_t)sizeof(step_span);
    layout l = {.head = (step_head *)(void *)base,
                .row = (step_row *)(void *)(base + row_at),
                .span = (step_span *)(void *)(base + span_at),
                .page = (uint32_t *)(void *)(base + page_at)};
    l.bytes = page_at + (p->kv.layers ? st->span.count * 4ull * p->kv.slot_pages : 0);
    memset(base, 0, l.bytes);
    *l.head = (step_head){.rows = st->rows,
                          .wanted = st->wanted.count,
                          .spans = st->span.count,
                          .slot_pages = p->kv.slot_pages,
                          .row_at = row_at,
                          .span_at = span_at,
                          .page_at = page_at};
    return l;
}

static void fill(const fak_program *p, const fak_step *st, const layout *l)
{
    int chained = (st->flags & FAK_TOKENS_FROM_ARGMAX) != 0;
    for (uint32_t i = 0; !chained && i < st->rows; i++) l->row[i].token = word_of(st, st->token, i);
    for (uint32_t i = 0; i < st->wanted.count; i++) l->row[i].wanted = word_of(st, st->wanted, i);
    for (uint32_t i = 0; i < st->span.count; i++) {
        fak_span s;
        FAK_GET(&s, st, span, i);
        l->span[i] = (step_span){.row = s.row, .rows = s.rows, .first = s.first};
        for (uint32_t k = 0; k < s.rows; k++) {
            l->row[s.row + k].span = i;
            l->row[s.row + k].pos = s.first + k;
        }
        if (p->kv.layers)
            memcpy(l->page + (size_t)i * p->kv.slot_pages, cuda_page_at(p, s.slot, 0),
                   p->kv.slot_pages * 4ul);
    }
}

/* The ids that the step before left are this one's tokens. */
static int32_t chain(fak_program *p, uint32_t rows, fak_error *e)
{
    chain_args a = {.step = p->step, .ids = p->at[p->argmax]};
    gpu_grid grid = {(rows + THREADS - 1) / THREADS, 1, 1, 0};
    return gpu_launch(p->d->g, KERNEL_step_chain, grid, &a, e);
}

int32_t cuda_begin(fak_program *p, const fak_step *st, fak_error *e)
{
    int from_argmax = st->flags & FAK_TOKENS_FROM_ARGMAX && p->embeds;
    int32_t s = gpu_lost(p->d->g, e);
    if (s) return s;
    if (st->flags & ~(uint32_t)FAK_TOKENS_FROM_ARGMAX)
        return cuda_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "unknown step flags %#" PRIx32,
                         st->flags);
    if (from_argmax && p->chained != st->rows)
        return cuda_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX,
                         "the step before left the argmax of %" PRIu32 " rows, not of %" PRIu32,
                         p->chained, st->rows);
    if (p->kv.layers && (s = cuda_reserve(p, st, e))) return s;
    p->rows[SCOPE_ROWS] = st->rows;
    p->rows[SCOPE_WANTED] = st->wanted.count;
    p->begun = 1;
    p->chained = st->want == FAK_WANT_ARGMAX && p->argmax && p->at[p->argmax] ? st->wanted.count
                                                                              : 0;
    char *slot;
    if ((s = cuda_send_copies(p, e)) || (s = cuda_up_slot(p, &slot, e))) return s;
    layout l = lay_out(p, st, slot);
    fill(p, st, &l);
    s = cuda_up_send(p, p->step, l.bytes, e);
    return s || !from_argmax ? s : chain(p, st->rows, e);
}
