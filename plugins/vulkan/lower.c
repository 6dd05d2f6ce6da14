/* lower - each taken op as dispatches: kernel, grid, what it binds, its constants. */
#include "vk.h"

#include <stdlib.h>
#include <string.h>

enum { X = 0, W = 1, Y = 2, Z = 3 }; /* places in job.bind: bindings 1 to 4 */
enum { THREADS = 64, GROUPS_MOST = 32768, ROW_COLUMNS = 16, ROW_OUTPUTS = 64 };

typedef struct maker {
    fak_program *p;
    const fak_op *o;
    uint32_t wanted; /* the rows of the op are the wanted ones */
    int failed;      /* FAK_E_MEMORY: of the host; FAK_E_UNSUPPORTED: too many grids */
} maker;

static uint32_t up(uint32_t n, uint32_t d)
{
    return n / d + (n % d != 0);
}

static const fak_value *value(const maker *m, uint32_t id)
{
    return &m->p->value[id];
}

static uint32_t temp(const maker *m, enum temp t)
{
    return m->p->values + t;
}

/* ---- jobs ---- */

static uint32_t grid_at(maker *m, grid g)
{
    fak_program *p = m->p;
    for (uint32_t i = 0; i < p->grid_count; i++)
        if (!memcmp(&p->grids[i], &g, sizeof g)) return i;
    if (p->grid_count == GRIDS) {
        m->failed = FAK_E_UNSUPPORTED;
        return 0;
    }
    p->grids[p->grid_count] = g;
    return p->grid_count++;
}

/* A job with the parameters of its op, a workgroup of y for each row. */
static job *add(maker *m, enum shader s, uint32_t x)
{
    static job spare;
    fak_program *p = m->p;
    const fak_op *o = m->o;
    if (p->job_count == p->job_room) {
        uint32_t room = p->job_room ? 2 * p->job_room : 256;
        job *wider = realloc(p->jobs, room * sizeof *wider);
        if (!wider) {
            m->failed = FAK_E_MEMORY;
            return &spare;
        }
        p->jobs = wider;
        p->job_room = room;
    }
    job *j = &p->jobs[p->job_count++];
    *j = (job){.c = {.which = m->wanted,
                     .heads = o->heads,
                     .kv_heads = o->kv_heads,
                     .head_dim = o->head_dim,
                     .rot_dim = o->rot_dim,
                     .window = o->window,
                     .act = o->act,
                     .eps = o->eps,
                     .scale = o->scale,
                     .softcap = o->softcap}};
    uint32_t grid_index = grid_at(m, (grid){x, m->wanted ? PER_WANTED : PER_ROW, 1});
    for (int i = 0; i < SHAPES; i++) {
        j->kernel[i].shader = s;
        j->grid[i] = grid_index;
    }
    return j;
}

static void spec(job *j, uint32_t id, uint32_t n)
{
    for (int i = 0; i < SHAPES; i++) j->kernel[i].spec[id] = n;
}

/* Rows and outputs that are computed together, by shape.  More in a row's kernel no longer unroll. */
static void tile(maker *m, job *j, uint32_t count)
{
    static const uint32_t group_rows[SHAPES] = {1, 4, 8}, row_rows[SHAPES] = {1, 4, 4};
    const uint32_t *rows = m->p->d->opt.rows ? row_rows : group_rows;
    uint32_t x = m->p->d->opt.rows ? up(count, ROW_OUTPUTS) : count;
    for (int i = 0; i < SHAPES; i++) {
        j->kernel[i].spec[1] = rows[i];
        j->grid[i] = grid_at(m, (grid){x < GROUPS_MOST ? x : GROUPS_MOST,
                                       m->wanted ? PER_WANTED : PER_ROW, rows[i]});
    }
}

static void bind_value(const maker *m, job *j, int at, uint32_t id)
{
    j->bind[at] = (bind){&m->p->store, m->p->at[id]};
}

static void bind_step(const maker *m, job *j)
{
    j->bind[Z] = (bind){&m->p->store, j->side ? m->p->side : m->p->step};
}

static void bind_span(const maker *m, job *j, int at, const uint32_t *id, uint32_t n)
{
    j->bind[at] = (bind){&m->p->store, vk_span(m->p, id, n)};
}

