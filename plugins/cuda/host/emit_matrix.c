/* emit_matrix - MATMUL and the ops that are fused with it.  A range quantises a value once for all that
 * multiply it by block weights. */
#include "cuda.h"

typedef struct input { /* rows that are multiplied */
    gpu_ptr rows;      /* as F32 */
    uint32_t cols, scope;
    uint32_t value; /* 0: a temp */
    int quantised;  /* they are in p->q too */
} input;

typedef struct product { /* parts that share a kernel, and what is done to an output */
    uint32_t epilogue, act;
    gpu_ptr residual;
} product;

static uint32_t parts_of(uint32_t n, uint32_t of)
{
    return (n + of - 1) / of;
}

static const format *format_at(const emitter *m, uint32_t w)
{
    return format_of(m->p->value[w].dtype);
}

static int by_q8(const emitter *m, uint32_t w)
{
    return m->p->q8 && format_at(m, w)->block > 1;
}

/* ---- activations ---- */

/* Where the Q8 form of rows is asked of the kernel that makes them. */
static q8_rows none(void)
{
    return (q8_rows){0};
}

static int32_t quantise(emitter *m, const input *x)
{
    const fak_program *p = m->p;
    quantise_args a = {
        .step = p->step, .x = x->rows, .q = p->q, .scope = x->scope, .cols = x->cols};
    if (x->quantised || (x->value && m->quantised == x->value)) return FAK_OK;
    m->quantised = x->value;
    return gpu_launch(p->d->g, KERNEL_quantise,
                      (gpu_grid){parts_of(x->cols, THREADS), m->high, 1, 0}, &a, m->e);
}

/* ---- products ---- */

typedef struct choice {
    enum gpu_kernel kernel;
    uint32_t outputs, rows;
} choice; /* of a block */

/* One row, or a few: a warp an output.  Many: tiles.  exact: the contract's order. */
static choice choose(const emitter *m, uint32_t w)
{
    uint32_t n = format_number(format_at(m, w)), many = m->high > VEC_ROWS;
    if (by_q8(m, w)) {
        n -= PLAIN_FORMATS;
        return many ? (choice){KERNEL_gemm_q8_0_q8 + n, GEMM_OUTPUTS, GEMM_ROWS}
                    : (choice){KERNEL_matvec_q8_0_q8 + n, WARPS, VEC_ROWS};
    }
    if (m->p->d->exact) return (choice){KERNEL_dot_f32 + n, DOT_OUTPUTS, 1};
    if (m->high == 1) return (choice){KERNEL_matvec_f32 + n, WARPS, 1};
    return many ? (choice){KERNEL_gemm_f32 + n, GEMM_OUTPUTS, GEMM_ROWS}
                : (choice){KERNEL_matvec8_f32 + n, WARPS, VEC_ROWS};
}

static matmul_part part_of(const emitter *m, uint32_t w, gpu_ptr y, uint32_t first)
{
    const weight *at = cuda_weight(m->p->weights, w);
    return (matmul_part){at->codes, at->scales, y, m->p->value[w].rows, first};
}

/* One launch: y[i] = x w[i]; w of one dtype. */
static int32_t multiply(emitter *m, const input *x, const uint32_t *w, const gpu_ptr *y, uint32_t n,
                        const product *how)
{
    const fak_program *p = m->p;
    int glu = how->epilogue == EPILOGUE_GLU;
    choice c = choose(m, w[0]);
    matmul_args a = {.step = p->step,
                     .x = x->rows,
                     .residual = how->residual,
                     .q = by_q8(m, w[0]) ? p->q : none(),
                     .scope = x->scope,
                     .in = x->cols,
                     .parts = glu ? 1 : n,
                     .epilogue = how->epilogue,
                     .act = how->act};
    uint32_t blocks = 0;
    for (uint32_t i = 0; i < n; i++) {
        a.part[i] = part_of(m, w[i], y[i], blocks);
        if (!glu || !i) blocks += parts_of(a.part[i].out, c.outputs);
    }
    int32_t s = by_q8(m, w[0]) ? quantise(m, x) : FAK_OK;
    return s ? s
             : gpu_launch(p->d->g, c.kernel, (gpu_grid){blocks, parts_of(m->high, c.rows), 1, 0},
                          &a, m->e);
}

/* Weights that have one dtype share a launch. */
static int32_t multiply_each(emitter *m, const input *x, const uint32_t *w, const uint32_t *y,
                             uint32_t n)
{
    static const product plain = {.epilogue = EPILOGUE_NONE};
    int32_t s = FAK_OK;
    for (uint32_t i = 0, k; !s && i < n; i += k) {
        gpu_ptr at[PARTS] = {m->p->at[y[i]]};
        for (k = 1; i + k < n && format_at(m, w[i + k]) == format_at(m, w[i]); k++)
            at[k] = m->p->at[y[i + k]];
        s = multiply(m, x, w + i, at, k, &plain);
    }
    return s;
}

/* ---- what comes before ---- */

static input value_input(const emitter *m, uint32_t value)
{
    const fak_value *v = &m->p->value[value];
    uint32_t scope = v->rows == FAK_WANTED_ROWS ? SCOPE_WANTED : SCOPE_ROWS;
    return (input){.rows = m->p->at[value], .cols = v->cols, .scope = scope, .value = value};
}

