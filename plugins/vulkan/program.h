/* program - what the files share that prepare and run plans: a program is a list of dispatches, recorded
 * once for each shape of a step and then only submitted. */
#ifndef PROGRAM_H
#define PROGRAM_H
#include "vk.h"

enum {
    PAGE = 16,     /* positions that kv is reserved by */
    KV_PIECES = 16, /* of a layer, at most */
    GRID_WORD = 8, /* words of a step before its grids */
    GRIDS = 128,   /* different grids of a program, at most */
    INPUTS = 8,
    OUTPUTS = 3
};

/* Rows that an op hands on; CODES: activations in Q8. */
enum temp { TEMP_NORMED, TEMP_HIDDEN, TEMP_LOGITS, TEMP_BEST, TEMP_CODES, TEMPS };

/* A step has a shape, by its rows: kernels differ, so ranges are recorded for each. */
enum shape { SHAPE_ONE, SHAPE_FEW, SHAPE_MANY, SHAPES }; /* 1; up to FEW_ROWS; more */
enum { FEW_ROWS = 8, ALL_SHAPES = (1 << SHAPES) - 1 };

/* ---- queue.c: command buffers collect until something needs them ---- */

#define UNSUBMITTED UINT64_MAX

typedef struct ring_part { /* a command buffer that is used again and again, with its part of the ring */
    VkCommandBuffer cb;
    VkCommandBuffer ready; /* recorded in prepare: what each token of a decode moves; or none */
    uint32_t ready_words;
    char *map;           /* host memory */
    uint64_t at;         /* its place in the ring's buffer */
    /* written under the device's lock */
    uint64_t busy;       /* value of the timeline after which it is free, or UNSUBMITTED */
    void *dst;           /* rows that a wait copies out, as F32 */
    uint64_t bytes;      /* in the ring */
    uint32_t dtype;
} ring_part;

typedef struct ring {
    block mem;
    uint64_t each; /* bytes of a slot */
    uint32_t count, next;
    ring_part *slot;
} ring;

typedef struct cb_queue { /* of a program */
    VkCommandPool pool;
    VkCommandBuffer *cb;
    uint64_t *work; /* multiplications of each */
    uint32_t count, most, opens;
    ring_part **open; /* slots that the next flush submits */
    ring stage, step, eager;
} cb_queue;

int32_t vk_commands(fak_program *, VkCommandBuffer *, uint32_t n, fak_error *);
uint64_t vk_queue_bytes(const fak_program *); /* of host memory */
int32_t vk_queue_make(fak_program *, fak_error *);
void vk_queue_free(fak_program *); /* when all is done that was submitted; what was not is dropped */
/* Recording begins with a barrier: all that came before is seen.  once: it is submitted once. */
int32_t vk_commands_begin(fak_device *, VkCommandBuffer, int once, fak_error *);
int32_t vk_commands_end(fak_device *, VkCommandBuffer, fak_error *);
void vk_barrier(VkCommandBuffer);
int32_t vk_enqueue(fak_program *, VkCommandBuffer, uint32_t dispatches, uint64_t work, fak_error *);
int32_t vk_flush(fak_program *, fak_error *); /* one submit, or more that each work as long as may be */
int32_t vk_slot_next(fak_program *, ring *, ring_part **, fak_error *); /* free: what had it is done */
/* The same with its command buffer begun; vk_slot_end enqueues it. */
int32_t vk_slot_begin(fak_program *, ring *, ring_part **, fak_error *);
int32_t vk_slot_end(fak_program *, ring_part *, uint32_t dispatches, uint64_t work, fak_error *);
/* [any] */
int32_t vk_wait(fak_program *, uint64_t ticket, uint32_t timeout_ms, fak_error *);
/* What a wait will copy out of the slot; told before its command buffer is enqueued. */
void vk_slot_deliver(fak_program *, ring_part *, void *dst, uint64_t bytes, uint32_t dtype);
/* What would be copied into [dst, dst + bytes) no longer is. */
void vk_slot_forget(fak_program *, const void *dst, uint64_t bytes);

/* ---- move.c: rows through the ring ---- */

int32_t vk_upload(fak_program *, const block *to, uint64_t at, const void *src, uint64_t bytes,
                  fak_error *);
/* Delivered, as F32, by the wait for the submit that the next flush makes. */
int32_t vk_download(fak_program *, const block *from, uint64_t at, uint64_t bytes, void *dst,
                    uint32_t dtype, fak_error *);
/* Records such a download into a slot. */
void vk_download_record(const fak_program *, VkCommandBuffer, const block *from, uint64_t at,
                        const ring_part *, uint64_t bytes);

/* ---- weights.c: matrices on the device ---- */

