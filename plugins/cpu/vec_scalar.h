/* vec_scalar - a vector as an array of 8 floats: for any machine, and where each function is explained.
 * All arithmetic is IEEE binary32, lane by lane, nothing fused; integers wrap. */
#ifndef VEC_H
#define VEC_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#define WIDE 0
enum { W = 8, PAIR = 1, ALONE = 4 }; /* PAIR: rows of a vp; ALONE: vps of a tile of one token */
#define INLINE static inline __attribute__((always_inline))
#define EACH for (int i = 0; i < W; i++)

typedef struct vf { float at[W]; } vf;
typedef struct vi { int32_t at[W]; } vi;
typedef vf vp; /* the eight sums of a dot product, of PAIR rows */

INLINE vf vf_set(float x) { vf a; EACH a.at[i] = x; return a; }
INLINE vf vf_zero(void) { return vf_set(0); }
INLINE vf vf_load(const float *p) { vf a; memcpy(&a, p, sizeof a); return a; } /* unaligned */
INLINE void vf_store(float *p, vf a) { memcpy(p, &a, sizeof a); }
INLINE vf vf_add(vf a, vf b) { EACH a.at[i] = a.at[i] + b.at[i]; return a; }
INLINE vf vf_sub(vf a, vf b) { EACH a.at[i] = a.at[i] - b.at[i]; return a; }
INLINE vf vf_mul(vf a, vf b) { EACH a.at[i] = a.at[i] * b.at[i]; return a; }
INLINE vf vf_div(vf a, vf b) { EACH a.at[i] = a.at[i] / b.at[i]; return a; }
/* a > b ? a : b, so b where one is a NaN; and a < b ? a : b */
INLINE vf vf_max(vf a, vf b) { EACH a.at[i] = a.at[i] > b.at[i] ? a.at[i] : b.at[i]; return a; }
INLINE vf vf_min(vf a, vf b) { EACH a.at[i] = a.at[i] < b.at[i] ? a.at[i] : b.at[i]; return a; }
/* x < low ? 0 : y, so y where x is a NaN */
INLINE vf vf_zero_below(vf y, vf x, vf low)
{
    EACH y.at[i] = x.at[i] < low.at[i] ? 0 : y.at[i];
    return y;
}
/* x where it is a NaN, else y */
INLINE vf vf_keep_nan(vf y, vf x) { EACH y.at[i] = x.at[i] == x.at[i] ? y.at[i] : x.at[i]; return y; }
INLINE float vf_highest(vf a) /* of lanes of which none is a NaN */
{
    float m = a.at[0];
    EACH m = a.at[i] > m ? a.at[i] : m;
    return m;
}
INLINE int vf_has_nan(vf a) { int n = 0; EACH n |= a.at[i] != a.at[i]; return n; }

INLINE float scalar_bits(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }
INLINE float scalar_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
    if (rest >= 0x7c00u) return scalar_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13 | (rest > 0x7c00u ? 0x400000u : 0));
    if (rest >= 0x400u) return scalar_bits(sign | (rest + 0x1c000u) << 13);
    float x = (float)rest * 0x1p-24f;
    return sign ? -x : x;
}
INLINE vf vf_from_f16(const uint16_t *p) { vf a; EACH a.at[i] = scalar_f16(p[i]); return a; }
INLINE vf vf_from_bf16(const uint16_t *p)
{
    vf a;
    EACH a.at[i] = scalar_bits((uint32_t)p[i] << 16);
    return a;
}
INLINE vf vf_from_int(vi a) { vf b; EACH b.at[i] = (float)a.at[i]; return b; }
INLINE vi vi_from_float(vf a) /* to nearest even; |a| below 2^22 */
{
    vi b;
    EACH b.at[i] = (int32_t)((a.at[i] + 12582912.0f) - 12582912.0f);
    return b;
}
INLINE vf vf_cast(vi a) { vf b; memcpy(&b, &a, sizeof b); return b; } /* the bits */
INLINE vi vi_cast(vf a) { vi b; memcpy(&b, &a, sizeof b); return b; }

