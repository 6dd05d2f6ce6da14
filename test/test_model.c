/* Models: shapes of good files, each fault with its sentence, conversions, the context. */
#include "support.h"

#include "../core/rope.h"

#include <inttypes.h>
#include <math.h>
#include <unistd.h>

/* ---- changing a file in memory ---- */

typedef struct image {
    uint8_t *data;
    size_t bytes;
} image;

static char folder[] = "/tmp/test_model_XXXXXX", path[64];

static void image_load(image *m, const char *file_name)
{
    m->data = tiny_bytes(file_name, &m->bytes);
}

static void image_free(image *m)
{
    free(m->data);
    *m = (image){0};
}

static void image_insert(image *m, size_t at, const void *src, size_t bytes)
{
    uint8_t *data = malloc(m->bytes + bytes);
    assert_non_null(data);
    memcpy(data, m->data, at);
    memcpy(data + at, src, bytes);
    memcpy(data + at + bytes, m->data + at, m->bytes - at);
    free(m->data);
    m->data = data;
    m->bytes += bytes;
}

static uint32_t get_u32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void set_u32(uint8_t *p, uint32_t n)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(n >> 8 * i);
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

/* The name of a key or tensor; its length stands in the 8 bytes before it. */
static uint8_t *image_name(const image *m, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 8; i + n <= m->bytes; i++)
        if (!memcmp(m->data + i, name, n) && get_u32(m->data + i - 8) == n &&
            get_u32(m->data + i - 4) == 0)
            return m->data + i;
    fail_msg("the file has no %s", name);
    return NULL;
}

static uint8_t *image_after(const image *m, const char *name)
{
    return image_name(m, name) + strlen(name);
}

/* Name, number or both of them; what is inserted must keep the data aligned, so a key that nobody
 * reads fills it up to a multiple of 32 bytes. */
static void image_add(image *m, size_t at, uint8_t *entry, size_t bytes)
{
    static uint8_t number;
    uint8_t filler[64] = {1, [8] = 128 | number++, [9] = GGUF_STRING};
    size_t fill = (32 - (bytes + 21) % 32) % 32;
    filler[13] = (uint8_t)fill;
    image_insert(m, at, entry, bytes);
    image_insert(m, 24, filler, 21 + fill);
    set_u32(m->data + 16, get_u32(m->data + 16) + 1);
}

static size_t put_name(uint8_t *entry, const char *name)
{
    memset(entry, 0, 8);
    set_u32(entry, (uint32_t)strlen(name));
    memcpy(entry + 8, name, strlen(name));
    return 8 + strlen(name);
}

static void image_add_key(image *m, const char *key, uint32_t type, uint32_t bits)
{
    uint8_t entry[128];
    size_t n = put_name(entry, key);
    set_u32(entry + n, type);
    set_u32(entry + n + 4, bits);
    image_add(m, 24, entry, n + 8);
    set_u32(m->data + 16, get_u32(m->data + 16) + 1);
}

/* A vector of 8 zeros as F32, behind all other data (which ends at a multiple of 32). */
static void image_add_tensor(image *m, const char *name, uint32_t data_bytes)
{
    uint8_t entry[128], zeros[32] = {0};
    size_t n = put_name(entry, name), at = (size_t)(image_name(m, "token_embd.weight") - m->data);
    memset(entry + n, 0, sizeof entry - n);
    set_u32(entry + n, 1);     /* dimensions */
    set_u32(entry + n + 4, 8); /* the first */
    set_u32(entry + n + 16, data_bytes);
    image_add(m, at - 8, entry, n + 24);
    image_insert(m, m->bytes, zeros, sizeof zeros);
    set_u32(m->data + 8, get_u32(m->data + 8) + 1);
}

/* Dimensions of a matrix and the type of its data. */
static void image_set_shape(image *m, const char *tensor, uint32_t cols, uint32_t rows)
{
    uint8_t *at = image_after(m, tensor);
    assert_int_equal(get_u32(at), 2);
    set_u32(at + 4, cols);
    set_u32(at + 12, rows);
}

static int32_t image_open(const image *m, gguf **g, model *out, uint32_t dtype, uint32_t context,
                          fak_error *e)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(m->data, 1, m->bytes, f), m->bytes);
    assert_int_equal(fclose(f), 0);
    if (gguf_open(g, path, e)) fail_msg("%s", e->message);
    return model_open(out, *g, dtype, context, e);
}

