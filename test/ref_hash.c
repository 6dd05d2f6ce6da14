/* Prints a line for every op, dtype, act mode and a few awkward shapes: what it is, and the FNV-1a
 * hash of its output's bits on inputs made of integers alone.  data/ref.golden holds the lines;
 * ref_hash.sh compares. */
#include "../core/ref.h"
#include "../core/rope.h"
#include "../core/step.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- inputs: integers, and floats that are integers times a power of two, exactly ------------ */

static uint64_t state;

static uint32_t draw(void) /* splitmix64 */
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 32);
}

static void *need(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) abort();
    return p;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* 24 random bits times 2^-23, then up to 2^-7 of that: magnitudes differ within a row */
static float draw_float(void)
{
    static const float power[8] = {0x1p-23f, 0x1p-24f, 0x1p-25f, 0x1p-26f,
                                   0x1p-27f, 0x1p-28f, 0x1p-29f, 0x1p-30f};
    uint32_t bits = draw();
    return (float)((int32_t)(bits >> 8) - 0x800000) * power[bits & 7];
}

static void draw_row(float *x, size_t n, float power_of_two)
{
    for (size_t i = 0; i < n; i++) x[i] = draw_float() * power_of_two;
}

static void put_half(uint8_t *p, uint32_t h)
{
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
}

/* Weights as bit patterns: any sign and fraction, exponents around one (scales: around 2^-6). */
static void draw_weights(uint32_t dtype, size_t n, void *out)
{
    uint8_t *p = out;
    uint16_t *half = out;
    if (dtype == FAK_F32) draw_row(out, n, 1);
    if (dtype == FAK_F16 || dtype == FAK_BF16)
        for (size_t i = 0; i < n; i++) {
            uint32_t bits = draw(), f16 = (bits & 0x83ff) | (10 + (bits >> 16) % 6) << 10;
            uint32_t bf16 = (bits & 0x807f) | (122 + (bits >> 16) % 6) << 7;
            half[i] = (uint16_t)(dtype == FAK_F16 ? f16 : bf16);
        }
    if (dtype < FAK_Q8_0) return;
    const dtype_info *info = dtype_find(dtype);
    size_t step = info->block_bytes, scale = dtype == FAK_Q6_K ? 208 : 0;
    for (size_t b = 0; b < n / info->block; b++, p += step) {
        for (size_t i = 0; i < step; i++) p[i] = (uint8_t)draw();
        put_half(p + scale, (draw() & 0x83ff) | (8 + draw() % 4) << 10);
        if (info->form_mask >> FAK_ZEROS & 1)
            put_half(p + 2, (draw() & 0x83ff) | (10 + draw() % 4) << 10);
    }
}

/* ---- output ---------------------------------------------------------------------------------- */

typedef struct hash {
    uint64_t h;
} hash;

static hash hash_open(void)
{
    return (hash){UINT64_C(0xcbf29ce484222325)};
}

static void hash_bytes(hash *s, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++) s->h = (s->h ^ p[i]) * UINT64_C(0x100000001b3);
}

static void hash_words(hash *s, const void *data, size_t n) /* lowest byte first on every host */
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, (const char *)data + i * 4, 4);
        hash_bytes(s,
                   (const uint8_t[]){(uint8_t)u, (uint8_t)(u >> 8), (uint8_t)(u >> 16),
                                     (uint8_t)(u >> 24)},
                   4);
    }
}

static void hash_floats(hash *s, const float *x, size_t n) /* every NaN is the same */
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, 4);
        if ((u & 0x7fffffffu) > 0x7f800000u) u = 0x7fc00000u;
        hash_words(s, &u, 1);
    }
}

static void say(const char *what, hash s)
{
    printf("%s %016" PRIx64 "\n", what, s.h);
}

static void say_floats(const char *what, const float *x, size_t n)
{
    hash s = hash_open();
    hash_floats(&s, x, n);
    say(what, s);
}