/* Words from where a binding begins. */
static uint32_t word_in(const maker *m, const job *j, int at, uint32_t id)
{
    return (uint32_t)((m->p->at[id].at - j->bind[at].place.at) / 4);
}

static void bind_segment(const maker *m, job *j, uint32_t id, const segment *g, const tensor *t)
{
    j->bind[W] = (bind){vk_weight_store(m->p->weights, id), g->at};
    j->c.a_row = t->a_row;
    j->c.b_row = t->b_row;
    j->c.b_at = g->rows * t->a_row;
}

/* A weight that lies in one piece: a norm, a bias, a table. */
static void bind_row(const maker *m, job *j, uint32_t id)
{
    uint32_t first;
    const tensor *t = vk_weight(m->p->weights, id, &first);
    bind_segment(m, j, id, &t->segment[0], t);
}

/* ---- ops ---- */

static job *add_simple(maker *m, enum shader s, uint32_t x, uint32_t y)
{
    uint32_t cols = value(m, y)->cols;
    job *j = add(m, s, up(cols, THREADS));
    bind_value(m, j, X, x);
    bind_value(m, j, Y, y);
    j->c.icols = value(m, x)->cols;
    j->c.ocols = cols;
    return j;
}

static void add_norm(maker *m, uint32_t x, uint32_t w, uint32_t y)
{
    uint32_t cols = value(m, x)->cols, group = m->o->group ? m->o->group : cols;
    job *j = add(m, m->p->d->opt.rows ? SHADER_NORM_ROW : SHADER_NORM, cols / group);
    bind_value(m, j, X, x);
    bind_value(m, j, Y, y);
    bind_row(m, j, w);
    j->c.ocols = cols;
    j->c.group = group;
}

static void add_glu(maker *m, uint32_t g, uint32_t u, uint32_t y)
{
    uint32_t cols = value(m, g)->cols;
    job *j = add(m, SHADER_GLU, up(cols, THREADS));
    bind_value(m, j, X, g);
    bind_value(m, j, W, u);
    bind_value(m, j, Y, y);
    j->c.ocols = cols;
}

typedef struct product { /* of x with n matrices that lie together, into as many values */
    uint32_t x, cols, w[3], y[3], n, add, glu; /* add: a value that is added, 0: none */
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
    bind_span(m, j, Y, q->y, outputs);
    for (uint32_t i = 0; i < outputs; i++) *at[i] = word_in(m, j, Y, q->y[i]);
    j->c.ocols = value(m, q->w[0])->rows;
    j->c.source = product_rows(m, q);
    if (outputs > 1) j->c.n1 = j->c.ocols;
    if (outputs > 2) j->c.n2 = j->c.n1 + value(m, q->w[1])->rows;
}

static void add_product(maker *m, const product *q)
{
    uint32_t base, first, rows = product_rows(m, q), end;
    const tensor *t = vk_weight(m->p->weights, q->w[0], &base);
    int by_row = m->p->d->opt.rows != 0;
    for (uint32_t i = 0; i < t->segments; i++) {
        const segment *g = &t->segment[i];
        first = g->first > base ? g->first : base;
        end = base + (q->glu ? 2 * rows : rows);
        if (end > g->first + g->rows) end = g->first + g->rows;
        if (first >= end) continue;
        uint32_t count = q->glu ? rows : end - first;
        job *j = add(m, by_row ? SHADER_MATMUL_ROW : SHADER_MATMUL, 1);
        bind_value(m, j, X, q->x);
        bind_segment(m, j, q->w[0], g, t);
        split_outputs(m, j, q);
        bind_value(m, j, Z, q->add ? q->add : q->x);
        j->c.icols = q->cols;
        j->c.count = count;
        j->c.first = first - base;
        j->c.base = first - g->first;
        spec(j, 0, t->format->dtype);
        spec(j, 2, q->add != 0);
        spec(j, 3, q->glu);
        spec(j, 4, q->cols % 4 != 0);
        tile(m, j, count);
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
        job *j = add(m, SHADER_EMBED, up(up(v->cols, 4), THREADS));
        uint32_t ids = m->p->argmax;
        if (ids && m->p->at[ids].bytes)
            bind_value(m, j, X, ids);
        else
            j->bind[X] =
                (bind){&m->p->store, m->p->step}; /* never read: some buffer must be bound */
        bind_segment(m, j, w, g, t);
        bind_value(m, j, Y, y);
        bind_step(m, j);
        j->c.icols = v->rows;
        j->c.ocols = v->cols;
        j->c.first = first - base;
        j->c.count = end - first;
        j->c.base = first - g->first;
        spec(j, 0, v->dtype);
    }
}

