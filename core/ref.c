/* ref - see ref.h.  The definition of the arithmetic. */
#include "ref.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- leaves: numbers ---- */

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* e^x = 2^n e^r: n = rint(x*log2(e)) by the 1.5*2^23 trick, r = x - n*ln2 in two exact-enough parts,
 * e^r by a polynomial of degree 6, 2^n added to the exponent field. */
float ref_exp(float x)
{
    float c = x > 88.3f ? 88.3f : x;
    float k = c * 0x1.715476p+0f + 12582912.0f;
    float n = k - 12582912.0f;
    float r = c - n * 0x1.62e4p-1f;
    r = r - n * 0x1.7f7d1cp-20f;
    float p = 0x1.6db4eap-10f;
    p = p * r + 0x1.123bdep-7f;
    p = p * r + 0x1.55545ep-5f;
    p = p * r + 0x1.55548ep-3f;
    p = p * r + 0.5f;
    float y = 1.0f + (r + (r * r) * p);
    y = float_of(bits_of(y) + (bits_of(k) << 23));
    y = x < -87.33654f ? 0.0f : y;
    return x == x ? y : x;
}

float ref_tanh(float x)
{
    return 1.0f - 2.0f / (ref_exp(2.0f * x) + 1.0f);
}

float ref_dot(uint32_t n, const float *a, const float *b)
{
    float s[8] = {0};
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (uint32_t j = 0; j < 8; j++) s[j] = s[j] + a[i + j] * b[i + j];
    for (; i < n; i++) s[i & 7] = s[i & 7] + a[i] * b[i];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* d = m/127 for m = max|x|, q = rint(x*(127/m)); tiny blocks are zero; NaN and infinity make d NaN */
void ref_quantise(const float x[32], ref_block *out)
{
    uint32_t most = 0;
    for (int i = 0; i < 32; i++) {
        uint32_t magnitude = bits_of(x[i]) & 0x7fffffffu;
        most = magnitude > most ? magnitude : most;
    }
    float m = float_of(most);
    *out = (ref_block){.d = most >= 0x7f800000u ? float_of(0x7fc00000u) : 0.0f};
    if (most >= 0x7f800000u || !(m > 0x1p-100f)) return;
    out->d = m / 127.0f;
    float inverse = 127.0f / m;
    for (int i = 0; i < 32; i++) { /* adding 1.5*2^23 rounds to nearest even */
        float q = (x[i] * inverse + 12582912.0f) - 12582912.0f;
        out->q[i] = (int8_t)q;
        out->sum += out->q[i];
    }
}

/* ---- leaves: MATMUL ---- */

/* One output of a block format: acc = acc + (((float)isum*dw)*dx) [+ (mw*(dx*(float)sx))] */
static float dot_blocks(uint32_t blocks, const int8_t *code, const float *dw, const float *mw,
                        const ref_block *x)
{
    float acc = 0;
    for (uint32_t b = 0; b < blocks; b++) {
        int32_t isum = 0;
        for (int i = 0; i < 32; i++) isum += code[b * 32 + (uint32_t)i] * x[b].q[i];
        float v = ((float)isum * dw[b]) * x[b].d;
        if (mw) v = v + mw[b] * (x[b].d * (float)x[b].sum);
        acc = acc + v;
    }
    return acc;
}

/* One output of a K format: whole numbers are multiplied before anything is rounded. */
static float dot_k(uint32_t dtype, uint32_t blocks, const int8_t *code, const dtype_k *scales,
                   const ref_block *x)
{
    float acc = 0;
    for (uint32_t b = 0; b < blocks; b++) {
        const dtype_k *k = &scales[b / 8];
        const int8_t *w = code + b * 32, *q = x[b].q;
        uint32_t j = b % 8;
        int32_t low = 0, high = 0;
        for (int i = 0; i < 16; i++) low += w[i] * q[i];
        for (int i = 16; i < 32; i++) high += w[i] * q[i];
        if (dtype == FAK_Q6_K) {
            acc = acc + ((float)(k->sc[2 * j] * low + k->sc[2 * j + 1] * high) * k->d) * x[b].d;
        } else {
            float v = ((float)(k->sc[j] * (low + high)) * k->d) * x[b].d;
            acc = acc + (v - ((float)(k->mn[j] * x[b].sum) * k->dmin) * x[b].d);
        }
    }
    return acc;
}

static void matmul_k(uint32_t dtype, uint32_t T, uint32_t O, uint32_t I, const void *w,
                     const ref_block *act, float *y, void *scratch)
{
    uint32_t blocks = I / 32, block_bytes = dtype_find(dtype)->block_bytes;
    const char *at = w;
    dtype_k *scales = scratch; /* [I / 256] */
    int8_t *code = (int8_t *)(scales + I / 256);
    for (uint32_t o = 0; o < O; o++) {
        dtype_serve_row(dtype, FAK_CODES, I, at, code);
        for (uint32_t i = 0; i < I / 256; i++, at += block_bytes)
            dtype_k_scales(dtype, at, &scales[i]);
        for (uint32_t t = 0; t < T; t++)
            y[(size_t)t * O + o] = dot_k(dtype, blocks, code, scales, act + (size_t)t * blocks);
    }
}

static void matmul_q8(uint32_t dtype, uint32_t T, uint32_t O, uint32_t I, const void *w,
                      const float *x, float *y, void *scratch)
{
    uint32_t blocks = I / 32, has_zeros = dtype_find(dtype)->form_mask >> FAK_ZEROS & 1;
    uint64_t row_bytes = dtype_row_bytes(dtype, I);
    ref_block *act = scratch; /* [T, blocks] */
    float *dw = (float *)(void *)(act + (size_t)T * blocks), *mw = dw + blocks;
    int8_t *code = (int8_t *)(mw + blocks);
    for (size_t i = 0; i < (size_t)T * blocks; i++) ref_quantise(x + i * 32, &act[i]);
    if (dtype_find(dtype)->block == 256) {
        matmul_k(dtype, T, O, I, w, act, y, dw);
        return;
    }
    for (uint32_t o = 0; o < O; o++) {
        const char *row = (const char *)w + o * row_bytes;
        dtype_serve_row(dtype, FAK_CODES, I, row, code);
        dtype_serve_row(dtype, FAK_SCALES, I, row, dw);
        if (has_zeros) dtype_serve_row(dtype, FAK_ZEROS, I, row, mw);
        for (uint32_t t = 0; t < T; t++)
            y[(size_t)t * O + o] =
                dot_blocks(blocks, code, dw, has_zeros ? mw : NULL, act + (size_t)t * blocks);
    }
}

void ref_matmul(uint32_t dtype, uint32_t T, uint32_t O, uint32_t I, const void *w, const float *x,
                float *y, int act_q8, void *scratch)
{
    if (act_q8 && dtype_find(dtype)->block > 1) {
        matmul_q8(dtype, T, O, I, w, x, y, scratch);
        return;
    }
    uint64_t row_bytes = dtype_row_bytes(dtype, I);
    for (uint32_t o = 0; o < O; o++) {
        const char *row = (const char *)w + o * row_bytes;
        const float *weights = (const float *)(const void *)row;
        if (dtype != FAK_F32) {
            dtype_decode_row(dtype, I, row, scratch);
            weights = scratch;
        }
        for (uint32_t t = 0; t < T; t++)
            y[(size_t)t * O + o] = ref_dot(I, weights, x + (size_t)t * I);
    }
}

uint64_t ref_matmul_scratch(uint32_t T, uint32_t I)
{
    uint64_t blocks = (uint64_t)I / 32 + 1;
    return T * blocks * sizeof(ref_block) + blocks * 8 + (uint64_t)I * 4;
}

/* ---- leaves: rows ---- */

void ref_rmsnorm(uint32_t D, uint32_t group, float eps, const float *x, const float *w, float *y)
{
    uint32_t n = group ? group : D;
    for (uint32_t g = 0; g < D; g += n) {
        float ss = 0;
        for (uint32_t i = 0; i < n; i++) ss = ss + x[g + i] * x[g + i];
        float inverse = 1.0f / sqrtf(ss / (float)n + eps);
        for (uint32_t i = 0; i < n; i++) y[g + i] = (x[g + i] * inverse) * w[i];
    }
}

void ref_rope(uint32_t heads, uint32_t d, uint32_t rot, const float *x, const float *tab, float *y)
{
    uint32_t half = rot / 2;
    for (uint32_t h = 0; h < heads; h++, x += d, y += d) {
        for (uint32_t i = 0; i < half; i++) {
            float a = x[i], b = x[half + i], c = tab[i], s = tab[half + i];
            y[i] = a * c - b * s;
            y[half + i] = a * s + b * c;
        }
        for (uint32_t i = rot; i < d; i++) y[i] = x[i];
    }
}

void ref_glu(uint32_t n, uint32_t act, const float *g, const float *u, float *y)
{
    for (uint32_t i = 0; i < n; i++) {
        float x = g[i], a;
        if (act == FAK_SILU) {
            a = x / (1.0f + ref_exp(-x));
        } else { /* FAK_GELU_TANH */
            float z = 0.7978845608f * (x + ((0.044715f * x) * x) * x);
            a = (0.5f * x) * (1.0f + ref_tanh(z));
        }
        y[i] = a * u[i];
    }
}

void ref_softcap(uint32_t n, float cap, const float *x, float *y)
{
    for (uint32_t i = 0; i < n; i++) y[i] = cap * ref_tanh(x[i] / cap);
}

uint32_t ref_argmax(uint32_t n, const float *x)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (x[i] != x[i]) return 0xffffffffu;
        if (x[i] > x[best]) best = i;
    }
    return best;
}

