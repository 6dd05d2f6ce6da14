#version 450
#extension GL_GOOGLE_include_directive : require
/* RMSNORM without shared memory, in the contract's order: each invocation sums the whole group and
 * writes its share of the columns.  For devices to which a barrier is dear. */
#include "common.glsl"
layout(local_size_x = 16) in;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer W { float w[]; };
layout(std430, set = 0, binding = 3) buffer Y { float y[]; };
void main()
{
    uint at = gl_WorkGroupID.y * p.ocols + gl_WorkGroupID.x * p.group;
    precise float sum = 0.0;
    for (uint i = 0u; i < p.group; i++) sum = sum + x[at + i] * x[at + i];
    precise float inv = 1.0 / sqrt(sum / float(p.group) + p.eps);
    for (uint i = gl_LocalInvocationID.x; i < p.group; i += 16u) {
        precise float v = (x[at + i] * inv) * w[i];
        y[at + i] = v;
    }
}
