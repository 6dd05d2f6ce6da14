/* rig - see rig.h: the plan and prepare.  What is lent, and load: rig_load.c; steps: rig_step.c. */
#include "rig.h"

#include "plan_check.h"
#include "port.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHT_BYTES = 1 << 22 };

int32_t rig_open(rig *r, device *dev, uint32_t act, uint32_t rows, uint32_t slots, uint32_t context,
                 uint64_t seed, fak_error *e)
{
    *r = (rig){.dev = dev, .figures = GATE_NONE, .lend = 1};
    r->limits = (fak_limits){.struct_size = sizeof r->limits,
                             .numerics = act,
                             .rows = rows,
                             .wanted = rows,
                             .spans = slots,
                             .slots = slots,
                             .context = context,
                             .kv_tokens = slots * context,
                             .kv_dtype = FAK_F32,
                             .step_bytes = step_bytes(rows, rows, slots),
                             .steps = 1};
    plan_add_value(&r->draft, &(fak_value){.kind = FAK_UNUSED}, FAK_NO_INDEX);
    return toy_open(&r->toy, RIG_WEIGHTS, WEIGHT_BYTES, seed, e);
}

/* ---- values and ops ---- */

uint32_t rig_weight(rig *r, uint32_t dtype, uint32_t rows, uint32_t cols, float center, float scale)
{
    fak_value v = {.kind = FAK_WEIGHT, .dtype = dtype, .rows = rows, .cols = cols};
    fak_error e;
    uint32_t index;
    if (r->positive && center < scale) center = scale;
    if (toy_add(&r->toy, "weight", dtype, rows, cols, center, scale, &index, &e))
        r->draft.failed = 1;
    return plan_add_value(&r->draft, &v, index);
}

uint32_t rig_table(rig *r, uint32_t rot_dim)
{
    uint32_t rows = r->limits.context, index;
    fak_value v = {.kind = FAK_CONST, .dtype = FAK_F32, .rows = rows, .cols = rot_dim};
    fak_error e;
    if (toy_add_rope(&r->toy, rows, rot_dim, &index, &e)) r->draft.failed = 1;
    return plan_add_value(&r->draft, &v, index);
}

static uint32_t add_act(rig *r, uint32_t rows, uint32_t cols)
{
    fak_value v = {.kind = FAK_ACT, .dtype = FAK_F32, .rows = rows, .cols = cols};
    return plan_add_value(&r->draft, &v, FAK_NO_INDEX);
}

uint32_t rig_input(rig *r, uint32_t cols, int wanted)
{
    uint32_t id = add_act(r, wanted ? FAK_WANTED_ROWS : FAK_STEP_ROWS, cols);
    assert(r->inputs < RIG_INPUTS);
    r->input[r->inputs++] = id;
    return id;
}

uint32_t rig_op(rig *r, fak_op op)
{
    const op_info *info = ops_find(op.id);
    assert(r->ops < RIG_OPS);
    op.revision = 1;
    if (op.id != FAK_OP_KV_APPEND && op.id != FAK_OP_ATTENTION && op.id != FAK_OP_ROPE_APPEND)
        op.layer = FAK_NO_INDEX;
    for (uint32_t j = 0; !r->draft.failed && j < info->outputs; j++) {
        uint32_t w = j ? op.in[info->required + j - 1] : 0, *out = &op.out[j];
        if (j && !w) break;
        *out = add_act(r, ops_out_rows(&op, r->draft.value),
                       j ? r->draft.value[w].rows : ops_out_cols(&op, r->draft.value));
        assert(r->outputs < RIG_OUTPUTS);
        r->output[r->outputs++] = *out;
    }
    r->op[r->ops++] = op;
    return op.out[0];
}

/* ---- the plan ---- */

/* Where the host's op before an input writes it: EMBED; for rows that are wanted, TAKE_ROWS after one. */
static uint32_t embed(rig *r, uint32_t value, uint32_t cols)
{
    fak_value v = {.kind = FAK_WEIGHT, .dtype = FAK_F32, .rows = 8, .cols = cols};
    uint32_t ids = plan_add_value(&r->draft, &v, FAK_NO_INDEX);
    fak_op o = {.id = FAK_OP_EMBED, .revision = 1, .layer = FAK_NO_INDEX, .in = {ids}};
    o.out[0] = value ? value : add_act(r, FAK_STEP_ROWS, cols);
    plan_add_op(&r->draft, &o, 0);
    return o.out[0];
}

static void add_host_op(rig *r, uint32_t id, uint32_t in, uint32_t out)
{
    fak_op o = {.id = id, .revision = 1, .layer = FAK_NO_INDEX, .in = {in}, .out = {out}};
    if (id == FAK_OP_SCALE) o.scale = 1;
    plan_add_op(&r->draft, &o, 0);
}

static void add_ops(rig *r)
{
    r->first = r->draft.ops;
    for (uint32_t i = 0; i < r->ops; i++) plan_add_op(&r->draft, &r->op[i], 0);
}

