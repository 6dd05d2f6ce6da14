/* kernels - ops on the device's memory: what the worker runs. */
#include "honest.h"

#include <math.h>
#include <string.h>

/* ---- values ---- */

uint32_t honest_rows(const fak_value *v, uint32_t rows, uint32_t wanted)
{
    return v->rows == FAK_STEP_ROWS ? rows : v->rows == FAK_WANTED_ROWS ? wanted : v->rows;
}

static float *value_row(const fak_program *p, uint32_t id, uint32_t r)
{
    return (float *)(void *)(p->d->block + p->at[id]) + (size_t)r * p->value[id].cols;
}

static uint32_t rows_now(const fak_program *p, uint32_t id)
{
    return honest_rows(&p->value[id], p->step->rows, p->step->wanted.count);
}

/* What a fused op's parts hand on; not read by anybody else. */
static float *temp(const fak_program *p, uint32_t i)
{
    return (float *)(void *)(p->d->block + p->acts + p->size.acts + i * (p->size.temp / TEMPS));
}

static float *scratch(const fak_program *p)
{
    return (float *)(void *)(p->d->block + p->acts + p->size.acts + p->size.temp);
}

static uint32_t step_word(const fak_program *p, fak_array a, uint32_t i)
{
    uint32_t w;
    fak_get(&w, sizeof w, (const char *)p->step + a.offset, a.stride, i);
    return w;
}

/* ---- kv ---- */

static char *kv_row(const fak_program *p, uint32_t page, uint32_t layer, uint32_t pos, uint32_t v)
{
    size_t row = (((size_t)page * p->kv_layers + layer) * PAGE + pos % PAGE) * 2 + v;
    return p->d->block + p->kv + row * p->width * honest_row_bytes(p->limits.kv_dtype, 1);
}

static float *raw_row(const fak_program *p, uint32_t page, uint32_t layer, uint32_t pos)
{
    size_t row = ((size_t)page * p->kv_layers + layer) * PAGE + pos % PAGE;
    return (float *)(void *)(p->d->block + p->raw) + row * p->width;
}

void honest_copy_page(fak_program *p, uint32_t from, uint32_t to)
{
    size_t bytes = (size_t)(kv_row(p, 1, 0, 0, 0) - kv_row(p, 0, 0, 0, 0));
    memcpy(kv_row(p, to, 0, 0, 0), kv_row(p, from, 0, 0, 0), bytes);
    if (p->raw)
        memcpy(raw_row(p, to, 0, 0), raw_row(p, from, 0, 0),
               (size_t)p->kv_layers * PAGE * p->width * 4);
}

static void store_key(const fak_program *p, const fak_op *o, uint32_t page, uint32_t pos,
                      const float *key, const float *tab)
{
    float *turned = scratch(p);
    uint32_t cols = o->kv_heads * o->head_dim;
    honest_rope(o->kv_heads, o, key, tab + (size_t)pos * o->rot_dim, turned);
    honest_encode(p->limits.kv_dtype, cols, turned, kv_row(p, page, o->layer, pos, 0));
    if (p->raw) memmove(raw_row(p, page, o->layer, pos), key, cols * 4ul);
}

static void append(const fak_program *p, const fak_op *o, const uint32_t operand[3])
{
    uint32_t cols = o->kv_heads * o->head_dim;
    for (uint32_t i = 0; i < p->step->span.count; i++) {
        fak_span s;
        FAK_GET(&s, p->step, span, i);
        for (uint32_t r = s.row; r < s.row + s.rows; r++) {
            uint32_t pos = s.first + (r - s.row);
            uint32_t page = p->step_pages[(size_t)i * p->slot_pages + pos / PAGE];
            store_key(p, o, page, pos, value_row(p, operand[0], r), value_row(p, operand[2], 0));
            honest_encode(p->limits.kv_dtype, cols, value_row(p, operand[1], r),
                          kv_row(p, page, o->layer, pos, 1));
        }
    }
}

void honest_evict(fak_program *p, const kv_job *j)
{
    const uint32_t *from = j->page, *to = j->page + p->slot_pages;
    uint32_t operand[3];
    for (uint32_t i = 0; i < p->ops; i++) {
        const fak_op *o = &p->op[i];
        if (!p->taken[i] || !honest_appends(o, operand)) continue;
        const float *tab = value_row(p, operand[2], 0);
        size_t bytes = o->kv_heads * o->head_dim * honest_row_bytes(p->limits.kv_dtype, 1);
        for (uint32_t pos = j->first; j->count && pos < j->end; pos++) { /* rising: none is lost */
            uint32_t old = pos + j->count;
            memmove(kv_row(p, to[pos / PAGE], o->layer, pos, 1),
                    kv_row(p, from[old / PAGE], o->layer, old, 1), bytes);
            store_key(p, o, to[pos / PAGE], pos, raw_row(p, from[old / PAGE], o->layer, old), tab);
        }
    }
}

