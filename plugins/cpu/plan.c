/* plan - which ops are taken, and the jobs that an op becomes. */
#include "cpu.h"

#include <stdlib.h>
#include <string.h>

/* ---- verdicts ---- */

static const fak_value *value(const fak_program *p, uint32_t id)
{
    return &p->value[id];
}

/* Of a matrix: 1 of a block dtype, 0 of a plain one, -1 unknown here. */
static int kind_of(const fak_program *p, uint32_t id)
{
    const fak_value *v = value(p, id);
    if (plain_bytes(v->dtype)) return 0;
    return layout_bytes(v->dtype, v->rows, v->cols) ? 1 : -1;
}

static int is_plain_f32(const fak_program *p, uint32_t id)
{
    return value(p, id)->dtype == FAK_F32;
}

static int known(uint32_t id)
{
    return (id >= FAK_OP_EMBED && id <= FAK_OP_ARGMAX) ||
           (id >= FAK_OP_NORM_MATMUL && id <= FAK_OP_MATMUL_ARGMAX);
}

int cpu_can_run(const fak_program *p, const fak_op *o)
{
    uint32_t first, n = fak_matrices(o, &first),
                    norm = o->id == FAK_OP_FFN || o->id == FAK_OP_NORM_MATMUL ||
                           o->id == FAK_OP_NORM_MATMUL_GLU || o->id == FAK_OP_RMSNORM ||
                           o->id == FAK_OP_ADD_BIAS;
    if (!known(o->id) || o->revision > 1 || o->head_dim > 1024) return 0;
    for (uint32_t i = 0; i < INPUTS; i++) {
        const fak_value *v = value(p, o->in[i]);
        if (v->layout != FAK_ROW_MAJOR || v->quant_bits || v->quant_act_scale != 0) return 0;
    }
    if (norm && !is_plain_f32(p, o->in[1])) return 0;
    for (uint32_t i = 0; i < n; i++) /* one kind of panels for all matrices of an op */
        if (kind_of(p, o->in[first + i]) < 0 ||
            (kind_of(p, o->in[first + i]) != kind_of(p, o->in[first]) && p->q8))
            return 0;
    return 1;
}

/* ---- jobs ---- */

static row_fn *row_kernel(const fak_program *p, uint32_t op)
{
    return (row_fn *)kernel_find(p->d->set, op, 0, 0);
}

static row_fn *row4_kernel(const fak_program *p, uint32_t op)
{
    return (row_fn *)kernel_find(p->d->set, op, 0, 4);
}

typedef struct maker {
    fak_program *p;
    uint32_t op, room;
    int failed;
} maker;

static job *add(maker *m, enum job_kind kind)
{
    static job spare;
    fak_program *p = m->p;
    if (p->job_count == m->room) {
        uint32_t room = m->room ? 2 * m->room : 256;
        job *wider = realloc(p->jobs, room * sizeof *wider);
        m->failed |= !wider;
        if (!wider) return &spare;
        p->jobs = wider;
        m->room = room;
    }
    job *j = &p->jobs[p->job_count++];
    *j = (job){.kind = kind, .op = m->op, .params = p->op[m->op]};
    return j;
}

static void add_rows(maker *m, uint32_t op, uint32_t a, uint32_t b, uint32_t y)
{
    job *j = add(m, JOB_ROWS);
    j->row = row_kernel(m->p, op);
    j->row4 = row4_kernel(m->p, op);
    j->a = a;
    j->b = b;
    j->y = y;
    j->cols = value(m->p, a)->cols;
}

/* Panels of `cols` columns of value a; `op`: a row kernel done first, into temp y. */
static void add_panels(maker *m, uint32_t a, uint32_t cols, uint32_t w, uint32_t op, uint32_t b,
                       uint32_t y)
{
    job *j = add(m, JOB_PANELS);
    j->row = op ? row_kernel(m->p, op) : NULL;
    j->row4 = op ? row4_kernel(m->p, op) : NULL;
    j->a = a;
    j->b = b;
    j->y = y;
    j->cols = cols;
    j->blocks = m->p->q8 && kind_of(m->p, w) == 1;
}

static job *add_matmul(maker *m, const uint32_t *w, const uint32_t *y, uint32_t n)
{
    job *j = add(m, JOB_MATMUL);
    for (uint32_t i = 0; i < n; i++) {
        j->w[i] = w[i];
        j->ys[i] = y[i];
    }
    j->matrices = n;
    j->cols = value(m->p, w[0])->cols;
    j->out_cols = value(m->p, w[0])->rows;
    j->blocks = m->p->q8 && kind_of(m->p, w[0]) == 1;
    return j;
}

