/* kernels - the kernels themselves, the files that nvcc compiles, as C++ for the CPU. */
#include "kernels/all.cu"

namespace sim
{

float f32_of_f16(uint16_t h)
{
    uint32_t e = h >> 10 & 31, m = h & 1023u, sign = static_cast<uint32_t>(h >> 15) << 31;
    if (e == 31) return float_of(sign | 0x7f800000u | m << 13);
    if (e) return float_of(sign | (e + 112) << 23 | m << 13);
    float v = static_cast<float>(m) * 0x1p-24f;
    return sign ? -v : v;
}

uint16_t f16_of_f32(float f)
{
    uint32_t u = bits_of(f), sign = u >> 16 & 0x8000u, m = u & 0x7fffffffu;
    if (m > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
    if (m >= 0x477ff000u)
        return static_cast<uint16_t>(sign | 0x7c00u); /* beyond 65504 and a half */
    if (m >= 0x38800000u)
        return static_cast<uint16_t>(sign | ((m + 0xfffu + (m >> 13 & 1)) - 0x38000000u) >> 13);
    float tiny = float_of(m) * 0x1p24f; /* whole numbers of the least step */
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(rintf(tiny)));
}
} // namespace sim