typedef struct weight_format { /* how a dtype is kept: each block of columns is cut into two planes */
    uint32_t dtype, cols;        /* of a block; cols 0 ends the table */
    uint32_t bytes;              /* of a block as it is served */
    uint32_t a_from, a_bytes;    /* plane A: codes, or plain numbers */
    uint32_t b_from, b_bytes;    /* plane B: scales */
} weight_format;
const weight_format *vk_format(uint32_t dtype); /* NULL: not kept */

typedef struct segment { /* rows of a tensor that lie in one piece: plane A of all, then plane B */
    place at;
    uint32_t first, rows;
} segment;

typedef struct tensor { /* one weight, or several whose rows one kernel takes together */
    const weight_format *format;
    uint32_t rows, cols, a_row, b_row; /* words of a row in the planes */
    segment *segment;
    uint32_t segments;
} tensor;

typedef struct home { uint32_t tensor, first; } home; /* tensor counts from 1; 0: none */

typedef struct weight_set { /* of a program; borrowers keep it */
    uint32_t refs, values, tensors;
    home *home;          /* [values] */
    tensor *tensor;      /* [values] */
    uint8_t *loaded;     /* [values] */
    store store;
    struct weight_set *lender;
} weight_set;

weight_set *vk_weights_new(uint32_t values, weight_set *lender); /* NULL: no host memory */
void vk_weights_free(fak_device *, weight_set *);
/* The tensor that holds a value's rows, from *first on; NULL when none does. */
const tensor *vk_weight(weight_set *, uint32_t value, uint32_t *first);
const store *vk_weight_store(weight_set *, uint32_t value);
/* Finds a place for `n` values as one tensor, in one piece if whole; 0 when that cannot be, -1 without
 * host memory. */
int vk_weights_add(fak_program *, const uint32_t *value, uint32_t n, int whole);
int32_t vk_load(fak_program *, const uint32_t *value, uint32_t values, const fak_source *, fak_error *);
int32_t vk_unload(fak_program *, const uint32_t *value, uint32_t values, fak_error *);

/* ---- a program ---- */

enum per { PER_ROW, PER_WANTED };
typedef struct grid { uint32_t x, per, tile; } grid; /* y: rows divided by tile, rounded up */

typedef struct bind { const store *in; place place; } bind; /* in NULL: nothing is bound */

typedef struct job { /* a dispatch */
    kernel kernel[SHAPES];
    uint32_t pipeline[SHAPES], grid[SHAPES];
    bind bind[BINDINGS];
    uint32_t writes;   /* bit a binding */
    uint32_t shapes;   /* bit a shape of step that it is for */
    int side;          /* its step is not the step's but that of what is done beside: kv.c */
    constants c;
    VkDescriptorSet set;
} job;

typedef struct kv_layer { /* of a layer whose kv is here */
    uint32_t layer, kv_heads, head_dim, rot_dim, table, cols;
    uint32_t page_words; /* that the keys of a page take, and the values; raw ones take PAGE*cols */
    int keeps_raw;
    /* Pages [i*piece_pages, ...) lie in piece i, as much as a kernel sees at once: first keys, then
     * values, then raw keys. */
    uint32_t pieces, piece_pages;
    place piece[KV_PIECES];
} kv_layer;

typedef struct page_change { uint32_t *at, was; } page_change;

typedef struct kv_pages { /* pages.c: which page holds which positions; numbers only */
    uint32_t slots, slot_pages, count, context, hint; /* hint: where to look for a free one first */
    uint32_t *length; /* [slots] positions in use */
    uint32_t *page;   /* [slots][slot_pages] */
    uint32_t *refs;   /* [count] slots that hold it, 0: free */
    page_change *change; /* what has changed since the last remember */
    uint32_t changes, change_room;
    uint32_t *copy;  /* [2*copies] pages to be copied before the step: from, to */
    uint32_t copies;
} kv_pages;

typedef struct step_words { /* words from the start of a step on the device */
    uint32_t row, wanted, page;
    uint32_t state; /* where what the host sends ends; two words a row and head that ATTENTION leaves */
    uint32_t all;
} step_words;

typedef struct recording { /* of ops that go together: vk_part */
    uint32_t ops, dispatches[SHAPES];
    uint64_t work; /* of a row */
    VkCommandBuffer cb[SHAPES];
} recording;

