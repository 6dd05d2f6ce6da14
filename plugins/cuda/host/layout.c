/* layout - how many bytes of what a program takes, before any are taken; limits that would fit. */
#include "cuda.h"

#include <stdlib.h>
#include <string.h>

enum { GRAPH_NODE = 640 }; /* bytes that a driver may keep of a kernel of a graph, on either side */

/* ---- values take places by turns ---- */

typedef struct life {
    uint32_t from, to;
    uint64_t bytes;
} life; /* ops; bytes 0: not here */

static void find_lives(const fak_program *p, life *of)
{
    int own = (p->flags & FAK_KEEP_ALL) != 0; /* nobody shares a place */
    for (uint32_t i = 0; i < p->ops; i++) own |= !p->taken[i];
    for (uint32_t v = 0; v < p->values; v++) of[v] = (life){.from = UINT32_MAX};
    for (uint32_t i = 0; i < p->ops; i++)
        for (uint32_t j = 0; j < INPUTS + OUTPUTS; j++) {
            uint32_t v = j < INPUTS ? p->op[i].in[j] : p->op[i].out[j - INPUTS];
            if (!v || cuda_is_weight(&p->value[v])) continue;
            if (of[v].from > i) of[v].from = i;
            of[v].to = p->value[v].kind == FAK_OUT ? UINT32_MAX : i;
            if (p->value[v].kind == FAK_OUT) of[v].from = 0; /* also while the next step begins */
            if (p->taken[i]) of[v].bytes = cuda_rows(p, v) * 4ull * p->value[v].cols;
        }
    for (uint32_t v = 0; own && v < p->values; v++) of[v].from = 0, of[v].to = UINT32_MAX;
}

/* The free place that fits best; else the largest free one, which grows; else a new one. */
static place *find_place(fak_program *p, const life *of)
{
    place *best = NULL;
    for (uint32_t i = 0; i < p->place_count; i++) {
        place *at = &p->places[i];
        if (at->until >= of->from) continue;
        int fits = at->bytes >= of->bytes, best_fits = best && best->bytes >= of->bytes;
        if (!best || (fits && !best_fits) ||
            (fits == best_fits && (at->bytes < best->bytes) == fits))
            best = at;
    }
    if (!best) {
        best = &p->places[p->place_count++];
        *best = (place){0};
    }
    if (best->bytes < of->bytes) best->bytes = of->bytes;
    best->until = of->to;
    return best;
}

static void place_values(fak_program *p, const life *of)
{
    p->place_count = 0;
    memset(p->place_of, 0, p->values * sizeof *p->place_of);
    for (uint32_t i = 0; i < p->ops; i++)
        for (uint32_t j = 0; j < INPUTS + OUTPUTS; j++) {
            uint32_t v = j < INPUTS ? p->op[i].in[j] : p->op[i].out[j - INPUTS];
            if (!v || !of[v].bytes || p->place_of[v]) continue;
            p->place_of[v] = 1 + (uint32_t)(find_place(p, &of[v]) - p->places);
        }
    p->size.acts = 0;
    for (uint32_t i = 0; i < p->place_count; i++) p->size.acts += p->places[i].bytes;
}

/* ---- weights ---- */

weight *cuda_weight(const weight_set *w, uint32_t value)
{
    for (; w; w = w->lender)
        if (value < w->count && w->at[value].codes_bytes) return &w->at[value];
    return NULL;
}

static void measure_weights(fak_program *p, const weight_set *lender)
{
    p->size.weights = 0;
    for (uint32_t i = 0; i < p->ops; i++)
        for (uint32_t j = 0; p->taken[i] && j < INPUTS; j++) {
            uint32_t id = p->op[i].in[j];
            const fak_value *v = &p->value[id];
            weight *w = &p->weights->at[id];
            if (!cuda_is_weight(v) || w->codes_bytes || cuda_weight(lender, id)) continue;
            w->codes_bytes = format_codes(format_of(v->dtype), v);
            w->scales_bytes = format_scales(format_of(v->dtype), v);
        }
    for (uint32_t i = 0; i < p->values; i++)
        p->size.weights += p->weights->at[i].codes_bytes + p->weights->at[i].scales_bytes;
}

/* ---- the rest ---- */

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void pick_buckets(fak_program *p)
{
    for (int scope = 0; scope < 2; scope++) {
        uint32_t top = scope == SCOPE_WANTED ? p->limits.wanted : p->limits.rows, b = 1, n = 0;
        for (; b < top && n < BUCKETS - 1; b *= b == 1 ? VEC_ROWS : 4) p->bucket[scope][n++] = b;
        p->bucket[scope][n++] = top;
        p->buckets[scope] = n;
    }
}

