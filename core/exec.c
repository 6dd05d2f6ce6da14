/* exec - see exec.h. */
#include "exec.h"

#include "float_mode.h"
#include "port.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- open ---- */

static int compiled(const program *p, enum program_side side)
{
    return (p->side[side]->facts.caps & FAK_CAP_GRAPH_COMPILE) != 0;
}

static int32_t find_calls(exec *x, fak_error *e)
{
    program *p = x->p;
    for (uint32_t i = 0; i < p->ops; i++) {
        enum program_side side = program_side_of(p, i);
        fak_op_entry entry;
        if (compiled(p, side)) continue;
        if (device_find_op(p->side[side], p->op[i].id, &entry))
            return status_set(e, FAK_E_UNSUPPORTED,
                              "backend %s took op %" PRIu32 " (%s) and has no function",
                              p->side[side]->from->name, i, ops_name(p->op[i].id));
        x->call[i] = entry.call;
    }
    return FAK_OK;
}

static void find_readers(exec *x)
{
    const fak_plan *block = x->p->fused.block;
    for (uint32_t i = 0; i < x->p->ops; i++) {
        uint32_t want = FAK_WANT_NONE;
        for (uint32_t t = 0; t < block->tails.count; t++) {
            fak_tail tail = plan_tail(block, t);
            if (i >= tail.first && i - tail.first < tail.ops) want = tail.want;
        }
        for (uint32_t j = 0; program_side_of(x->p, i) == SIDE_DEVICE && j < OP_INPUTS; j++)
            x->readers[x->p->op[i].in[j]] |= (uint8_t)(1u << want);
    }
}

int32_t exec_open(exec *x, program *p, fak_error *e)
{
    uint64_t widest = 1,
             rows = p->limits.rows > p->limits.wanted ? p->limits.rows : p->limits.wanted;
    *x = (exec){.p = p};
    for (uint32_t i = 0; p->holes && i < p->values; i++)
        if (p->value[i].kind >= FAK_ACT && p->value[i].cols > widest) widest = p->value[i].cols;
    x->call = calloc(p->ops, sizeof *x->call);
    x->fresh = calloc(p->values, 1);
    x->readers = calloc(p->values, 1);
    x->bounce = port_alloc(widest * rows * 4);
    if (!x->call || !x->fresh || !x->readers || !x->bounce)
        return status_memory(e, "what crosses between devices", widest * rows * 4);
    find_readers(x);
    return find_calls(x, e);
}

void exec_close(exec *x)
{
    free(x->call);
    free(x->fresh);
    free(x->readers);
    free(x->bounce);
    *x = (exec){0};
}

/* ---- rows between the sides ---- */

int32_t exec_wait(const exec *x, enum program_side side, int32_t s, uint64_t ticket,
                  const char *what, fak_error *e)
{
    const device *d = x->p->side[side];
    if (s || !ticket) return device_answer(d, s, what, e);
    if (!d->api.wait)
        return status_set(e, FAK_E_PROGRAM,
                          "backend %s answered ticket %" PRIu64 " and has no wait", d->from->name,
                          ticket);
    do s = d->api.wait(x->p->handle[side], ticket, FAK_FOREVER, e);
    while (s == FAK_PENDING);
    return device_answer(d, s, "wait", e);
}

static int32_t fetch(exec *x, enum program_side side, uint32_t value, uint32_t rows, void *dst,
                     fak_error *e)
{
    const device *d = x->p->side[side];
    uint64_t ticket = 0;
    *e = (fak_error){.index = FAK_NO_INDEX};
    int32_t s = d->api.read(x->p->handle[side], value, 0, rows, dst, &ticket, e);
    return exec_wait(x, side, s, ticket, "read", e);
}

static int32_t put(exec *x, enum program_side side, uint32_t value, uint32_t rows, const void *src,
                   fak_error *e)
{
    const device *d = x->p->side[side];
    *e = (fak_error){.index = FAK_NO_INDEX};
    int32_t s = d->api.write(x->p->handle[side], value, 0, rows, src, e);
    return device_answer(d, s, "write", e);
}

uint32_t exec_rows(const exec *x, uint32_t value, const fak_step *step)
{
    return x->p->value[value].rows == FAK_WANTED_ROWS ? step->wanted.count : step->rows;
}

int32_t exec_read(exec *x, uint32_t op, uint32_t value, const fak_step *step, void *dst,
                  fak_error *e)
{
    return fetch(x, program_side_of(x->p, op), value, exec_rows(x, value, step), dst, e);
}

int32_t exec_write(exec *x, uint32_t op, uint32_t value, const fak_step *step, const void *src,
                   fak_error *e)
{
    return put(x, program_side_of(x->p, op), value, exec_rows(x, value, step), src, e);
}

/* Makes a value's rows present on a side, through host memory. */
static int32_t bring(exec *x, enum program_side side, uint32_t value, const fak_step *step,
                     fak_error *e)
{
    const fak_value *v = &x->p->value[value];
    if (v->kind < FAK_ACT || x->fresh[value] >> side & 1) return FAK_OK;
    uint32_t rows = exec_rows(x, value, step);
    int32_t s = fetch(x, side == SIDE_HOST ? SIDE_DEVICE : SIDE_HOST, value, rows, x->bounce, e);
    if (s) return s;
    x->crossed_bytes += (uint64_t)rows * v->cols * 4;
    x->fresh[value] |= (uint8_t)(1u << side);
    return put(x, side, value, rows, x->bounce, e);
}

