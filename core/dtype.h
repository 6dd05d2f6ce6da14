/* dtype - sizes, exact row decode and quantisation of the weight formats.
 * Rows are dense; block formats are little-endian byte layouts on every host. */
#ifndef DTYPE_H
#define DTYPE_H
#include "../abi/fak_backend.h"

typedef struct dtype_info {
    uint32_t id;                 /* enum fak_dtype */
    const char *name;            /* "q8_0", as in --dtype */
    uint32_t block, block_bytes; /* weights in a block and its size; block 1 for plain dtypes */
    uint32_t scale_cols;         /* weights that share a scale: a row of SCALES has one for each */
    uint32_t form_mask;          /* 1 << enum fak_form that dtype_serve_row knows */
} dtype_info;

const dtype_info *dtype_find(uint32_t id);            /* NULL for one that is unknown here */
const dtype_info *dtype_by_name(const char *name);    /* NULL likewise */
const char *dtype_name(uint32_t id);                  /* "?" likewise */
/* Bytes of a row; 0 when the dtype is unknown or cols is no multiple of its block. */
uint64_t dtype_row_bytes(uint32_t id, uint32_t cols);

/* out[cols] = the exact value of each weight (numerics.md, "row decode"). */
void dtype_decode_row(uint32_t id, uint32_t cols, const void *row, float *out);
/* Rounds x[cols] into a row: F16/BF16 to nearest even; blocks of 32 as llama.cpp's reference quantiser,
 * K blocks by a simpler rule (dtype_encode.c); but a block with a NaN or an infinity gets a NaN for its
 * scale: it is not hidden. */
void dtype_encode_row(uint32_t id, uint32_t cols, const float *x, void *row);
/* Turns the byte order of a row's numbers: each of a plain dtype; of a block its f16 scales, and the word
 * of fifth bits, which llama.cpp keeps in the host's order. */
void dtype_swap_row(uint32_t id, uint32_t cols, void *row);
/* Must a row as it lies in a file of that order be turned to be one here?  Plain dtypes follow the host;
 * blocks are little-endian. */
int dtype_is_foreign(uint32_t id, int file_is_big);
/* One row of a form of the ABI (enum fak_form) that form_mask names. */
void dtype_serve_row(uint32_t id, uint32_t form, uint32_t cols, const void *row, void *out);
/* Bytes of such a row; 0 for a form that the dtype does not have, or cols that it cannot have. */
uint64_t dtype_form_bytes(uint32_t id, uint32_t form, uint32_t cols);

/* The scales of a K block (Q4_K, Q5_K, Q6_K) before any product is rounded: MATMUL with activations in Q8
 * multiplies them with integer sums first. */
typedef struct dtype_k {
    float d, dmin;       /* scale = d*sc, zero = -(dmin*mn); Q6_K has no minimum: dmin and mn are 0 */
    int8_t sc[16], mn[8]; /* of 32 columns each; sc of 16 in Q6_K */
} dtype_k;
void dtype_k_scales(uint32_t id, const void *block, dtype_k *out);

/* The first block of a row whose scale or minimum is no finite number, with its bits; FAK_NO_INDEX where
 * all are, and for plain dtypes. */
uint32_t dtype_bad_block(uint32_t id, uint32_t cols, const void *row, uint16_t *bits);

float dtype_from_f16(uint16_t h); /* exact; NaNs stay quiet NaNs */
uint16_t dtype_to_f16(float x);   /* nearest even; too large becomes infinite */
float dtype_from_bf16(uint16_t h);
uint16_t dtype_to_bf16(float x);
#endif
