/* plan_check - see plan_check.h. */
#include "plan_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int32_t bad(fak_error *e, uint32_t index, const char *what, uint64_t a, uint64_t b)
{
    status_set(e, FAK_E_ARGUMENT, "plan: %s (%" PRIu64 ", %" PRIu64 ")", what, a, b);
    e->index = index;
    return FAK_E_ARGUMENT;
}

/* ---- the block ---- */

static int array_fits(const fak_plan *p, const fak_array *a, uint32_t size)
{
    return a->stride >= size && a->stride % 4 == 0 && a->offset % 4 == 0 &&
           a->offset >= p->struct_size && a->offset <= p->bytes &&
           (uint64_t)a->count * a->stride <= p->bytes - a->offset;
}

static int32_t check_block(const fak_plan *p, uint64_t bytes, fak_error *e)
{
    if (bytes < sizeof *p || p->struct_size < sizeof *p || p->bytes > bytes ||
        p->bytes < p->struct_size)
        return bad(e, FAK_NO_INDEX, "the block is shorter than it says",
                   bytes < sizeof *p ? sizeof *p : p->bytes, bytes);
    if (!array_fits(p, &p->values, sizeof(fak_value)) || !array_fits(p, &p->ops, sizeof(fak_op)) ||
        !array_fits(p, &p->repeats, sizeof(fak_repeat)) ||
        !array_fits(p, &p->tails, sizeof(fak_tail)))
        return bad(e, FAK_NO_INDEX, "an array lies outside the block", p->bytes, bytes);
    if (p->body_ops > p->ops.count)
        return bad(e, FAK_NO_INDEX, "body longer than the ops", p->body_ops, p->ops.count);
    return FAK_OK;
}

static int32_t check_value(const fak_plan *p, uint32_t i, fak_error *e)
{
    fak_value v = plan_value(p, i);
    if (i == 0 && v.kind != FAK_UNUSED) return bad(e, i, "value 0 is used", v.kind, 0);
    if (v.kind > FAK_OUT) return bad(e, i, "a value of unknown kind", i, v.kind);
    static const fak_value unused;
    if (v.kind == FAK_UNUSED)
        return memcmp(&v, &unused, sizeof v) ? bad(e, i, "an unused value with fields", i, 0)
                                             : FAK_OK;
    if (v.dtype == 0 || v.dtype >= 32) return bad(e, i, "a value of unknown dtype", i, v.dtype);
    if (!(v.kind == FAK_WEIGHT || v.dtype == FAK_F32 || (v.kind == FAK_OUT && v.dtype == FAK_I32)))
        return bad(e, i, "a value that is not F32", i, v.dtype);
    if (!isfinite(v.quant_act_scale))
        return bad(e, i, "a value with a scale that is no number", i, 0);
    if (v.layout != FAK_ROW_MAJOR) return bad(e, i, "a value of unknown layout", i, v.layout);
    if (!v.rows || !v.cols) return bad(e, i, "a value without rows or columns", v.rows, v.cols);
    if (v.kind < FAK_ACT && v.rows >= FAK_WANTED_ROWS)
        return bad(e, i, "a weight whose rows follow the step", i, v.rows);
    if (v.kind >= FAK_ACT && v.rows != FAK_WANTED_ROWS && v.rows != FAK_STEP_ROWS)
        return bad(e, i, "an activation of fixed rows", i, v.rows);
    return FAK_OK;
}

/* ---- ops ---- */

static int32_t check_params(const op_info *info, const fak_op *o, uint32_t i, fak_error *e)
{
    for (uint32_t j = 0; j < OP_PARAMS; j++) {
        uint32_t word;
        memcpy(&word, (const char *)o + op_params[j].offset, 4);
        if (word && !(info->params >> j & 1))
            return bad(e, i, "an op with a parameter that it does not read", i, j);
    }
    if (!isfinite(o->eps) || !isfinite(o->scale) || !isfinite(o->softcap))
        return bad(e, i, "an op with a parameter that is no number", i, o->id);
    int turns = info->params >> 3 & 1, heads = info->params & 1, kv = info->params >> 1 & 1;
    if ((heads && !o->heads) || (kv && !o->kv_heads) || ((heads || kv) && !o->head_dim) ||
        (heads && kv && o->heads % o->kv_heads))
        return bad(e, i, "an op with impossible heads", o->heads, o->kv_heads);
    if (turns && (o->rot_dim > o->head_dim || o->rot_dim % 2))
        return bad(e, i, "an op with impossible rotary dimensions", o->rot_dim, o->head_dim);
    if (o->act > FAK_GELU_TANH) return bad(e, i, "an op of unknown activation", i, o->act);
    return FAK_OK;
}

