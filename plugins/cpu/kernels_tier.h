/* kernels_tier - all kernels, written once over the vectors of vec_*.h; each tier's file includes one of
 * those, then this, and names its set with KERNEL_SET.  Brackets are the contract's order of operations. */
#include "kernels.h"
#include "layout.h"

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

/* ---- panels ---- */

typedef struct panel_block { /* where a block's parts lie, for so many tokens */
    int32_t *sum, *half;
    float *d, *t;
    int8_t *q;
} panel_block;

INLINE panel_block block_at(void *panel, uint32_t tokens, size_t b)
{
    int32_t *at = (int32_t *)panel + b * tokens * (PANEL_BLOCK_BYTES / 4);
    return (panel_block){at, at + tokens, (float *)(at + 2 * tokens), (float *)(at + 3 * tokens),
                         (int8_t *)(at + 4 * tokens)};
}

/* 32 floats: d = m/127, q = rint(x*(127/m)); tiny blocks are zero, what is no number makes d a NaN. */
INLINE void quantise_block(const float *x, int8_t q[BLOCK], float *d, int32_t *sum, int32_t *half)
{
    enum { N = BLOCK / W };
    const vi magnitude = vi_set(0x7fffffff);
    vi most = vi_set(0), low = vi_set(0), high = vi_set(0);
    for (int i = 0; i < N; i++) most = vi_max(most, vi_and(vi_cast(vf_load(x + i * W)), magnitude));
    int32_t bits = vi_highest(most);
    float m;
    memcpy(&m, &bits, sizeof m);
    *sum = *half = 0;
    *d = 0;
    memset(q, 0, BLOCK);
    if (bits >= 0x7f800000) *d = NAN;
    if (bits >= 0x7f800000 || !(m > 0x1p-100f)) return;
    *d = m / 127.0f;
    const vf inverse = vf_set(127.0f / m);
    for (int i = 0; i < N; i++) {
        vi v = vi_from_float(vf_mul(vf_load(x + i * W), inverse));
        vi_store_bytes(q + i * W, v);
        if (i < N / 2)
            low = vi_add(low, v);
        else
            high = vi_add(high, v);
    }
    *half = vi_sum(low);
    *sum = *half + vi_sum(high);
}

static void quantise(const panel_args *a)
{
    uint32_t tokens = a->tokens;
    for (uint32_t b = 0; b < a->cols / BLOCK; b++) {
        panel_block p = block_at(a->panel, tokens, b);
        for (uint32_t c = 0; c < tokens; c++) {
            int8_t q[BLOCK] = {0};
            p.d[c] = 0;
            p.sum[c] = p.half[c] = 0;
            if (c < a->rows)
                quantise_block(a->x + c * a->stride + (size_t)b * BLOCK, q, &p.d[c], &p.sum[c],
                               &p.half[c]);
            p.t[c] = p.d[c] * (float)p.sum[c];
            for (int k = 0; k < 8; k++) memcpy(p.q + ((size_t)k * tokens + c) * 4, q + 4 * k, 4);
        }
    }
}

/* Where columns [8*k, 8*k + 8) of token c lie. */
INLINE float *panel_row(float *panel, uint32_t tokens, uint32_t padded, uint32_t c, uint32_t k)
{
    if (WIDE_TILES && tokens > 1) return panel + (size_t)k * 64 + c % 4 * 16 + c / 4 * 8;
    return panel + (size_t)c * padded + 8 * k;
}

static void pack(const panel_args *a)
{
    uint32_t padded = (a->cols + 7) / 8 * 8;
    for (uint32_t c = 0; c < a->tokens; c++)
        for (uint32_t k = 0; k < padded / 8; k++) {
            uint32_t n = a->cols - 8 * k < 8 ? a->cols - 8 * k : 8;
            float *to = panel_row(a->panel, a->tokens, padded, c, k);
            if (n < 8 || c >= a->rows) memset(to, 0, 8 * sizeof *to);
            if (c < a->rows) memcpy(to, a->x + c * a->stride + (size_t)k * 8, n * sizeof *to);
        }
}

/* ---- MATMUL by block weights, Q8 activations ---- */

