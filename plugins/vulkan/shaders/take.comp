#version 450
#extension GL_GOOGLE_include_directive : require
/* TAKE_ROWS, bit for bit. */
#include "common.glsl"
layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 1) readonly buffer X { uint x[]; };
layout(std430, set = 0, binding = 3) buffer Y { uint y[]; };
layout(std430, set = 0, binding = 4) readonly buffer Step { uint st[]; };
void main()
{
    uint c = gl_GlobalInvocationID.x, r = gl_WorkGroupID.y;
    if (c < p.ocols) y[r * p.ocols + c] = x[st[WANTED_AT(r)] * p.ocols + c];
}