static char line[128];
#define LINE(...) (snprintf(line, sizeof line, __VA_ARGS__), line)

/* ---- leaves ---------------------------------------------------------------------------------- */

static void hash_numbers(void)
{
    hash e = hash_open(), t = hash_open(), h16 = hash_open(), b16 = hash_open();
    for (uint32_t i = 0; i < 1 << 16; i++) { /* every exponent, both signs, specials */
        float x = float_of(i << 16 | (i * 40503u & 0xffff));
        uint16_t half[2] = {dtype_to_f16(x), dtype_to_bf16(x)};
        float y[4] = {ref_exp(x), ref_tanh(x), dtype_from_f16(half[0]), dtype_from_bf16(half[1])};
        hash_floats(&e, &y[0], 1);
        hash_floats(&t, &y[1], 1);
        hash_floats(&h16, &y[2], 1);
        hash_floats(&b16, &y[3], 1);
    }
    for (uint32_t i = 0; i < 1 << 16; i++) { /* and where it matters */
        float x = draw_float() * 64, y[2] = {ref_exp(x), ref_tanh(x)};
        hash_floats(&e, &y[0], 1);
        hash_floats(&t, &y[1], 1);
    }
    say("exp", e);
    say("tanh", t);
    say("round f16", h16);
    say("round bf16", b16);
    static const uint32_t edge[] = {0xc2aeac4f, 0xc2aeac50, 0xc2aeac4e, 0x42b0999a, 0x42b0999b};
    hash s = hash_open();
    for (size_t i = 0; i < 5; i++) hash_floats(&s, &(float){ref_exp(float_of(edge[i]))}, 1);
    say("exp edges", s);
    for (uint32_t n = 0; n <= 300; n += n < 17 ? 1 : 283) {
        float a[300], b[300];
        draw_row(a, n, 1);
        draw_row(b, n, 1);
        say_floats(LINE("dot n=%" PRIu32, n), &(float){ref_dot(n, a, b)}, 1);
    }
}

static void hash_quantise(void)
{
    hash s = hash_open();
    float x[32];
    for (uint32_t turn = 0; turn < 400; turn++) {
        draw_row(x, 32, 1);
        if (turn % 8 == 1) x[turn / 8 % 32] = float_of(0x7f800001u + turn); /* NaN */
        if (turn % 8 == 2) x[turn / 8 % 32] = float_of(0xff800000u);
        if (turn % 8 == 3) x[turn / 8 % 32] = float_of(0x7f7fffffu);
        for (int i = 0; i < 32 && turn % 8 == 4; i++) x[i] *= turn & 8 ? 0x1p-110f : 0x1p-97f;
        ref_block b;
        ref_quantise(x, &b);
        hash_floats(&s, &b.d, 1);
        hash_words(&s, &b.sum, 1);
        hash_bytes(&s, b.q, 32);
    }
    say("quantise", s);
    s = hash_open();
    for (uint32_t turn = 0; turn < 400;
         turn++) { /* about ties: m/127 times k + 1/2, to the place */
        int64_t m = 0x800000 + (int64_t)(draw() & 0x7fffff);
        x[0] = (float)m;
        for (int i = 1; i < 32; i++) x[i] = (float)((2 * (int64_t)(draw() % 254) - 253) * m / 254);
        ref_block b;
        ref_quantise(x, &b);
        hash_bytes(&s, b.q, 32);
    }
    say("quantise ties", s);
}

typedef struct list { /* of dtypes, or of columns */
    uint32_t count, at[6];
} list;
static const list basic = {6, {FAK_F32, FAK_F16, FAK_BF16, FAK_Q8_0, FAK_Q4_0, FAK_Q4_1}};
/* These came later: their lines are the last, so that those before them stay as they are. */
static const list fives = {2, {FAK_Q5_0, FAK_Q5_1}}, ks = {3, {FAK_Q4_K, FAK_Q5_K, FAK_Q6_K}};

