/* format - weights as they lie on the device, a struct a dtype.
 *
 * Block formats are cut into two planes at load (../host/load.c): codes, 16-byte aligned, and scales.
 *   weight(w, scales, e)     element e of the plane, decoded exactly
 *   block(w, scales, b)      block of 32 number b, for products with Q8 activations
 *   PLAIN                    no block format: a row may have any length */
#ifndef FORMAT_H
#define FORMAT_H
#include "common.h"

/* ---- plain dtypes ---- */

struct f32 {
    enum { PLAIN = 1 };

    static __device__ float weight(gpu_ptr w, gpu_ptr, uint64_t e)
    {
        return at<const float>(w)[e];
    }
};

struct f16 {
    enum { PLAIN = 1 };

    static __device__ float of(uint16_t h)
    {
        return f32_of_f16(h);
    }

    static __device__ float weight(gpu_ptr w, gpu_ptr, uint64_t e)
    {
        return of(at<const uint16_t>(w)[e]);
    }
};

struct bf16 {
    enum { PLAIN = 1 };

    static __device__ float of(uint16_t h)
    {
        return f32_of_bf16(h);
    }

    static __device__ float weight(gpu_ptr w, gpu_ptr, uint64_t e)
    {
        return of(at<const uint16_t>(w)[e]);
    }
};

/* ---- block formats ---- */

/* 32 weights as whole numbers: four codes a word, as __dp4a takes them. */
struct codes32 {
    int q[8];
    float d, m; /* m: the minimum, or what minima are multiples of */
    int a, b;   /* multipliers of d, of halves of 16 in Q6_K, else of the block; b of m in Q4_K */
};

DEV void load32(codes32 &k, gpu_ptr p) /* 32 bytes, 16-byte aligned */
{
    int4 lo = at<const int4>(p)[0], hi = at<const int4>(p)[1];
    k.q[0] = lo.x, k.q[1] = lo.y, k.q[2] = lo.z, k.q[3] = lo.w;
    k.q[4] = hi.x, k.q[5] = hi.y, k.q[6] = hi.z, k.q[7] = hi.w;
}

DEV void load_nibbles(codes32 &k, gpu_ptr p) /* 16 bytes: low nibbles first, then high */
{
    int4 n = at<const int4>(p)[0];
    const int word[4] = {n.x, n.y, n.z, n.w};
    UNROLL for (int i = 0; i < 4; i++) {
        k.q[i] = word[i] & 0x0f0f0f0f;
        k.q[i + 4] = word[i] >> 4 & 0x0f0f0f0f;
    }
}

/* Each byte of 0..127 less `less`, which is a power of two of every byte. */
DEV int less_each(int bytes, uint32_t less)
{
    return static_cast<int>(((static_cast<uint32_t>(bytes) | 0x80808080u) - less) ^ 0x80808080u);
}

struct q8_0 {
    enum { PLAIN = 0 };

    static __device__ float weight(gpu_ptr w, gpu_ptr scales, uint64_t e)
    {
        float d = f32_of_f16(at<const uint16_t>(scales)[e / 32]);
        return d * static_cast<float>(at<const int8_t>(w)[e]);
    }

    static __device__ codes32 block(gpu_ptr w, gpu_ptr scales, uint64_t b)
    {
        codes32 k;
        load32(k, w + b * 32);
        k.d = f32_of_f16(at<const uint16_t>(scales)[b]);
        k.m = 0, k.a = 1, k.b = 0;
        return k;
    }

    /* The block's term of the sum; low, high: products with its halves of 16. */
    static __device__ float term(const codes32 &k, int low, int high, float dx, int)
    {
        return (static_cast<float>(low + high) * k.d) * dx;
    }
};

DEV int nibble(gpu_ptr w, uint64_t e) /* of a plane of blocks of 16 bytes */
{
    uint32_t i = e % 32;
    return at<const uint8_t>(w)[e / 32 * 16 + i % 16] >> (i / 16 * 4) & 15;
}

struct q4_0 {
    enum { PLAIN = 0 };

    static __device__ float weight(gpu_ptr w, gpu_ptr scales, uint64_t e)
    {
        float d = f32_of_f16(at<const uint16_t>(scales)[e / 32]);
        return d * static_cast<float>(nibble(w, e) - 8);
    }

    static __device__ codes32 block(gpu_ptr w, gpu_ptr scales, uint64_t b)
    {
        codes32 k;
        load_nibbles(k, w + b * 16);
        UNROLL for (int i = 0; i < 8; i++) k.q[i] = less_each(k.q[i], 0x08080808u);
        k.d = f32_of_f16(at<const uint16_t>(scales)[b]);
        k.m = 0, k.a = 1, k.b = 0;
        return k;
    }

    static __device__ float term(const codes32 &k, int low, int high, float dx, int)
    {
        return (static_cast<float>(low + high) * k.d) * dx;
    }
};

struct q4_1 { /* scales: d, then m, of each block */
    enum { PLAIN = 0 };

    static __device__ float weight(gpu_ptr w, gpu_ptr scales, uint64_t e)
    {
        const uint16_t *s = at<const uint16_t>(scales) + e / 32 * 2;
        return f32_of_f16(s[0]) * static_cast<float>(nibble(w, e)) + f32_of_f16(s[1]);
    }

