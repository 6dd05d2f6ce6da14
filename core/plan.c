/* plan - see plan.h.  Reads top to bottom like the paper. */
#include "plan.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the forward pass ---- */

typedef struct builder {
    const model *m;
    plan_draft draft;
    uint32_t layer; /* FAK_NO_INDEX outside layers */
    uint32_t rope;  /* value id of the rope table */
} builder;

/* The value of a weight; values of a layer are numbered alike in every layer. */
static uint32_t weight_of(builder *b, enum model_role role)
{
    uint32_t index = model_weight(b->m, role, b->layer);
    const weight *w = &b->m->weights.at[index];
    fak_value v = {.kind = role == MODEL_ROPE ? FAK_CONST : FAK_WEIGHT,
                   .dtype = w->dtype,
                   .rows = w->rows,
                   .cols = w->cols};
    return plan_add_value(&b->draft, &v, index);
}

/* Appends an op; its result has the shape that the op table says. */
static uint32_t op(builder *b, fak_op o)
{
    plan_draft *d = &b->draft;
    o.revision = 1;
    o.layer = b->layer;
    if (ops_find(o.id)->outputs && !d->failed) {
        fak_value y = {.kind = FAK_ACT,
                       .dtype = FAK_F32,
                       .rows = ops_out_rows(&o, d->value),
                       .cols = ops_out_cols(&o, d->value)};
        o.out[0] = plan_add_value(d, &y, FAK_NO_INDEX);
    }
    plan_add_op(d, &o, d->ops);
    return o.out[0];
}

#define OP(b, ...) op(b, (fak_op){__VA_ARGS__})

static uint32_t norm(builder *b, uint32_t x, uint32_t w)
{
    return OP(b, .id = FAK_OP_RMSNORM, .in = {x, w}, .eps = b->m->eps);
}

static uint32_t matmul(builder *b, uint32_t x, uint32_t w)
{
    return OP(b, .id = FAK_OP_MATMUL, .in = {x, w});
}

static uint32_t add(builder *b, uint32_t residual, uint32_t x)
{
    return OP(b, .id = FAK_OP_ADD, .in = {residual, x});
}

static uint32_t attention(builder *b, uint32_t x)
{
    const model *m = b->m;
    uint32_t n = norm(b, x, weight_of(b, MODEL_ATTN_NORM));
    uint32_t q = matmul(b, n, weight_of(b, MODEL_Q));
    uint32_t k = matmul(b, n, weight_of(b, MODEL_K));
    uint32_t v = matmul(b, n, weight_of(b, MODEL_V));
    q = OP(b, .id = FAK_OP_ROPE, .in = {q, b->rope}, .heads = m->heads, .head_dim = m->head_dim,
           .rot_dim = m->rot_dim);
    OP(b, .id = FAK_OP_KV_APPEND, .in = {k, v, b->rope}, .kv_heads = m->kv_heads,
       .head_dim = m->head_dim, .rot_dim = m->rot_dim);
    uint32_t o = OP(b, .id = FAK_OP_ATTENTION, .in = {q}, .heads = m->heads,
                    .kv_heads = m->kv_heads, .head_dim = m->head_dim,
                    .scale = (float)(1.0 / sqrt((double)m->head_dim)));
    return add(b, x, matmul(b, o, weight_of(b, MODEL_O)));
}

static uint32_t feed_forward(builder *b, uint32_t x)
{
    uint32_t n = norm(b, x, weight_of(b, MODEL_FFN_NORM));
    uint32_t gate = matmul(b, n, weight_of(b, MODEL_GATE));
    uint32_t up = matmul(b, n, weight_of(b, MODEL_UP));
    uint32_t h = OP(b, .id = FAK_OP_GLU, .in = {gate, up}, .act = FAK_SILU);
    return add(b, x, matmul(b, h, weight_of(b, MODEL_DOWN)));
}

/* Are the values of every turn like those of the first?  Files may mix dtypes. */
static int alike(const plan_draft *d, uint32_t first, const fak_repeat *r)
{
    for (uint32_t i = r->stride; !d->failed && i < r->stride * r->times; i++)
        if (memcmp(&d->value[first + i], &d->value[first + i % r->stride], sizeof *d->value))
            return 0;
    return 1;
}

static uint32_t layers(builder *b, uint32_t x)
{
    plan_draft *d = &b->draft;
    fak_repeat *r = &d->repeat[0];
    *r = (fak_repeat){.first = d->ops, .times = b->m->layers};
    uint32_t values = d->values;
    for (b->layer = 0; b->layer < b->m->layers; b->layer++) {
        x = attention(b, x);
        x = feed_forward(b, x);
        if (b->layer == 0) r->ops = d->ops - r->first;
        if (b->layer == 0) r->stride = d->values - values;
    }
    b->layer = FAK_NO_INDEX;
    d->repeats = b->m->layers > 1 && alike(d, values, r);
    return x;
}

/* Logits of the wanted rows, or their argmax; the tails share weights, not values. */
static void tail(builder *b, uint32_t want, uint32_t x, uint32_t norm_w, uint32_t head_w)
{
    plan_draft *d = &b->draft;
    fak_tail *t = &d->tail[d->tails++];
    *t = (fak_tail){.want = want, .first = d->ops};
    uint32_t y = OP(b, .id = FAK_OP_TAKE_ROWS, .in = {x});
    y = matmul(b, norm(b, y, norm_w), head_w);
    if (want == FAK_WANT_ARGMAX) y = OP(b, .id = FAK_OP_ARGMAX, .in = {y});
    t->ops = d->ops - t->first;
    t->out = y;
    if (d->failed) return;
    d->value[y].kind = FAK_OUT;
    d->value[y].dtype = want == FAK_WANT_ARGMAX ? FAK_I32 : FAK_F32;
}