static void make_ffn(maker *m, const fak_op *o)
{
    uint32_t temp = m->p->values, D = value(m->p, o->in[2])->cols, F = value(m->p, o->in[2])->rows;
    uint32_t hidden = temp + 1;
    int whole = o->id == FAK_OP_FFN;
    add_panels(m, o->in[0], D, o->in[2], FAK_OP_RMSNORM, o->in[1], temp);
    job *j = add_matmul(m, &o->in[2], (uint32_t[]){whole ? hidden : o->out[0], 0}, 2);
    j->glu = 1;
    j->row = row_kernel(m->p, FAK_OP_GLU);
    if (!whole) return;
    add_panels(m, hidden, F, o->in[4], 0, 0, 0);
    add_matmul(m, &o->in[4], o->out, 1)->add = o->in[0];
}

static void make(maker *m, const fak_op *o)
{
    uint32_t temp = m->p->values, logits = temp + 2;
    job *j;
    switch (o->id) {
    case FAK_OP_EMBED:
        j = add(m, JOB_EMBED);
        j->w[0] = o->in[0];
        j->y = o->out[0];
        break;
    case FAK_OP_TAKE_ROWS:
        j = add(m, JOB_TAKE);
        j->a = o->in[0];
        j->y = o->out[0];
        j->cols = value(m->p, o->in[0])->cols;
        break;
    case FAK_OP_ROPE:
    case FAK_OP_ROPE_APPEND:
        j = add(m, JOB_ROPE);
        j->row = row_kernel(m->p, FAK_OP_ROPE);
        j->a = o->in[0];
        j->b = o->in[o->id == FAK_OP_ROPE ? 1 : 3];
        j->y = o->out[0];
        j->cols = value(m->p, o->in[0])->cols;
        if (o->id == FAK_OP_ROPE_APPEND) add(m, JOB_APPEND);
        break;
    case FAK_OP_KV_APPEND:
        add(m, JOB_APPEND);
        break;
    case FAK_OP_ATTENTION:
        j = add(m, JOB_ATTENTION);
        j->a = o->in[0];
        j->y = o->out[0];
        break;
    case FAK_OP_NORM_MATMUL:
        add_panels(m, o->in[0], value(m->p, o->in[0])->cols, o->in[2], FAK_OP_RMSNORM, o->in[1],
                   temp);
        add_matmul(m, &o->in[2], o->out, 1u + (o->in[3] != 0) + (o->in[4] != 0));
        break;
    case FAK_OP_FFN:
    case FAK_OP_NORM_MATMUL_GLU:
        make_ffn(m, o);
        break;
    case FAK_OP_GLU_MATMUL_ADD:
        add_panels(m, o->in[0], value(m->p, o->in[0])->cols, o->in[2], FAK_OP_GLU, o->in[1], temp);
        add_matmul(m, &o->in[2], o->out, 1)->add = o->in[3];
        break;
    case FAK_OP_MATMUL:
    case FAK_OP_MATMUL_ADD:
        add_panels(m, o->in[0], value(m->p, o->in[0])->cols, o->in[1], 0, 0, 0);
        add_matmul(m, &o->in[1], o->out, 1)->add = o->in[2];
        break;
    case FAK_OP_MATMUL_ARGMAX:
        add_panels(m, o->in[0], value(m->p, o->in[0])->cols, o->in[1], 0, 0, 0);
        add_matmul(m, &o->in[1], &logits, 1);
        j = add(m, JOB_ROWS);
        j->row = row_kernel(m->p, FAK_OP_ARGMAX);
        j->a = logits;
        j->y = o->out[0];
        j->cols = value(m->p, o->in[1])->rows;
        break;
    default:
        add_rows(m, o->id, o->in[0], o->in[1], o->out[0]);
    }
}

int32_t cpu_make_jobs(fak_program *p)
{
    maker m = {.p = p};
    for (uint32_t i = 0; i < p->ops; i++) {
        p->first_job[i] = p->job_count;
        m.op = i;
        if (p->taken[i]) make(&m, &p->op[i]);
    }
    p->first_job[p->ops] = p->job_count;
    return m.failed ? FAK_E_MEMORY : FAK_OK;
}