static void add_rope(maker *m, uint32_t x, uint32_t tab, uint32_t y)
{
    job *j = add_simple(m, SHADER_ROPE, x, y);
    bind_row(m, j, tab);
    bind_step(m, j);
}

static void bind_kv(const maker *m, job *j, int at, const kv_layer *l)
{
    j->bind[at] = (bind){&m->p->store, l->at};
    j->c.values = l->values;
    j->c.raw = l->raw;
    spec(j, 0, m->p->limits.kv_dtype);
}

static void add_append(maker *m)
{
    const fak_op *o = m->o;
    uint32_t operand[3], whole = o->id == FAK_OP_ROPE_APPEND;
    vk_appends(o, operand);
    uint32_t span[4] = {operand[0], operand[1], whole ? o->in[0] : 0, whole ? o->out[0] : 0};
    uint32_t kv_cols = o->kv_heads * o->head_dim, cols = whole ? value(m, o->out[0])->cols : 0;
    job *j = add(m, SHADER_APPEND, up((cols > kv_cols ? cols : kv_cols) / 2, THREADS));
    bind_span(m, j, X, span, 4);
    bind_row(m, j, operand[2]);
    bind_kv(m, j, Y, vk_layer(m->p, o->layer));
    bind_step(m, j);
    j->c.x = word_in(m, j, X, operand[0]);
    j->c.source = word_in(m, j, X, operand[1]);
    j->c.ocols = cols;
    if (whole) {
        j->c.y1 = word_in(m, j, X, o->in[0]);
        j->c.y = word_in(m, j, X, o->out[0]);
        j->writes = 1u << X;
    }
    spec(j, 1, whole);
}

static void add_attention(maker *m)
{
    const fak_op *o = m->o;
    int by_row = m->p->d->opt.rows != 0;
    job *j = add(m, by_row ? SHADER_ATTEND_ROW : SHADER_ATTEND, o->heads);
    bind_value(m, j, X, o->in[0]);
    bind_kv(m, j, W, vk_layer(m->p, o->layer));
    bind_value(m, j, Y, o->out[0]);
    bind_step(m, j);
    spec(j, 1, up(o->head_dim, by_row ? ROW_COLUMNS : THREADS));
    spec(j, 2, m->p->d->opt.exact);
}

static void add_argmax(maker *m, uint32_t x, uint32_t cols, uint32_t y)
{
    uint32_t count = vk_best_count(m->p, cols), best = temp(m, TEMP_BEST);
    job *j = add(m, SHADER_BEST, up(count, THREADS));
    bind_value(m, j, X, x);
    bind_value(m, j, Y, best);
    j->c.icols = cols;
    j->c.count = count;
    j = add(m, SHADER_ARGMAX, 1);
    bind_value(m, j, X, best);
    bind_value(m, j, Y, y);
    j->c.count = count;
}

/* ---- fused ops and the rest ---- */

