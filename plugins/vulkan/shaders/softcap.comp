#version 450
#extension GL_GOOGLE_include_directive : require
/* SOFTCAP. */
#include "common.glsl"
#include "math.glsl"
layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 3) buffer Y { float y[]; };
void main()
{
    uint c = gl_GlobalInvocationID.x;
    if (c >= p.ocols) return;
    uint i = gl_WorkGroupID.y * p.ocols + c;
    y[i] = capped(x[i], p.softcap);
}
