/* cpu_ref - what the files of this plugin share: a device is its options, a program is a plan with
 * host memory for everything that its taken ops touch. */
#ifndef CPU_REF_H
#define CPU_REF_H
#include "ref.h"

struct fak_device {
    int fused; /* option fused=1: the table offers fused ops, run as their literal sequences */
};

typedef struct cpu_ref_weights { /* of one or more programs */
    uint32_t refs, count;
    void **at;      /* [count] by value id; NULL where not loaded */
    uint8_t *lent;  /* [count] at[] is the host's memory */
} cpu_ref_weights;

struct fak_program {
    fak_limits limits;
    uint32_t ops, values, flags;
    uint32_t layers, kv_layers; /* of the plan; those whose kv is here */
    uint32_t *kv_layer;     /* [layers] index among kv_layers, or FAK_NO_INDEX; ops hold the index */
    fak_op *op;             /* [ops] */
    uint8_t *taken;         /* [ops] */
    uint32_t embeds;        /* does it run an EMBED? */
    uint32_t argmax;        /* value id of the ARGMAX tail's output, 0 = none */
    uint32_t *slot_of;      /* [values] piece of the arena + 1; 0 = none */
    char *arena;            /* activations; values whose lives do not overlap share pieces */
    cpu_ref_weights *weights;
    fak_step *step;         /* a copy, with room for the tokens of TOKENS_FROM_ARGMAX */
    uint32_t *length;       /* [slots] kv positions in use; NULL when kv is not here */
    ref_memory memory;
};

int32_t cpu_ref_fail(fak_error *e, int32_t code, uint32_t index, const char *sentence);

/* program.c */
int32_t cpu_ref_prepare(fak_device *, const fak_plan *, const fak_limits *, fak_program *weights_of,
                        uint32_t flags, uint32_t *verdict, fak_report *, fak_program **,
                        fak_error *);
void cpu_ref_release(fak_program *);
int32_t cpu_ref_load(fak_program *, const uint32_t *value, uint32_t values, const fak_source *,
                     fak_error *);
int32_t cpu_ref_unload(fak_program *, const uint32_t *value, uint32_t values, fak_error *);

/* step.c */
int32_t cpu_ref_begin(fak_program *, const fak_step *, fak_error *);
int32_t cpu_ref_op(fak_program *, uint32_t op, fak_error *);
int32_t cpu_ref_read(fak_program *, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                     uint64_t *ticket, fak_error *);
int32_t cpu_ref_write(fak_program *, uint32_t value, uint32_t first, uint32_t rows, const void *src,
                      fak_error *);
const void *cpu_ref_view(fak_program *, uint32_t value);
int32_t cpu_ref_kv_clone(fak_program *, uint32_t to, uint32_t from, uint32_t len, fak_error *);
int32_t cpu_ref_kv_trim(fak_program *, uint32_t slot, uint32_t len, fak_error *);
int32_t cpu_ref_kv_evict(fak_program *, uint32_t slot, uint32_t first, uint32_t len, fak_error *);
int32_t cpu_ref_kv_read(fak_program *, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                        void *k, void *v, uint64_t *ticket, fak_error *);
int32_t cpu_ref_kv_write(fak_program *, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                         const void *k, const void *v, fak_error *);
/* The KV_APPEND that op is or contains; id FAK_OP_NONE when there is none. */
fak_op cpu_ref_append_of(const fak_op *op);
#endif
