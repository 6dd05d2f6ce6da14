/* program - prepare (verdicts, layout, capacity), load, release. */
#include "cpu_ref.h"

#include <stdlib.h>
#include <string.h>

static int32_t no_memory(fak_error *e, const char *sentence)
{
    return cpu_ref_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, sentence);
}

fak_op cpu_ref_append_of(const fak_op *op)
{
    uint32_t temp[OP_PARTS] = {0};
    fak_op part[OP_PARTS];
    uint32_t n = ops_expand(op, temp, part);
    if (op->id == FAK_OP_KV_APPEND) return *op;
    for (uint32_t k = 0; k < n; k++)
        if (part[k].id == FAK_OP_KV_APPEND) return part[k];
    return (fak_op){.id = FAK_OP_NONE};
}

static uint64_t value_bytes(const fak_program *p, uint32_t id)
{
    const fak_value *v = &p->memory.value[id];
    return ref_rows(v, p->limits.rows, p->limits.wanted) * dtype_row_bytes(v->dtype, v->cols);
}

static int is_weight(const fak_program *p, uint32_t id)
{
    return p->memory.value[id].kind == FAK_WEIGHT || p->memory.value[id].kind == FAK_CONST;
}

/* ---- verdicts ---- */

/* Can every operand be computed with, and does the op say nothing that is unknown here? */
static int can_run(const fak_device *d, const fak_program *p, const fak_op *o)
{
    const op_info *info = ops_find(o->id);
    if (!info || o->revision > 1 || (info->parts && !d->fused) || o->head_dim > 1024) return 0;
    for (int i = 0; i < OP_INPUTS; i++) {
        const fak_value *v = &p->memory.value[o->in[i]];
        if (v->layout != FAK_ROW_MAJOR || v->quant_bits || v->quant_act_scale != 0) return 0;
        if (o->in[i] && (v->dtype == FAK_I32 || !dtype_form_bytes(v->dtype, FAK_AS_F32, v->cols)))
            return 0;
    }
    return 1;
}

static int uses_kv(const fak_op *o)
{
    return o->id == FAK_OP_ATTENTION || cpu_ref_append_of(o).id != FAK_OP_NONE;
}

