/* emit - ops to kernels, one after another in the stream; MATMUL and what is fused with it: emit_matrix.c. */
#include "cuda.h"

#include "kernels/op.h"

_Static_assert(OP_ADD_BIAS == (int)FAK_OP_ADD_BIAS && OP_GLU == (int)FAK_OP_GLU &&
                   OP_ADD == (int)FAK_OP_ADD && OP_SCALE == (int)FAK_OP_SCALE &&
                   OP_SOFTCAP == (int)FAK_OP_SOFTCAP,
               "kernels/op.h has the ABI's numbers");

static uint32_t parts(uint32_t n, uint32_t of)
{
    return (n + of - 1) / of;
}

static int32_t launch(emitter *m, enum gpu_kernel k, uint32_t x, uint32_t y, const void *args)
{
    return gpu_launch(m->p->d->g, k, (gpu_grid){x, y, 1, 0}, args, m->e);
}

/* ---- rows ---- */

static int32_t emit_embed(emitter *m, const fak_op *o)
{
    const fak_program *p = m->p;
    const fak_value *w = &p->value[o->in[0]];
    embed_args a = {.step = p->step,
                    .w = p->at[o->in[0]],
                    .scales = cuda_weight(p->weights, o->in[0])->scales,
                    .y = p->at[o->out[0]],
                    .vocab = w->rows,
                    .cols = w->cols};
    enum gpu_kernel k = KERNEL_embed_f32 + format_number(format_of(w->dtype));
    return launch(m, k, parts(w->cols, THREADS), m->high, &a);
}

static int32_t emit_norm(emitter *m, const fak_op *o)
{
    const fak_program *p = m->p;
    uint32_t cols = p->value[o->in[0]].cols, group = o->group ? o->group : cols;
    norm_args a = {.step = p->step,
                   .x = p->at[o->in[0]],
                   .w = p->at[o->in[1]],
                   .y = p->at[o->out[0]],
                   .scope = cuda_scope(p, o),
                   .cols = cols,
                   .group = group,
                   .exact = p->d->exact,
                   .eps = o->eps};
    return launch(m, KERNEL_rmsnorm, cols / group, m->high, &a);
}

static int32_t emit_pair(emitter *m, const fak_op *o)
{
    const fak_program *p = m->p;
    uint32_t cols = p->value[o->in[0]].cols;
    pair_args a = {.step = p->step,
                   .a = p->at[o->in[0]],
                   .b = p->at[o->in[1]],
                   .y = p->at[o->out[0]],
                   .scope = cuda_scope(p, o),
                   .cols = cols,
                   .op = o->id,
                   .act = o->act};
    return launch(m, KERNEL_pair, parts(cols, THREADS), m->high, &a);
}

static int32_t emit_map(emitter *m, const fak_op *o)
{
    const fak_program *p = m->p;
    uint32_t cols = p->value[o->in[0]].cols;
    map_args a = {.step = p->step,
                  .x = p->at[o->in[0]],
                  .y = p->at[o->out[0]],
                  .scope = cuda_scope(p, o),
                  .cols = cols,
                  .op = o->id,
                  .factor = o->id == FAK_OP_SCALE ? o->scale : o->softcap};
    return launch(m, KERNEL_map, parts(cols, THREADS), m->high, &a);
}

static int32_t emit_take_rows(emitter *m, const fak_op *o)
{
    const fak_program *p = m->p;
    uint32_t cols = p->value[o->in[0]].cols;
    rows_args a = {.step = p->step,
                   .x = p->at[o->in[0]],
                   .y = p->at[o->out[0]],
                   .scope = cuda_scope(p, o),
                   .cols = cols};
    return launch(m, KERNEL_take_rows, parts(cols, THREADS), m->high, &a);
}

int32_t cuda_emit_argmax(emitter *m, gpu_ptr x, uint32_t cols, const fak_op *o)
{
    const fak_program *p = m->p;
    argmax_args a = {.step = p->step,
                     .x = x,
                     .y = p->at[o->out[0]],
                     .partial = p->partial,
                     .scope = cuda_scope(p, o),
                     .cols = cols,
                     .parts = parts(cols, ARGMAX_COLS)};
    int32_t s = launch(m, KERNEL_argmax, a.parts, m->high, &a);
    return s || a.parts == 1 ? s : launch(m, KERNEL_argmax_merge, 1, m->high, &a);
}

/* ---- kv ---- */

kv_shape cuda_kv_of(const fak_program *p, uint32_t layer)
{
    const kv_store *kv = &p->kv;
    uint64_t elements = (uint64_t)kv->heads * kv->dim * KV_PAGE;
    uint64_t at = p->layer_at[layer] * elements * kv->pages;
    return (kv_shape){.k = kv->k + at * kv->element,
                      .v = kv->v + at * kv->element,
                      .raw = kv->raw ? kv->raw + at * 4 : 0,
                      .dtype = p->limits.kv_dtype,
                      .heads = kv->heads,
                      .dim = kv->dim,
                      .page_elements = (uint32_t)elements};
}