/* ---- good files ---- */

static void test_shapes(void **state)
{
    (void)state;
    for (int i = 0; i < TINY_MODELS; i++) {
        tiny t;
        tiny_open(&t, tiny_names[i]);
        const model *m = &t.model;
        int untied = i == TINY_MODELS - 1;
        assert_string_equal(m->architecture, "llama");
        assert_memory_equal(m->name, "random ", 7);
        assert_int_equal(m->width, 64);
        assert_int_equal(m->ffn, 96);
        assert_int_equal(m->heads, 4);
        assert_int_equal(m->kv_heads, 2);
        assert_int_equal(m->head_dim, 16);
        assert_int_equal(m->rot_dim, 16);
        assert_int_equal(m->layers, untied ? 3 : 2);
        assert_int_equal(m->vocab, gguf_find(t.file, "tokenizer.ggml.tokens")->count);
        assert_int_equal(m->context, 128);
        assert_int_equal(m->context_max, 128);
        assert_true(m->eps == 1e-5f);
        assert_true(m->rope_theta == 10000.0);
        assert_int_equal(m->tied, !untied);
        assert_int_equal(m->weights.count, 3u + 9 * m->layers + (untied ? 1 : 0));
        tiny_close(&t);
    }
}

static void assert_weight(const model *m, enum model_role role, uint32_t layer, const char *name,
                          uint32_t rows, uint32_t cols, uint32_t rot_dim)
{
    const weight *w = &m->weights.at[model_weight(m, role, layer)];
    assert_string_equal(w->name, name);
    assert_int_equal(w->rows, rows);
    assert_int_equal(w->cols, cols);
    assert_int_equal(w->rot_dim, rot_dim);
    if (rot_dim) assert_int_equal(w->head_dim, 16);
    assert_true(!w->tensor != !w->made);
    if (w->tensor) assert_true(gguf_string_is(w->tensor->name, name));
}

static void test_roles(void **state)
{
    tiny t;
    (void)state;
    tiny_open(&t, "tiny-untied.gguf");
    const model *m = &t.model;
    assert_weight(m, MODEL_EMBED, 0, "token_embd.weight", m->vocab, 64, 0);
    assert_weight(m, MODEL_ROPE, 0, "rope", 128, 16, 0);
    assert_weight(m, MODEL_OUT_NORM, 2, "output_norm.weight", 1, 64, 0); /* whatever the layer */
    assert_weight(m, MODEL_HEAD, 0, "output.weight", m->vocab, 64, 0);
    assert_weight(m, MODEL_ATTN_NORM, 0, "blk.0.attn_norm.weight", 1, 64, 0);
    assert_weight(m, MODEL_Q, 0, "blk.0.attn_q.weight", 64, 64, 16);
    assert_weight(m, MODEL_K, 1, "blk.1.attn_k.weight", 32, 64, 16);
    assert_weight(m, MODEL_V, 1, "blk.1.attn_v.weight", 32, 64, 0);
    assert_weight(m, MODEL_O, 2, "blk.2.attn_output.weight", 64, 64, 0);
    assert_weight(m, MODEL_FFN_NORM, 0, "blk.0.ffn_norm.weight", 1, 64, 0);
    assert_weight(m, MODEL_GATE, 2, "blk.2.ffn_gate.weight", 96, 64, 0);
    assert_weight(m, MODEL_UP, 2, "blk.2.ffn_up.weight", 96, 64, 0);
    assert_weight(m, MODEL_DOWN, 2, "blk.2.ffn_down.weight", 64, 96, 0);
    tiny_close(&t);
    tiny_open(&t, "tiny-f32.gguf");
    assert_int_equal(model_weight(&t.model, MODEL_HEAD, 0), model_weight(&t.model, MODEL_EMBED, 0));
    tiny_close(&t);
}

static void test_close(void **state)
{
    model m = {0};
    (void)state;
    model_close(&m);
    model_close(&m);
}