static void hash_rows(const list *dtypes, uint32_t cols)
{
    for (size_t n = 0; n < dtypes->count; n++) {
        uint8_t row[512 * 4];
        float x[512];
        int8_t codes[512];
        uint32_t dtype = dtypes->at[n];
        draw_weights(dtype, cols, row);
        dtype_decode_row(dtype, cols, row, x);
        say_floats(LINE("decode %s", dtype_name(dtype)), x, cols);
        for (uint32_t form = FAK_SCALES; form <= FAK_ZEROS; form++) {
            if (!dtype_form_bytes(dtype, form, cols)) continue;
            dtype_serve_row(dtype, form, cols, row, x);
            say_floats(LINE("serve %s form=%" PRIu32, dtype_name(dtype), form), x,
                       (size_t)dtype_form_bytes(dtype, form, cols) / 4);
        }
        hash s = hash_open();
        if (dtype_form_bytes(dtype, FAK_CODES, cols)) {
            dtype_serve_row(dtype, FAK_CODES, cols, row, codes);
            hash_bytes(&s, codes, cols);
            say(LINE("serve %s form=%d", dtype_name(dtype), FAK_CODES), s);
        }
        draw_row(x, cols, 1);
        dtype_encode_row(dtype, cols, x, row);
        dtype_decode_row(dtype, cols, row, x);
        say_floats(LINE("encode %s", dtype_name(dtype)), x, cols);
    }
}

static void hash_doubles(hash *s, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t u;
        memcpy(&u, x + i, 8);
        hash_words(s, (const uint32_t[]){(uint32_t)u, (uint32_t)(u >> 32)}, 2);
    }
}

static void hash_tables(void)
{
    hash turn = hash_open(), power = hash_open(), logarithm = hash_open();
    for (uint32_t i = 0; i < 3000; i++) {
        double u = (double)draw() * 0x1p-32, pair[2], y[2] = {rope_exp2(u * 1998 - 999), 0};
        rope_sincos(u * (i & 1 ? 0x1p21 : 8) - (i & 1 ? 0x1p20 : 4), &pair[0], &pair[1]);
        y[1] = rope_log2(i & 1 ? u * 2 + 0x1p-40 : u * 0x1p30 + 0x1p-40);
        hash_doubles(&turn, pair, 2);
        hash_doubles(&power, &y[0], 1);
        hash_doubles(&logarithm, &y[1], 1);
    }
    say("rope_sincos", turn);
    say("rope_exp2", power);
    say("rope_log2", logarithm);
    static const struct {
        uint32_t positions, rot;
        double theta;
    } shape[] = {{300, 64, 10000}, {50, 128, 500000}, {2000, 20, 1000000}, {9, 2, 1}, {5, 6, 0.5}};
    for (size_t i = 0; i < 5; i++) {
        float *out = need((size_t)shape[i].positions * shape[i].rot * 4);
        rope_table(shape[i].positions, shape[i].rot, shape[i].theta, out);
        say_floats(LINE("rope_table positions=%" PRIu32 " rot=%" PRIu32 " theta=%g",
                        shape[i].positions, shape[i].rot, shape[i].theta),
                   out, (size_t)shape[i].positions * shape[i].rot);
        free(out);
    }
}

/* ---- plan ops, through ref_op ---------------------------------------------------------------- */

enum { VALUES_MAX = 64, T_MAX = 8, LAYERS = 2, SLOTS = 3, CONTEXT = 50 };
static fak_value value[VALUES_MAX + OP_PARTS];
static void *at[VALUES_MAX + OP_PARTS];
static uint32_t step_block[64];
static ref_memory memory;

