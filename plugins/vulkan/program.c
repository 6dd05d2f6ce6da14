/* program - prepare: verdicts, layout, capacity, and all that a step will need; release. */
#include "program.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS_MOST = 65535, CODE_BYTES = 65536, DISPATCH_BYTES = 2048 };

/* ---- what is asked ---- */

static int32_t check(const fak_program *p, uint32_t flags, fak_error *e)
{
    const fak_limits *l = &p->limits;
    const uint32_t acts = FAK_ACT_F32 | FAK_ACT_Q8 | FAK_ACT_F16;
    const uint32_t known = FAK_DRY_RUN | FAK_KEEP_ALL | FAK_EVICTABLE | FAK_COMPILE_ALL;
    uint32_t act = l->numerics & acts;
    if (flags & ~known)
        return vk_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "unknown flags %" PRIx32,
                       flags & ~known);
    if (l->numerics & ~p->d->facts.numerics || (act != FAK_ACT_F32 && act != FAK_ACT_Q8))
        return vk_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX,
                       "numerics %" PRIx32 " with one mode of activations; it has %" PRIx32,
                       l->numerics, p->d->facts.numerics);
    if (l->kv_dtype != FAK_F32 && l->kv_dtype != FAK_F16 && l->kv_dtype != FAK_BF16)
        return vk_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "kv of dtype %" PRIu32, l->kv_dtype);
    if (l->weight_bytes)
        return vk_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "weights are all resident");
    if (l->rows > GROUPS_MOST)
        return vk_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX,
                       "steps of %" PRIu32 " rows; it takes %d at most", l->rows, GROUPS_MOST);
    return FAK_OK;
}

static int32_t copy_plan(fak_program *p, const fak_plan *plan, weight_set *lender)
{
    p->values = plan->values.count;
    p->ops = plan->ops.count;
    p->tails = plan->tails.count;
    p->body_ops = plan->body_ops;
    p->op = calloc(p->ops + 1ul, sizeof *p->op);
    p->value = calloc((size_t)p->values + TEMPS, sizeof *p->value);
    p->tail = calloc(p->tails + 1ul, sizeof *p->tail);
    p->taken = calloc(p->ops + 1ul, 1);
    p->at = calloc((size_t)p->values + TEMPS, sizeof *p->at);
    p->first_job = calloc(p->ops + 1ul, sizeof *p->first_job);
    p->range = calloc(p->ops + 1ul, sizeof *p->range);
    p->layer = calloc(p->ops + 1ul, sizeof *p->layer);
    p->weights = vk_weights_new(p->values, lender);
    if (!p->op || !p->value || !p->tail || !p->taken || !p->at || !p->first_job || !p->range ||
        !p->layer || !p->weights)
        return FAK_E_MEMORY;
    for (uint32_t i = 0; i < p->ops; i++) FAK_GET(&p->op[i], plan, ops, i);
    for (uint32_t i = 0; i < p->values; i++) FAK_GET(&p->value[i], plan, values, i);
    for (uint32_t i = 0; i < p->tails; i++) {
        FAK_GET(&p->tail[i], plan, tails, i);
        if (p->tail[i].want == FAK_WANT_ARGMAX) p->argmax = p->tail[i].out;
    }
    return FAK_OK;
}

/* ---- capacity ---- */

static uint64_t total(const fak_program *p)
{
    return vk_store_bytes(&p->store) + vk_store_bytes(&p->weights->store);
}

static uint64_t room(const fak_device *d)
{
    if (!d->opt.memory) return vk_memory_free(&d->adapter);
    return d->opt.memory > d->used ? d->opt.memory - d->used : 0;
}

static fak_report report_of(const fak_program *p)
{
    fak_report r = {.flags = FAK_EXACT, .shapes = FAK_ANY_SPANS, .kv_page = PAGE};
    uint32_t taken = 0;
    for (uint32_t i = 0; i < p->ops; i++) taken += p->taken[i];
    r.weight_bytes = r.load_peak_bytes = vk_store_bytes(&p->weights->store);
    for (uint32_t i = 0; i < p->layers; i++) {
        const kv_layer *l = &p->layer[i];
        uint32_t raw = p->flags & FAK_EVICTABLE ? 4 : 0;
        r.kv_token_bytes += l->cols * (2ull * vk_element_bytes(p->limits.kv_dtype) + raw);
    }
    r.kv_bytes = p->kv_bytes;
    r.scratch_bytes = vk_store_bytes(&p->store) - p->kv_bytes;
    r.driver_bytes = CODE_BYTES * 32ull + (uint64_t)taken * DISPATCH_BYTES * SHAPES;
    r.host_bytes = vk_queue_bytes(p) + p->ops * (sizeof *p->op + sizeof *p->range) +
                   p->values * (sizeof *p->value + sizeof *p->at) + taken * 6ull * sizeof(job) +
                   vk_pages_bytes(p->limits.slots, p->limits.context, p->pages.count);
    return r;
}

