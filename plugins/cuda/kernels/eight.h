/* eight - eight consecutive weights of a row, from a column that is a multiple of eight: what kernels that
 * need no exact order load at once.
 *   spot     where they are; 256 columns further on, a sweep of a warp, is a fixed number of bytes
 *   load     into registers, which may still be on their way when it is over
 *   decode   to numbers
 *   AHEAD    of them a lane of matvec has on their way: some 64 bytes
 * Rows of plain dtypes whose length is no multiple of eight are not aligned: load_any sees to them. */
#ifndef EIGHT_H
#define EIGHT_H
#include "format.h"

/* Byte i of a word as a number, less a whole number: exact, and cheaper than a conversion. */
DEV float byte_less(uint32_t word, uint32_t i, float less)
{
    return float_of(__byte_perm(word, 0x4b000000u, 0x7650u + i)) - (8388608.0f + less);
}

DEV void bytes_less(uint32_t low, uint32_t high, float less, float *out)
{
    UNROLL for (uint32_t i = 0; i < 8; i++) out[i] = byte_less(i < 4 ? low : high, i % 4, less);
}

DEV uint32_t nibbles_of(int word, uint32_t half) /* its low nibbles, or its high ones */
{
    return static_cast<uint32_t>(word) >> (half * 4) & 0x0f0f0f0fu;
}

struct spot { /* part: which of a block's parts the eight are in, the same in every sweep */
    gpu_ptr codes, scales;
    uint32_t part;
};

template <class F> struct eight;

template <> struct eight<f32> {
    enum { AHEAD = 2, CODES = 1024, SCALES = 0 };
    float4 low, high;

    static __device__ spot find(gpu_ptr w, gpu_ptr, uint64_t e)
    {
        return {w + e * 4, 0, 0};
    }

    __device__ void load(const spot &s, uint32_t sweep)
    {
        low = fixed<float4>(s.codes + sweep * CODES);
        high = fixed<float4>(s.codes + sweep * CODES + 16);
    }

    __device__ void decode(const spot &, float *out) const
    {
        out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
        out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
    }
};

template <class F> struct eight_halves {
    enum { AHEAD = 4, CODES = 512, SCALES = 0 };
    int4 n;

    static __device__ spot find(gpu_ptr w, gpu_ptr, uint64_t e)
    {
        return {w + e * 2, 0, 0};
    }

    __device__ void load(const spot &s, uint32_t sweep)
    {
        n = fixed<int4>(s.codes + sweep * CODES);
    }

    __device__ void decode(const spot &, float *out) const
    {
        const int word[4] = {n.x, n.y, n.z, n.w};
        UNROLL for (int i = 0; i < 8; i++)
            out[i] = F::of(static_cast<uint16_t>(word[i / 2] >> (i % 2 * 16)));
    }
};
template <> struct eight<f16> : eight_halves<f16> {};
template <> struct eight<bf16> : eight_halves<bf16> {};

/* ---- block formats: the eight are of one block, and of one half of it ---- */

template <> struct eight<q8_0> {
    enum { AHEAD = 4, CODES = 256, SCALES = 16 };
    int2 n;
    uint16_t d;

    static __device__ spot find(gpu_ptr w, gpu_ptr scales, uint64_t e)
    {
        return {w + e, scales + e / 32 * 2, 0};
    }

    __device__ void load(const spot &s, uint32_t sweep)
    {
        n = fixed<int2>(s.codes + sweep * CODES);
        d = fixed<uint16_t>(s.scales + sweep * SCALES);
    }

    __device__ void decode(const spot &, float *out) const
    {
        float scale = f32_of_f16(d);
        bytes_less(static_cast<uint32_t>(n.x) ^ 0x80808080u,
                   static_cast<uint32_t>(n.y) ^ 0x80808080u, 128.0f, out);
        UNROLL for (int i = 0; i < 8; i++) out[i] = scale * out[i];
    }
};

template <> struct eight<q4_0> {
    enum { AHEAD = 4, CODES = 128, SCALES = 16 };
    int2 n;
    uint16_t d;

    static __device__ spot find(gpu_ptr w, gpu_ptr scales, uint64_t e)
    {
        return {w + e / 32 * 16 + e % 16, scales + e / 32 * 2, static_cast<uint32_t>(e % 32 / 16)};
    }

    __device__ void load(const spot &s, uint32_t sweep)
    {
        n = fixed<int2>(s.codes + sweep * CODES);
        d = fixed<uint16_t>(s.scales + sweep * SCALES);
    }

    __device__ void decode(const spot &s, float *out) const
    {
        float scale = f32_of_f16(d);
        bytes_less(nibbles_of(n.x, s.part), nibbles_of(n.y, s.part), 8.0f, out);
        UNROLL for (int i = 0; i < 8; i++) out[i] = scale * out[i];
    }
};

