/* vec_neon - a vector of 4 floats, for 64-bit Arm; with CPU_DOT also SDOT.  See vec_scalar.h. */
#ifndef VEC_H
#define VEC_H
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define WIDE 0
enum { W = 4, PAIR = 1, ALONE = 8 };
#define INLINE static inline __attribute__((always_inline))

typedef float32x4_t vf;
typedef int32x4_t vi;
typedef struct vp { float32x4_t low, high; } vp;

INLINE vf vf_zero(void) { return vdupq_n_f32(0); }
INLINE vf vf_set(float x) { return vdupq_n_f32(x); }
INLINE vf vf_load(const float *p) { return vld1q_f32(p); }
INLINE void vf_store(float *p, vf a) { vst1q_f32(p, a); }
INLINE vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
INLINE vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
INLINE vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
INLINE vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
INLINE vf vf_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
INLINE vf vf_min(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
INLINE vf vf_zero_below(vf y, vf x, vf low)
{
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y), vcltq_f32(x, low)));
}
INLINE vf vf_keep_nan(vf y, vf x) { return vbslq_f32(vceqq_f32(x, x), y, x); }
INLINE float vf_highest(vf a) { return vmaxvq_f32(a); }
INLINE int vf_has_nan(vf a) { return vminvq_u32(vceqq_f32(a, a)) == 0; }
INLINE vf vf_from_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
INLINE vf vf_from_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
INLINE vf vf_from_int(vi a) { return vcvtq_f32_s32(a); }
INLINE vi vi_from_float(vf a) { return vcvtnq_s32_f32(a); }
INLINE vf vf_cast(vi a) { return vreinterpretq_f32_s32(a); }
INLINE vi vi_cast(vf a) { return vreinterpretq_s32_f32(a); }

INLINE vi vi_set(int32_t x) { return vdupq_n_s32(x); }
INLINE vi vi_load(const void *p) { return vreinterpretq_s32_u8(vld1q_u8((const uint8_t *)p)); }
INLINE vi vi_add(vi a, vi b) { return vaddq_s32(a, b); }
INLINE vi vi_mul(vi a, vi b) { return vmulq_s32(a, b); }
INLINE vi vi_and(vi a, vi b) { return vandq_s32(a, b); }
INLINE vi vi_or(vi a, vi b) { return vorrq_s32(a, b); }
INLINE vi vi_max(vi a, vi b) { return vmaxq_s32(a, b); }
INLINE vi vi_shift_left(vi a, int n) { return vshlq_s32(a, vdupq_n_s32(n)); }
INLINE vi vi_shift_right(vi a, int n)
{
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-n)));
}
INLINE int32_t vi_highest(vi a) { return vmaxvq_s32(a); }
INLINE int32_t vi_sum(vi a) { return vaddvq_s32(a); }
INLINE void vi_store_bytes(int8_t *p, vi a)
{
    int16x4_t s = vmovn_s32(a);
    int8x8_t b = vmovn_s16(vcombine_s16(s, s));
    vst1_lane_s32((int32_t *)(void *)p, vreinterpret_s32_s8(b), 0);
}
INLINE vi vi_from_bytes(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, 4);
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)))));
}
INLINE vi vi_from_ubytes(const uint8_t *p)
{
    uint32_t four;
    memcpy(&four, p, 4);
    return vreinterpretq_s32_u32(
        vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four))))));
}
INLINE vi vi_spread_bits(const uint8_t *p, int value)
{
    uint8x16_t byte = vcombine_u8(vdup_n_u8(p[0]), vdup_n_u8(p[1]));
    uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ull));
    return vreinterpretq_s32_u8(vandq_u8(vtstq_u8(byte, bit), vdupq_n_u8((uint8_t)value)));
}

enum { BYTES_BIAS = 0 };
INLINE vi vi_dot_codes(vi a, vi w, vi x)
{
    int8x16_t p = vreinterpretq_s8_s32(w), q = vreinterpretq_s8_s32(x);
#ifdef CPU_DOT
    return vdotq_s32(a, p, q);
#else
    int16x8_t low = vmull_s8(vget_low_s8(p), vget_low_s8(q)), high = vmull_high_s8(p, q);
    return vaddq_s32(a, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
}
INLINE vi vi_dot_bytes(vi a, vi w, vi x)
{
    return vi_dot_codes(a, veorq_s32(w, vdupq_n_s32((int32_t)0x80808080u)), x);
}

INLINE vp vp_zero(void) { return (vp){vdupq_n_f32(0), vdupq_n_f32(0)}; }
INLINE vp vp_load(const float *p) { return (vp){vld1q_f32(p), vld1q_f32(p + 4)}; }
INLINE vp vp_from_f16(const uint16_t *p) { return (vp){vf_from_f16(p), vf_from_f16(p + 4)}; }
INLINE vp vp_from_bf16(const uint16_t *p) { return (vp){vf_from_bf16(p), vf_from_bf16(p + 4)}; }
INLINE vp vp_muladd(vp s, vp a, vp b)
{
    return (vp){vaddq_f32(s.low, vmulq_f32(a.low, b.low)),
                vaddq_f32(s.high, vmulq_f32(a.high, b.high))};
}
INLINE void vp_store(float *p, vp a)
{
    vst1q_f32(p, a.low);
    vst1q_f32(p + 4, a.high);
}
INLINE void vp_trees(const vp a[4], float *out)
{
    for (int i = 0; i < 4; i++) {
        float s[8];
        vp_store(s, a[i]);
        out[i] = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    }
}
#endif