/* Keys that may be absent, and values that change nothing. */
static void test_defaults(void **state)
{
    static const char *const optional[] = {"general.name", "llama.rope.freq_base",
                                           "llama.rope.dimension_count", "llama.vocab_size"};
    (void)state;
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
        image m;
        gguf *g;
        model opened;
        fak_error e = {0};
        image_load(&m, "tiny-f32.gguf");
        *image_name(&m, optional[i]) = '~';
        if (image_open(&m, &g, &opened, 0, 0, &e)) fail_msg("%s: %s", optional[i], e.message);
        assert_true(opened.rope_theta == 10000.0);
        assert_int_equal(opened.rot_dim, 16);
        if (i == 0) assert_string_equal(opened.name, "");
        model_close(&opened);
        gguf_close(g);
        image_free(&m);
    }
}

static void test_values(void **state)
{
    image m;
    gguf *g;
    model opened;
    fak_error e = {0};
    (void)state;
    image_load(&m, "tiny-f32.gguf");
    set_u32(image_after(&m, "llama.context_length") + 4, 99);
    set_u32(image_after(&m, "llama.rope.dimension_count") + 4, 8);
    set_u32(image_after(&m, "llama.rope.freq_base") + 4, bits_of(500000));
    set_u32(image_after(&m, "llama.attention.layer_norm_rms_epsilon") + 4, bits_of(0.25f));
    image_add_key(&m, "llama.expert_count", GGUF_U32, 0);
    image_add_key(&m, "llama.rope.scaling.factor", GGUF_F32, bits_of(1));
    image_add_key(&m, "llama.rope.scale_linear", GGUF_F32, bits_of(1));
    image_add_key(&m, "llama.attention.causal", GGUF_U32, 1);
    image_add_key(&m, "llama.attention.key_length", GGUF_U32, 16);
    if (image_open(&m, &g, &opened, 0, 0, &e)) fail_msg("%s", e.message);
    assert_int_equal(opened.layers, 2);
    assert_int_equal(opened.context, 99);
    assert_int_equal(opened.rot_dim, 8);
    assert_true(opened.rope_theta == 500000.0);
    assert_true(opened.eps == 0.25f);
    assert_weight(&opened, MODEL_ROPE, 0, "rope", 99, 8, 0);
    assert_int_equal(opened.weights.at[model_weight(&opened, MODEL_Q, 0)].rot_dim, 8);
    model_close(&opened);
    gguf_close(g);
    image_free(&m);
}

/* ---- faults ---- */

enum act {
    RENAME,
    SET,
    SET_FLOAT,
    TYPE,
    ADD,
    ADD_FLOAT,
    SHAPE,
    GGML_TYPE,
    ADD_TENSOR,
    ARCHITECTURE
};

