/* plan - what ops are: which are taken, which of their operands are matrices, what they need beside them. */
#include "cuda.h"

int cuda_is_weight(const fak_value *v)
{
    return v->kind == FAK_WEIGHT || v->kind == FAK_CONST;
}

uint32_t cuda_rows(const fak_program *p, uint32_t value)
{
    uint32_t rows = p->value[value].rows;
    return rows == FAK_STEP_ROWS     ? p->limits.rows
           : rows == FAK_WANTED_ROWS ? p->limits.wanted
                                     : rows;
}

uint32_t cuda_scope(const fak_program *p, const fak_op *o)
{
    uint32_t value = o->out[0] ? o->out[0] : o->in[0];
    return p->value[value].rows == FAK_WANTED_ROWS ? SCOPE_WANTED : SCOPE_ROWS;
}

/* ---- verdicts ---- */

static int is_known(uint32_t id)
{
    return (id >= FAK_OP_EMBED && id <= FAK_OP_ARGMAX) ||
           (id >= FAK_OP_NORM_MATMUL && id <= FAK_OP_MATMUL_ARGMAX);
}

static int operands_ok(const fak_program *p, const fak_op *o)
{
    uint32_t first, n = fak_matrices(o, &first);
    for (uint32_t i = 0; i < INPUTS; i++) {
        const fak_value *v = &p->value[o->in[i]];
        if (!o->in[i]) continue;
        if (v->layout != FAK_ROW_MAJOR || v->quant_bits || v->quant_act_scale != 0) return 0;
        int matrix = i >= first && i < first + n;
        const format *f = format_of(v->dtype);
        if (matrix ? !f || v->cols % f->block : v->dtype != FAK_F32) return 0;
        if (!cuda_is_weight(v) && v->rows < FAK_WANTED_ROWS) return 0; /* rows of the step only */
    }
    return 1;
}

/* All layers' kv are alike, or the odd ones are left. */
static int kv_ok(const fak_program *p, const fak_op *o)
{
    const kv_store *kv = &p->kv;
    if (!o->kv_heads || !o->head_dim || o->head_dim > HEAD_DIM_MAX) return 0;
    return !kv->heads || (kv->heads == o->kv_heads && kv->dim == o->head_dim);
}

int cuda_takes(const fak_program *p, const fak_op *o)
{
    uint32_t operand[3];
    if (!is_known(o->id) || o->revision > 1 || !operands_ok(p, o)) return 0;
    if (o->id == FAK_OP_ATTENTION) return kv_ok(p, o) && o->heads % o->kv_heads == 0;
    if (fak_appends(o, operand)) return kv_ok(p, o);
    if (o->id == FAK_OP_NORM_MATMUL_GLU || o->id == FAK_OP_FFN) /* one kernel for gate and up */
        return p->value[o->in[2]].dtype == p->value[o->in[3]].dtype;
    return 1;
}

/* ---- needs ---- */

/* Is the value, a matrix, multiplied with activations as Q8? */
static int by_q8(const fak_program *p, uint32_t value)
{
    return p->q8 && format_of(p->value[value].dtype)->block > 1;
}

static int is_glu(const fak_op *o)
{
    return o->id == FAK_OP_NORM_MATMUL_GLU || o->id == FAK_OP_FFN;
}

uint64_t cuda_temp(const fak_program *p, const fak_op *o, enum temp t)
{
    uint64_t x = (uint64_t)cuda_rows(p, o->in[0]) * p->value[o->in[0]].cols;
    switch (t) {
    case TEMP_NORMED:
        return is_glu(o) || o->id == FAK_OP_NORM_MATMUL ? x : 0;
    case TEMP_HIDDEN:
        if (o->id == FAK_OP_GLU_MATMUL_ADD) return x;
        return o->id == FAK_OP_FFN ? (uint64_t)cuda_rows(p, o->in[0]) * p->value[o->in[4]].cols : 0;
    default:
        if (o->id != FAK_OP_MATMUL_ARGMAX) return 0;
        return (uint64_t)cuda_rows(p, o->in[0]) * p->value[o->in[1]].rows;
    }
}

uint64_t cuda_quantised(const fak_program *p, const fak_op *o)
{
    uint32_t first, n = o->id == FAK_OP_EMBED ? 0 : fak_matrices(o, &first);
    uint64_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t w = o->in[first + i];
        uint64_t here = (uint64_t)cuda_rows(p, o->in[0]) * p->value[w].cols;
        if (by_q8(p, w) && here > most) most = here;
    }
    return most;
}

uint64_t cuda_partial(const fak_program *p, const fak_op *o)
{
    uint64_t most = 0;
    if (o->id == FAK_OP_ARGMAX || o->id == FAK_OP_MATMUL_ARGMAX) {
        const fak_value *w = &p->value[o->in[1]], *x = &p->value[o->in[0]];
        uint64_t cols = o->id == FAK_OP_ARGMAX ? x->cols : w->rows;
        return cuda_rows(p, o->in[0]) * ((cols + ARGMAX_COLS - 1) / ARGMAX_COLS) * 8;
    }
    for (uint32_t b = 0; o->id == FAK_OP_ATTENTION && b < p->buckets[SCOPE_ROWS]; b++) {
        uint32_t high = p->bucket[SCOPE_ROWS][b], splits = cuda_splits(p, o, high);
        uint64_t bytes = (uint64_t)high * o->heads * splits * (o->head_dim + 2) * 4;
        if (splits > 1 && bytes > most) most = bytes;
    }
    return most;
}
