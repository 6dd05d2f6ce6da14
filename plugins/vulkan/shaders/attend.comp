#version 450
#extension GL_GOOGLE_include_directive : require
/* ATTENTION of one head and row in one pass over the keys, 64 positions at a time: a score an
 * invocation, then columns of the values. */
#include "common.glsl"
#include "math.glsl"
layout(local_size_x = 64) in;
layout(constant_id = 1) const uint SHARE = 1; /* columns of an invocation */
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer Kv { uint kv[]; };
layout(std430, set = 0, binding = 3) buffer Y { float y[]; };
layout(std430, set = 0, binding = 4) readonly buffer Step { uint st[]; };
#include "kv.glsl"
shared float q[64 * SHARE], weight[64], high[64];
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
    for (uint t0 = from; t0 <= position; t0 += 64u) {
        uint n = min(64u, position + 1u - t0);
        float s = -3.0e38;
        barrier();
        if (i < n) {
            uint key = PLACE(pages, t0 + i) * cols + column;
            place[i] = key;
            s = 0.0;
            for (uint j = 0u; j < d; j++) s += q[j] * kv_at(0u, key + j);
            s *= p.scale;
            if (p.softcap != 0.0) s = capped(s, p.softcap);
        }
        high[i] = s;
        barrier();
        for (uint k = 32u; k > 0u; k >>= 1) {
            if (i < k && high[i + k] > high[i]) high[i] = high[i + k];
            barrier();
        }
        float now = high[0] > top ? high[0] : top, fade = exp_of(top - now);
        weight[i] = i < n ? exp_of(s - now) : 0.0;
        top = now;
        barrier();
        sum *= fade;
        for (uint k = 0u; k < SHARE; k++) out_[k] *= fade;
        for (uint t = 0u; t < n; t++) {
            sum += weight[t];
            for (uint k = 0u; k < SHARE; k++)
                if (i + k * 64u < d) out_[k] += weight[t] * kv_at(p.values, place[t] + i + k * 64u);
        }
    }
    for (uint k = 0u; k < SHARE; k++)
        if (i + k * 64u < d) y[at + i + k * 64u] = out_[k] / sum;
}