/* ---- kv ---- */

static size_t kv_index(const ref_kv *kv, uint32_t layer, uint32_t slot, uint32_t pos)
{
    return (((size_t)layer * kv->slots + slot) * kv->context + pos) * kv->width;
}

static char *kv_row(const ref_kv *kv, void *base, size_t index)
{
    return (char *)base + index * dtype_row_bytes(kv->dtype, 1);
}

uint64_t ref_kv_bytes(const ref_kv *kv, uint32_t layers)
{
    return (uint64_t)layers * kv->slots * kv->context * dtype_row_bytes(kv->dtype, kv->width);
}

void ref_kv_read(const ref_kv *kv, uint32_t layer, uint32_t slot, uint32_t pos, uint32_t cols,
                 float *k, float *v)
{
    size_t at = kv_index(kv, layer, slot, pos);
    dtype_decode_row(kv->dtype, cols, kv_row(kv, kv->k, at), k);
    dtype_decode_row(kv->dtype, cols, kv_row(kv, kv->v, at), v);
}

void ref_kv_write(const ref_kv *kv, uint32_t layer, uint32_t slot, uint32_t pos, uint32_t cols,
                  const float *k, const float *v)
{
    size_t at = kv_index(kv, layer, slot, pos);
    dtype_encode_row(kv->dtype, cols, k, kv_row(kv, kv->k, at));
    dtype_encode_row(kv->dtype, cols, v, kv_row(kv, kv->v, at));
}

