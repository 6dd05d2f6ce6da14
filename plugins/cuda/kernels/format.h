/* format - weights as they lie on the device, a struct a dtype.
 *
 * Block formats are cut into two planes at load (../load.c): codes, 16-byte aligned, and scales.
 *   weight(w, scales, e)     element e of the plane, decoded exactly
 *   block(w, scales, b)      block of 32 number b, for products with Q8 activations */
#ifndef FORMAT_H
#define FORMAT_H
#include "common.h"

/* ---- plain dtypes ---- */

struct f32 {
    static __device__ float weight(gpu_ptr w, gpu_ptr, uint64_t e)
    {
        return at<const float>(w)[e];
    }
};

struct f16 {
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

struct q4_k { /* one plane, the file's blocks */
    static __device__ void scales_of(const uint8_t *s, uint32_t j, int &sc, int &mn)
    {
        sc = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
        mn = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
    }

    static __device__ float weight(gpu_ptr w, gpu_ptr, uint64_t e)
    {
        gpu_ptr at_block = w + e / 256 * Q4_K_BYTES;
        const uint16_t *d = at<const uint16_t>(at_block);
        uint32_t j = e / 32 % 8, i = e % 32;
        int sc, mn, q = at<const uint8_t>(at_block + 16)[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
        scales_of(at<const uint8_t>(at_block + 4), j, sc, mn);
        return (f32_of_f16(d[0]) * static_cast<float>(sc)) * static_cast<float>(q) -
               f32_of_f16(d[1]) * static_cast<float>(mn);
    }

    static __device__ codes32 block(gpu_ptr w, gpu_ptr, uint64_t b)
    {
        codes32 k;
        gpu_ptr at_block = w + b / 8 * Q4_K_BYTES;
        uint32_t j = b % 8, d = at<const uint32_t>(at_block)[0];
        load32(k, at_block + 16 + j / 2 * 32);
        UNROLL for (int i = 0; i < 8; i++) k.q[i] = k.q[i] >> (j % 2 * 4) & 0x0f0f0f0f;
        k.d = f32_of_f16(static_cast<uint16_t>(d));
        k.m = f32_of_f16(static_cast<uint16_t>(d >> 16));
        scales_of(at<const uint8_t>(at_block + 4), j, k.a, k.b);
        return k;
    }

    static __device__ float term(const codes32 &k, int low, int high, float dx, int sum)
    {
        float v = (static_cast<float>(k.a * (low + high)) * k.d) * dx;
        return v - (static_cast<float>(k.b * sum) * k.m) * dx;
    }
};

struct q6_k { /* codes: ql[128], qh[64], sc[16] of each block; scales: d */
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

/* ---- eight consecutive weights of a row, from a column that is a multiple of eight ---- */

/* Beyond the row's end zeros; `cols` is the row's length. */
template <class F>
DEV void load8(F, gpu_ptr w, gpu_ptr scales, uint64_t row, uint32_t col, uint32_t cols, float *out)
{
    UNROLL for (uint32_t i = 0; i < 8; i++)
        out[i] = col + i < cols ? F::weight(w, scales, row * cols + col + i) : 0.0f;
}

/* The same by wide loads, where rows are aligned. */
DEV void load8(f32, gpu_ptr w, gpu_ptr, uint64_t row, uint32_t col, uint32_t cols, float *out)
{
    if (cols % 8) {
        load8<f32>(f32(), w, 0, row, col, cols, out);
        return;
    }
    const float4 *p = at<const float4>(w + (row * cols + col) * 4);
    float4 lo = p[0], hi = p[1];
    out[0] = lo.x, out[1] = lo.y, out[2] = lo.z, out[3] = lo.w;
    out[4] = hi.x, out[5] = hi.y, out[6] = hi.z, out[7] = hi.w;
}

template <class F>
DEV void load8_halves(gpu_ptr w, uint64_t row, uint32_t col, uint32_t cols, float *out)
{
    if (cols % 8) {
        load8<F>(F(), w, 0, row, col, cols, out);
        return;
    }
    int4 n = at<const int4>(w + (row * cols + col) * 2)[0];
    const int word[4] = {n.x, n.y, n.z, n.w};
    UNROLL for (int i = 0; i < 8; i++)
        out[i] = F::of(static_cast<uint16_t>(word[i / 2] >> (i % 2 * 16)));
}

DEV void load8(f16, gpu_ptr w, gpu_ptr, uint64_t row, uint32_t col, uint32_t cols, float *out)
{
    load8_halves<f16>(w, row, col, cols, out);
}

DEV void load8(bf16, gpu_ptr w, gpu_ptr, uint64_t row, uint32_t col, uint32_t cols, float *out)
{
    load8_halves<bf16>(w, row, col, cols, out);
}

/* Of block formats the eight are of one block: one scale, eight bytes. */
DEV void load8(q8_0, gpu_ptr w, gpu_ptr scales, uint64_t row, uint32_t col, uint32_t cols, float *out)
{
    uint64_t e = row * cols + col;
    float d = f32_of_f16(at<const uint16_t>(scales)[e / 32]);
    int2 n = at<const int2>(w + e)[0];
    const int word[2] = {n.x, n.y};
    UNROLL for (int i = 0; i < 8; i++)
        out[i] = d * static_cast<float>(static_cast<int8_t>(word[i / 4] >> (i % 4 * 8)));
}

DEV void load8_nibbles(gpu_ptr w, uint64_t e, int less, float *out)
{
    int2 n = at<const int2>(w + e / 32 * 16 + e % 16)[0];
    int shift = static_cast<int>(e % 32 / 16 * 4);
    const int word[2] = {n.x >> shift, n.y >> shift};
    UNROLL for (int i = 0; i < 8; i++)
        out[i] = static_cast<float>((word[i / 4] >> (i % 4 * 8) & 15) - less);
}

DEV void load8(q4_0, gpu_ptr w, gpu_ptr scales, uint64_t row, uint32_t col, uint32_t cols, float *out)
{
    uint64_t e = row * cols + col;
    float d = f32_of_f16(at<const uint16_t>(scales)[e / 32]);
    load8_nibbles(w, e, 8, out);
    UNROLL for (int i = 0; i < 8; i++) out[i] = d * out[i];
}

DEV void load8(q4_1, gpu_ptr w, gpu_ptr scales, uint64_t row, uint32_t col, uint32_t cols, float *out)
{
    uint64_t e = row * cols + col;
    const uint16_t *s = at<const uint16_t>(scales) + e / 32 * 2;
    float d = f32_of_f16(s[0]), m = f32_of_f16(s[1]);
    load8_nibbles(w, e, 0, out);
    UNROLL for (int i = 0; i < 8; i++) out[i] = d * out[i] + m;
}
#endif
