/* Blocks of 32 columns in whole numbers, four products at a time, and what each adds to an output: the
 * contract's act mode Q8 (abi/README.md, MATMUL).  x has what quantise.comp wrote. */
#define Q8
#include "matmul.glsl"
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019],
                  id = 4450) int sdot(int a, int b, spirv_literal int format);
#define X_WORDS 10u
struct block_scales {
    float d, m;
    int a, b; /* of K formats: the whole numbers before d and m; of Q6_K before the halves */
};
block_scales block_of(uint o, uint b)
{
    block_scales s = block_scales(0.0, 0.0, 0, 0);
    if (DTYPE == Q8_0 || DTYPE == Q4_0) {
        s.d = half_at(o * p.b_row * 2u + b);
    } else if (DTYPE == Q4_1) {
        vec2 d = unpackHalf2x16(wt[p.b_at + o * p.b_row + b]);
        s.d = d.x;
        s.m = d.y;
    } else if (DTYPE == Q4_K) {
        uint at = p.b_at + o * p.b_row + (b >> 3) * 4u;
        vec2 d = unpackHalf2x16(wt[at]);
        uvec2 k = k_scales(at, b & 7u);
        s = block_scales(d.x, d.y, int(k.x), int(k.y));
    } else {
        uint h = o * p.b_row * 2u + (b >> 3) * 9u, k = (b & 7u) * 2u;
        s = block_scales(half_at(h + 8u), 0.0, q6_scale(h, k), q6_scale(h, k + 1u));
    }
    return s;
}
/* i: sums of the two halves; d: of x; sums: of x's codes in the halves. */
float term_of(block_scales s, ivec2 i, float d, ivec2 sums)
{
    precise float v;
    int all = sums.x + sums.y;
    if (DTYPE == Q4_K) {
        v = (float(s.a * (i.x + i.y)) * s.d) * d;
        precise float zero = (float(s.b * all) * s.m) * d;
        v = v - zero;
    } else if (DTYPE == Q6_K) {
        i -= 32 * sums;
        v = (float(s.a * i.x + s.b * i.y) * s.d) * d;
    } else {
        v = (float(i.x + i.y - (DTYPE == Q4_0 ? 8 * all : 0)) * s.d) * d;
        if (DTYPE == Q4_1) v = v + s.m * (d * float(all));
    }
    return v;
}
ivec2 sums_of(uint word)
{
    return ivec2(bitfieldExtract(int(word), 0, 16), int(word) >> 16);
}
