/* fuse - replaces runs of ops by fused ones, from the op table's literal sequences.
 * The plan builder never asks what a device can do; this file asks nothing else. */
#ifndef FUSE_H
#define FUSE_H
#include "plan.h"

/* Which fused ops may be used: bit i = row i of the op table (ops_row). */
typedef uint32_t fuse_mask;
fuse_mask fuse_offered(const fak_op_entry *op, uint32_t ops, uint32_t stride);

/* *to = *from with what `offered` allows.  refused[i] (ops of the unfused plan) masks what was refused
 * for the sequence that begins at op i.  A repeat stays where all its turns were fused alike. */
int32_t fuse_plan(plan *to, const plan *from, fuse_mask offered, const fuse_mask *refused,
                  fak_error *e);
#endif
