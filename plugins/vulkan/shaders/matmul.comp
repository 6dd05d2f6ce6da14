#version 450
#extension GL_GOOGLE_include_directive : require
#ifdef SUBGROUPS
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
/* MATMUL for up to four rows: a workgroup for each output, its invocations side by side along the row.
 * NORM: x is normed by the row of binding 4 on the way, y = sum(x*n*w) / rms(x). */
#include "matmul.glsl"
#define LOCAL 64u
layout(local_size_x = LOCAL) in;
layout(constant_id = 5) const bool NORM = false;
#define SUMMED vec4 /* rows */
#include "reduce.glsl"
void main()
{
    uint t = gl_LocalInvocationID.x, r0 = gl_WorkGroupID.y * R, last = ROWS - 1u;
    uint quads = (p.icols + 3u) / 4u;
    for (uint o = gl_WorkGroupID.x; o < p.count; o += gl_NumWorkGroups.x) {
        vec4 v = vec4(0.0);
        for (uint half_ = 0u; half_ < (GLU ? 2u : 1u); half_++) {
            uint row = p.base + o + half_ * p.count;
            vec4 sum = vec4(0.0), squares = vec4(0.0);
            for (uint c = t; c < quads; c += LOCAL) {
                vec4 w = weights_of(scale_of(row, c), codes_of(row, c));
                if (NORM) w *= vec4(z[c * 4u], z[c * 4u + 1u], z[c * 4u + 2u], z[c * 4u + 3u]);
                for (uint i = 0u; i < R; i++) {
                    vec4 q = quad_of(min(r0 + i, last), c);
                    sum[i] += dot(w, q);
                    if (NORM) squares[i] += dot(q, q);
                }
            }
            sum = sum_of(sum);
            if (NORM) sum /= sqrt(sum_of(squares) / float(p.icols) + p.eps);
            for (uint i = 0u; i < R; i++) v[i] = half_ == 1u ? glu_of(v[i], sum[i], p.act) : sum[i];
        }
        for (uint i = 0u; i < R && r0 + i <= last; i++)
            if (t == i) put(r0 + i, o, v[i]);
    }
}
