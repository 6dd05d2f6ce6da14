#version 450
#extension GL_GOOGLE_include_directive : require
/* MATMUL, an output of R rows for each invocation, in the contract's order of the sum: eight lanes, here
 * two quads.  No shared memory: for devices that are a CPU. */
#include "matmul.glsl"
layout(local_size_x = 64) in;
void main()
{
    uint o = gl_GlobalInvocationID.x, r0 = gl_WorkGroupID.y * R, last = ROWS - 1u;
    uint quads = (p.icols + 3u) / 4u;
    if (o >= p.count) return;
    precise vec4 lane[2 * R];
    float gate[R];
    for (uint half_ = 0u; half_ < (GLU ? 2u : 1u); half_++) {
        uint row = p.base + o + half_ * p.count;
        for (uint i = 0u; i < 2u * R; i++) lane[i] = vec4(0.0);
        for (uint c = 0u; c < quads; c += 2u) {
            vec2 s = scale_of(row, c);
            vec4 a = weights_of(s, codes_of(row, c));
            for (uint i = 0u; i < R; i++)
                lane[2u * i] = lane[2u * i] + quad_of(min(r0 + i, last), c) * a;
            if (c + 1u == quads) break;
            vec4 b = weights_of(s, codes_of(row, c + 1u));
            for (uint i = 0u; i < R; i++)
                lane[2u * i + 1u] = lane[2u * i + 1u] + quad_of(min(r0 + i, last), c + 1u) * b;
        }
        for (uint i = 0u; i < R; i++) {
            vec4 a = lane[2u * i], b = lane[2u * i + 1u];
            precise float v = ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
            if (half_ == 1u) v = glu_of(gate[i], v, p.act);
            gate[i] = v;
        }
    }
    for (uint i = 0u; i < R && r0 + i <= last; i++) put(r0 + i, o, gate[i]);
}