#define L "llama."
#define EPS "llama.attention.layer_norm_rms_epsilon"
static const struct {
    enum act act;
    const char *name;
    double a, b;
    const char *sentence;
} faults[] = {
    /* clang-format off */
    {RENAME, "general.architecture", 0, 0,      "no general.architecture: not a language model"},
    {ARCHITECTURE, "qwen2", 0, 0,
     "architecture \"qwen2\" is not supported; fak runs: llama"},
    {ARCHITECTURE, "Llama", 0, 0,               "architecture \"Llama\" is not supported"},
    {RENAME, L "block_count", 0, 0,             "the key llama.block_count is missing"},
    {RENAME, L "embedding_length", 0, 0,        "the key llama.embedding_length is missing"},
    {RENAME, L "feed_forward_length", 0, 0,     "the key llama.feed_forward_length is missing"},
    {RENAME, L "attention.head_count", 0, 0,    "the key llama.attention.head_count is missing"},
    {RENAME, L "context_length", 0, 0,          "the key llama.context_length is missing"},
    {RENAME, L "attention.head_count_kv", 0, 0,
     "tensor blk.0.attn_k.weight is 64 x 32; the model needs 64 x 64"},
    {SET, L "block_count", 0, 0,                "llama.block_count is 0; fak takes 1 to 4096"},
    {SET, L "block_count", 4097, 0,             "llama.block_count is 4097; fak takes 1 to 4096"},
    {SET, L "block_count", 3, 0,                "tensor blk.2.attn_norm.weight is missing"},
    {SET, L "embedding_length", 0, 0,
     "llama.embedding_length is 0; fak takes 1 to 1048576"},
    {SET, L "embedding_length", 1048577, 0,     "llama.embedding_length is 1048577"},
    {SET, L "embedding_length", 68, 0,
     "tensor token_embd.weight has 302 rows of 64; the model needs 1 to 2147483647 rows of 68"},
    {SET, L "feed_forward_length", 0, 0,
     "llama.feed_forward_length is 0; fak takes 1 to 1048576"},
    {SET, L "feed_forward_length", 4294967295.0, 0, "llama.feed_forward_length is 4294967295"},
    {SET, L "feed_forward_length", 97, 0,
     "tensor blk.0.ffn_gate.weight is 64 x 96; the model needs 64 x 97"},
    {SET, L "attention.head_count", 0, 0,       "llama.attention.head_count is 0"},
    {SET, L "attention.head_count", 1048577, 0, "llama.attention.head_count is 1048577"},
    {SET, L "block_count", 1, 0,
     "has blk.1.attn_norm.weight, which fak does not run for llama of 1 layers"},
    {SET, L "attention.head_count", 3, 0,
     "llama.attention.head_count is 3, which cannot share out the 64 of embedding_length"},
    {SET, L "attention.head_count", 64, 0,
     "llama.attention.head_count is 64, which cannot share out the 64 of embedding_length"},
    {SET, L "attention.head_count_kv", 0, 0,
     "llama.attention.head_count_kv is 0; fak takes 1 to 4"},
    {SET, L "attention.head_count_kv", 5, 0,
     "llama.attention.head_count_kv is 5; fak takes 1 to 4"},
    {SET, L "attention.head_count_kv", 3, 0,
     "llama.attention.head_count is 4, no multiple of the 3 of attention.head_count_kv"},
    {SET, L "attention.head_count_kv", 1, 0,
     "tensor blk.0.attn_k.weight is 64 x 32; the model needs 64 x 16"},
    {SET, L "context_length", 0, 0,             "llama.context_length is 0"},
    {SET, L "rope.dimension_count", 15, 0,
     "llama.rope.dimension_count is 15; it must be even"},
    {SET, L "rope.dimension_count", 0, 0,
     "llama.rope.dimension_count is 0; fak takes 2 to 16"},
    {SET, L "rope.dimension_count", 18, 0,
     "llama.rope.dimension_count is 18; fak takes 2 to 16"},
    {SET_FLOAT, EPS, -0.5, 0,                   EPS " is -0.5; fak takes 0 to 1"},
    {SET_FLOAT, EPS, 1.5, 0,                    EPS " is 1.5; fak takes 0 to 1"},
    {SET_FLOAT, EPS, (double)NAN, 0,            EPS " is nan; fak takes 0 to 1"},
    {SET_FLOAT, L "rope.freq_base", 0.5, 0,
     "llama.rope.freq_base is 0.5; fak takes 1 to 1e+12"},
    {SET_FLOAT, L "rope.freq_base", (double)INFINITY, 0, "llama.rope.freq_base is inf"},
    {TYPE, L "block_count", GGUF_F32, 0,
     "key \"llama.block_count\" has type f32; an integer is needed"},
    {TYPE, EPS, GGUF_U32, 0,                    "key \"" EPS "\" has type u32; a float is needed"},
    {TYPE, L "rope.freq_base", GGUF_I32, 0,
     "key \"llama.rope.freq_base\" has type i32; a float is needed"},
    {TYPE, L "context_length", GGUF_F32, 0,     "key \"llama.context_length\" has type f32"},
    {ADD, L "attention.key_length", 1, 0,
     "llama.attention.key_length is 1; fak takes 2 to 1024"},
    {ADD, L "attention.key_length", 1025, 0,
     "llama.attention.key_length is 1025; fak takes 2 to 1024"},
    {ADD, L "attention.key_length", 32, 0,
     "tensor blk.0.attn_q.weight is 64 x 64; the model needs 64 x 128"},
    {ADD, L "expert_count", 8, 0,               "llama.expert_count is 8, which fak does not run"},
    {ADD, L "attention.sliding_window", 4096, 0,
     "llama.attention.sliding_window is 4096, which fak does not run"},
    {ADD_FLOAT, L "rope.scaling.factor", 2, 0,
     "llama.rope.scaling.factor is 2, which fak does not run"},
    {ADD_FLOAT, L "rope.scale_linear", 4, 0,
     "llama.rope.scale_linear is 4, which fak does not run"},
    {ADD, L "attention.causal", 0, 0,           "llama.attention.causal is 0, which fak does not run"},
    {ADD_FLOAT, L "logit_scale", 0.5, 0,        "llama.logit_scale is 0.5, which fak does not run"},
    {ADD_TENSOR, "rope_freqs.weight", 0, 0,
     "has rope_freqs.weight (scaled rope), which fak does not run"},
    {ADD_TENSOR, "blk.0.attn_q.bias", 0, 0,
     "has blk.0.attn_q.bias, which fak does not run for llama"},
    {ADD_TENSOR, "blk.1.ffn_down.bias", 0, 0,
     "has blk.1.ffn_down.bias, which fak does not run for llama"},
    {ADD_TENSOR, "output_norm.bias\n", 0, 0,
     "has output_norm.bias\\x0a, which fak does not run for llama of 2 layers"},
    {SHAPE, "blk.1.ffn_down.weight", 64, 96,
     "tensor blk.1.ffn_down.weight is 64 x 96; the model needs 96 x 64"},
    {SHAPE, "blk.0.attn_output.weight", 32, 64,
     "tensor blk.0.attn_output.weight is 32 x 64; the model needs 64 x 64"},
    {SHAPE, "blk.0.attn_v.weight", 64, 1,
     "tensor blk.0.attn_v.weight is 64 x 1; the model needs 64 x 32"},
    {SHAPE, "token_embd.weight", 128, 100,
     "tensor token_embd.weight has 100 rows of 128; the model needs 1 to 2147483647 rows of 64"},
    {GGML_TYPE, "blk.0.attn_q.weight", 26, 0,
     "tensor blk.0.attn_q.weight is I32, which fak cannot compute with"},
    {GGML_TYPE, "token_embd.weight", 24, 0,
     "tensor token_embd.weight is I8, which fak cannot compute with"},
    {GGML_TYPE, "blk.1.ffn_up.weight", 20, 0,
     "tensor blk.1.ffn_up.weight is IQ4_NL, which fak cannot compute with"},
    {GGML_TYPE, "blk.1.ffn_up.weight", 99, 0,
     "tensor blk.1.ffn_up.weight has the unknown type 99"},
    /* clang-format on */
};

