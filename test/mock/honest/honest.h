/* honest - a device as a vendor would write it, from fak_backend.h alone: memory of its own, a worker
 * thread that executes what calls only record, paged kv, arithmetic that is not the reference's.
 * What its files share.  Options: honest.c.
 *
 * "The caller" is the thread that is inside a [device] call; there is one at a time.  The worker alone
 * touches the device's memory while jobs are under way; a fence hands it to the caller. */
#ifndef HONEST_H
#define HONEST_H
#include "fak_backend.h"

#include <pthread.h>

enum { PAGE = 16, QUEUE = 256, FAILURES = 8, ALIGN = 64, POISON = 0xff, TEMPS = 3 };

/* ---- the device ---- */

enum job_kind {
    JOB_BEGIN, JOB_OPS, JOB_READ, JOB_WRITE, JOB_KV_READ, /* skipped while the program has failed */
    JOB_COPY, JOB_EVICT, JOB_KV_WRITE,                    /* run nevertheless */
    JOB_QUIT
};
typedef struct job {
    enum job_kind kind;
    fak_program *p;
    uint32_t a, b, c;
    void *host;         /* rows: lent by the caller of read; a copy that the worker frees */
    struct kv_job *kv;  /* freed by the worker */
    uint64_t submit;    /* it is part of this one */
} job;

typedef struct piece { uint64_t at, bytes; } piece; /* of device memory, in use */

struct fak_device {
    const fak_host *host;
    fak_opened facts;
    uint32_t exact, hold, leave;                  /* options */
    uint64_t memory, fail_alloc, fail_submit, lose;
    uint64_t attempts;                            /* to take device memory */
    char *block;                                  /* device memory */
    piece *piece;                                 /* [pieces] by address */
    uint32_t pieces, room;
    uint64_t used;
    pthread_t worker;
    pthread_mutex_t lock;
    pthread_cond_t moved;                         /* submitted, allowed or done has changed */
    job queue[QUEUE];
    uint64_t recorded;                            /* the caller's: jobs, of which submitted are out */
    /* under the lock */
    uint64_t submitted, done, allowed;            /* allowed: with hold=1 no more are executed */
    uint64_t lost_at;                             /* the first job that met the loss */
    fak_error lost;                               /* code 0: not lost */
    uint32_t failing;                             /* the next JOB_OPS fails half way */
    fak_stats stats;
};

/* memory.c: a place of `bytes` in the block, poisoned; 0 with *e when there is none. */
uint64_t honest_take(fak_device *, uint64_t bytes, const char *what, fak_error *e);
void honest_give(fak_device *, uint64_t at); /* 0 is fine */
uint64_t honest_align(uint64_t bytes);

/* queue.c */
int32_t honest_start(fak_device *, fak_error *e);
void honest_stop(fak_device *);
uint64_t honest_record(fak_device *, const job *); /* the ticket that is done when it is */
void honest_submit(fak_device *);
void honest_fence(fak_device *, uint64_t ticket);  /* until it is done, well or not */
int32_t honest_lost(fak_device *, fak_error *e);   /* 0, or LOST with the first cause */
int32_t honest_wait(fak_program *, uint64_t ticket, uint32_t timeout_ms, fak_error *e);