/* W rows s*W.. of a group, columns 4k..4k+3 of 32-column block j: 4 bytes a row. */
INLINE vi codes(const layout *l, const uint8_t *g, int j, int k, int s)
{
    const int at = s * W * 4, line = 64;
    if (l->dtype == FAK_Q8_0) return vi_load(g + k * line + at);
    vi four = vi_load(g + j * 256 + k % 4 * line + at);
    if (k >= 4) four = vi_shift_right(four, 4);
    four = vi_and(four, vi_set(0x0f0f0f0f));
    for (uint32_t plane = 0; plane < l->bits; plane++)
        four = vi_or(four, vi_spread_bits(g + l->planes + ((uint32_t)j * l->bits + plane) * 64 +
                                              8 * k + s * W / 2,
                                          16 << plane));
    return four;
}

INLINE vi broadcast4(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, 4);
    return vi_set(four);
}

/* The sums of one block for `tokens` tokens: columns 0..15 in low, 16..31 in high (Q6_K), else all in low. */
INLINE void sums(const layout *l, const uint8_t *g, int j, int s, const panel_block *p,
                 int tokens, vi *low, vi *high)
{
    const int halves = l->dtype == FAK_Q6_K;
    const int32_t bias = l->dtype == FAK_Q8_0 ? BYTES_BIAS : l->offset;
#pragma GCC unroll 12
    for (int c = 0; c < tokens; c++) {
        low[c] = vi_set(-bias * (halves ? p->half[c] : p->sum[c]));
        if (halves) high[c] = vi_set(-bias * (p->sum[c] - p->half[c]));
    }
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        vi w = codes(l, g, j, k, s);
#pragma GCC unroll 12
        for (int c = 0; c < tokens; c++) {
            vi x = broadcast4(p->q + (k * tokens + c) * 4);
            vi *sum = halves && k >= 4 ? &high[c] : &low[c];
            *sum = l->dtype == FAK_Q8_0 ? vi_dot_bytes(*sum, w, x) : vi_dot_codes(*sum, w, x);
        }
    }
}

/* Scale and minimum of block j of a K format: 6 bits each. */
INLINE void sub_scales(const uint8_t *sub, int j, vi *sc, vi *mn)
{
    const vi low6 = vi_set(63), low4 = vi_set(15);
    if (j < 4) {
        *sc = vi_and(vi_from_ubytes(sub + 16 * j), low6);
        *mn = vi_and(vi_from_ubytes(sub + 16 * (j + 4)), low6);
        return;
    }
    vi both = vi_from_ubytes(sub + 16 * (j + 4));
    vi high = vi_shift_right(vi_from_ubytes(sub + 16 * (j - 4)), 6);
    vi high_mn = vi_shift_right(vi_from_ubytes(sub + 16 * j), 6);
    *sc = vi_or(vi_and(both, low4), vi_shift_left(high, 4));
    *mn = vi_or(vi_shift_right(both, 4), vi_shift_left(high_mn, 4));
}

INLINE vf half_floats(const uint8_t *p)
{
    return vf_from_f16((const uint16_t *)(const void *)p);
}

/* acc[c] = acc[c] + what one block is worth. */
INLINE void add_block(const layout *l, const uint8_t *g, int j, int s, const panel_block *p,
                      int tokens, vf *acc)
{
    vi low[TILE_MAX], high[TILE_MAX], sc, mn;
    const uint8_t *sub = g + l->sub + s * W;
    sums(l, g, j, s, p, tokens, low, high);
    vf dw = half_floats(g + l->scale + s * W * 2), mw = dw;
    if (l->zero) mw = half_floats(g + l->zero + s * W * 2);
    if (l->sub && l->zero) sub_scales(sub, j, &sc, &mn);
#pragma GCC unroll 12
    for (int c = 0; c < tokens; c++) {
        vf dx = vf_set(p->d[c]), v;
        if (l->sub && l->zero) { /* (((float)(sc*isum)*d)*dx) - (((float)(mn*sx)*dmin)*dx) */
            v = vf_mul(vf_mul(vf_from_int(vi_mul(sc, low[c])), dw), dx);
            vf m = vf_mul(vf_mul(vf_from_int(vi_mul(mn, vi_set(p->sum[c]))), mw), dx);
            v = vf_sub(v, m);
        } else if (l->sub) { /* ((float)(sc0*i0 + sc1*i1)*d)*dx */
            vi a = vi_mul(vi_from_bytes((const int8_t *)sub + 16 * (2 * j)), low[c]);
            vi b = vi_mul(vi_from_bytes((const int8_t *)sub + 16 * (2 * j + 1)), high[c]);
            v = vf_mul(vf_mul(vf_from_int(vi_add(a, b)), dw), dx);
        } else { /* (((float)isum*dw)*dx) [+ (mw*(dx*(float)sx))] */
            v = vf_mul(vf_mul(vf_from_int(low[c]), dw), dx);
            if (l->zero) v = vf_add(v, vf_mul(mw, vf_set(p->t[c])));
        }
        acc[c] = vf_add(acc[c], v);
    }
}

