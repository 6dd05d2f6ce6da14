#version 450
#extension GL_GOOGLE_include_directive : require
#ifdef SUBGROUPS
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
/* RMSNORM: a workgroup for each group of columns. */
#include "common.glsl"
#define LOCAL 128u
layout(local_size_x = LOCAL) in;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer W { float w[]; };
layout(std430, set = 0, binding = 3) buffer Y { float y[]; };
#define SUMMED float
#include "reduce.glsl"
void main()
{
    uint at = gl_WorkGroupID.y * p.ocols + gl_WorkGroupID.x * p.group, t = gl_LocalInvocationID.x;
    float sum = 0.0;
    for (uint i = t; i < p.group; i += LOCAL) sum += x[at + i] * x[at + i];
    float inv = 1.0 / sqrt(sum_of(sum) / float(p.group) + p.eps);
    for (uint i = t; i < p.group; i += LOCAL) y[at + i] = x[at + i] * inv * w[i];
}
