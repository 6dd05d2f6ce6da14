/* memory - the device's own: one block, handed out in pieces; what is handed out or given back holds
 * NaNs, so that nothing can live on what lay there before. */
#include "honest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

uint64_t honest_align(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* The index of the first piece behind a gap of `bytes`, and where the gap begins; 0 for no gap. */
static uint64_t find_gap(const fak_device *d, uint64_t bytes, uint32_t *before)
{
    uint64_t at = ALIGN; /* 0 is nowhere */
    for (*before = 0; *before < d->pieces; ++*before) {
        if (d->piece[*before].at - at >= bytes) return at;
        at = d->piece[*before].at + d->piece[*before].bytes;
    }
    return d->memory + ALIGN - at >= bytes ? at : 0;
}

uint64_t honest_take(fak_device *d, uint64_t bytes, const char *what, fak_error *e)
{
    uint32_t before;
    int refused = ++d->attempts == d->fail_alloc;
    bytes = honest_align(bytes);
    if (d->pieces == d->room) {
        piece *wider = realloc(d->piece, (d->room * 2ul + 16) * sizeof *wider);
        if (!wider) {
            honest_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for the device's %s", what);
            return 0;
        }
        d->piece = wider;
        d->room = d->room * 2 + 16;
    }
    uint64_t at = refused ? 0 : find_gap(d, bytes, &before);
    if (!at) {
        honest_fail(e, FAK_E_MEMORY, FAK_NO_INDEX,
                    "%s take %" PRIu64 " bytes of device memory; %" PRIu64 " of %" PRIu64
                    " are free",
                    what, bytes, refused ? 0 : d->memory - d->used, d->memory);
        return 0;
    }
    memmove(d->piece + before + 1, d->piece + before, (d->pieces - before) * sizeof *d->piece);
    d->piece[before] = (piece){at, bytes};
    d->pieces++;
    d->used += bytes;
    memset(d->block + at, POISON, bytes);
    pthread_mutex_lock(&d->lock);
    d->stats.allocations++;
    pthread_mutex_unlock(&d->lock);
    return at;
}

void honest_give(fak_device *d, uint64_t at)
{
    uint32_t i = 0;
    if (!at) return;
    while (d->piece[i].at != at) i++;
    d->used -= d->piece[i].bytes;
    memset(d->block + at, POISON, d->piece[i].bytes);
    memmove(d->piece + i, d->piece + i + 1, (--d->pieces - i) * sizeof *d->piece);
}