static int32_t emit_rope(emitter *m, const fak_op *o)
{
    const fak_program *p = m->p;
    uint32_t operand[3], appends = (uint32_t)fak_appends(o, operand), rotates = o->out[0] != 0;
    rope_args a = {.step = p->step, .dim = o->head_dim, .rot = o->rot_dim};
    uint32_t widest = 0;
    if (rotates) {
        a.q = p->at[o->in[0]];
        a.y = p->at[o->out[0]];
        a.tab = p->at[o->in[o->id == FAK_OP_ROPE ? 1 : 3]];
        a.heads = o->heads;
        widest = o->heads * o->head_dim;
    }
    if (appends) {
        a.k = p->at[operand[0]];
        a.v = p->at[operand[1]];
        a.tab = p->at[operand[2]];
        a.kv = cuda_kv_of(p, o->layer);
        if (widest < a.kv.heads * a.kv.dim) widest = a.kv.heads * a.kv.dim;
    }
    return launch(m, KERNEL_rope, parts(widest, THREADS), m->high, &a);
}

/* ---- attention ---- */

static uint32_t
row_blocks(const fak_op *o) /* of attend_row: kv heads, and groups of their queries */
{
    return o->kv_heads * parts(o->heads / o->kv_heads, QUERIES);
}

/* As many parts of the keys as keep all processors busy, none below a page. */
uint32_t cuda_splits(const fak_program *p, const fak_op *o, uint32_t high)
{
    uint32_t blocks = row_blocks(o) * high, wanted = 2 * gpu_processors(p->d->g);
    uint32_t most = o->window && o->window < p->limits.context ? cuda_pages(o->window) + 1
                                                               : cuda_pages(p->limits.context);
    uint32_t splits = blocks ? wanted / blocks : 1;
    if (splits > most) splits = most;
    if (splits > SPLITS) splits = SPLITS;
    return splits && !p->d->exact ? splits : 1;
}

static int32_t emit_attention(emitter *m, const fak_op *o)
{
    const fak_program *p = m->p;
    gpu *g = p->d->g;
    uint32_t group = o->heads / o->kv_heads;
    attend_args a = {.step = p->step,
                     .q = p->at[o->in[0]],
                     .y = p->at[o->out[0]],
                     .partial = p->partial,
                     .kv = cuda_kv_of(p, o->layer),
                     .heads = o->heads,
                     .window = o->window,
                     .scale = o->scale,
                     .softcap = o->softcap,
                     .splits = cuda_splits(p, o, m->high)};
    if (p->d->exact) return launch(m, KERNEL_attend_exact, o->heads, m->high, &a);
    uint32_t shared = (QUERIES * o->head_dim + KV_PAGE * (o->head_dim + 1)) * 4;
    gpu_grid rows = {row_blocks(o), m->high, a.splits, shared};
    gpu_grid tiles = {o->kv_heads, parts(m->high * group, QUERIES), 1, shared};
    int32_t s = gpu_launch(g, KERNEL_attend_row, rows, &a, m->e);
    if (!s && a.splits > 1) s = launch(m, KERNEL_attend_merge, o->heads, m->high, &a);
    if (!s && m->high >= TILED_ROWS) s = gpu_launch(g, KERNEL_attend_tile, tiles, &a, m->e);
    return s;
}

/* ---- all ---- */

static int32_t emit(emitter *m, const fak_op *o)
{
    switch (o->id) {
    case FAK_OP_EMBED:
        return emit_embed(m, o);
    case FAK_OP_RMSNORM:
        return emit_norm(m, o);
    case FAK_OP_GLU:
    case FAK_OP_ADD:
    case FAK_OP_ADD_BIAS:
        return emit_pair(m, o);
    case FAK_OP_SCALE:
    case FAK_OP_SOFTCAP:
        return emit_map(m, o);
    case FAK_OP_ROPE:
    case FAK_OP_KV_APPEND:
    case FAK_OP_ROPE_APPEND:
        return emit_rope(m, o);
    case FAK_OP_ATTENTION:
        return emit_attention(m, o);
    case FAK_OP_TAKE_ROWS:
        return emit_take_rows(m, o);
    case FAK_OP_ARGMAX:
        return cuda_emit_argmax(m, m->p->at[o->in[0]], m->p->value[o->in[0]].cols, o);
    default:
        return cuda_emit_matrices(m, o);
    }
}

int32_t cuda_emit(fak_program *p, uint32_t first, uint32_t ops, uint32_t high, fak_error *e)
{
    emitter m = {.p = p, .high = high, .e = e};
    int32_t s = FAK_OK;
    for (uint32_t i = first; !s && i < first + ops; i++) s = emit(&m, &p->op[i]);
    return s;
}
