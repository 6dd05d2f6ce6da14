/* gate - CorrectnessClass.  Reference is bit for bit; Approx is argmax-exact and close: the cosine, the
 * norm ratio, the relative L2 and the largest difference are all held, for cosine alone is blind to
 * scale.  The floors are the core's (abi/README.md, "Class"); a backend may promise more, never less.
 * Pure functions on host arrays: any thread. */
#ifndef GATE_H
#define GATE_H
#include "exec.h"

typedef struct gate_bound {    /* of a device in an act mode, for a pair of dtypes */
    const char *mode;          /* for sentences: "F32 activations" */
    int exact;                 /* class Reference: all bits; the rest says nothing then */
    double cosine, norm_ratio; /* of a row of logits: at least; within 1 +- */
    double rel_l2, max_abs;    /* at most */
    double op_l2;              /* of a row of one op's output, on equal inputs; no element is off by
                                  more than GATE_ELEMENT times op_l2 times the row's RMS */
} gate_bound;
enum { GATE_ELEMENT = 16 };

/* The floors of the mode, tightened by what the device promises in its table of bounds. */
gate_bound gate_bound_of(const device *d, uint32_t act, uint32_t weight_dtype, uint32_t kv_dtype);
/* STATUS_GATE when an entry of the table of bounds promises less than the floor, or what no device can
 * (a NaN, a negative bound).  A field that is 0 says nothing. */
int32_t gate_promises(const device *d, fak_error *e);

typedef struct gate_figures {  /* rows of a device against the reference's; GATE_NONE to begin with */
    double cosine, norm_ratio; /* the lowest; the farthest from 1 */
    double rel_l2, max_abs;    /* the largest of a row; of an element, infinite where only one is a number */
    double element;            /* the largest difference over the RMS of the reference's row */
    uint64_t values, differ;   /* compared; of which bits differ (NaNs are equal) */
    uint32_t row, col;         /* the worst element, or the first that differs where all are close */
    float want, got;
} gate_figures;
#define GATE_NONE ((gate_figures){.cosine = 1, .norm_ratio = 1})

void gate_add_row(gate_figures *f, uint32_t row, uint32_t cols, const float *want, const float *got);
void gate_merge(gate_figures *into, const gate_figures *f);
/* FAK_OK, or STATUS_GATE with the figure, its bound and the worst element. */
int32_t gate_op(const gate_bound *b, const gate_figures *f, fak_error *e);
int32_t gate_logits(const gate_bound *b, const gate_figures *f, fak_error *e);

enum { GATE_TIES = 16 };
typedef struct gate_tally {    /* of positions of a model; {.logits = GATE_NONE} to begin with */
    gate_figures logits;
    uint64_t positions, ties;  /* compared; whose argmax parts at a tie */
    struct { uint64_t position; uint32_t want, got; float gap; } tie[GATE_TIES], wrong;
    uint64_t wrongs;           /* positions whose argmax parts and is no tie; the first is `wrong` */
} gate_tally;

/* Compares a position: rows of V logits.  Not 0 when the argmax parts: feed the reference's id to both. */
int gate_add_position(gate_tally *t, const gate_bound *b, uint32_t V, const float *want, const float *got);
/* STATUS_GATE when an argmax is wrong, more than 1 % of the positions are ties, or gate_logits fails. */
int32_t gate_positions(const gate_tally *t, const gate_bound *b, fak_error *e);

/* STATUS_REFUSED, with the class, unless the device is of class Reference. */
int32_t gate_require_reference(const device *d, fak_error *e);
/* STATUS_REFUSED when it is. */
int32_t gate_require_non_reference(const device *d, fak_error *e);
/* Ops run that are, or hold, such a core op; a fused one counts as one. */
uint64_t gate_count(const uint64_t by_id[EXEC_IDS], uint32_t part);
/* STATUS_GATE when a matmul or attention, alone or in a fused op, ran on the host; or when none of
 * either ran at all: what has not been seen is not taken on trust. */
int32_t gate_native(const exec *x, fak_error *e);
int32_t gate_native_counts(const device *d, const uint64_t *by_id /* [SIDES][EXEC_IDS] */, fak_error *e);
#endif
