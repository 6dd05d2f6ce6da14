#version 450
#extension GL_GOOGLE_include_directive : require
/* MATMUL for many rows: a workgroup has a tile of 64 outputs by 32 rows, an invocation 4 by 4 of it.  It
 * goes along the columns 32 at a time, which lie in shared memory: weights are decoded once a tile. */
#include "matmul.glsl"
#define LOCAL 128u
layout(local_size_x = LOCAL) in;
#define OUTPUTS 64u /* job_tile has these and ROWS_HERE too */
#define ROWS_HERE 32u
#define DEPTH 8u /* quads of columns */
/* [column][quad of outputs or rows]; one quad more apart, for the banks */
shared vec4 ws[DEPTH * 4u * (OUTPUTS / 4u + 1u)], xs[DEPTH * 4u * (ROWS_HERE / 4u + 1u)];
void load_weights(uint t, uint o0, uint row, uint c0, uint quads)
{
    for (uint i = t; i < OUTPUTS * DEPTH; i += LOCAL) {
        uint o = i / DEPTH, c = c0 + i % DEPTH;
        vec4 w = vec4(0.0);
        if (o0 + o < p.count && c < quads)
            w = weights_of(scale_of(row + o, c), codes_of(row + o, c));
        for (uint k = 0u; k < 4u; k++)
            ws[(i % DEPTH * 4u + k) * (OUTPUTS / 4u + 1u) + o / 4u][o % 4u] = w[k];
    }
}
void load_rows(uint t, uint r0, uint c0, uint quads)
{
    for (uint i = t; i < ROWS_HERE * DEPTH; i += LOCAL) {
        uint r = i / DEPTH, c = c0 + i % DEPTH;
        vec4 q = r0 + r < ROWS && c < quads ? quad_of(r0 + r, c) : vec4(0.0);
        for (uint k = 0u; k < 4u; k++)
            xs[(i % DEPTH * 4u + k) * (ROWS_HERE / 4u + 1u) + r / 4u][r % 4u] = q[k];
    }
}
void main()
{
    uint t = gl_LocalInvocationID.x, quads = (p.icols + 3u) / 4u;
    uint o0 = gl_WorkGroupID.x * OUTPUTS, r0 = gl_WorkGroupID.y * ROWS_HERE;
    uint mine = t % (OUTPUTS / 4u), rows = t / (OUTPUTS / 4u); /* quads of outputs, of rows */
    vec4 v[4], sum[4]; /* outputs of a row */
    for (uint half_ = 0u; half_ < (GLU ? 2u : 1u); half_++) {
        for (uint i = 0u; i < 4u; i++) sum[i] = vec4(0.0);
        for (uint c = 0u; c < quads; c += DEPTH) {
            barrier();
            load_weights(t, o0, p.base + o0 + half_ * p.count, c, quads);
            load_rows(t, r0, c, quads);
            barrier();
            for (uint k = 0u; k < DEPTH * 4u; k++) {
                vec4 w = ws[k * (OUTPUTS / 4u + 1u) + mine], q = xs[k * (ROWS_HERE / 4u + 1u) + rows];
                for (uint i = 0u; i < 4u; i++) sum[i] += q[i] * w;
            }
        }
        for (uint i = 0u; i < 4u; i++)
            for (uint k = 0u; k < 4u; k++)
                v[i][k] = half_ == 1u ? glu_of(v[i][k], sum[i][k], p.act) : sum[i][k];
    }
    for (uint i = 0u; i < 4u; i++)
        for (uint k = 0u; k < 4u; k++)
            if (r0 + rows * 4u + i < ROWS && o0 + mine * 4u + k < p.count)
                put(r0 + rows * 4u + i, o0 + mine * 4u + k, v[i][k]);
}
