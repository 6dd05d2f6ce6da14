/* program - prepare, load, release. */
#include "cpu.h"

#include <stdlib.h>
#include <string.h>

static int32_t no_memory(fak_error *e, const char *sentence)
{
    return cpu_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, sentence);
}

/* ---- prepare ---- */

static int32_t check(const fak_limits *l, uint32_t flags, fak_error *e)
{
    uint32_t act = l->numerics & 255u;
    if (act != FAK_ACT_F32 && act != FAK_ACT_Q8)
        return cpu_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "activations are F32 or Q8");
    if (l->numerics & ~(255u | FAK_BATCH_INVARIANT | FAK_DETERMINISTIC) ||
        flags & ~(uint32_t)(FAK_DRY_RUN | FAK_KEEP_ALL | FAK_EVICTABLE | FAK_COMPILE_ALL))
        return cpu_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX, "an unknown flag");
    if (l->kv_dtype != FAK_F32 && l->kv_dtype != FAK_F16 && l->kv_dtype != FAK_BF16)
        return cpu_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "kv is F32, F16 or BF16");
    return FAK_OK;
}

static int32_t copy_plan(fak_program *p, const fak_plan *plan)
{
    p->values = plan->values.count;
    p->ops = plan->ops.count;
    p->layers = plan->layers;
    p->op = calloc(p->ops + 1ul, sizeof *p->op);
    p->taken = calloc(p->ops + 1ul, 1);
    p->first_job = calloc(p->ops + 1ul, sizeof *p->first_job);
    p->value = calloc((size_t)p->values + TEMPS, sizeof *p->value);
    p->at = calloc((size_t)p->values + TEMPS, sizeof *p->at);
    if (!p->op || !p->taken || !p->first_job || !p->value || !p->at) return FAK_E_MEMORY;
    for (uint32_t i = 0; i < p->ops; i++) FAK_GET(&p->op[i], plan, ops, i);
    for (uint32_t i = 0; i < p->values; i++) FAK_GET(&p->value[i], plan, values, i);
    for (uint32_t i = 0; i < plan->tails.count; i++) {
        fak_tail t;
        FAK_GET(&t, plan, tails, i);
        if (t.want == FAK_WANT_ARGMAX) p->argmax = t.out;
    }
    return FAK_OK;
}

static int uses_kv(const fak_op *o)
{
    uint32_t operand[3];
    return o->id == FAK_OP_ATTENTION || fak_appends(o, operand);
}

static void judge(fak_program *p, uint32_t *verdict)
{
    for (uint32_t i = 0; i < p->ops; i++)
        p->taken[i] = verdict[i] != FAK_HOST && cpu_can_run(p, &p->op[i]);
    for (uint32_t i = 0; i < p->ops; i++) { /* the kv of a layer goes together */
        if (p->taken[i] || !uses_kv(&p->op[i])) continue;
        for (uint32_t j = 0; j < p->ops; j++)
            if (p->op[j].layer == p->op[i].layer && uses_kv(&p->op[j])) p->taken[j] = 0;
    }
    for (uint32_t i = 0; i < p->ops; i++) {
        verdict[i] = p->taken[i] ? FAK_TAKEN : FAK_HOST;
        p->embeds |= p->taken[i] && p->op[i].id == FAK_OP_EMBED;
    }
}

int32_t cpu_prepare(fak_device *d, const fak_plan *plan, const fak_limits *limits,
                    fak_program *weights_of, uint32_t flags, uint32_t *verdict, fak_report *report,
                    fak_program **out, fak_error *e)
{
    fak_limits l;
    *out = NULL;
    fak_take(&l, sizeof l, limits);
    int32_t s = check(&l, flags, e);
    if (s) return s;
    fak_program *p = calloc(1, sizeof *p);
    if (!p) return no_memory(e, "not enough host memory for the plan");
    p->d = d;
    p->limits = l;
    p->flags = flags;
    p->q8 = (l.numerics & FAK_ACT_Q8) != 0;
    s = copy_plan(p, plan);
    if (!s) {
        judge(p, verdict);
        s = cpu_make_jobs(p);
    }
    if (!s) s = cpu_lay_out(p, weights_of, report, (flags & FAK_DRY_RUN) != 0);
    if (s || flags & FAK_DRY_RUN)
        cpu_free(p);
    else
        *out = p;
    return s ? no_memory(e, "not enough host memory for the plan") : FAK_OK;
}

void cpu_release(fak_program *p)
{
    if (p) cpu_free(p);
}

/* ---- load: rows come on the calling thread, groups are packed by all ---- */