/* clang-format off */
static void apply(image *m, size_t i, uint32_t data_bytes)
{
    const char *name = faults[i].name;
    double a = faults[i].a;
    switch (faults[i].act) {
    case RENAME:       *image_name(m, name) = '~'; break;
    case SET:          set_u32(image_after(m, name) + 4, (uint32_t)a); break;
    case SET_FLOAT:    set_u32(image_after(m, name) + 4, bits_of((float)a)); break;
    case TYPE:         set_u32(image_after(m, name), (uint32_t)a); break;
    case ADD:          image_add_key(m, name, GGUF_U32, (uint32_t)a); break;
    case ADD_FLOAT:    image_add_key(m, name, GGUF_F32, bits_of((float)a)); break;
    case SHAPE:        image_set_shape(m, name, (uint32_t)a, (uint32_t)faults[i].b); break;
    case GGML_TYPE:    set_u32(image_after(m, name) + 20, (uint32_t)a); break;
    case ADD_TENSOR:   image_add_tensor(m, name, data_bytes); break;
    case ARCHITECTURE: memcpy(image_after(m, "general.architecture") + 12, name, 5); break;
    }
}
/* clang-format on */

static void assert_refused(const image *m, uint32_t dtype, uint32_t context, int32_t code,
                           const char *sentence)
{
    gguf *g;
    model opened;
    fak_error e = {0};
    int32_t s = image_open(m, &g, &opened, dtype, context, &e);
    if (!s) fail_msg("taken; \"%s\" was expected", sentence);
    assert_message(&e, sentence);
    assert_int_equal(s, code);
    assert_int_equal(e.code, code);
    if (code == STATUS_BAD_FILE) assert_message(&e, "m.gguf: ");
    assert_null(opened.index);
    assert_null(opened.weights.at);
    gguf_close(g);
}

static uint32_t all_data(const char *file_name)
{
    tiny t;
    uint64_t bytes = 0;
    tiny_open(&t, file_name);
    for (uint32_t i = 0; i < gguf_tensor_count(t.file); i++)
        bytes += gguf_tensor_at(t.file, i)->bytes;
    tiny_close(&t);
    assert_int_equal(bytes % 32, 0);
    return (uint32_t)bytes;
}

