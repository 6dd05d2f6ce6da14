/* halves - numbers of 16 bits on the host, rounded to nearest even as on the device. */
#include "vk.h"

#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static float from_bits(uint32_t b)
{
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

static float half_value(uint16_t h)
{
    uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = h >> 10 & 31u, fraction = h & 1023u;
    if (exponent == 31) return from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent) return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float small = (float)fraction * 0x1p-24f;
    return sign ? -small : small;
}

static uint16_t half_of(float x)
{
    uint32_t b = bits_of(x), sign = b >> 16 & 0x8000u, size = b & 0x7fffffffu;
    if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (size >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
    if (size < 0x38800000u) { /* 2^-24 is one: adding 0.5 with its last bit there rounds */
        float sum = from_bits(size) + 0.5f;
        return (uint16_t)(sign | (bits_of(sum) - 0x3f000000u));
    }
    size += 0xfffu + (size >> 13 & 1u);
    return (uint16_t)(sign | (size - 0x38000000u) >> 13);
}

static uint16_t bfloat_of(float x)
{
    uint32_t b = bits_of(x);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(b >> 16 | 64u);
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}

uint32_t vk_element_bytes(uint32_t dtype)
{
    return dtype == FAK_F32 ? 4 : 2;
}

void vk_widen(uint32_t dtype, uint64_t n, const void *from, float *to)
{
    const uint16_t *h = from;
    if (dtype == FAK_F32) memcpy(to, from, n * sizeof *to);
    for (uint64_t i = 0; dtype != FAK_F32 && i < n; i++)
        to[i] = dtype == FAK_F16 ? half_value(h[i]) : from_bits((uint32_t)h[i] << 16);
}

void vk_narrow(uint32_t dtype, uint64_t n, const float *from, void *to)
{
    uint16_t *h = to;
    if (dtype == FAK_F32) memcpy(to, from, n * sizeof *from);
    for (uint64_t i = 0; dtype != FAK_F32 && i < n; i++)
        h[i] = dtype == FAK_F16 ? half_of(from[i]) : bfloat_of(from[i]);
}
