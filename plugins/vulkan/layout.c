/* layout - where values, kv and steps lie, and what all of it takes. */
#include "vk.h"

#include <stdlib.h>
#include <string.h>

enum { EVICT_ROWS = 64, COPIES = 64, BEST_MOST = 1024, CPU_BEST = 64 };

uint32_t vk_rows_max(const fak_program *p, const fak_value *v)
{
    if (v->rows == FAK_STEP_ROWS) return p->limits.rows;
    return v->rows == FAK_WANTED_ROWS ? p->limits.wanted : v->rows;
}

const kv_layer *vk_layer(const fak_program *p, uint32_t layer)
{
    for (uint32_t i = 0; i < p->layers; i++)
        if (p->layer[i].layer == layer) return &p->layer[i];
    return NULL;
}

/* ---- what fused ops hand on ---- */

static void widen(fak_program *p, enum temp temp, uint32_t cols, uint32_t rows)
{
    fak_value *v = &p->value[p->values + temp];
    if (cols > v->cols) v->cols = cols;
    if (!v->kind || rows == FAK_STEP_ROWS) v->rows = rows;
    v->kind = FAK_ACT;
}

/* Columns that one pass of ARGMAX looks through at the same time. */
uint32_t vk_best_count(const fak_program *p, uint32_t cols)
{
    uint32_t most = p->d->opt.rows ? CPU_BEST : BEST_MOST;
    return cols < most ? cols : most;
}

void vk_size_temps(fak_program *p)
{
    for (uint32_t i = 0; i < p->ops; i++) {
        const fak_op *o = &p->op[i];
        const fak_value *x = &p->value[o->in[0]], *w = &p->value[o->in[2]];
        if (!p->taken[i]) continue;
        if (o->id == FAK_OP_NORM_MATMUL || o->id == FAK_OP_NORM_MATMUL_GLU || o->id == FAK_OP_FFN)
            widen(p, TEMP_NORMED, x->cols, x->rows);
        if (o->id == FAK_OP_FFN) widen(p, TEMP_HIDDEN, w->rows, x->rows);
        if (o->id == FAK_OP_GLU_MATMUL_ADD) widen(p, TEMP_HIDDEN, x->cols, x->rows);
        if (o->id == FAK_OP_MATMUL_ARGMAX) widen(p, TEMP_LOGITS, p->value[o->in[1]].rows, x->rows);
        if (o->id == FAK_OP_ARGMAX) widen(p, TEMP_BEST, 2 * vk_best_count(p, x->cols), x->rows);
        if (o->id == FAK_OP_MATMUL_ARGMAX)
            widen(p, TEMP_BEST, 2 * vk_best_count(p, p->value[o->in[1]].rows), x->rows);
    }
}

/* ---- values ---- */

typedef struct life {
    uint32_t from, to;
    uint64_t bytes;
} life; /* ops; bytes 0: nowhere */

static void find_lives(const fak_program *p, life *of)
{
    for (uint32_t v = 0; v < p->values; v++) of[v] = (life){.from = UINT32_MAX};
    for (uint32_t i = 0; i < p->ops; i++)
        for (uint32_t j = 0; j < INPUTS + OUTPUTS; j++) {
            uint32_t v = j < INPUTS ? p->op[i].in[j] : p->op[i].out[j - INPUTS];
            if (!v || p->value[v].kind < FAK_ACT) continue;
            if (of[v].from > i) of[v].from = i;
            of[v].to = p->value[v].kind == FAK_OUT ? p->ops : i;
            if (p->taken[i]) of[v].bytes = 1;
        }
    if (p->argmax) of[p->argmax].from = 0; /* the next step may read it */
    for (uint32_t v = p->values; v < p->values + TEMPS; v++)
        of[v] = (life){0, p->ops, p->value[v].kind};
    for (uint32_t v = 0; v < p->values + TEMPS; v++) {
        uint64_t bytes = vk_rows_max(p, &p->value[v]) * 4ull * p->value[v].cols;
        if (of[v].bytes) of[v].bytes = (bytes + p->d->align - 1) / p->d->align * p->d->align;
    }
}

static int overlap(const life *a, const life *b)
{
    return a->bytes && b->bytes && a->from <= b->to && b->from <= a->to;
}

/* The lowest place for each value that no value of the same time has; the bytes of all. */
static uint64_t place_values(fak_program *p, const life *of)
{
    uint64_t all = 0;
    for (uint32_t v = 0; v < p->values + TEMPS; v++) {
        uint64_t at = p->flags & FAK_KEEP_ALL ? all : 0;
        p->at[v] = (place){0, 0, of[v].bytes};
        if (!of[v].bytes) continue;
        for (uint32_t u = 0; !(p->flags & FAK_KEEP_ALL) && u < v; u++) {
            const place *there = &p->at[u];
            if (!overlap(&of[u], &of[v])) continue;
            if (there->at >= at + of[v].bytes || there->at + there->bytes <= at) continue;
            at = there->at + there->bytes;
            u = UINT32_MAX; /* it may now lie over an earlier one */
        }
        p->at[v].at = at;
        if (at + of[v].bytes > all) all = at + of[v].bytes;
    }
    return all;
}