template <> struct eight<q4_1> {
    enum { AHEAD = 4, CODES = 128, SCALES = 32 };
    int2 n;
    uint32_t dm;

    static __device__ spot find(gpu_ptr w, gpu_ptr scales, uint64_t e)
    {
        return {w + e / 32 * 16 + e % 16, scales + e / 32 * 4, static_cast<uint32_t>(e % 32 / 16)};
    }

    __device__ void load(const spot &s, uint32_t sweep)
    {
        n = fixed<int2>(s.codes + sweep * CODES);
        dm = fixed<uint32_t>(s.scales + sweep * SCALES);
    }

    __device__ void decode(const spot &s, float *out) const
    {
        float d = f32_of_f16(static_cast<uint16_t>(dm));
        float m = f32_of_f16(static_cast<uint16_t>(dm >> 16));
        bytes_less(nibbles_of(n.x, s.part), nibbles_of(n.y, s.part), 0.0f, out);
        UNROLL for (int i = 0; i < 8; i++) out[i] = fmaf(d, out[i], m);
    }
};

template <> struct eight<q4_k> { /* scales: the head of the block; part: of eight */
    enum { AHEAD = 4, CODES = Q4_K_BYTES, SCALES = Q4_K_BYTES };
    int2 n;
    int4 head;

    static __device__ spot find(gpu_ptr w, gpu_ptr, uint64_t e)
    {
        gpu_ptr block = w + e / 256 * Q4_K_BYTES;
        uint32_t j = static_cast<uint32_t>(e / 32 % 8);
        return {block + 16 + j / 2 * 32 + e % 32, block, j};
    }

    __device__ void load(const spot &s, uint32_t sweep)
    {
        n = fixed<int2>(s.codes + sweep * CODES);
        head = fixed<int4>(s.scales + sweep * SCALES);
    }

    __device__ void decode(const spot &s, float *out) const
    {
        int sc, mn;
        q4_k::scales_of(head, s.part, sc, mn);
        float d = q4_k::d_of(head) * static_cast<float>(sc);
        float m = q4_k::m_of(head) * static_cast<float>(mn);
        bytes_less(nibbles_of(n.x, s.part % 2), nibbles_of(n.y, s.part % 2), 0.0f, out);
        UNROLL for (int i = 0; i < 8; i++) out[i] = fmaf(d, out[i], -m);
    }
};

template <> struct eight<q6_k> { /* codes: the block; part: of 32 */
    enum { AHEAD = 4, CODES = Q6_K_BYTES, SCALES = 2 };
    int2 low, high;
    int8_t sc;
    uint16_t d;

    static __device__ spot find(gpu_ptr w, gpu_ptr scales, uint64_t e)
    {
        return {w + e / 256 * Q6_K_BYTES, scales + e / 256 * 2, static_cast<uint32_t>(e / 8 % 32)};
    }

    __device__ void load(const spot &s, uint32_t sweep)
    {
        gpu_ptr block = s.codes + sweep * CODES;
        uint32_t half = s.part / 16, group = s.part / 4 % 4, l = s.part % 4 * 8;
        low = fixed<int2>(block + 64 * half + 32 * (group & 1) + l);
        high = fixed<int2>(block + 128 + 32 * half + l);
        sc = fixed<int8_t>(block + 192 + s.part / 2);
        d = fixed<uint16_t>(s.scales + sweep * SCALES);
    }

    static __device__ uint32_t codes(int nibbles, int two, uint32_t group)
    {
        uint32_t upper = static_cast<uint32_t>(two) >> (2 * group) & 0x03030303u;
        return nibbles_of(nibbles, group / 2) | upper << 4;
    }

    __device__ void decode(const spot &s, float *out) const
    {
        uint32_t group = s.part / 4 % 4;
        float scale = f32_of_f16(d) * static_cast<float>(sc);
        bytes_less(codes(low.x, high.x, group), codes(low.y, high.y, group), 32.0f, out);
        UNROLL for (int i = 0; i < 8; i++) out[i] = scale * out[i];
    }
};

/* ---- rows of any length ---- */

/* Columns col .. col + 7 of a row of `cols`; beyond its end zeros. */
template <class F>
DEV void load_any(gpu_ptr w, gpu_ptr scales, uint64_t row, uint32_t col, uint32_t cols, float *out)
{
    if (F::PLAIN && cols % 8) {
        UNROLL for (uint32_t i = 0; i < 8; i++)
            out[i] = col + i < cols ? F::weight(w, scales, row * cols + col + i) : 0.0f;
        return;
    }
    eight<F> e;
    spot s = eight<F>::find(w, scales, row * cols + col);
    e.load(s, 0);
    e.decode(s, out);
}
#endif
