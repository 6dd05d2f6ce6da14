#version 450
#extension GL_GOOGLE_include_directive : require
/* Copy on write: a pair of pages of the step's list for each row of workgroups, all that a layer keeps. */
#include "common.glsl"
layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 3) buffer Kv { uint kv[]; };
layout(std430, set = 0, binding = 4) readonly buffer Step { uint st[]; };
void copy(uint at, uint words, uint from, uint to)
{
    uint i = gl_GlobalInvocationID.x;
    if (i < words) kv[at + to * words + i] = kv[at + from * words + i];
}
void main()
{
    uint from = st[COPY_AT(gl_WorkGroupID.y)], to = st[COPY_AT(gl_WorkGroupID.y) + 1u];
    copy(0u, p.count, from, to);
    copy(p.values, p.count, from, to);
    if (p.raw != 0u) copy(p.raw, p.group, from, to);
}
