#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_spirv_intrinsics : require
/* MATMUL of activations in Q8, N outputs of R rows for each invocation, in the contract's order.  No
 * shared memory; what a block of x and one of w load serves all that need it. */
#include "q8.glsl"
#define N 4
layout(local_size_x_id = 5) in;
void main()
{
    uint o = gl_GlobalInvocationID.x * N, r0 = gl_WorkGroupID.y * R, last = ROWS - 1u;
    uint blocks = p.icols / 32u, have[R * X_WORDS];
    precise float sum[R * N];
    float gate[R * N];
    if (o >= p.count) return;
    for (uint half_ = 0u; half_ < (GLU ? 2u : 1u); half_++) {
        for (uint i = 0u; i < R * N; i++) sum[i] = 0.0;
        for (uint b = 0u; b < blocks; b++) {
            [[unroll]] for (uint i = 0u; i < R; i++)
                [[unroll]] for (uint k = 0u; k < X_WORDS; k++)
                    have[i * X_WORDS + k] = x[(min(r0 + i, last) * blocks + b) * X_WORDS + k];
            [[unroll]] for (uint j = 0u; j < N; j++) {
                uint row = p.base + min(o + j, p.count - 1u) + half_ * p.count;
                block_scales s = block_of(row, b);
                ivec2 n[R];
                [[unroll]] for (uint i = 0u; i < R; i++) n[i] = ivec2(0);
                [[unroll]] for (uint k = 0u; k < 8u; k++) {
                    int code = int(code_word(row, b * 8u + k));
                    [[unroll]] for (uint i = 0u; i < R; i++)
                        n[i][k / 4u] += sdot(code, int(have[i * X_WORDS + k]), 0);
                }
                [[unroll]] for (uint i = 0u; i < R; i++)
                    sum[j * R + i] = sum[j * R + i] +
                                     term_of(s, n[i], uintBitsToFloat(have[i * X_WORDS + 8u]),
                                             sums_of(have[i * X_WORDS + 9u]));
            }
        }
        for (uint i = 0u; i < R * N; i++)
            gate[i] = half_ == 1u ? glu_of(gate[i], sum[i], p.act) : sum[i];
    }
    for (uint j = 0u; j < N && o + j < p.count; j++)
        for (uint i = 0u; i < R && r0 + i <= last; i++) put(r0 + i, o + j, gate[j * R + i]);
}
