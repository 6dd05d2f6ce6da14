/* plan_check - proves that a block is a plan: what the reader, fuse and tests rely on. */
#ifndef PLAN_CHECK_H
#define PLAN_CHECK_H
#include "plan.h"

/* Checks offsets, ids, operands, parameters, shapes, order, repeats and tails of a block that lies in
 * `bytes` bytes.  FAK_E_ARGUMENT with one sentence; e->index is the op or value at fault. */
int32_t plan_check(const fak_plan *block, uint64_t bytes, fak_error *e);
/* Does the repeat hold as the ABI words it?  *e names the first op that does not. */
int32_t plan_check_repeat(const fak_plan *p, const fak_repeat *r, fak_error *e);
#endif
