/* lockstep - see lockstep.h. */
#include "lockstep.h"

#include "port.h"
#include "ref.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

const char *lockstep_op_text(const program *p, uint32_t op, char text[64])
{
    const fak_op *o = &p->op[op];
    if (o->layer == FAK_NO_INDEX)
        snprintf(text, 64, "%s, outside layers", ops_name(o->id));
    else
        snprintf(text, 64, "%s, layer %" PRIu32, ops_name(o->id), o->layer);
    return text;
}

/* Appends one operand by the name that the op table gives it. */
static void add_operand(char text[200], const program *p, const char *word, size_t n, uint32_t id,
                        uint32_t rows)
{
    const fak_value *v = &p->value[id];
    size_t used = strlen(text);
    uint32_t count = v->rows == FAK_STEP_ROWS || v->rows == FAK_WANTED_ROWS ? rows : v->rows;
    if (!id) return;
    snprintf(text + used, 200 - used, "%s%.*s [%" PRIu32 ", %" PRIu32 "]%s%s", used ? " " : "",
             (int)n, word, count, v->cols, v->kind == FAK_WEIGHT ? " " : "",
             v->kind == FAK_WEIGHT ? dtype_name(v->dtype) : "");
}

const char *lockstep_shapes_text(const program *p, uint32_t op, uint32_t rows, char text[200])
{
    const fak_op *o = &p->op[op];
    const char *at = ops_find(o->id)->operands;
    uint32_t in = 0, out = 0, left = 1;
    text[0] = 0;
    while (*(at += strspn(at, " []"))) {
        size_t n = strcspn(at, " []"), used = strlen(text);
        if (*at == '>') {
            snprintf(text + used, 200 - used, " >");
            left = 0;
        } else if (left && in < OP_INPUTS) {
            add_operand(text, p, at, n, o->in[in++], rows);
        } else if (out < OP_OUTPUTS) {
            add_operand(text, p, at, n, o->out[out++], rows);
        }
        at += n;
    }
    return text;
}

/* ---- the reference's step ---- */

static int32_t record(void *self, exec *x, uint32_t op, const fak_step *step, fak_error *e)
{
    lockstep *l = self;
    for (uint32_t j = 0; j < OP_OUTPUTS; j++) {
        uint32_t id = x->p->op[op].out[j];
        size_t count = (size_t)exec_rows(x, id, step) * x->p->value[id].cols;
        if (!id) continue;
        if (l->room - l->used < count)
            return status_set(e, FAK_E_MEMORY, "a step is longer than was reckoned");
        int32_t s = exec_read(x, op, id, step, l->rows + l->used, e);
        if (s) return s;
        l->at[id] = l->used + 1;
        l->used += count;
    }
    return FAK_OK;
}

/* ---- the device's ---- */

static int32_t told(lockstep *l, const exec *x, enum lockstep_where where, uint32_t op,
                    uint32_t value, const fak_span *span, const gate_figures *f,
                    const gate_bound *b, fak_error *e)
{
    static const char *const what[] = {"", "", "keys appended by ", "values appended by "};
    char text[64], why[sizeof e->message];
    l->failed = 1;
    l->part = (lockstep_part){.where = where,
                              .step = l->steps,
                              .op = op,
                              .value = value,
                              .slot = span->slot,
                              .first = span->first,
                              .rows = span->rows,
                              .figures = *f,
                              .want_id = l->part.want_id,
                              .got_id = l->part.got_id,
                              .bound = *b};
    snprintf(why, sizeof why, "%s", e->message);
    status_set(e, STATUS_GATE, "%sop %" PRIu32 " (%s): %s", what[where], op,
               lockstep_op_text(x->p, op, text), why);
    e->index = op;
    return STATUS_GATE;
}

/* The bound of an op: of its matrix's dtype. */
static gate_bound bound_of(const program *p, uint32_t op)
{
    uint32_t dtype = FAK_F32;
    for (uint32_t j = 0; j < OP_INPUTS; j++) {
        const fak_value *v = &p->value[p->op[op].in[j]];
        if (v->kind == FAK_WEIGHT && v->rows > 1) dtype = v->dtype;
    }
    return gate_bound_of(p->side[SIDE_DEVICE], p->limits.numerics & 255u, dtype,
                         p->limits.kv_dtype);
}

