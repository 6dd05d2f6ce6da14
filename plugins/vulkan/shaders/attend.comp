#version 450
#extension GL_GOOGLE_include_directive : require
#ifdef SUBGROUPS
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
/* ATTENTION of one head and row in one pass over the keys, 64 positions at a time: a score an
 * invocation, then columns of the values. */
#include "common.glsl"
#include "math.glsl"
#define LOCAL 64u
layout(local_size_x = LOCAL) in;
layout(constant_id = 1) const uint SHARE = 1; /* columns of an invocation */
layout(constant_id = 4) const bool FIRST = true; /* of the pieces of kv */
layout(constant_id = 5) const bool LAST = true;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer Kv { uint kv[]; };
layout(std430, set = 0, binding = 3) buffer Y { float y[]; };
layout(std430, set = 0, binding = 4) buffer Step { uint st[]; };
#include "kv.glsl"
#define SUMMED float
#include "reduce.glsl"
shared float q[64 * SHARE], weight[64];
shared uint place[64];
void main()
{
    uint h = gl_WorkGroupID.x, r = gl_WorkGroupID.y, i = gl_LocalInvocationID.x, d = p.head_dim;
    uint pages = st[ROW_AT(r) + 1u], position = st[ROW_AT(r) + 2u], cols = COLS;
    uint column = h / (p.heads / p.kv_heads) * d, at = (r * p.heads + h) * d;
    uint from = p.window != 0u && position + 1u > p.window ? position + 1u - p.window : 0u;
    for (uint j = i; j < d; j += 64u) q[j] = x[at + j];
    float top = -3.0e38, sum = 0.0, out_[SHARE];
    for (uint k = 0u; k < SHARE; k++) out_[k] = 0.0;
    if (!FIRST) {
        top = uintBitsToFloat(st[STATE_AT(r, h)]);
        sum = uintBitsToFloat(st[STATE_AT(r, h) + 1u]);
        for (uint k = 0u; k < SHARE; k++)
            if (i + k * 64u < d) out_[k] = y[at + i + k * 64u];
    }
    for (uint t0 = from; t0 <= position; t0 += 64u) {
        uint n = min(64u, position + 1u - t0);
        float s = -3.0e38;
        barrier();
        bool here = i < n && !ELSEWHERE(pages, t0 + i);
        if (here) {
            uint key = PLACE(pages, t0 + i) * cols + column;
            place[i] = key;
            s = 0.0;
            for (uint j = 0u; j < d; j++) s += q[j] * kv_at(0u, key + j);
            s *= p.scale;
            if (p.softcap != 0.0) s = capped(s, p.softcap);
        }
        float high = max_of(s), now = high > top ? high : top, fade = exp_of(top - now);
        weight[i] = here ? exp_of(s - now) : -1.0;
        top = now;
        barrier();
        sum *= fade;
        for (uint k = 0u; k < SHARE; k++) out_[k] *= fade;
        for (uint t = 0u; t < n; t++) {
            if (SPLIT && weight[t] < 0.0) continue;
            sum += weight[t];
            for (uint k = 0u; k < SHARE; k++)
                if (i + k * 64u < d) out_[k] += weight[t] * kv_at(p.values, place[t] + i + k * 64u);
        }
    }
    if (!LAST) {
        barrier(); /* all have read what is now written */
        if (i == 0u) st[STATE_AT(r, h)] = floatBitsToUint(top);
        if (i == 0u) st[STATE_AT(r, h) + 1u] = floatBitsToUint(sum);
    }
    for (uint k = 0u; k < SHARE; k++)
        if (i + k * 64u < d) y[at + i + k * 64u] = LAST ? out_[k] / sum : out_[k];
}