/* What is left of W outputs of a token: rows that are there, added to what is there. */
INLINE void put(const matmul_args *a, int s, int c, vf v)
{
    uint32_t first = (uint32_t)(s * W), n = a->rows > first ? a->rows - first : 0;
    size_t at = (size_t)c * a->stride + first;
    if ((uint32_t)c >= a->tokens) return;
    if (n >= W) {
        vf_store(a->y + at, a->add ? vf_add(vf_load(a->add + at), v) : v);
    } else if (n) {
        if (a->add) v = vf_add(load_some(a->add + at, n), v);
        store_some(a->y + at, v, n);
    }
}

INLINE void matmul_blocks(const layout *l, const matmul_args *a, int tokens)
{
    const size_t group_block = (size_t)GROUP * l->row_bytes;
    const int inner = (int)(l->cols / BLOCK);
#pragma GCC unroll 1
    for (int s = 0; s < GROUP / W; s++) {
        vf acc[TILE_MAX];
        const uint8_t *g = a->w;
#pragma GCC unroll 12
        for (int c = 0; c < tokens; c++) acc[c] = vf_zero();
        for (uint32_t b = 0; b < a->cols / BLOCK; g += group_block)
#pragma GCC unroll 1
            for (int j = 0; j < inner; j++, b++) {
                panel_block p = block_at((void *)(uintptr_t)a->x, (uint32_t)tokens, b);
                add_block(l, g, j, s, &p, tokens, acc);
            }
#pragma GCC unroll 12
        for (int c = 0; c < tokens; c++) put(a, s, c, acc[c]);
    }
}

/* The layouts again, so that the compiler knows them. */
#define BLOCKS(name, ...)                                                                          \
    static const layout layout_##name = {__VA_ARGS__};                                             \
    static void name##_1(const matmul_args *a) { matmul_blocks(&layout_##name, a, 1); }            \
    static void name##_4(const matmul_args *a) { matmul_blocks(&layout_##name, a, 4); }            \
    BLOCKS_WIDE(name)
#if WIDE
#define BLOCKS_WIDE(name)                                                                          \
    static void name##_8(const matmul_args *a) { matmul_blocks(&layout_##name, a, 8); }            \
    static void name##_12(const matmul_args *a) { matmul_blocks(&layout_##name, a, 12); }
#else
#define BLOCKS_WIDE(name)
#endif

BLOCKS(q8_0, FAK_Q8_0, 32, 34, 0, 0, 512, 0, 0, 0)
BLOCKS(q4_0, FAK_Q4_0, 32, 18, 0, 0, 256, 0, 0, 8)
BLOCKS(q4_1, FAK_Q4_1, 32, 20, 0, 0, 256, 288, 0, 0)
BLOCKS(q5_0, FAK_Q5_0, 32, 22, 1, 256, 320, 0, 0, 16)
BLOCKS(q5_1, FAK_Q5_1, 32, 24, 1, 256, 320, 352, 0, 0)
BLOCKS(q4_k, FAK_Q4_K, 256, 144, 0, 0, 2048, 2080, 2112, 0)
BLOCKS(q5_k, FAK_Q5_K, 256, 176, 1, 2048, 2560, 2592, 2624, 0)
BLOCKS(q6_k, FAK_Q6_K, 256, 210, 2, 2048, 3328, 0, 3072, 32)

/* ---- MATMUL by plain weights: eight sums, then ((0+1)+(2+3))+((4+5)+(6+7)) ---- */

INLINE v8 weights8(uint32_t dtype, const uint8_t *row, uint32_t i)
{
    if (dtype == FAK_F32) return v8_load((const float *)(const void *)row + i);
    const uint16_t *h = (const uint16_t *)(const void *)row + i;
    return dtype == FAK_F16 ? v8_from_f16(h) : v8_from_bf16(h);
}

