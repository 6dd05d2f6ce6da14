/* cuda - what the files of the host side share.  A program is a plan, places on the card for all that its
 * taken ops touch, and a graph of kernels for each range of them. */
#ifndef CUDA_H
#define CUDA_H
#include "gpu.h"

#include <pthread.h>

enum { INPUTS = 8, OUTPUTS = 3, BUCKETS = 8, READS = 16, EXTRA_SLOTS = 6, MOVE_ROWS = 64 };

/* ---- formats of weights ---- */

typedef struct format { /* in the order of FORMATS in kernels.def */
    uint32_t dtype, block;      /* weights of a block; 1: a plain dtype */
    uint32_t native, codes, scales; /* bytes of a block in the file, and in the planes it is cut into */
} format;
enum { F32_FORMAT = 0, PLAIN_FORMATS = 3, FORMATS = 8 };
const format *format_of(uint32_t dtype);    /* NULL: not kept */
uint32_t format_number(const format *f);
uint64_t format_codes(const format *f, const fak_value *v);  /* bytes of the planes */
uint64_t format_scales(const format *f, const fak_value *v);
/* Blocks as they are in the file to planes. */
void format_cut(const format *f, const uint8_t *blocks, uint64_t count, uint8_t *codes,
                uint8_t *scales);

/* ---- the device ---- */

struct fak_device {
    gpu *g;
    uint32_t exact, graph; /* options */
    fak_opened facts;
};
extern const fak_host *cuda_host; /* lives until shutdown */

/* ---- a program ---- */

typedef struct weight { gpu_ptr codes, scales; uint64_t codes_bytes, scales_bytes; int loaded; } weight;
typedef struct weight_set { /* of a program; borrowers keep it */
    uint32_t refs, count;
    weight *at; /* [count] by value id */
    struct weight_set *lender;
} weight_set;

typedef struct place { gpu_ptr at; uint64_t bytes; uint32_t until; } place; /* of values by turns */

enum temp { TEMP_NORMED, TEMP_HIDDEN, TEMP_LOGITS, TEMPS }; /* rows that a fused op hands on */

typedef struct sizes { /* bytes of device memory */
    uint64_t weights, acts, temp[TEMPS], codes, scales, partial, step, kv, raw, table, move;
} sizes;

typedef struct page_table { /* which pages a slot's positions lie in */
    uint32_t *length; /* [slots] */
    uint32_t *page;   /* [slots][slot_pages] */
    uint32_t *refs;   /* [pages] slots that hold it, 0 = free */
} page_table;

typedef struct range { /* taken ops that are run together */
    uint32_t first, ops, scope; /* enum scope; MIXED: no graphs */
    gpu_graph *graph[BUCKETS];
} range;
enum { MIXED = 2 };

typedef struct reading { /* on its way: to pinned memory, then to dst when it is told */
    char *dst;
    uint64_t at, bytes;
} reading;

typedef struct kv_store { /* all layers alike */
    uint32_t layers, heads, dim, rot, table; /* table: the value */
    uint32_t element, pages, slot_pages;     /* bytes of one; pages in all; most of a slot */
    gpu_ptr k, v, raw;
    page_table now, before;
    uint32_t *copy, copies; /* [2*copies] pages to be copied: from, to */
} kv_store;

typedef struct up_ring { /* pinned memory on its way to the card */
    char *base;
    uint64_t slot_bytes, next;
    uint32_t slots;
    gpu_event **event; /* [slots] recorded when the copy is under way */
} up_ring;

struct fak_program {
    fak_device *d;
    fak_limits limits;
    uint32_t flags, ops, values, layers, q8;
    fak_op *op;           /* [ops] */
    fak_value *value;     /* [values] */
    uint8_t *taken;       /* [ops] */
    uint32_t *layer_at;   /* [layers] its index among those whose kv is here, or FAK_NO_INDEX */
    uint32_t *place_of;   /* [values] 1 + its place, 0: none */
    place *places;        /* [places] */
    uint32_t place_count;
    gpu_ptr *at;          /* [values] rows of values */
    weight_set *weights;
    sizes size;
    gpu_ptr temp[TEMPS], step, partial, table, move;
    q8_rows q;            /* activations as Q8, of one value at a time */
    kv_store kv;
    range *ranges;        /* [range_count] */
    uint32_t range_count, bucket[2][BUCKETS], buckets[2]; /* by scope */
    /* the step */
    up_ring up;
    uint32_t rows[2];     /* by scope */
    uint32_t embeds, argmax, chained, begun; /* chained: rows whose ids the last step left */
    /* reads */
    char *down;
    uint64_t down_bytes, staged;
    gpu_event *event[READS];
    pthread_mutex_t lock; /* of what follows: wait is [any] */
    reading ring[READS];
    uint64_t tickets, told; /* handed out; done and copied out */
};