void honest_move_rows(fak_program *p, const kv_job *j, int write)
{
    for (uint32_t i = 0; i < j->count; i++) {
        uint32_t pos = j->first + i, page = j->page[pos / PAGE];
        for (uint32_t v = 0; v < 2; v++) {
            float *rows = (v ? j->v : j->k) + (size_t)i * j->cols;
            char *at = kv_row(p, page, j->layer, pos, v);
            if (write)
                honest_encode(p->limits.kv_dtype, j->cols, rows, at);
            else
                honest_decode(p->limits.kv_dtype, j->cols, at, rows);
        }
    }
}

/* ---- attention ---- */

typedef struct head { /* one head of one row */
    const fak_op *op;
    const uint32_t *page; /* of its slot */
    uint32_t kv_column, from, pos;
    const float *q;
    float *y;
} head;

static const float *load_head(const fak_program *p, const head *h, uint32_t t, uint32_t v,
                              float *out)
{
    char *row = kv_row(p, h->page[t / PAGE], h->op->layer, t, v);
    honest_decode(p->limits.kv_dtype, h->op->head_dim,
                  row + h->kv_column * honest_row_bytes(p->limits.kv_dtype, 1), out);
    return out;
}

static float score(const fak_program *p, const head *h, uint32_t t, float *buffer)
{
    const float *k = load_head(p, h, t, 0, buffer);
    uint32_t d = h->op->head_dim;
    float sum = 0;
    int exact = p->d->exact != 0;
    for (uint32_t i = 0; i < d; i++) {
        uint32_t c = exact ? i : d - 1 - i;
        sum = sum + h->q[c] * k[c];
    }
    sum = sum * h->op->scale;
    return h->op->softcap != 0 ? honest_softcap(sum, h->op->softcap, exact) : sum;
}

/* All scores, their maximum, then the sums in order of position. */
static void attend_exact(const fak_program *p, const head *h, float *buffer, float *scores)
{
    uint32_t d = h->op->head_dim;
    float most = -INFINITY, sum = 0;
    for (uint32_t t = h->from; t <= h->pos; t++) {
        scores[t] = score(p, h, t, buffer);
        most = scores[t] > most ? scores[t] : most;
    }
    for (uint32_t i = 0; i < d; i++) h->y[i] = 0;
    for (uint32_t t = h->from; t <= h->pos; t++) {
        const float *v = load_head(p, h, t, 1, buffer);
        float e = honest_exp(scores[t] - most, 1);
        sum = sum + e;
        for (uint32_t i = 0; i < d; i++) h->y[i] = h->y[i] + e * v[i];
    }
    float inverse = 1.0f / sum;
    for (uint32_t i = 0; i < d; i++) h->y[i] = h->y[i] * inverse;
}

/* One pass from the newest position back; what was summed is scaled when a larger score comes. */
static void attend_once(const fak_program *p, const head *h, float *buffer)
{
    uint32_t d = h->op->head_dim;
    float most = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < d; i++) h->y[i] = 0;
    for (uint32_t t = h->pos + 1; t-- > h->from;) {
        float s = score(p, h, t, buffer), higher = s > most ? s : most;
        float e = honest_exp(s - higher, 0), less = honest_exp(most - higher, 0);
        const float *v = load_head(p, h, t, 1, buffer);
        sum = sum * less + e;
        for (uint32_t i = 0; i < d; i++) h->y[i] = h->y[i] * less + e * v[i];
        most = higher;
    }
    for (uint32_t i = 0; i < d; i++) h->y[i] = h->y[i] / sum;
}

