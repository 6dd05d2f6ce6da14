/* cpu - what the files of this plugin share.  A device is a set of kernels and a pool; a program is a plan
 * as a list of jobs for them, with memory for all that its taken ops touch. */
#ifndef CPU_H
#define CPU_H
#include "fak_backend.h"
#include "kernels.h"
#include "layout.h"
#include "pool.h"

enum { TEMPS = 3, INPUTS = 8 }; /* rows that a fused op hands on: normed, hidden, logits */

/* ---- tiers ---- */

typedef struct tier {
    const char *name;
    const kernel_set *set;
    int (*there)(void); /* do this processor and the operating system have it? */
} tier;
const tier *tier_at(uint32_t i); /* of this architecture, slowest first; NULL past the end */
const tier *tier_best(void);
const tier *tier_by_name(const char *name); /* NULL for one that is unknown or not there */
extern const char tier_names[];             /* "auto|scalar|..." */

struct fak_device {
    const tier *tier;
    const kernel_set *set;
    pool *pool;
    uint32_t threads;
    fak_opened facts;
};

/* ---- a program ---- */

typedef struct matrix { /* a weight, ready: a matrix packed, a vector or a table as it comes */
    const uint8_t *data;
    uint64_t at, bytes; /* its place in weights.base */
    const layout *packed; /* NULL for what is no matrix */
    int loaded;
} matrix;

typedef struct weight_set { /* of one or more programs */
    uint32_t refs, count;
    matrix *at;   /* [count] by value id */
    char *base;   /* pages that are touched when they are filled */
    uint64_t bytes;
} weight_set;

enum job_kind {
    JOB_EMBED, JOB_ROWS, JOB_ROPE, JOB_APPEND, JOB_PANELS, JOB_MATMUL, JOB_ATTENTION, JOB_TAKE
};
typedef struct job { /* a phase of the pool */
    enum job_kind kind;
    uint32_t op;          /* index in the plan */
    fak_op params;        /* of the kernel */
    row_fn *row;          /* ROWS, ROPE; PANELS: done before packing, or NULL */
    row_fn *row4;         /* the same of four rows, or NULL */
    uint32_t a, b, y;     /* values, or temps */
    uint32_t cols, out_cols; /* of a; of y where it is a temp */
    uint32_t w[3], ys[3], matrices; /* MATMUL */
    uint32_t add;         /* MATMUL: value that is added, 0 = none */
    uint32_t glu;         /* MATMUL: y is GLU of the two matrices' outputs */
    int blocks;           /* PANELS, MATMUL: Q8 activations */
} job;

typedef struct kv_layer { /* of a layer whose kv is here */
    uint32_t layer, kv_heads, head_dim, rot_dim, table;
    uint64_t keys, values, raw; /* bytes from kv.base */
    uint32_t value_stride;      /* elements */
} kv_layer;

typedef struct kv_store {
    char *base;           /* pages that are touched when they are filled */
    uint64_t bytes;
    uint32_t dtype, element, slots, context, padded; /* padded: positions of a slot, a multiple of 32 */
    kv_layer *layer;      /* [layers] */
    uint32_t layers;
    uint32_t *length;     /* [slots] positions in use */
    int raw;
} kv_store;

typedef struct strip { uint32_t row, rows, slot, first; } strip; /* up to QUERIES rows of a span */

struct fak_program {
    fak_device *d;
    fak_limits limits;
    uint32_t flags, ops, values, layers;
    fak_op *op;
    fak_value *value;       /* [values + TEMPS] */
    uint8_t *taken;
    uint32_t *first_job;    /* [ops + 1] */
    job *jobs;
    uint32_t job_count;
    int q8, embeds;
    uint32_t argmax;        /* value that an ARGMAX tail writes; 0 = none */
    char *arena;
    uint64_t arena_bytes;
    float **at;             /* [values + TEMPS] row 0; NULL where no taken op touches it */
    weight_set *weights;
    kv_store kv;
    void *panels;           /* of the input of the MATMUL that comes next */
    uint64_t panel_bytes;
    char *scratch;          /* of each thread */
    uint64_t scratch_bytes;
    /* the step */
    fak_step *step;         /* a copy, with room for the ids of the step before */
    const uint32_t *token, *wanted;
    uint32_t rows, wants;
    uint32_t *position, *slot; /* [rows] */
    strip *strip;
    uint32_t strips;
    int singles;            /* every strip is one row */
};

int32_t cpu_fail(fak_error *e, int32_t code, uint32_t index, const char *sentence);

/* plan.c */
int cpu_can_run(const fak_program *p, const fak_op *op);
int32_t cpu_make_jobs(fak_program *p); /* FAK_E_MEMORY */

/* memory.c */
/* Zero pages that take memory when they are used, large ones where that is wished and can be; NULL. */
void *cpu_map(uint64_t bytes, int large);
void cpu_unmap(void *at, uint64_t bytes);
/* Places values, weights and kv; fills the report; takes memory unless dry. */
int32_t cpu_lay_out(fak_program *p, fak_program *weights_of, fak_report *report, int dry);
void cpu_free(fak_program *p);

/* program.c */
int32_t cpu_prepare(fak_device *, const fak_plan *, const fak_limits *, fak_program *weights_of,
                    uint32_t flags, uint32_t *verdict, fak_report *, fak_program **, fak_error *);
void cpu_release(fak_program *);
int32_t cpu_load(fak_program *, const uint32_t *value, uint32_t values, const fak_source *, fak_error *);
int32_t cpu_unload(fak_program *, const uint32_t *value, uint32_t values, fak_error *);

/* step.c */
int32_t cpu_begin(fak_program *, const fak_step *, fak_error *);
int32_t cpu_run(fak_program *, uint32_t first, uint32_t ops, fak_error *);
int32_t cpu_call(fak_program *, uint32_t op, fak_error *);
int32_t cpu_read(fak_program *, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                 uint64_t *ticket, fak_error *);
int32_t cpu_write(fak_program *, uint32_t value, uint32_t first, uint32_t rows, const void *src,
                  fak_error *);
const void *cpu_view(fak_program *, uint32_t value);
uint32_t cpu_rows(const fak_program *p, uint32_t value); /* of a value in this step */

/* jobs.c: the pool's phases */
uint32_t cpu_chunks(void *program, uint32_t job);
void cpu_work(void *program, uint32_t job, uint32_t chunk, uint32_t thread);
uint64_t cpu_scratch_bytes(const fak_program *p); /* that a thread needs */

/* kv.c */
const kv_layer *cpu_kv_layer(const fak_program *p, uint32_t layer); /* NULL: not here */
void *cpu_keys(const kv_store *kv, const kv_layer *l, uint32_t slot, uint32_t head);
void *cpu_values(const kv_store *kv, const kv_layer *l, uint32_t slot, uint32_t head);
/* Rotates k and keeps it and v at a position. */
void cpu_append(const fak_program *p, const kv_layer *l, uint32_t slot, uint32_t position,
                const float *k, const float *v);
int32_t cpu_reserve(fak_program *, const fak_step *, fak_error *);
int32_t cpu_kv_clone(fak_program *, uint32_t to, uint32_t from, uint32_t len, fak_error *);
int32_t cpu_kv_trim(fak_program *, uint32_t slot, uint32_t len, fak_error *);
int32_t cpu_kv_evict(fak_program *, uint32_t slot, uint32_t first, uint32_t len, fak_error *);
int32_t cpu_kv_read(fak_program *, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                    void *k, void *v, uint64_t *ticket, fak_error *);
int32_t cpu_kv_write(fak_program *, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                     const void *k, const void *v, fak_error *);
#endif