void ref_kv_clone(const ref_kv *kv, uint32_t layer, uint32_t to, uint32_t from, uint32_t len)
{
    size_t a = kv_index(kv, layer, to, 0), b = kv_index(kv, layer, from, 0);
    size_t bytes = (size_t)(len * dtype_row_bytes(kv->dtype, kv->width));
    memcpy(kv_row(kv, kv->k, a), kv_row(kv, kv->k, b), bytes);
    memcpy(kv_row(kv, kv->v, a), kv_row(kv, kv->v, b), bytes);
    if (kv->raw) memcpy(kv->raw + a, kv->raw + b, (size_t)len * kv->width * 4);
}

/* Rotated k and v of one position, head by head so that the stack holds any width. */
static void append(const ref_kv *kv, const fak_op *o, size_t at, const float *k, const float *v,
                   const float *tab)
{
    float turned[1024];
    assert(o->head_dim <= 1024);
    for (uint32_t h = 0; h < o->kv_heads; h++) {
        size_t head = at + (size_t)h * o->head_dim;
        const float *key = k + (size_t)h * o->head_dim;
        ref_rope(1, o->head_dim, o->rot_dim, key, tab, turned);
        dtype_encode_row(kv->dtype, o->head_dim, turned, kv_row(kv, kv->k, head));
        if (kv->raw && kv->raw + head != key) memmove(kv->raw + head, key, o->head_dim * 4ul);
    }
    if (v) dtype_encode_row(kv->dtype, o->kv_heads * o->head_dim, v, kv_row(kv, kv->v, at));
}

