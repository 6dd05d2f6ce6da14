/* program - prepare (verdicts, layout, capacity), load, release. */
#include "honest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { IN = 8, OUT = 3 };

/* ---- verdicts ---- */

static int is_weight(const fak_value *v)
{
    return v->kind == FAK_WEIGHT || v->kind == FAK_CONST;
}

/* Input j of an op is a matrix that it multiplies or looks up; other weights are rows of F32. */
static int is_matrix(const fak_op *o, uint32_t j)
{
    switch (o->id) {
    case FAK_OP_EMBED:
        return j == 0;
    case FAK_OP_MATMUL:
    case FAK_OP_MATMUL_ADD:
    case FAK_OP_MATMUL_ARGMAX:
        return j == 1;
    case FAK_OP_GLU_MATMUL_ADD:
        return j == 2;
    case FAK_OP_NORM_MATMUL:
    case FAK_OP_NORM_MATMUL_GLU:
    case FAK_OP_FFN:
        return j >= 2;
    default:
        return 0;
    }
}

static int can_run(const fak_program *p, const fak_op *o)
{
    int known = (o->id >= FAK_OP_EMBED && o->id <= FAK_OP_ARGMAX) ||
                (o->id >= FAK_OP_NORM_MATMUL && o->id <= FAK_OP_MATMUL_ARGMAX);
    if (!known || o->revision > 1 || o->id == p->d->leave) return 0;
    for (uint32_t j = 0; j < IN; j++) {
        const fak_value *v = &p->value[o->in[j]];
        if (!o->in[j]) continue;
        if (v->layout != FAK_ROW_MAJOR || v->quant_bits || v->quant_act_scale != 0) return 0;
        if (is_matrix(o, j) ? !honest_row_bytes(v->dtype, v->cols) : v->dtype != FAK_F32) return 0;
    }
    return 1;
}

static int uses_kv(const fak_op *o)
{
    uint32_t operand[3];
    return o->id == FAK_OP_ATTENTION || honest_appends(o, operand);
}

static void judge(fak_program *p, uint32_t *verdict)
{
    for (uint32_t i = 0; i < p->ops; i++)
        p->taken[i] = verdict[i] == FAK_TAKEN && can_run(p, &p->op[i]);
    for (uint32_t i = 0; i < p->ops; i++) /* the kv of a layer goes together */
        for (uint32_t j = 0; uses_kv(&p->op[i]) && !p->taken[i] && j < p->ops; j++)
            if (uses_kv(&p->op[j]) && p->op[j].layer == p->op[i].layer) p->taken[j] = 0;
    for (uint32_t i = 0; i < p->ops; i++) {
        fak_op *o = &p->op[i];
        verdict[i] = p->taken[i] ? FAK_TAKEN : FAK_HOST;
        if (!p->taken[i]) continue;
        p->embeds |= o->id == FAK_OP_EMBED;
        if (!uses_kv(o)) continue;
        if (p->layer_at[o->layer] == FAK_NO_INDEX) p->layer_at[o->layer] = p->kv_layers++;
        o->layer = p->layer_at[o->layer];
        if (o->kv_heads * o->head_dim > p->width) p->width = o->kv_heads * o->head_dim;
    }
}

/* ---- layout: p->at counts from 1 within the values' memory until that is taken ---- */

typedef struct life {
    uint32_t from, to;
    uint64_t bytes;
} life; /* ops; bytes 0: no device op */

static void find_lives(const fak_program *p, life *of)
{
    int own = (p->flags & FAK_KEEP_ALL) != 0; /* nobody shares a place */
    for (uint32_t i = 0; i < p->ops; i++) own |= !p->taken[i];
    for (uint32_t v = 0; v < p->values; v++) of[v] = (life){.from = UINT32_MAX};
    for (uint32_t i = 0; i < p->ops; i++)
        for (uint32_t j = 0; j < IN + OUT; j++) {
            uint32_t v = j < IN ? p->op[i].in[j] : p->op[i].out[j - IN];
            if (!v || is_weight(&p->value[v])) continue;
            if (of[v].from > i) of[v].from = i;
            of[v].to = p->value[v].kind == FAK_OUT ? p->ops : i;
            if (p->taken[i])
                of[v].bytes =
                    honest_align(honest_rows(&p->value[v], p->limits.rows, p->limits.wanted) *
                                 4ull * p->value[v].cols);
        }
    for (uint32_t v = 0; own && v < p->values; v++) of[v].from = 0, of[v].to = p->ops;
}