/* The last n of a row, n < 8, with zeros. */
INLINE v8 weights_some(uint32_t dtype, const uint8_t *row, uint32_t i, uint32_t n)
{
    uint8_t eight[32] = {0};
    uint32_t size = dtype == FAK_F32 ? 4 : 2;
    memcpy(eight, row + (size_t)i * size, n * size);
    return weights8(dtype, eight, 0);
}

INLINE float tree(v8 a)
{
    float s[8];
    v8_store(s, a);
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

enum { PLAIN_ROWS = 4, PLAIN_TOKENS = 4 };

/* s += eight columns from i on, of so many rows and tokens. */
INLINE void plain_step(const v8 w[PLAIN_ROWS], const float *x, uint32_t padded, int rows, int tokens,
                       v8 s[PLAIN_ROWS][PLAIN_TOKENS])
{
#pragma GCC unroll 4
    for (int c = 0; c < tokens; c++) {
        v8 y = v8_load(x + (size_t)c * padded);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) s[r][c] = v8_muladd(s[r][c], w[r], y);
    }
}

/* `rows` rows of the group from `first` on by `tokens` tokens.  ahead: NULL, or where the bytes lie that
 * come next, fetched as fast as these are used: rows side by side are no stream that a processor sees. */
INLINE void plain_tile(uint32_t dtype, const matmul_args *a, uint32_t first, int rows, int tokens,
                       const uint8_t *ahead)
{
    v8 s[PLAIN_ROWS][PLAIN_TOKENS], v[PLAIN_ROWS];
    const uint32_t padded = (a->cols + 7) / 8 * 8, whole = a->cols / 8 * 8;
    const float *x = a->x;
    const uint8_t *w = a->w + first * a->row_bytes;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < tokens; c++) s[r][c] = v8_zero();
#pragma GCC unroll 4
    for (uint32_t i = 0; i < whole; i += 8) {
        if (ahead && i % 16 == 0) __builtin_prefetch(ahead + (size_t)i * (uint32_t)rows * 2);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) v[r] = weights8(dtype, w + (size_t)r * a->row_bytes, i);
        plain_step(v, x + i, padded, rows, tokens, s);
    }
    if (whole < a->cols) {
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            v[r] = weights_some(dtype, w + (size_t)r * a->row_bytes, whole, a->cols - whole);
        plain_step(v, x + whole, padded, rows, tokens, s);
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < tokens && (uint32_t)c < a->tokens; c++) {
            size_t at = (size_t)c * a->stride + first + (uint32_t)r;
            float y = tree(s[r][c]);
            a->y[at] = a->add ? a->add[at] + y : y;
        }
}

/* One token: F32 is one stream, a row at a time; of 16 bits two rows together, for turning them into
 * floats takes longer than reading them. */
INLINE void matmul_plain(uint32_t dtype, const matmul_args *a, int tokens)
{
    uint32_t r = 0;
    const uint8_t *next = a->w + 2 * a->row_bytes;
    if (tokens > 1)
        for (; r + 3 <= a->rows; r += 3) plain_tile(dtype, a, r, 3, tokens, NULL);
    else if (dtype != FAK_F32)
        for (; r + 2 <= a->rows; r += 2) plain_tile(dtype, a, r, 2, 1, next + r * a->row_bytes);
    for (; r < a->rows; r++) plain_tile(dtype, a, r, 1, tokens, NULL);
}

static void f32_1(const matmul_args *a) { matmul_plain(FAK_F32, a, 1); }
static void f16_1(const matmul_args *a) { matmul_plain(FAK_F16, a, 1); }
static void bf16_1(const matmul_args *a) { matmul_plain(FAK_BF16, a, 1); }

