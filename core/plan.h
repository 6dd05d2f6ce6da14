/* plan - the forward pass as a list of ops over numbered values, written once per model.
 * Knows models, knows no device.  A plan is immutable once built: any thread may read it. */
#ifndef PLAN_H
#define PLAN_H
#include "model.h"
#include "ops.h"

typedef struct plan {  /* zero-initialise */
    fak_plan *block;   /* what backends see */
    uint32_t *weight;  /* [values] index in the model's weights, or FAK_NO_INDEX */
    uint32_t *origin;  /* [ops] index of the op, or of a fused op's first, in the unfused plan */
} plan;

int32_t plan_build(plan *p, const model *m, fak_error *e);
void plan_free(plan *p); /* a zero plan is fine */

fak_value plan_value(const fak_plan *p, uint32_t i);
fak_op plan_op(const fak_plan *p, uint32_t i);
fak_repeat plan_repeat(const fak_plan *p, uint32_t i);
fak_tail plan_tail(const fak_plan *p, uint32_t i);
uint64_t plan_hash(const fak_plan *p); /* FNV-1a over the block: equal plans, equal hash */

/* A plan in the making: growing arrays.  What build, fuse and the reader share. */
typedef struct plan_draft { /* zero-initialise */
    fak_value *value;
    uint32_t *weight;
    fak_op *op;
    uint32_t *origin;
    uint32_t values, value_room, ops, op_room, repeats, tails, body_ops, layers;
    fak_repeat repeat[8];
    fak_tail tail[4];
    int failed;             /* an append ran out of memory: plan_pack says so */
} plan_draft;

uint32_t plan_add_value(plan_draft *d, const fak_value *v, uint32_t source); /* its id */
uint32_t plan_add_op(plan_draft *d, const fak_op *o, uint32_t origin);       /* its index */
int32_t plan_pack(plan *p, const plan_draft *d, fak_error *e);
void plan_draft_free(plan_draft *d);
#endif