static int overlap(const life *a, const life *b)
{
    return a->from <= b->to && b->from <= a->to;
}

/* The lowest place for each value that no value of the same time has; the bytes of all. */
static uint64_t lay_out(fak_program *p, const life *of)
{
    uint64_t all = 0;
    for (uint32_t v = 0; v < p->values; v++) p->at[v] = 0;
    for (uint32_t v = 1; v < p->values; v++) {
        uint64_t at = 0;
        if (!of[v].bytes) continue;
        for (uint32_t u = 1; u < v; u++) {
            uint64_t there = p->at[u] - 1;
            if (!p->at[u] || !overlap(&of[u], &of[v])) continue;
            if (there >= at + of[v].bytes || there + of[u].bytes <= at) continue;
            at = there + of[u].bytes;
            u = 0; /* it may now lie over an earlier one */
        }
        p->at[v] = at + 1;
        if (at + of[v].bytes > all) all = at + of[v].bytes;
    }
    return all;
}

static const weight_set *lender_of(const weight_set *w, uint32_t value)
{
    while (w && !(value < w->count && w->at[value])) w = w->lender;
    return w;
}

static int is_needed(const fak_program *p, uint32_t value)
{
    for (uint32_t i = 0; i < p->ops; i++)
        for (uint32_t j = 0; p->taken[i] && j < IN; j++)
            if (p->op[i].in[j] == value && is_weight(&p->value[value])) return 1;
    return 0;
}

static uint64_t weight_bytes(const fak_value *v)
{
    return v->rows * honest_row_bytes(v->dtype, v->cols);
}

/* Where weights that are not borrowed lie among them, counted from 1. */
static uint64_t lay_out_weights(const fak_program *p, const weight_set *lender)
{
    uint64_t all = 0;
    for (uint32_t v = 1; v < p->values; v++) {
        p->weights->at[v] = 0;
        if (lender_of(lender, v) || !is_needed(p, v)) continue;
        p->weights->at[v] = all + 1;
        all += honest_align(weight_bytes(&p->value[v]));
    }
    return all;
}

/* ---- capacity ---- */

static uint32_t pages_for(uint32_t positions)
{
    return positions / PAGE + (positions % PAGE != 0);
}

static uint64_t page_bytes(const fak_program *p, uint32_t dtype)
{
    return (uint64_t)p->kv_layers * PAGE * p->width * honest_row_bytes(dtype, 1);
}

static void measure(fak_program *p, life *of, const weight_set *lender)
{
    const fak_limits *l = &p->limits;
    uint64_t temp = 0, scratch = 0;
    p->slot_pages = pages_for(l->context);
    p->pages = pages_for(l->kv_tokens);
    p->step_slots = (l->steps ? l->steps : 1) + 1;
    find_lives(p, of);
    p->size.weights = lay_out_weights(p, lender);
    p->size.acts = lay_out(p, of);
    for (uint32_t i = 0; i < p->ops; i++) {
        if (!p->taken[i]) continue;
        uint64_t a = honest_op_temp(p, &p->op[i]), b = honest_op_scratch(p, &p->op[i]);
        temp = a > temp ? a : temp;
        scratch = b > scratch ? b : scratch;
    }
    p->size.temp = honest_align(temp * 4) * TEMPS;
    p->size.scratch = honest_align(scratch);
    p->size.step = honest_align(l->step_bytes) + ALIGN + l->rows * 4ull +
                   honest_align(l->spans * 4ull * p->slot_pages);
    p->size.step = honest_align(p->size.step);
    p->size.steps = p->size.step * p->step_slots;
    p->size.kv = honest_align(2 * page_bytes(p, l->kv_dtype) * p->pages);
    p->size.raw = p->flags & FAK_EVICTABLE ? honest_align(page_bytes(p, FAK_F32) * p->pages) : 0;
}

static uint64_t total(const sizes *s)
{
    return s->weights + s->acts + s->temp + s->scratch + s->steps + s->kv + s->raw;
}

