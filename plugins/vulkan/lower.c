/* lower - each taken op as dispatches. */
#include "job.h"

#include <string.h>

static const fak_value *value(const maker *m, uint32_t id)
{
    return &m->p->value[id];
}

static uint32_t temp(const maker *m, enum temp t)
{
    return m->p->values + t;
}

/* ---- ops ---- */

static job *add_simple(maker *m, enum shader s, uint32_t x, uint32_t y)
{
    uint32_t cols = value(m, y)->cols;
    job *j = job_add(m, s, job_up(cols, THREADS));
    job_bind(m, j, X, x);
    job_bind(m, j, Y, y);
    j->c.icols = value(m, x)->cols;
    j->c.ocols = cols;
    return j;
}

static job *add_norm(maker *m, uint32_t x, uint32_t w, uint32_t y)
{
    uint32_t cols = value(m, x)->cols, group = m->o->group ? m->o->group : cols;
    job *j = job_add(m, m->p->d->opt.rows ? SHADER_NORM_ROW : SHADER_NORM, cols / group);
    job_bind(m, j, X, x);
    job_bind(m, j, Y, y);
    job_bind_row(m, j, w);
    j->c.ocols = cols;
    j->c.group = group;
    return j;
}

static void add_glu(maker *m, uint32_t g, uint32_t u, uint32_t y)
{
    uint32_t cols = value(m, g)->cols;
    job *j = job_add(m, SHADER_GLU, job_up(cols, THREADS));
    job_bind(m, j, X, g);
    job_bind(m, j, W, u);
    job_bind(m, j, Y, y);
    j->c.ocols = cols;
}

typedef struct product { /* of x with n matrices that lie together, into as many values */
    uint32_t x, cols, w[3], y[3], n, add, glu; /* add: a value that is added, 0: none */
    uint32_t norm, shapes; /* norm: x is normed by it on the way; shapes of step, 0: all */
} product;

static uint32_t product_rows(const maker *m, const product *q)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < q->n; i++) rows += value(m, q->w[i])->rows;
    return q->glu ? rows / 2 : rows;
}

/* Where outputs beyond the first value's go. */
static void split_outputs(const maker *m, job *j, const product *q)
{
    uint32_t outputs = q->glu ? 1 : q->n, *at[] = {&j->c.y, &j->c.y1, &j->c.y2};
    job_bind_span(m, j, Y, q->y, outputs);
    for (uint32_t i = 0; i < outputs; i++) *at[i] = job_word(m, j, Y, q->y[i]);
    j->c.ocols = value(m, q->w[0])->rows;
    j->c.source = product_rows(m, q);
    if (outputs > 1) j->c.n1 = j->c.ocols;
    if (outputs > 2) j->c.n2 = j->c.n1 + value(m, q->w[1])->rows;
}

static void add_quantise(maker *m, const product *q)
{
    job *j = job_add(m, SHADER_QUANTISE, job_up(q->cols / 32, THREADS));
    job_bind(m, j, X, q->x);
    job_bind(m, j, Y, temp(m, TEMP_CODES));
    j->c.icols = q->cols;
}

static void add_product(maker *m, const product *q)
{
    uint32_t base, first, rows = product_rows(m, q), end;
    const tensor *t = vk_weight(m->p->weights, q->w[0], &base);
    int q8 = m->p->q8 && t->format->cols > 1;
    if (q8) add_quantise(m, q);
    for (uint32_t i = 0; i < t->segments; i++) {
        const segment *g = &t->segment[i];
        first = g->first > base ? g->first : base;
        end = base + (q->glu ? 2 * rows : rows);
        if (end > g->first + g->rows) end = g->first + g->rows;
        if (first >= end) continue;
        uint32_t count = q->glu ? rows : end - first;
        job *j = job_add(m, SHADER_MATMUL, 1);
        if (q->shapes) j->shapes = q->shapes;
        job_bind(m, j, X, q8 ? temp(m, TEMP_CODES) : q->x);
        job_bind_segment(m, j, q->w[0], g, t);
        split_outputs(m, j, q);
        if (q->norm)
            job_bind_norm(m, j, q->norm);
        else
            job_bind(m, j, Z, q->add ? q->add : q->x);
        j->c.icols = q->cols;
        j->c.count = count;
        j->c.first = first - base;
        j->c.base = first - g->first;
        job_spec(j, 0, t->format->dtype);
        job_spec(j, 2, q->add != 0);
        job_spec(j, 3, q->glu);
        job_spec(j, 4, q->cols % 4 != 0);
        job_spec(j, 5, q->norm != 0);
        job_tile(m, j, count, q8);
    }
}

