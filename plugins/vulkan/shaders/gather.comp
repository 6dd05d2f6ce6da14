#version 450
#extension GL_GOOGLE_include_directive : require
/* The first half of an eviction: raw keys and values of the survivors, from where they lie, as rows of
 * F32 (p.y, p.y1); KV_APPEND then puts them where they go. */
#include "common.glsl"
layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 2) readonly buffer Kv { uint kv[]; };
layout(std430, set = 0, binding = 3) buffer Y { float y[]; };
layout(std430, set = 0, binding = 4) readonly buffer Step { uint st[]; };
#include "kv.glsl"
void main()
{
    uint i = gl_GlobalInvocationID.x, r = gl_WorkGroupID.y, cols = COLS;
    if (i >= cols || ELSEWHERE(st[ROW_AT(r)], st[ROW_AT(r) + 3u])) return;
    uint place = PLACE(st[ROW_AT(r)], st[ROW_AT(r) + 3u]) * cols + i, at = r * cols + i;
    y[p.y + at] = uintBitsToFloat(kv[p.raw + place]);
    y[p.y1 + at] = kv_at(p.values, place);
}