static input temp_input(const emitter *m, enum temp t, const input *like, uint32_t cols)
{
    return (input){.rows = m->p->temp[t], .cols = cols, .scope = like->scope};
}

/* In which forms n matrices want their rows. */
static void forms(const emitter *m, const uint32_t *w, uint32_t n, int *f32, int *q8)
{
    *f32 = *q8 = 0;
    for (uint32_t i = 0; i < n; i++) *(by_q8(m, w[i]) ? q8 : f32) = 1;
}

static int32_t norm(emitter *m, const fak_op *o, uint32_t n, input *out)
{
    const fak_program *p = m->p;
    input x = value_input(m, o->in[0]);
    int f32, q8;
    forms(m, &o->in[2], n, &f32, &q8);
    *out = temp_input(m, TEMP_NORMED, &x, x.cols);
    out->quantised = q8;
    if (q8) m->quantised = 0;
    norm_args a = {.step = p->step,
                   .x = x.rows,
                   .w = p->at[o->in[1]],
                   .y = f32 ? out->rows : 0,
                   .q = q8 ? p->q : none(),
                   .scope = x.scope,
                   .cols = x.cols,
                   .group = x.cols,
                   .exact = p->d->exact,
                   .eps = o->eps};
    return gpu_launch(p->d->g, KERNEL_rmsnorm, (gpu_grid){1, m->high, 1, 0}, &a, m->e);
}

/* GLU of two values, for one matrix. */
static int32_t glu(emitter *m, const fak_op *o, input *out)
{
    const fak_program *p = m->p;
    input g = value_input(m, o->in[0]);
    int q8 = by_q8(m, o->in[2]);
    *out = temp_input(m, TEMP_HIDDEN, &g, g.cols);
    out->quantised = q8;
    if (q8) m->quantised = 0;
    pair_args a = {.step = p->step,
                   .a = g.rows,
                   .b = p->at[o->in[1]],
                   .y = q8 ? 0 : out->rows,
                   .q = q8 ? p->q : none(),
                   .scope = g.scope,
                   .cols = g.cols,
                   .op = FAK_OP_GLU,
                   .act = o->act};
    gpu_grid grid = {parts_of(g.cols, THREADS), m->high, 1, 0};
    return gpu_launch(p->d->g, KERNEL_pair, grid, &a, m->e);
}

/* ---- ops ---- */

static int32_t emit_ffn(emitter *m, const fak_op *o)
{
    const fak_program *p = m->p;
    const product gate = {.epilogue = EPILOGUE_GLU, .act = o->act};
    const product down = {.epilogue = EPILOGUE_ADD, .residual = p->at[o->in[0]]};
    int whole = o->id == FAK_OP_FFN;
    input x, hidden;
    int32_t s = norm(m, o, 2, &x);
    if (s) return s;
    hidden = temp_input(m, TEMP_HIDDEN, &x, p->value[o->in[2]].rows);
    gpu_ptr y = whole ? hidden.rows : p->at[o->out[0]], both[2] = {y, y};
    s = multiply(m, &x, &o->in[2], both, 2, &gate);
    if (s || !whole) return s;
    y = p->at[o->out[0]];
    return multiply(m, &hidden, &o->in[4], &y, 1, &down);
}

static int32_t emit_argmax(emitter *m, const fak_op *o)
{
    static const product plain = {.epilogue = EPILOGUE_NONE};
    const fak_program *p = m->p;
    input x = value_input(m, o->in[0]);
    gpu_ptr logits = p->temp[TEMP_LOGITS];
    int32_t s = multiply(m, &x, &o->in[1], &logits, 1, &plain);
    return s ? s : cuda_emit_argmax(m, logits, p->value[o->in[1]].rows, o);
}

int32_t cuda_emit_matrices(emitter *m, const fak_op *o)
{
    const fak_program *p = m->p;
    product add = {.epilogue = EPILOGUE_ADD};
    gpu_ptr y = p->at[o->out[0]];
    uint32_t first, n = fak_matrices(o, &first);
    input x = value_input(m, o->in[0]);
    int32_t s;
    switch (o->id) {
    case FAK_OP_MATMUL:
        return multiply_each(m, &x, &o->in[1], o->out, 1);
    case FAK_OP_MATMUL_ADD:
        add.residual = p->at[o->in[2]];
        return multiply(m, &x, &o->in[1], &y, 1, &add);
    case FAK_OP_NORM_MATMUL:
        s = norm(m, o, n, &x);
        return s ? s : multiply_each(m, &x, &o->in[2], o->out, n);
    case FAK_OP_GLU_MATMUL_ADD:
        add.residual = p->at[o->in[3]];
        s = glu(m, o, &x);
        return s ? s : multiply(m, &x, &o->in[2], &y, 1, &add);
    case FAK_OP_NORM_MATMUL_GLU:
    case FAK_OP_FFN:
        return emit_ffn(m, o);
    case FAK_OP_MATMUL_ARGMAX:
        return emit_argmax(m, o);
    default:
        return cuda_fail(m->e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "op %u is not one of its", o->id);
    }
}