/* T rows: all but the last in slot 2 from position `first` on; the last, if T > 1, in slot 0. */
static void memory_open(ref_kv kv, int act_q8, uint32_t T, uint32_t first)
{
    static const uint32_t tokens[T_MAX] = {4, 0, 9, 11, 0xffffffffu, 10, 1, 4};
    uint32_t wanted[2] = {T / 3, T - 1}, n = T > 1 ? T - 1 : 1;
    fak_span span[2] = {{2, 0, n, first}, {0, T - 1, 1, 0}};
    step_spec spec = {.rows = T, .wanted = T > 1 ? 2 : 1, .spans = T > 1 ? 2 : 1, .token = tokens};
    spec.wanted_row = wanted;
    spec.span = span;
    memset(value, 0, sizeof value);
    memory = (ref_memory){value, at, 1, step_write(step_block, &spec), kv, act_q8, NULL};
}

static void memory_close(void)
{
    for (uint32_t i = 1; i < memory.values; i++) free(at[i]);
}

static uint32_t stored_rows(uint32_t id)
{
    return ref_rows(&value[id], memory.step->rows, memory.step->wanted.count);
}

static uint32_t add_value(uint32_t kind, uint32_t dtype, uint32_t rows, uint32_t cols)
{
    uint32_t id = memory.values++;
    value[id] = (fak_value){.kind = kind, .dtype = dtype, .rows = rows, .cols = cols};
    size_t n = (size_t)stored_rows(id) * cols;
    at[id] = need(stored_rows(id) * (size_t)dtype_row_bytes(dtype, cols));
    if (dtype != FAK_I32) draw_weights(dtype, n, at[id]);
    return id;
}

static uint32_t add_act(uint32_t cols)
{
    return add_value(FAK_ACT, FAK_F32, FAK_STEP_ROWS, cols);
}

static uint32_t add_some(uint32_t dtype, uint32_t cols)
{
    return add_value(FAK_ACT, dtype, FAK_WANTED_ROWS, cols);
}

#define IN(...) ((const uint32_t[8]){__VA_ARGS__})
#define OUT(...) ((const uint32_t[3]){__VA_ARGS__})

static fak_op params; /* of the next ops */

static void run(uint32_t id, const uint32_t *in, const uint32_t *out)
{
    uint32_t temp[OP_PARTS];
    fak_op o = params;
    o.id = id;
    memcpy(o.in, in, sizeof o.in);
    memcpy(o.out, out, sizeof o.out);
    memory.scratch = need((size_t)ref_op_scratch(&o, value, memory.values, T_MAX, CONTEXT, temp));
    for (uint32_t k = 0; k < OP_PARTS; k++)
        at[memory.values + k] = temp[k] ? need((size_t)temp[k] * T_MAX * 4) : NULL;
    if (ref_op(&memory, &o) != FAK_OK) abort();
    for (uint32_t k = 0; k < OP_PARTS; k++) free(at[memory.values + k]);
    free(memory.scratch);
}

static void say_value(const char *what, uint32_t id)
{
    hash s = hash_open();
    size_t n = (size_t)stored_rows(id) * value[id].cols;
    if (value[id].dtype == FAK_F32)
        hash_floats(&s, at[id], n);
    else
        hash_words(&s, at[id], n);
    say(what, s);
}

static void hash_matmuls(const list *dtypes, const list *cols)
{
    static const uint32_t shape[][2] = {{1, 1}, {3, 5}, {2, 3}, {1, 1}, {3, 5}, {2, 7}};
    for (size_t c = 0; c < dtypes->count * 2 * 6; c++) {
        uint32_t dtype = dtypes->at[c / 12], act_q8 = c / 6 % 2, block = dtype_find(dtype)->block;
        uint32_t T = shape[c % 6][0], O = shape[c % 6][1], I = cols->at[c % 6];
        if (c % 6 >= cols->count || I % block) continue;
        memory_open((ref_kv){0}, (int)act_q8, T, 0);
        uint32_t x = add_act(I), w = add_value(FAK_WEIGHT, dtype, O, I), y = add_act(O);
        if (T == 3) { /* a row with a NaN; a row whose first block is nearly nothing */
            ((float *)at[x])[I + 3] = float_of(0x7fc00000u);
            for (uint32_t i = 0; i < 32; i++) ((float *)at[x])[2 * I + i] *= 0x1p-120f;
        }
        run(FAK_OP_MATMUL, IN(x, w), OUT(y));
        say_value(LINE("matmul %s act=%s T=%" PRIu32 " O=%" PRIu32 " I=%" PRIu32, dtype_name(dtype),
                       act_q8 ? "q8" : "f32", T, O, I),
                  y);
        memory_close();
    }
}

