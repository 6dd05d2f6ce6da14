/* ref - what every op means, on host arrays: the oracle and the floor.
 * The wording of the arithmetic is in abi/README.md; here it is to the bit.  IEEE binary32, nearest
 * even, a multiply then an add, never fused (built with -ffp-contract=off), brackets are the order.
 * One definition per op, whatever the number of rows: prefill and decode give the same bits.
 *
 * T rows, D model, F ffn, H heads, K kv heads, d head dim, V vocab, I/O in/out.
 * No state, no allocation; outputs never alias inputs unless said; any thread. */
#ifndef REF_H
#define REF_H
#include "dtype.h"
#include "ops.h"

/* ---- leaves ---- */

float ref_exp(float x);  /* about 1 ulp; below -87.33654 exactly 0; clamped at 88.3; NaN stays NaN */
float ref_tanh(float x); /* 1 - 2/(exp(2x)+1) */

/* s[i&7] = s[i&7] + a[i]*b[i], then ((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7)) */
float ref_dot(uint32_t n, const float *a, const float *b);

typedef struct ref_block { float d; int32_t sum; int8_t q[32]; } ref_block; /* 32 activations */
void ref_quantise(const float x[32], ref_block *out);

/* y[T,O] = x[T,I] w[O,I]^T.  act_q8 counts for block weights only.  scratch: ref_matmul_scratch. */
void ref_matmul(uint32_t dtype, uint32_t T, uint32_t O, uint32_t I, const void *w, const float *x,
                float *y, int act_q8, void *scratch);
uint64_t ref_matmul_scratch(uint32_t T, uint32_t I); /* bytes */

/* Each group of columns (group 0 = the row): y = (x * (1/sqrt(ss/n + eps))) * w; ss in order. */
void ref_rmsnorm(uint32_t D, uint32_t group, float eps, const float *x, const float *w, float *y);
/* x, y [heads*d]; tab: cos[rot/2], sin[rot/2] of the position.  Rotates halves; y may be x. */
void ref_rope(uint32_t heads, uint32_t d, uint32_t rot, const float *x, const float *tab, float *y);
void ref_glu(uint32_t n, uint32_t act, const float *g, const float *u, float *y);
void ref_softcap(uint32_t n, float cap, const float *x, float *y);
uint32_t ref_argmax(uint32_t n, const float *x); /* first maximum; 0xffffffff with a NaN */

/* ---- kv ---- */

typedef struct ref_kv {   /* of all layers and slots: [layer][slot][context][width] */
    uint32_t dtype;       /* F32, F16 or BF16: k and v are rounded to it on append */
    uint32_t slots, context, width; /* width: the widest layer's kv_heads*head_dim */
    void *k, *v;          /* rotated keys; values */
    float *raw;           /* keys before rotation, F32; NULL unless evictable */
} ref_kv;

uint64_t ref_kv_bytes(const ref_kv *kv, uint32_t layers); /* of k; of v alike */
/* Copies the first len positions of a layer's slot. */
void ref_kv_clone(const ref_kv *kv, uint32_t layer, uint32_t to, uint32_t from, uint32_t len);
/* Drops [first, first+count) of length len; survivors move down and are rotated from raw keys. */
void ref_kv_evict(const ref_kv *kv, const fak_op *append, uint32_t slot, uint32_t first,
                  uint32_t count, uint32_t len, const float *tab);
/* F32 rows of k and v, or back. */
void ref_kv_read(const ref_kv *kv, uint32_t layer, uint32_t slot, uint32_t pos, uint32_t cols,
                 float *k, float *v);
void ref_kv_write(const ref_kv *kv, uint32_t layer, uint32_t slot, uint32_t pos, uint32_t cols,
                  const float *k, const float *v);

typedef struct ref_heads { uint32_t heads, kv_heads, head_dim, window; float scale, softcap; } ref_heads;
/* One row at position pos over a slot's keys.  q, y [H*d]; scratch: ref_attention_scratch. */
void ref_attention(const ref_heads *h, const ref_kv *kv, uint32_t layer, uint32_t slot, uint32_t pos,
                   const float *q, float *y, float *scratch);
uint64_t ref_attention_scratch(uint32_t context, uint32_t head_dim); /* bytes */

/* ---- plan ops over memory that somebody else keeps ---- */

typedef struct ref_memory {
    fak_value *value; /* [values + OP_PARTS]; the last are for what fused ops hand on */
    void **at;        /* likewise: row 0 of each value, NULL where the op does not touch it */
    uint32_t values;
    const fak_step *step;
    ref_kv kv;
    int act_q8;
    void *scratch;    /* ref_op_scratch of the largest op */
} ref_memory;

/* UNSUPPORTED for an id that is not in the op table. */
int32_t ref_op(ref_memory *m, const fak_op *op);
/* Scratch bytes of an op for up to `rows` rows; temp[k] = columns of what part k hands on. */
uint64_t ref_op_scratch(const fak_op *op, fak_value *value, uint32_t values, uint32_t rows,
                        uint32_t context, uint32_t temp[OP_PARTS]);
uint32_t ref_rows(const fak_value *v, uint32_t rows, uint32_t wanted); /* of a value in a step */
#endif
