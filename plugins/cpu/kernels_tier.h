/* kernels_tier - all kernels, written once over the vectors of vec_*.h; each tier's file includes one of
 * those, then this, and names its set with KERNEL_SET.  Brackets are the contract's order of operations. */
#include "kernels_attention.h"
#include "kernels_blocks.h"
#include "kernels_plain.h"
#include "kernels_rows.h"

/* ---- MATMUL for each size of a panel; TILE: tokens of the largest ---- */

#define TILED(name, fn, what, n)                                                                   \
    static void name##_##n(const matmul_args *a) { fn(what, a, n); }
#define ROW(op, dtype, tokens, fn) {op, dtype, tokens, (kernel_fn *)fn}
#if WIDE
enum { TILE = 12 };
#define MATMULS(name, fn, what)                                                                    \
    TILED(name, fn, what, 1) TILED(name, fn, what, 4) TILED(name, fn, what, 8) TILED(name, fn, what, 12)
#define ROWS_MATMUL(name, dtype)                                                                   \
    ROW(FAK_OP_MATMUL, dtype, 1, name##_1), ROW(FAK_OP_MATMUL, dtype, 4, name##_4),                \
        ROW(FAK_OP_MATMUL, dtype, 8, name##_8), ROW(FAK_OP_MATMUL, dtype, 12, name##_12),
#else
enum { TILE = 4 };
#define MATMULS(name, fn, what) TILED(name, fn, what, 1) TILED(name, fn, what, 4)
#define ROWS_MATMUL(name, dtype)                                                                   \
    ROW(FAK_OP_MATMUL, dtype, 1, name##_1), ROW(FAK_OP_MATMUL, dtype, 4, name##_4),
#endif

MATMULS(f32, matmul_plain, FAK_F32)
MATMULS(f16, matmul_plain, FAK_F16)
MATMULS(bf16, matmul_plain, FAK_BF16)
#define BLOCKS(name, ...)                                                                          \
    static const layout layout_##name = {__VA_ARGS__};                                             \
    MATMULS(name, matmul_blocks, &layout_##name)
BLOCK_LAYOUTS(BLOCKS)

/* ---- the table ---- */

#define ROWS_BLOCKS(name, dtype, ...) ROWS_MATMUL(name, dtype)
static const kernel rows[] = {
    ROWS_MATMUL(f32, FAK_F32)
    ROWS_MATMUL(f16, FAK_F16)
    ROWS_MATMUL(bf16, FAK_BF16)
    BLOCK_LAYOUTS(ROWS_BLOCKS)
    ROW(FAK_OP_ATTENTION, FAK_F32, 0, attention_f32),
    ROW(FAK_OP_ATTENTION, FAK_F16, 0, attention_f16),
    ROW(FAK_OP_ATTENTION, FAK_BF16, 0, attention_bf16),
    ROW(FAK_OP_RMSNORM, 0, 0, rmsnorm),
    ROW(FAK_OP_RMSNORM, 0, 4, rmsnorm4),
    ROW(FAK_OP_ROPE, 0, 0, rope),
    ROW(FAK_OP_GLU, 0, 0, glu),
    ROW(FAK_OP_ADD, 0, 0, add),
    ROW(FAK_OP_ADD_BIAS, 0, 0, add),
    ROW(FAK_OP_SCALE, 0, 0, scale),
    ROW(FAK_OP_SOFTCAP, 0, 0, softcap),
    ROW(FAK_OP_ARGMAX, 0, 0, argmax),
    ROW(KERNEL_QUANTISE, 0, 0, quantise),
    ROW(KERNEL_PANEL, 0, 0, pack),
    ROW(KERNEL_WIDEN, FAK_F16, 0, widen_f16),
    ROW(KERNEL_WIDEN, FAK_BF16, 0, widen_bf16),
};
const kernel_set KERNEL_SET = {sizeof rows / sizeof *rows, rows, TILE, PAIR};
