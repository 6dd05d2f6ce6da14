/* plan - which ops are taken, and the place of their weights. */
#include "program.h"

#include <string.h>

enum { HEAD_MOST = 1024 };

/* ---- what an op costs ---- */

static uint64_t work_of(const fak_program *p, const fak_op *o)
{
    uint32_t first, n = o->id == FAK_OP_EMBED ? 0 : fak_matrices(o, &first);
    uint64_t all = 0;
    for (uint32_t i = 0; i < n; i++) {
        const fak_value *w = &p->value[o->in[first + i]];
        all += (uint64_t)w->rows * w->cols;
    }
    if (o->id == FAK_OP_ATTENTION) all = 2ull * o->heads * o->head_dim * p->limits.context;
    return all;
}

uint64_t vk_work(const fak_program *p, uint32_t first, uint32_t ops)
{
    uint64_t all = 0;
    for (uint32_t i = first; i < first + ops; i++) all += work_of(p, &p->op[i]);
    return all;
}

/* A range is cut where the longest step would take more than a submit may. */
uint32_t vk_part(const fak_program *p, uint32_t first, uint32_t ops)
{
    uint64_t most = p->d->opt.work / p->limits.rows, all = work_of(p, &p->op[first]);
    uint32_t n = 1;
    while (n < ops && (all += work_of(p, &p->op[first + n])) <= most) n++;
    return n;
}

static int uses_kv(const fak_op *o)
{
    uint32_t operand[3];
    return o->id == FAK_OP_ATTENTION || fak_appends(o, operand);
}

static int is_weight(const fak_value *v)
{
    return v->kind == FAK_WEIGHT || v->kind == FAK_CONST;
}

/* ---- verdicts ---- */

static int matrices_fit(const fak_program *p, const fak_op *o)
{
    uint32_t first, n = fak_matrices(o, &first);
    const fak_value *one = &p->value[o->in[first]];
    for (uint32_t i = 0; i < n; i++) {
        const fak_value *v = &p->value[o->in[first + i]];
        const weight_format *f = vk_format(v->dtype);
        if (!f || v->cols % f->cols) return 0;
        if (o->id == FAK_OP_FFN && i == 2) break; /* it is a matrix of its own */
        if (v->dtype != one->dtype || v->cols != one->cols) return 0;
    }
    return 1;
}

static int can_run(const fak_program *p, const fak_op *o)
{
    uint32_t first, n = fak_matrices(o, &first);
    int known = (o->id >= FAK_OP_EMBED && o->id <= FAK_OP_ARGMAX) ||
                (o->id >= FAK_OP_NORM_MATMUL && o->id <= FAK_OP_MATMUL_ARGMAX);
    if (!known || o->revision > 1 || o->act > FAK_GELU_TANH) return 0;
    if (o->id > FAK_OP_ARGMAX && !p->d->opt.fused) return 0;
    if (uses_kv(o) && (o->head_dim % 2 || o->head_dim > HEAD_MOST)) return 0;
    for (uint32_t j = 0; j < INPUTS; j++) {
        const fak_value *v = &p->value[o->in[j]];
        if (!o->in[j]) continue;
        if (v->layout != FAK_ROW_MAJOR || v->quant_bits || v->quant_act_scale != 0) return 0;
        int matrix = j >= first && j < first + n;
        if (!matrix && v->dtype != FAK_F32 && is_weight(v)) return 0;
    }
    return matrices_fit(p, o);
}

/* The kv of a layer goes together. */
static void pair(fak_program *p)
{
    for (uint32_t i = 0; i < p->ops; i++)
        for (uint32_t j = 0; !p->taken[i] && uses_kv(&p->op[i]) && j < p->ops; j++)
            if (uses_kv(&p->op[j]) && p->op[j].layer == p->op[i].layer) p->taken[j] = 0;
}

/* Weights that a kernel takes together lie together; those of EMBED and MATMUL may lie in pieces. */
static int place_weights(fak_program *p, const fak_op *o)
{
    uint32_t first, n = fak_matrices(o, &first), together = o->id == FAK_OP_FFN ? 2 : n;
    int placed = 1;
    for (uint32_t j = 0; placed > 0 && j < INPUTS; j++) {
        if (!o->in[j] || !is_weight(&p->value[o->in[j]])) continue;
        if (n && j == first)
            placed = vk_weights_add(p, &o->in[j], together, together > 1);
        else if (!n || j < first || j >= first + together)
            placed = vk_weights_add(p, &o->in[j], 1, !n || j < first || j >= first + n);
    }
    return placed;
}

int32_t vk_judge(fak_program *p, uint32_t *verdict, fak_error *e)
{
    for (uint32_t i = 0; i < p->ops; i++)
        p->taken[i] = verdict[i] == FAK_TAKEN && can_run(p, &p->op[i]);
    pair(p);
    for (uint32_t i = 0; i < p->ops; i++) {
        int placed = p->taken[i] ? place_weights(p, &p->op[i]) : 0;
        if (placed < 0) return vk_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for weights");
        p->taken[i] = placed > 0;
    }
    pair(p);
    for (uint32_t i = 0; i < p->ops; i++) {
        verdict[i] = p->taken[i] ? FAK_TAKEN : FAK_HOST;
        p->embeds |= p->taken[i] && p->op[i].id == FAK_OP_EMBED;
    }
    return FAK_OK;
}