static void attention(const fak_program *p, const fak_op *o)
{
    float *buffer = scratch(p), *scores = buffer + o->head_dim;
    for (uint32_t i = 0; i < p->step->span.count; i++) {
        fak_span s;
        FAK_GET(&s, p->step, span, i);
        for (uint32_t r = 0; r < s.rows * o->heads; r++) {
            uint32_t row = s.row + r / o->heads, number = r % o->heads;
            head h = {.op = o, .pos = s.first + r / o->heads};
            h.page = p->step_pages + (size_t)i * p->slot_pages;
            h.from = o->window && h.pos + 1 > o->window ? h.pos + 1 - o->window : 0;
            h.kv_column = number / (o->heads / o->kv_heads) * o->head_dim;
            h.q = value_row(p, o->in[0], row) + (size_t)number * o->head_dim;
            h.y = value_row(p, o->out[0], row) + (size_t)number * o->head_dim;
            if (p->d->exact)
                attend_exact(p, &h, buffer, scores);
            else
                attend_once(p, &h, buffer);
        }
    }
}

/* ---- parts ---- */

static void norm(const fak_program *p, const fak_op *o, float *y)
{
    uint32_t cols = p->value[o->in[0]].cols, rows = rows_now(p, o->in[0]);
    for (uint32_t r = 0; r < rows; r++)
        honest_norm(cols, o, value_row(p, o->in[0], r), value_row(p, o->in[1], 0),
                    y + (size_t)r * cols, p->d->exact != 0);
}

static void matmul(const fak_program *p, uint32_t w, uint32_t rows, const float *x, float *y)
{
    honest_matmul(&p->value[w], p->d->block + p->at[w], rows, x, y, p->d->exact != 0,
                  (p->limits.numerics & FAK_ACT_Q8) != 0, scratch(p));
}

static void add(const fak_program *p, uint32_t a, const float *b, uint32_t y)
{
    size_t n = (size_t)rows_now(p, y) * p->value[y].cols;
    const float *x = value_row(p, a, 0);
    float *out = value_row(p, y, 0);
    for (size_t i = 0; i < n; i++) out[i] = x[i] + b[i];
}

static void rope(const fak_program *p, const fak_op *o, uint32_t tab)
{
    for (uint32_t i = 0; i < p->step->span.count; i++) {
        fak_span s;
        FAK_GET(&s, p->step, span, i);
        for (uint32_t r = 0; r < s.rows; r++)
            honest_rope(o->heads, o, value_row(p, o->in[0], s.row + r),
                        value_row(p, tab, s.first + r), value_row(p, o->out[0], s.row + r));
    }
}

static void embed(const fak_program *p, const fak_op *o)
{
    const fak_value *w = &p->value[o->in[0]];
    for (uint32_t r = 0; r < p->step->rows; r++) {
        uint32_t token = step_word(p, p->step->token, r);
        float *y = value_row(p, o->out[0], r);
        if (token < w->rows)
            honest_decode(
                w->dtype, w->cols,
                p->d->block + p->at[o->in[0]] + token * honest_row_bytes(w->dtype, w->cols), y);
        for (uint32_t i = 0; token >= w->rows && i < w->cols; i++) y[i] = NAN;
    }
}

static void argmax(const fak_program *p, uint32_t rows, uint32_t cols, const float *x, uint32_t y)
{
    for (uint32_t r = 0; r < rows; r++) {
        uint32_t best = honest_argmax(cols, x + (size_t)r * cols);
        memcpy(value_row(p, y, r), &best, sizeof best);
    }
}

/* ---- ops ---- */

static void core_op(const fak_program *p, const fak_op *o)
{
    uint32_t x = o->in[0], y = o->out[0], cols = p->value[y].cols, rows = rows_now(p, y);
    size_t n = (size_t)rows * cols;
    float *in = value_row(p, x, 0), *out = value_row(p, y, 0);
    const float *other = value_row(p, o->in[1], 0);
    switch (o->id) {
    case FAK_OP_EMBED:
        embed(p, o);
        break;
    case FAK_OP_RMSNORM:
        norm(p, o, out);
        break;
    case FAK_OP_MATMUL:
        matmul(p, o->in[1], rows, in, out);
        break;
    case FAK_OP_ADD_BIAS:
        for (size_t i = 0; i < n; i++) out[i] = in[i] + other[i % cols];
        break;
    case FAK_OP_ROPE:
        rope(p, o, o->in[1]);
        break;
    case FAK_OP_ATTENTION:
        attention(p, o);
        break;
    case FAK_OP_GLU:
        honest_glu((uint32_t)n, o->act, in, other, out, p->d->exact != 0);
        break;
    case FAK_OP_ADD:
        add(p, x, other, y);
        break;
    case FAK_OP_SCALE:
        for (size_t i = 0; i < n; i++) out[i] = in[i] * o->scale;
        break;
    case FAK_OP_SOFTCAP:
        for (size_t i = 0; i < n; i++) out[i] = honest_softcap(in[i], o->softcap, p->d->exact != 0);
        break;
    case FAK_OP_TAKE_ROWS:
        for (uint32_t r = 0; r < rows; r++)
            memcpy(out + (size_t)r * cols, value_row(p, x, step_word(p, p->step->wanted, r)),
                   cols * 4ul);
        break;
    case FAK_OP_ARGMAX:
        argmax(p, rows, p->value[x].cols, in, y);
        break;
    }
}

