/* model - see model.h. */
#include "model.h"

#include "port.h"
#include "rope.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYERS_MAX = 4096,
    WIDTH_MAX = 1 << 20,
    CONTEXT_MAX = 1 << 20,
    CONTEXT_DEFAULT = 4096,
    HEAD_DIM_MAX = 1024,
    PER_LAYER = MODEL_ROLES - MODEL_ATTN_NORM
};

uint32_t model_weight(const model *m, enum model_role role, uint32_t layer)
{
    uint32_t at = role < MODEL_ATTN_NORM ? role : role + layer * PER_LAYER;
    return m->index[at];
}

uint64_t model_weight_bytes(const model *m)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->weights.count; i++) bytes += weights_bytes(&m->weights.at[i]);
    return bytes;
}

/* ---- hyper-parameters ---- */

/* The key "<architecture>.<what>" within [low, high]; fallback < low means that it must be there. */
static int32_t number(const model *m, const gguf *g, const char *what, uint32_t low, uint32_t high,
                      uint32_t fallback, uint32_t *out, fak_error *e)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->architecture, what);
    *out = fallback;
    int32_t s = gguf_get_u32(g, key, out, e);
    if (s < 0) return s;
    if (s == 1 && fallback < low) return gguf_fault(g, e, "the key %s is missing", key);
    if (*out < low || *out > high)
        return gguf_fault(g, e, "%s is %" PRIu32 "; fak takes %" PRIu32 " to %" PRIu32, key, *out,
                          low, high);
    return FAK_OK;
}

static int32_t real(const model *m, const gguf *g, const char *what, float low, float high,
                    float fallback, float *out, fak_error *e)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->architecture, what);
    *out = fallback;
    int32_t s = gguf_get_f32(g, key, out, e);
    if (s < 0) return s;
    if (s == 1 && fallback < low) return gguf_fault(g, e, "the key %s is missing", key);
    if (!(*out >= low && *out <= high))
        return gguf_fault(g, e, "%s is %g; fak takes %g to %g", key, (double)*out, (double)low,
                          (double)high);
    return FAK_OK;
}

static int32_t read_architecture(model *m, const gguf *g, fak_error *e)
{
    gguf_string s = {0};
    int32_t rc = gguf_get_string(g, "general.architecture", &s, e);
    if (rc < 0) return rc;
    if (rc == 1) return gguf_fault(g, e, "no general.architecture: not a language model");
    if (!gguf_string_is(s, "llama")) {
        char shown[48];
        return gguf_fault(g, e, "architecture \"%s\" is not supported; fak runs: llama",
                          gguf_show(shown, sizeof shown, s));
    }
    snprintf(m->architecture, sizeof m->architecture, "llama");
    s = (gguf_string){"", 0};
    rc = gguf_get_string(g, "general.name", &s, e);
    if (rc < 0) return rc;
    snprintf(m->name, sizeof m->name, "%.*s", (int)(s.bytes < 63 ? s.bytes : 63), s.data);
    return FAK_OK;
}

static int32_t read_shape(model *m, const gguf *g, uint32_t context, fak_error *e)
{
    float theta;
    int32_t s;
    if ((s = number(m, g, "block_count", 1, LAYERS_MAX, 0, &m->layers, e)) ||
        (s = number(m, g, "embedding_length", 1, WIDTH_MAX, 0, &m->width, e)) ||
        (s = number(m, g, "feed_forward_length", 1, WIDTH_MAX, 0, &m->ffn, e)) ||
        (s = number(m, g, "attention.head_count", 1, WIDTH_MAX, 0, &m->heads, e)) ||
        (s = number(m, g, "attention.head_count_kv", 1, m->heads, m->heads, &m->kv_heads, e)) ||
        (s = number(m, g, "context_length", 1, UINT32_MAX, 0, &m->context_max, e)) ||
        (s = real(m, g, "attention.layer_norm_rms_epsilon", 0, 1, -1, &m->eps, e)) ||
        (s = real(m, g, "rope.freq_base", 1, 1e12f, 10000, &theta, e)))
        return s;
    uint32_t head_dim = m->width / m->heads;
    char key[64];
    snprintf(key, sizeof key, "%s.attention.key_length", m->architecture);
    if (!gguf_find(g, key) && (m->width % m->heads || head_dim < 2))
        return gguf_fault(g, e,
                          "%s.attention.head_count is %" PRIu32
                          ", which cannot share out the %" PRIu32
                          " of embedding_length, and there is no attention.key_length",
                          m->architecture, m->heads, m->width);
    if ((s = number(m, g, "attention.key_length", 2, HEAD_DIM_MAX, head_dim, &m->head_dim, e)) ||
        (s = number(m, g, "rope.dimension_count", 2, m->head_dim, m->head_dim, &m->rot_dim, e)))
        return s;
    m->rope_theta = (double)theta;
    m->context = context                            ? context
                 : m->context_max < CONTEXT_DEFAULT ? m->context_max
                                                    : CONTEXT_DEFAULT;
    if (m->heads % m->kv_heads)
        return gguf_fault(g, e,
                          "%s.attention.head_count is %" PRIu32 ", no multiple of the %" PRIu32
                          " of attention.head_count_kv",
                          m->architecture, m->heads, m->kv_heads);
    if (m->rot_dim % 2)
        return gguf_fault(g, e, "%s.rope.dimension_count is %" PRIu32 "; it must be even",
                          m->architecture, m->rot_dim);
    uint32_t most = m->context_max < CONTEXT_MAX ? m->context_max : CONTEXT_MAX;
    if (m->context > most)
        return status_set(e, STATUS_REFUSED,
                          "a context of %" PRIu32 " is asked for; %s takes %" PRIu32, m->context,
                          gguf_shown(g), most);
    return FAK_OK;
}

