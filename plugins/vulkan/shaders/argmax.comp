#version 450
#extension GL_GOOGLE_include_directive : require
/* ARGMAX, second pass: an invocation a row over what the first has found. */
#include "common.glsl"
layout(local_size_x = 1) in;
layout(std430, set = 0, binding = 1) readonly buffer X { uint x[]; };
layout(std430, set = 0, binding = 3) buffer Y { uint y[]; };
void main()
{
    uint r = gl_WorkGroupID.y, at = r * p.count * 2u, best = x[at + 1u], top = x[at];
    for (uint i = 1u; i < p.count && best != 0xffffffffu; i++) {
        uint bits = x[at + i * 2u], column = x[at + i * 2u + 1u];
        float v = uintBitsToFloat(bits), most = uintBitsToFloat(top);
        if (column == 0xffffffffu || v > most || (v == most && column < best)) {
            best = column;
            top = bits;
        }
    }
    y[r] = best;
}