/* An OUT of the tail, which the backend may be asked to read. */
static void make_out(rig *r, uint32_t id)
{
    uint32_t last = r->op[r->ops - 1].id;
    if (r->draft.failed) return;
    r->draft.value[id].kind = FAK_OUT;
    if (last == FAK_OP_ARGMAX || last == FAK_OP_MATMUL_ARGMAX) r->draft.value[id].dtype = FAK_I32;
}

/* The body: what makes the inputs, the ops, what takes the outputs; or the ops are the tail. */
static void lay_out(rig *r)
{
    plan_draft *d = &r->draft;
    uint32_t before[RIG_INPUTS];
    int in_tail = r->outputs && !d->failed && d->value[r->output[0]].rows == FAK_WANTED_ROWS;
    for (uint32_t i = 0; i < r->inputs; i++) {
        fak_value v = d->failed ? (fak_value){0} : d->value[r->input[i]];
        before[i] = embed(r, v.rows == FAK_WANTED_ROWS ? 0 : r->input[i], v.cols);
    }
    if (!r->inputs) embed(r, 0, 8); /* a plan of more than a hole and a weight */
    if (!in_tail) add_ops(r);
    for (uint32_t i = 0; !in_tail && i < r->outputs; i++)
        add_host_op(r, FAK_OP_SCALE, r->output[i],
                    add_act(r, FAK_STEP_ROWS, d->failed ? 1 : d->value[r->output[i]].cols));
    d->body_ops = d->ops;
    fak_tail tail = {.want = FAK_WANT_LOGITS, .first = d->ops};
    for (uint32_t i = 0; in_tail && i < r->inputs; i++)
        if (before[i] != r->input[i]) add_host_op(r, FAK_OP_TAKE_ROWS, before[i], r->input[i]);
    if (in_tail) {
        add_ops(r);
        tail.out = r->output[r->outputs - 1];
        make_out(r, tail.out);
    } else {
        uint32_t from = r->outputs ? r->output[0] : r->input[0];
        tail.out = add_act(r, FAK_WANTED_ROWS, d->failed ? 1 : d->value[from].cols);
        if (!d->failed) d->value[tail.out].kind = FAK_OUT;
        add_host_op(r, FAK_OP_TAKE_ROWS, from, tail.out);
    }
    tail.ops = d->ops - tail.first;
    if (!d->failed && d->value[tail.out].dtype == FAK_I32) tail.want = FAK_WANT_ARGMAX;
    d->tail[d->tails++] = tail;
    d->layers = 1;
}

/* ---- prepare ---- */

static int is_tested(const rig *r, uint32_t op)
{
    return op >= r->first && op < r->first + r->ops;
}

/* One call; the blocks that are lent for it are spoiled after it. */
static int32_t prepare(rig *r, uint32_t flags, fak_report *report, fak_error *e)
{
    const fak_backend *api = &r->dev->api;
    uint32_t bytes = r->plan.block->bytes;
    fak_plan *lent = rig_lend(r, bytes);
    fak_limits *limits = rig_lend(r, sizeof *limits);
    if (!lent || !limits) return status_memory(e, "a plan", bytes);
    memcpy(lent, r->plan.block, bytes);
    *limits = r->limits;
    for (uint32_t i = 0; i < lent->ops.count; i++)
        r->verdict[i] = is_tested(r, i) ? FAK_TAKEN : FAK_HOST;
    *report = (fak_report){.struct_size = sizeof *report};
    *e = (fak_error){.index = FAK_NO_INDEX};
    fak_program *handle = NULL;
    float_mode mode;
    float_mode_save(&mode);
    int32_t s =
        api->prepare(r->dev->handle, lent, limits, NULL, flags, r->verdict, report, &handle, e);
    rig_take_back(lent);
    rig_take_back(limits);
    r->handle = s ? NULL : handle; /* nothing was made */
    s = device_after(r->dev, s, &mode, "prepare", e);
    if (s) return s;
    if (!handle != !!(flags & FAK_DRY_RUN))
        return status_set(e, STATUS_GATE,
                          flags & FAK_DRY_RUN ? "a dry run answered a program"
                                              : "prepare answered no program");
    r->taken = 1;
    for (uint32_t i = 0; i < r->plan.block->ops.count; i++) {
        if (r->verdict[i] > FAK_TAKEN || (r->verdict[i] == FAK_TAKEN && !is_tested(r, i)))
            return status_set(e, STATUS_GATE,
                              "its verdict on op %" PRIu32 ", which was not offered, is %" PRIu32,
                              i, r->verdict[i]);
        if (is_tested(r, i) && r->verdict[i] != FAK_TAKEN) r->taken = 0;
    }
    return FAK_OK;
}

/* Room for the context of every slot in whole pages. */
static void round_up(rig *r)
{
    uint32_t page = r->dry.kv_page ? r->dry.kv_page : 1;
    r->limits.kv_tokens = (r->limits.context + page - 1) / page * page * r->limits.slots;
}

static void release(rig *r)
{
    if (r->handle) r->dev->api.release(r->handle);
    r->handle = NULL;
}

/* ---- the reference's memory ---- */

