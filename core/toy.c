/* toy - see toy.h. */
#include "toy.h"

#include "port.h"
#include "rope.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* xorshift (Marsaglia 2003). */
static uint64_t next(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

float toy_noise(uint64_t *random)
{
    return (float)((int32_t)(next(random) >> 40) - (1 << 23)) * 0x1p-23f;
}

uint32_t toy_below(uint64_t *random, uint32_t bound)
{
    return (uint32_t)((next(random) >> 32) * bound >> 32);
}

int32_t toy_open(toy *t, uint32_t most, uint64_t bytes, uint64_t seed, fak_error *e)
{
    uint64_t room = bytes + 64ull * most + 64;
    *t = (toy){.most = most, .random = seed, .room = room};
    t->tensor = calloc(most + 1ul, sizeof *t->tensor);
    t->data = port_alloc(room);
    return t->tensor && t->data ? FAK_OK : status_memory(e, "a model in memory", room);
}

void toy_free(toy *t)
{
    model_close(&t->m);
    free(t->tensor);
    free(t->data);
    *t = (toy){0};
}

int32_t toy_add(toy *t, const char *name, uint32_t dtype, uint32_t rows, uint32_t cols,
                float center, float scale, uint32_t *index, fak_error *e)
{
    uint64_t row_bytes = dtype_row_bytes(dtype, cols);
    uint8_t *at = t->data + t->used;
    at += (64 - (uintptr_t)at % 64) % 64;
    float *row = malloc(cols * sizeof *row);
    *index = t->m.weights.count;
    assert(row_bytes && *index < t->most);
    assert((uint64_t)(at - t->data) + rows * row_bytes <= t->room);
    if (!row) return status_memory(e, "a row of weights", cols * sizeof *row);
    gguf_tensor *tensor = &t->tensor[*index];
    *tensor = (gguf_tensor){.dtype = dtype, .dims = 2, .dim = {cols, rows, 1, 1}, .data = at};
    tensor->big = dtype_is_foreign(dtype, 0); /* of the host's own order */
    for (uint32_t r = 0; r < rows; r++, at += row_bytes) {
        for (uint32_t c = 0; c < cols; c++) row[c] = center + scale * toy_noise(&t->random);
        dtype_encode_row(dtype, cols, row, at);
    }
    t->used = (uint64_t)(at - t->data);
    free(row);
    weight w = {.dtype = dtype, .rows = rows, .cols = cols, .tensor = tensor};
    snprintf(w.name, sizeof w.name, "%s", name);
    return weights_add(&t->m.weights, &w, e);
}

int32_t toy_add_rope(toy *t, uint32_t context, uint32_t rot_dim, uint32_t *index, fak_error *e)
{
    float *table = malloc((size_t)context * rot_dim * sizeof *table);
    *index = t->m.weights.count;
    assert(*index < t->most);
    if (!table) return status_memory(e, "the rope table", context * rot_dim * 4ull);
    rope_table(context, rot_dim, 10000, table);
    weight w = {.name = "rope", .dtype = FAK_F32, .rows = context, .cols = rot_dim, .made = table};
    return weights_add(&t->m.weights, &w, e);
}

const void *toy_rows(const toy *t, uint32_t index)
{
    const weight *w = &t->m.weights.at[index];
    return w->tensor ? (const void *)w->tensor->data : w->made;
}

/* ---- a whole model ---- */

typedef struct part {
    uint32_t role, rows, cols;
} part;

/* A matrix, or a norm near 1 where it has one row. */
static int32_t add(toy *t, const part *p, uint32_t layer, uint32_t dtype, fak_error *e)
{
    char name[64];
    uint32_t per_layer = MODEL_ROLES - MODEL_ATTN_NORM, norm = p->rows == 1;
    uint32_t *index =
        &t->m.index[p->role < MODEL_ATTN_NORM ? p->role : p->role + layer * per_layer];
    snprintf(name, sizeof name, "toy.%" PRIu32 ".%" PRIu32, p->role, layer);
    return toy_add(t, name, norm ? FAK_F32 : dtype, p->rows, p->cols, norm ? 1.0f : 0.0f, 0.25f,
                   index, e);
}

static int32_t fill(toy *t, const toy_shape *s, uint32_t dtype, fak_error *e)
{
    const uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    const part parts[] = {
        {MODEL_ATTN_NORM, 1, s->width}, {MODEL_Q, q, s->width},
        {MODEL_K, kv, s->width},        {MODEL_V, kv, s->width},
        {MODEL_O, s->width, q},         {MODEL_FFN_NORM, 1, s->width},
        {MODEL_GATE, s->ffn, s->width}, {MODEL_UP, s->ffn, s->width},
        {MODEL_DOWN, s->width, s->ffn},
    };
    int32_t rc = add(t, &(part){MODEL_EMBED, s->vocab, s->width}, 0, dtype, e);
    if (!rc) rc = toy_add_rope(t, s->context, s->head_dim, &t->m.index[MODEL_ROPE], e);
    for (uint32_t l = 0; l < s->layers; l++)
        for (size_t i = 0; !rc && i < sizeof parts / sizeof *parts; i++)
            rc = add(t, &parts[i], l, dtype, e);
    if (!rc) rc = add(t, &(part){MODEL_OUT_NORM, 1, s->width}, 0, dtype, e);
    if (!rc) rc = add(t, &(part){MODEL_HEAD, s->vocab, s->width}, 0, dtype, e);
    return rc;
}

int32_t toy_make(toy *t, const toy_shape *s, uint32_t dtype, uint64_t seed, fak_error *e)
{
    uint32_t most = 4 + s->layers * (MODEL_ROLES - MODEL_ATTN_NORM);
    uint64_t heads = (2ull * s->heads + 2ull * s->kv_heads) * s->head_dim;
    uint64_t elements =
        (heads + 3ull * s->ffn + 2) * s->width * s->layers + (2ull * s->vocab + 1) * s->width;
    int32_t rc = toy_open(t, most, elements * 4, seed, e);
    model *m = &t->m;
    *m = (model){.architecture = "llama",
                 .name = "toy",
                 .width = s->width,
                 .ffn = s->ffn,
                 .heads = s->heads,
                 .kv_heads = s->kv_heads,
                 .head_dim = s->head_dim,
                 .rot_dim = s->head_dim,
                 .vocab = s->vocab,
                 .layers = s->layers,
                 .context_max = s->context,
                 .context = s->context,
                 .eps = 1e-5f,
                 .rope_theta = 10000,
                 .blocks = dtype_find(dtype)->block > 1};
    m->index = calloc(most, sizeof *m->index);
    if (!rc && !m->index) rc = status_memory(e, "a model in memory", most * 4ull);
    if (!rc) rc = fill(t, s, dtype, e);
    if (rc) toy_free(t);
    return rc;
}