static void add_embed(maker *m)
{
    uint32_t base, w = m->o->in[0], y = m->o->out[0];
    const tensor *t = vk_weight(m->p->weights, w, &base);
    const fak_value *v = value(m, w);
    for (uint32_t i = 0; i < t->segments; i++) {
        const segment *g = &t->segment[i];
        uint32_t first = g->first > base ? g->first : base, end = base + v->rows;
        if (end > g->first + g->rows) end = g->first + g->rows;
        if (first >= end) continue;
        job *j = job_add(m, SHADER_EMBED, job_up(job_up(v->cols, 4), THREADS));
        uint32_t ids = m->p->argmax;
        if (ids && m->p->at[ids].bytes)
            job_bind(m, j, X, ids);
        else
            j->bind[X] =
                (bind){&m->p->store, m->p->step}; /* never read: some buffer must be bound */
        job_bind_segment(m, j, w, g, t);
        job_bind(m, j, Y, y);
        job_bind_step(m, j);
        j->c.icols = v->rows;
        j->c.ocols = v->cols;
        j->c.first = first - base;
        j->c.count = end - first;
        j->c.base = first - g->first;
        job_spec(j, 0, v->dtype);
    }
}

static void add_rope(maker *m, uint32_t x, uint32_t tab, uint32_t y)
{
    job *j = add_simple(m, SHADER_ROPE, x, y);
    job_bind_row(m, j, tab);
    job_bind_step(m, j);
}

/* Of kv in pieces each has its own append; the first also rotates q. */
static void add_append(maker *m, const kv_layer *l, uint32_t piece)
{
    const fak_op *o = m->o;
    uint32_t operand[3], whole = o->id == FAK_OP_ROPE_APPEND && !piece;
    fak_appends(o, operand);
    uint32_t span[4] = {operand[0], operand[1], whole ? o->in[0] : 0, whole ? o->out[0] : 0};
    uint32_t kv_cols = o->kv_heads * o->head_dim, cols = whole ? value(m, o->out[0])->cols : 0;
    job *j = job_add(m, SHADER_APPEND, job_up((cols > kv_cols ? cols : kv_cols) / 2, THREADS));
    job_bind_span(m, j, X, span, 4);
    job_bind_row(m, j, operand[2]);
    job_bind_kv(m, j, Y, l, piece);
    job_bind_step(m, j);
    j->c.x = job_word(m, j, X, operand[0]);
    j->c.source = job_word(m, j, X, operand[1]);
    j->c.ocols = cols;
    if (whole) {
        j->c.y1 = job_word(m, j, X, o->in[0]);
        j->c.y = job_word(m, j, X, o->out[0]);
    }
    job_spec(j, 1, whole);
}

/* Of kv in pieces each goes on with what the one before has left. */
static void add_attention(maker *m, const kv_layer *l, uint32_t piece)
{
    const fak_op *o = m->o;
    int by_row = m->p->d->opt.rows != 0;
    job *j = job_add(m, by_row ? SHADER_ATTEND_ROW : SHADER_ATTEND, o->heads);
    job_bind(m, j, X, o->in[0]);
    job_bind_kv(m, j, W, l, piece);
    job_bind(m, j, Y, o->out[0]);
    job_bind_step(m, j);
    job_spec(j, 1, job_up(o->head_dim, by_row ? ROW_COLUMNS : THREADS));
    job_spec(j, 2, m->p->d->opt.exact || (m->p->q8 && l->pieces == 1)); /* as vk_use says */
    job_spec(j, 4, piece == 0);
    job_spec(j, 5, piece + 1 == l->pieces);
    if (l->pieces > 1) j->writes = 1u << Z;
}

static void add_each_piece(maker *m, void add(maker *, const kv_layer *, uint32_t piece))
{
    const kv_layer *l = vk_layer(m->p, m->o->layer);
    for (uint32_t i = 0; i < l->pieces; i++) add(m, l, i);
}

static void add_argmax(maker *m, uint32_t x, uint32_t cols, uint32_t y)
{
    uint32_t count = vk_best_count(m->p, cols), best = temp(m, TEMP_BEST);
    job *j = job_add(m, SHADER_BEST, job_up(count, THREADS));
    job_bind(m, j, X, x);
    job_bind(m, j, Y, best);
    j->c.icols = cols;
    j->c.count = count;
    j = job_add(m, SHADER_ARGMAX, 1);
    job_bind(m, j, X, best);
    job_bind(m, j, Y, y);
    j->c.count = count;
}

/* ---- fused ops and the rest ---- */

/* A workgroup that has a row of x whole norms it on the way: of few rows that saves a dispatch and its
 * barrier.  By row each output would load the norm's weights again, which costs more. */
static void add_normed_product(maker *m, product *q)
{
    const fak_op *o = m->o;
    const weight_format *f = vk_format(value(m, q->w[0])->dtype);
    const uint32_t few = 1u << SHAPE_ONE | 1u << SHAPE_FEW;
    int whole = !o->group || o->group == q->cols, q8 = m->p->q8 && f->cols > 1;
    if (!m->p->d->opt.rows && whole && !q8) {
        product on_the_way = *q;
        on_the_way.x = o->in[0];
        on_the_way.norm = o->in[1];
        on_the_way.shapes = few;
        add_product(m, &on_the_way);
        q->shapes = ALL_SHAPES & ~few;
    }
    job *norm = add_norm(m, o->in[0], o->in[1], q->x);
    if (q->shapes) norm->shapes = q->shapes;
    add_product(m, q);
}