/* plan.c: what ops are and need */
int cuda_takes(const fak_program *p, const fak_op *o);
int cuda_is_weight(const fak_value *v);
uint32_t cuda_rows(const fak_program *p, uint32_t value); /* at most */
uint64_t cuda_temp(const fak_program *p, const fak_op *o, enum temp t); /* floats */
uint64_t cuda_quantised(const fak_program *p, const fak_op *o); /* elements that it has as Q8 */
uint64_t cuda_partial(const fak_program *p, const fak_op *o);   /* bytes of parts that a kernel merges */
uint32_t cuda_scope(const fak_program *p, const fak_op *o);

/* layout.c */
int32_t cuda_measure(fak_program *p, const weight_set *lender); /* FAK_E_MEMORY */
fak_report cuda_report(const fak_program *p);
void cuda_find_fit(fak_program *p, const weight_set *lender, uint64_t room, fak_report *r);
uint64_t cuda_device_bytes(const fak_program *p);
weight *cuda_weight(const weight_set *w, uint32_t value); /* its own or a lender's; NULL */

/* memory.c */
int32_t cuda_allocate(fak_program *p, fak_error *e);
void cuda_free(fak_program *p);

/* program.c */
int32_t cuda_prepare(fak_device *, const fak_plan *, const fak_limits *, fak_program *weights_of,
                     uint32_t flags, uint32_t *verdict, fak_report *, fak_program **, fak_error *);
void cuda_release(fak_program *);

/* load.c */
int32_t cuda_load(fak_program *, const uint32_t *value, uint32_t values, const fak_source *, fak_error *);
int32_t cuda_unload(fak_program *, const uint32_t *value, uint32_t values, fak_error *);

/* emit.c, emit_matrix.c: ops to kernels */
typedef struct emitter { /* over `high` rows at most */
    fak_program *p;
    uint32_t high, quantised; /* the value that p->q holds, 0 = none */
    fak_error *e;
} emitter;
int32_t cuda_emit(fak_program *p, uint32_t first, uint32_t ops, uint32_t high, fak_error *e);
uint32_t cuda_splits(const fak_program *p, const fak_op *o, uint32_t high); /* of attention's keys */
int32_t cuda_emit_matrices(emitter *m, const fak_op *o); /* UNSUPPORTED: no such op */
int32_t cuda_emit_argmax(emitter *m, gpu_ptr x, uint32_t cols, const fak_op *o); /* to its output */
kv_shape cuda_kv_of(const fak_program *p, uint32_t layer);

/* step.c */
int32_t cuda_begin(fak_program *, const fak_step *, fak_error *);
int32_t cuda_run(fak_program *, uint32_t first, uint32_t ops, fak_error *);
int32_t cuda_capture(fak_program *p, fak_error *e);

/* rows.c */
int32_t cuda_up_slot(fak_program *p, char **slot, fak_error *e); /* memory for one cuda_up_send */
int32_t cuda_up_send(fak_program *p, gpu_ptr to, uint64_t bytes, fak_error *e);
int32_t cuda_up(fak_program *p, gpu_ptr to, const void *from, uint64_t bytes, fak_error *e);
int32_t cuda_down(fak_program *p, gpu_ptr from, void *dst, uint64_t bytes, fak_error *e);
int32_t cuda_read(fak_program *, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                  uint64_t *ticket, fak_error *);
int32_t cuda_write(fak_program *, uint32_t value, uint32_t first, uint32_t rows, const void *src,
                   fak_error *);
int32_t cuda_wait(fak_program *, uint64_t ticket, uint32_t timeout_ms, fak_error *);

/* pages.c: which page holds which positions; kv.c: the calls */
uint32_t cuda_pages(uint32_t positions);
uint32_t *cuda_page_at(const fak_program *p, uint32_t slot, uint32_t index);
void cuda_remember(fak_program *p);             /* from here on can be undone */
int32_t cuda_undo(fak_program *p, uint32_t index, uint32_t slot, fak_error *e);
int cuda_own(fak_program *p, uint32_t slot, uint32_t first, uint32_t end); /* 0, or no page is left */
void cuda_shorten(fak_program *p, uint32_t slot, uint32_t length);
int32_t cuda_reserve(fak_program *p, const fak_step *step, fak_error *e);
int32_t cuda_send_copies(fak_program *p, fak_error *e);
int32_t cuda_kv_clone(fak_program *, uint32_t to, uint32_t from, uint32_t len, fak_error *);
int32_t cuda_kv_trim(fak_program *, uint32_t slot, uint32_t len, fak_error *);
int32_t cuda_kv_evict(fak_program *, uint32_t slot, uint32_t first, uint32_t len, fak_error *);
int32_t cuda_kv_read(fak_program *, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                     void *k, void *v, uint64_t *ticket, fak_error *);
int32_t cuda_kv_write(fak_program *, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                      const void *k, const void *v, fak_error *);

/* backend.c: the entry of both plugins */
int32_t cuda_enter(const cuda_port *port, const fak_host *host, const fak_backend **out, fak_error *e);
#endif