/* Ids are equal, or what they were chosen from is too close to tell: in an op that makes it itself. */
static int32_t compare_ids(lockstep *l, exec *x, uint32_t op, uint32_t value, uint32_t rows,
                           const gate_bound *b, gate_figures *f, fak_error *e)
{
    const uint32_t *want = (const uint32_t *)(const void *)(l->rows + l->at[value] - 1);
    const uint32_t *got = (const uint32_t *)(const void *)l->theirs;
    const fak_op *o = &x->p->op[op];
    fak_op first = plan_op(x->p->base.block, x->p->fused.origin[op]);
    for (uint32_t r = 0; r < rows; r++) {
        f->values++;
        if (want[r] == got[r]) continue;
        uint32_t V = x->p->value[o->in[1]].rows;
        size_t at = o->id == FAK_OP_MATMUL_ARGMAX ? l->at[first.out[0]] : 0;
        const float *logits = l->rows + at - 1 + (size_t)r * V;
        if (at && !b->exact && got[r] < V && want[r] < V) {
            double squares = 0;
            for (uint32_t i = 0; i < V; i++) squares += (double)logits[i] * (double)logits[i];
            double off = GATE_ELEMENT * b->op_l2; /* over the RMS; both may be off by it */
            double gap = (double)(logits[want[r]] - logits[got[r]]);
            if (gap * gap < 4 * off * off * squares / V) continue;
        }
        f->differ++;
        f->row = r;
        l->part.want_id = want[r];
        l->part.got_id = got[r];
        return status_set(e, STATUS_GATE,
                          "row %" PRIu32 " is id %" PRIu32 " where the reference has %" PRIu32, r,
                          got[r], want[r]);
    }
    return FAK_OK;
}

static int32_t compare_output(lockstep *l, exec *x, uint32_t op, uint32_t value,
                              const fak_step *step, const fak_span *span, fak_error *e)
{
    const fak_value *v = &x->p->value[value];
    uint32_t rows = exec_rows(x, value, step), cols = v->cols;
    gate_bound b = bound_of(x->p, op);
    gate_figures f = GATE_NONE;
    const float *want = l->rows + l->at[value] - 1;
    int32_t s = exec_read(x, op, value, step, l->theirs, e);
    if (s) return s;
    if (v->dtype == FAK_I32) {
        s = compare_ids(l, x, op, value, rows, &b, &f, e);
        return s == STATUS_GATE ? told(l, x, PART_IDS, op, value, span, &f, &b, e) : s;
    }
    for (uint32_t r = 0; r < rows; r++)
        gate_add_row(&f, r, cols, want + (size_t)r * cols, l->theirs + (size_t)r * cols);
    gate_merge(&l->worst, &f);
    if (gate_op(&b, &f, e)) return told(l, x, PART_OUTPUT, op, value, span, &f, &b, e);
    return f.differ && !l->pure ? exec_write(x, op, value, step, want, e) : FAK_OK;
}

/* Rows [first, first + rows) of a layer's keys and values, as the device of that side reads them. */
static int32_t read_kv(const exec *x, const fak_op *o, const fak_span *span, float *k, float *v,
                       fak_error *e)
{
    const device *d = x->p->side[SIDE_DEVICE];
    uint64_t ticket = 0;
    *e = (fak_error){.index = FAK_NO_INDEX};
    int32_t s = d->api.kv_read(x->p->handle[SIDE_DEVICE], span->slot, o->layer, span->first,
                               span->rows, k, v, &ticket, e);
    return exec_wait(x, SIDE_DEVICE, s, ticket, "kv_read", e);
}

/* An element beside the middle of two that kv can hold may be rounded to either. */
static double grain_of(uint32_t kv_dtype)
{
    return kv_dtype == FAK_BF16 ? 0x1p-7 : kv_dtype == FAK_F16 ? 0x1p-10 : 0;
}

/* The reference's rows in place of the device's, so that what attends to them has equal inputs. */
static int32_t write_kv(const exec *x, const fak_op *o, const fak_span *span, const float *k,
                        const float *v, fak_error *e)
{
    const device *d = x->p->side[SIDE_DEVICE];
    if (!d->api.kv_write || x->p->flags & FAK_EVICTABLE) return FAK_OK;
    *e = (fak_error){.index = FAK_NO_INDEX};
    int32_t s = d->api.kv_write(x->p->handle[SIDE_DEVICE], span->slot, o->layer, span->first,
                                span->rows, k, v, e);
    return device_answer(d, s, "kv_write", e);
}

/* What the op has appended; the reference has its own of the whole step by now. */
static int32_t compare_kv(lockstep *l, exec *x, uint32_t op, const fak_span *span, fak_error *e)
{
    const fak_op *o = &x->p->op[op];
    uint32_t cols = o->kv_heads * o->head_dim;
    size_t count = (size_t)span->rows * cols;
    float *half[4] = {l->theirs, l->theirs + count, l->theirs + 2 * count, l->theirs + 3 * count};
    gate_bound b = bound_of(x->p, op);
    uint64_t differ = 0;
    if (b.op_l2 < grain_of(x->p->limits.kv_dtype)) b.op_l2 = grain_of(x->p->limits.kv_dtype);
    int32_t s = read_kv(&l->ref.exec, o, span, half[0], half[1], e);
    if (!s) s = read_kv(x, o, span, half[2], half[3], e);
    for (uint32_t part = 0; !s && part < 2; part++) {
        gate_figures f = GATE_NONE;
        for (uint32_t r = 0; r < span->rows; r++)
            gate_add_row(&f, r, cols, half[part] + (size_t)r * cols,
                         half[part + 2] + (size_t)r * cols);
        gate_merge(&l->worst, &f);
        if (gate_op(&b, &f, e))
            return told(l, x, part ? PART_VALUES : PART_KEYS, op, 0, span, &f, &b, e);
        differ += f.differ;
    }
    return s || !differ || l->pure ? s : write_kv(x, o, span, half[0], half[1], e);
}

