/* step - begin, ops, read, write, kv: what happens between load and release. */
#include "cpu_ref.h"

#include <string.h>

/* ---- begin ---- */

/* Positions in use when every span has freed its slot beyond `first`. */
static uint64_t kept_positions(const fak_program *p, const fak_step *s)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < p->limits.slots; i++) total += p->length[i];
    for (uint32_t i = 0; i < s->span.count; i++) {
        fak_span span;
        FAK_GET(&span, s, span, i);
        if (p->length[span.slot] > span.first) total -= p->length[span.slot] - span.first;
    }
    return total;
}

/* Checks all spans before any changes. */
static int32_t reserve(fak_program *p, const fak_step *s, fak_error *e)
{
    uint64_t total = kept_positions(p, s);
    fak_span span;
    for (uint32_t i = 0; i < s->span.count; i++) {
        FAK_GET(&span, s, span, i);
        if (span.first > p->length[span.slot])
            return cpu_ref_fail(e, FAK_E_ARGUMENT, i, "a span begins beyond its slot's kv");
        total += span.rows;
        if (span.rows > p->limits.context - span.first || total > p->limits.kv_tokens)
            return cpu_ref_fail(e, FAK_E_KV_FULL, i, "no kv room for a span");
    }
    for (uint32_t i = 0; i < s->span.count; i++) {
        FAK_GET(&span, s, span, i);
        p->length[span.slot] = span.first + span.rows;
    }
    return FAK_OK;
}

int32_t cpu_ref_begin(fak_program *p, const fak_step *s, fak_error *e)
{
    int from_argmax = (s->flags & FAK_TOKENS_FROM_ARGMAX) != 0;
    if (from_argmax && !p->embeds) from_argmax = 0; /* token ids are nothing to it */
    if (from_argmax && (!p->argmax || !p->memory.at[p->argmax] || !p->memory.step ||
                        p->step->want != FAK_WANT_ARGMAX || p->step->wanted.count != s->rows))
        return cpu_ref_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX,
                            "the step before did not leave an argmax for every row");
    int32_t status = p->length ? reserve(p, s, e) : FAK_OK;
    if (status) return status;
    memcpy(p->step, s, s->bytes);
    if (from_argmax) {
        p->step->token = (fak_array){s->bytes, s->rows, 4};
        memcpy((char *)p->step + s->bytes, p->memory.at[p->argmax], s->rows * 4ul);
    }
    p->memory.step = p->step;
    return FAK_OK;
}

/* ---- ops, rows ---- */

int32_t cpu_ref_op(fak_program *p, uint32_t op, fak_error *e)
{
    if (op >= p->ops || !p->taken[op])
        return cpu_ref_fail(e, FAK_E_ARGUMENT, op, "an op that was not taken");
    if (ref_op(&p->memory, &p->op[op]))
        return cpu_ref_fail(e, FAK_E_UNSUPPORTED, op, "an op that it does not know");
    return FAK_OK;
}

static char *rows_at(const fak_program *p, uint32_t value, uint32_t first, uint64_t *row_bytes)
{
    const fak_value *v = &p->memory.value[value];
    *row_bytes = dtype_row_bytes(v->dtype, v->cols);
    return (char *)p->memory.at[value] + first * *row_bytes;
}

static int32_t not_here(fak_program *p, uint32_t value, fak_error *e)
{
    if (value < p->values && p->slot_of[value]) return FAK_OK;
    return cpu_ref_fail(e, FAK_E_ARGUMENT, value, "a value that has no storage here");
}

int32_t cpu_ref_read(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                     uint64_t *ticket, fak_error *e)
{
    uint64_t row_bytes;
    int32_t s = not_here(p, value, e);
    if (s) return s;
    const char *src = rows_at(p, value, first, &row_bytes);
    memcpy(dst, src, (size_t)(rows * row_bytes));
    *ticket = 0;
    return FAK_OK;
}

int32_t cpu_ref_write(fak_program *p, uint32_t value, uint32_t first, uint32_t rows,
                      const void *src, fak_error *e)
{
    uint64_t row_bytes;
    int32_t s = not_here(p, value, e);
    if (s) return s;
    char *dst = rows_at(p, value, first, &row_bytes);
    memcpy(dst, src, (size_t)(rows * row_bytes));
    return FAK_OK;
}

const void *cpu_ref_view(fak_program *p, uint32_t value)
{
    return value < p->values ? p->memory.at[value] : NULL;
}

/* ---- kv ---- */