static void make_fused(maker *m)
{
    const fak_op *o = m->o;
    uint32_t normed = temp(m, TEMP_NORMED), hidden = temp(m, TEMP_HIDDEN);
    product q = {.x = normed, .cols = value(m, o->in[0])->cols, .n = 1};
    switch (o->id) {
    case FAK_OP_NORM_MATMUL:
    case FAK_OP_NORM_MATMUL_GLU:
    case FAK_OP_FFN:
        q.glu = o->id != FAK_OP_NORM_MATMUL;
        q.n = q.glu ? 2 : 1u + (o->in[3] != 0) + (o->in[4] != 0);
        memcpy(q.w, o->in + 2, sizeof q.w);
        memcpy(q.y, o->out, sizeof q.y);
        if (o->id == FAK_OP_FFN) q.y[0] = hidden;
        add_normed_product(m, &q);
        if (o->id == FAK_OP_FFN)
            add_product(m, &(product){.x = hidden,
                                      .cols = value(m, o->in[4])->cols,
                                      .w = {o->in[4]},
                                      .y = {o->out[0]},
                                      .n = 1,
                                      .add = o->in[0]});
        break;
    case FAK_OP_GLU_MATMUL_ADD:
        add_glu(m, o->in[0], o->in[1], hidden);
        q = (product){hidden, q.cols, {o->in[2]}, {o->out[0]}, .n = 1, .add = o->in[3]};
        add_product(m, &q);
        break;
    case FAK_OP_MATMUL_ARGMAX:
        q = (product){o->in[0], q.cols, {o->in[1]}, {temp(m, TEMP_LOGITS)}, .n = 1};
        add_product(m, &q);
        add_argmax(m, q.y[0], value(m, o->in[1])->rows, o->out[0]);
        break;
    default: /* MATMUL, MATMUL_ADD */
        q = (product){o->in[0], q.cols, {o->in[1]}, {o->out[0]}, .n = 1, .add = o->in[2]};
        add_product(m, &q);
    }
}

static void make(maker *m)
{
    const fak_op *o = m->o;
    job *j;
    switch (o->id) {
    case FAK_OP_EMBED:
        add_embed(m);
        break;
    case FAK_OP_RMSNORM:
        add_norm(m, o->in[0], o->in[1], o->out[0]);
        break;
    case FAK_OP_ADD:
        j = add_simple(m, SHADER_ADD, o->in[0], o->out[0]);
        job_bind(m, j, W, o->in[1]);
        break;
    case FAK_OP_ADD_BIAS:
        j = add_simple(m, SHADER_BIAS, o->in[0], o->out[0]);
        job_bind_row(m, j, o->in[1]);
        break;
    case FAK_OP_SCALE:
    case FAK_OP_SOFTCAP:
        add_simple(m, o->id == FAK_OP_SCALE ? SHADER_SCALE : SHADER_SOFTCAP, o->in[0], o->out[0]);
        break;
    case FAK_OP_TAKE_ROWS:
        job_bind_step(m, add_simple(m, SHADER_TAKE, o->in[0], o->out[0]));
        break;
    case FAK_OP_GLU:
        add_glu(m, o->in[0], o->in[1], o->out[0]);
        break;
    case FAK_OP_ROPE:
        add_rope(m, o->in[0], o->in[1], o->out[0]);
        break;
    case FAK_OP_KV_APPEND:
    case FAK_OP_ROPE_APPEND:
        add_each_piece(m, add_append);
        break;
    case FAK_OP_ATTENTION:
        add_each_piece(m, add_attention);
        break;
    case FAK_OP_ARGMAX:
        add_argmax(m, o->in[0], value(m, o->in[0])->cols, o->out[0]);
        break;
    default:
        make_fused(m);
    }
}

int32_t vk_lower(fak_program *p, fak_error *e)
{
    maker m = {.p = p};
    for (uint32_t i = 0; i < p->ops; i++) {
        p->first_job[i] = p->job_count;
        m.o = &p->op[i];
        m.wanted = p->value[m.o->out[0]].rows == FAK_WANTED_ROWS;
        if (p->taken[i]) make(&m);
    }
    p->first_job[p->ops] = p->job_count;
    job_make_side(&m);
    /* All write y; APPEND declares q too, which it writes or not. */
    for (uint32_t i = 0; i < p->job_count; i++) {
        job *j = &p->jobs[i];
        j->writes |= 1u << Y;
        if (j->kernel[0].shader == SHADER_APPEND) j->writes |= 1u << X;
    }
    if (!m.failed) return FAK_OK;
    return vk_fail(e, m.failed, FAK_NO_INDEX,
                   m.failed == FAK_E_MEMORY ? "no host memory for dispatches"
                                            : "its ops differ in more ways than are kept");
}
