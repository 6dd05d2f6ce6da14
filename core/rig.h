/* rig - one op on a device, between two holes, and the same on the reference: what conformance is made
 * of.  The plan is EMBED (left to the host) > the ops under test > SCALE (left to the host); the rig
 * plays the host: it writes what the first would give and reads what the last would take.
 *
 * What the ABI lends for a call is spoiled when the call is over: plans, steps, rows that were written,
 * bytes that were borrowed.  What is read lands between guards, on NaNs. */
#ifndef RIG_H
#define RIG_H
#include "gate.h"
#include "ref.h"
#include "step.h"
#include "toy.h"

enum { RIG_OPS = 4, RIG_INPUTS = 8, RIG_OUTPUTS = 4, RIG_WEIGHTS = 10 };

typedef struct rig {           /* zero-initialise */
    device *dev;
    fak_limits limits;         /* as rig_open makes them; change what the case needs before rig_ready */
    uint32_t flags;            /* enum fak_prepare_flags */
    toy toy;                   /* its weights; toy.random draws inputs too */
    plan_draft draft;
    plan plan;
    uint32_t first, ops;       /* the ops under test in the plan */
    fak_op op[RIG_OPS];
    uint32_t input[RIG_INPUTS], inputs, output[RIG_OUTPUTS], outputs; /* values */
    uint32_t weight_index[RIG_WEIGHTS], weights;
    /* made by rig_ready */
    fak_program *handle;
    fak_report report, dry;    /* of prepare, and of the dry run before it */
    uint32_t *verdict;
    int taken;                 /* the device took all ops under test */
    int lend;                  /* borrowed bytes stay (FAK_STABLE); 0: they are spoiled after load */
    int fail_read;             /* the source's read number fail_read fails; 0 = never */
    ref_memory memory;         /* of the reference */
    gate_bound bound;
    gate_figures figures;      /* of all that was compared */
    int special;               /* inputs may be zero rows, outliers and (exact classes) tiny numbers */
    int positive;              /* inputs and matrices are, from the first on: no sum cancels */
    uint64_t reads;            /* of the source */
    int read_failed;           /* one of them, with a status: the device was told */
    int touched;               /* the device has written outside the rows that it was asked for */
    struct rig_lent *lent;
    double run_s;              /* seconds in the ops under test of the last step, until a read was done */
} rig;

/* For steps of at most `rows` rows in at most `spans` spans; kv of `slots` slots of `context` positions.
 * act: enum fak_numerics ACT_*.  rig_close in any case. */
int32_t rig_open(rig *r, device *dev, uint32_t act, uint32_t rows, uint32_t slots, uint32_t context,
                 uint64_t seed, fak_error *e);
void rig_close(rig *r);

/* Values for the ops under test: a weight; the rope table; an input whose rows follow the step, or
 * what it wants.  0 after a failure, which rig_ready tells. */
uint32_t rig_weight(rig *r, uint32_t dtype, uint32_t rows, uint32_t cols, float center, float scale);
uint32_t rig_table(rig *r, uint32_t rot_dim);
uint32_t rig_input(rig *r, uint32_t cols, int wanted);
/* Appends an op with its inputs and parameters; its outputs are added as the op table says.  Returns the
 * first of them. */
uint32_t rig_op(rig *r, fak_op op);

/* Prepares (a dry run, then for real) and loads; r->taken 0 when the device left an op to the host.
 * FAK_OK, STATUS_GATE where what the device answers contradicts itself, or what the device answered. */
int32_t rig_ready(rig *r, fak_error *e);

/* Only a dry run of prepare, of what may be no valid plan at all. */
int32_t rig_dry(rig *r, fak_error *e);
int32_t rig_load(rig *r, fak_error *e); /* once more, after a load that failed */

/* A step: fills the inputs, runs the ops on both sides, compares all outputs.  token NULL: any ids.
 * poison: the inputs are NaNs, and nothing is compared.  STATUS_GATE when an output is past its bound. */
typedef struct rig_spec {
    uint32_t rows, spans;
    const fak_span *span;
    const uint32_t *wanted_row;
    uint32_t wanted;
    int poison;
} rig_spec;
int32_t rig_step(rig *r, const rig_spec *spec, fak_error *e);
/* One span of so many rows at the beginning of slot 0, all wanted. */
int32_t rig_rows(rig *r, uint32_t rows, int poison, fak_error *e);
/* The keys and values of positions [0, len) of a slot's layer 0 against the reference's; STATUS_GATE. */
int32_t rig_kv(rig *r, uint32_t slot, uint32_t len, fak_error *e);

/* Memory that is lent for a call.  Taken back it is spoiled, and stays so until rig_close: a device that
 * looks at it later sees nothing of use.  NULL without memory; NULL is fine to take back. */
void *rig_lend(rig *r, uint64_t bytes);
void rig_take_back(void *lent);
void rig_free_lent(rig *r); /* rig_close does */

fak_stats rig_stats(const device *d, int *there); /* fak.stats/1 of a device */
#endif
