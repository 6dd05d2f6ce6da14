/* format - weights in the file's own form and on the card: block formats are cut into codes, which kernels
 * load 16 bytes at a time, and scales (kernels/format.h). */
#include "cuda.h"

#include <string.h>

static const format formats[FORMATS] = {
    {FAK_F32, 1, 4, 4, 0},        {FAK_F16, 1, 2, 2, 0},        {FAK_BF16, 1, 2, 2, 0},
    {FAK_Q8_0, 32, 34, 32, 2},    {FAK_Q4_0, 32, 18, 16, 2},    {FAK_Q4_1, 32, 20, 16, 4},
    {FAK_Q4_K, 256, 144, 144, 0}, {FAK_Q6_K, 256, 210, 208, 2},
};

const format *format_of(uint32_t dtype)
{
    for (uint32_t i = 0; i < FORMATS; i++)
        if (formats[i].dtype == dtype) return &formats[i];
    return NULL;
}

uint32_t format_number(const format *f)
{
    return (uint32_t)(f - formats);
}

static uint64_t blocks(const format *f, const fak_value *v)
{
    return v->cols / f->block * (uint64_t)v->rows;
}

uint64_t format_codes(const format *f, const fak_value *v)
{
    return blocks(f, v) * f->codes;
}

uint64_t format_scales(const format *f, const fak_value *v)
{
    return blocks(f, v) * f->scales;
}

/* Q6_K has its scale behind the codes, the others before them. */
void format_cut(const format *f, const uint8_t *block, uint64_t count, uint8_t *codes,
                uint8_t *scales)
{
    uint32_t at_scale = f->dtype == FAK_Q6_K ? f->codes : 0;
    uint32_t at_codes = f->dtype == FAK_Q6_K ? 0 : f->scales;
    for (uint64_t i = 0; i < count; i++, block += f->native) {
        memcpy(codes + i * f->codes, block + at_codes, f->codes);
        memcpy(scales + i * f->scales, block + at_scale, f->scales);
    }
}
