#version 450
#extension GL_GOOGLE_include_directive : require
/* RMSNORM: a workgroup for each group of columns. */
#include "common.glsl"
layout(local_size_x = 128) in;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer W { float w[]; };
layout(std430, set = 0, binding = 3) buffer Y { float y[]; };
shared float part[128];
void main()
{
    uint at = gl_WorkGroupID.y * p.ocols + gl_WorkGroupID.x * p.group, t = gl_LocalInvocationID.x;
    float sum = 0.0;
    for (uint i = t; i < p.group; i += 128u) sum += x[at + i] * x[at + i];
    part[t] = sum;
    barrier();
    for (uint k = 64u; k > 0u; k >>= 1) {
        if (t < k) part[t] += part[t + k];
        barrier();
    }
    float inv = 1.0 / sqrt(part[0] / float(p.group) + p.eps);
    for (uint i = t; i < p.group; i += 128u) y[at + i] = x[at + i] * inv * w[i];
}