void ref_kv_evict(const ref_kv *kv, const fak_op *o, uint32_t slot, uint32_t first, uint32_t count,
                  uint32_t len, const float *tab)
{
    for (uint32_t pos = first; count && pos + count < len; pos++) {
        size_t to = kv_index(kv, o->layer, slot, pos), from = to + (size_t)count * kv->width;
        memcpy(kv_row(kv, kv->v, to), kv_row(kv, kv->v, from),
               (size_t)dtype_row_bytes(kv->dtype, kv->width));
        append(kv, o, to, kv->raw + from, NULL, tab + (size_t)pos * o->rot_dim);
    }
}

/* Columns [0, d) of `rows` positions from `at` on, as F32: in place, or decoded into buffer. */
static const float *kv_rows(const ref_kv *kv, void *base, size_t at, uint32_t rows, uint32_t d,
                            float *buffer, size_t *stride)
{
    *stride = kv->width;
    if (kv->dtype == FAK_F32) return (const float *)base + at;
    *stride = d;
    for (uint32_t r = 0; r < rows; r++)
        dtype_decode_row(kv->dtype, d, kv_row(kv, base, at + (size_t)r * kv->width),
                         buffer + r * d);
    return buffer;
}

enum { KEYS = 8 }; /* positions whose scores are summed side by side; each in its own order */

/* score[t - from] for t in [from, end); returns the maximum */
static float scores(const ref_heads *h, const ref_kv *kv, size_t head, uint32_t from, uint32_t end,
                    const float *q, float *score, float *buffer)
{
    float most = -INFINITY;
    for (uint32_t t = from; t < end; t += KEYS) {
        uint32_t n = end - t < KEYS ? end - t : KEYS;
        size_t stride;
        const float *k =
            kv_rows(kv, kv->k, head + (size_t)t * kv->width, n, h->head_dim, buffer, &stride);
        float s[KEYS] = {0};
        if (n == KEYS)
            for (uint32_t i = 0; i < h->head_dim; i++)
                for (uint32_t j = 0; j < KEYS; j++) s[j] = s[j] + q[i] * k[j * stride + i];
        else
            for (uint32_t j = 0; j < n; j++)
                for (uint32_t i = 0; i < h->head_dim; i++) s[j] = s[j] + q[i] * k[j * stride + i];
        for (uint32_t j = 0; j < n; j++) {
            float x = s[j] * h->scale;
            if (h->softcap > 0) x = h->softcap * ref_tanh(x / h->softcap);
            most = x > most ? x : most;
            score[t - from + j] = x;
        }
    }
    return most;
}

void ref_attention(const ref_heads *h, const ref_kv *kv, uint32_t layer, uint32_t slot,
                   uint32_t pos, const float *q, float *y, float *scratch)
{
    uint32_t d = h->head_dim, end = pos + 1;
    uint32_t from = h->window && end > h->window ? end - h->window : 0;
    float *score = scratch + (size_t)KEYS * d; /* scratch: KEYS decoded rows, then the scores */
    for (uint32_t i = 0; i < h->heads; i++, q += d, y += d) {
        size_t head = kv_index(kv, layer, slot, 0) + (size_t)(i / (h->heads / h->kv_heads)) * d;
        float m = scores(h, kv, head, from, end, q, score, scratch), l = 0;
        for (uint32_t c = 0; c < d; c++) y[c] = 0;
        for (uint32_t t = from; t < end; t++) {
            size_t stride;
            const float *v =
                kv_rows(kv, kv->v, head + (size_t)t * kv->width, 1, d, scratch, &stride);
            float p = ref_exp(score[t - from] - m);
            l = l + p;
            for (uint32_t c = 0; c < d; c++) y[c] = y[c] + p * v[c];
        }
        float inverse = 1.0f / l;
        for (uint32_t c = 0; c < d; c++) y[c] = y[c] * inverse;
    }
}

