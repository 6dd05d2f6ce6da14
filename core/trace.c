/* trace - see trace.h. */
#include "trace.h"

#include "port.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The first weight among an op's inputs, for the sentence. */
static const char *weight_name(const program *p, const fak_op *o)
{
    for (uint32_t j = 0; j < OP_INPUTS; j++) {
        uint32_t index = o->in[j] ? p->fused.weight[o->in[j]] : FAK_NO_INDEX;
        if (index != FAK_NO_INDEX) return p->m->weights.at[index].name;
    }
    return "no weight";
}

static int32_t found(const program *p, uint32_t op, uint32_t row, uint32_t col, fak_error *e)
{
    const fak_op *o = &p->op[op];
    char layer[32] = "outside layers";
    if (o->layer != FAK_NO_INDEX) snprintf(layer, sizeof layer, "layer %" PRIu32, o->layer);
    status_set(e, STATUS_NAN,
               "the logits hold a NaN; on the reference it first appears in op %" PRIu32
               " (%s, %s; %s), row %" PRIu32 ", column %" PRIu32,
               op, ops_name(o->id), layer, weight_name(p, o), row, col);
    e->index = op;
    return STATUS_NAN;
}

static int32_t look(void *self, exec *x, uint32_t op, const fak_step *step, fak_error *e)
{
    const program *p = x->p;
    float *rows = self;
    for (uint32_t j = 0; j < OP_OUTPUTS; j++) {
        uint32_t id = p->op[op].out[j];
        if (!id || p->value[id].dtype != FAK_F32) continue;
        int32_t s = exec_read(x, op, id, step, rows, e);
        if (s) return s;
        uint32_t cols = p->value[id].cols;
        for (uint32_t r = 0; r < exec_rows(x, id, step); r++)
            for (uint32_t c = 0; c < cols; c++)
                if (rows[(size_t)r * cols + c] != rows[(size_t)r * cols + c])
                    return found(p, op, r, c, e);
    }
    return FAK_OK;
}

/* The prompt, then the ids that were fed, one step after another. */
static int32_t replay(session *t, const generation *g, fak_error *e)
{
    uint32_t slot, answer;
    int32_t s = kv_take(&t->kv, &slot, e);
    if (!s) s = session_feed(t, slot, g->prompt, g->prompt_count, FAK_WANT_ARGMAX, 0, &answer, e);
    for (size_t i = 0; !s && i < g->ids.count; i++) {
        if (t->stop && t->stop(t->stop_self))
            return status_set(e, FAK_E_CANCELLED, "stopped while a NaN is traced");
        s = session_feed(t, slot, &g->ids.id[i], 1, FAK_WANT_ARGMAX, 0, &answer, e);
    }
    return s;
}

/* There may be no memory for a second run: the NaN is there all the same. */
static int32_t untraced(fak_error *e)
{
    char why[sizeof e->message];
    snprintf(why, sizeof why, "%s", e->message);
    return status_set(e, STATUS_NAN, "the logits hold a NaN, and cannot be traced: %s", why);
}

int32_t trace_nan(const session *s, device *host, const generation *g, fak_error *e)
{
    const fak_limits *l = &s->program.limits;
    session_options o = {.context = l->context,
                         .rows = 16,
                         .kv_dtype = l->kv_dtype,
                         .act = l->numerics & 255u,
                         .flags = FAK_KEEP_ALL};
    if (o.act == FAK_ACT_F16) o.act = FAK_ACT_F32; /* which the reference does not have */
    session t;
    uint32_t widest = s->m->vocab;
    for (uint32_t i = 0; i < s->program.values; i++)
        if (s->program.value[i].kind >= FAK_ACT && s->program.value[i].cols > widest)
            widest = s->program.value[i].cols;
    float *rows = port_alloc((uint64_t)widest * o.rows * sizeof *rows);
    int32_t rc = session_open(&t, s->m, host, host, &o, NULL, NULL, e);
    if (!rows) rc = status_memory(e, "the trace of a NaN", (uint64_t)widest * o.rows * 4);
    if (!rc) {
        t.exec.watch = look;
        t.exec.watch_self = rows;
        t.stop = s->stop;
        t.stop_self = s->stop_self;
        rc = replay(&t, g, e);
    }
    if (!rc)
        rc = status_set(e, STATUS_NAN,
                        "the logits hold a NaN; the reference has none: backend %s is at fault",
                        s->program.side[SIDE_DEVICE]->from->name);
    session_close(&t);
    free(rows);
    return rc == STATUS_NAN || rc == FAK_E_CANCELLED ? rc : untraced(e);
}