/* ---- kv ---- */

static uint64_t kv_bytes(const fak_program *p, kv_layer *l)
{
    uint64_t cells = (uint64_t)p->pages.count * PAGE * l->cols;
    uint64_t half = cells * vk_element_bytes(p->limits.kv_dtype);
    l->values = (uint32_t)(half / 4);
    l->raw = p->flags & FAK_EVICTABLE ? 2 * l->values : 0;
    return 2 * half + (l->raw ? 4 * cells : 0);
}

static void place_kv(fak_program *p)
{
    uint64_t before = vk_store_bytes(&p->store);
    uint32_t operand[3];
    p->layers = 0;
    p->pages.count = vk_pages_of(p->limits.kv_tokens);
    p->pages.slot_pages = vk_pages_of(p->limits.context);
    for (uint32_t i = 0; i < p->ops; i++) {
        const fak_op *o = &p->op[i];
        if (!p->taken[i] || !vk_appends(o, operand)) continue;
        kv_layer *l = &p->layer[p->layers++];
        *l = (kv_layer){.layer = o->layer,
                        .kv_heads = o->kv_heads,
                        .head_dim = o->head_dim,
                        .rot_dim = o->rot_dim,
                        .table = operand[2],
                        .cols = o->kv_heads * o->head_dim};
        uint64_t bytes = kv_bytes(p, l);
        if (bytes > p->piece_used) p->piece_used = bytes;
        l->at = vk_lay(&p->store, p->d, bytes);
        if (l->cols > p->widest) p->widest = l->cols;
    }
    p->kv_bytes = vk_store_bytes(&p->store) - before;
}

/* ---- steps ---- */

static step_words words_of(uint32_t rows, uint32_t wanted, uint32_t pages, uint32_t copies)
{
    step_words w = {.row = GRID_WORD + GRIDS * 4};
    w.wanted = w.row + rows * 4;
    w.page = w.wanted + wanted;
    w.copy = w.page + pages;
    w.all = (w.copy + 2 * copies + 3) / 4 * 4;
    return w;
}

static void place_steps(fak_program *p)
{
    const fak_limits *l = &p->limits;
    uint64_t pages = p->layers ? (uint64_t)l->spans * p->pages.slot_pages : 0;
    p->words = words_of(l->rows, l->wanted, (uint32_t)pages, 0);
    p->step = vk_lay(&p->store, p->d, p->words.all * 4ull);
    if (!p->layers) return;
    p->side_rows = p->flags & FAK_EVICTABLE ? EVICT_ROWS : 0;
    p->side_copies = COPIES;
    p->side_words = words_of(p->side_rows, 0, p->side_rows ? 2 * p->pages.slot_pages : 0, COPIES);
    p->side = vk_lay(&p->store, p->d, p->side_words.all * 4ull);
    p->survivors = vk_lay(&p->store, p->d, 2ull * p->side_rows * p->widest * 4);
}

/* ---- all of it ---- */

place vk_span(const fak_program *p, const uint32_t *value, uint32_t n)
{
    place all = {p->arena.block, UINT64_MAX, 0};
    uint64_t end = 0;
    for (uint32_t i = 0; i < n; i++) {
        const place *v = &p->at[value[i]];
        if (!v->bytes) continue;
        if (v->at < all.at) all.at = v->at;
        if (v->at + v->bytes > end) end = v->at + v->bytes;
    }
    all.bytes = end > all.at ? end - all.at : 0;
    return all;
}

/* The most that a kernel must see at once of values. */
static uint64_t widest_span(const fak_program *p)
{
    uint64_t most = 0;
    for (uint32_t v = 0; v < p->values + TEMPS; v++)
        if (p->at[v].bytes > most) most = p->at[v].bytes;
    for (uint32_t i = 0; i < p->ops; i++) {
        const fak_op *o = &p->op[i];
        uint32_t append[4] = {o->in[0], o->in[1], 0, 0}, *all = append;
        if (!p->taken[i]) continue;
        if (o->id == FAK_OP_ROPE_APPEND)
            append[2] = o->in[2], append[3] = o->out[0];
        else if (o->id == FAK_OP_NORM_MATMUL)
            memcpy(append, o->out, sizeof o->out);
        else if (o->id != FAK_OP_KV_APPEND)
            continue;
        uint64_t bytes = vk_span(p, all, 4).bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

int32_t vk_lay_out(fak_program *p)
{
    life *of = calloc(p->values + TEMPS, sizeof *of);
    if (!of) return FAK_E_MEMORY;
    p->store = (store){0};
    p->piece_used = 0;
    p->widest = 0;
    place_kv(p);
    find_lives(p, of);
    p->arena = vk_lay(&p->store, p->d, place_values(p, of));
    for (uint32_t v = 0; v < p->values + TEMPS; v++) {
        p->at[v].block = p->arena.block;
        p->at[v].at += p->arena.at;
    }
    place_steps(p);
    uint64_t span = widest_span(p);
    if (span > p->piece_used) p->piece_used = span;
    free(of);
    return FAK_OK;
}