struct fak_program {
    fak_device *d;
    fak_limits limits;
    uint32_t flags, ops, values, body_ops, tails;
    fak_op *op;
    fak_value *value;   /* [values + TEMPS] */
    fak_tail *tail;
    uint8_t *taken;     /* [ops] */
    uint32_t argmax;    /* value that an ARGMAX tail writes; 0: none */
    int embeds, q8;     /* q8: blocks of weights are multiplied with activations in Q8 */
    weight_set *weights;
    store store;        /* all but the weights */
    place arena, step;  /* values; the step */
    place side, survivors; /* the step of what is done beside; rows that an eviction moves */
    uint32_t side_rows; /* that it has room for */
    uint64_t piece_used, kv_bytes;   /* the most that a kernel sees at once; of all layers */
    place *at;          /* [values + TEMPS] */
    job *jobs;
    uint32_t *first_job, job_count, job_room; /* first_job: [ops + 1] */
    grid grids[GRIDS];
    uint32_t grid_count;
    kv_layer *layer;
    uint32_t layers, widest; /* layers whose kv is here; columns of the widest */
    uint32_t heads_most, state_heads; /* state_heads 0: no kv is in pieces */
    kv_pages pages;
    step_words words, side_words;
    uint32_t *side_step; /* [side_words.all] */
    uint32_t evict_job; /* from here on to the last: what an eviction does */
    cb_queue queue;
    VkDescriptorPool sets;
    recording *range;       /* [ops], ops 0: none begins there */
    /* the caller's */
    uint32_t rows, wanted, chained; /* of the step; rows whose ids the last step left */
    int begun;
};

/* plan.c */
int32_t vk_judge(fak_program *, uint32_t *verdict, fak_error *);
uint64_t vk_work(const fak_program *, uint32_t first, uint32_t ops); /* multiplications of a row */
uint32_t vk_part(const fak_program *, uint32_t first, uint32_t ops); /* how many of them go together */

/* layout.c: places are laid out, nothing is taken */
int32_t vk_lay_out(fak_program *); /* FAK_E_MEMORY: no host memory */
void vk_size_temps(fak_program *);
uint32_t vk_best_count(const fak_program *, uint32_t cols);
uint32_t vk_rows_max(const fak_program *, const fak_value *);
place vk_span(const fak_program *, const uint32_t *value, uint32_t n); /* that has all of them */
const kv_layer *vk_layer(const fak_program *, uint32_t layer); /* NULL: not here */

/* lower.c: each taken op as jobs */
int32_t vk_lower(fak_program *, fak_error *);

/* record.c */
int32_t vk_bind(fak_program *, fak_error *); /* pipelines and descriptor sets of all jobs */
uint32_t vk_record(fak_program *, VkCommandBuffer, uint32_t first_job, uint32_t end, enum shape);
int32_t vk_record_ranges(fak_program *, fak_error *);
int32_t vk_record_ready(fak_program *, fak_error *); /* what each token moves */
enum shape vk_shape(uint32_t rows);

/* program.c */
int32_t vk_prepare(fak_device *, const fak_plan *, const fak_limits *, fak_program *weights_of,
                   uint32_t flags, uint32_t *verdict, fak_report *, fak_program **, fak_error *);
void vk_release(fak_program *);

/* step.c */
/* Records into slot->ready that a step of one row goes to the device; its words. */
uint32_t vk_send_one(const fak_program *, const ring_part *);
void vk_write_head(const fak_program *, uint32_t *words, const step_words *, uint32_t rows,
                   uint32_t wanted, uint32_t flags); /* with the grids */
int32_t vk_begin(fak_program *, const fak_step *, fak_error *);
int32_t vk_run(fak_program *, uint32_t first, uint32_t ops, fak_error *);
int32_t vk_call(fak_program *, uint32_t op, fak_error *);
int32_t vk_read(fak_program *, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                uint64_t *ticket, fak_error *);
int32_t vk_write(fak_program *, uint32_t value, uint32_t first, uint32_t rows, const void *src,
                 fak_error *);

/* pages.c */
int32_t vk_pages_make(kv_pages *, uint32_t slots, uint32_t context, uint32_t count, fak_error *);
void vk_pages_free(kv_pages *);
void vk_pages_remember(kv_pages *); /* what a later restore or undo goes back to */
void vk_pages_restore(kv_pages *);
int32_t vk_pages_undo(kv_pages *, uint32_t index, uint32_t slot, fak_error *); /* KV_FULL */
int vk_pages_own(kv_pages *, uint32_t slot, uint32_t first, uint32_t end); /* -1: no page */
void vk_pages_shorten(kv_pages *, uint32_t slot, uint32_t length);
int32_t vk_pages_reserve(kv_pages *, const fak_step *, fak_error *);
uint32_t *vk_page_at(const kv_pages *, uint32_t slot, uint32_t index);
uint64_t vk_pages_bytes(uint32_t slots, uint32_t context, uint32_t count); /* of host memory */
uint32_t vk_pages_of(uint32_t positions);

/* kv.c */
int32_t vk_copy_pages(fak_program *, fak_error *); /* enqueues what pages.copy says */
int32_t vk_kv_clone(fak_program *, uint32_t to, uint32_t from, uint32_t len, fak_error *);
int32_t vk_kv_trim(fak_program *, uint32_t slot, uint32_t len, fak_error *);
int32_t vk_kv_evict(fak_program *, uint32_t slot, uint32_t first, uint32_t len, fak_error *);
int32_t vk_kv_read(fak_program *, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                   void *k, void *v, uint64_t *ticket, fak_error *);
int32_t vk_kv_write(fak_program *, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                    const void *k, const void *v, fak_error *);
#endif
