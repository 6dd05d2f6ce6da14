#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_spirv_intrinsics : require
#ifdef SUBGROUPS
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
/* MATMUL of activations in Q8 for up to four rows: a workgroup for each output, a block of its row an
 * invocation. */
#include "q8.glsl"
#define LOCAL 32u
layout(local_size_x = LOCAL) in;
#define SUMMED vec4 /* rows */
#include "reduce.glsl"
void main()
{
    uint t = gl_LocalInvocationID.x, r0 = gl_WorkGroupID.y * R, last = ROWS - 1u;
    uint blocks = p.icols / 32u;
    for (uint o = gl_WorkGroupID.x; o < p.count; o += gl_NumWorkGroups.x) {
        vec4 v = vec4(0.0);
        for (uint half_ = 0u; half_ < (GLU ? 2u : 1u); half_++) {
            uint row = p.base + o + half_ * p.count;
            vec4 sum = vec4(0.0);
            for (uint b = t; b < blocks; b += LOCAL) {
                block_scales s = block_of(row, b);
                for (uint i = 0u; i < R; i++) {
                    uint at = (min(r0 + i, last) * blocks + b) * X_WORDS;
                    ivec2 n = ivec2(0);
                    for (uint k = 0u; k < 8u; k++)
                        n[k / 4u] += sdot(int(code_word(row, b * 8u + k)), int(x[at + k]), 0);
                    sum[i] += term_of(s, n, uintBitsToFloat(x[at + 8u]), sums_of(x[at + 9u]));
                }
            }
            sum = sum_of(sum);
            for (uint i = 0u; i < R; i++) v[i] = half_ == 1u ? glu_of(v[i], sum[i], p.act) : sum[i];
        }
        for (uint i = 0u; i < R && r0 + i <= last; i++)
            if (t == i) put(r0 + i, o, v[i]);
    }
}
