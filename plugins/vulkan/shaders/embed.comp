#version 450
#extension GL_GOOGLE_include_directive : require
/* EMBED: a row of w for each token of the step, or of the step's before argmax.  Of a matrix in several
 * pieces each dispatch has the rows that lie in its own; an id of no row is a row of NaNs. */
#include "common.glsl"
#include "weights.glsl"
layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 1) readonly buffer Ids { uint ids[]; };
layout(std430, set = 0, binding = 3) buffer Y { float y[]; };
layout(std430, set = 0, binding = 4) readonly buffer Step { uint st[]; };
void main()
{
    uint c = gl_GlobalInvocationID.x, r = gl_WorkGroupID.y;
    if (c * 4u >= p.ocols) return;
    uint id = FROM_ARGMAX ? ids[r] : st[ROW_AT(r)], at = r * p.ocols + c * 4u;
    vec4 w = vec4(uintBitsToFloat(0x7fc00000u));
    if (id >= p.icols && p.first != 0u) return; /* icols: rows of the whole matrix */
    if (id < p.icols) {
        if (id < p.first || id - p.first >= p.count) return;
        uint o = p.base + id - p.first;
        w = weights_of(scale_of(o, c), codes_of(o, c));
    }
    for (uint i = 0u; i < 4u && c * 4u + i < p.ocols; i++) y[at + i] = w[i];
}