static void judge(const fak_device *d, fak_program *p, uint32_t *verdict)
{
    for (uint32_t i = 0; i < p->ops; i++)
        p->taken[i] = verdict[i] != FAK_HOST && can_run(d, p, &p->op[i]);
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

/* Numbers the layers whose kv is here; their ops name that number from now on. */
static void number_layers(fak_program *p)
{
    for (uint32_t i = 0; i < p->layers; i++) p->kv_layer[i] = FAK_NO_INDEX;
    for (uint32_t i = 0; i < p->ops; i++) {
        fak_op *o = &p->op[i];
        if (!p->taken[i] || !uses_kv(o)) continue;
        if (p->kv_layer[o->layer] == FAK_NO_INDEX) p->kv_layer[o->layer] = p->kv_layers++;
        o->layer = p->kv_layer[o->layer];
    }
}

/* ---- layout: values whose lives do not overlap share a piece of the arena ---- */

typedef struct piece {
    uint64_t bytes;
    int busy;
} piece;

typedef struct layout {
    uint8_t *touched; /* [values] by a taken op */
    uint32_t *last;   /* [values] op that reads it last; never freed when KEEP_ALL or OUT */
    piece *piece;     /* [values] at most */
    uint32_t pieces;
} layout;

static void find_lives(const fak_program *p, layout *l)
{
    for (uint32_t i = 0; i < p->ops; i++) {
        const fak_op *o = &p->op[i];
        for (int j = 0; j < OP_OUTPUTS; j++) {
            l->last[o->out[j]] = i;
            l->touched[o->out[j]] |= p->taken[i];
        }
        for (int j = 0; j < OP_INPUTS; j++) {
            l->last[o->in[j]] = i;
            l->touched[o->in[j]] |= p->taken[i];
        }
    }
    l->touched[0] = 0;
    for (uint32_t v = 0; v < p->values; v++)
        if (p->flags & FAK_KEEP_ALL || p->memory.value[v].kind == FAK_OUT) l->last[v] = p->ops;
}

/* The smallest free piece that is large enough, else the largest, grown; else a new one. */
static void place(fak_program *p, layout *l, uint32_t id)
{
    uint64_t bytes = (value_bytes(p, id) + 63) / 64 * 64;
    uint32_t best = l->pieces;
    for (uint32_t i = 0; i < l->pieces; i++) {
        if (l->piece[i].busy) continue;
        uint64_t have = l->piece[i].bytes, chosen = best < l->pieces ? l->piece[best].bytes : 0;
        if (best == l->pieces ||
            (have >= bytes ? chosen < bytes || have < chosen : chosen < bytes && have > chosen))
            best = i;
    }
    if (best == l->pieces) l->piece[l->pieces++] = (piece){0};
    l->piece[best].busy = 1;
    if (l->piece[best].bytes < bytes) l->piece[best].bytes = bytes;
    p->slot_of[id] = best + 1;
}

static void free_after(fak_program *p, layout *l, uint32_t id, uint32_t op)
{
    if (p->slot_of[id] && l->last[id] == op) l->piece[p->slot_of[id] - 1].busy = 0;
}

/* Returns the bytes of the arena; fills slot_of. */
static uint64_t lay_out(fak_program *p, layout *l)
{
    uint64_t bytes = 0;
    find_lives(p, l);
    for (uint32_t i = 0; i < p->ops; i++) {
        const fak_op *o = &p->op[i];
        for (int j = 0; j < OP_OUTPUTS; j++)
            if (l->touched[o->out[j]]) place(p, l, o->out[j]);
        for (int j = 0; j < OP_OUTPUTS; j++) free_after(p, l, o->out[j], i);
        for (int j = 0; j < OP_INPUTS; j++) free_after(p, l, o->in[j], i);
    }
    for (uint32_t i = 0; i < l->pieces; i++) bytes += l->piece[i].bytes;
    return bytes;
}

/* ---- prepare ---- */

static int32_t copy_plan(fak_program *p, const fak_plan *plan)
{
    p->values = plan->values.count;
    p->ops = plan->ops.count;
    p->layers = plan->layers;
    p->op = calloc(p->ops + 1ul, sizeof *p->op);
    p->kv_layer = calloc(p->layers + 1ul, sizeof *p->kv_layer);
    p->taken = calloc(p->ops + 1ul, 1);
    p->slot_of = calloc(p->values, sizeof *p->slot_of);
    p->memory.values = p->values;
    p->memory.value = calloc((size_t)p->values + OP_PARTS, sizeof *p->memory.value);
    p->memory.at = calloc((size_t)p->values + OP_PARTS, sizeof *p->memory.at);
    if (!p->op || !p->kv_layer || !p->taken || !p->slot_of || !p->memory.value || !p->memory.at)
        return FAK_E_MEMORY;
    for (uint32_t i = 0; i < p->ops; i++) FAK_GET(&p->op[i], plan, ops, i);
    for (uint32_t i = 0; i < p->values; i++) FAK_GET(&p->memory.value[i], plan, values, i);
    for (uint32_t i = 0; i < plan->tails.count; i++) {
        fak_tail t;
        FAK_GET(&t, plan, tails, i);
        if (t.want == FAK_WANT_ARGMAX) p->argmax = t.out;
    }
    return FAK_OK;
}

static int32_t check_limits(const fak_limits *l, uint32_t flags, fak_error *e)
{
    uint32_t act = l->numerics & 255u;
    if (act != FAK_ACT_F32 && act != FAK_ACT_Q8)
        return cpu_ref_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "activations are F32 or Q8");
    if (l->numerics & ~(255u | FAK_BATCH_INVARIANT | FAK_DETERMINISTIC) ||
        flags & ~(uint32_t)(FAK_DRY_RUN | FAK_KEEP_ALL | FAK_EVICTABLE | FAK_COMPILE_ALL))
        return cpu_ref_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX, "an unknown flag");
    if (l->kv_dtype != FAK_F32 && l->kv_dtype != FAK_F16 && l->kv_dtype != FAK_BF16)
        return cpu_ref_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "kv is F32, F16 or BF16");
    return FAK_OK;
}

/* Scratch of the largest op, the temporaries of fused ops, and the width of kv. */
static uint64_t survey(fak_program *p, uint64_t temp_bytes[OP_PARTS])
{
    uint32_t rows = p->limits.rows > p->limits.wanted ? p->limits.rows : p->limits.wanted;
    uint64_t scratch = 0;
    for (uint32_t i = 0; i < p->ops; i++) {
        uint32_t temp[OP_PARTS];
        if (!p->taken[i]) continue;
        uint64_t bytes =
            ref_op_scratch(&p->op[i], p->memory.value, p->values, rows, p->limits.context, temp);
        if (bytes > scratch) scratch = bytes;
        for (int k = 0; k < OP_PARTS; k++)
            if ((uint64_t)temp[k] * rows * 4 > temp_bytes[k])
                temp_bytes[k] = (uint64_t)temp[k] * rows * 4;
        fak_op append = cpu_ref_append_of(&p->op[i]);
        if (append.kv_heads * append.head_dim > p->memory.kv.width)
            p->memory.kv.width = append.kv_heads * append.head_dim;
    }
    return scratch;
}

