/* eight - eight consecutive weights of a row, from a column that is a multiple of eight: what kernels that
 * need no exact order load at once.
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

DEV int2 load_pair(gpu_ptr p) /* 8 bytes, aligned so */
{
    return at<const int2>(p)[0];
}

template <class F> struct eight;

template <> struct eight<f32> {
    enum { AHEAD = 2 };
    float4 low, high;

    __device__ void load(gpu_ptr w, gpu_ptr, uint64_t e)
    {
        low = at<const float4>(w + e * 4)[0];
        high = at<const float4>(w + e * 4)[1];
    }

    __device__ void decode(float *out) const
    {
        out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
        out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
    }
};

template <class F> struct eight_halves {
    enum { AHEAD = 4 };
    int4 n;

    __device__ void load(gpu_ptr w, gpu_ptr, uint64_t e)
    {
        n = at<const int4>(w + e * 2)[0];
    }

    __device__ void decode(float *out) const
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
    enum { AHEAD = 4 };
    int2 n;
    uint16_t d;

    __device__ void load(gpu_ptr w, gpu_ptr scales, uint64_t e)
    {
        n = load_pair(w + e);
        d = at<const uint16_t>(scales)[e / 32];
    }

    __device__ void decode(float *out) const
    {
        float scale = f32_of_f16(d);
        bytes_less(static_cast<uint32_t>(n.x) ^ 0x80808080u, static_cast<uint32_t>(n.y) ^ 0x80808080u,
                   128.0f, out);
        UNROLL for (int i = 0; i < 8; i++) out[i] = scale * out[i];
    }
};

DEV int2 load_nibbles8(gpu_ptr w, uint64_t e) /* of a plane of blocks of 16 bytes */
{
    return load_pair(w + e / 32 * 16 + e % 16);
}

DEV uint32_t nibbles_of(int word, uint32_t half) /* its low nibbles, or its high ones */
{
    return static_cast<uint32_t>(word) >> (half * 4) & 0x0f0f0f0fu;
}

template <> struct eight<q4_0> {
    enum { AHEAD = 4 };
    int2 n;
    uint16_t d;
    uint32_t half;

    __device__ void load(gpu_ptr w, gpu_ptr scales, uint64_t e)
    {
        n = load_nibbles8(w, e);
        d = at<const uint16_t>(scales)[e / 32];
        half = e % 32 / 16;
    }

    __device__ void decode(float *out) const
    {
        float scale = f32_of_f16(d);
        bytes_less(nibbles_of(n.x, half), nibbles_of(n.y, half), 8.0f, out);
        UNROLL for (int i = 0; i < 8; i++) out[i] = scale * out[i];
    }
};

template <> struct eight<q4_1> {
    enum { AHEAD = 4 };
    int2 n;
    uint32_t dm, half;

    __device__ void load(gpu_ptr w, gpu_ptr scales, uint64_t e)
    {
        n = load_nibbles8(w, e);
        dm = at<const uint32_t>(scales)[e / 32];
        half = e % 32 / 16;
    }

    __device__ void decode(float *out) const
    {
        float d = f32_of_f16(static_cast<uint16_t>(dm)), m = f32_of_f16(static_cast<uint16_t>(dm >> 16));
        bytes_less(nibbles_of(n.x, half), nibbles_of(n.y, half), 0.0f, out);
        UNROLL for (int i = 0; i < 8; i++) out[i] = fmaf(d, out[i], m);
    }
};

template <> struct eight<q4_k> {
    enum { AHEAD = 4 };
    int2 n;
    int4 head;
    uint32_t j;

    __device__ void load(gpu_ptr w, gpu_ptr, uint64_t e)
    {
        gpu_ptr at_block = w + e / 256 * Q4_K_BYTES;
        j = e / 32 % 8;
        n = load_pair(at_block + 16 + j / 2 * 32 + e % 32);
        head = at<const int4>(at_block)[0];
    }

    __device__ void decode(float *out) const
    {
        int sc, mn;
        q4_k::scales_of(head, j, sc, mn);
        float d = q4_k::d_of(head) * static_cast<float>(sc);
        float m = q4_k::m_of(head) * static_cast<float>(mn);
        bytes_less(nibbles_of(n.x, j % 2), nibbles_of(n.y, j % 2), 0.0f, out);
        UNROLL for (int i = 0; i < 8; i++) out[i] = fmaf(d, out[i], -m);
    }
};

template <> struct eight<q6_k> {
    enum { AHEAD = 4 };
    int2 low, high;
    uint32_t group; /* of four of a half of the block */
    int8_t sc;
    uint16_t d;

    __device__ void load(gpu_ptr w, gpu_ptr scales, uint64_t e)
    {
        gpu_ptr at_block = w + e / 256 * Q6_K_BYTES;
        uint32_t i = e % 256, n = i / 128, l = i % 32;
        group = i / 32 % 4;
        low = load_pair(at_block + 64 * n + 32 * (group & 1) + l);
        high = load_pair(at_block + 128 + 32 * n + l);
        sc = at<const int8_t>(at_block + 192)[i / 16];
        d = at<const uint16_t>(scales)[e / 256];
    }

    __device__ uint32_t codes(int nibbles, int two) const
    {
        uint32_t upper = static_cast<uint32_t>(two) >> (2 * group) & 0x03030303u;
        return nibbles_of(nibbles, group / 2) | upper << 4;
    }

    __device__ void decode(float *out) const
    {
        float scale = f32_of_f16(d) * static_cast<float>(sc);
        bytes_less(codes(low.x, high.x), codes(low.y, high.y), 32.0f, out);
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
    e.load(w, scales, row * cols + col);
    e.decode(out);
}
#endif
