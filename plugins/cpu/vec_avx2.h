/* vec_avx2 - a vector of 8 floats, for AVX2 and F16C.  What each function means: vec_scalar.h. */
#ifndef VEC_H
#define VEC_H
#include <immintrin.h>
#include <stdint.h>

#define WIDE 0
enum { W = 8, PAIR = 1, ALONE = 8 };
#define INLINE static inline __attribute__((always_inline))

typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vp;

INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
INLINE vf vf_set(float x) { return _mm256_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vf_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE vf vf_zero_below(vf y, vf x, vf low)
{
    return _mm256_and_ps(_mm256_cmp_ps(x, low, _CMP_NLT_UQ), y);
}
INLINE vf vf_keep_nan(vf y, vf x)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
INLINE float vf_highest(vf a)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
INLINE int vf_has_nan(vf a)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0;
}
INLINE vf vf_from_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
INLINE vf vf_from_bf16(const uint16_t *p)
{
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}
INLINE vf vf_from_int(vi a) { return _mm256_cvtepi32_ps(a); }
INLINE vi vi_from_float(vf a) { return _mm256_cvtps_epi32(a); }
INLINE vf vf_cast(vi a) { return _mm256_castsi256_ps(a); }
INLINE vi vi_cast(vf a) { return _mm256_castps_si256(a); }

INLINE vi vi_set(int32_t x) { return _mm256_set1_epi32(x); }
INLINE vi vi_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
INLINE vi vi_mul(vi a, vi b) { return _mm256_mullo_epi32(a, b); }
INLINE vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
INLINE vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
INLINE vi vi_max(vi a, vi b) { return _mm256_max_epi32(a, b); }
INLINE vi vi_shift_left(vi a, int n) { return _mm256_slli_epi32(a, n); }
INLINE vi vi_shift_right(vi a, int n) { return _mm256_srli_epi32(a, n); }
INLINE int32_t vi_highest(vi a)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}
INLINE int32_t vi_sum(vi a)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
INLINE void vi_store_bytes(int8_t *p, vi a)
{
    __m128i s = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(s, s));
}
INLINE vi vi_from_bytes(const int8_t *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
INLINE vi vi_from_ubytes(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
INLINE vi vi_spread_bits(const uint8_t *p, int value)
{
    int32_t bits;
    __builtin_memcpy(&bits, p, 4);
    __m256i byte = _mm256_shuffle_epi8(
        _mm256_set1_epi32(bits), _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2,
                                                  2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
    __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(byte, bit), bit);
    return _mm256_and_si256(set, _mm256_set1_epi8((char)value));
}

enum { BYTES_BIAS = 0 };
INLINE vi vi_dot_codes(vi a, vi w, vi x)
{
    __m256i pairs = _mm256_maddubs_epi16(w, x);
    return _mm256_add_epi32(a, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
INLINE vi vi_dot_bytes(vi a, vi w, vi x) /* |w| * (x with the sign of w): |w| may be 128 */
{
    __m256i s = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
    return vi_dot_codes(a, _mm256_abs_epi8(s), _mm256_sign_epi8(x, s));
}

INLINE vp vp_zero(void) { return _mm256_setzero_ps(); }
INLINE vp vp_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE vp vp_from_f16(const uint16_t *p) { return vf_from_f16(p); }
INLINE vp vp_from_bf16(const uint16_t *p) { return vf_from_bf16(p); }
INLINE vp vp_muladd(vp s, vp a, vp b) { return _mm256_add_ps(s, _mm256_mul_ps(a, b)); }
INLINE void vp_store(float *p, vp a) { _mm256_storeu_ps(p, a); }
INLINE void vp_trees(const vp a[4], float *out)
{
    for (int i = 0; i < 4; i++) {
        float s[8];
        vp_store(s, a[i]);
        out[i] = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    }
}
#endif