enum { STAGED = 1 << 20 }; /* bytes that are read at once */

typedef struct packing { /* groups that have been read */
    const fak_value *v;
    const matrix *m;
    const uint8_t *staged;
    char *to;
    size_t row_bytes, group_bytes;
    uint32_t groups, rows, share; /* share: groups of a chunk */
} packing;

static uint32_t pack_chunks(void *self, uint32_t phase)
{
    const packing *k = self;
    (void)phase;
    return (k->groups + k->share - 1) / k->share;
}

static void pack_chunk(void *self, uint32_t phase, uint32_t chunk, uint32_t thread)
{
    const packing *k = self;
    (void)phase, (void)thread;
    for (uint32_t i = 0, g = chunk * k->share; i < k->share && g < k->groups; i++, g++) {
        uint32_t first = g * GROUP, n = k->rows - first < GROUP ? k->rows - first : GROUP;
        layout_pack(k->m->packed, k->v->cols, n, k->staged + first * k->row_bytes,
                    (uint8_t *)k->to + g * k->group_bytes);
    }
}

static int32_t load_packed(fak_program *p, uint32_t id, const fak_source *src, uint8_t *staged,
                           size_t room, fak_error *e)
{
    const matrix *m = &p->weights->at[id];
    const fak_value *v = &p->value[id];
    size_t row = (size_t)v->cols * m->packed->row_bytes / m->packed->cols;
    uint32_t most = (uint32_t)(room / (row * GROUP)) * GROUP;
    packing k = {.v = v,
                 .m = m,
                 .staged = staged,
                 .row_bytes = row,
                 .group_bytes = layout_group(m->packed, v->cols)};
    for (uint32_t first = 0; first < v->rows; first += k.rows) {
        k.rows = v->rows - first < most ? v->rows - first : most;
        int32_t s = src->read(src->self, id, FAK_NATIVE, first, k.rows, staged, k.rows * row, e);
        if (s) return s;
        k.to = p->weights->base + m->at + first / GROUP * k.group_bytes;
        k.groups = (k.rows + GROUP - 1) / GROUP;
        k.share = k.groups / (4 * p->d->threads) + 1;
        pool_run(p->d->pool, &(pool_job){&k, 0, 1, pack_chunks, pack_chunk});
    }
    return FAK_OK;
}

/* Vectors and tables are used where they lie, if they stay there. */
static int32_t load_plain(fak_program *p, uint32_t id, const fak_source *src, fak_error *e)
{
    matrix *m = &p->weights->at[id];
    const void *lent = src->flags & FAK_STABLE && src->borrow ? src->borrow(src->self, id) : NULL;
    if (lent) {
        m->data = lent;
        return FAK_OK;
    }
    char *to = p->weights->base + m->at;
    m->data = (uint8_t *)to;
    return src->read(src->self, id, FAK_NATIVE, 0, p->value[id].rows, to, m->bytes, e);
}

int32_t cpu_load(fak_program *p, const uint32_t *value, uint32_t values, const fak_source *theirs,
                 fak_error *e)
{
    fak_source src;
    size_t room = STAGED;
    int32_t s = FAK_OK;
    fak_take(&src, sizeof src, theirs);
    for (uint32_t i = 0; i < values; i++) {
        const matrix *m = value[i] < p->values ? &p->weights->at[value[i]] : NULL;
        if (!m || !m->bytes)
            return cpu_fail(e, FAK_E_ARGUMENT, value[i], "load of a value that is no weight");
        size_t group =
            m->packed ? (size_t)(m->bytes / ((p->value[value[i]].rows + GROUP - 1) / GROUP)) : 0;
        room = group > room ? group : room;
    }
    uint8_t *staged = malloc(room);
    if (!staged) return no_memory(e, "not enough host memory to load");
    for (uint32_t i = 0; !s && i < values; i++) {
        matrix *m = &p->weights->at[value[i]];
        if (m->loaded) continue;
        s = m->packed ? load_packed(p, value[i], &src, staged, room, e)
                      : load_plain(p, value[i], &src, e);
        if (m->packed) m->data = (const uint8_t *)p->weights->base + m->at;
        m->loaded = !s;
    }
    free(staged);
    return s;
}

int32_t cpu_unload(fak_program *p, const uint32_t *value, uint32_t values, fak_error *e)
{
    (void)e;
    for (uint32_t i = 0; i < values; i++) {
        matrix *m = &p->weights->at[value[i]];
        m->loaded = 0;
        m->data = NULL;
    }
    return FAK_OK;
}