static fak_report report_of(const fak_program *p)
{
    const sizes *s = &p->size;
    fak_report r = {.flags = FAK_EXACT, .shapes = FAK_ANY_SPANS, .kv_page = PAGE};
    r.weight_bytes = r.load_peak_bytes = s->weights;
    r.kv_token_bytes = 2 * page_bytes(p, p->limits.kv_dtype) / PAGE;
    if (p->flags & FAK_EVICTABLE) r.kv_token_bytes += page_bytes(p, FAK_F32) / PAGE;
    r.kv_bytes = s->kv + s->raw;
    r.scratch_bytes = s->acts + s->temp + s->scratch + s->steps;
    r.host_bytes = p->ops * sizeof *p->op + p->values * (sizeof *p->value + sizeof *p->at) +
                   2ull * (p->limits.slots * (1ull + p->slot_pages) + p->pages) * 4;
    return r;
}

/* Limits that would fit: the most kv at these rows, else with half the rows, and so on. */
static void find_fit(fak_program *p, life *of, const weight_set *lender, fak_report *r)
{
    uint64_t room = p->d->memory - p->d->used;
    uint64_t page = 2 * page_bytes(p, p->limits.kv_dtype) +
                    (p->flags & FAK_EVICTABLE ? page_bytes(p, FAK_F32) : 0);
    fak_limits asked = p->limits;
    for (uint32_t rows = asked.rows; rows && !r->fit_rows; rows /= 2) {
        p->limits.rows = rows;
        p->limits.wanted = asked.wanted < rows ? asked.wanted : rows;
        measure(p, of, lender);
        uint64_t others = total(&p->size) - p->size.kv - p->size.raw + 2 * ALIGN;
        uint64_t pages = others > room ? 0 : page ? (room - others) / page : p->pages;
        if (!pages) continue;
        r->fit_rows = p->limits.rows;
        r->fit_wanted = p->limits.wanted;
        r->fit_kv_tokens = pages < p->pages ? (uint32_t)pages * PAGE : asked.kv_tokens;
    }
    p->limits = asked;
    measure(p, of, lender);
}

/* ---- prepare ---- */

static int32_t copy_plan(fak_program *p, const fak_plan *plan)
{
    p->values = plan->values.count;
    p->ops = plan->ops.count;
    p->layers = plan->layers;
    p->op = calloc(p->ops + 1ul, sizeof *p->op);
    p->value = calloc(p->values, sizeof *p->value);
    p->taken = calloc(p->ops + 1ul, 1);
    p->layer_at = malloc((p->layers + 1ul) * sizeof *p->layer_at);
    p->at = calloc(p->values, sizeof *p->at);
    p->weights = calloc(1, sizeof *p->weights);
    if (p->weights) *p->weights = (weight_set){.refs = 1, .count = p->values};
    if (!p->op || !p->value || !p->taken || !p->layer_at || !p->at || !p->weights)
        return FAK_E_MEMORY;
    p->weights->at = calloc(p->values, sizeof *p->weights->at);
    p->weights->loaded = calloc(p->values, 1);
    if (!p->weights->at || !p->weights->loaded) return FAK_E_MEMORY;
    for (uint32_t i = 0; i < p->ops; i++) FAK_GET(&p->op[i], plan, ops, i);
    for (uint32_t i = 0; i < p->values; i++) FAK_GET(&p->value[i], plan, values, i);
    for (uint32_t i = 0; i < p->layers; i++) p->layer_at[i] = FAK_NO_INDEX;
    for (uint32_t i = 0; i < plan->tails.count; i++) {
        fak_tail t;
        FAK_GET(&t, plan, tails, i);
        if (t.want == FAK_WANT_ARGMAX) p->argmax = t.out;
    }
    return FAK_OK;
}

static int32_t check(const fak_program *p, uint32_t flags, fak_error *e)
{
    const fak_limits *l = &p->limits;
    const uint32_t acts = FAK_ACT_F32 | FAK_ACT_Q8 | FAK_ACT_F16;
    const uint32_t known = FAK_DRY_RUN | FAK_KEEP_ALL | FAK_EVICTABLE | FAK_COMPILE_ALL;
    uint32_t act = l->numerics & acts;
    if (flags & ~known)
        return honest_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "unknown flags %" PRIx32,
                           flags & ~known);
    if (l->numerics & ~p->d->facts.numerics || !act || act & (act - 1))
        return honest_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX,
                           "numerics %" PRIx32 "; it has %" PRIx32
                           ", one activation mode at a time",
                           l->numerics, p->d->facts.numerics);
    if (l->kv_dtype != FAK_F32 && l->kv_dtype != FAK_F16 && l->kv_dtype != FAK_BF16)
        return honest_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "kv of dtype %" PRIu32, l->kv_dtype);
    if (l->weight_bytes)
        return honest_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "weights are all resident");
    return FAK_OK;
}

