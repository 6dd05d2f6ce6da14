/* kv - the calls on sequences. */
#include "cuda.h"

#include <inttypes.h>
#include <string.h>

static int32_t find_slot(fak_program *p, uint32_t slot, fak_error *e)
{
    int32_t s = gpu_lost(p->d->g, e);
    if (s) return s;
    if (p->kv.layers && slot < p->limits.slots) return FAK_OK;
    return cuda_fail(e, FAK_E_ARGUMENT, slot,
                     "slot %" PRIu32 " of %" PRIu32 ", with the kv of %" PRIu32 " layers", slot,
                     p->limits.slots, p->kv.layers);
}

int32_t cuda_kv_clone(fak_program *p, uint32_t to, uint32_t from, uint32_t len, fak_error *e)
{
    page_table *t = &p->kv.now;
    int32_t s = find_slot(p, to > from ? to : from, e);
    if (s) return s;
    if (to == from || len > t->length[from])
        return cuda_fail(e, FAK_E_ARGUMENT, to,
                         "slot %" PRIu32 " as the first %" PRIu32 " positions of slot %" PRIu32
                         ", which has %" PRIu32,
                         to, len, from, t->length[from]);
    for (uint32_t i = 0; i < cuda_pages(len); i++) t->refs[*cuda_page_at(p, from, i)]++;
    cuda_shorten(p, to, 0);
    memcpy(cuda_page_at(p, to, 0), cuda_page_at(p, from, 0), p->kv.slot_pages * 4ul);
    t->length[to] = len;
    return FAK_OK;
}

int32_t cuda_kv_trim(fak_program *p, uint32_t slot, uint32_t len, fak_error *e)
{
    int32_t s = find_slot(p, slot, e);
    if (!s) cuda_shorten(p, slot, len);
    return s;
}

/* ---- eviction ---- */

/* Every layer: later positions come down, read by the old table and written by the new one. */
static int32_t move_down(fak_program *p, uint32_t first, uint32_t count, uint32_t end, fak_error *e)
{
    int32_t s = FAK_OK;
    uint32_t operand[3];
    for (uint32_t i = 0; !s && i < p->ops; i++) {
        const fak_op *o = &p->op[i];
        if (!p->taken[i] || !fak_appends(o, operand)) continue;
        evict_args a = {.pages = p->table,
                        .tab = p->at[operand[2]],
                        .kv = cuda_kv_of(p, o->layer),
                        .slot_pages = p->kv.slot_pages,
                        .first = first,
                        .count = count,
                        .end = end,
                        .rot = o->rot_dim};
        gpu_grid grid = {p->kv.heads, 1, 1, KV_PAGE * p->kv.dim * 4};
        s = gpu_launch(p->d->g, KERNEL_kv_evict, grid, &a, e);
    }
    return s;
}

static int32_t send_table(fak_program *p, const page_table *t, uint32_t slot, uint32_t number,
                          fak_error *e)
{
    uint64_t bytes = p->kv.slot_pages * 4ull;
    return cuda_up(p, p->table + number * bytes, &t->page[(size_t)slot * p->kv.slot_pages], bytes,
                   e);
}

int32_t cuda_kv_evict(fak_program *p, uint32_t slot, uint32_t first, uint32_t len, fak_error *e)
{
    int32_t s = find_slot(p, slot, e);
    if (s) return s;
    uint32_t had = p->kv.now.length[slot], end = had - len;
    if (!(p->flags & FAK_EVICTABLE) || first > had || len > had - first)
        return cuda_fail(e, FAK_E_ARGUMENT, slot,
                         "evicts [%" PRIu32 ", +%" PRIu32 ") of %" PRIu32 ", or without raw keys",
                         first, len, had);
    cuda_remember(p);
    if (first < end && cuda_own(p, slot, first, end)) return cuda_undo(p, slot, slot, e);
    s = cuda_send_copies(p, e); /* what stays of the first page, and more than is needed */
    if (!s && len && first < end) {
        s = send_table(p, &p->kv.before, slot, 0, e);
        if (!s) s = send_table(p, &p->kv.now, slot, 1, e);
        if (!s) s = move_down(p, first, len, end, e);
    }
    cuda_shorten(p, slot, end);
    return s;
}

/* ---- rows ---- */

static int32_t find_rows(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first,
                         uint32_t len, fak_error *e)
{
    int32_t s = find_slot(p, slot, e);
    if (s) return s;
    if (layer < p->layers && p->layer_at[layer] != FAK_NO_INDEX && first <= p->limits.context &&
        len <= p->limits.context - first)
        return FAK_OK;
    return cuda_fail(e, FAK_E_ARGUMENT, slot,
                     "layer %" PRIu32 ", positions [%" PRIu32 ", +%" PRIu32 ") are not here", layer,
                     first, len);
}

/* The rows of positions first.. between the pages and p->move: k, then v. */
static int32_t move_rows(fak_program *p, enum gpu_kernel k, uint32_t layer, uint32_t first,
                         uint32_t rows, fak_error *e)
{
    uint32_t cols = p->kv.heads * p->kv.dim;
    move_args a = {.pages = p->table,
                   .k = p->move,
                   .v = p->move + p->size.move,
                   .kv = cuda_kv_of(p, layer),
                   .first = first,
                   .len = rows};
    gpu_grid grid = {(cols + THREADS - 1) / THREADS, rows, 1, 0};
    return gpu_launch(p->d->g, k, grid, &a, e);
}

int32_t cuda_kv_read(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                     void *k, void *v, uint64_t *ticket, fak_error *e)
{
    uint64_t row = p->kv.heads * p->kv.dim * 4ull;
    int32_t s = find_rows(p, slot, layer, first, len, e);
    if (!s) s = send_table(p, &p->kv.now, slot, 0, e);
    for (uint32_t at = 0, n; !s && at < len; at += n) {
        n = len - at < MOVE_ROWS ? len - at : MOVE_ROWS;
        s = move_rows(p, KERNEL_kv_get, layer, first + at, n, e);
        if (!s) s = cuda_down(p, p->move, (char *)k + at * row, n * row, e);
        if (!s) s = cuda_down(p, p->move + p->size.move, (char *)v + at * row, n * row, e);
    }
    *ticket = p->tickets;
    return s;
}

int32_t cuda_kv_write(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                      const void *k, const void *v, fak_error *e)
{
    uint64_t row = p->kv.heads * p->kv.dim * 4ull;
    int32_t s = find_rows(p, slot, layer, first, len, e);
    if (s) return s;
    cuda_remember(p);
    if (cuda_own(p, slot, first, first + len)) return cuda_undo(p, slot, slot, e);
    s = cuda_send_copies(p, e);
    if (!s) s = send_table(p, &p->kv.now, slot, 0, e);
    for (uint32_t at = 0, n; !s && at < len; at += n) {
        n = len - at < MOVE_ROWS ? len - at : MOVE_ROWS;
        s = cuda_up(p, p->move, (const char *)k + at * row, n * row, e);
        if (!s) s = cuda_up(p, p->move + p->size.move, (const char *)v + at * row, n * row, e);
        if (!s) s = move_rows(p, KERNEL_kv_put, layer, first + at, n, e);
    }
    return s;
}