static void make_fused(maker *m)
{
    const fak_op *o = m->o;
    uint32_t normed = temp(m, TEMP_NORMED), hidden = temp(m, TEMP_HIDDEN);
    product q = {.x = normed, .cols = value(m, o->in[0])->cols, .n = 1};
    switch (o->id) {
    case FAK_OP_NORM_MATMUL:
    case FAK_OP_NORM_MATMUL_GLU:
    case FAK_OP_FFN:
        add_norm(m, o->in[0], o->in[1], normed);
        q.glu = o->id != FAK_OP_NORM_MATMUL;
        q.n = q.glu ? 2 : 1u + (o->in[3] != 0) + (o->in[4] != 0);
        memcpy(q.w, o->in + 2, sizeof q.w);
        memcpy(q.y, o->out, sizeof q.y);
        if (o->id == FAK_OP_FFN) q.y[0] = hidden;
        add_product(m, &q);
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
        q = (product){hidden, q.cols, {o->in[2]}, {o->out[0]}, 1, o->in[3], 0};
        add_product(m, &q);
        break;
    case FAK_OP_MATMUL_ARGMAX:
        q = (product){o->in[0], q.cols, {o->in[1]}, {temp(m, TEMP_LOGITS)}, 1, 0, 0};
        add_product(m, &q);
        add_argmax(m, q.y[0], value(m, o->in[1])->rows, o->out[0]);
        break;
    default: /* MATMUL, MATMUL_ADD */
        q = (product){o->in[0], q.cols, {o->in[1]}, {o->out[0]}, 1, o->in[2], 0};
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
        bind_value(m, j, W, o->in[1]);
        break;
    case FAK_OP_ADD_BIAS:
        j = add_simple(m, SHADER_BIAS, o->in[0], o->out[0]);
        bind_row(m, j, o->in[1]);
        break;
    case FAK_OP_SCALE:
    case FAK_OP_SOFTCAP:
        add_simple(m, o->id == FAK_OP_SCALE ? SHADER_SCALE : SHADER_SOFTCAP, o->in[0], o->out[0]);
        break;
    case FAK_OP_TAKE_ROWS:
        bind_step(m, add_simple(m, SHADER_TAKE, o->in[0], o->out[0]));
        break;
    case FAK_OP_GLU:
        add_glu(m, o->in[0], o->in[1], o->out[0]);
        break;
    case FAK_OP_ROPE:
        add_rope(m, o->in[0], o->in[1], o->out[0]);
        break;
    case FAK_OP_KV_APPEND:
    case FAK_OP_ROPE_APPEND:
        add_append(m);
        break;
    case FAK_OP_ATTENTION:
        add_attention(m);
        break;
    case FAK_OP_ARGMAX:
        add_argmax(m, o->in[0], value(m, o->in[0])->cols, o->out[0]);
        break;
    default:
        make_fused(m);
    }
}

/* ---- what is done beside a step: pages are copied, survivors of an eviction move ---- */

static void make_copy(maker *m, const kv_layer *l)
{
    uint32_t raw = l->raw ? PAGE * l->cols : 0;
    uint32_t words = PAGE * l->cols * vk_element_bytes(m->p->limits.kv_dtype) / 4;
    job *j = add(m, SHADER_PAGES, 1);
    j->side = 1;
    bind_kv(m, j, Y, l);
    bind_step(m, j);
    j->c.count = words;
    j->c.group = raw;
    uint32_t index = grid_at(m, (grid){up(raw > words ? raw : words, THREADS), PER_COPY, 1});
    for (int i = 0; i < SHAPES; i++) j->grid[i] = index;
}

/* Raw keys and values are gathered as rows, then appended where they go. */
static void make_evict(maker *m, const kv_layer *l)
{
    uint32_t v = m->p->side_rows * l->cols;
    bind rows = {&m->p->store, m->p->survivors};
    job *j = add(m, SHADER_GATHER, up(l->cols, THREADS));
    j->side = 1;
    bind_kv(m, j, W, l);
    j->bind[Y] = rows;
    bind_step(m, j);
    j->c.y1 = v;
    j = add(m, SHADER_APPEND, up(l->cols / 2, THREADS));
    j->side = 1;
    bind_row(m, j, l->table);
    bind_kv(m, j, Y, l);
    j->bind[X] = rows;
    bind_step(m, j);
    j->c.source = v;
}

static void make_side_jobs(maker *m)
{
    fak_program *p = m->p;
    m->wanted = 0;
    p->copy_job = p->job_count;
    for (int evict = 0; evict < 2; evict++) {
        if (evict) p->evict_job = p->job_count;
        for (uint32_t i = 0; i < p->layers && (!evict || p->side_rows); i++) {
            const kv_layer *l = &p->layer[i];
            fak_op o = {.kv_heads = l->kv_heads, .head_dim = l->head_dim, .rot_dim = l->rot_dim};
            m->o = &o;
            if (evict)
                make_evict(m, l);
            else
                make_copy(m, l);
        }
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
    make_side_jobs(&m);
    for (uint32_t i = 0; i < p->job_count; i++) p->jobs[i].writes |= 1u << Y;
    if (!m.failed) return FAK_OK;
    return vk_fail(e, m.failed, FAK_NO_INDEX,
                   m.failed == FAK_E_MEMORY ? "no host memory for dispatches"
                                            : "its ops differ in more ways than are kept");
}