#if !WIDE
static void f32_4(const matmul_args *a) { matmul_plain(FAK_F32, a, 4); }
static void f16_4(const matmul_args *a) { matmul_plain(FAK_F16, a, 4); }
static void bf16_4(const matmul_args *a) { matmul_plain(FAK_BF16, a, 4); }
#else
/* Pairs of tokens side by side: the eight sums of two are one vector. */
INLINE vf pair_sums(vf a, vf b)
{
    return vf_add(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

INLINE void wide_tile(uint32_t dtype, const matmul_args *a, uint32_t first, int rows)
{
    enum { ROWS = 6 };
    vf s[ROWS][4];
    uint32_t padded = (a->cols + 7) / 8 * 8, whole = a->cols / 8 * 8;
    const float *x = a->x;
    const uint8_t *w = a->w + first * a->row_bytes;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int p = 0; p < 4; p++) s[r][p] = vf_zero();
    for (uint32_t i = 0; i < padded; i += 8, x += 64) {
        vf y[4] = {vf_load(x), vf_load(x + 16), vf_load(x + 32), vf_load(x + 48)};
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const uint8_t *row = w + (size_t)r * a->row_bytes;
            vf v = vf_twice(i < whole ? weights8(dtype, row, i)
                                      : weights_some(dtype, row, i, a->cols - whole));
#pragma GCC unroll 4
            for (int p = 0; p < 4; p++) s[r][p] = vf_add(s[r][p], vf_mul(v, y[p]));
        }
    }
    for (int r = 0; r < rows; r++) {
        float t[16];
        vf v = pair_sums(pair_sums(s[r][0], s[r][1]), pair_sums(s[r][2], s[r][3]));
        vf_store(t, vf_add(v, _mm512_shuffle_f32x4(v, v, 0xb1)));
        for (uint32_t c = 0; c < 8 && c < a->tokens; c++) {
            size_t at = (size_t)c * a->stride + first + (uint32_t)r;
            float y = t[c % 4 + c / 4 * 8];
            a->y[at] = a->add ? a->add[at] + y : y;
        }
    }
}

INLINE void matmul_wide(uint32_t dtype, const matmul_args *a)
{
    uint32_t r = 0;
    for (; r + 6 <= a->rows; r += 6) wide_tile(dtype, a, r, 6);
    if (r + 4 <= a->rows) {
        wide_tile(dtype, a, r, 4);
        r += 4;
    }
    for (; r < a->rows; r++) wide_tile(dtype, a, r, 1);
}
static void f32_8(const matmul_args *a) { matmul_wide(FAK_F32, a); }
static void f16_8(const matmul_args *a) { matmul_wide(FAK_F16, a); }
static void bf16_8(const matmul_args *a) { matmul_wide(FAK_BF16, a); }
#endif

/* ---- ATTENTION ---- */

INLINE vf kv_load(uint32_t dtype, const void *base, size_t at)
{
    if (dtype == FAK_F32) return vf_load((const float *)base + at);
    const uint16_t *h = (const uint16_t *)base + at;
    return dtype == FAK_F16 ? vf_from_f16(h) : vf_from_bf16(h);
}

/* Scores of positions [t, t + 2W), one sum over the head in order for each position and query. */
INLINE void score_two(uint32_t dtype, const attention_args *a, uint32_t t, int queries)
{
    uint32_t d = a->op->head_dim, t2 = t + W;
    size_t first = (size_t)(t / 16) * d * 16 + t % 16, second = (size_t)(t2 / 16) * d * 16 + t2 % 16;
    const vf by = vf_set(a->op->scale), cap = vf_set(a->op->softcap);
    vf s[QUERIES][2];
#pragma GCC unroll 4
    for (int i = 0; i < queries; i++) s[i][0] = s[i][1] = vf_zero();
    for (uint32_t c = 0; c < d; c++) {
        vf k0 = kv_load(dtype, a->keys, first + c * 16ul), k1 = kv_load(dtype, a->keys, second + c * 16ul);
#pragma GCC unroll 4
        for (int i = 0; i < queries; i++) {
            vf q = vf_set(a->q[i][c]);
            s[i][0] = vf_add(s[i][0], vf_mul(q, k0));
            s[i][1] = vf_add(s[i][1], vf_mul(q, k1));
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < queries; i++)
        for (int half = 0; half < 2; half++) {
            vf x = vf_mul(s[i][half], by);
            if (a->op->softcap > 0) x = vf_mul(cap, tanh_v(vf_div(x, cap)));
            vf_store(a->scratch + (size_t)i * a->score_stride + t + (uint32_t)half * W, x);
        }
}

/* e = exp(s - m) over the visible positions of a query. */
INLINE void exponents(float *s, uint32_t from, uint32_t end)
{
    vf most = vf_set(-INFINITY);
    uint32_t t = from;
    for (; t + W <= end; t += W) most = vf_max(vf_load(s + t), most);
    float m = vf_highest(most);
    for (; t < end; t++) m = s[t] > m ? s[t] : m;
    const vf high = vf_set(m);
    for (t = from; t + W <= end; t += W) vf_store(s + t, exp_v(vf_sub(vf_load(s + t), high)));
    if (t < end) store_some(s + t, exp_v(vf_sub(load_some(s + t, end - t), high)), end - t);
}

enum { VALUES = W >= 16 ? 4 : 2 }; /* vectors of a head that are summed at once */

/* o = o + e*v for positions [from, end), of `vectors` vectors of the head from column `col` on. */
INLINE void weigh(uint32_t dtype, const attention_args *a, uint32_t from, uint32_t end,
                  uint32_t col, int vectors, int first, int queries, vf o[QUERIES][VALUES])
{
    for (uint32_t t = from; t < end; t++) {
        size_t at = (size_t)t * a->value_stride + col;
        vf v[VALUES];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) v[j] = kv_load(dtype, a->values, at + (uint32_t)j * W);
#pragma GCC unroll 4
        for (int i = first; i < first + queries; i++) {
            vf e = vf_set(a->scratch[(size_t)i * a->score_stride + t]);
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++) o[i][j] = vf_add(o[i][j], vf_mul(e, v[j]));
        }
    }
}