static int fits(const fak_program *p)
{
    return total(p) <= room(p->d) && p->piece_used <= p->d->piece_max && !p->store.full &&
           !p->weights->store.full;
}

/* Limits that would fit: the most kv at these rows, else with half the rows, and so on. */
static int32_t find_fit(fak_program *p, fak_report *r)
{
    const fak_limits asked = p->limits;
    int32_t s = FAK_OK;
    for (uint32_t rows = asked.rows; !s && rows && !r->fit_rows; rows /= 2) {
        uint32_t low = 0, high = vk_pages_of(asked.kv_tokens);
        p->limits.rows = rows;
        p->limits.wanted = asked.wanted < rows ? asked.wanted : rows;
        while (!s && low < high) { /* the most pages; monotonous */
            uint32_t middle = high - (high - low) / 2;
            p->limits.kv_tokens = middle * PAGE;
            s = vk_lay_out(p);
            if (fits(p))
                low = middle;
            else
                high = middle - 1;
        }
        if (!low) continue;
        r->fit_rows = p->limits.rows;
        r->fit_wanted = p->limits.wanted;
        r->fit_kv_tokens = low * PAGE < asked.kv_tokens ? low * PAGE : asked.kv_tokens;
    }
    p->limits = asked;
    return s;
}

static int32_t too_much(const fak_program *p, fak_error *e)
{
    if (p->piece_used > p->d->piece_max)
        return vk_fail(e, FAK_E_MEMORY, FAK_NO_INDEX,
                       "a kernel would have to see %" PRIu64 " bytes at once; this device shows "
                       "%" PRIu64 ": fewer rows, or a smaller context, would do",
                       p->piece_used, p->d->piece_max);
    return vk_fail(e, FAK_E_MEMORY, FAK_NO_INDEX,
                   "the program takes %" PRIu64 " bytes of device memory; %" PRIu64 " are free",
                   total(p), room(p->d));
}

/* ---- prepare ---- */

static int32_t take_all(fak_program *p, fak_error *e)
{
    int32_t s = vk_take(p->d, &p->weights->store, "weights", e);
    if (!s) s = vk_take(p->d, &p->store, "values, kv and steps", e);
    if (!s && p->layers)
        s = vk_pages_make(&p->pages, p->limits.slots, p->limits.context, p->pages.count, e);
    if (!s && p->side_rows && !(p->side_step = calloc(p->side_words.all, 4)))
        s = vk_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for a step");
    if (!s) s = vk_lower(p, e);
    if (!s) s = vk_queue_make(p, e);
    if (!s) s = vk_bind(p, e);
    if (!s) s = vk_record_ranges(p, e);
    if (!s) s = vk_record_ready(p, e);
    if (!s) vk_pipelines_keep(p->d);
    return s;
}

static int32_t build(fak_program *p, const fak_plan *plan, fak_program *weights_of,
                     uint32_t *verdict, fak_report *theirs, fak_error *e)
{
    int32_t s = check(p, p->flags, e);
    if (s) return s;
    if (copy_plan(p, plan, weights_of ? weights_of->weights : NULL))
        return vk_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for a plan");
    s = vk_judge(p, verdict, e);
    if (s) return s;
    vk_size_temps(p);
    s = vk_lay_out(p);
    fak_report mine = report_of(p);
    if (!s && !fits(p)) {
        s = too_much(p, e);
        find_fit(p, &mine);
    } else if (s) {
        vk_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for a layout");
    }
    fak_put(theirs, &mine, sizeof mine);
    return s || p->flags & FAK_DRY_RUN ? s : take_all(p, e);
}

int32_t vk_prepare(fak_device *d, const fak_plan *plan, const fak_limits *limits,
                   fak_program *weights_of, uint32_t flags, uint32_t *verdict, fak_report *report,
                   fak_program **out, fak_error *e)
{
    *out = NULL;
    int32_t s = vk_lost(d, e);
    if (s) return s;
    fak_program *p = calloc(1, sizeof *p);
    if (!p) return vk_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for a program");
    p->d = d;
    p->flags = flags;
    fak_take(&p->limits, sizeof p->limits, limits);
    p->q8 = (p->limits.numerics & FAK_ACT_Q8) != 0;
    s = build(p, plan, weights_of, verdict, report, e);
    if (s || flags & FAK_DRY_RUN)
        vk_release(p);
    else
        *out = p;
    return s;
}

void vk_release(fak_program *p)
{
    if (!p) return;
    vkDeviceWaitIdle(p->d->vk); /* also of a device that is lost */
    vkDestroyDescriptorPool(p->d->vk, p->sets, NULL);
    vk_queue_free(p);
    vk_give(p->d, &p->store);
    vk_weights_free(p->d, p->weights);
    vk_pages_free(&p->pages);
    void *own[] = {p->op,        p->value, p->tail,  p->taken, p->at,
                   p->first_job, p->range, p->layer, p->jobs,  p->side_step};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) free(own[i]);
    free(p);
}