/* Operands: known ids, as many as the table says, written before they are read, never twice. */
static int32_t check_operands(const fak_plan *p, const op_info *info, const fak_op *o, uint32_t i,
                              uint8_t *written, fak_error *e)
{
    for (uint32_t j = 0; j < OP_INPUTS; j++) {
        uint32_t id = o->in[j], kind = id < p->values.count ? plan_value(p, id).kind : FAK_UNUSED;
        if (id ? j >= info->inputs || kind == FAK_UNUSED : j < info->required)
            return bad(e, i, "an op with a wrong input", i, id);
        if (id && kind >= FAK_ACT && !written[id])
            return bad(e, i, "an op reads what is not written yet", i, id);
    }
    for (uint32_t j = 0; j < OP_OUTPUTS; j++) {
        uint32_t id = o->out[j], kind = id < p->values.count ? plan_value(p, id).kind : FAK_UNUSED;
        if (id ? j >= info->outputs || kind < FAK_ACT || written[id] : j == 0 && info->outputs > 0)
            return bad(e, i, "an op with a wrong output", i, id);
        if (id) written[id] = 1;
    }
    for (uint32_t j = 1; j < info->outputs; j++) { /* an output for each optional weight */
        uint32_t w = info->required + j - 1;
        if (!o->in[w] != !o->out[j] || (o->in[w] && !o->in[w - 1]))
            return bad(e, i, "an op with other outputs than weights", i, j);
    }
    return FAK_OK;
}

static int same_shape(const fak_value *a, uint32_t rows, uint32_t cols)
{
    return a->rows == rows && a->cols == cols;
}

/* Shapes of a core op's operands against each other. */
static int32_t check_shapes(const fak_op *o, const fak_value *v, uint32_t i, fak_error *e)
{
    const fak_value *a = &v[o->in[0]], *b = &v[o->in[1]], *y = &v[o->out[0]];
    uint32_t group = o->group ? o->group : a->cols;
    int ok = 1;
    /* clang-format off */
    switch (o->id) {
    case FAK_OP_EMBED: ok = a->kind == FAK_WEIGHT; break;
    case FAK_OP_RMSNORM: ok = same_shape(b, 1, group) && a->cols % group == 0; break;
    case FAK_OP_MATMUL: ok = b->kind == FAK_WEIGHT && a->cols == b->cols; break;
    case FAK_OP_ADD_BIAS: ok = same_shape(b, 1, a->cols); break;
    case FAK_OP_ROPE:
        ok = a->cols == (uint64_t)o->heads * o->head_dim && b->kind == FAK_CONST &&
             b->cols == o->rot_dim;
        break;
    case FAK_OP_KV_APPEND:
        ok = a->rows == FAK_STEP_ROWS && a->cols == (uint64_t)o->kv_heads * o->head_dim &&
             same_shape(b, a->rows, a->cols) && v[o->in[2]].kind == FAK_CONST && v[o->in[2]].cols == o->rot_dim;
        break;
    case FAK_OP_ATTENTION:
        ok = a->rows == FAK_STEP_ROWS && a->cols == (uint64_t)o->heads * o->head_dim;
        break;
    case FAK_OP_GLU:
    case FAK_OP_ADD: ok = same_shape(b, a->rows, a->cols); break;
    case FAK_OP_TAKE_ROWS: ok = a->rows == FAK_STEP_ROWS; break;
    default: break;
    }
    /* clang-format on */
    if (ok && o->out[0]) ok = same_shape(y, ops_out_rows(o, v), ops_out_cols(o, v));
    return ok ? FAK_OK : bad(e, i, "an op whose operands' shapes disagree", i, o->id);
}