static void test_faults(void **state)
{
    uint32_t data_bytes = all_data("tiny-f32.gguf");
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        image m;
        image_load(&m, "tiny-f32.gguf");
        apply(&m, i, data_bytes);
        assert_refused(&m, 0, 0, STATUS_BAD_FILE, faults[i].sentence);
        image_free(&m);
    }
}

/* Each tensor in turn is missing. */
static void test_missing_tensors(void **state)
{
    tiny t;
    (void)state;
    tiny_open(&t, "tiny-q8_0.gguf");
    for (uint32_t i = 0; i < gguf_tensor_count(t.file); i++) {
        gguf_string s = gguf_tensor_at(t.file, i)->name;
        char name[64], sentence[128];
        image m;
        snprintf(name, sizeof name, "%.*s", (int)s.bytes, s.data);
        snprintf(sentence, sizeof sentence, "tensor %s is missing", name);
        image_load(&m, "tiny-q8_0.gguf");
        image_name(&m, name)[s.bytes - 1] = '~';
        assert_refused(&m, 0, 0, STATUS_BAD_FILE, sentence);
        image_free(&m);
    }
    tiny_close(&t);
}

static void test_negative_number(void **state)
{
    image m;
    (void)state;
    image_load(&m, "tiny-f32.gguf");
    set_u32(image_after(&m, "llama.block_count"), GGUF_I32);
    set_u32(image_after(&m, "llama.block_count") + 4, 0xffffffffu);
    assert_refused(&m, 0, 0, STATUS_BAD_FILE, "key \"llama.block_count\" is -1");
    image_free(&m);
}

/* ---- conversions ---- */

static const uint32_t dtypes[] = {0,        FAK_F32,  FAK_F16,  FAK_BF16, FAK_Q8_0,
                                  FAK_Q4_0, FAK_Q4_1, FAK_Q5_0, FAK_Q5_1};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static void assert_converted(const model *m, uint32_t dtype)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->weights.count; i++) {
        const weight *w = &m->weights.at[i];
        uint32_t expected = !w->tensor || w->rows == 1 ? FAK_F32 : dtype ? dtype : w->tensor->dtype;
        assert_int_equal(w->dtype, expected);
        assert_int_equal(strstr(w->name, "norm") != NULL, w->rows == 1);
        bytes += (uint64_t)w->rows * w->cols / dtype_find(expected)->block *
                 dtype_find(expected)->block_bytes;
    }
    assert_true(bytes == model_weight_bytes(m));
}

static void test_conversions(void **state)
{
    (void)state;
    for (int i = 0; i < TINY_MODELS; i++)
        for (int d = 0; d < DTYPES; d++) {
            tiny t;
            fak_error e = {0};
            tiny_open(&t, tiny_names[i]);
            uint32_t dtype = dtypes[d] ? dtypes[d]
                                       : gguf_find_tensor(t.file, "blk.0.attn_q.weight")->dtype;
            model_close(&t.model);
            if (model_open(&t.model, t.file, dtypes[d], 0, &e)) fail_msg("%s", e.message);
            assert_converted(&t.model, dtypes[d]);
            assert_int_equal(t.model.blocks, dtype >= FAK_Q8_0);
            tiny_close(&t);
        }
}

static void test_k_conversions(void **state)
{
    (void)state;
    for (uint32_t dtype = FAK_Q4_K; dtype <= FAK_Q6_K; dtype++) {
        tiny t;
        fak_error e = {0};
        tiny_open(&t, "wide-f32.gguf");
        model_close(&t.model);
        if (model_open(&t.model, t.file, dtype, 0, &e)) fail_msg("%s", e.message);
        assert_converted(&t.model, dtype);
        assert_int_equal(t.model.blocks, 1);
        tiny_close(&t);
    }
}

