/* kernels_rows - ops on rows, over the vectors of the file that includes this; see kernels_tier.h. */
#ifndef KERNELS_ROWS_H
#define KERNELS_ROWS_H
#include "kernels.h"

#include <math.h>
#include <string.h>

/* ---- elementwise ---- */

INLINE vf exp_v(vf x)
{
    const vf magic = vf_set(12582912.0f), low = vf_set(-87.33654f);
    vf c = vf_min(vf_set(88.3f), x); /* x where it is a NaN */
    vf k = vf_add(vf_mul(c, vf_set(0x1.715476p+0f)), magic), n = vf_sub(k, magic);
    vf r = vf_sub(c, vf_mul(n, vf_set(0x1.62e4p-1f)));
    r = vf_sub(r, vf_mul(n, vf_set(0x1.7f7d1cp-20f)));
    vf p = vf_set(0x1.6db4eap-10f);
    p = vf_add(vf_mul(p, r), vf_set(0x1.123bdep-7f));
    p = vf_add(vf_mul(p, r), vf_set(0x1.55545ep-5f));
    p = vf_add(vf_mul(p, r), vf_set(0x1.55548ep-3f));
    p = vf_add(vf_mul(p, r), vf_set(0.5f));
    vf y = vf_add(vf_set(1), vf_add(r, vf_mul(vf_mul(r, r), p)));
    y = vf_cast(vi_add(vi_cast(y), vi_shift_left(vi_cast(k), 23)));
    return vf_keep_nan(vf_zero_below(y, x, low), x);
}

INLINE vf tanh_v(vf x)
{
    vf e = vf_add(exp_v(vf_mul(vf_set(2), x)), vf_set(1));
    return vf_sub(vf_set(1), vf_div(vf_set(2), e));
}

INLINE vf negative_v(vf x)
{
    return vf_cast(vi_add(vi_cast(x), vi_set((int32_t)0x80000000u))); /* the sign bit turned */
}

INLINE vf glu_v(uint32_t act, vf g, vf u)
{
    vf a;
    if (act == FAK_SILU) {
        a = vf_div(g, vf_add(vf_set(1), exp_v(negative_v(g))));
    } else {
        vf cube = vf_mul(vf_mul(vf_mul(vf_set(0.044715f), g), g), g);
        vf z = vf_mul(vf_set(0.7978845608f), vf_add(g, cube));
        a = vf_mul(vf_mul(vf_set(0.5f), g), vf_add(vf_set(1), tanh_v(z)));
    }
    return vf_mul(a, u);
}

/* The first n lanes from p; zeros in the others. */
INLINE vf load_some(const float *p, uint32_t n)
{
    float lane[W] = {0};
    memcpy(lane, p, n * sizeof *p);
    return vf_load(lane);
}

INLINE void store_some(float *p, vf a, uint32_t n)
{
    float lane[W];
    vf_store(lane, a);
    memcpy(p, lane, n * sizeof *p);
}

#define ELEMENTS(cols, a, b, y, expression) /* of x and z, vectors of a and b */                   \
    do {                                                                                           \
        uint32_t i_ = 0;                                                                           \
        for (; i_ + W <= (cols); i_ += W) {                                                        \
            vf x = vf_load((a) + i_), z = vf_load((b) + i_);                                       \
            (void)z;                                                                               \
            vf_store((y) + i_, expression);                                                        \
        }                                                                                          \
        if (i_ < (cols)) {                                                                         \
            vf x = load_some((a) + i_, (cols)-i_), z = load_some((b) + i_, (cols)-i_);             \
            (void)z;                                                                               \
            store_some((y) + i_, expression, (cols)-i_);                                           \
        }                                                                                          \
    } while (0)

static void glu(const fak_op *op, uint32_t cols, const float *a, const float *b, float *y)
{
    if (op->act == FAK_SILU)
        ELEMENTS(cols, a, b, y, glu_v(FAK_SILU, x, z));
    else
        ELEMENTS(cols, a, b, y, glu_v(FAK_GELU_TANH, x, z));
}

static void add(const fak_op *op, uint32_t cols, const float *a, const float *b, float *y)
{
    (void)op;
    ELEMENTS(cols, a, b, y, vf_add(x, z));
}