static void fused_op(const fak_program *p, const fak_op *o)
{
    uint32_t x = o->in[0], y = o->out[0], rows = rows_now(p, x);
    float *in = value_row(p, x, 0), *out = value_row(p, y, 0);
    float *t = temp(p, 0), *g = temp(p, 1), *u = temp(p, 2);
    int exact = p->d->exact != 0;
    switch (o->id) {
    case FAK_OP_NORM_MATMUL:
        norm(p, o, t);
        for (uint32_t k = 0; k < 3 && o->in[2 + k]; k++)
            matmul(p, o->in[2 + k], rows, t, value_row(p, o->out[k], 0));
        break;
    case FAK_OP_NORM_MATMUL_GLU:
    case FAK_OP_FFN:
        norm(p, o, t);
        matmul(p, o->in[2], rows, t, g);
        matmul(p, o->in[3], rows, t, u);
        honest_glu(rows * p->value[o->in[2]].rows, o->act, g, u, o->id == FAK_OP_FFN ? g : out,
                   exact);
        if (o->id != FAK_OP_FFN) break;
        matmul(p, o->in[4], rows, g, t);
        add(p, x, t, y);
        break;
    case FAK_OP_GLU_MATMUL_ADD:
        honest_glu(rows * p->value[x].cols, o->act, in, value_row(p, o->in[1], 0), g, exact);
        matmul(p, o->in[2], rows, g, t);
        add(p, o->in[3], t, y);
        break;
    case FAK_OP_MATMUL_ADD:
        matmul(p, o->in[1], rows, in, t);
        add(p, o->in[2], t, y);
        break;
    case FAK_OP_ROPE_APPEND:
        rope(p, o, o->in[3]);
        break;
    case FAK_OP_MATMUL_ARGMAX:
        matmul(p, o->in[1], rows, in, t);
        argmax(p, rows, p->value[o->in[1]].rows, t, y);
        break;
    }
}

void honest_ops(fak_program *p, uint32_t first, uint32_t ops)
{
    for (uint32_t i = first; i < first + ops; i++) {
        const fak_op *o = &p->op[i];
        uint32_t operand[3];
        if (o->id < FAK_OP_NORM_MATMUL)
            core_op(p, o);
        else
            fused_op(p, o);
        if (honest_appends(o, operand)) append(p, o, operand);
    }
}

/* ---- what they need ---- */

int honest_appends(const fak_op *o, uint32_t operand[3])
{
    uint32_t first = o->id == FAK_OP_ROPE_APPEND;
    if (!first && o->id != FAK_OP_KV_APPEND) return 0;
    for (uint32_t i = 0; i < 3; i++) operand[i] = o->in[first + i];
    return 1;
}

uint64_t honest_op_temp(const fak_program *p, const fak_op *o)
{
    uint64_t widest = 0;
    if (o->id < FAK_OP_NORM_MATMUL || o->id == FAK_OP_ROPE_APPEND) return 0;
    for (uint32_t j = 0; j < 8; j++) {
        const fak_value *v = &p->value[o->in[j]];
        uint64_t n = v->kind == FAK_WEIGHT && v->rows > v->cols ? v->rows : v->cols;
        widest = n > widest ? n : widest;
    }
    return widest * honest_rows(&p->value[o->in[0]], p->limits.rows, p->limits.wanted);
}

uint64_t honest_op_scratch(const fak_program *p, const fak_op *o)
{
    uint32_t rows = p->limits.rows > p->limits.wanted ? p->limits.rows : p->limits.wanted;
    uint64_t most = 4ull * (o->kv_heads * o->head_dim + o->head_dim + p->limits.context);
    for (uint32_t j = 0; j < 8; j++) {
        uint64_t n = honest_matmul_scratch(rows, p->value[o->in[j]].cols);
        if (p->value[o->in[j]].kind == FAK_WEIGHT && n > most) most = n;
    }
    return most;
}
