#version 450
#extension GL_GOOGLE_include_directive : require
/* MATMUL for few rows: a workgroup for each output, its invocations side by side along the row. */
#include "matmul.glsl"
layout(local_size_x = 64) in;
shared float part[R][64];
void main()
{
    uint t = gl_LocalInvocationID.x, r0 = gl_WorkGroupID.y * R, last = ROWS - 1u;
    uint quads = (p.icols + 3u) / 4u;
    float gate[R];
    for (uint o = gl_WorkGroupID.x; o < p.count; o += gl_NumWorkGroups.x) {
        for (uint half_ = 0u; half_ < (GLU ? 2u : 1u); half_++) {
            uint row = p.base + o + half_ * p.count;
            for (uint i = 0u; i < R; i++) part[i][t] = 0.0;
            for (uint c = t; c < quads; c += 64u) {
                vec4 w = weights_of(scale_of(row, c), codes_of(row, c));
                for (uint i = 0u; i < R; i++) part[i][t] += dot(w, quad_of(min(r0 + i, last), c));
            }
            barrier();
            for (uint k = 32u; k > 0u; k >>= 1) {
                if (t < k)
                    for (uint i = 0u; i < R; i++) part[i][t] += part[i][t + k];
                barrier();
            }
            for (uint i = 0u; i < R; i++)
                gate[i] = half_ == 1u ? glu_of(gate[i], part[i][0], p.act) : part[i][0];
            barrier();
        }
        for (uint i = 0u; i < R && r0 + i <= last; i++)
            if (t == i) put(r0 + i, o, gate[i]);
    }
}