uint64_t ref_attention_scratch(uint32_t context, uint32_t head_dim)
{
    return ((uint64_t)context + (uint64_t)KEYS * head_dim + KEYS) * 4;
}

/* ---- plan ops ---- */

uint32_t ref_rows(const fak_value *v, uint32_t rows, uint32_t wanted)
{
    return v->rows == FAK_STEP_ROWS ? rows : v->rows == FAK_WANTED_ROWS ? wanted : v->rows;
}

static float *row(const ref_memory *m, uint32_t id, uint32_t r)
{
    return (float *)m->at[id] + (size_t)r * m->value[id].cols;
}

static uint32_t word(const fak_step *s, fak_array a, uint32_t i)
{
    uint32_t w;
    memcpy(&w, (const char *)s + a.offset + (size_t)i * a.stride, 4);
    return w;
}

static void embed(const ref_memory *m, const fak_op *o, uint32_t r)
{
    const fak_value *w = &m->value[o->in[0]];
    uint32_t token = word(m->step, m->step->token, r);
    float *y = row(m, o->out[0], r);
    if (token < w->rows)
        dtype_decode_row(w->dtype, w->cols,
                         (const char *)m->at[o->in[0]] + token * dtype_row_bytes(w->dtype, w->cols),
                         y);
    for (uint32_t i = 0; token >= w->rows && i < w->cols; i++) y[i] = float_of(0x7fc00000u);
}

/* The ops whose rows do not know their position. */
static void row_op(const ref_memory *m, const fak_op *o, uint32_t r)
{
    uint32_t y = o->out[0], cols = m->value[y].cols, in_cols = m->value[o->in[0]].cols, best;
    const float *a =
        o->in[0] && o->id != FAK_OP_TAKE_ROWS && o->id != FAK_OP_EMBED ? row(m, o->in[0], r) : NULL;
    float *out = row(m, y, r);
    switch (o->id) {
    case FAK_OP_EMBED:
        embed(m, o, r);
        break;
    case FAK_OP_RMSNORM:
        ref_rmsnorm(cols, o->group, o->eps, a, row(m, o->in[1], 0), out);
        break;
    case FAK_OP_ADD_BIAS:
        for (uint32_t i = 0; i < cols; i++) out[i] = a[i] + row(m, o->in[1], 0)[i];
        break;
    case FAK_OP_GLU:
        ref_glu(cols, o->act, a, row(m, o->in[1], r), out);
        break;
    case FAK_OP_ADD:
        for (uint32_t i = 0; i < cols; i++) out[i] = a[i] + row(m, o->in[1], r)[i];
        break;
    case FAK_OP_SCALE:
        for (uint32_t i = 0; i < cols; i++) out[i] = a[i] * o->scale;
        break;
    case FAK_OP_SOFTCAP:
        ref_softcap(cols, o->softcap, a, out);
        break;
    case FAK_OP_TAKE_ROWS:
        memcpy(out, row(m, o->in[0], word(m->step, m->step->wanted, r)), (size_t)cols * 4);
        break;
    case FAK_OP_ARGMAX:
        best = ref_argmax(in_cols, a);
        memcpy(out, &best, 4);
        break;
    default:
        assert(0); /* an op of the table without a definition */
    }
}

