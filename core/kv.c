/* kv - see kv.h. */
#include "kv.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

int32_t kv_open(kv *k, program *p, fak_error *e)
{
    *k = (kv){.p = p, .slots = p->limits.slots, .context = p->limits.context};
    k->length = calloc(k->slots, sizeof *k->length);
    k->used = calloc(k->slots, 1);
    return k->length && k->used ? FAK_OK : status_memory(e, "the kv slots", k->slots * 5ull);
}

void kv_close(kv *k)
{
    free(k->length);
    free(k->used);
    *k = (kv){0};
}

int32_t kv_take(kv *k, uint32_t *slot, fak_error *e)
{
    for (uint32_t i = 0; i < k->slots; i++) {
        if (k->used[i]) continue;
        k->used[i] = 1;
        k->length[i] = 0;
        *slot = i;
        return FAK_OK;
    }
    return status_set(e, FAK_E_KV_FULL, "all %" PRIu32 " sequences are in use", k->slots);
}

/* Gives the room beyond length back, on every side that holds kv; the first failure is told. */
static int32_t trim(kv *k, uint32_t slot, uint32_t length, fak_error *e)
{
    int32_t s = FAK_OK;
    for (uint32_t side = 0; side < SIDES; side++) {
        const device *d = k->p->side[side];
        fak_error later, *told = s ? &later : e;
        if (!k->p->holds_kv[side] || !d->api.kv_trim) continue;
        *told = (fak_error){.index = FAK_NO_INDEX};
        int32_t rc = device_answer(d, d->api.kv_trim(k->p->handle[side], slot, length, told),
                                   "kv_trim", told);
        if (!s) s = rc;
    }
    return s;
}

int32_t kv_give(kv *k, uint32_t slot, fak_error *e)
{
    assert(slot < k->slots && k->used[slot]);
    k->used[slot] = 0;
    return trim(k, slot, 0, e);
}

void kv_extend(kv *k, uint32_t slot, uint32_t rows)
{
    assert(k->used[slot] && rows <= k->context - k->length[slot]);
    k->length[slot] += rows;
}

void kv_truncate(kv *k, uint32_t slot, uint32_t length)
{
    fak_error e; /* a failure costs no more than room */
    assert(k->used[slot] && length <= k->length[slot]);
    trim(k, slot, length, &e);
    k->length[slot] = length;
}

int32_t kv_clone(kv *k, uint32_t from, uint32_t length, uint32_t *slot, fak_error *e)
{
    assert(k->used[from] && length <= k->length[from]);
    int32_t s = kv_take(k, slot, e);
    if (s) return s;
    *e = (fak_error){.index = FAK_NO_INDEX};
    for (uint32_t side = 0; !s && side < SIDES; side++) {
        const device *d = k->p->side[side];
        if (!k->p->holds_kv[side]) continue;
        if (!d->api.kv_clone)
            s = status_set(e, FAK_E_UNSUPPORTED, "backend %s cannot clone a sequence",
                           d->from->name);
        else
            s = device_answer(d, d->api.kv_clone(k->p->handle[side], *slot, from, length, e),
                              "kv_clone", e);
    }
    fak_error ignored;
    if (s) trim(k, *slot, 0, &ignored);
    k->used[*slot] = !s;
    k->length[*slot] = s ? 0 : length;
    return s;
}

int32_t kv_evict(kv *k, uint32_t slot, uint32_t first, uint32_t count, fak_error *e)
{
    int32_t s = FAK_OK;
    assert(k->used[slot] && first <= k->length[slot] && count <= k->length[slot] - first);
    for (uint32_t side = 0; side < SIDES; side++)
        if (k->p->holds_kv[side] && !k->p->side[side]->api.kv_evict)
            return status_set(e, FAK_E_UNSUPPORTED, "backend %s cannot evict from a sequence",
                              k->p->side[side]->from->name);
    *e = (fak_error){.index = FAK_NO_INDEX};
    for (uint32_t side = 0; !s && side < SIDES; side++) {
        const device *d = k->p->side[side];
        if (k->p->holds_kv[side])
            s = device_answer(d, d->api.kv_evict(k->p->handle[side], slot, first, count, e),
                              "kv_evict", e);
    }
    if (!s) k->length[slot] -= count;
    return s;
}