static void hash_embeds(const list *dtypes, uint32_t D)
{
    for (size_t n = 0; n < dtypes->count; n++) {
        memory_open((ref_kv){0}, 0, 8, 0);
        uint32_t w = add_value(FAK_WEIGHT, dtypes->at[n], 11, D), y = add_act(D);
        run(FAK_OP_EMBED, IN(w), OUT(y));
        say_value(LINE("embed %s T=8 V=11 D=%" PRIu32, dtype_name(dtypes->at[n]), D), y);
        memory_close();
    }
}

static void hash_row_ops(void)
{
    static const uint32_t cols[] = {1, 33, 96};
    for (size_t n = 0; n < 3; n++) {
        uint32_t D = cols[n];
        memory_open((ref_kv){0}, 0, 5, 0);
        uint32_t a = add_act(D), b = add_act(D), w = add_value(FAK_WEIGHT, FAK_F32, 1, D),
                 y = add_act(D);
        uint32_t some = add_some(FAK_F32, D), ids = add_some(FAK_I32, 1);
        for (uint32_t i = 0; i < 5 * D; i++) ((float *)at[a])[i] *= i % 7 ? 4 : 100;
        params = (fak_op){.eps = 0x1p-17f, .scale = 0.3f, .softcap = 3};
        run(FAK_OP_RMSNORM, IN(a, w), OUT(y));
        say_value(LINE("rmsnorm T=5 D=%" PRIu32, D), y);
        params.group = D % 3 ? D : D / 3;
        run(FAK_OP_RMSNORM, IN(a, w), OUT(y));
        say_value(LINE("rmsnorm T=5 D=%" PRIu32 " group=%" PRIu32, D, params.group), y);
        for (params.act = FAK_SILU; params.act <= FAK_GELU_TANH; params.act++) {
            run(FAK_OP_GLU, IN(a, b), OUT(y));
            say_value(LINE("glu act=%" PRIu32 " T=5 F=%" PRIu32, params.act, D), y);
        }
        run(FAK_OP_SOFTCAP, IN(a), OUT(y));
        say_value(LINE("softcap T=5 D=%" PRIu32, D), y);
        run(FAK_OP_SCALE, IN(a), OUT(y));
        say_value(LINE("scale T=5 D=%" PRIu32, D), y);
        run(FAK_OP_ADD, IN(a, b), OUT(y));
        say_value(LINE("add T=5 D=%" PRIu32, D), y);
        run(FAK_OP_ADD_BIAS, IN(a, w), OUT(y));
        say_value(LINE("add_bias T=5 D=%" PRIu32, D), y);
        run(FAK_OP_TAKE_ROWS, IN(a), OUT(some));
        say_value(LINE("take_rows W=2 D=%" PRIu32, D), some);
        run(FAK_OP_ARGMAX, IN(some), OUT(ids));
        say_value(LINE("argmax W=2 V=%" PRIu32, D), ids);
        ((float *)at[some])[D - 1] = float_of(0xffc00001u);
        run(FAK_OP_ARGMAX, IN(some), OUT(ids));
        say_value(LINE("argmax W=2 V=%" PRIu32 " nan", D), ids);
        memory_close();
    }
}

