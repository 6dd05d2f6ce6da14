/* layout - matrices as the kernels read them: 16 rows together, as many bytes as in the file.  Of plain
 * dtypes [columns/8][16 r][8], columns padded with zeros.  Of block dtypes, of a group and 32 columns
 * (16 rows r, columns c = 4k + j):
 *
 *   codes of 8 bits    [8 k][16 r][4 j], the highest bit turned            Q8_0
 *   codes of 4 bits    [4 k][16 r][4 j]: column c low, column c + 16 high  all others
 *   a fifth bit        [8 k] 64 bits, bit 4r + j                           Q5_0 Q5_1 Q5_K
 *   two more bits      a plane of those for each                           Q6_K
 *   then the scales, and the minima where there are any, 16 f16 each
 *
 * K formats: of 256 columns eight times the codes, eight times the bits, then
 *   d[16] dmin[16] f16, scales [12][16] bytes                              Q4_K Q5_K
 *   scales [16][16] int8_t, d[16] f16                                      Q6_K */
#ifndef LAYOUT_H
#define LAYOUT_H
#include "kernels.h"

typedef struct layout {   /* where things lie in a group's block, bytes */
    uint32_t dtype, cols; /* of a block: 8, 32 or 256 */
    uint32_t row_bytes;   /* of a block of one row, as in the file */
    uint32_t bits, planes; /* how many planes of bits beside 4-bit codes, and where */
    uint32_t scale, zero; /* d; m or dmin; 0 = none */
    uint32_t sub;         /* scales of a K format; 0 = none */
    int32_t offset;       /* of the codes: a weight is d*(code - offset) */
} layout;

/* The block layouts, for layout.c's table and for the kernels, whose compiler must know them:
 * X(name, dtype, cols, row_bytes, bits, planes, scale, zero, sub, offset). */
#define BLOCK_LAYOUTS(X)                                                                           \
    X(q8_0, FAK_Q8_0, 32, 34, 0, 0, 512, 0, 0, 0)                                                  \
    X(q4_0, FAK_Q4_0, 32, 18, 0, 0, 256, 0, 0, 8)                                                  \
    X(q4_1, FAK_Q4_1, 32, 20, 0, 0, 256, 288, 0, 0)                                                \
    X(q5_0, FAK_Q5_0, 32, 22, 1, 256, 320, 0, 0, 16)                                               \
    X(q5_1, FAK_Q5_1, 32, 24, 1, 256, 320, 352, 0, 0)                                              \
    X(q4_k, FAK_Q4_K, 256, 144, 0, 0, 2048, 2080, 2112, 0)                                         \
    X(q5_k, FAK_Q5_K, 256, 176, 1, 2048, 2560, 2592, 2624, 0)                                      \
    X(q6_k, FAK_Q6_K, 256, 210, 2, 2048, 3328, 0, 3072, 32)

const layout *layout_find(uint32_t dtype); /* NULL for one that is unknown */
/* Bytes of a packed matrix: rows are padded to whole groups.  0: its columns are no whole blocks. */
uint64_t layout_bytes(uint32_t dtype, uint32_t rows, uint32_t cols);
/* Packs rows [0, 16) at src (native, dense; `rows` of them are there) into a group. */
void layout_pack(const layout *l, uint32_t cols, uint32_t rows, const uint8_t *src, uint8_t *group);
/* Bytes of a group of so many columns. */
size_t layout_group(const layout *l, uint32_t cols);
/* Row r of a group as F32, exactly. */
void layout_decode(const layout *l, uint32_t cols, const uint8_t *group, uint32_t r, float *out);

/* F16 and BF16 to F32, exactly, and to nearest even back. */
float half_to_float(uint16_t h);
uint16_t float_to_half(float x);
float bfloat_to_float(uint16_t h);
uint16_t float_to_bfloat(float x);
uint32_t plain_bytes(uint32_t dtype); /* of an element; 0 for another dtype */
#endif