/* The ops that know their row's slot and position. */
static void span_op(const ref_memory *m, const fak_op *o)
{
    ref_heads h = {o->heads, o->kv_heads, o->head_dim, o->window, o->scale, o->softcap};
    for (uint32_t i = 0; i < m->step->span.count; i++) {
        fak_span s;
        FAK_GET(&s, m->step, span, i);
        for (uint32_t j = 0; j < s.rows; j++) {
            uint32_t r = s.row + j, pos = s.first + j;
            if (o->id == FAK_OP_ROPE)
                ref_rope(o->heads, o->head_dim, o->rot_dim, row(m, o->in[0], r),
                         row(m, o->in[1], pos), row(m, o->out[0], r));
            else if (o->id == FAK_OP_KV_APPEND)
                append(&m->kv, o, kv_index(&m->kv, o->layer, s.slot, pos), row(m, o->in[0], r),
                       row(m, o->in[1], r), row(m, o->in[2], pos));
            else
                ref_attention(&h, &m->kv, o->layer, s.slot, pos, row(m, o->in[0], r),
                              row(m, o->out[0], r), m->scratch);
        }
    }
}

static void core_op(const ref_memory *m, const fak_op *o)
{
    const fak_value *x = &m->value[o->in[0]], *w = &m->value[o->in[1]];
    uint32_t rows = m->step->rows, wanted = m->step->wanted.count;
    if (o->id == FAK_OP_MATMUL) {
        ref_matmul(w->dtype, ref_rows(x, rows, wanted), w->rows, w->cols, m->at[o->in[1]],
                   m->at[o->in[0]], m->at[o->out[0]], m->act_q8, m->scratch);
    } else if (o->id == FAK_OP_ROPE || o->id == FAK_OP_KV_APPEND || o->id == FAK_OP_ATTENTION) {
        span_op(m, o);
    } else {
        uint32_t n = ref_rows(&m->value[o->out[0]], rows, wanted);
        for (uint32_t r = 0; r < n; r++) row_op(m, o, r);
    }
}

/* Ids, shapes and places of what a fused op's parts hand on: the OP_PARTS values behind the plan's. */
static uint32_t expand(const fak_op *op, fak_value *value, uint32_t values, fak_op part[OP_PARTS])
{
    uint32_t temp[OP_PARTS];
    for (uint32_t k = 0; k < OP_PARTS; k++) temp[k] = values + k;
    uint32_t n = ops_expand(op, temp, part);
    for (uint32_t k = 0; k < n; k++)
        if (part[k].out[0] >= values)
            value[part[k].out[0]] = (fak_value){.kind = FAK_ACT,
                                                .dtype = FAK_F32,
                                                .rows = ops_out_rows(&part[k], value),
                                                .cols = ops_out_cols(&part[k], value)};
    return n;
}

int32_t ref_op(ref_memory *m, const fak_op *op)
{
    fak_op part[OP_PARTS];
    if (!ops_find(op->id)) return FAK_E_UNSUPPORTED;
    uint32_t n = expand(op, m->value, m->values, part);
    if (!n) core_op(m, op);
    for (uint32_t k = 0; k < n; k++) core_op(m, &part[k]);
    return FAK_OK;
}

uint64_t ref_op_scratch(const fak_op *op, fak_value *value, uint32_t values, uint32_t rows,
                        uint32_t context, uint32_t temp[OP_PARTS])
{
    fak_op part[OP_PARTS];
    uint64_t most = 0;
    uint32_t n = expand(op, value, values, part);
    for (uint32_t k = 0; k < OP_PARTS; k++) temp[k] = 0;
    if (!n) part[n++] = *op;
    for (uint32_t k = 0; k < n; k++) {
        const fak_op *o = &part[k];
        uint64_t bytes = o->id == FAK_OP_MATMUL ? ref_matmul_scratch(rows, value[o->in[1]].cols)
                         : o->id == FAK_OP_ATTENTION ? ref_attention_scratch(context, o->head_dim)
                                                     : 0;
        most = bytes > most ? bytes : most;
        if (o->out[0] >= values) temp[o->out[0] - values] = value[o->out[0]].cols;
    }
    return most;
}