static fak_report report_of(const fak_program *p, const layout *l, uint64_t arena, uint64_t scratch)
{
    const fak_limits *lim = &p->limits;
    fak_report r = {.flags = FAK_EXACT | FAK_BORROWS, .shapes = FAK_ANY_SPANS};
    uint64_t kv = ref_kv_bytes(&p->memory.kv, p->kv_layers),
             cells = (uint64_t)lim->slots * lim->context;
    for (uint32_t i = 0; i < p->values; i++)
        if (l->touched[i] && is_weight(p, i)) r.weight_bytes += value_bytes(p, i);
    r.load_peak_bytes = r.weight_bytes;
    r.kv_bytes = 2 * kv;
    if (p->flags & FAK_EVICTABLE) r.kv_bytes += cells * p->kv_layers * p->memory.kv.width * 4;
    r.kv_token_bytes = cells ? r.kv_bytes / cells : 0;
    r.scratch_bytes = arena + scratch;
    r.host_bytes = lim->step_bytes + lim->rows * 4ull;
    return r;
}

/* Sizes may be more than a size_t can say: then there is no such memory. */
static void *take(uint64_t bytes)
{
    return (size_t)bytes == bytes ? malloc((size_t)bytes) : NULL;
}

static void *take_zeros(uint64_t count, size_t each)
{
    return (size_t)count == count ? calloc((size_t)count, each) : NULL;
}

static int32_t allocate(fak_program *p, const layout *l, uint64_t arena, uint64_t scratch,
                        const uint64_t temp_bytes[OP_PARTS])
{
    ref_memory *m = &p->memory;
    uint64_t kv = ref_kv_bytes(&m->kv, p->kv_layers), at = 0;
    p->arena = take(arena + 1);
    p->step = malloc(p->limits.step_bytes + p->limits.rows * 4ul);
    m->scratch = take(scratch + 1);
    if (!p->arena || !p->step || !m->scratch) return FAK_E_MEMORY;
    for (uint32_t i = 0; i < l->pieces; i++) { /* bytes becomes where the piece begins */
        uint64_t bytes = l->piece[i].bytes;
        l->piece[i].bytes = at;
        at += bytes;
    }
    for (uint32_t i = 0; i < p->values; i++)
        if (p->slot_of[i]) m->at[i] = p->arena + l->piece[p->slot_of[i] - 1].bytes;
    for (uint32_t k = 0; k < OP_PARTS; k++)
        if (temp_bytes[k] && !(m->at[p->values + k] = take(temp_bytes[k]))) return FAK_E_MEMORY;
    if (kv) { /* zero pages until they are written */
        m->kv.k = take_zeros(kv, 1);
        m->kv.v = take_zeros(kv, 1);
        p->length = calloc(p->limits.slots, sizeof *p->length);
        if (!m->kv.k || !m->kv.v || !p->length) return FAK_E_MEMORY;
    }
    if (kv && p->flags & FAK_EVICTABLE) {
        m->kv.raw = take_zeros(kv / dtype_row_bytes(m->kv.dtype, 1), 4);
        if (!m->kv.raw) return FAK_E_MEMORY;
    }
    return FAK_OK;
}

static int32_t share_weights(fak_program *p, fak_program *of)
{
    if (of && of->values == p->values) {
        p->weights = of->weights;
        p->weights->refs++;
        return FAK_OK;
    }
    cpu_ref_weights *w = calloc(1, sizeof *w);
    if (!w) return FAK_E_MEMORY;
    p->weights = w;
    *w = (cpu_ref_weights){1, p->values, calloc(p->values, sizeof *w->at), calloc(p->values, 1)};
    return w->at && w->lent ? FAK_OK : FAK_E_MEMORY;
}

static int32_t finish(fak_program *p, layout *l, fak_program *weights_of, fak_report *theirs)
{
    uint64_t temp_bytes[OP_PARTS] = {0}, arena = lay_out(p, l), scratch = survey(p, temp_bytes);
    uint64_t temps = 0;
    for (int k = 0; k < OP_PARTS; k++) temps += temp_bytes[k];
    fak_report mine = report_of(p, l, arena, scratch + temps);
    fak_put(theirs, &mine, sizeof mine);
    if (p->flags & FAK_DRY_RUN) return FAK_OK;
    int32_t s = share_weights(p, weights_of);
    return s ? s : allocate(p, l, arena, scratch, temp_bytes);
}

