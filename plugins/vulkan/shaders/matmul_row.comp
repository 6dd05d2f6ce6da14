#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
/* MATMUL, N outputs of R rows for each invocation, in the contract's order of the sum: eight lanes, here
 * two quads.  No shared memory: for devices that are a CPU.  There a load costs more than the arithmetic
 * that it feeds, so a scale, a word of codes and a quad of x are loaded once for all that need them. */
#include "matmul.glsl"
#define N 4 /* outputs of an invocation; a workgroup has ROW_OUTPUTS (lower.c) */
layout(local_size_x = 16) in;
const uint STEP = DTYPE >= Q8_0 ? 8u : 2u; /* quads that are taken together: a block, or a pair */
const bool NIBBLES = DTYPE == Q4_0 || DTYPE == Q4_1;

void main()
{
    uint o = gl_GlobalInvocationID.x * N, r0 = gl_WorkGroupID.y * R, last = ROWS - 1u;
    uint quads = (p.icols + 3u) / 4u, row[N], word[N * 4];
    precise vec4 lane[2 * R * N];
    float gate[R * N];
    vec2 s[N];
    if (o >= p.count) return;
    for (uint half_ = 0u; half_ < (GLU ? 2u : 1u); half_++) {
        for (uint k = 0u; k < N; k++) row[k] = p.base + min(o + k, p.count - 1u) + half_ * p.count;
        for (uint i = 0u; i < 2u * R * N; i++) lane[i] = vec4(0.0);
        for (uint c = 0u; c < quads; c += STEP) {
            [[unroll]] for (uint j = 0u; j < STEP; j++) {
                if (c + j >= quads) break;
                vec4 q[R];
                [[unroll]] for (uint i = 0u; i < R; i++) q[i] = quad_of(min(r0 + i, last), c + j);
                [[unroll]] for (uint k = 0u; k < N; k++) {
                    vec4 codes;
                    if (j == 0u || (DTYPE == Q6_K && j == 4u)) s[k] = scale_of(row[k], c + j);
                    if (NIBBLES && j < 4u) word[k * 4u + j] = nibble_word(row[k], c + j);
                    if (NIBBLES)
                        codes = nibbles_of(word[k * 4u + (j & 3u)] >> (j >> 2) * 4u);
                    else
                        codes = codes_of(row[k], c + j);
                    vec4 w = weights_of(s[k], codes);
                    [[unroll]] for (uint i = 0u; i < R; i++) {
                        uint at = (k * R + i) * 2u + (j & 1u);
                        lane[at] = lane[at] + q[i] * w;
                    }
                }
            }
        }
        for (uint i = 0u; i < R * N; i++) {
            vec4 a = lane[2u * i], b = lane[2u * i + 1u];
            precise float v = ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
            if (half_ == 1u) v = glu_of(gate[i], v, p.act);
            gate[i] = v;
        }
    }
    for (uint k = 0u; k < N && o + k < p.count; k++)
        for (uint i = 0u; i < R && r0 + i <= last; i++) put(r0 + i, o + k, gate[k * R + i]);
}