static ref_kv kv_open(uint32_t dtype, uint32_t width)
{
    ref_kv kv = {.dtype = dtype, .slots = SLOTS, .context = CONTEXT, .width = width};
    size_t bytes = (size_t)ref_kv_bytes(&kv, LAYERS),
           cells = (size_t)LAYERS * SLOTS * CONTEXT * width;
    kv.k = need(bytes);
    kv.v = need(bytes);
    kv.raw = need(cells * 4);
    memset(kv.k, 0xff, bytes); /* NaN in every dtype: what is not visible must not be seen */
    memset(kv.v, 0xff, bytes);
    return kv;
}

static void kv_close(const ref_kv *kv)
{
    free(kv->k);
    free(kv->v);
    free(kv->raw);
}

static void hash_kv(hash *s, const ref_kv *kv, uint32_t slot, uint32_t len, uint32_t cols)
{
    float *k = need(cols * 4ul), *v = need(cols * 4ul);
    for (uint32_t pos = 0; pos < len; pos++) {
        ref_kv_read(kv, 1, slot, pos, cols, k, v);
        hash_floats(s, k, cols);
        hash_floats(s, v, cols);
    }
    free(k);
    free(v);
}

/* 30 positions appended 6 at a time, attention after each; then an eviction and attention again. */
static void hash_attention(uint32_t dtype, uint32_t window, float softcap, int fused)
{
    static const uint32_t shape[][4] = {
        {4, 4, 16, 16}, {6, 2, 20, 12}, {3, 1, 7, 2}}; /* H K d rot */
    for (size_t n = 0; n < 3; n++) {
        uint32_t H = shape[n][0], K = shape[n][1], d = shape[n][2], rot = shape[n][3];
        ref_kv kv = kv_open(dtype, K * d + 3);
        hash turned = hash_open(), y = hash_open(), kept = hash_open();
        params = (fak_op){.layer = 1,
                          .heads = H,
                          .kv_heads = K,
                          .head_dim = d,
                          .rot_dim = rot,
                          .window = window,
                          .scale = 0.3f,
                          .softcap = softcap};
        for (uint32_t turn = 0; turn < 7; turn++) {
            uint32_t first = turn < 5 ? turn * 6 : turn == 5 ? 21 : 27;
            memory_open(kv, 0, 7, first);
            uint32_t q = add_act(H * d), k = add_act(K * d), v = add_act(K * d), r = add_act(H * d);
            uint32_t tab = add_value(FAK_CONST, FAK_F32, CONTEXT, rot), out = add_act(H * d);
            rope_table(CONTEXT, rot, 10000, at[tab]);
            if (turn == 5) { /* of 30 positions 9 go */
                fak_op append = params;
                append.id = FAK_OP_KV_APPEND;
                ref_kv_evict(&kv, &append, 2, 4, 9, 30, at[tab]);
                hash_kv(&kept, &kv, 2, 21, K * d);
            }
            if (fused) {
                run(FAK_OP_ROPE_APPEND, IN(q, k, v, tab), OUT(r));
            } else {
                run(FAK_OP_ROPE, IN(q, tab), OUT(r));
                run(FAK_OP_KV_APPEND, IN(k, v, tab), OUT(0));
            }
            run(FAK_OP_ATTENTION, IN(r), OUT(out));
            hash_floats(&turned, at[r], (size_t)7 * H * d);
            hash_floats(&y, at[out], (size_t)7 * H * d);
            memory_close();
        }
        hash_kv(&kept, &kv, 2, 33, K * d);
        kv_close(&kv);
        const char *how = LINE(" kv=%s H=%" PRIu32 " K=%" PRIu32 " d=%" PRIu32 " rot=%" PRIu32
                               " window=%" PRIu32 " softcap=%d",
                               dtype_name(dtype), H, K, d, rot, window, (int)softcap);
        char what[160];
        snprintf(what, sizeof what, "%s%s", fused ? "rope_append" : "rope", how);
        say(what, turned);
        snprintf(what, sizeof what, "kv_append%s%s", fused ? " fused" : "", how);
        say(what, kept);
        snprintf(what, sizeof what, "attention%s%s", fused ? " fused" : "", how);
        say(what, y);
    }
}

