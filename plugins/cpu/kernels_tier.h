/* kernels_tier - all kernels, written once over the vectors of vec_*.h; each tier's file includes one of
 * those, then this, and names its set with KERNEL_SET.  Brackets are the contract's order of operations. */
#include "kernels_attention.h"
#include "kernels_blocks.h"
#include "kernels_plain.h"
#include "kernels_rows.h"

/* ---- the table ---- */

#define ROW(op, dtype, tokens, fn) {op, dtype, tokens, (kernel_fn *)fn}
#if WIDE
#define ROWS_MATMUL(dtype, name)                                                                   \
    ROW(FAK_OP_MATMUL, dtype, 1, name##_1), ROW(FAK_OP_MATMUL, dtype, 4, name##_4),                \
        ROW(FAK_OP_MATMUL, dtype, 8, name##_8), ROW(FAK_OP_MATMUL, dtype, 12, name##_12)
enum { TILE = 12 };
#else
#define ROWS_MATMUL(dtype, name)                                                                   \
    ROW(FAK_OP_MATMUL, dtype, 1, name##_1), ROW(FAK_OP_MATMUL, dtype, 4, name##_4)
enum { TILE = 4 };
#endif

static const kernel rows[] = {
    ROWS_MATMUL(FAK_F32, f32),
    ROWS_MATMUL(FAK_F16, f16),
    ROWS_MATMUL(FAK_BF16, bf16),
    ROWS_MATMUL(FAK_Q8_0, q8_0),
    ROWS_MATMUL(FAK_Q4_0, q4_0),
    ROWS_MATMUL(FAK_Q4_1, q4_1),
    ROWS_MATMUL(FAK_Q5_0, q5_0),
    ROWS_MATMUL(FAK_Q5_1, q5_1),
    ROWS_MATMUL(FAK_Q4_K, q4_k),
    ROWS_MATMUL(FAK_Q5_K, q5_k),
    ROWS_MATMUL(FAK_Q6_K, q6_k),
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