    static __device__ codes32 block(gpu_ptr w, gpu_ptr scales, uint64_t b)
    {
        codes32 k;
        uint32_t s = at<const uint32_t>(scales)[b];
        load_nibbles(k, w + b * 16);
        k.d = f32_of_f16(static_cast<uint16_t>(s));
        k.m = f32_of_f16(static_cast<uint16_t>(s >> 16));
        k.a = 1, k.b = 0;
        return k;
    }

    static __device__ float term(const codes32 &k, int low, int high, float dx, int sum)
    {
        return (static_cast<float>(low + high) * k.d) * dx + k.m * (dx * static_cast<float>(sum));
    }
};

/* ---- K formats: blocks of 256 are eight of 32 ---- */

enum { Q4_K_BYTES = 144, Q6_K_BYTES = 208 };

struct q4_k { /* one plane, the file's blocks: d, m, scales[12], which are a head of 16 bytes; codes */
    enum { PLAIN = 0 };

    /* Scale and minimum number j. */
    static __device__ void scales_of(const int4 &head, uint32_t j, int &sc, int &mn)
    {
        uint32_t at_byte = j % 4 * 8, low = static_cast<uint32_t>(head.y) >> at_byte;
        uint32_t mid = static_cast<uint32_t>(head.z) >> at_byte;
        uint32_t high = static_cast<uint32_t>(head.w) >> at_byte;
        sc = static_cast<int>(j < 4 ? low & 63 : (high & 15) | (low >> 6 & 3) << 4);
        mn = static_cast<int>(j < 4 ? mid & 63 : (high >> 4 & 15) | (mid >> 6 & 3) << 4);
    }

    static __device__ float d_of(const int4 &head)
    {
        return f32_of_f16(static_cast<uint16_t>(head.x));
    }

    static __device__ float m_of(const int4 &head)
    {
        return f32_of_f16(static_cast<uint16_t>(head.x >> 16));
    }

    static __device__ float weight(gpu_ptr w, gpu_ptr, uint64_t e)
    {
        gpu_ptr at_block = w + e / 256 * Q4_K_BYTES;
        int4 head = at<const int4>(at_block)[0];
        uint32_t j = e / 32 % 8, i = e % 32;
        int sc, mn, q = at<const uint8_t>(at_block + 16)[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
        scales_of(head, j, sc, mn);
        return (d_of(head) * static_cast<float>(sc)) * static_cast<float>(q) -
               m_of(head) * static_cast<float>(mn);
    }

    static __device__ codes32 block(gpu_ptr w, gpu_ptr, uint64_t b)
    {
        codes32 k;
        gpu_ptr at_block = w + b / 8 * Q4_K_BYTES;
        int4 head = at<const int4>(at_block)[0];
        uint32_t j = b % 8;
        load32(k, at_block + 16 + j / 2 * 32);
        UNROLL for (int i = 0; i < 8; i++) k.q[i] = k.q[i] >> (j % 2 * 4) & 0x0f0f0f0f;
        k.d = d_of(head), k.m = m_of(head);
        scales_of(head, j, k.a, k.b);
        return k;
    }

    static __device__ float term(const codes32 &k, int low, int high, float dx, int sum)
    {
        float v = (static_cast<float>(k.a * (low + high)) * k.d) * dx;
        return v - (static_cast<float>(k.b * sum) * k.m) * dx;
    }
};

struct q6_k { /* codes: ql[128], qh[64], sc[16] of each block; scales: d */
    enum { PLAIN = 0 };

    static __device__ float weight(gpu_ptr w, gpu_ptr scales, uint64_t e)
    {
        const uint8_t *p = at<const uint8_t>(w + e / 256 * Q6_K_BYTES);
        uint32_t i = e % 256, n = i / 128, g = i / 32 % 4, l = i % 32;
        int low = p[64 * n + 32 * (g & 1) + l] >> (g / 2 * 4) & 15;
        int high = p[128 + 32 * n + l] >> (2 * g) & 3;
        int sc = static_cast<int8_t>(p[192 + i / 16]);
        float d = f32_of_f16(at<const uint16_t>(scales)[e / 256]);
        return (d * static_cast<float>(sc)) * static_cast<float>(low + 16 * high - 32);
    }

    static __device__ codes32 block(gpu_ptr w, gpu_ptr scales, uint64_t b)
    {
        codes32 k, high;
        gpu_ptr at_block = w + b / 8 * Q6_K_BYTES;
        uint32_t j = b % 8, n = j / 4, g = j % 4;
        load32(k, at_block + 64 * n + 32 * (g & 1));
        load32(high, at_block + 128 + 32 * n);
        UNROLL for (int i = 0; i < 8; i++) {
            int q = (k.q[i] >> (g / 2 * 4) & 0x0f0f0f0f) | (high.q[i] >> (2 * g) & 0x03030303) << 4;
            k.q[i] = less_each(q, 0x20202020u);
        }
        const int8_t *sc = at<const int8_t>(at_block + 192 + 2 * j);
        k.a = sc[0], k.b = sc[1], k.m = 0;
        k.d = f32_of_f16(at<const uint16_t>(scales)[b / 8]);
        return k;
    }

    static __device__ float term(const codes32 &k, int low, int high, float dx, int)
    {
        return (static_cast<float>(k.a * low + k.b * high) * k.d) * dx;
    }
};
#endif