static int32_t take_all(fak_program *p, const weight_set *lender, fak_error *e)
{
    const sizes *s = &p->size;
    const struct {
        uint64_t bytes, *at;
        const char *what;
    } part[] = {
        {s->weights, &p->weights->block, "weights"},
        {s->acts + s->temp + s->scratch, &p->acts, "activations"},
        {s->steps, &p->steps, "step blocks"},
        {s->kv, &p->kv, "kv"},
        {s->raw, &p->raw, "raw keys"},
    };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (part[i].bytes && !(*part[i].at = honest_take(p->d, part[i].bytes, part[i].what, e)))
            return FAK_E_MEMORY;
    for (uint32_t v = 1; v < p->values; v++) {
        const weight_set *w = lender_of(lender, v);
        uint64_t *own = &p->weights->at[v];
        if (*own) *own += p->weights->block - 1;
        if (p->at[v]) p->at[v] += p->acts - 1;
        if (is_weight(&p->value[v])) p->at[v] = *own ? *own : w ? w->at[v] : 0;
    }
    return FAK_OK;
}

static int32_t make_tables(fak_program *p, fak_error *e)
{
    page_table *const both[] = {&p->now, &p->before};
    int failed = 0;
    for (int i = 0; i < 2; i++) {
        both[i]->length = calloc(p->limits.slots + 1ul, 4);
        both[i]->page = calloc((size_t)p->limits.slots * p->slot_pages + 1, 4);
        both[i]->refs = calloc(p->pages + 1ul, 4);
        failed |= !both[i]->length || !both[i]->page || !both[i]->refs;
    }
    p->copy = calloc(2 * (p->pages + 1ul), 4);
    p->begun = calloc(p->step_slots, sizeof *p->begun);
    if (!failed && p->copy && p->begun) return FAK_OK;
    return honest_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for page tables");
}

static int32_t build(fak_program *p, const fak_plan *plan, fak_program *weights_of, uint32_t flags,
                     uint32_t *verdict, fak_report *theirs, fak_error *e)
{
    weight_set *lender = weights_of ? weights_of->weights : NULL;
    uint64_t room = p->d->memory - p->d->used;
    int32_t s = check(p, flags, e);
    if (s) return s;
    life *of = calloc(plan->values.count, sizeof *of);
    if (!of || copy_plan(p, plan)) {
        free(of);
        return honest_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for a plan");
    }
    judge(p, verdict);
    measure(p, of, lender);
    fak_report mine = report_of(p);
    if (total(&p->size) > room) {
        s = honest_fail(e, FAK_E_MEMORY, FAK_NO_INDEX,
                        "the program takes %" PRIu64 " bytes of device memory; %" PRIu64
                        " of %" PRIu64 " are free",
                        total(&p->size), room, p->d->memory);
        find_fit(p, of, lender, &mine);
    }
    fak_put(theirs, &mine, sizeof mine);
    free(of);
    if (s || flags & FAK_DRY_RUN) return s;
    p->weights->lender = lender;
    if (lender) lender->refs++;
    s = take_all(p, lender, e);
    return s ? s : make_tables(p, e);
}

int32_t honest_prepare(fak_device *d, const fak_plan *plan, const fak_limits *limits,
                       fak_program *weights_of, uint32_t flags, uint32_t *verdict,
                       fak_report *report, fak_program **out, fak_error *e)
{
    *out = NULL;
    int32_t s = honest_lost(d, e);
    if (s) return s;
    fak_program *p = calloc(1, sizeof *p);
    if (!p) return honest_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for a program");
    p->d = d;
    p->flags = flags;
    fak_take(&p->limits, sizeof p->limits, limits);
    s = build(p, plan, weights_of, flags, verdict, report, e);
    if (s || flags & FAK_DRY_RUN)
        honest_release(p);
    else
        *out = p;
    return s;
}

