/* kernels - the leaves, a set for each tier: loops on plain pointers and sizes, no state.  A set is a
 * table by (op, dtype); a row is all that a new kernel needs.  Every tier gives the same bits, those of
 * the reference: sums have the contract's order, vectors go across what has no order. */
#ifndef KERNELS_H
#define KERNELS_H
#include "fak_backend.h"

enum { GROUP = 16, BLOCK = 32, TILE_MAX = 12 }; /* rows that are packed together; columns; tokens */

/* ---- activations of a MATMUL: panels of `tokens` rows, 1 or as many as a tile takes ---- */

/* For block weights in Q8 mode: for each 32 columns
 *   int32_t sum[tokens]; int32_t half[tokens]; float d[tokens]; float t[tokens]; int8_t q[8][tokens][4]
 * sum of q, of its first 16; the scale; d*(float)sum; columns 4k..4k+3 at q[k]. */
enum { PANEL_BLOCK_BYTES = 48 }; /* of a token */
/* For plain weights: float [columns/8][tokens][pair][8], columns padded with zeros, all `pair` alike. */

typedef struct panel_args {
    uint32_t tokens, rows, cols; /* of the panel; rows that are there, the others are zeros */
    const float *x;
    size_t stride;               /* floats from row to row */
    void *panel;
} panel_args;
typedef void panel_fn(const panel_args *);

/* ---- MATMUL: 16 rows of a weight by one panel ---- */

typedef struct matmul_args {
    const uint8_t *w;    /* the group, packed (layout.h) */
    const void *x;       /* the panel */
    float *y;            /* [tokens, ...] first of the group's outputs of the panel's first token */
    const float *add;    /* NULL, or what is added to it, laid out as y */
    size_t stride;       /* floats from token to token of y and add */
    uint32_t cols, rows, tokens; /* rows and tokens that are there */
} matmul_args;
typedef void matmul_fn(const matmul_args *);

/* ---- ops on one row ---- */

/* RMSNORM x w, GLU g u, ADD a b, ADD_BIAS x b, SCALE x, SOFTCAP x, ROPE x and the table's row,
 * ARGMAX x (y: one uint32_t); y may be a. */
typedef void row_fn(const fak_op *op, uint32_t cols, const float *a, const float *b, float *y);

/* ---- ATTENTION: up to 6 queries that read one kv head ---- */

enum { QUERIES = 6 };
typedef struct attention_args {
    const fak_op *op;
    uint32_t queries;
    const float *q[QUERIES]; /* [head_dim] */
    float *y[QUERIES];       /* [head_dim] */
    uint32_t from[QUERIES], end[QUERIES]; /* visible positions: rising from query to query */
    const void *keys;        /* blocks of 16 positions, [head_dim][16] */
    const void *values;      /* [position][value_stride] */
    uint32_t value_stride;   /* elements; a multiple of 16 */
    float *scratch;          /* QUERIES * (positions of the slot, rounded up to 32) */
    size_t score_stride;
} attention_args;
typedef void attention_fn(const attention_args *);

/* ---- the sets ---- */

/* "Ops" that fill panels, and one that turns n values of 16 bits, whole groups, into F32. */
enum { KERNEL_QUANTISE = 256, KERNEL_PANEL = 257, KERNEL_WIDEN = 258 };
typedef void widen_fn(uint32_t n, const uint8_t *from, float *to);
typedef void kernel_fn(void);
typedef struct kernel {
    uint32_t op, dtype, tokens; /* tokens of a MATMUL's panel; dtype: of the weight, or of kv, or 0 */
    kernel_fn *fn;
} kernel;
typedef struct kernel_set {
    uint32_t rows;
    const kernel *row;
    uint32_t tile, pair;        /* tokens of the largest panel; of plain panels, see above */
} kernel_set;

extern const kernel_set cpu_kernels_scalar;
#if defined __x86_64__
extern const kernel_set cpu_kernels_avx2, cpu_kernels_avx512, cpu_kernels_vnni;
#elif defined __aarch64__
extern const kernel_set cpu_kernels_neon, cpu_kernels_dot;
#endif

/* The row's function, or NULL. */
kernel_fn *kernel_find(const kernel_set *set, uint32_t op, uint32_t dtype, uint32_t tokens);
/* The tokens of the panels for so many rows. */
uint32_t kernel_tile(const kernel_set *set, uint32_t rows);
#endif