static void hash_fused(uint32_t dtype, int act_q8, uint32_t D, uint32_t F)
{
    enum { V = 37 };
    const char *how = LINE("%s act=%s T=5 D=%" PRIu32 " F=%" PRIu32 " V=37", dtype_name(dtype),
                           act_q8 ? "q8" : "f32", D, F);
    char what[160];
    memory_open((ref_kv){0}, act_q8, 5, 0);
    params = (fak_op){.eps = 0x1p-17f, .act = act_q8 ? FAK_GELU_TANH : FAK_SILU};
    uint32_t x = add_act(D), r = add_act(D), g = add_act(F), u = add_act(F), y = add_act(D);
    uint32_t n = add_value(FAK_WEIGHT, FAK_F32, 1, D), wd = add_value(FAK_WEIGHT, dtype, D, F);
    uint32_t wg = add_value(FAK_WEIGHT, dtype, F, D), wu = add_value(FAK_WEIGHT, dtype, F, D);
    uint32_t head = add_value(FAK_WEIGHT, dtype, V, D), yf = add_act(F), yg = add_act(F),
             yv = add_act(V);
    uint32_t some = add_some(FAK_F32, D), ids = add_some(FAK_I32, 1);
#define SAY(name, id) (snprintf(what, sizeof what, "%s %s", name, how), say_value(what, id))
    run(FAK_OP_NORM_MATMUL, IN(x, n, wg, wu, head), OUT(yf, yg, yv));
    SAY("norm_matmul y1", yf);
    SAY("norm_matmul y2", yg);
    SAY("norm_matmul y3", yv);
    run(FAK_OP_NORM_MATMUL_GLU, IN(x, n, wg, wu), OUT(yf));
    SAY("norm_matmul_glu", yf);
    run(FAK_OP_GLU_MATMUL_ADD, IN(g, u, wd, r), OUT(y));
    SAY("glu_matmul_add", y);
    run(FAK_OP_MATMUL_ADD, IN(g, wd, r), OUT(y));
    SAY("matmul_add", y);
    run(FAK_OP_FFN, IN(x, n, wg, wu, wd), OUT(y));
    SAY("ffn", y);
    run(FAK_OP_MATMUL_ARGMAX, IN(some, head), OUT(ids));
    SAY("matmul_argmax", ids);
#undef SAY
    memory_close();
}

static void hash_later(const list *dtypes, uint32_t row, const list *cols, uint32_t D, uint32_t F)
{
    hash_rows(dtypes, row);
    hash_matmuls(dtypes, cols);
    hash_embeds(dtypes, D);
    for (size_t n = 0; n < dtypes->count * 2; n++) hash_fused(dtypes->at[n / 2], n % 2, D, F);
}

int main(void)
{
    hash_numbers();
    hash_quantise();
    hash_rows(&basic, 160);
    hash_tables();
    hash_matmuls(&basic, &(list){6, {32, 96, 288, 1, 33, 257}});
    hash_embeds(&basic, 96);
    hash_row_ops();
    for (uint32_t dtype = FAK_F32; dtype <= FAK_BF16; dtype++) {
        hash_attention(dtype, 0, 0, 0);
        hash_attention(dtype, 5, 0, 0);
        hash_attention(dtype, 11, 3, 0);
        hash_attention(dtype, 0, 3, 1);
    }
    for (size_t n = 0; n < basic.count * 2; n++) hash_fused(basic.at[n / 2], n % 2, 64, 96);
    hash_later(&fives, 160, &(list){3, {32, 96, 288}}, 64, 96);
    hash_later(&ks, 512, &(list){3, {256, 512, 768}}, 256, 512);
    return 0;
}