#define UINT(x) ((uint32_t)(x))
INLINE vi vi_set(int32_t x) { vi a; EACH a.at[i] = x; return a; }
INLINE vi vi_load(const void *p) { vi a; memcpy(&a, p, sizeof a); return a; } /* 4*W bytes */
INLINE vi vi_add(vi a, vi b) { EACH a.at[i] = (int32_t)(UINT(a.at[i]) + UINT(b.at[i])); return a; }
INLINE vi vi_mul(vi a, vi b) { EACH a.at[i] = (int32_t)(UINT(a.at[i]) * UINT(b.at[i])); return a; }
INLINE vi vi_and(vi a, vi b) { EACH a.at[i] &= b.at[i]; return a; }
INLINE vi vi_or(vi a, vi b) { EACH a.at[i] |= b.at[i]; return a; }
INLINE vi vi_max(vi a, vi b) { EACH a.at[i] = a.at[i] > b.at[i] ? a.at[i] : b.at[i]; return a; }
INLINE vi vi_shift_left(vi a, int n) { EACH a.at[i] = (int32_t)(UINT(a.at[i]) << n); return a; }
INLINE vi vi_shift_right(vi a, int n) { EACH a.at[i] = (int32_t)(UINT(a.at[i]) >> n); return a; }
INLINE int32_t vi_highest(vi a) { int32_t m = a.at[0]; EACH m = a.at[i] > m ? a.at[i] : m; return m; }
INLINE int32_t vi_sum(vi a) { int32_t s = 0; EACH s += a.at[i]; return s; }
/* W bytes from numbers that fit, and back */
INLINE void vi_store_bytes(int8_t *p, vi a) { EACH p[i] = (int8_t)a.at[i]; }
INLINE vi vi_from_bytes(const int8_t *p) { vi a; EACH a.at[i] = p[i]; return a; }
INLINE vi vi_from_ubytes(const uint8_t *p) { vi a; EACH a.at[i] = p[i]; return a; }
/* 4*W bytes: `value` where a bit of the 4*W from p on is set, lowest first; else 0 */
INLINE vi vi_spread_bits(const uint8_t *p, int value)
{
    uint8_t byte[4 * W];
    vi a;
    for (int i = 0; i < 4 * W; i++) byte[i] = p[i / 8] >> i % 8 & 1 ? (uint8_t)value : 0;
    memcpy(&a, byte, sizeof a);
    return a;
}

/* lane i: a[i] + the four products of bytes 4i.. of w and x, exactly.  codes: w is 0..63.  bytes: w is
 * a signed byte with its highest bit turned; the sum may be too large by BYTES_BIAS times the sum of x. */
enum { BYTES_BIAS = 0 };
INLINE vi scalar_dot(vi a, vi w, vi x, int turn)
{
    uint8_t p[4 * W];
    int8_t q[4 * W];
    memcpy(p, &w, sizeof p);
    memcpy(q, &x, sizeof q);
    for (int i = 0; i < 4 * W; i++) a.at[i / 4] += (turn ? (int8_t)(p[i] ^ 0x80) : p[i]) * q[i];
    return a;
}
INLINE vi vi_dot_codes(vi a, vi w, vi x) { return scalar_dot(a, w, x, 0); }
INLINE vi vi_dot_bytes(vi a, vi w, vi x) { return scalar_dot(a, w, x, 1); }

/* the eight sums of a dot product */
INLINE vp vp_zero(void) { return vf_zero(); }
INLINE vp vp_load(const float *p) { return vf_load(p); }
INLINE vp vp_from_f16(const uint16_t *p) { return vf_from_f16(p); }
INLINE vp vp_from_bf16(const uint16_t *p) { return vf_from_bf16(p); }
INLINE vp vp_muladd(vp s, vp a, vp b) { return vf_add(s, vf_mul(a, b)); } /* s + a*b, two roundings */
INLINE void vp_store(float *p, vp a) { vf_store(p, a); }
/* Of four vectors their sums ((0+1)+(2+3))+((4+5)+(6+7)): PAIR floats for each. */
INLINE void vp_trees(const vp a[4], float *out)
{
    for (int i = 0; i < 4; i++) {
        float s[8];
        vp_store(s, a[i]);
        out[i] = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    }
}
#endif