int32_t plan_build(plan *p, const model *m, fak_error *e)
{
    builder b = {.m = m, .layer = FAK_NO_INDEX};
    plan_add_value(&b.draft, &(fak_value){.kind = FAK_UNUSED}, FAK_NO_INDEX);
    b.draft.layers = m->layers;
    b.rope = weight_of(&b, MODEL_ROPE);
    uint32_t embed = weight_of(&b, MODEL_EMBED);
    uint32_t out_norm = weight_of(&b, MODEL_OUT_NORM);
    uint32_t head = m->tied ? embed : weight_of(&b, MODEL_HEAD);

    uint32_t x = OP(&b, .id = FAK_OP_EMBED, .in = {embed});
    x = layers(&b, x);
    b.draft.body_ops = b.draft.ops;
    tail(&b, FAK_WANT_LOGITS, x, out_norm, head);
    tail(&b, FAK_WANT_ARGMAX, x, out_norm, head);

    int32_t s = plan_pack(p, &b.draft, e);
    plan_draft_free(&b.draft);
    return s;
}

/* ---- drafts ---- */

/* Room for one more of an array and of the array of words beside it. */
static int grow(plan_draft *d, void **array, size_t size, uint32_t **words, uint32_t count,
                uint32_t *room)
{
    if (d->failed) return 0;
    if (count < *room) return 1;
    uint32_t wider = *room ? *room * 2 : 256;
    void *a = realloc(*array, wider * size);
    if (a) *array = a;
    uint32_t *w = realloc(*words, wider * sizeof *w);
    if (w) *words = w;
    if (a && w) *room = wider;
    d->failed = !a || !w;
    return !d->failed;
}

uint32_t plan_add_value(plan_draft *d, const fak_value *v, uint32_t source)
{
    if (!grow(d, (void **)&d->value, sizeof *v, &d->weight, d->values, &d->value_room)) return 0;
    d->value[d->values] = *v;
    d->weight[d->values] = source;
    return d->values++;
}

uint32_t plan_add_op(plan_draft *d, const fak_op *o, uint32_t origin)
{
    if (!grow(d, (void **)&d->op, sizeof *o, &d->origin, d->ops, &d->op_room)) return 0;
    d->op[d->ops] = *o;
    d->origin[d->ops] = origin;
    return d->ops++;
}

void plan_draft_free(plan_draft *d)
{
    free(d->value);
    free(d->weight);
    free(d->op);
    free(d->origin);
    *d = (plan_draft){0};
}

/* Places `count` elements of an array behind what the block already has. */
static fak_array place(uint32_t *bytes, uint32_t count, uint32_t stride)
{
    fak_array a = {*bytes, count, stride};
    *bytes += count * stride;
    return a;
}

int32_t plan_pack(plan *p, const plan_draft *d, fak_error *e)
{
    fak_plan head = {.struct_size = sizeof head, .body_ops = d->body_ops, .layers = d->layers};
    uint32_t bytes = sizeof head;
    head.values = place(&bytes, d->values, sizeof *d->value);
    head.ops = place(&bytes, d->ops, sizeof *d->op);
    head.repeats = place(&bytes, d->repeats, sizeof *d->repeat);
    head.tails = place(&bytes, d->tails, sizeof *d->tail);
    head.bytes = bytes;
    *p = (plan){malloc(bytes), malloc(d->values * 4ul + 4), malloc(d->ops * 4ul + 4)};
    if (d->failed || !p->block || !p->weight || !p->origin) {
        plan_free(p);
        return status_memory(e, "the plan", bytes);
    }
    char *block = (char *)p->block;
    memcpy(block, &head, sizeof head);
    if (d->values) memcpy(block + head.values.offset, d->value, d->values * sizeof *d->value);
    if (d->ops) memcpy(block + head.ops.offset, d->op, d->ops * sizeof *d->op);
    memcpy(block + head.repeats.offset, d->repeat, d->repeats * sizeof *d->repeat);
    memcpy(block + head.tails.offset, d->tail, d->tails * sizeof *d->tail);
    if (d->values) memcpy(p->weight, d->weight, d->values * 4ul);
    if (d->ops) memcpy(p->origin, d->origin, d->ops * 4ul);
    return FAK_OK;
}

void plan_free(plan *p)
{
    free(p->block);
    free(p->weight);
    free(p->origin);
    *p = (plan){0};
}

/* ---- reading ---- */

fak_value plan_value(const fak_plan *p, uint32_t i)
{
    fak_value v;
    FAK_GET(&v, p, values, i);
    return v;
}

fak_op plan_op(const fak_plan *p, uint32_t i)
{
    fak_op o;
    FAK_GET(&o, p, ops, i);
    return o;
}

fak_repeat plan_repeat(const fak_plan *p, uint32_t i)
{
    fak_repeat r;
    FAK_GET(&r, p, repeats, i);
    return r;
}

fak_tail plan_tail(const fak_plan *p, uint32_t i)
{
    fak_tail t;
    FAK_GET(&t, p, tails, i);
    return t;
}

uint64_t plan_hash(const fak_plan *p)
{
    uint64_t h = 14695981039346656037ull;
    for (uint32_t i = 0; i < p->bytes; i++) h = (h ^ ((const uint8_t *)p)[i]) * 1099511628211ull;
    return h;
}