static int32_t no_kv(const fak_program *p, uint32_t slot, fak_error *e)
{
    if (!p->length) return cpu_ref_fail(e, FAK_E_ARGUMENT, slot, "this program holds no kv");
    if (slot >= p->limits.slots) return cpu_ref_fail(e, FAK_E_ARGUMENT, slot, "no such slot");
    return FAK_OK;
}

int32_t cpu_ref_kv_clone(fak_program *p, uint32_t to, uint32_t from, uint32_t len, fak_error *e)
{
    int32_t s = no_kv(p, to > from ? to : from, e);
    if (s) return s;
    if (to == from || len > p->length[from])
        return cpu_ref_fail(e, FAK_E_ARGUMENT, to, "a clone of itself, or of more than there is");
    uint64_t total = len;
    for (uint32_t i = 0; i < p->limits.slots; i++) total += i == to ? 0 : p->length[i];
    if (total > p->limits.kv_tokens)
        return cpu_ref_fail(e, FAK_E_KV_FULL, to, "no kv room for a clone");
    for (uint32_t l = 0; l < p->kv_layers; l++) ref_kv_clone(&p->memory.kv, l, to, from, len);
    p->length[to] = len;
    return FAK_OK;
}

int32_t cpu_ref_kv_trim(fak_program *p, uint32_t slot, uint32_t len, fak_error *e)
{
    int32_t s = no_kv(p, slot, e);
    if (!s && p->length[slot] > len) p->length[slot] = len;
    return s;
}

int32_t cpu_ref_kv_evict(fak_program *p, uint32_t slot, uint32_t first, uint32_t len, fak_error *e)
{
    int32_t s = no_kv(p, slot, e);
    if (s) return s;
    if (!p->memory.kv.raw)
        return cpu_ref_fail(e, FAK_E_ARGUMENT, slot, "the program was not prepared evictable");
    if (first > p->length[slot] || len > p->length[slot] - first)
        return cpu_ref_fail(e, FAK_E_ARGUMENT, slot, "evicts more than there is");
    for (uint32_t i = 0; i < p->ops; i++) {
        fak_op append = cpu_ref_append_of(&p->op[i]);
        if (p->taken[i] && append.id == FAK_OP_KV_APPEND)
            ref_kv_evict(&p->memory.kv, &append, slot, first, len, p->length[slot],
                         p->memory.at[append.in[2]]);
    }
    p->length[slot] -= len;
    return FAK_OK;
}

static uint32_t layer_cols(const fak_program *p, uint32_t layer)
{
    for (uint32_t i = 0; i < p->ops; i++) {
        fak_op append = cpu_ref_append_of(&p->op[i]);
        if (p->taken[i] && append.id == FAK_OP_KV_APPEND && append.layer == layer)
            return append.kv_heads * append.head_dim;
    }
    return 0;
}

static int32_t kv_range(const fak_program *p, uint32_t slot, uint32_t layer, uint32_t first,
                        uint32_t len, uint32_t *index, uint32_t *cols, fak_error *e)
{
    int32_t s = no_kv(p, slot, e);
    if (s) return s;
    *index = layer < p->layers ? p->kv_layer[layer] : FAK_NO_INDEX;
    *cols = layer_cols(p, *index);
    if (!*cols || first > p->limits.context || len > p->limits.context - first)
        return cpu_ref_fail(e, FAK_E_ARGUMENT, slot, "no such kv positions");
    return FAK_OK;
}

int32_t cpu_ref_kv_read(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                        void *k, void *v, uint64_t *ticket, fak_error *e)
{
    uint32_t index, cols;
    int32_t s = kv_range(p, slot, layer, first, len, &index, &cols, e);
    for (uint32_t i = 0; !s && i < len; i++)
        ref_kv_read(&p->memory.kv, index, slot, first + i, cols, (float *)k + (size_t)i * cols,
                    (float *)v + (size_t)i * cols);
    *ticket = 0;
    return s;
}

int32_t cpu_ref_kv_write(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first,
                         uint32_t len, const void *k, const void *v, fak_error *e)
{
    uint32_t index, cols;
    int32_t s = kv_range(p, slot, layer, first, len, &index, &cols, e);
    for (uint32_t i = 0; !s && i < len; i++)
        ref_kv_write(&p->memory.kv, index, slot, first + i, cols,
                     (const float *)k + (size_t)i * cols, (const float *)v + (size_t)i * cols);
    if (!s && p->length[slot] < first + len) p->length[slot] = first + len;
    return s;
}