static int32_t compare(void *self, exec *x, uint32_t op, const fak_step *step, fak_error *e)
{
    lockstep *l = self;
    const fak_op *o = &x->p->op[op];
    fak_span span;
    int32_t s = FAK_OK;
    FAK_GET(&span, step, span, 0);
    if (program_side_of(x->p, op) == SIDE_HOST) return FAK_OK; /* the reference itself */
    int appends = o->id == FAK_OP_KV_APPEND || o->id == FAK_OP_ROPE_APPEND;
    int seen = x->p->side[SIDE_DEVICE]->api.kv_read != NULL;
    l->ops += seen || o->id != FAK_OP_KV_APPEND;
    l->unseen += appends && !seen;
    if (appends && seen) s = compare_kv(l, x, op, &span, e);
    for (uint32_t j = 0; !s && j < OP_OUTPUTS; j++)
        if (o->out[j] && l->at[o->out[j]]) s = compare_output(l, x, op, o->out[j], step, &span, e);
    return s;
}

/* ---- open, feed ---- */

/* Floats of all values of a step, and of the widest thing that is read at once. */
static void reckon(const program *p, size_t *all, size_t *widest)
{
    uint64_t rows = p->limits.rows, sum = 0, most = 0;
    for (uint32_t i = 0; i < p->values; i++) {
        if (p->value[i].kind < FAK_ACT) continue;
        sum += rows * p->value[i].cols;
        if (p->value[i].cols > most) most = p->value[i].cols;
    }
    for (uint32_t i = 0; i < p->ops; i++)
        if (4ull * p->op[i].kv_heads * p->op[i].head_dim > most)
            most = 4ull * p->op[i].kv_heads * p->op[i].head_dim;
    *all = (size_t)sum;
    *widest = (size_t)(most * rows);
}

int32_t lockstep_open(lockstep *l, const model *m, device *dev, device *host,
                      const session_options *options, fak_error *e)
{
    session_options o = *options;
    uint32_t slot;
    size_t widest;
    *l = (lockstep){.worst = GATE_NONE};
    o.flags |= FAK_KEEP_ALL;
    if (!o.rows) o.rows = 16;
    o.wanted = o.rows;
    if (!o.act) o.act = program_default_act(m, dev);
    int32_t s = session_open(&l->dev, m, dev, host, &o, NULL, NULL, e);
    if (o.act == FAK_ACT_F16) o.act = FAK_ACT_F32; /* that is judged by the reference's F32 */
    if (!s) s = session_open(&l->ref, m, host, host, &o, NULL, NULL, e);
    if (!s) s = kv_take(&l->dev.kv, &slot, e);
    if (!s) s = kv_take(&l->ref.kv, &slot, e);
    if (s) return s;
    reckon(&l->ref.program, &l->room, &widest);
    l->rows = port_alloc((uint64_t)l->room * sizeof *l->rows);
    l->theirs = port_alloc((uint64_t)widest * sizeof *l->theirs);
    l->at = calloc(l->ref.program.values, sizeof *l->at);
    if (!l->rows || !l->theirs || !l->at)
        return status_memory(e, "the values of a step", (uint64_t)(l->room + widest) * 4);
    l->ref.exec.watch = record;
    l->dev.exec.watch = compare;
    l->ref.exec.watch_self = l->dev.exec.watch_self = l;
    return FAK_OK;
}

void lockstep_close(lockstep *l)
{
    session_close(&l->dev);
    session_close(&l->ref);
    free(l->rows);
    free(l->theirs);
    free(l->at);
    *l = (lockstep){0};
}

int32_t lockstep_feed(lockstep *l, const uint32_t *id, uint32_t count, uint32_t want, fak_error *e)
{
    uint32_t most = session_step_rows(&l->dev);
    int32_t s = FAK_OK;
    for (uint32_t done = 0, rows; !s && done < count; done += rows) {
        rows = count - done < most ? count - done : most;
        memset(l->at, 0, l->ref.program.values * sizeof *l->at);
        l->used = 0;
        s = session_feed(&l->ref, 0, id + done, rows, want, 1, NULL, e);
        if (!s) s = session_feed(&l->dev, 0, id + done, rows, want, 1, NULL, e);
        if (!s) l->steps++;
    }
    return s;
}

uint32_t lockstep_next(const lockstep *l)
{
    const fak_plan *p = l->ref.program.fused.block;
    uint32_t next = FAK_NO_INDEX;
    for (uint32_t i = 0; i < p->tails.count; i++) {
        fak_tail t = plan_tail(p, i);
        if (t.want != FAK_WANT_ARGMAX || !l->at[t.out]) continue;
        memcpy(&next, l->rows + l->used - 1, sizeof next); /* the last row of what came last */
    }
    return next;
}
