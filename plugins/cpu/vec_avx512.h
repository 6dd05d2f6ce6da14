/* vec_avx512 - a vector of 16 floats, for AVX-512 F, BW, VL and DQ; with CPU_VNNI also VNNI.
 * What each function means is said once, in vec_scalar.h. */
#ifndef VEC_H
#define VEC_H
#include <immintrin.h>
#include <stdint.h>

#define WIDE 1
enum { W = 16, PAIR = 2, ALONE = 8 };
#define INLINE static inline __attribute__((always_inline))

typedef __m512 vf;
typedef __m512i vi;
typedef __m512 vp;

INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
INLINE vf vf_set(float x) { return _mm512_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf vf_zero_below(vf y, vf x, vf low)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ), y);
}
INLINE vf vf_keep_nan(vf y, vf x)
{
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
}
INLINE float vf_highest(vf a) { return _mm512_reduce_max_ps(a); }
INLINE int vf_has_nan(vf a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0; }
INLINE vf vf_from_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
INLINE vf vf_from_bf16(const uint16_t *p)
{
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}
INLINE vf vf_from_int(vi a) { return _mm512_cvtepi32_ps(a); }
INLINE vi vi_from_float(vf a) { return _mm512_cvtps_epi32(a); }
INLINE vf vf_cast(vi a) { return _mm512_castsi512_ps(a); }
INLINE vi vi_cast(vf a) { return _mm512_castps_si512(a); }

INLINE vi vi_set(int32_t x) { return _mm512_set1_epi32(x); }
INLINE vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
INLINE vi vi_mul(vi a, vi b) { return _mm512_mullo_epi32(a, b); }
INLINE vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
INLINE vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); }
INLINE vi vi_shift_left(vi a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
INLINE vi vi_shift_right(vi a, int n) { return _mm512_srli_epi32(a, (unsigned)n); }
INLINE int32_t vi_highest(vi a) { return _mm512_reduce_max_epi32(a); }
INLINE int32_t vi_sum(vi a) { return _mm512_reduce_add_epi32(a); }
INLINE void vi_store_bytes(int8_t *p, vi a)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a));
}
INLINE vi vi_from_bytes(const int8_t *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}
INLINE vi vi_from_ubytes(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
INLINE vi vi_spread_bits(const uint8_t *p, int value)
{
    uint64_t mask;
    __builtin_memcpy(&mask, p, 8);
    return _mm512_maskz_set1_epi8(mask, (char)value);
}

#ifdef CPU_VNNI
enum { BYTES_BIAS = 128 };
INLINE vi vi_dot_codes(vi a, vi w, vi x) { return _mm512_dpbusd_epi32(a, w, x); }
INLINE vi vi_dot_bytes(vi a, vi w, vi x) { return _mm512_dpbusd_epi32(a, w, x); }
#else
enum { BYTES_BIAS = 0 };
INLINE vi vi_dot_codes(vi a, vi w, vi x)
{
    __m512i pairs = _mm512_maddubs_epi16(w, x);
    return _mm512_add_epi32(a, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
INLINE vi vi_dot_bytes(vi a, vi w, vi x) /* |w| * (x with the sign of w): |w| may be 128 */
{
    __m512i s = _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80));
    __mmask64 negative = _mm512_movepi8_mask(s);
    x = _mm512_mask_sub_epi8(x, negative, _mm512_setzero_si512(), x);
    return vi_dot_codes(a, _mm512_abs_epi8(s), x);
}
#endif

INLINE vp vp_zero(void) { return vf_zero(); }
INLINE vp vp_load(const float *p) { return vf_load(p); }
INLINE void vp_store(float *p, vp a) { vf_store(p, a); }
INLINE vp vp_from_f16(const uint16_t *p) { return vf_from_f16(p); }
INLINE vp vp_from_bf16(const uint16_t *p) { return vf_from_bf16(p); }
INLINE vp vp_muladd(vp s, vp a, vp b) { return vf_add(s, vf_mul(a, b)); }
INLINE vf pair_sums(vf a, vf b)
{
    return vf_add(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}
INLINE void vp_trees(const vp a[4], float *out)
{
    const __m512i order = _mm512_set_epi32(15, 7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0);
    vf v = pair_sums(pair_sums(a[0], a[1]), pair_sums(a[2], a[3]));
    v = vf_add(v, _mm512_shuffle_f32x4(v, v, 0xb1)); /* four first rows, again, four second, again */
    v = _mm512_permutexvar_ps(order, v);
    _mm256_storeu_ps(out, _mm512_castps512_ps256(v));
}
#endif
