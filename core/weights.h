/* weights - the row source: a model's weights by index, served row by row in any form.
 * Bytes that need no change are lent from the mapped file; all others are made row by row, so that
 * no second copy of a tensor exists here.  A file of the other byte order is turned here too, a row at
 * a time, and lends nothing: opening it stays cheap and callers see the host's order.
 * Read-only once filled: any thread may serve. */
#ifndef WEIGHTS_H
#define WEIGHTS_H
#include "dtype.h"
#include "gguf.h"

typedef struct weight {
    char name[64];             /* as in the file */
    uint32_t dtype;            /* what backends see: the file's, or what it is converted to */
    uint32_t rows, cols;
    uint32_t head_dim, rot_dim; /* rot_dim > 0: rows of each head come interleaved (GGUF llama q, k)
                                  and are served as rotate-half: see weights_source_row */
    const gguf_tensor *tensor; /* NULL for what the core made: */
    const float *made;         /* F32 [rows, cols], the table's own */
} weight;

typedef struct weights {       /* zero-initialise */
    weight *at;
    uint32_t count, room;
    int unverified;            /* do not look for block scales that are no finite numbers */
} weights;

/* Appends *w; its index is count before.  Takes w->made over, also when it fails. */
int32_t weights_add(weights *table, const weight *w, fak_error *e);
void weights_free(weights *table); /* a zero table is fine */

/* Row r of what is served is row weights_source_row(w, r) of the tensor:
 * in a head, half j, pair i < rot/2 lies at 2i + j. */
uint32_t weights_source_row(const weight *w, uint32_t r);

/* Is it served from where it lies in the file, without memory of its own? */
int weights_lendable(const weight *w);
uint64_t weights_bytes(const weight *w); /* of all rows, NATIVE */

typedef int32_t weights_progress(void *self, uint64_t done_bytes); /* not 0: cancel */

typedef struct weights_source { /* what fak_source.self points to */
    const weights *table;
    const uint32_t *index;      /* [values] weight of a value, FAK_NO_INDEX for others */
    uint32_t values;
    weights_progress *progress; /* may be NULL */
    void *progress_self;
    uint64_t done_bytes;        /* NATIVE bytes served or lent so far */
    void *row;                  /* one row, native and F32: made by open */
    float *f32;
} weights_source;

/* Fills *api so that backends can pull; close frees what open took.  A row of blocks whose scales are no
 * finite numbers answers STATUS_BAD_FILE, with tensor and block, unless table->unverified. */
int32_t weights_source_open(weights_source *s, fak_source *api, fak_error *e);
void weights_source_close(weights_source *s);
#endif