static void release_weights(fak_device *d, weight_set *w)
{
    if (!w || --w->refs) return;
    release_weights(d, w->lender);
    honest_give(d, w->block);
    free(w->at);
    free(w->loaded);
    free(w);
}

void honest_release(fak_program *p)
{
    if (!p) return;
    honest_fence(p->d, p->d->recorded);
    const uint64_t place[] = {p->acts, p->steps, p->kv, p->raw};
    for (size_t i = 0; i < sizeof place / sizeof *place; i++) honest_give(p->d, place[i]);
    release_weights(p->d, p->weights);
    void *own[] = {p->op,          p->value,       p->taken,         p->layer_at,
                   p->at,          p->now.length,  p->now.page,      p->now.refs,
                   p->before.page, p->before.refs, p->before.length, p->copy,
                   p->begun};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) free(own[i]);
    free(p);
}

/* ---- weights ---- */

enum { STAGE = 16384 };

/* Rows go up through a stage of host memory, as many at a time as it holds. */
static int32_t load_one(fak_program *p, uint32_t id, const fak_source *src, char *stage,
                        uint64_t stage_bytes, fak_error *e)
{
    const fak_value *v = &p->value[id];
    uint64_t row_bytes = honest_row_bytes(v->dtype, v->cols);
    uint32_t most = (uint32_t)(stage_bytes / row_bytes);
    for (uint32_t at = 0, n; at < v->rows; at += n) {
        n = v->rows - at < most ? v->rows - at : most;
        int32_t s = src->read(src->self, id, FAK_NATIVE, at, n, stage, n * row_bytes, e);
        if (s) return s;
        memcpy(p->d->block + p->at[id] + at * row_bytes, stage, n * row_bytes);
        pthread_mutex_lock(&p->d->lock);
        p->d->stats.bytes_up += n * row_bytes;
        pthread_mutex_unlock(&p->d->lock);
    }
    return FAK_OK;
}

static uint8_t *loaded(const fak_program *p, uint32_t id)
{
    const weight_set *w = id < p->values ? lender_of(p->weights, id) : NULL;
    return w ? &w->loaded[id] : NULL;
}

int32_t honest_load(fak_program *p, const uint32_t *value, uint32_t values,
                    const fak_source *theirs, fak_error *e)
{
    const fak_host *host = p->d->host;
    fak_source src;
    uint64_t bytes = STAGE, done = 0, of = 0;
    int32_t s = honest_lost(p->d, e);
    fak_take(&src, sizeof src, theirs);
    for (uint32_t i = 0; !s && i < values; i++) {
        if (!loaded(p, value[i]))
            return honest_fail(e, FAK_E_ARGUMENT, value[i],
                               "load of a value that is no weight here");
        const fak_value *v = &p->value[value[i]];
        uint64_t row = honest_row_bytes(v->dtype, v->cols);
        bytes = row > bytes ? row : bytes;
        of += weight_bytes(v);
    }
    if (s) return s;
    char *stage = malloc(bytes);
    if (!stage) return honest_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory to load through");
    honest_fence(p->d, p->d->recorded); /* the worker reads no weight from here on */
    for (uint32_t i = 0; !s && i < values; i++) {
        uint8_t *is = loaded(p, value[i]);
        if (!*is) s = load_one(p, value[i], &src, stage, bytes, e);
        *is |= !s;
        done += weight_bytes(&p->value[value[i]]);
        if (!s && host->progress && host->progress(host->self, "loading", done, of) < 0)
            s = honest_fail(e, FAK_E_CANCELLED, FAK_NO_INDEX,
                            "cancelled after %" PRIu64 " of %" PRIu64 " bytes", done, of);
    }
    free(stage);
    return s;
}

int32_t honest_unload(fak_program *p, const uint32_t *value, uint32_t values, fak_error *e)
{
    int32_t s = honest_lost(p->d, e);
    if (s) return s;
    honest_fence(p->d, p->d->recorded);
    for (uint32_t i = 0; i < values; i++) {
        uint8_t *is = loaded(p, value[i]);
        if (is && *is)
            memset(p->d->block + p->at[value[i]], POISON, weight_bytes(&p->value[value[i]]));
        if (is) *is = 0;
    }
    return FAK_OK;
}
