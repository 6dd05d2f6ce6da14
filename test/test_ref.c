/* ref: every leaf against float64 within a bound that follows from its order of operations, and
 * against literal transcriptions to the bit.  All buffers are exact. */
#include "ref_fixture.h"

#define U 0x1p-24        /* half a place: the relative error of one operation */
#define LEAST -87.33654f /* below it exp is exactly 0 */
#define MOST(a, b) ((a) > (b) ? (a) : (b))

static void assert_near(float got, double expected, double bound)
{
    double off = fabs((double)got - expected);
    if (!(off <= bound))
        fail_msg("%a is off %a by %g, more than %g", (double)got, expected, off, bound);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void assert_exp(float x)
{
    double expected = exp((double)x);
    assert_near(ref_exp(x), expected, 2 * ldexp(1, ilogb(expected) - 23));
}

static void test_exp(void **unused)
{
    (void)unused;
    set_seed();
    for (uint32_t u = draw() % 997; u <= bits_of(88.3f); u += 997) assert_exp(float_of(u));
    for (uint32_t u = draw() % 997; u <= bits_of(-LEAST); u += 997) assert_exp(-float_of(u));
    for (uint32_t u = 0; u < 2000; u++) {
        assert_exp(float_of(bits_of(88.3f) - u));
        assert_exp(-float_of(bits_of(-LEAST) - u));
        float below = -float_of(bits_of(-LEAST) + 1 + u);
        assert_true(bits_of(ref_exp(below)) == 0);
    }
    assert_true(ref_exp(0.0f) == 1 && ref_exp(-0.0f) == 1);
    assert_true(ref_exp(LEAST) >= 0x1p-126f); /* the last one is normal */
    static const float tiny[] = {-88, -103.9f, -104, -1000, -0x1p127f, -INFINITY};
    for (size_t i = 0; i < 6; i++) assert_true(bits_of(ref_exp(tiny[i])) == 0);
    static const float large[] = {88.30001f, 88.73f, 89, 1000, 0x1p127f, INFINITY};
    for (size_t i = 0; i < 6; i++) assert_true(ref_exp(large[i]) == ref_exp(88.3f));
    assert_true(isfinite(ref_exp(88.3f)));
    assert_true(isnan(ref_exp(NAN)) && isnan(ref_exp(-NAN)));
    for (uint32_t u = 0x7fc00000; u < 0x80000000; u += 4099) /* whatever the payload */
        assert_true(isnan(ref_exp(float_of(u))) && isnan(ref_exp(float_of(u | 1u << 31))));
}

/* E = exp(2x) is off by 4U of itself; E + 1, the quotient and the difference by U: 8U in all. */
static void test_tanh(void **unused)
{
    (void)unused;
    set_seed();
    for (uint32_t u = draw() % 997; u <= bits_of(INFINITY); u += 997) {
        assert_near(ref_tanh(float_of(u)), tanh((double)float_of(u)), 8 * U);
        assert_near(ref_tanh(-float_of(u)), -tanh((double)float_of(u)), 8 * U);
    }
    assert_true(ref_tanh(INFINITY) == 1 && ref_tanh(-INFINITY) == -1 && isnan(ref_tanh(NAN)));
}

static void test_dot(void **unused)
{
    (void)unused;
    set_seed();
    for (uint32_t n = 0; n < 600; n += n < 70 ? 1 : 61) {
        float *a = draw_row(n, 3), *b = draw_row(n, 1), s[8] = {0};
        double exact = 0, size = 0;
        for (uint32_t i = 0; i < n; i++) {
            s[i & 7] = s[i & 7] + a[i] * b[i];
            exact += (double)a[i] * (double)b[i];
            size += fabs((double)a[i] * (double)b[i]);
        }
        float literal = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
        float got = ref_dot(n, a, b);
        assert_bits(&got, &literal, 1);
        assert_near(got, exact, (n / 8 + 5) * U * size * 1.001);
        free(a), free(b);
    }
}

/* ---- activation blocks ----------------------------------------------------------------------- */

/* Every operation of the contract in double, rounded once: exactly what is asked. */
static void assert_quantised(const float *x)
{
    ref_block got;
    memset(&got, 0x55, sizeof got);
    ref_quantise(x, &got);
    float m = 0;
    int special = 0, sum = 0;
    for (int i = 0; i < 32; i++) {
        m = fabsf(x[i]) > m ? fabsf(x[i]) : m;
        special |= !isfinite(x[i]);
    }
    int empty = special || m <= 0x1p-100f;
    float inverse = empty ? 0 : (float)(127.0 / (double)m);
    if (special)
        assert_true(isnan(got.d));
    else
        assert_true(got.d == (empty ? 0 : (float)((double)m / 127.0)));
    for (int i = 0; i < 32; i++) {
        int q = empty ? 0 : (int)nearbyint((double)(float)((double)x[i] * (double)inverse));
        assert_int_equal(got.q[i], q);
        assert_true(abs(q) <= 127);
        if (!empty) assert_true(fabs((double)x[i] * 127 / (double)m - q) <= 0.5 + 1e-4);
        sum += q;
    }
    assert_int_equal(got.sum, sum);
}

static void test_quantise(void **unused)
{
    (void)unused;
    set_seed();
    float x[32];
    for (int turn = 0; turn < 20000; turn++) {
        float scale = ldexpf(1, (int)(draw() % 240) - 115);
        for (int i = 0; i < 32; i++) x[i] = draw_unit() * scale;
        if (turn % 8 == 0) x[draw() % 32] = turn & 8 ? INFINITY : -NAN;
        if (turn % 8 == 1) x[draw() % 32] = -0x1.fffffep127f;
        assert_quantised(x);
    }
    for (int turn = 0; turn < 5000; turn++) { /* about ties, where a wrong place in 127/m shows */
        float m = x[0] = ldexpf(1.5f + draw_unit() * 0.5f, (int)(draw() % 40) - 20);
        for (int i = 1; i < 32; i++) {
            float tie = (float)(((int)(draw() % 254) - 127 + 0.5) * (double)m / 127);
            x[i] = float_of(bits_of(tie) + draw() % 3 - 1);
        }
        assert_quantised(x);
    }
    memset(x, 0, sizeof x);
    assert_quantised(x);
    x[31] = -0x1p-100f; /* not above: nothing */
    assert_quantised(x);
    x[31] = -0x1.000002p-100f;
    assert_quantised(x);
    x[0] = 127, x[1] = 0.5f, x[2] = 1.5f, x[3] = -2.5f, x[4] = -3.5f, x[31] = 0; /* ties */
    assert_quantised(x);
    ref_block b;
    ref_quantise(x, &b);
    assert_true(b.d == 1 && b.q[0] == 127 && b.q[1] == 0 && b.q[2] == 2 && b.q[3] == -2);
    assert_true(b.q[4] == -4 && b.sum == 123);
}

/* ---- MATMUL ---------------------------------------------------------------------------------- */

static void matmul(uint32_t dtype, uint32_t T, uint32_t O, uint32_t I, const void *w,
                   const float *x, float *y, int act_q8)
{
    void *scratch = need((size_t)ref_matmul_scratch(T, I));
    ref_matmul(dtype, T, O, I, w, x, y, act_q8, scratch);
    free(scratch);
}

/* One output of float activations: the weights are exact, then it is a dot. */
static void assert_float_output(uint32_t I, const float *w, const float *x, float got)
{
    double exact = 0, size = 0;
    for (uint32_t i = 0; i < I; i++) {
        exact += (double)w[i] * (double)x[i];
        size += fabs((double)w[i] * (double)x[i]);
    }
    assert_near(got, exact, (I / 8 + 5) * U * size * 1.001);
}

/* What a block of 32 adds to an output: literally, and the terms of it in double. */
typedef struct part {
    float literal;
    double first, second;
} part;

static part part_of_32(uint32_t dtype, const void *block, const int8_t *code, const ref_block *x)
{
    float scale, zero = 0;
    int32_t isum = 0, sx = 0;
    dtype_serve_row(dtype, FAK_SCALES, 32, block, &scale);
    int shifted = dtype_form_bytes(dtype, FAK_ZEROS, 32) > 0;
    if (shifted) dtype_serve_row(dtype, FAK_ZEROS, 32, block, &zero);
    for (uint32_t i = 0; i < 32; i++) isum += code[i] * x->q[i], sx += x->q[i];
    part p = {.first = (double)isum * (double)scale * (double)x->d,
              .second = (double)zero * (double)x->d * sx};
    p.literal = ((float)isum * scale) * x->d;
    if (shifted) p.literal = p.literal + zero * (x->d * (float)sx);
    return p;
}

/* Run j of 8 of a K block. */
static part part_of_k(uint32_t dtype, const void *block, uint32_t j, const int8_t *code,
                      const ref_block *x)
{
    dtype_k k;
    int32_t half[2] = {0}, sx = 0;
    dtype_k_scales(dtype, block, &k);
    for (uint32_t i = 0; i < 32; i++) half[i / 16] += code[i] * x->q[i], sx += x->q[i];
    int32_t isum = dtype == FAK_Q6_K ? k.sc[2 * j] * half[0] + k.sc[2 * j + 1] * half[1]
                                     : k.sc[j] * (half[0] + half[1]);
    int32_t msum = dtype == FAK_Q6_K ? 0 : k.mn[j] * sx;
    part p = {.first = (double)isum * (double)k.d * (double)x->d,
              .second = -(double)msum * (double)k.dmin * (double)x->d};
    p.literal = ((float)isum * k.d) * x->d;
    if (dtype != FAK_Q6_K) p.literal = p.literal - ((float)msum * k.dmin) * x->d;
    return p;
}

/* One output of quantised activations: the same codes summed exactly; and the float product, within
 * half a step of every activation. */
static void assert_q8_output(uint32_t dtype, uint32_t I, const void *row, const float *w,
                             const float *x, float got)
{
    const dtype_info *info = dtype_find(dtype);
    int8_t *code = need(I);
    double sum = 0, size = 0, exact = 0, steps = 0, exact_size = 0;
    float literal = 0;
    dtype_serve_row(dtype, FAK_CODES, I, row, code);
    for (uint32_t b = 0; b < I / 32; b++) {
        const char *block = (const char *)row + b * 32 / info->block * info->block_bytes;
        ref_block q;
        ref_quantise(x + b * 32, &q);
        for (uint32_t i = 0; i < 32; i++) {
            double product = (double)w[b * 32 + i] * (double)x[b * 32 + i];
            exact += product;
            exact_size += fabs(product);
            steps += fabs((double)w[b * 32 + i]) * (double)q.d * (0.5 + 1e-4);
        }
        part p = info->block == 32 ? part_of_32(dtype, block, code + b * 32, &q)
                                   : part_of_k(dtype, block, b % 8, code + b * 32, &q);
        literal = literal + p.literal;
        sum += p.first + p.second;
        size += fabs(p.first) + fabs(p.second);
    }
    double bound = (I / 32 + 4) * U * size * 1.001;
    assert_bits(&got, &literal, 1);
    assert_near(got, sum, bound);
    assert_near(got, exact, bound + steps + 2 * U * exact_size);
    free(code);
}

static void test_matmul(void **unused)
{
    (void)unused;
    set_seed();
    static const uint32_t shape[][3] = {{1, 1, 32},   {3, 5, 96},  {2, 4, 64},  {7, 3, 288},
                                        {1, 6, 1024}, {1, 1, 1},   {2, 3, 7},   {3, 2, 33},
                                        {4, 3, 100},  {3, 4, 256}, {2, 3, 512}, {1, 2, 768}};
    enum { SHAPES = sizeof shape / sizeof *shape };
    for (size_t n = 0; n < DTYPES * SHAPES * 2; n++) {
        uint32_t dtype = dtypes[n % DTYPES], T = shape[n / DTYPES % SHAPES][0];
        uint32_t O = shape[n / DTYPES % SHAPES][1], I = shape[n / DTYPES % SHAPES][2];
        int act_q8 = n >= DTYPES * SHAPES, blocks = dtype_find(dtype)->block > 1;
        if (I % dtype_find(dtype)->block) continue;
        size_t bytes = (size_t)dtype_row_bytes(dtype, I);
        char *weights = draw_weights(dtype, O, I);
        float *x = draw_row(T * I, 2), *w = need(I * 4ul), *one = need(O * 4ul);
        float *y = need((size_t)T * O * 4);
        matmul(dtype, T, O, I, weights, x, y, act_q8);
        for (uint32_t o = 0; o < O; o++) {
            dtype_decode_row(dtype, I, weights + o * bytes, w);
            for (uint32_t t = 0; t < T; t++) {
                if (act_q8 && blocks) {
                    assert_q8_output(dtype, I, weights + o * bytes, w, x + t * I, y[t * O + o]);
                } else {
                    float dot = ref_dot(I, x + t * I, w);
                    assert_float_output(I, w, x + t * I, y[t * O + o]);
                    assert_bits(&y[t * O + o], &dot, 1);
                }
            }
        }
        for (uint32_t t = 0; t < T; t++) { /* a row alone has the bits of all rows together */
            matmul(dtype, 1, O, I, weights, x + t * I, one, act_q8);
            assert_bits(one, y + t * O, O);
        }
        free(weights), free(x), free(w), free(one), free(y);
    }
}

/* A NaN among the activations reaches every output of its row, and only of its row. */
static void test_matmul_nan(void **unused)
{
    (void)unused;
    set_seed();
    for (size_t n = 0; n < DTYPES * 2; n++) {
        float *x = draw_row(3 * 256, 1), y[3 * 4];
        void *w = draw_weights(dtypes[n % DTYPES], 4, 256);
        x[256 + draw() % 256] = NAN;
        matmul(dtypes[n % DTYPES], 3, 4, 256, w, x, y, n >= DTYPES);
        for (uint32_t i = 0; i < 12; i++) assert_int_equal(isnan(y[i]) != 0, i / 4 == 1);
        free(x), free(w);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* ss is off by n+1 half places, which the root halves; then /n, +eps, sqrt, 1/, two products. */
static void test_rmsnorm(void **unused)
{
    (void)unused;
    set_seed();
    static const uint32_t shape[][2] = {{1, 0},   {7, 0},   {64, 0}, {100, 0},
                                        {96, 32}, {96, 96}, {35, 7}};
    for (size_t c = 0; c < 7 * 200; c++) {
        uint32_t D = shape[c % 7][0], n = shape[c % 7][1] ? shape[c % 7][1] : D;
        float eps = c & 1 ? 1e-5f : 1e-2f;
        float *x = draw_row(D, ldexpf(1, (int)(draw() % 16) - 12)), *w = draw_row(n, 2);
        float *y = need(D * 4ul), *literal = need(D * 4ul);
        ref_rmsnorm(D, shape[c % 7][1], eps, x, w, y);
        for (uint32_t g = 0; g < D; g += n) {
            double exact = 0;
            float ss = 0;
            for (uint32_t i = g; i < g + n; i++) {
                exact += (double)x[i] * (double)x[i];
                ss = ss + x[i] * x[i];
            }
            float inverse = 1.0f / sqrtf(ss / (float)n + eps);
            for (uint32_t i = g; i < g + n; i++) {
                double expected = (double)x[i] / sqrt(exact / n + (double)eps) * (double)w[i - g];
                assert_near(y[i], expected, ((n + 1) / 2.0 + 6) * U * 1.001 * fabs(expected));
                literal[i] = (x[i] * inverse) * w[i - g];
            }
        }
        assert_bits(y, literal, D);
        free(x), free(w), free(y), free(literal);
    }
}

static void test_rope(void **unused)
{
    (void)unused;
    set_seed();
    static const uint32_t shape[][3] = {{1, 2, 2},   {3, 8, 8}, {4, 64, 64},
                                        {2, 20, 12}, {5, 7, 2}, {2, 9, 0}};
    for (size_t c = 0; c < 6 * 100; c++) {
        uint32_t heads = shape[c % 6][0], d = shape[c % 6][1], rot = shape[c % 6][2],
                 half = rot / 2;
        float *x = draw_row(heads * d, 3), *tab = draw_row(rot, 1), *y = need(heads * d * 4ul);
        ref_rope(heads, d, rot, x, tab, y);
        for (uint32_t h = 0; h < heads; h++) {
            const float *from = x + h * d, *to = y + h * d;
            for (uint32_t i = 0; i < half; i++) {
                double a = (double)from[i], b = (double)from[half + i];
                double cosine = (double)tab[i], sine = (double)tab[half + i];
                double low = 2.001 * U * (fabs(a * cosine) + fabs(b * sine));
                double high = 2.001 * U * (fabs(a * sine) + fabs(b * cosine));
                assert_near(to[i], a * cosine - b * sine, low);
                assert_near(to[half + i], a * sine + b * cosine, high);
            }
            assert_bits(to + rot, from + rot, d - rot);
        }
        ref_rope(heads, d, rot, x, tab, x); /* in place */
        assert_bits(x, y, heads * d);
        free(x), free(tab), free(y);
    }
}

static void test_glu(void **unused)
{
    (void)unused;
    set_seed();
    static const float special[] = {0, -0.0f, 1, -1, 50, -50, 88.5f, -88.5f, 1e3f, -1e3f, 1e-30f};
    for (int turn = 0; turn < 100000; turn++) {
        float g = turn < 11 ? special[turn] : draw_unit() * (turn & 1 ? 8 : 100), u = draw_unit(),
              y;
        double x = (double)g, v = (double)u, silu = x / (1 + exp(-x)) * v;
        ref_glu(1, FAK_SILU, &g, &u, &y);
        /* exp 4U and, clamped at 88.3, 4.5e-39 too much; the sum, quotient and product U each */
        assert_near(y, silu, 8 * U * fabs(silu) + 5e-39 * fabs(x * v) + 0x1p-149);
        ref_glu(1, FAK_GELU_TANH, &g, &u, &y);
        double z = sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
        /* 8U of tanh, 8U of z times its slope z/cosh^2 z < 0.45, the rest U each of at most 2 */
        assert_near(y, 0.5 * x * (1 + tanh(z)) * v, 18 * U * fabs(0.5 * x * v));
    }
    float g[2] = {NAN, 1}, u[2] = {1, NAN}, y[2];
    for (uint32_t act = FAK_SILU; act <= FAK_GELU_TANH; act++) {
        ref_glu(2, act, g, u, y);
        assert_true(isnan(y[0]) && isnan(y[1]));
    }
}

static void test_softcap(void **unused)
{
    (void)unused;
    set_seed();
    for (int turn = 0; turn < 100000; turn++) {
        float cap = turn & 1 ? 30 : 0.7f + draw_unit() * 0.5f;
        float x = draw_unit() * cap * (turn % 3 ? 1 : 20), y;
        ref_softcap(1, cap, &x, &y);
        assert_near(y, (double)cap * tanh((double)x / (double)cap), 10 * U * (double)cap);
    }
}

static void test_argmax(void **unused)
{
    (void)unused;
    set_seed();
    float x[40];
    for (int turn = 0; turn < 20000; turn++) {
        uint32_t n = 1 + draw() % 40, best = 0;
        for (uint32_t i = 0; i < n; i++) x[i] = (float)(int)(draw() % 9) - 20; /* ties galore */
        for (uint32_t i = n; i--;) best = x[i] >= x[best] ? i : best;
        for (uint32_t i = 0; i < best; i++) assert_true(x[i] < x[best]);
        assert_int_equal(ref_argmax(n, x), best);
        x[draw() % n] = turn & 1 ? NAN : -NAN;
        assert_int_equal(ref_argmax(n, x), 0xffffffff);
    }
    assert_int_equal(ref_argmax(3, (const float[]){-INFINITY, -INFINITY, -INFINITY}), 0);
    assert_int_equal(ref_argmax(3, (const float[]){-0.0f, 0.0f, -1}), 0);
    assert_int_equal(ref_argmax(3, (const float[]){1, INFINITY, INFINITY}), 1);
}

/* ---- kv and attention ------------------------------------------------------------------------ */

/* One head, the contract word by word in float (literal) and its meaning in double.  k, v: rows
 * [0, end) of this head; only [from, end) are visible. */
static void assert_head(const ref_heads *h, uint32_t from, uint32_t end, const float *q,
                        const float *k, const float *v, const float *got)
{
    uint32_t d = h->head_dim, n = end - from;
    double x[CONTEXT], most = -INFINITY, least = INFINITY, off = 0, l = 0;
    float s[CONTEXT], m = -INFINITY;
    for (uint32_t t = from; t < end; t++) {
        float a = 0;
        double exact = 0, size = 0, cap = (double)h->softcap;
        for (uint32_t i = 0; i < d; i++) {
            a = a + q[i] * k[t * d + i];
            exact += (double)q[i] * (double)k[t * d + i];
            size += fabs((double)q[i] * (double)k[t * d + i]);
        }
        a = a * h->scale;
        exact *= (double)h->scale;
        double error = (d + 2) * U * size * (double)h->scale;
        if (h->softcap != 0) {
            a = h->softcap * ref_tanh(a / h->softcap);
            error += 10 * U * cap + U * fabs(exact);
            exact = cap * tanh(exact / cap);
        }
        s[t] = a;
        x[t] = exact;
        m = a > m ? a : m;
        most = MOST(most, exact);
        least = exact < least ? exact : least;
        off = MOST(off, error);
    }
    for (uint32_t t = from; t < end; t++) l += exp(x[t] - most);
    /* e is off by a score's error, the difference's rounding, exp's 4U; sums, products: n + 4 */
    double relative = 2 * (off + U * (most - least) + 4 * U) + (2 * n + 8) * U;
    for (uint32_t i = 0; i < d; i++) {
        double sum = 0, size = 0;
        float total = 0, o = 0;
        for (uint32_t t = from; t < end; t++) {
            double p = exp(x[t] - most);
            float e = ref_exp(s[t] - m);
            sum += p * (double)v[t * d + i];
            size += p * fabs((double)v[t * d + i]);
            total = total + e;
            o = o + e * v[t * d + i];
        }
        o = o * (1.0f / total);
        assert_near(got[i], sum / l, relative * 1.05 * size / l + 1e-36);
        assert_bits(got + i, &o, 1);
    }
}

static void check_attention(uint32_t dtype, const ref_heads *h, uint32_t pos, float spread)
{
    uint32_t d = h->head_dim, cols = h->kv_heads * d, layer = draw() % LAYERS,
             slot = draw() % SLOTS;
    uint32_t from = h->window && pos + 1 > h->window ? pos + 1 - h->window : 0;
    ref_kv kv = kv_open(dtype, cols + 3, 0); /* a wider layer's rows; the rest is NaN */
    float *q = draw_row(h->heads * d, spread), *y = need(h->heads * d * 4ul);
    float *k = need((pos + 1) * (size_t)cols * 4), *v = need((pos + 1) * (size_t)cols * 4);
    float *scratch = need((size_t)ref_attention_scratch(CONTEXT, d));
    for (uint32_t t = from; t <= pos; t++) { /* what lies before the window stays NaN too */
        float *new_k = draw_row(cols, 2), *new_v = draw_row(cols, 2);
        ref_kv_write(&kv, layer, slot, t, cols, new_k, new_v);
        ref_kv_read(&kv, layer, slot, t, cols, new_k, new_v); /* as rounded */
        for (uint32_t g = 0; g < cols; g++) { /* heads apart: [kv_heads][pos + 1][d] */
            size_t at = (g / d * (pos + 1) + t) * (size_t)d + g % d;
            k[at] = new_k[g];
            v[at] = new_v[g];
        }
        free(new_k), free(new_v);
    }
    ref_attention(h, &kv, layer, slot, pos, q, y, scratch);
    for (uint32_t i = 0; i < h->heads; i++) {
        size_t group = i / (h->heads / h->kv_heads) * (size_t)(pos + 1) * d;
        assert_head(h, from, pos + 1, q + i * d, k + group, v + group, y + i * d);
    }
    kv_close(&kv);
    free(q), free(y), free(k), free(v), free(scratch);
}

static void test_attention(void **unused)
{
    (void)unused;
    set_seed();
    static const uint32_t heads[][3] = {{4, 4, 7}, {6, 2, 16}, {3, 1, 5}},
                          window[] = {0, 1, 5, 9, 64};
    for (uint32_t pos = 0; pos < CONTEXT; pos++)
        for (uint32_t c = 0; c < 3 * 3 * 5 * 2; c++) {
            ref_heads h = {heads[c % 3][0],   heads[c % 3][1], heads[c % 3][2],
                           window[c / 9 % 5], 0.25f,           0};
            h.softcap = c >= 45 ? 3 : 0;
            check_attention(dtypes[c / 3 % 3], &h, pos, pos % 4 == 3 ? 40 : 1);
        }
    check_attention(FAK_F16, &(ref_heads){2, 1, 128, 0, 0.0883883461f, 0}, CONTEXT - 1, 1);
}

static void test_kv_read_write(void **unused)
{
    (void)unused;
    set_seed();
    enum { COLS = 12 };
    for (uint32_t dtype = FAK_F32; dtype <= FAK_BF16; dtype++) {
        ref_kv kv = kv_open(dtype, COLS + 4, 0);
        float *rows = draw_row(LAYERS * SLOTS * CONTEXT * 2 * COLS, 9), k[COLS], v[COLS];
        for (int turn = 0; turn < 2; turn++) { /* all written first: none lies upon another */
            const float *x = rows;
            for (uint32_t i = 0; i < LAYERS * SLOTS * CONTEXT; i++, x += 2 * COLS) {
                uint32_t l = i % LAYERS, s = i / LAYERS % SLOTS, pos = i / LAYERS / SLOTS;
                if (turn == 0) {
                    ref_kv_write(&kv, l, s, pos, COLS, x, x + COLS);
                    continue;
                }
                ref_kv_read(&kv, l, s, pos, COLS, k, v);
                for (uint32_t c = 0; c < COLS; c++) {
                    float in[2] = {x[c], x[COLS + c]};
                    for (int j = 0; j < 2; j++)
                        in[j] = dtype == FAK_F16    ? dtype_from_f16(dtype_to_f16(in[j]))
                                : dtype == FAK_BF16 ? dtype_from_bf16(dtype_to_bf16(in[j]))
                                                    : in[j];
                    assert_bits(&k[c], &in[0], 1);
                    assert_bits(&v[c], &in[1], 1);
                }
            }
        }
        free(rows);
        kv_close(&kv);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),           cmocka_unit_test(test_tanh),
        cmocka_unit_test(test_dot),           cmocka_unit_test(test_quantise),
        cmocka_unit_test(test_matmul),        cmocka_unit_test(test_matmul_nan),
        cmocka_unit_test(test_rmsnorm),       cmocka_unit_test(test_rope),
        cmocka_unit_test(test_glu),           cmocka_unit_test(test_softcap),
        cmocka_unit_test(test_argmax),        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_kv_read_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
