#version 450
#extension GL_GOOGLE_include_directive : require
/* Activations in Q8 (abi/README.md, "Activation block"), a block of 32 columns an invocation: eight words
 * of codes, the scale, the sums of both halves in one word. */
#include "common.glsl"
layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 3) buffer Y { uint y[]; };
void main()
{
    uint b = gl_GlobalInvocationID.x, blocks = p.icols / 32u;
    if (b >= blocks) return;
    uint at = (gl_WorkGroupID.y * blocks + b) * 32u, to = at / 32u * 10u, top = 0u;
    for (uint i = 0u; i < 32u; i++) top = max(top, floatBitsToUint(x[at + i]) & 0x7fffffffu);
    bool bad = top >= 0x7f800000u, zero = bad || top <= 0x0d800000u; /* 2^-100 */
    precise float d = uintBitsToFloat(top) / 127.0, inverse = 127.0 / uintBitsToFloat(top);
    int sum[2] = int[2](0, 0);
    for (uint k = 0u; k < 8u; k++) {
        uint word = 0u;
        for (uint i = 0u; i < 4u; i++) { /* adding 1.5*2^23 rounds to nearest even */
            precise float q = x[at + k * 4u + i] * inverse + 12582912.0;
            q = q - 12582912.0;
            int code = zero ? 0 : int(q);
            sum[k / 4u] += code;
            word |= uint(code & 255) << i * 8u;
        }
        y[to + k] = word;
    }
    y[to + 8u] = bad ? 0x7fc00000u : zero ? 0u : floatBitsToUint(d);
    y[to + 9u] = uint(sum[0] & 0xffff) | uint(sum[1]) << 16;
}