int32_t honest_fail(fak_error *e, int32_t code, uint32_t index, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- programs ---- */

typedef struct weight_set { /* of a program; borrowers keep it */
    uint32_t refs, count;
    uint64_t block;      /* device memory of all of them */
    uint64_t *at;        /* [count] by value id, 0 = not here */
    uint8_t *loaded;     /* [count] */
    struct weight_set *lender;
} weight_set;

typedef struct page_table { /* which pages a slot's positions lie in; the caller's */
    uint32_t *length;  /* [slots] */
    uint32_t *page;    /* [slots][slot_pages] */
    uint32_t *refs;    /* [pages] slots that hold it, 0 = free */
} page_table;

typedef struct failure { uint64_t from, to; fak_error why; } failure; /* of jobs [from, to] */

typedef struct sizes { /* bytes of device memory that a program takes */
    uint64_t weights, acts, temp, scratch, steps, step, kv, raw;
} sizes;

struct fak_program {
    fak_device *d;
    fak_limits limits;
    uint32_t flags, ops, values, layers;
    fak_op *op;           /* [ops]; layer: the index among those whose kv is here */
    fak_value *value;     /* [values] */
    uint8_t *taken;       /* [ops] */
    uint32_t *layer_at;   /* [layers] that index, or FAK_NO_INDEX */
    uint32_t kv_layers, width; /* here; columns of the widest */
    uint64_t *at;         /* [values] where in the device's block, 0 = nowhere */
    uint32_t embeds, argmax; /* runs EMBED; the value that ARGMAX writes, 0 = none */
    weight_set *weights;
    sizes size;
    uint64_t acts, steps, kv, raw; /* device memory: values, temps and scratch; blocks; pages */
    uint32_t pages, slot_pages;    /* of kv in all; at most of a slot */
    /* the caller's */
    page_table now, before;
    uint32_t *copy;       /* [2*copies] pages to be copied: from, to */
    uint32_t copies, step_slots;
    uint64_t begins;
    uint64_t *begun;      /* [step_slots] the ticket of the begin that uses it */
    uint32_t begun_yet, chained; /* chained: rows whose ids the last step left */
    /* under the device's lock */
    failure failed[FAILURES];
    uint32_t failures, told; /* the last one is open while its `to` is UINT64_MAX */
    /* the worker's */
    const fak_step *step;
    const uint32_t *step_pages; /* [spans][slot_pages] */
};

/* program.c */
int32_t honest_prepare(fak_device *, const fak_plan *, const fak_limits *, fak_program *weights_of,
                       uint32_t flags, uint32_t *verdict, fak_report *, fak_program **,
                       fak_error *);
void honest_release(fak_program *);
int32_t honest_load(fak_program *, const uint32_t *value, uint32_t values, const fak_source *,
                    fak_error *);
int32_t honest_unload(fak_program *, const uint32_t *value, uint32_t values, fak_error *);

/* step.c */
int32_t honest_begin(fak_program *, const fak_step *, fak_error *);
int32_t honest_op(fak_program *, uint32_t op, fak_error *);
int32_t honest_run(fak_program *, uint32_t first, uint32_t ops, fak_error *);
int32_t honest_read(fak_program *, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                    uint64_t *ticket, fak_error *);
int32_t honest_write(fak_program *, uint32_t value, uint32_t first, uint32_t rows, const void *src,
                     fak_error *);

/* kv.c: the caller's side */
int32_t honest_reserve(fak_program *, const fak_step *, fak_error *); /* for every span, or fails */
void honest_send_copies(fak_program *);
int32_t honest_kv_clone(fak_program *, uint32_t to, uint32_t from, uint32_t len, fak_error *);
int32_t honest_kv_trim(fak_program *, uint32_t slot, uint32_t len, fak_error *);
int32_t honest_kv_evict(fak_program *, uint32_t slot, uint32_t first, uint32_t len, fak_error *);
int32_t honest_kv_read(fak_program *, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                       void *k, void *v, uint64_t *ticket, fak_error *);
int32_t honest_kv_write(fak_program *, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                        const void *k, const void *v, fak_error *);

typedef struct kv_job { /* moves rows of one slot: what the worker needs to know */
    uint32_t layer, first, count, end; /* evict: positions [first, end) come from count further on */
    float *k, *v;                      /* read, write: [count, cols] */
    uint32_t cols;
    uint32_t page[];                   /* [slot_pages] read from; evict: [slot_pages] written to */
} kv_job;

/* kernels.c: the worker's side */
void honest_ops(fak_program *, uint32_t first, uint32_t ops);
void honest_copy_page(fak_program *, uint32_t from, uint32_t to);
void honest_evict(fak_program *, const kv_job *);
void honest_move_rows(fak_program *, const kv_job *, int write);
uint32_t honest_rows(const fak_value *, uint32_t rows, uint32_t wanted);
uint64_t honest_op_temp(const fak_program *, const fak_op *);    /* floats of each temp */
uint64_t honest_op_scratch(const fak_program *, const fak_op *); /* bytes */
/* The operands k, v and tab of an op that appends; 0 for another one. */
int honest_appends(const fak_op *, uint32_t operand[3]);

/* math.c: exact is the contract's order of operations; else any order, and the C library's functions */
uint64_t honest_row_bytes(uint32_t dtype, uint32_t cols); /* 0 for one that it does not keep */
void honest_decode(uint32_t dtype, uint32_t cols, const void *row, float *out);
void honest_encode(uint32_t dtype, uint32_t cols, const float *x, void *row); /* kv dtypes */
void honest_matmul(const fak_value *w, const char *weights, uint32_t rows, const float *x, float *y,
                   int exact, int q8, void *scratch);
uint64_t honest_matmul_scratch(uint32_t rows, uint32_t cols);
void honest_norm(uint32_t cols, const fak_op *, const float *x, const float *w, float *y, int exact);
void honest_rope(uint32_t heads, const fak_op *, const float *x, const float *tab, float *y);
void honest_glu(uint32_t n, uint32_t act, const float *g, const float *u, float *y, int exact);
float honest_softcap(float x, float cap, int exact);
float honest_exp(float x, int exact);
uint32_t honest_argmax(uint32_t n, const float *x);
#endif