static int32_t take_rows(void **at, uint64_t bytes, fak_error *e)
{
    *at = port_alloc(bytes + 1);
    return *at ? FAK_OK : status_memory(e, "rows of a checked op", bytes);
}

static int32_t make_kv(rig *r, fak_error *e)
{
    ref_kv *kv = &r->memory.kv;
    *kv = (ref_kv){
        .dtype = r->limits.kv_dtype, .slots = r->limits.slots, .context = r->limits.context};
    for (uint32_t i = 0; i < r->ops; i++)
        if (r->op[i].kv_heads * r->op[i].head_dim > kv->width)
            kv->width = r->op[i].kv_heads * r->op[i].head_dim;
    uint64_t bytes = ref_kv_bytes(kv, 1);
    int32_t s = take_rows(&kv->k, bytes, e);
    return s ? s : take_rows(&kv->v, bytes, e);
}

static int32_t make_memory(rig *r, fak_error *e)
{
    ref_memory *m = &r->memory;
    uint32_t rows = r->limits.rows, temp[OP_PARTS];
    uint64_t scratch = 1;
    m->values = r->draft.values;
    m->act_q8 = (r->limits.numerics & FAK_ACT_Q8) != 0;
    m->value = calloc(m->values + (size_t)OP_PARTS, sizeof *m->value);
    m->at = calloc(m->values + (size_t)OP_PARTS, sizeof *m->at);
    if (!m->value || !m->at) return status_memory(e, "a checked op", m->values * 64ull);
    memcpy(m->value, r->draft.value, m->values * sizeof *m->value);
    int32_t s = make_kv(r, e);
    for (uint32_t v = 1; !s && v < m->values; v++) {
        uint32_t index = r->draft.weight[v];
        if (index != FAK_NO_INDEX)
            m->at[v] = (void *)(uintptr_t)toy_rows(&r->toy, index);
        else if (m->value[v].kind >= FAK_ACT)
            s = take_rows(&m->at[v], (uint64_t)rows * m->value[v].cols * 4, e);
    }
    for (uint32_t i = 0; !s && i < r->ops; i++) {
        uint64_t bytes =
            ref_op_scratch(&r->op[i], m->value, m->values, rows, r->limits.context, temp);
        scratch = bytes > scratch ? bytes : scratch;
        for (uint32_t k = 0; !s && k < OP_PARTS; k++)
            if (temp[k] && !m->at[m->values + k])
                s = take_rows(&m->at[m->values + k], (uint64_t)rows * temp[k] * 4, e);
    }
    return s ? s : take_rows(&m->scratch, scratch, e);
}

/* The bound is that of the coarsest weight. */
static void find_bound(rig *r)
{
    uint32_t dtype = FAK_F32;
    for (uint32_t v = 1; v < r->draft.values; v++) {
        const fak_value *w = &r->draft.value[v];
        if (w->kind == FAK_WEIGHT && w->rows > 1 && r->draft.weight[v] != FAK_NO_INDEX)
            dtype = w->dtype;
    }
    r->bound = gate_bound_of(r->dev, r->limits.numerics & 255u, dtype, r->limits.kv_dtype);
}

static int32_t make_plan(rig *r, fak_error *e)
{
    lay_out(r);
    find_bound(r);
    int32_t s = plan_pack(&r->plan, &r->draft, e);
    if (s) return s;
    r->verdict = calloc(r->plan.block->ops.count, sizeof *r->verdict);
    return r->verdict ? FAK_OK : status_memory(e, "verdicts", r->plan.block->ops.count * 4ull);
}

static int is_offered(const rig *r)
{
    for (uint32_t i = 0; i < r->ops; i++)
        if (!device_offers(r->dev, &r->op[i])) return 0;
    return 1;
}

int32_t rig_dry(rig *r, fak_error *e)
{
    if (!is_offered(r)) return FAK_OK;
    int32_t s = make_plan(r, e);
    return s ? s : prepare(r, r->flags | FAK_DRY_RUN, &r->dry, e);
}

int32_t rig_ready(rig *r, fak_error *e)
{
    int32_t s = rig_dry(r, e);
    if (s || !r->taken) return s;
    s = plan_check(r->plan.block, r->plan.block->bytes, e);
    assert(!s);
    round_up(r);
    s = prepare(r, r->flags | FAK_DRY_RUN, &r->dry, e);
    if (!s && r->taken) s = prepare(r, r->flags, &r->report, e);
    if (s || !r->taken) return s;
    s = make_memory(r, e);
    return s ? s : rig_load(r, e);
}

void rig_close(rig *r)
{
    release(r);
    for (uint32_t v = 0; r->memory.at && v < r->memory.values + OP_PARTS; v++)
        if (v >= r->memory.values || r->memory.value[v].kind >= FAK_ACT) free(r->memory.at[v]);
    free(r->memory.value);
    free(r->memory.at);
    free(r->memory.scratch);
    free(r->memory.kv.k);
    free(r->memory.kv.v);
    free(r->verdict);
    rig_free_lent(r);
    plan_draft_free(&r->draft);
    plan_free(&r->plan);
    toy_free(&r->toy);
    *r = (rig){0};
}