/* Things that change the arithmetic and that llama files may ask for, but fak does not do yet. */
static int32_t refuse_unknown(const model *m, const gguf *g, fak_error *e)
{
    static const struct {
        const char *key;
        double fine[2]; /* these say nothing */
    } asked[] = {{"llama.expert_count", {0, 0}},        {"llama.attention.sliding_window", {0, 0}},
                 {"llama.rope.scaling.factor", {0, 1}}, {"llama.rope.scale_linear", {0, 1}},
                 {"llama.logit_scale", {0, 0}},         {"llama.attention.causal", {1, 1}}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        const gguf_value *v = gguf_find(g, asked[i].key);
        if (!v) continue;
        if (v->type == GGUF_STRING || v->type == GGUF_ARRAY)
            return gguf_fault(g, e, "%s is of type %s, which fak does not run", asked[i].key,
                              gguf_type_name(v->type));
        double is = gguf_number(v, 0);
        if (is != asked[i].fine[0] && is != asked[i].fine[1])
            return gguf_fault(g, e, "%s is %g, which fak does not run", asked[i].key, is);
    }
    if (gguf_find_tensor(g, "rope_freqs.weight"))
        return gguf_fault(g, e,
                          "has rope_freqs.weight (scaled rope), which fak does not run for %s",
                          m->architecture);
    return FAK_OK;
}

/* ---- tensors ---- */

/* Checks and appends tensor `name` [rows, cols]; a vector has rows 1.  dtype 0 = as it is. */
static int32_t add_tensor(model *m, const gguf *g, const char *name, uint32_t rows, uint32_t cols,
                          uint32_t dtype, uint32_t rot_dim, uint32_t *index, fak_error *e)
{
    const gguf_tensor *t = gguf_find_tensor(g, name);
    if (!t) return gguf_fault(g, e, "tensor %s is missing", name);
    if (t->dim[0] != cols || t->dim[1] != rows || t->dim[2] != 1 || t->dim[3] != 1)
        return gguf_fault(
            g, e, "tensor %s is %" PRIu64 " x %" PRIu64 "; the model needs %" PRIu32 " x %" PRIu32,
            name, t->dim[0], t->dim[1], cols, rows);
    if (!gguf_find_ggml_type(t->ggml_type))
        return gguf_fault(g, e, "tensor %s has the unknown type %" PRIu32, name, t->ggml_type);
    if (!dtype_row_bytes(t->dtype, cols) || !dtype_form_bytes(t->dtype, FAK_AS_F32, cols))
        return gguf_fault(g, e, "tensor %s is %s, which fak cannot compute with", name,
                          gguf_ggml_type_name(t->ggml_type));
    weight w = {.dtype = rows == 1 ? FAK_F32
                         : dtype   ? dtype
                                   : t->dtype,
                .rows = rows,
                .cols = cols,
                .head_dim = m->head_dim,
                .rot_dim = rot_dim,
                .tensor = t};
    if (!dtype_row_bytes(w.dtype, cols))
        return status_set(e, STATUS_REFUSED,
                          "%s: tensor %s has rows of %" PRIu32 "; %s needs a multiple of %" PRIu32,
                          gguf_shown(g), name, cols, dtype_name(w.dtype),
                          dtype_find(w.dtype)->block);
    snprintf(w.name, sizeof w.name, "%s", name);
    if (dtype_find(w.dtype)->block > 1) m->blocks = 1;
    *index = m->weights.count;
    return weights_add(&m->weights, &w, e);
}

static int32_t add_rope(model *m, fak_error *e)
{
    uint64_t bytes = (uint64_t)m->context * m->rot_dim * 4;
    float *table = port_alloc(bytes);
    if (!table) return status_memory(e, "the rope table", bytes);
    rope_table(m->context, m->rot_dim, m->rope_theta, table);
    m->index[MODEL_ROPE] = m->weights.count;
    return weights_add(&m->weights,
                       &(weight){.name = "rope",
                                 .dtype = FAK_F32,
                                 .rows = m->context,
                                 .cols = m->rot_dim,
                                 .made = table},
                       e);
}