static void scale(const fak_op *op, uint32_t cols, const float *a, const float *b, float *y)
{
    const vf by = vf_set(op->scale);
    (void)b;
    ELEMENTS(cols, a, a, y, vf_mul(x, by));
}

static void softcap(const fak_op *op, uint32_t cols, const float *a, const float *b, float *y)
{
    const vf cap = vf_set(op->softcap);
    (void)b;
    ELEMENTS(cols, a, a, y, vf_mul(cap, tanh_v(vf_div(x, cap))));
}

/* ---- rows ---- */

/* y = (x*inverse)*w */
INLINE void normed(uint32_t n, const float *x, const float *w, float inverse, float *y)
{
    const vf by = vf_set(inverse);
    uint32_t i = 0;
    for (; i + W <= n; i += W)
        vf_store(y + i, vf_mul(vf_mul(vf_load(x + i), by), vf_load(w + i)));
    if (i == n) return;
    vf rest = vf_mul(vf_mul(load_some(x + i, n - i), by), load_some(w + i, n - i));
    store_some(y + i, rest, n - i);
}

static void rmsnorm(const fak_op *op, uint32_t cols, const float *x, const float *w, float *y)
{
    uint32_t n = op->group ? op->group : cols;
    for (uint32_t g = 0; g < cols; g += n) {
        float ss = 0;
        for (uint32_t i = 0; i < n; i++) ss = ss + x[g + i] * x[g + i];
        normed(n, x + g, w, 1.0f / sqrtf(ss / (float)n + op->eps), y + g);
    }
}

/* Four rows, one after another in memory: each sum is in order, and waits for none of the others. */
static void rmsnorm4(const fak_op *op, uint32_t cols, const float *x, const float *w, float *y)
{
    uint32_t n = op->group ? op->group : cols;
    for (uint32_t g = 0; g < cols; g += n) {
        const float *row[4] = {x + g, x + cols + g, x + 2 * (size_t)cols + g, x + 3 * (size_t)cols + g};
        float ss[4] = {0};
        for (uint32_t i = 0; i < n; i++)
            for (int r = 0; r < 4; r++) ss[r] = ss[r] + row[r][i] * row[r][i];
        for (uint32_t r = 0; r < 4; r++)
            normed(n, row[r], w, 1.0f / sqrtf(ss[r] / (float)n + op->eps), y + (size_t)r * cols + g);
    }
}

INLINE void rotate(vf a, vf b, vf c, vf s, vf *low, vf *high)
{
    *low = vf_sub(vf_mul(a, c), vf_mul(b, s));
    *high = vf_add(vf_mul(a, s), vf_mul(b, c));
}

static void rope(const fak_op *op, uint32_t cols, const float *x, const float *tab, float *y)
{
    uint32_t d = op->head_dim, half = op->rot_dim / 2;
    for (uint32_t h = 0; h < cols; h += d) {
        const float *a = x + h, *b = a + half, *sin = tab + half;
        float *to = y + h;
        uint32_t i = 0;
        vf low, high;
        for (; i + W <= half; i += W) {
            rotate(vf_load(a + i), vf_load(b + i), vf_load(tab + i), vf_load(sin + i), &low, &high);
            vf_store(to + i, low);
            vf_store(to + half + i, high);
        }
        if (i < half) {
            uint32_t n = half - i;
            rotate(load_some(a + i, n), load_some(b + i, n), load_some(tab + i, n),
                   load_some(sin + i, n), &low, &high);
            store_some(to + i, low, n);
            store_some(to + half + i, high, n);
        }
        if (to != a) memmove(to + op->rot_dim, a + op->rot_dim, (d - op->rot_dim) * sizeof *to);
    }
}

static void argmax(const fak_op *op, uint32_t cols, const float *x, const float *b, float *y)
{
    uint32_t i = 0, best = 0;
    vf most = vf_set(-INFINITY);
    int nan = 0;
    (void)op, (void)b;
    for (; i + W <= cols; i += W) {
        vf a = vf_load(x + i);
        nan |= vf_has_nan(a);
        most = vf_max(a, most);
    }
    float m = vf_highest(most);
    for (; i < cols; i++) {
        nan |= x[i] != x[i];
        m = x[i] > m ? x[i] : m;
    }
    while (!nan && x[best] != m) best++;
    if (nan) best = 0xffffffffu;
    memcpy(y, &best, sizeof best);
}
#endif