static int32_t check_op(const fak_plan *p, uint32_t i, fak_value *value, uint8_t *written,
                        fak_error *e)
{
    fak_op o = plan_op(p, i), part[OP_PARTS];
    const op_info *info = ops_find(o.id);
    uint32_t temp[OP_PARTS], n;
    int32_t s;
    if (!info) return bad(e, i, "an op of unknown id", i, o.id);
    if (o.revision != 1) return bad(e, i, "an op of unknown revision", i, o.revision);
    int uses_kv = o.id == FAK_OP_KV_APPEND || o.id == FAK_OP_ATTENTION ||
                  o.id == FAK_OP_ROPE_APPEND;
    if (o.layer >= p->layers && (o.layer != FAK_NO_INDEX || uses_kv))
        return bad(e, i, "an op of a layer that is not there", o.layer, p->layers);
    if ((s = check_params(info, &o, i, e)) || (s = check_operands(p, info, &o, i, written, e)))
        return s;
    for (uint32_t k = 0; k < OP_PARTS; k++) temp[k] = p->values.count + k;
    n = ops_expand(&o, temp, part);
    if (!n) part[n++] = o;
    for (uint32_t k = 0; !s && k < n; k++) {
        if (part[k].out[0] >= p->values.count)
            value[part[k].out[0]] = (fak_value){.kind = FAK_ACT,
                                                .dtype = FAK_F32,
                                                .rows = ops_out_rows(&part[k], value),
                                                .cols = ops_out_cols(&part[k], value)};
        s = check_shapes(&part[k], value, i, e);
    }
    return s;
}

/* ---- repeats and tails ---- */

/* Index of the output of turn 0 that value id is, counted over the ops of the turn; or NO_INDEX. */
static uint32_t output_place(const fak_plan *p, const fak_repeat *r, uint32_t turn, uint32_t id)
{
    for (uint32_t i = 0; i < r->ops; i++) {
        fak_op o = plan_op(p, r->first + turn * r->ops + i);
        for (uint32_t j = 0; j < OP_OUTPUTS; j++)
            if (id && o.out[j] == id) return i * OP_OUTPUTS + j;
    }
    return FAK_NO_INDEX;
}

/* How turn t >= 1 comes to input `id` where turn 0 has `first`; WAY_NONE: not as the ABI has it. */
enum { WAY_NONE, WAY_OWN, WAY_SAME, WAY_STACKED, WAY_CARRIED /* + the output's place */ };
static uint32_t input_way(const fak_plan *p, const fak_repeat *r, uint32_t t, uint32_t first,
                          uint32_t id)
{
    uint32_t own = output_place(p, r, 0, first), before = output_place(p, r, t - 1, id);
    if (own != FAK_NO_INDEX) return output_place(p, r, t, id) == own ? WAY_OWN : WAY_NONE;
    if (before != FAK_NO_INDEX) return WAY_CARRIED + before;
    if (id == first) return WAY_SAME;
    fak_value a = plan_value(p, first), b = plan_value(p, id);
    return a.kind == FAK_WEIGHT && id == first + t * r->stride && !memcmp(&a, &b, sizeof a)
               ? WAY_STACKED
               : WAY_NONE;
}

/* Does an op outside read an output of a turn that is not the last?  *at names it. */
static int read_outside(const fak_plan *p, const fak_repeat *r, uint32_t *at)
{
    for (*at = r->first + r->ops * r->times; *at < p->ops.count; ++*at) {
        fak_op o = plan_op(p, *at);
        for (uint32_t j = 0; j < OP_INPUTS; j++)
            for (uint32_t t = 0; t + 1 < r->times; t++)
                if (output_place(p, r, t, o.in[j]) != FAK_NO_INDEX) return 1;
    }
    return 0;
}