static int32_t add_layer(model *m, const gguf *g, uint32_t layer, uint32_t dtype, fak_error *e)
{
    uint32_t D = m->width, F = m->ffn, Q = m->heads * m->head_dim, K = m->kv_heads * m->head_dim;
    /* clang-format off */
    const struct { enum model_role role; const char *name; uint32_t rows, cols, rot; } part[] = {
        {MODEL_ATTN_NORM, "attn_norm", 1, D, 0}, {MODEL_Q, "attn_q", Q, D, m->rot_dim},
        {MODEL_K, "attn_k", K, D, m->rot_dim},   {MODEL_V, "attn_v", K, D, 0},
        {MODEL_O, "attn_output", D, Q, 0},       {MODEL_FFN_NORM, "ffn_norm", 1, D, 0},
        {MODEL_GATE, "ffn_gate", F, D, 0},       {MODEL_UP, "ffn_up", F, D, 0},
        {MODEL_DOWN, "ffn_down", D, F, 0},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%" PRIu32 ".%s.weight", layer, part[i].name);
        int32_t s = add_tensor(m, g, name, part[i].rows, part[i].cols, dtype, part[i].rot,
                               &m->index[part[i].role + layer * PER_LAYER], e);
        if (s) return s;
    }
    return FAK_OK;
}

/* A tensor that nothing reads is a model that we do not know: more layers than block_count, a bias. */
static int32_t check_unused(const model *m, const gguf *g, fak_error *e)
{
    if (gguf_tensor_count(g) == m->weights.count) return FAK_OK;
    for (uint32_t i = 0; i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        uint32_t k = 0;
        while (k < m->weights.count && m->weights.at[k].tensor != t) k++;
        char shown[64];
        if (k == m->weights.count)
            return gguf_fault(g, e, "has %s, which fak does not run for %s of %" PRIu32 " layers",
                              gguf_show(shown, sizeof shown, t->name), m->architecture, m->layers);
    }
    return FAK_OK;
}

static int32_t add_all(model *m, const gguf *g, uint32_t dtype, fak_error *e)
{
    int32_t s = FAK_OK;
    m->index = calloc(MODEL_ATTN_NORM + (size_t)m->layers * PER_LAYER, sizeof *m->index);
    if (!m->index) return status_memory(e, "the table of tensors", m->layers * 36ull);
    const gguf_tensor *embed = gguf_find_tensor(g, "token_embd.weight");
    if (!gguf_tensor_count(g)) return gguf_fault(g, e, "has no tensors: a vocabulary, no model");
    if (embed &&
        (embed->dim[0] != m->width || embed->dim[1] > INT32_MAX)) /* rows: the vocabulary */
        return gguf_fault(g, e,
                          "tensor token_embd.weight has %" PRIu64 " rows of %" PRIu64
                          "; the model needs 1 to %d rows of %" PRIu32,
                          embed->dim[1], embed->dim[0], INT32_MAX, m->width);
    m->vocab = embed ? (uint32_t)embed->dim[1] : 0;
    m->tied = !gguf_find_tensor(g, "output.weight");
    if ((s = add_tensor(m, g, "token_embd.weight", m->vocab, m->width, dtype, 0,
                        &m->index[MODEL_EMBED], e)))
        return s;
    for (uint32_t l = 0; !s && l < m->layers; l++) s = add_layer(m, g, l, dtype, e);
    if (s || (s = add_tensor(m, g, "output_norm.weight", 1, m->width, dtype, 0,
                             &m->index[MODEL_OUT_NORM], e)))
        return s;
    m->index[MODEL_HEAD] = m->index[MODEL_EMBED];
    if (!m->tied && (s = add_tensor(m, g, "output.weight", m->vocab, m->width, dtype, 0,
                                    &m->index[MODEL_HEAD], e)))
        return s;
    return check_unused(m, g, e);
}

int32_t model_open(model *m, const gguf *g, uint32_t dtype, uint32_t context, fak_error *e)
{
    int32_t s;
    *m = (model){0};
    const dtype_info *info = dtype_find(dtype);
    if (dtype && (!info || !dtype_form_bytes(dtype, FAK_AS_F32, info->block)))
        return status_set(e, STATUS_REFUSED,
                          "matrices cannot be converted to dtype %" PRIu32 " (%s)", dtype,
                          dtype_name(dtype));
    if ((s = read_architecture(m, g, e)) || (s = read_shape(m, g, context, e)) ||
        (s = refuse_unknown(m, g, e)) || (s = add_all(m, g, dtype, e)) || (s = add_rope(m, e)))
        model_close(m);
    return s;
}

void model_close(model *m)
{
    weights_free(&m->weights);
    free(m->index);
    *m = (model){0};
}
