/* rig_load - see rig.h: what is lent, and the row source, which looks at what is done with it. */
#include "rig.h"

#include "port.h"

#include <stdlib.h>
#include <string.h>

enum { SPOILED = 0xff };

/* ---- what is lent ---- */

typedef struct rig_lent {
    struct rig_lent *next;
    uint64_t bytes;
    uint64_t borrowed; /* by load: taken back when it is over */
    uint64_t data[];   /* aligned for any weight */
} rig_lent;

void *rig_lend(rig *r, uint64_t bytes)
{
    rig_lent *l = port_alloc(sizeof *l + bytes);
    if (!l) return NULL;
    *l = (rig_lent){.next = r->lent, .bytes = bytes};
    r->lent = l;
    return l->data;
}

static rig_lent *lent_of(void *data)
{
    return (rig_lent *)(void *)((char *)data - offsetof(rig_lent, data));
}

void rig_take_back(void *lent)
{
    if (lent) memset(lent, SPOILED, (size_t)lent_of(lent)->bytes);
}

void rig_free_lent(rig *r)
{
    for (rig_lent *l = r->lent, *next; l; l = next) {
        next = l->next;
        free(l);
    }
    r->lent = NULL;
}

/* ---- load ---- */

typedef struct source { /* the row source, which looks at what is done with it */
    weights_source inner;
    fak_source api;
    rig *r;
} source;

static int32_t read_rows(void *self, uint32_t value, uint32_t form, uint32_t first, uint32_t rows,
                         void *dst, uint64_t dst_bytes, fak_error *e)
{
    source *s = self;
    if (++s->r->reads == (uint64_t)s->r->fail_read) {
        s->r->read_failed = 1;
        return status_set(e, FAK_E_CANCELLED, "the row source fails, to see what comes of it");
    }
    return s->api.read(&s->inner, value, form, first, rows, dst, dst_bytes, e);
}

static const void *borrow(void *self, uint32_t value)
{
    source *s = self;
    if (++s->r->reads == (uint64_t)s->r->fail_read) return NULL;
    const void *from = s->api.borrow(&s->inner, value);
    const weight *w = &s->r->toy.m.weights.at[s->r->plan.weight[value]];
    uint64_t bytes = weights_bytes(w);
    if (!from || s->r->lend) return from;
    void *copy = rig_lend(s->r, bytes);
    if (!copy) return NULL;
    lent_of(copy)->borrowed = 1;
    return memcpy(copy, from, (size_t)bytes);
}

static void take_back_borrowed(rig *r)
{
    for (rig_lent *l = r->lent; l; l = l->next)
        if (l->borrowed) rig_take_back(l->data);
}

int32_t rig_load(rig *r, fak_error *e)
{
    source s = {.inner = {.table = &r->toy.m.weights,
                          .index = r->plan.weight,
                          .values = r->plan.block->values.count},
                .r = r};
    fak_source lent = {sizeof lent, r->lend ? FAK_STABLE : 0, &s, read_rows, borrow};
    uint32_t id[RIG_WEIGHTS], n = 0;
    for (uint32_t v = 1; v < r->draft.values; v++)
        if (r->draft.weight[v] != FAK_NO_INDEX) id[n++] = v;
    int32_t rc = weights_source_open(&s.inner, &s.api, e);
    *e = (fak_error){.index = FAK_NO_INDEX};
    float_mode mode;
    float_mode_save(&mode);
    if (!rc)
        rc = device_after(r->dev, r->dev->api.load(r->handle, id, n, &lent, e), &mode, "load", e);
    weights_source_close(&s.inner);
    if (!r->lend) take_back_borrowed(r);
    return rc;
}
