/* check_speed - R6: how long an op takes, from its call until its answer is in host memory.  No bound: a
 * number for people, of this machine. */
#include "check.h"
#include "port.h"
#include "rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 25, CONTEXT = 320 };
static const double enough_s =
    0.05; /* seconds for one figure, when fewer repetitions take longer */

typedef struct timing {
    uint32_t op, in, out, rows;
} timing;

static const timing timings[] = {
    {FAK_OP_MATMUL, 576, 1536, 1}, {FAK_OP_MATMUL, 576, 1536, 32}, {FAK_OP_EMBED, 576, 512, 32},
    {FAK_OP_RMSNORM, 576, 0, 1},   {FAK_OP_RMSNORM, 576, 0, 32},   {FAK_OP_GLU, 1536, 0, 32},
    {FAK_OP_ATTENTION, 576, 0, 1}, {FAK_OP_ATTENTION, 576, 0, 32}, {FAK_OP_FFN, 256, 512, 1},
};

static void build(rig *r, const timing *t, uint32_t dtype)
{
    uint32_t x = t->op == FAK_OP_EMBED ? 0 : rig_input(r, t->in, 0);
    fak_op o = {.id = t->op, .in = {x}};
    if (t->op == FAK_OP_ATTENTION) {
        uint32_t k = rig_input(r, 192, 0), v = rig_input(r, 192, 0), tab = rig_table(r, 64);
        rig_op(r, (fak_op){.id = FAK_OP_KV_APPEND,
                           .in = {k, v, tab},
                           .kv_heads = 3,
                           .head_dim = 64,
                           .rot_dim = 64});
        o.heads = 9, o.kv_heads = 3, o.head_dim = 64, o.scale = 0.125f;
    }
    if (t->op == FAK_OP_EMBED) o.in[0] = rig_weight(r, dtype, t->out, t->in, 0, 1);
    if (t->op == FAK_OP_MATMUL) o.in[1] = rig_weight(r, dtype, t->out, t->in, 0, 1);
    if (t->op == FAK_OP_GLU) o.in[1] = rig_input(r, t->in, 0);
    if (t->op == FAK_OP_RMSNORM || t->op == FAK_OP_FFN)
        o.in[1] = rig_weight(r, FAK_F32, 1, t->in, 1, 0.1f), o.eps = 1e-5f;
    if (t->op == FAK_OP_FFN) {
        o.in[2] = rig_weight(r, dtype, t->out, t->in, 0, 1);
        o.in[3] = rig_weight(r, dtype, t->out, t->in, 0, 1);
        o.in[4] = rig_weight(r, dtype, t->in, t->out, 0, 1);
    }
    rig_op(r, o);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Attention is timed behind 256 positions. */
static int32_t measure(rig *r, const timing *t, double *median, fak_error *e)
{
    double took[MOST], start = port_seconds();
    uint32_t n = 0, wanted[1] = {0}, first = t->op == FAK_OP_ATTENTION ? 256 : 0;
    int32_t s = FAK_OK;
    for (uint32_t at = 0; !s && at < first; at += 32)
        s = rig_step(r, &(rig_spec){32, 1, &(fak_span){0, 0, 32, at}, wanted, 1, 0}, e);
    while (!s && n < MOST && (n < 3 || port_seconds() - start < enough_s)) {
        fak_span span = {0, 0, t->rows, first};
        s = rig_step(r, &(rig_spec){t->rows, 1, &span, wanted, 1, 0}, e);
        took[n++] = r->run_s;
    }
    if (s) return s;
    qsort(took, n, sizeof *took, by_value);
    *median = took[n / 2];
    return FAK_OK;
}

static void time_op(check *c, const timing *t, uint32_t dtype, uint32_t act)
{
    rig r;
    fak_error e;
    double median = 0;
    char what[120] = "";
    const char *matrix = t->out ? dtype_name(dtype) : "";
    check_begin(c, R6, ops_name(t->op), "%s%s%" PRIu32 " row%s", matrix, *matrix ? ", " : "",
                t->rows, t->rows == 1 ? "" : "s");
    int32_t s = rig_open(&r, &c->dev, act, 32, 1, CONTEXT, check_seed(c, 60), &e);
    if (!s) build(&r, t, dtype);
    if (!s) s = rig_ready(&r, &e);
    if (!s && r.taken) s = measure(&r, t, &median, &e);
    if (!s && r.taken && t->out && t->op != FAK_OP_EMBED && median > 0) {
        double flops = 2.0 * t->in * t->out * t->rows * (t->op == FAK_OP_FFN ? 3 : 1);
        snprintf(what, sizeof what, "%.2f GFLOP/s", flops / median * 1e-9);
    }
    c->row.value = median * 1e6;
    snprintf(c->row.unit, sizeof c->row.unit, "us");
    if (!s && !r.taken)
        check_end(c, CHECK_ABSTAIN, "left to the host");
    else if (s)
        check_end(c, CHECK_FAIL, e.message);
    else
        check_end(c, CHECK_PASS, what);
    rig_close(&r);
}

void check_speed(check *c)
{
    for (size_t i = 0; i < sizeof timings / sizeof *timings; i++) {
        const timing *t = &timings[i];
        for (uint32_t d = 1; d < 32; d++) {
            const dtype_info *kind = dtype_find(d);
            int kept = kind && (d == FAK_F32 || c->dev.facts.upload_dtypes >> d & 1);
            if (!kept || d == FAK_I32 || (!t->out && d != FAK_F32)) continue;
            uint32_t act = check_next_act(c, 0);
            if (kind->block > 1 && c->dev.facts.numerics & FAK_ACT_Q8) act = FAK_ACT_Q8;
            timing fit = *t;
            fit.in -= t->in % kind->block; /* 512 for K formats */
            time_op(c, &fit, d, act);
        }
    }
}
