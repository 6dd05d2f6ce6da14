/* kv - keys and values: of each layer, slot and kv head the keys in blocks of 16 positions, so that
 * positions are vectors, and the values row by row; raw keys beside them where eviction may be asked. */
#include "cpu.h"

#include <string.h>

const kv_layer *cpu_kv_layer(const fak_program *p, uint32_t layer)
{
    for (uint32_t i = 0; i < p->kv.layers; i++) {
        uint32_t at = (layer + i) % p->kv.layers; /* mostly all layers are here */
        if (p->kv.layer[at].layer == layer) return &p->kv.layer[at];
    }
    return NULL;
}

void *cpu_keys(const kv_store *kv, const kv_layer *l, uint32_t slot, uint32_t head)
{
    uint64_t each = (uint64_t)kv->padded * l->head_dim * kv->element;
    return kv->base + l->keys + ((uint64_t)slot * l->kv_heads + head) * each;
}

void *cpu_values(const kv_store *kv, const kv_layer *l, uint32_t slot, uint32_t head)
{
    uint64_t each = (uint64_t)kv->padded * l->value_stride * kv->element;
    return kv->base + l->values + ((uint64_t)slot * l->kv_heads + head) * each;
}

static float *raw_row(const kv_store *kv, const kv_layer *l, uint32_t slot, uint32_t position)
{
    uint64_t cols = (uint64_t)l->kv_heads * l->head_dim;
    return (float *)(void *)(kv->base + l->raw) + ((uint64_t)slot * kv->padded + position) * cols;
}

/* ---- one number ---- */

static void put(uint32_t dtype, void *base, size_t at, float x)
{
    if (dtype == FAK_F32)
        ((float *)base)[at] = x;
    else
        ((uint16_t *)base)[at] = dtype == FAK_F16 ? float_to_half(x) : float_to_bfloat(x);
}

static float get(uint32_t dtype, const void *base, size_t at)
{
    if (dtype == FAK_F32) return ((const float *)base)[at];
    uint16_t h = ((const uint16_t *)base)[at];
    return dtype == FAK_F16 ? half_to_float(h) : bfloat_to_float(h);
}

static size_t key_at(const kv_layer *l, uint32_t position, uint32_t c)
{
    return (size_t)(position / 16) * l->head_dim * 16 + (size_t)c * 16 + position % 16;
}

/* ---- positions ---- */

static void put_keys(const kv_store *kv, const kv_layer *l, uint32_t slot, uint32_t position,
                     const float *k)
{
    for (uint32_t h = 0; h < l->kv_heads; h++, k += l->head_dim) {
        void *keys = cpu_keys(kv, l, slot, h);
        for (uint32_t c = 0; c < l->head_dim; c++)
            put(kv->dtype, keys, key_at(l, position, c), k[c]);
    }
}

static void put_values(const kv_store *kv, const kv_layer *l, uint32_t slot, uint32_t position,
                       const float *v)
{
    for (uint32_t h = 0; h < l->kv_heads; h++, v += l->head_dim) {
        void *values = cpu_values(kv, l, slot, h);
        for (uint32_t c = 0; c < l->head_dim; c++)
            put(kv->dtype, values, (size_t)position * l->value_stride + c, v[c]);
    }
}

/* Rotated for a position and kept, head by head so that the stack holds any width. */
static void rotate_and_put(const fak_program *p, const kv_layer *l, uint32_t slot,
                           uint32_t position, const float *k)
{
    float turned[1024];
    const float *table = (const float *)(const void *)p->weights->at[l->table].data;
    fak_op op = {.head_dim = l->head_dim, .rot_dim = l->rot_dim};
    row_fn *rope = (row_fn *)kernel_find(p->d->set, FAK_OP_ROPE, 0, 0);
    for (uint32_t h = 0; h < l->kv_heads; h++, k += l->head_dim) {
        void *keys = cpu_keys(&p->kv, l, slot, h);
        rope(&op, l->head_dim, k, table + (size_t)position * l->rot_dim, turned);
        for (uint32_t c = 0; c < l->head_dim; c++)
            put(p->kv.dtype, keys, key_at(l, position, c), turned[c]);
    }
}

void cpu_append(const fak_program *p, const kv_layer *l, uint32_t slot, uint32_t position,
                const float *k, const float *v)
{
    rotate_and_put(p, l, slot, position, k);
    put_values(&p->kv, l, slot, position, v);
    if (p->kv.raw)
        memcpy(raw_row(&p->kv, l, slot, position), k, l->kv_heads * l->head_dim * sizeof *k);
}

static void move_values(const kv_store *kv, const kv_layer *l, uint32_t slot, uint32_t to,
                        uint32_t from)
{
    size_t bytes = (size_t)l->value_stride * kv->element;
    for (uint32_t h = 0; h < l->kv_heads; h++) {
        char *values = cpu_values(kv, l, slot, h);
        memcpy(values + to * bytes, values + from * bytes, bytes);
    }
}

/* ---- reserving ---- */

/* Positions in use when every span has freed its slot beyond `first`. */
static uint64_t kept(const fak_program *p, const fak_step *s)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < p->kv.slots; i++) total += p->kv.length[i];
    for (uint32_t i = 0; i < s->span.count; i++) {
        fak_span span;
        FAK_GET(&span, s, span, i);
        if (p->kv.length[span.slot] > span.first) total -= p->kv.length[span.slot] - span.first;
    }
    return total;
}