int32_t plan_check_repeat(const fak_plan *p, const fak_repeat *r, fak_error *e)
{
    if (!r->ops || r->times < 2 || r->first > p->body_ops ||
        (uint64_t)r->ops * r->times > p->body_ops - r->first)
        return bad(e, r->first, "a repeat outside the body", r->ops, r->times);
    uint32_t step = 0; /* of layers, from turn to turn: that of the first op in one */
    for (uint32_t i = r->ops; i-- > 0;) {
        fak_op a = plan_op(p, r->first + i), b = plan_op(p, r->first + r->ops + i);
        if (a.layer != FAK_NO_INDEX) step = b.layer - a.layer;
    }
    for (uint32_t i = 0; i < r->ops; i++) {
        fak_op a = plan_op(p, r->first + i);
        uint32_t way[OP_INPUTS] = {0};
        for (uint32_t t = 1; t < r->times; t++) {
            uint32_t at = r->first + t * r->ops + i;
            fak_op b = plan_op(p, at), like = a;
            if (a.layer != FAK_NO_INDEX) like.layer = a.layer + t * step;
            for (uint32_t j = 0; j < OP_INPUTS; j++) {
                uint32_t w = a.in[j] && b.in[j] ? input_way(p, r, t, a.in[j], b.in[j]) : WAY_NONE;
                if (t == 1) way[j] = w;
                if (!b.in[j] != !a.in[j] || (a.in[j] && (w == WAY_NONE || w != way[j])))
                    return bad(e, at, "a repeated op with another input", at, b.in[j]);
            }
            memcpy(like.in, b.in, sizeof like.in);
            memcpy(like.out, b.out, sizeof like.out);
            if (memcmp(&like, &b, sizeof b)) return bad(e, at, "a repeated op that differs", at, t);
        }
    }
    uint32_t at;
    if (read_outside(p, r, &at))
        return bad(e, at, "an op that reads an earlier turn of a repeat", at, r->first);
    return FAK_OK;
}

/* Each tail sees what the body wrote, not what another tail did. */
static int32_t check_tail(const fak_plan *p, uint32_t i, uint32_t next, fak_value *value,
                          uint8_t *written, fak_error *e)
{
    fak_tail t = plan_tail(p, i);
    if (t.want == FAK_WANT_NONE || t.want > FAK_WANT_ARGMAX || t.first != next || !t.ops ||
        t.ops > p->ops.count - t.first)
        return bad(e, FAK_NO_INDEX, "a tail outside the ops", t.first, t.ops);
    for (uint32_t j = 0; j < i; j++)
        if (plan_tail(p, j).want == t.want)
            return bad(e, FAK_NO_INDEX, "a second tail of a want", i, t.want);
    int32_t s = FAK_OK;
    for (uint32_t j = t.first; !s && j < t.first + t.ops; j++)
        s = check_op(p, j, value, written, e);
    if (!s && (t.out >= p->values.count || plan_value(p, t.out).kind != FAK_OUT || !written[t.out]))
        s = bad(e, t.out, "a tail without its output", i, t.out);
    return s;
}

int32_t plan_check(const fak_plan *p, uint64_t bytes, fak_error *e)
{
    int32_t s = check_block(p, bytes, e);
    if (s) return s;
    fak_value *value = calloc((size_t)p->values.count + OP_PARTS, sizeof *value);
    uint8_t *written = calloc((size_t)p->values.count + 1, 1);
    uint8_t *body = calloc((size_t)p->values.count + 1, 1);
    if (!value || !written || !body) s = status_memory(e, "checking a plan", p->bytes);
    for (uint32_t i = 0; !s && i < p->values.count; i++) {
        value[i] = plan_value(p, i);
        s = check_value(p, i, e);
    }
    for (uint32_t i = 0; !s && i < p->body_ops; i++) s = check_op(p, i, value, written, e);
    uint32_t next = p->body_ops;
    if (!s) memcpy(body, written, p->values.count);
    for (uint32_t i = 0; !s && i < p->tails.count; i++) {
        memcpy(written, body, p->values.count);
        s = check_tail(p, i, next, value, written, e);
        if (!s) next += plan_tail(p, i).ops;
    }
    if (!s && next != p->ops.count)
        s = bad(e, FAK_NO_INDEX, "ops that no tail runs", next, p->ops.count);
    for (uint32_t i = 0; !s && i < p->repeats.count; i++) {
        fak_repeat r = plan_repeat(p, i);
        s = plan_check_repeat(p, &r, e);
    }
    free(value);
    free(written);
    free(body);
    return s;
}
