/* memory - takes what was measured, on the card and on the host; gives all of it back. */
#include "cuda.h"

#include <stdlib.h>
#include <string.h>

/* ---- the card's ---- */

static int32_t take_weights(fak_program *p, fak_error *e)
{
    int32_t s = FAK_OK;
    for (uint32_t i = 0; !s && i < p->values; i++) {
        weight *w = &p->weights->at[i];
        if (w->codes_bytes) s = gpu_alloc(p->d->g, w->codes_bytes, "a weight", &w->codes, e);
        if (!s && w->scales_bytes)
            s = gpu_alloc(p->d->g, w->scales_bytes, "scales of a weight", &w->scales, e);
    }
    return s;
}

/* One allocation each: what is written beyond one is seen in emulation. */
static int32_t take_scratch(fak_program *p, fak_error *e)
{
    const sizes *z = &p->size;
    const struct {
        uint64_t bytes;
        gpu_ptr *at;
        const char *what;
    } part[] = {
        {z->temp[TEMP_NORMED], &p->temp[TEMP_NORMED], "normed rows"},
        {z->temp[TEMP_HIDDEN], &p->temp[TEMP_HIDDEN], "hidden rows"},
        {z->temp[TEMP_LOGITS], &p->temp[TEMP_LOGITS], "logits"},
        {z->codes, &p->q.codes, "activations as Q8"},
        {z->scales, &p->q.d, "scales of activations"},
        {z->scales, &p->q.sum, "sums of activations"},
        {z->partial, &p->partial, "parts of a row"},
        {z->step, &p->step, "a step"},
        {z->kv, &p->kv.k, "keys"},
        {z->kv, &p->kv.v, "values"},
        {z->raw, &p->kv.raw, "raw keys"},
        {z->table, &p->table, "page tables"},
        {2 * z->move, &p->move, "rows of kv that cross"},
    };
    int32_t s = FAK_OK;
    for (size_t i = 0; !s && i < sizeof part / sizeof *part; i++)
        if (part[i].bytes) s = gpu_alloc(p->d->g, part[i].bytes, part[i].what, part[i].at, e);
    for (uint32_t i = 0; !s && i < p->place_count; i++)
        s = gpu_alloc(p->d->g, p->places[i].bytes, "rows of values", &p->places[i].at, e);
    for (uint32_t v = 0; !s && v < p->values; v++) {
        const weight *w = cuda_weight(p->weights, v);
        if (p->place_of[v]) p->at[v] = p->places[p->place_of[v] - 1].at;
        if (w && cuda_is_weight(&p->value[v])) p->at[v] = w->codes;
    }
    return s;
}

/* ---- the host's ---- */

static int32_t take_rings(fak_program *p, fak_error *e)
{
    gpu *g = p->d->g;
    void *base = NULL;
    p->up.event = calloc(p->up.slots, sizeof *p->up.event);
    if (!p->up.event) return cuda_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for rings");
    int32_t s = gpu_pin(g, p->up.slots * p->up.slot_bytes, &base, e);
    p->up.base = base;
    for (uint32_t i = 0; !s && i < p->up.slots; i++) s = gpu_event_make(g, &p->up.event[i], e);
    if (!s) s = gpu_pin(g, p->down_bytes, &base, e);
    if (!s) p->down = base;
    for (int i = 0; !s && i < READS; i++) s = gpu_event_make(g, &p->event[i], e);
    return s;
}

static int32_t take_tables(fak_program *p, fak_error *e)
{
    page_table *const both[] = {&p->kv.now, &p->kv.before};
    int failed = 0;
    for (int i = 0; i < 2; i++) {
        both[i]->length = calloc(p->limits.slots + 1ul, 4);
        both[i]->page = calloc((size_t)p->limits.slots * p->kv.slot_pages + 1, 4);
        both[i]->refs = calloc(p->kv.pages + 1ul, 4);
        failed |= !both[i]->length || !both[i]->page || !both[i]->refs;
    }
    p->kv.copy = calloc(2 * (p->kv.pages + 1ul), 4);
    if (!failed && p->kv.copy) return FAK_OK;
    return cuda_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for page tables");
}

int32_t cuda_allocate(fak_program *p, fak_error *e)
{
    int32_t s = take_weights(p, e);
    if (!s) s = take_scratch(p, e);
    if (!s) s = take_rings(p, e);
    return s ? s : take_tables(p, e);
}

/* ---- giving back ---- */

static void free_weights(gpu *g, weight_set *w)
{
    if (!w || --w->refs) return;
    free_weights(g, w->lender);
    for (uint32_t i = 0; w->at && i < w->count; i++) {
        gpu_free(g, w->at[i].codes);
        gpu_free(g, w->at[i].scales);
    }
    free(w->at);
    free(w);
}

static void free_rings(fak_program *p)
{
    gpu *g = p->d->g;
    for (uint32_t i = 0; p->up.event && i < p->up.slots; i++) gpu_event_free(g, p->up.event[i]);
    for (int i = 0; i < READS; i++) gpu_event_free(g, p->event[i]);
    free(p->up.event);
    gpu_unpin(g, p->up.base);
    gpu_unpin(g, p->down);
}

void cuda_free(fak_program *p)
{
    gpu *g = p->d->g;
    const gpu_ptr at[] = {p->temp[0], p->temp[1], p->temp[2], p->q.codes, p->q.d,
                          p->q.sum,   p->partial, p->step,    p->kv.k,    p->kv.v,
                          p->kv.raw,  p->table,   p->move};
    for (uint32_t i = 0; i < p->range_count; i++)
        for (int b = 0; b < BUCKETS; b++) gpu_graph_free(g, p->ranges[i].graph[b]);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) gpu_free(g, at[i]);
    for (uint32_t i = 0; i < p->place_count; i++) gpu_free(g, p->places[i].at);
    free_rings(p);
    free_weights(g, p->weights);
    void *own[] = {p->op,
                   p->value,
                   p->taken,
                   p->layer_at,
                   p->place_of,
                   p->places,
                   p->at,
                   p->ranges,
                   p->kv.copy,
                   p->kv.now.length,
                   p->kv.now.page,
                   p->kv.now.refs,
                   p->kv.before.length,
                   p->kv.before.page,
                   p->kv.before.refs};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) free(own[i]);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
