/* layout - where values, kv and steps lie, and what all of it takes. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

enum { EVICT_ROWS = 64, BEST_MOST = 1024, CPU_BEST = 64 };

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

/* Words that a row of an op's products takes in Q8: ten a block. */
static uint32_t codes_of(const fak_program *p, const fak_op *o)
{
    uint32_t first, n = o->id == FAK_OP_EMBED || !p->q8 ? 0 : fak_matrices(o, &first), most = 0;
    for (uint32_t i = 0; i < n; i++) {
        const fak_value *w = &p->value[o->in[first + i]];
        if (vk_format(w->dtype)->cols > 1 && w->cols > most) most = w->cols;
    }
    return most / 32 * 10;
}

void vk_size_temps(fak_program *p)
{
    for (uint32_t i = 0; i < p->ops; i++) {
        const fak_op *o = &p->op[i];
        const fak_value *x = &p->value[o->in[0]], *w = &p->value[o->in[2]];
        if (!p->taken[i]) continue;
        if (codes_of(p, o)) widen(p, TEMP_CODES, codes_of(p, o), x->rows);
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

/* In pieces the order of a sum is that of pages, which follow from what came before; the contract's order
 * wants all scores at once. */
static int must_be_whole(const fak_program *p)
{
    const uint32_t promised = FAK_DETERMINISTIC | FAK_BATCH_INVARIANT;
    return p->d->opt.exact || (p->limits.numerics & promised) != 0;
}

/* As few pieces as can be seen one at a time; when that takes too many, the report says so. */
static void place_layer(fak_program *p, kv_layer *l)
{
    uint64_t page = 4ull * (2 * l->page_words + (l->keeps_raw ? PAGE * l->cols : 0));
    uint64_t most = p->d->opt.piece < p->d->piece_max ? p->d->opt.piece : p->d->piece_max;
    uint32_t count = p->pages.count, least = (count + KV_PIECES - 1) / KV_PIECES;
    uint32_t each = most / page < count ? (uint32_t)(most / page) : count;
    if (each < least) each = least;
    if (must_be_whole(p)) each = count;
    l->piece_pages = each;
    for (uint32_t first = 0; first < count; first += each) {
        uint64_t bytes = page * (count - first < each ? count - first : each);
        if (bytes > p->piece_used) p->piece_used = bytes;
        l->piece[l->pieces++] = vk_lay(&p->store, p->d, bytes);
    }
    if (l->pieces > 1) p->state_heads = p->heads_most;
}

static void place_kv(fak_program *p)
{
    uint64_t before = vk_store_bytes(&p->store);
    uint32_t operand[3];
    p->layers = p->heads_most = p->state_heads = 0;
    p->pages.count = vk_pages_of(p->limits.kv_tokens);
    p->pages.slot_pages = vk_pages_of(p->limits.context);
    for (uint32_t i = 0; i < p->ops; i++)
        if (p->op[i].heads > p->heads_most) p->heads_most = p->op[i].heads;
    for (uint32_t i = 0; i < p->ops; i++) {
        const fak_op *o = &p->op[i];
        if (!p->taken[i] || !fak_appends(o, operand)) continue;
        kv_layer *l = &p->layer[p->layers++];
        *l = (kv_layer){.layer = o->layer,
                        .kv_heads = o->kv_heads,
                        .head_dim = o->head_dim,
                        .rot_dim = o->rot_dim,
                        .table = operand[2],
                        .cols = o->kv_heads * o->head_dim,
                        .keeps_raw = (p->flags & FAK_EVICTABLE) != 0};
        l->page_words = PAGE * l->cols * vk_element_bytes(p->limits.kv_dtype) / 4;
        place_layer(p, l);
        if (l->cols > p->widest) p->widest = l->cols;
    }
    p->kv_bytes = vk_store_bytes(&p->store) - before;
}

/* ---- steps ---- */

static step_words words_of(uint32_t rows, uint32_t wanted, uint32_t pages, uint32_t states)
{
    step_words w = {.row = GRID_WORD + GRIDS * 4};
    w.wanted = w.row + rows * 4;
    w.page = w.wanted + wanted;
    w.state = (w.page + pages + 3) / 4 * 4;
    w.all = w.state + 2 * states;
    return w;
}

static void place_steps(fak_program *p)
{
    const fak_limits *l = &p->limits;
    uint32_t pages = p->layers ? l->spans * p->pages.slot_pages : 0;
    p->words = words_of(l->rows, l->wanted, pages, l->rows * p->state_heads);
    p->step = vk_lay(&p->store, p->d, p->words.all * 4ull);
    p->side_rows = p->layers && p->flags & FAK_EVICTABLE ? EVICT_ROWS : 0;
    if (!p->side_rows) return;
    p->side_words = words_of(p->side_rows, 0, 2 * p->pages.slot_pages, 0);
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
