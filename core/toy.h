/* toy - weights and small models made in memory from integers: the same bytes on every machine, no file.
 * A toy is a model (whose table of weights may also be used alone) and owns all that it points to. */
#ifndef TOY_H
#define TOY_H
#include "model.h"

typedef struct toy_shape { /* of a llama; rot_dim is head_dim */
    uint32_t width, ffn, heads, kv_heads, head_dim, vocab, layers, context;
} toy_shape;

#define TOY_SEED 88172645463325252u /* for those who need no other */

typedef struct toy {       /* zero-initialise */
    model m;
    gguf_tensor *tensor;   /* of the weights: what the row source reads */
    uint8_t *data;
    uint64_t used, room;   /* bytes of data; what is added never moves */
    uint32_t most;         /* weights */
    uint64_t random;
} toy;

/* Room for at most so many weights, of so many bytes in all, 64 more for each; seed: not 0. */
int32_t toy_open(toy *t, uint32_t most, uint64_t bytes, uint64_t seed, fak_error *e);
/* The whole model: every matrix of the dtype (widths are multiples of its block), norms F32. */
int32_t toy_make(toy *t, const toy_shape *shape, uint32_t dtype, uint64_t seed, fak_error *e);
void toy_free(toy *t); /* a zero or half-made toy is fine */

/* Adds [rows, cols] of center +- scale, rounded to the dtype; *index is its weight's. */
int32_t toy_add(toy *t, const char *name, uint32_t dtype, uint32_t rows, uint32_t cols, float center,
                float scale, uint32_t *index, fak_error *e);
int32_t toy_add_rope(toy *t, uint32_t context, uint32_t rot_dim, uint32_t *index, fak_error *e);
const void *toy_rows(const toy *t, uint32_t index); /* NATIVE, dense, aligned to 64 */

float toy_noise(uint64_t *random);                    /* in [-1, 1) */
uint32_t toy_below(uint64_t *random, uint32_t bound); /* in [0, bound) */
#endif
