/* program - prepare and release. */
#include "cuda.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- the plan ---- */

static int32_t copy_plan(fak_program *p, const fak_plan *plan)
{
    p->values = plan->values.count;
    p->ops = plan->ops.count;
    p->layers = plan->layers;
    p->op = calloc(p->ops + 1ul, sizeof *p->op);
    p->value = calloc(p->values, sizeof *p->value);
    p->taken = calloc(p->ops + 1ul, 1);
    p->layer_at = malloc((p->layers + 1ul) * sizeof *p->layer_at);
    p->place_of = calloc(p->values, sizeof *p->place_of);
    p->places = calloc(p->values, sizeof *p->places);
    p->at = calloc(p->values, sizeof *p->at);
    p->ranges = calloc(p->ops + 1ul, sizeof *p->ranges);
    p->weights = calloc(1, sizeof *p->weights);
    if (p->weights) *p->weights = (weight_set){.refs = 1, .count = p->values};
    if (!p->op || !p->value || !p->taken || !p->layer_at || !p->place_of || !p->places || !p->at ||
        !p->ranges || !p->weights)
        return FAK_E_MEMORY;
    p->weights->at = calloc(p->values, sizeof *p->weights->at);
    if (!p->weights->at) return FAK_E_MEMORY;
    for (uint32_t i = 0; i < p->ops; i++) FAK_GET(&p->op[i], plan, ops, i);
    for (uint32_t i = 0; i < p->values; i++) FAK_GET(&p->value[i], plan, values, i);
    for (uint32_t i = 0; i < p->layers; i++) p->layer_at[i] = FAK_NO_INDEX;
    return FAK_OK;
}

static int uses_kv(const fak_op *o)
{
    uint32_t operand[3];
    return o->id == FAK_OP_ATTENTION || fak_appends(o, operand);
}

/* The kv of a layer goes together. */
static void leave_halves(fak_program *p)
{
    for (uint32_t i = 0; i < p->ops; i++) {
        if (p->taken[i] || !uses_kv(&p->op[i])) continue;
        for (uint32_t j = 0; j < p->ops; j++)
            if (uses_kv(&p->op[j]) && p->op[j].layer == p->op[i].layer) p->taken[j] = 0;
    }
}

static void judge(fak_program *p, uint32_t *verdict)
{
    kv_store *kv = &p->kv;
    uint32_t operand[3];
    for (uint32_t i = 0; i < p->ops; i++) {
        const fak_op *o = &p->op[i];
        p->taken[i] = verdict[i] == FAK_TAKEN && cuda_takes(p, o);
        if (!p->taken[i] || !uses_kv(o) || kv->heads) continue;
        kv->heads = o->kv_heads; /* the first says how all are */
        kv->dim = o->head_dim;
    }
    leave_halves(p);
    for (uint32_t i = 0; i < p->ops; i++) {
        const fak_op *o = &p->op[i];
        verdict[i] = p->taken[i] ? FAK_TAKEN : FAK_HOST;
        if (!p->taken[i]) continue;
        p->embeds |= o->id == FAK_OP_EMBED;
        if (!uses_kv(o)) continue;
        if (p->layer_at[o->layer] == FAK_NO_INDEX) p->layer_at[o->layer] = kv->layers++;
        if (!fak_appends(o, operand)) continue;
        kv->table = operand[2];
        kv->rot = o->rot_dim;
    }
}

/* Maximal runs of taken ops in [first, end). */
static void find_ranges(fak_program *p, uint32_t first, uint32_t end)
{
    for (uint32_t i = first, n; i < end; i += n) {
        n = 1;
        if (!p->taken[i]) continue;
        range r = {.first = i, .scope = cuda_scope(p, &p->op[i])};
        for (; i + n < end && p->taken[i + n]; n++)
            if (cuda_scope(p, &p->op[i + n]) != r.scope) r.scope = MIXED;
        r.ops = n;
        p->ranges[p->range_count++] = r;
    }
}

static void find_calls(fak_program *p, const fak_plan *plan)
{
    find_ranges(p, 0, plan->body_ops);
    for (uint32_t i = 0; i < plan->tails.count; i++) {
        fak_tail t;
        FAK_GET(&t, plan, tails, i);
        find_ranges(p, t.first, t.first + t.ops);
        if (t.want == FAK_WANT_ARGMAX) p->argmax = t.out;
    }
}

