/* What the kernels of MATMUL share: x, y, what is added or taken through GLU, and where outputs go. */
#include "common.glsl"
#include "weights.glsl"
#include "math.glsl"
layout(constant_id = 1) const uint R = 1;         /* rows of x of a workgroup */
layout(constant_id = 2) const bool ADD = false;   /* y = z + the row of binding 4 */
layout(constant_id = 3) const bool GLU = false;   /* y = act(z) * z of `count` rows further on */
layout(constant_id = 4) const bool RAGGED = false; /* columns are no multiple of 4 */
#ifdef Q8
layout(std430, set = 0, binding = 1) readonly buffer X { uint x[]; };
#else
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
#endif
layout(std430, set = 0, binding = 3) buffer Y { float y[]; };
layout(std430, set = 0, binding = 4) readonly buffer Z { float z[]; };
#ifndef Q8
vec4 quad_of(uint r, uint c)
{
    uint at = p.x + r * p.icols + c * 4u;
    if (!RAGGED) return vec4(x[at], x[at + 1u], x[at + 2u], x[at + 3u]);
    vec4 q = vec4(0.0);
    for (uint i = 0u; i < 4u && c * 4u + i < p.icols; i++) q[i] = x[at + i];
    return q;
}
#endif
/* Output o of row r: the value that it belongs to is one of up to three. */
void put(uint r, uint o, float v)
{
    o += p.first;
    if (ADD) {
        precise float sum = z[r * p.ocols + o] + v;
        v = sum;
    }
    uint at = p.y + r * p.ocols + o;
    if (p.n1 != 0u && o >= p.n1) {
        uint end = p.n2 != 0u ? p.n2 : p.source;
        at = p.y1 + r * (end - p.n1) + (o - p.n1);
    }
    if (p.n2 != 0u && o >= p.n2) at = p.y2 + r * (p.source - p.n2) + (o - p.n2);
    y[at] = v;
}