int32_t cpu_reserve(fak_program *p, const fak_step *s, fak_error *e)
{
    uint64_t total = kept(p, s);
    fak_span span;
    for (uint32_t i = 0; i < s->span.count; i++) { /* all are looked at before any changes */
        FAK_GET(&span, s, span, i);
        if (span.first > p->kv.length[span.slot])
            return cpu_fail(e, FAK_E_ARGUMENT, i, "a span begins beyond its slot's kv");
        total += span.rows;
        if (span.rows > p->limits.context - span.first || total > p->limits.kv_tokens)
            return cpu_fail(e, FAK_E_KV_FULL, i, "no kv room for a span");
    }
    for (uint32_t i = 0; i < s->span.count; i++) {
        FAK_GET(&span, s, span, i);
        p->kv.length[span.slot] = span.first + span.rows;
    }
    return FAK_OK;
}

/* ---- calls ---- */

static int32_t no_kv(const fak_program *p, uint32_t slot, fak_error *e)
{
    if (!p->kv.layers) return cpu_fail(e, FAK_E_ARGUMENT, slot, "this program holds no kv");
    if (slot >= p->kv.slots) return cpu_fail(e, FAK_E_ARGUMENT, slot, "no such slot");
    return FAK_OK;
}

int32_t cpu_kv_clone(fak_program *p, uint32_t to, uint32_t from, uint32_t len, fak_error *e)
{
    kv_store *kv = &p->kv;
    uint64_t total = len;
    int32_t s = no_kv(p, to > from ? to : from, e);
    if (s) return s;
    if (to == from || len > kv->length[from])
        return cpu_fail(e, FAK_E_ARGUMENT, to, "a clone of itself, or of more than there is");
    for (uint32_t i = 0; i < kv->slots; i++) total += i == to ? 0 : kv->length[i];
    if (total > p->limits.kv_tokens)
        return cpu_fail(e, FAK_E_KV_FULL, to, "no kv room for a clone");
    uint32_t blocks = (len + 15) / 16;
    for (uint32_t i = 0; i < kv->layers; i++) {
        const kv_layer *l = &kv->layer[i];
        for (uint32_t h = 0; h < l->kv_heads; h++) {
            memcpy(cpu_keys(kv, l, to, h), cpu_keys(kv, l, from, h),
                   (size_t)blocks * 16 * l->head_dim * kv->element);
            memcpy(cpu_values(kv, l, to, h), cpu_values(kv, l, from, h),
                   (size_t)len * l->value_stride * kv->element);
        }
        if (kv->raw)
            memcpy(raw_row(kv, l, to, 0), raw_row(kv, l, from, 0),
                   (size_t)len * l->kv_heads * l->head_dim * sizeof(float));
    }
    kv->length[to] = len;
    return FAK_OK;
}

int32_t cpu_kv_trim(fak_program *p, uint32_t slot, uint32_t len, fak_error *e)
{
    int32_t s = no_kv(p, slot, e);
    if (!s && p->kv.length[slot] > len) p->kv.length[slot] = len;
    return s;
}

int32_t cpu_kv_evict(fak_program *p, uint32_t slot, uint32_t first, uint32_t len, fak_error *e)
{
    kv_store *kv = &p->kv;
    int32_t s = no_kv(p, slot, e);
    if (s) return s;
    if (!kv->raw)
        return cpu_fail(e, FAK_E_ARGUMENT, slot, "the program was not prepared evictable");
    if (first > kv->length[slot] || len > kv->length[slot] - first)
        return cpu_fail(e, FAK_E_ARGUMENT, slot, "evicts more than there is");
    for (uint32_t i = 0; i < kv->layers; i++) {
        const kv_layer *l = &kv->layer[i];
        size_t row = l->kv_heads * l->head_dim * sizeof(float);
        for (uint32_t to = first; len && to + len < kv->length[slot]; to++) {
            memcpy(raw_row(kv, l, slot, to), raw_row(kv, l, slot, to + len), row);
            rotate_and_put(p, l, slot, to, raw_row(kv, l, slot, to));
            move_values(kv, l, slot, to, to + len);
        }
    }
    kv->length[slot] -= len;
    return FAK_OK;
}

static int32_t find_range(const fak_program *p, uint32_t slot, uint32_t layer, uint32_t first,
                          uint32_t len, const kv_layer **l, fak_error *e)
{
    int32_t s = no_kv(p, slot, e);
    if (s) return s;
    *l = cpu_kv_layer(p, layer);
    if (*l && first <= p->limits.context && len <= p->limits.context - first) return FAK_OK;
    return cpu_fail(e, FAK_E_ARGUMENT, slot, "no such kv positions");
}

int32_t cpu_kv_read(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                    void *k, void *v, uint64_t *ticket, fak_error *e)
{
    const kv_layer *l;
    float *key = k, *value = v;
    int32_t s = find_range(p, slot, layer, first, len, &l, e);
    *ticket = 0;
    for (uint32_t t = first; !s && t < first + len; t++)
        for (uint32_t h = 0; h < l->kv_heads; h++) {
            const void *keys = cpu_keys(&p->kv, l, slot, h);
            const void *values = cpu_values(&p->kv, l, slot, h);
            for (uint32_t c = 0; c < l->head_dim; c++) {
                *key++ = get(p->kv.dtype, keys, key_at(l, t, c));
                *value++ = get(p->kv.dtype, values, (size_t)t * l->value_stride + c);
            }
        }
    return s;
}

int32_t cpu_kv_write(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                     const void *k, const void *v, fak_error *e)
{
    const kv_layer *l;
    int32_t s = find_range(p, slot, layer, first, len, &l, e);
    for (uint32_t i = 0; !s && i < len; i++) {
        size_t at = (size_t)i * l->kv_heads * l->head_dim;
        put_keys(&p->kv, l, slot, first + i, (const float *)k + at);
        put_values(&p->kv, l, slot, first + i, (const float *)v + at);
    }
    if (!s && p->kv.length[slot] < first + len) p->kv.length[slot] = first + len;
    return s;
}