/* ---- prepare ---- */

static int32_t check(const fak_program *p, fak_error *e)
{
    const fak_limits *l = &p->limits;
    const uint32_t known = FAK_DRY_RUN | FAK_KEEP_ALL | FAK_EVICTABLE | FAK_COMPILE_ALL;
    uint32_t act = l->numerics & 255u;
    if (p->flags & ~known)
        return cuda_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "unknown flags %#" PRIx32,
                         p->flags & ~known);
    if (l->numerics & ~p->d->facts.numerics || !act || act & (act - 1))
        return cuda_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX,
                         "numerics %#" PRIx32 " asked; it has %#" PRIx32
                         ", one activation mode at a time",
                         l->numerics, p->d->facts.numerics);
    if (l->kv_dtype != FAK_F32 && l->kv_dtype != FAK_F16 && l->kv_dtype != FAK_BF16)
        return cuda_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX,
                         "kv of dtype %" PRIu32 "; it is F32, F16 or BF16", l->kv_dtype);
    if (l->weight_bytes)
        return cuda_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX,
                         "weights are all on the card, not %" PRIu64 " bytes at once",
                         l->weight_bytes);
    if (l->rows <= 65535) return FAK_OK;
    return cuda_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX,
                     "steps of %" PRIu32 " rows; a grid has at most 65535", l->rows);
}

static int32_t no_memory(fak_error *e)
{
    return cuda_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for a plan");
}

static int32_t judge_room(fak_program *p, const weight_set *lender, fak_report *r, fak_error *e)
{
    uint64_t room, total, all = cuda_device_bytes(p);
    int32_t s = gpu_room(p->d->g, &room, &total, e);
    if (s || all <= room) return s;
    cuda_find_fit(p, lender, room, r);
    return cuda_fail(e, FAK_E_MEMORY, FAK_NO_INDEX,
                     "the program takes %" PRIu64 " bytes of device memory; %" PRIu64 " of %" PRIu64
                     " are free; kv of %" PRIu32 " positions in steps of %" PRIu32
                     " rows would fit",
                     all, room, total, r->fit_kv_tokens, r->fit_rows);
}

static int32_t build(fak_program *p, const fak_plan *plan, fak_program *weights_of,
                     uint32_t *verdict, fak_report *theirs, fak_error *e)
{
    weight_set *lender = weights_of ? weights_of->weights : NULL;
    int32_t s = check(p, e);
    if (s) return s;
    if (copy_plan(p, plan)) return no_memory(e);
    judge(p, verdict);
    find_calls(p, plan);
    if (cuda_measure(p, lender)) return no_memory(e);
    fak_report mine = cuda_report(p);
    s = judge_room(p, lender, &mine, e);
    fak_put(theirs, &mine, sizeof mine);
    if (s || p->flags & FAK_DRY_RUN) return s;
    p->weights->lender = lender;
    if (lender) lender->refs++;
    s = cuda_allocate(p, e);
    return s ? s : cuda_capture(p, e);
}

int32_t cuda_prepare(fak_device *d, const fak_plan *plan, const fak_limits *limits,
                     fak_program *weights_of, uint32_t flags, uint32_t *verdict, fak_report *report,
                     fak_program **out, fak_error *e)
{
    *out = NULL;
    int32_t s = gpu_lost(d->g, e);
    if (s) return s;
    fak_program *p = calloc(1, sizeof *p);
    if (!p) return no_memory(e);
    pthread_mutex_init(&p->lock, NULL);
    p->d = d;
    p->flags = flags;
    fak_take(&p->limits, sizeof p->limits, limits);
    p->q8 = (p->limits.numerics & FAK_ACT_Q8) != 0;
    s = build(p, plan, weights_of, verdict, report, e);
    if (s || flags & FAK_DRY_RUN)
        cuda_free(p);
    else
        *out = p;
    return s;
}

void cuda_release(fak_program *p)
{
    fak_error ignored;
    if (!p) return;
    gpu_sync(p->d->g, &ignored);
    cuda_free(p);
}