/* Rows of 48 have no blocks of 32; as floats the file is fine. */
static void test_block_does_not_fit(void **state)
{
    static const char *const tensors[] = {"ffn_gate", "ffn_up", "ffn_down"};
    image m;
    gguf *g;
    model opened;
    fak_error e = {0};
    (void)state;
    image_load(&m, "tiny-f32.gguf");
    set_u32(image_after(&m, "llama.feed_forward_length") + 4, 48);
    for (uint32_t i = 0; i < 6; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%" PRIu32 ".%s.weight", i / 3, tensors[i % 3]);
        image_set_shape(&m, name, i % 3 == 2 ? 48 : 64, i % 3 == 2 ? 64 : 48);
    }
    assert_refused(&m, FAK_Q8_0, 0, STATUS_REFUSED,
                   "tensor blk.0.ffn_down.weight has rows of 48; q8_0 needs a multiple of 32");
    assert_refused(&m, FAK_Q4_K, 0, STATUS_REFUSED,
                   "tensor token_embd.weight has rows of 64; q4_k needs a multiple of 256");
    if (image_open(&m, &g, &opened, FAK_F16, 0, &e)) fail_msg("%s", e.message);
    assert_int_equal(opened.ffn, 48);
    model_close(&opened);
    gguf_close(g);
    image_free(&m);
}

/* Into a dtype that rows cannot be rounded to: refused, named. */
static void test_dtype_refused(void **state)
{
    static const uint32_t wrong[] = {FAK_I32, FAK_I8, 24, FAK_F8E4M3, 9, 31, 32, 0xffffffffu};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        image m;
        char number[16];
        image_load(&m, "tiny-f32.gguf");
        snprintf(number, sizeof number, "%" PRIu32, wrong[i]);
        assert_refused(&m, wrong[i], 0, STATUS_REFUSED, number);
        image_free(&m);
    }
}

/* ---- context ---- */

static void test_context(void **state)
{
    static const uint32_t contexts[] = {1, 7, 128};
    (void)state;
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
        tiny t;
        fak_error e = {0};
        uint32_t n = contexts[i];
        tiny_open(&t, "tiny-f16.gguf");
        model_close(&t.model);
        if (model_open(&t.model, t.file, 0, n, &e)) fail_msg("%s", e.message);
        assert_int_equal(t.model.context, n);
        assert_int_equal(t.model.context_max, 128);
        const weight *w = &t.model.weights.at[model_weight(&t.model, MODEL_ROPE, 0)];
        assert_int_equal(w->rows, n);
        float *table = malloc(n * 16ul * 4);
        assert_non_null(table);
        rope_table(n, 16, 10000, table);
        assert_memory_equal(w->made, table, n * 16ul * 4);
        free(table);
        tiny_close(&t);
    }
}

static void test_context_refused(void **state)
{
    image m;
    (void)state;
    image_load(&m, "tiny-f32.gguf");
    assert_refused(&m, 0, 129, STATUS_REFUSED, "a context of 129 is asked for; ");
    assert_refused(&m, 0, 129, STATUS_REFUSED, "m.gguf takes 128");
    set_u32(image_after(&m, "llama.context_length") + 4, 0xffffffffu);
    assert_refused(&m, 0, 1048577, STATUS_REFUSED, "m.gguf takes 1048576");
    image_free(&m);
}

/* A file may claim much: without a wish there are 4096 positions, and up to 2^20 with one. */
static void test_context_of_file_is_long(void **state)
{
    static const uint32_t contexts[][2] = {{0, 4096}, {4097, 4097}, {1048576, 1048576}};
    image m;
    (void)state;
    image_load(&m, "tiny-f32.gguf");
    set_u32(image_after(&m, "llama.context_length") + 4, 0xffffffffu);
    set_u32(image_after(&m, "llama.rope.dimension_count") + 4, 2);
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
        gguf *g;
        model opened;
        fak_error e = {0};
        if (image_open(&m, &g, &opened, 0, contexts[i][0], &e)) fail_msg("%s", e.message);
        assert_int_equal(opened.context_max, 0xffffffffu);
        assert_int_equal(opened.context, contexts[i][1]);
        assert_weight(&opened, MODEL_ROPE, 0, "rope", contexts[i][1], 2, 0);
        model_close(&opened);
        gguf_close(g);
    }
    image_free(&m);
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_missing_tensors),
        cmocka_unit_test(test_negative_number),
        cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_k_conversions),
        cmocka_unit_test(test_block_does_not_fit),
        cmocka_unit_test(test_dtype_refused),
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_context_refused),
        cmocka_unit_test(test_context_of_file_is_long),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
