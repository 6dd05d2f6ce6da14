#version 450
#extension GL_GOOGLE_include_directive : require
/* ARGMAX, first pass: each invocation finds the first maximum among every `count`-th column from its own
 * on: {bits, column}, column 0xffffffff where it has met a NaN, bits of -infinity where it has none. */
#include "common.glsl"
layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 1) readonly buffer X { uint x[]; };
layout(std430, set = 0, binding = 3) buffer Y { uint y[]; };
void main()
{
    uint t = gl_GlobalInvocationID.x, r = gl_WorkGroupID.y, at = r * p.icols, best = t;
    bool bad = false;
    if (t >= p.count) return;
    for (uint i = t; i < p.icols; i += p.count) {
        bad = bad || (x[at + i] & 0x7fffffffu) > 0x7f800000u;
        if (uintBitsToFloat(x[at + i]) > uintBitsToFloat(x[at + best])) best = i;
    }
    y[(r * p.count + t) * 2u] = x[at + best];
    y[(r * p.count + t) * 2u + 1u] = bad ? 0xffffffffu : best;
}
