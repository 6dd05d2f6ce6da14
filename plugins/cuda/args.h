/* args - the argument block of every kernel, for C, for nvcc and for the simulator.
 * Fixed-width members, the widest first, no padding: the same bytes on all sides.
 *
 * A row's activations are F32; where a MATMUL by block weights follows they are also Q8: codes [cols],
 * then, of each block of 32, d and the sum of its codes (abi/README.md, "Activation block"). */
#ifndef ARGS_H
#define ARGS_H
#include <stdint.h>

typedef uint64_t gpu_ptr; /* an address of the device: never dereferenced by the host */

enum {
    THREADS = 128,          /* of every block: four warps */
    WARPS = THREADS / 32,
    KV_PAGE = 32,           /* positions of a page of kv, and keys of a tile of attention */
    DOT_OUTPUTS = 16,       /* of a block of dot: eight threads each */
    VEC_ROWS = 8,           /* of activations that matvec takes at once */
    GEMM_OUTPUTS = 64,      /* the tile of gemm */
    GEMM_ROWS = 32,
    GEMM_COLS = 16,
    QUERIES = 8,            /* rows, or heads of a row, that attention takes at once */
    TILED_ROWS = 8,         /* spans of as many rows are tiled by attend_tile, shorter ones are not */
    HEAD_DIM_MAX = 256,
    SPLITS = THREADS,       /* parts of the keys that attend_merge takes at most */
    ARGMAX_COLS = 128,      /* of a block of argmax */
    PARTS = 3               /* weights that one launch multiplies by */
};

/* ---- the step, as kernels see it: a head, rows, spans, pages; offsets in bytes from the head ---- */

typedef struct step_head {
    uint32_t rows, wanted, spans, slot_pages;
    uint32_t row_at, span_at, page_at, zero;
} step_head;
typedef struct step_row { /* wanted: the row of want i */
    uint32_t token, span, pos, wanted;
} step_row;
typedef struct step_span { /* rows [row, row + rows) are positions from first on */
    uint32_t row, rows, first, zero;
} step_span;

enum scope { SCOPE_ROWS = 0, SCOPE_WANTED = 1 }; /* which of the step's counts an op's rows are */

typedef struct q8_rows { /* activations as Q8; codes 0: there are none */
    gpu_ptr codes, d, sum;
} q8_rows;

/* kv of one layer: [page][head][KV_PAGE][dim], of F32, F16 or BF16 (fak_dtype); raw keys F32. */
typedef struct kv_shape {
    gpu_ptr k, v, raw; /* raw 0: not kept */
    uint32_t dtype, heads, dim, page_elements;
} kv_shape;

/* ---- blocks ---- */

typedef struct embed_args {
    gpu_ptr step, w, scales, y;
    uint32_t vocab, cols;
} embed_args;
typedef struct norm_args { /* w has one row of `group` columns; y 0 or q 0: not wanted */
    gpu_ptr step, x, w, y;
    q8_rows q;
    uint32_t scope, cols, group, exact;
    float eps;
    uint32_t zero;
} norm_args;
typedef struct quantise_args {
    gpu_ptr step, x;
    q8_rows q;
    uint32_t scope, cols;
} quantise_args;

enum epilogue { EPILOGUE_NONE, EPILOGUE_ADD, EPILOGUE_GLU }; /* GLU: of part 0 and part 1, to y of 0 */
typedef struct matmul_part { /* blocks of the grid from `first` on compute its outputs */
    gpu_ptr w, scales, y;
    uint32_t out, first;
} matmul_part;
typedef struct matmul_args {
    gpu_ptr step, x, residual;
    q8_rows q;
    matmul_part part[PARTS];
    uint32_t scope, in, parts, epilogue, act, zero;
} matmul_args;

typedef struct rope_args { /* q to y with `heads`, and k, v to kv; either may be absent (heads 0) */
    gpu_ptr step, q, y, k, v, tab;
    kv_shape kv;
    uint32_t heads, dim, rot, zero;
} rope_args;
typedef struct attend_args {
    gpu_ptr step, q, y, partial; /* [row][head][split]{o[dim], m, l} */
    kv_shape kv;
    uint32_t heads, window;
    float scale, softcap;
    uint32_t splits, zero;
} attend_args;

typedef struct pair_args { /* b: ADD_BIAS has one row of it */
    gpu_ptr step, a, b, y;
    q8_rows q;
    uint32_t scope, cols, op, act;
} pair_args;
typedef struct map_args {
    gpu_ptr step, x, y;
    uint32_t scope, cols, op;
    float factor;
} map_args;
typedef struct rows_args {
    gpu_ptr step, x, y;
    uint32_t scope, cols;
} rows_args;
typedef struct argmax_args { /* partial: [row][part]{value, column} */
    gpu_ptr step, x, y, partial;
    uint32_t scope, cols, parts, zero;
} argmax_args;
typedef struct chain_args {
    gpu_ptr step, ids;
} chain_args;

/* ---- kv outside of steps ---- */

typedef struct copy_args { /* a page, in all layers; words of 4 bytes */
    gpu_ptr k, v, raw;
    uint64_t layer_words, raw_layer_words;
    uint32_t from, to, page_words, raw_page_words;
} copy_args;
typedef struct evict_args { /* positions [first, end) come from `count` further on; pages: two tables */
    gpu_ptr pages, tab;
    kv_shape kv;
    uint32_t slot_pages, first, count, end, rot, zero;
} evict_args;
typedef struct move_args { /* rows of F32 in host memory, from or to positions first.. */
    gpu_ptr pages, k, v;
    kv_shape kv;
    uint32_t first, len;
} move_args;
#endif
