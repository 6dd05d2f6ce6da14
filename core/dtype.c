/* dtype - see dtype.h: the table, sizes, and what is told of a block without decoding it.  Rows are
 * decoded in dtype_rows.c and made in dtype_encode.c. */
#include "dtype.h"

#include <string.h>

enum {
    PLAIN = 1u << FAK_NATIVE | 1u << FAK_AS_F32,
    SCALED = PLAIN | 1u << FAK_CODES | 1u << FAK_SCALES,
    SHIFTED = SCALED | 1u << FAK_ZEROS
};

/* clang-format off */
static const dtype_info table[] = {
    {FAK_F32, "f32", 1, 4, 1, PLAIN},            {FAK_F16, "f16", 1, 2, 1, PLAIN},
    {FAK_BF16, "bf16", 1, 2, 1, PLAIN},          {FAK_I32, "i32", 1, 4, 1, 1u << FAK_NATIVE},
    {FAK_Q8_0, "q8_0", 32, 34, 32, SCALED},      {FAK_Q4_0, "q4_0", 32, 18, 32, SCALED},
    {FAK_Q4_1, "q4_1", 32, 20, 32, SHIFTED},     {FAK_Q5_0, "q5_0", 32, 22, 32, SCALED},
    {FAK_Q5_1, "q5_1", 32, 24, 32, SHIFTED},     {FAK_Q4_K, "q4_k", 256, 144, 32, SHIFTED},
    {FAK_Q5_K, "q5_k", 256, 176, 32, SHIFTED},   {FAK_Q6_K, "q6_k", 256, 210, 16, SCALED},
};
/* clang-format on */

const dtype_info *dtype_find(uint32_t id)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].id == id) return &table[i];
    return NULL;
}

const dtype_info *dtype_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name)) return &table[i];
    return NULL;
}

const char *dtype_name(uint32_t id)
{
    const dtype_info *info = dtype_find(id);
    return info ? info->name : "?";
}

uint64_t dtype_row_bytes(uint32_t id, uint32_t cols)
{
    const dtype_info *info = dtype_find(id);
    return info && cols % info->block == 0 ? (uint64_t)cols / info->block * info->block_bytes : 0;
}

uint64_t dtype_form_bytes(uint32_t id, uint32_t form, uint32_t cols)
{
    const dtype_info *info = dtype_find(id);
    if (!info || form > FAK_ZEROS || !(info->form_mask >> form & 1) || cols % info->block) return 0;
    if (form == FAK_NATIVE) return dtype_row_bytes(id, cols);
    if (form == FAK_AS_F32) return (uint64_t)cols * 4;
    return form == FAK_CODES ? cols : (uint64_t)cols / info->scale_cols * 4;
}

/* ---- the numbers in a block ---- */

/* f16 numbers of a block: the scale, then the minimum of those that have one; and where they begin. */
static uint32_t halves_of(const dtype_info *info)
{
    return info->block == 1 ? 0 : info->form_mask >> FAK_ZEROS & 1 ? 2 : 1;
}

static uint32_t first_half(const dtype_info *info)
{
    return info->id == FAK_Q6_K ? 208 : 0;
}

static void swap(uint8_t *p, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes / 2; i++) {
        uint8_t low = p[i];
        p[i] = p[bytes - 1 - i];
        p[bytes - 1 - i] = low;
    }
}

void dtype_swap_row(uint32_t id, uint32_t cols, void *row)
{
    const dtype_info *info = dtype_find(id);
    uint8_t *block = row;
    for (uint32_t b = 0; b < cols / info->block; b++, block += info->block_bytes) {
        uint32_t halves = halves_of(info), at = first_half(info);
        if (info->block == 1) swap(block, info->block_bytes);
        for (uint32_t i = 0; i < halves; i++) swap(block + at + 2 * i, 2);
        if (id == FAK_Q5_0 || id == FAK_Q5_1) swap(block + at + 2 * halves, 4); /* the fifth bits */
    }
}

int dtype_is_foreign(uint32_t id, int file_is_big)
{
    const uint16_t one = 1;
    uint8_t low;
    memcpy(&low, &one, 1);
    int host_is_big = !low, here_is_big = dtype_find(id)->block > 1 ? 0 : host_is_big;
    return !file_is_big != !here_is_big;
}

uint32_t dtype_bad_block(uint32_t id, uint32_t cols, const void *row, uint16_t *bits)
{
    const dtype_info *info = dtype_find(id);
    const uint8_t *block = row;
    uint32_t halves = halves_of(info), at = first_half(info);
    if (!halves) return FAK_NO_INDEX;
    for (uint32_t b = 0; b < cols / info->block; b++, block += info->block_bytes)
        for (uint32_t i = 0; i < halves; i++) {
            *bits = (uint16_t)(block[at + 2 * i] | block[at + 2 * i + 1] << 8);
            if ((*bits & 0x7c00u) == 0x7c00u) return b;
        }
    return FAK_NO_INDEX;
}
