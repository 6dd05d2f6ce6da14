/* Rows of weights as they lie on the device (weights.c): plane A has codes or plain numbers in whole
 * words, plane B the scales in halves.  A row is read in quads, four columns of 4c and on:
 * w = scale*code + zero, in the contract's order. */
layout(constant_id = 0) const uint DTYPE = 1;
#define F32 1u
#define F16 2u
#define BF16 3u
#define Q8_0 16u
#define Q4_0 17u
#define Q4_1 18u
#define Q4_K 21u
#define Q6_K 23u
layout(std430, set = 0, binding = 2) readonly buffer Weights { uint wt[]; };
uint half_bits(uint h)
{
    return wt[p.b_at + (h >> 1)] >> ((h & 1u) * 16u) & 0xffffu;
}
float half_at(uint h)
{
    return unpackHalf2x16(half_bits(h)).x;
}
uint scale_byte(uint at, uint k) /* of Q4_K: byte k of the twelve behind the two halves */
{
    return wt[at + 1u + (k >> 2)] >> (k & 3u) * 8u & 255u;
}
/* Of Q4_K: the whole numbers that scale and zero of 32 columns, j-th of a block, are made from. */
uvec2 k_scales(uint at, uint j)
{
    if (j < 4u) return uvec2(scale_byte(at, j) & 63u, scale_byte(at, j + 4u) & 63u);
    return uvec2((scale_byte(at, j + 4u) & 15u) | scale_byte(at, j - 4u) >> 6 << 4,
                 scale_byte(at, j + 4u) >> 4 | scale_byte(at, j) >> 6 << 4);
}
int q6_scale(uint h, uint k) /* of Q6_K: 16 columns, k-th of a block; h: halves of plane B */
{
    return bitfieldExtract(int(half_bits(h + (k >> 1))), int(k & 1u) * 8, 8);
}
/* The scale and the zero of quad c of row o. */
vec2 scale_of(uint o, uint c)
{
    precise vec2 s = vec2(1.0, 0.0);
    if (DTYPE == Q8_0 || DTYPE == Q4_0) {
        s.x = half_at(o * p.b_row * 2u + (c >> 3));
    } else if (DTYPE == Q4_1) {
        s = unpackHalf2x16(wt[p.b_at + o * p.b_row + (c >> 3)]);
    } else if (DTYPE == Q4_K) {
        uint at = p.b_at + o * p.b_row + (c >> 6) * 4u;
        uvec2 k = k_scales(at, c >> 3 & 7u);
        vec2 d = unpackHalf2x16(wt[at]);
        s.x = d.x * float(k.x);
        s.y = -(d.y * float(k.y));
    } else if (DTYPE == Q6_K) {
        uint h = o * p.b_row * 2u + (c >> 6) * 9u;
        s.x = half_at(h + 8u) * float(q6_scale(h, c >> 2 & 15u));
    }
    return s;
}
vec4 bytes_of(uint w)
{
    return vec4(w & 255u, w >> 8 & 255u, w >> 16 & 255u, w >> 24);
}
/* Of Q4_0 and Q4_1: the word that has quad c of row o, and the quad 16 columns from it. */
uint nibble_word(uint o, uint c)
{
    return wt[o * p.a_row + (c >> 3) * 4u + (c & 3u)];
}
vec4 nibbles_of(uint w)
{
    return bytes_of(w & 0x0f0f0f0fu) - (DTYPE == Q4_0 ? 8.0 : 0.0);
}
/* The codes of quad c of row o as they are kept, in bytes: of Q8_0 signed, of Q4_0 and Q6_K from 0 on. */
uint code_word(uint o, uint c)
{
    uint at = o * p.a_row;
    if (DTYPE == Q8_0) return wt[at + c];
    if (DTYPE == Q4_0 || DTYPE == Q4_1)
        return nibble_word(o, c) >> (c >> 2 & 1u) * 4u & 0x0f0f0f0fu;
    if (DTYPE == Q4_K) {
        uint j = c >> 3 & 7u;
        uint w = wt[at + (c >> 6) * 32u + (j >> 1) * 8u + (c & 7u)] >> (j & 1u) * 4u;
        return w & 0x0f0f0f0fu;
    }
    uint n = c >> 5 & 1u, g = c >> 3 & 3u, block = at + (c >> 6) * 48u; /* Q6_K */
    uint low = wt[block + n * 16u + (g & 1u) * 8u + (c & 7u)] >> (g >> 1) * 4u;
    uint high = wt[block + 32u + n * 8u + (c & 7u)] >> g * 2u;
    return (low & 0x0f0f0f0fu) | (high & 0x03030303u) << 4;
}
/* The codes of quad c of row o; plain numbers as they are. */
vec4 codes_of(uint o, uint c)
{
    uint at = o * p.a_row;
    if (DTYPE == F32)
        return uintBitsToFloat(uvec4(wt[at + c * 4u], wt[at + c * 4u + 1u], wt[at + c * 4u + 2u],
                                     wt[at + c * 4u + 3u]));
    if (DTYPE == F16)
        return vec4(unpackHalf2x16(wt[at + c * 2u]), unpackHalf2x16(wt[at + c * 2u + 1u]));
    if (DTYPE == BF16) {
        uint a = wt[at + c * 2u], b = wt[at + c * 2u + 1u];
        return uintBitsToFloat(uvec4(a << 16, a & 0xffff0000u, b << 16, b & 0xffff0000u));
    }
    uint w = code_word(o, c);
    if (DTYPE == Q8_0)
        return vec4(bitfieldExtract(int(w), 0, 8), bitfieldExtract(int(w), 8, 8),
                    bitfieldExtract(int(w), 16, 8), bitfieldExtract(int(w), 24, 8));
    return bytes_of(w) - (DTYPE == Q4_0 ? 8.0 : DTYPE == Q6_K ? 32.0 : 0.0);
}
vec4 weights_of(vec2 s, vec4 codes)
{
    precise vec4 w = codes;
    if (DTYPE >= Q8_0) w = s.x * codes;
    if (DTYPE == Q4_1 || DTYPE == Q4_K) w = w + s.y;
    return w;
}
