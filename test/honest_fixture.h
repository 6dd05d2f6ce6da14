/* honest_fixture - an engine on the honest device, seen through the ABI. */
#ifndef HONEST_FIXTURE_H
#define HONEST_FIXTURE_H
#include "engine.h"

enum { KV_PAGE = 16, PAGES = 16 };

/* Room for every slot in whole pages, and a few to spare. */
static inline fak_limits paged(uint32_t act)
{
    fak_limits l = engine_limits(act, FAK_F32);
    l.kv_tokens = PAGES * KV_PAGE;
    return l;
}

static inline fak_stats stats_of(const engine *g)
{
    const device *d = &g->backend.dev;
    const fak_stats_ext *theirs = d->api.get_ext(d->handle, "fak.stats/1");
    fak_stats_ext ext;
    fak_stats s = {.struct_size = sizeof s};
    assert_non_null(theirs);
    fak_take(&ext, sizeof ext, theirs);
    ext.get(d->handle, &s);
    return s;
}

static inline fak_program *handle(const engine *g)
{
    return g->program.handle[SIDE_DEVICE];
}

static inline const fak_backend *api(const engine *g)
{
    return &g->backend.dev.api;
}
#endif
