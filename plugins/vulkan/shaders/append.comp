#version 450
#extension GL_GOOGLE_include_directive : require
/* KV_APPEND, with Q also ROPE of q: rows of k are rotated and rounded to the kv dtype, two columns an
 * invocation; rows of v are rounded; raw keys are kept where p.raw says so.  q, k, v and what ROPE gives
 * lie in one binding (layout.c): p.x k, p.source v, p.y1 q, p.y what it becomes. */
#include "common.glsl"
layout(local_size_x = 64) in;
layout(constant_id = 1) const bool Q = false;
layout(std430, set = 0, binding = 1) buffer X { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer Table { float table[]; };
layout(std430, set = 0, binding = 3) buffer Kv { uint kv[]; };
layout(std430, set = 0, binding = 4) readonly buffer Step { uint st[]; };
#include "kv.glsl"
#include "rope.glsl"
uint half_of(float v) /* to nearest even */
{
    uint b = floatBitsToUint(v), sign = b >> 16 & 0x8000u, size = b & 0x7fffffffu;
    if (size > 0x7f800000u) return sign | 0x7e00u;
    if (size >= 0x47800000u) return sign | 0x7c00u;
    if (size < 0x38800000u) { /* 24 bits less than one: the sum rounds */
        uint shift = 126u - (size >> 23), m = (size & 0x7fffffu) | 0x800000u;
        if (shift > 24u) return sign;
        uint rest = m & ((1u << shift) - 1u), tie = 1u << (shift - 1u), h = m >> shift;
        return sign | (h + uint(rest > tie || (rest == tie && (h & 1u) != 0u)));
    }
    size += 0xfffu + (size >> 13 & 1u);
    return sign | (size - 0x38000000u) >> 13;
}
uint bfloat_of(float v)
{
    uint b = floatBitsToUint(v);
    if ((b & 0x7fffffffu) > 0x7f800000u) return b >> 16 | 64u;
    return (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
}
void store(uint from, uint i, float a, float b) /* i even */
{
    if (KV_DTYPE == 1u) {
        kv[from + i] = floatBitsToUint(a);
        kv[from + i + 1u] = floatBitsToUint(b);
    } else {
        kv[from + i / 2u] = KV_DTYPE == 2u ? half_of(a) | half_of(b) << 16
                                           : bfloat_of(a) | bfloat_of(b) << 16;
    }
}
void main()
{
    uint i = gl_GlobalInvocationID.x * 2u, r = gl_WorkGroupID.y, cols = COLS;
    uint position = st[ROW_AT(r) + 2u], tab = position * p.a_row;
    if (Q && i < p.ocols) {
        uint at = r * p.ocols, h = i / p.head_dim * p.head_dim;
        x[p.y + at + i] = rotated(p.y1 + at + h, tab, i - h);
        x[p.y + at + i + 1u] = rotated(p.y1 + at + h, tab, i + 1u - h);
    }
    if (i >= cols || ELSEWHERE(st[ROW_AT(r) + 1u], position)) return;
    uint place = PLACE(st[ROW_AT(r) + 1u], position) * cols, at = r * cols + i;
    uint from = p.x + r * cols + i / p.head_dim * p.head_dim, j = i % p.head_dim;
    store(0u, place + i, rotated(from, tab, j), rotated(from, tab, j + 1u));
    store(p.values, place + i, x[p.source + at], x[p.source + at + 1u]);
    if (p.raw == 0u) return;
    kv[p.raw + place + i] = floatBitsToUint(x[p.x + at]);
    kv[p.raw + place + i + 1u] = floatBitsToUint(x[p.x + at + 1u]);
}