/* l = l + e in order of position, for all queries side by side: each alone would wait for its own sum. */
INLINE void sums_in_order(const attention_args *a, int queries, float l[QUERIES])
{
    uint32_t from = a->from[queries - 1], end = a->end[0];
    if (from > end) from = end;
    for (int i = 0; i < queries; i++) {
        const float *e = a->scratch + (size_t)i * a->score_stride;
        l[i] = 0;
        for (uint32_t t = a->from[i]; t < from; t++) l[i] = l[i] + e[t];
    }
    for (uint32_t t = from; t < end; t++)
#pragma GCC unroll 4
        for (int i = 0; i < queries; i++) l[i] = l[i] + a->scratch[(size_t)i * a->score_stride + t];
    for (int i = 0; i < queries; i++) {
        const float *e = a->scratch + (size_t)i * a->score_stride;
        uint32_t t = a->from[i] > end ? a->from[i] : end;
        for (; t < a->end[i]; t++) l[i] = l[i] + e[t];
    }
}

/* Vectors [col, col + vectors*W) of the head: what all queries see together in one pass, what only some
 * see alone, each in order of position. */
INLINE void attend_columns(uint32_t dtype, const attention_args *a, uint32_t col, int vectors,
                           int queries, const float inverse[QUERIES])
{
    vf o[QUERIES][VALUES];
    uint32_t d = a->op->head_dim, from = a->from[queries - 1], end = a->end[0];
    int together = queries > 1 && from < end;
#pragma GCC unroll 4
    for (int i = 0; i < queries; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) o[i][j] = vf_zero();
        if (!together) weigh(dtype, a, a->from[i], a->end[i], col, vectors, i, 1, o);
        if (together) weigh(dtype, a, a->from[i], from, col, vectors, i, 1, o);
    }
    if (together) {
        weigh(dtype, a, from, end, col, vectors, 0, queries, o);
#pragma GCC unroll 4
        for (int i = 0; i < queries; i++) weigh(dtype, a, end, a->end[i], col, vectors, i, 1, o);
    }
#pragma GCC unroll 4
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            uint32_t c = col + (uint32_t)j * W, n = d > c ? d - c : 0;
            vf y = vf_mul(o[i][j], vf_set(inverse[i]));
            if (n >= W)
                vf_store(a->y[i] + c, y);
            else if (n)
                store_some(a->y[i] + c, y, n);
        }
}