int32_t cpu_ref_prepare(fak_device *d, const fak_plan *plan, const fak_limits *limits,
                        fak_program *weights_of, uint32_t flags, uint32_t *verdict,
                        fak_report *report, fak_program **out, fak_error *e)
{
    *out = NULL;
    fak_program *p = calloc(1, sizeof *p);
    layout l = {calloc(plan->values.count, 1), calloc(plan->values.count, 4),
                calloc(plan->values.count, sizeof(piece)), 0};
    int32_t s = p && l.touched && l.last && l.piece ? FAK_OK : FAK_E_MEMORY;
    if (!s) {
        fak_take(&p->limits, sizeof p->limits, limits);
        p->flags = flags;
        p->memory.act_q8 = (p->limits.numerics & FAK_ACT_Q8) != 0;
        p->memory.kv = (ref_kv){
            .dtype = p->limits.kv_dtype, .slots = p->limits.slots, .context = p->limits.context};
        s = check_limits(&p->limits, flags, e);
        if (s) goto out;
        s = copy_plan(p, plan);
    }
    if (!s) {
        judge(d, p, verdict);
        number_layers(p);
        s = finish(p, &l, weights_of, report);
    }
    if (s) no_memory(e, "not enough host memory for the plan");
out:
    free(l.touched);
    free(l.last);
    free(l.piece);
    if (s || flags & FAK_DRY_RUN)
        cpu_ref_release(p);
    else
        *out = p;
    return s;
}

/* ---- weights ---- */

static void drop_weight(cpu_ref_weights *w, uint32_t id)
{
    if (!w->lent[id]) free(w->at[id]);
    w->at[id] = NULL;
    w->lent[id] = 0;
}

static void release_weights(cpu_ref_weights *w)
{
    if (!w || --w->refs) return;
    for (uint32_t i = 0; w->at && w->lent && i < w->count; i++) drop_weight(w, i);
    free(w->at);
    free(w->lent);
    free(w);
}

void cpu_ref_release(fak_program *p)
{
    if (!p) return;
    release_weights(p->weights);
    for (uint32_t k = 0; p->memory.at && k < OP_PARTS; k++) free(p->memory.at[p->values + k]);
    void *own[] = {p->op,          p->kv_layer,      p->taken,         p->slot_of,   p->arena,
                   p->step,        p->length,        p->memory.value,  p->memory.at, p->memory.kv.k,
                   p->memory.kv.v, p->memory.kv.raw, p->memory.scratch};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) free(own[i]);
    free(p);
}

static int32_t load_one(fak_program *p, uint32_t id, const fak_source *src, fak_error *e)
{
    cpu_ref_weights *w = p->weights;
    uint64_t bytes = value_bytes(p, id);
    const void *lent = src->flags & FAK_STABLE && src->borrow ? src->borrow(src->self, id) : NULL;
    void *own = lent ? NULL : take(bytes);
    if (!lent && !own)
        return cpu_ref_fail(e, FAK_E_MEMORY, id, "not enough host memory for a weight");
    int32_t s =
        lent ? FAK_OK
             : src->read(src->self, id, FAK_NATIVE, 0, p->memory.value[id].rows, own, bytes, e);
    if (s) {
        free(own);
        return s;
    }
    drop_weight(w, id);
    w->lent[id] = lent != NULL;
    w->at[id] = lent ? (void *)(uintptr_t)lent : own;
    return FAK_OK;
}

int32_t cpu_ref_load(fak_program *p, const uint32_t *value, uint32_t values,
                     const fak_source *theirs, fak_error *e)
{
    fak_source src;
    fak_take(&src, sizeof src, theirs);
    for (uint32_t i = 0; i < values; i++) {
        uint32_t id = value[i];
        if (id >= p->values || !is_weight(p, id))
            return cpu_ref_fail(e, FAK_E_ARGUMENT, id, "load of a value that is no weight");
        int32_t s = p->weights->at[id] ? FAK_OK : load_one(p, id, &src, e);
        if (s) return s;
        p->memory.at[id] = p->weights->at[id];
    }
    return FAK_OK;
}

int32_t cpu_ref_unload(fak_program *p, const uint32_t *value, uint32_t values, fak_error *e)
{
    (void)e;
    for (uint32_t i = 0; i < values; i++) {
        drop_weight(p->weights, value[i]);
        p->memory.at[value[i]] = NULL;
    }
    return FAK_OK;
}
