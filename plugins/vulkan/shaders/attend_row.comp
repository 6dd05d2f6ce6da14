#version 450
#extension GL_GOOGLE_include_directive : require
/* ATTENTION of one head and row, without shared memory: invocations share the columns, each sums every
 * score.  EXACT takes the maximum first, as the contract does; else one pass that scales what it has
 * when a larger score comes. */
#include "common.glsl"
#include "math.glsl"
layout(local_size_x = 16) in;
layout(constant_id = 1) const uint SHARE = 4; /* columns of an invocation */
layout(constant_id = 2) const bool EXACT = false;
layout(constant_id = 4) const bool FIRST = true; /* of the pieces of kv */
layout(constant_id = 5) const bool LAST = true;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer Kv { uint kv[]; };
layout(std430, set = 0, binding = 3) buffer Y { float y[]; };
layout(std430, set = 0, binding = 4) buffer Step { uint st[]; };
#include "kv.glsl"
float score(uint q, uint key)
{
    precise float s = 0.0;
    for (uint i = 0u; i < p.head_dim; i++) s = s + x[q + i] * kv_at(0u, key + i);
    s = s * p.scale;
    return p.softcap != 0.0 ? capped(s, p.softcap) : s;
}
void main()
{
    uint h = gl_WorkGroupID.x, r = gl_WorkGroupID.y, d = p.head_dim, t0 = gl_LocalInvocationID.x;
    uint pages = st[ROW_AT(r) + 1u], position = st[ROW_AT(r) + 2u], cols = COLS;
    uint column = h / (p.heads / p.kv_heads) * d, q = (r * p.heads + h) * d;
    uint from = p.window != 0u && position + 1u > p.window ? position + 1u - p.window : 0u;
    precise float top = uintBitsToFloat(0xff800000u), sum = 0.0, out_[SHARE];
    for (uint k = 0u; k < SHARE; k++) out_[k] = 0.0;
    if (!FIRST) {
        top = uintBitsToFloat(st[STATE_AT(r, h)]);
        sum = uintBitsToFloat(st[STATE_AT(r, h) + 1u]);
        for (uint k = 0u; k < SHARE; k++)
            if (t0 + k * 16u < d) out_[k] = y[q + t0 + k * 16u];
    }
    for (uint t = from; EXACT && t <= position; t++) {
        float s = score(q, PLACE(pages, t) * cols + column);
        if (s > top) top = s;
    }
    for (uint t = from; t <= position; t++) {
        if (ELSEWHERE(pages, t)) continue;
        uint at = PLACE(pages, t) * cols + column;
        float s = score(q, at);
        if (!EXACT && s > top) {
            float fade = exp_of(top - s);
            sum = sum * fade;
            for (uint k = 0u; k < SHARE; k++) out_[k] = out_[k] * fade;
            top = s;
        }
        precise float e = exp_of(s - top);
        sum = sum + e;
        for (uint k = 0u; k < SHARE; k++) {
            uint i = t0 + k * 16u;
            if (i < d) out_[k] = out_[k] + e * kv_at(p.values, at + i);
        }
    }
    precise float inverse = LAST ? 1.0 / sum : 1.0;
    if (!LAST) {
        barrier(); /* all have read what is now written */
        if (t0 == 0u) st[STATE_AT(r, h)] = floatBitsToUint(top);
        if (t0 == 0u) st[STATE_AT(r, h) + 1u] = floatBitsToUint(sum);
    }
    for (uint k = 0u; k < SHARE; k++) {
        precise float v = out_[k] * inverse;
        if (t0 + k * 16u < d) y[q + t0 + k * 16u] = v;
    }
}