INLINE void attend(uint32_t dtype, const attention_args *a, int queries)
{
    float inverse[QUERIES];
    uint32_t d = a->op->head_dim, c = 0;
    for (uint32_t t = a->from[0] / (2 * W) * (2 * W); t < a->end[queries - 1]; t += 2 * W)
        score_two(dtype, a, t, queries);
    for (int i = 0; i < queries; i++)
        exponents(a->scratch + (size_t)i * a->score_stride, a->from[i], a->end[i]);
    sums_in_order(a, queries, inverse);
    for (int i = 0; i < queries; i++) inverse[i] = 1.0f / inverse[i];
    for (; c + VALUES * W <= a->value_stride && c < d; c += VALUES * W)
        attend_columns(dtype, a, c, VALUES, queries, inverse);
    for (; c < d; c += W) attend_columns(dtype, a, c, 1, queries, inverse);
}

INLINE void attention(uint32_t dtype, const attention_args *a)
{
    if (a->queries == 1)
        attend(dtype, a, 1);
    else if (a->queries == 2)
        attend(dtype, a, 2);
    else if (a->queries == 3)
        attend(dtype, a, 3);
    else
        attend(dtype, a, 4);
}
static void attention_f32(const attention_args *a) { attention(FAK_F32, a); }
static void attention_f16(const attention_args *a) { attention(FAK_F16, a); }
static void attention_bf16(const attention_args *a) { attention(FAK_BF16, a); }

/* ---- the table ---- */

#define ROW(op, dtype, tokens, fn) {op, dtype, tokens, (kernel_fn *)fn}
#if WIDE
#define ROWS_BLOCKS(dtype, name)                                                                   \
    ROW(FAK_OP_MATMUL, dtype, 1, name##_1), ROW(FAK_OP_MATMUL, dtype, 4, name##_4),                \
        ROW(FAK_OP_MATMUL, dtype, 8, name##_8), ROW(FAK_OP_MATMUL, dtype, 12, name##_12)
#define ROWS_PLAIN(dtype, name)                                                                    \
    ROW(FAK_OP_MATMUL, dtype, 1, name##_1), ROW(FAK_OP_MATMUL, dtype, 8, name##_8)
enum { TILE_PLAIN = 8, TILE_BLOCKS = 12 };
#else
#define ROWS_BLOCKS(dtype, name)                                                                   \
    ROW(FAK_OP_MATMUL, dtype, 1, name##_1), ROW(FAK_OP_MATMUL, dtype, 4, name##_4)
#define ROWS_PLAIN(dtype, name) ROWS_BLOCKS(dtype, name)
enum { TILE_PLAIN = 4, TILE_BLOCKS = 4 };
#endif

static const kernel rows[] = {
    ROWS_PLAIN(FAK_F32, f32),
    ROWS_PLAIN(FAK_F16, f16),
    ROWS_PLAIN(FAK_BF16, bf16),
    ROWS_BLOCKS(FAK_Q8_0, q8_0),
    ROWS_BLOCKS(FAK_Q4_0, q4_0),
    ROWS_BLOCKS(FAK_Q4_1, q4_1),
    ROWS_BLOCKS(FAK_Q5_0, q5_0),
    ROWS_BLOCKS(FAK_Q5_1, q5_1),
    ROWS_BLOCKS(FAK_Q4_K, q4_k),
    ROWS_BLOCKS(FAK_Q5_K, q5_k),
    ROWS_BLOCKS(FAK_Q6_K, q6_k),
    ROW(FAK_OP_ATTENTION, FAK_F32, 0, attention_f32),
    ROW(FAK_OP_ATTENTION, FAK_F16, 0, attention_f16),
    ROW(FAK_OP_ATTENTION, FAK_BF16, 0, attention_bf16),
    ROW(FAK_OP_RMSNORM, 0, 0, rmsnorm),
    ROW(FAK_OP_RMSNORM, 0, 4, rmsnorm4),
    ROW(FAK_OP_ROPE, 0, 0, rope),
    ROW(FAK_OP_GLU, 0, 0, glu),
    ROW(FAK_OP_ADD, 0, 0, add),
    ROW(FAK_OP_ADD_BIAS, 0, 0, add),
    ROW(FAK_OP_SCALE, 0, 0, scale),
    ROW(FAK_OP_SOFTCAP, 0, 0, softcap),
    ROW(FAK_OP_ARGMAX, 0, 0, argmax),
    ROW(KERNEL_QUANTISE, 0, 0, quantise),
    ROW(KERNEL_PANEL, 0, 0, pack),
};
const kernel_set KERNEL_SET = {sizeof rows / sizeof *rows, rows, {TILE_PLAIN, TILE_BLOCKS}, WIDE};