static void measure_kv(fak_program *p)
{
    kv_store *kv = &p->kv;
    uint64_t elements = (uint64_t)kv->heads * kv->dim * KV_PAGE;
    kv->element = p->limits.kv_dtype == FAK_F32 ? 4 : 2;
    kv->pages = cuda_pages(p->limits.kv_tokens);
    kv->slot_pages = cuda_pages(p->limits.context);
    p->size.kv = kv->layers * elements * kv->pages * kv->element; /* of k; as much of v */
    p->size.raw = p->flags & FAK_EVICTABLE ? kv->layers * elements * kv->pages * 4 : 0;
    p->size.table = kv->layers ? 2ull * kv->slot_pages * 4 : 0;
    p->size.move = kv->layers ? (uint64_t)MOVE_ROWS * kv->heads * kv->dim * 4 : 0; /* likewise */
}

static void measure_ops(fak_program *p)
{
    uint64_t quantised = 0;
    memset(p->size.temp, 0, sizeof p->size.temp);
    p->size.partial = 0;
    for (uint32_t i = 0; i < p->ops; i++) {
        const fak_op *o = &p->op[i];
        if (!p->taken[i]) continue;
        for (int t = 0; t < TEMPS; t++)
            p->size.temp[t] = most(p->size.temp[t], 4 * cuda_temp(p, o, (enum temp)t));
        quantised = most(quantised, cuda_quantised(p, o));
        p->size.partial = most(p->size.partial, cuda_partial(p, o));
    }
    p->size.codes = quantised;
    p->size.scales = quantised / 32 * 4; /* of d; as much of sums */
}

int32_t cuda_measure(fak_program *p, const weight_set *lender)
{
    const fak_limits *l = &p->limits;
    life *of = calloc(p->values, sizeof *of);
    if (!of) return FAK_E_MEMORY;
    pick_buckets(p);
    find_lives(p, of);
    place_values(p, of);
    free(of);
    measure_weights(p, lender);
    measure_kv(p);
    measure_ops(p);
    p->size.step = sizeof(step_head) + most(l->rows, l->wanted) * sizeof(step_row) +
                   (uint64_t)l->spans * (sizeof(step_span) + 4ull * p->kv.slot_pages);
    p->up.slots = (l->steps ? l->steps : 1) + EXTRA_SLOTS;
    p->up.slot_bytes = (most(p->size.step, 64 << 10) + 255) & ~255ull;
    p->down_bytes = 1 << 20;
    return FAK_OK;
}

static uint64_t scratch(const sizes *s)
{
    uint64_t n = s->acts + s->codes + 2 * s->scales + s->partial + s->step + s->table + 2 * s->move;
    for (int t = 0; t < TEMPS; t++) n += s->temp[t];
    return n;
}

static uint64_t kv_all(const sizes *s)
{
    return 2 * s->kv + s->raw;
}

uint64_t cuda_device_bytes(const fak_program *p)
{
    return p->size.weights + kv_all(&p->size) + scratch(&p->size);
}

fak_report cuda_report(const fak_program *p)
{
    const kv_store *kv = &p->kv;
    uint64_t row = (uint64_t)kv->layers * kv->heads * kv->dim;
    fak_report r = {.flags = FAK_EXACT, .shapes = FAK_ANY_SPANS, .kv_page = KV_PAGE};
    r.weight_bytes = r.load_peak_bytes = p->size.weights;
    r.kv_token_bytes = row * 2 * kv->element + (p->flags & FAK_EVICTABLE ? row * 4 : 0);
    r.kv_bytes = kv_all(&p->size);
    r.scratch_bytes = scratch(&p->size);
    r.host_bytes = p->up.slots * p->up.slot_bytes + p->down_bytes +
                   3ull * (p->limits.slots + 1ull) * (1ull + kv->slot_pages) * 4 +
                   kv->pages * 16ull;
    r.driver_bytes = p->d->graph ? p->ops * 2ull * p->buckets[SCOPE_ROWS] * GRAPH_NODE : 0;
    return r;
}

/* Limits that would fit: the most kv at these rows, else with half the rows, and so on. */
void cuda_find_fit(fak_program *p, const weight_set *lender, uint64_t room, fak_report *r)
{
    fak_limits asked = p->limits;
    for (uint32_t rows = asked.rows; rows && !r->fit_rows; rows /= 2) {
        p->limits.rows = rows;
        p->limits.wanted = asked.wanted < rows ? asked.wanted : rows;
        if (cuda_measure(p, lender)) break;
        uint64_t all = cuda_device_bytes(p), kv = kv_all(&p->size);
        uint64_t page = p->kv.pages ? kv / p->kv.pages : 0, others = all - kv;
        uint64_t pages = others > room ? 0 : page ? (room - others) / page : p->kv.pages;
        if (!pages && (others > room || p->kv.layers)) continue;
        r->fit_rows = p->limits.rows;
        r->fit_wanted = p->limits.wanted;
        r->fit_kv_tokens = pages < p->kv.pages ? (uint32_t)pages * KV_PAGE : asked.kv_tokens;
    }
    p->limits = asked;
    cuda_measure(p, lender);
}
