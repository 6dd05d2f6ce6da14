#version 450
#extension GL_GOOGLE_include_directive : require
/* ROPE. */
#include "common.glsl"
layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer Table { float table[]; };
layout(std430, set = 0, binding = 3) buffer Y { float y[]; };
layout(std430, set = 0, binding = 4) readonly buffer Step { uint st[]; };
#include "rope.glsl"
void main()
{
    uint i = gl_GlobalInvocationID.x, r = gl_WorkGroupID.y;
    if (i >= p.ocols) return;
    uint row = r * p.ocols, from = i / p.head_dim * p.head_dim;
    y[row + i] = rotated(row + from, st[ROW_AT(r) + 2u] * p.a_row, i - from);
}
