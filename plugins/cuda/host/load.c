/* load - weights from the row source to the card, through pinned memory, a piece at a time. */
#include "cuda.h"

#include <inttypes.h>
#include <stdlib.h>

enum { PIECE = 4 << 20 };

typedef struct loader {
    fak_program *p;
    fak_source source;
    void *raw, *cut; /* raw: rows as they are in the file; cut: pinned */
    uint64_t raw_bytes, done, of;
} loader;

static uint64_t row_bytes(const fak_value *v)
{
    const format *f = format_of(v->dtype);
    return v->cols / f->block * (uint64_t)f->native;
}

/* Memory of ours is pinned and goes up as it is; the copy is over when it returns. */
static int32_t send(loader *l, gpu_ptr to, const void *from, uint64_t bytes, fak_error *e)
{
    int32_t s = gpu_up(l->p->d->g, to, from, bytes, e);
    return s ? s : gpu_sync(l->p->d->g, e);
}

static int32_t load_rows(loader *l, uint32_t id, uint32_t first, uint32_t rows, fak_error *e)
{
    const fak_value *v = &l->p->value[id];
    const format *f = format_of(v->dtype);
    const weight *w = cuda_weight(l->p->weights, id);
    uint64_t bytes = rows * row_bytes(v), each = v->cols / f->block, blocks = rows * each;
    uint8_t *codes = l->cut, *scales = codes + blocks * f->codes;
    void *into = f->scales ? l->raw : l->cut;
    int32_t s = l->source.read(l->source.self, id, FAK_NATIVE, first, rows, into, bytes, e);
    if (s) return s;
    if (f->scales) format_cut(f, l->raw, blocks, codes, scales);
    s = send(l, w->codes + first * each * f->codes, codes, blocks * f->codes, e);
    if (!s && f->scales)
        s = send(l, w->scales + first * each * f->scales, scales, blocks * f->scales, e);
    gpu_count_bytes(l->p->d->g, bytes, 0);
    l->done += bytes;
    return s;
}

static int32_t load_value(loader *l, uint32_t id, fak_error *e)
{
    const fak_value *v = &l->p->value[id];
    uint32_t most = (uint32_t)(l->raw_bytes / row_bytes(v));
    for (uint32_t first = 0, n; first < v->rows; first += n) {
        n = v->rows - first < most ? v->rows - first : most;
        int32_t s = load_rows(l, id, first, n, e);
        if (s) return s;
        if (cuda_host->progress &&
            cuda_host->progress(cuda_host->self, "loading", l->done, l->of) < 0)
            return cuda_fail(e, FAK_E_CANCELLED, FAK_NO_INDEX,
                             "cancelled after %" PRIu64 " of %" PRIu64 " bytes", l->done, l->of);
    }
    return FAK_OK;
}

int32_t cuda_load(fak_program *p, const uint32_t *value, uint32_t values, const fak_source *theirs,
                  fak_error *e)
{
    loader l = {.p = p, .raw_bytes = 64};
    int32_t s = gpu_lost(p->d->g, e);
    if (s) return s;
    fak_take(&l.source, sizeof l.source, theirs);
    for (uint32_t i = 0; i < values; i++) {
        if (value[i] >= p->values || !cuda_weight(p->weights, value[i]))
            return cuda_fail(e, FAK_E_ARGUMENT, value[i],
                             "load of value %" PRIu32 ", which is no weight here", value[i]);
        const fak_value *v = &p->value[value[i]];
        uint64_t row = row_bytes(v), all = row * v->rows, piece = all < PIECE ? all : PIECE;
        if (row > piece) piece = row;
        if (piece > l.raw_bytes) l.raw_bytes = piece;
        l.of += all;
    }
    l.raw = malloc(l.raw_bytes);
    if (!l.raw)
        s = cuda_fail(e, FAK_E_MEMORY, FAK_NO_INDEX,
                      "no %" PRIu64 " bytes of host memory to load through", l.raw_bytes);
    if (!s) s = gpu_pin(p->d->g, l.raw_bytes, &l.cut, e);
    for (uint32_t i = 0; !s && i < values; i++) {
        weight *w = cuda_weight(p->weights, value[i]);
        if (!w->loaded) s = load_value(&l, value[i], e);
        w->loaded |= !s;
    }
    gpu_unpin(p->d->g, l.cut);
    free(l.raw);
    return s;
}

int32_t cuda_unload(fak_program *p, const uint32_t *value, uint32_t values, fak_error *e)
{
    for (uint32_t i = 0; i < values; i++) {
        weight *w = value[i] < p->values ? cuda_weight(p->weights, value[i]) : NULL;
        if (w) w->loaded = 0;
    }
    return gpu_lost(p->d->g, e);
}