/* ---- ranges ---- */

/* Enqueues ops [first, first + n), whose inputs are there. */
static int32_t enqueue(exec *x, enum program_side side, uint32_t first, uint32_t n, fak_error *e)
{
    const device *d = x->p->side[side];
    fak_program *handle = x->p->handle[side];
    int32_t s = FAK_OK;
    *e = (fak_error){.index = FAK_NO_INDEX};
    if (compiled(x->p, side)) return device_answer(d, d->api.run(handle, first, n, e), "run", e);
    for (uint32_t i = first; !s && i < first + n; i++)
        s = device_answer(d, x->call[i](handle, i, e), ops_name(x->p->op[i].id), e);
    return s;
}

/* Runs ops [first, first + n), all of one side. */
static int32_t run_range(exec *x, enum program_side side, uint32_t first, uint32_t n,
                         const fak_step *step, fak_error *e)
{
    program *p = x->p;
    int32_t s = FAK_OK;
    for (uint32_t i = first; !s && i < first + n; i++) {
        for (uint32_t j = 0; !s && j < OP_INPUTS; j++) s = bring(x, side, p->op[i].in[j], step, e);
        for (uint32_t j = 0; j < OP_OUTPUTS; j++) x->fresh[p->op[i].out[j]] = (uint8_t)(1u << side);
    }
    if (!s) s = enqueue(x, side, first, n, e);
    if (s) return s;
    if (!float_mode_ok())
        return status_set(e, FAK_E_PROGRAM,
                          "backend %s changed the floating-point mode in ops %" PRIu32
                          " to %" PRIu32,
                          p->side[side]->from->name, first, first + n - 1);
    x->ranges++;
    x->ops[side] += n;
    for (uint32_t i = first; i < first + n; i++) x->by_id[side][p->op[i].id]++;
    return FAK_OK;
}

/* Fills holes [first, first + n): the device has what it will read before its next range runs. */
static int32_t hand_over(exec *x, uint32_t first, uint32_t n, const fak_step *step, fak_error *e)
{
    int32_t s = FAK_OK;
    for (uint32_t i = first; i < first + n; i++)
        for (uint32_t j = 0; !s && j < OP_OUTPUTS; j++) {
            uint32_t v = x->p->op[i].out[j];
            if (x->readers[v] & (1u | (step->wanted.count ? 1u << step->want : 0u)))
                s = bring(x, SIDE_DEVICE, v, step, e);
        }
    return s;
}

/* Cuts [first, end) into maximal ranges of one side. */
static int32_t run_ops(exec *x, uint32_t first, uint32_t end, const fak_step *step, fak_error *e)
{
    int32_t s = FAK_OK;
    while (!s && first < end) {
        enum program_side side = program_side_of(x->p, first);
        uint32_t n = 1;
        while (!x->watch && first + n < end && program_side_of(x->p, first + n) == side) n++;
        s = run_range(x, side, first, n, step, e);
        if (!s && side == SIDE_HOST) s = hand_over(x, first, n, step, e);
        if (!s && x->watch) s = x->watch(x->watch_self, x, first, step, e);
        first += n;
    }
    return s;
}

/* ---- steps ---- */

/* The host has room for a step that the device refused. */
static void give_back(exec *x, const fak_step *step)
{
    const fak_backend *api = &x->p->side[SIDE_HOST]->api;
    fak_error e;
    for (uint32_t i = 0; i < step->span.count; i++) {
        fak_span span;
        FAK_GET(&span, step, span, i);
        api->kv_trim(x->p->handle[SIDE_HOST], span.slot, span.first, &e);
    }
}

static int32_t begin_side(exec *x, enum program_side side, const fak_step *step, fak_error *e)
{
    const device *d = x->p->side[side];
    if (!x->p->handle[side]) return FAK_OK;
    *e = (fak_error){.index = FAK_NO_INDEX};
    return device_answer(d, d->api.begin(x->p->handle[side], step, e), "begin", e);
}

static int32_t begin(exec *x, const fak_step *step, fak_error *e)
{
    memset(x->fresh, 0, x->p->values);
    int32_t s = begin_side(x, SIDE_HOST, step, e);
    if (s) return s;
    s = begin_side(x, SIDE_DEVICE, step, e);
    if (s && x->p->holds_kv[SIDE_HOST]) give_back(x, step);
    return s;
}

int32_t exec_step(exec *x, const fak_step *step, void *out, fak_error *e)
{
    const fak_plan *p = x->p->fused.block;
    int32_t s = begin(x, step, e);
    if (!s) s = run_ops(x, 0, p->body_ops, step, e);
    for (uint32_t i = 0; !s && step->wanted.count && i < p->tails.count; i++) {
        fak_tail t = plan_tail(p, i);
        if (t.want != step->want) continue;
        s = run_ops(x, t.first, t.first + t.ops, step, e);
        enum program_side side = program_side_of(x->p, t.first + t.ops - 1);
        if (!s && out) s = fetch(x, side, t.out, step->wanted.count, out, e);
    }
    return s;
}
