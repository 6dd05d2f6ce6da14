/* golden - a tiny model made in memory, run on a device and on the reference side by side: the proof of a
 * Reference claim, without any file. */
#ifndef GOLDEN_H
#define GOLDEN_H
#include "session.h"
#include "toy.h"

/* A two-layer llama; every core op of a llama is in its plan.  For K formats one layer, whose rows have
 * one block and two. */
extern const toy_shape golden_shape;
const toy_shape *golden_shape_of(uint32_t dtype);
/* Runs prompts and greedy steps on dev and on host (the reference), in every act mode that both offer and
 * for F32 and each block format that dev keeps; op by op and in whole ranges.  FAK_OK when all bits are
 * equal; STATUS_REFUSED naming the first op, layer and element that differ; or what else failed. */
int32_t golden_compare(device *dev, device *host, fak_error *e);
#endif
