/* The row source: native bytes, un-permuted heads, conversions, forms, errors, progress. */
#include "support.h"

#include <inttypes.h>

static const uint32_t dtypes[] = {FAK_F32,  FAK_F16,  FAK_BF16, FAK_Q8_0,
                                  FAK_Q4_0, FAK_Q4_1, FAK_Q5_0, FAK_Q5_1};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };
enum { BIG = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ };

/* ---- files are little-endian, whatever this machine is ---- */

/* A row of a file as it must be in memory. */
static void to_host(uint32_t dtype, uint32_t cols, const uint8_t *src, uint8_t *dst)
{
    const dtype_info *info = dtype_find(dtype);
    memcpy(dst, src, dtype_row_bytes(dtype, cols));
    for (uint32_t i = 0; i < cols && info->block == 1; i++) {
        const uint8_t *p = src + i * info->block_bytes;
        uint16_t low = (uint16_t)(p[0] | p[1] << 8);
        uint32_t all = info->block_bytes == 4 ? low | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24
                                              : 0;
        memcpy(dst + i * info->block_bytes, info->block_bytes == 4 ? (void *)&all : (void *)&low,
               info->block_bytes);
    }
}

static void put_floats(uint8_t *dst, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t u;
        memcpy(&u, &x[i], 4);
        for (int k = 0; k < 4; k++) *dst++ = (uint8_t)(u >> 8 * k);
    }
}

/* ---- sources ---- */

/* A source over all weights of a model: value i is weight i. */
typedef struct opened {
    tiny tiny;
    uint32_t *index;
    weights_source source;
    fak_source api;
} opened;

static void open_source(opened *o, const char *file_name, uint32_t dtype)
{
    fak_error e = {0};
    *o = (opened){0};
    tiny_open(&o->tiny, file_name);
    if (dtype) {
        model_close(&o->tiny.model);
        if (model_open(&o->tiny.model, o->tiny.file, dtype, 0, &e)) fail_msg("%s", e.message);
    }
    const weights *table = &o->tiny.model.weights;
    o->index = malloc(table->count * 4ul);
    assert_non_null(o->index);
    for (uint32_t i = 0; i < table->count; i++) o->index[i] = i;
    o->source = (weights_source){.table = table, .index = o->index, .values = table->count};
    assert_int_equal(weights_source_open(&o->source, &o->api, &e), FAK_OK);
    assert_int_equal(o->api.struct_size, sizeof o->api);
    assert_int_equal(o->api.flags, FAK_STABLE);
}

static void close_source(opened *o)
{
    weights_source_close(&o->source);
    free(o->index);
    tiny_close(&o->tiny);
}

/* Rows in memory of exactly their size. */
static void *read_rows(opened *o, uint32_t value, uint32_t form, uint32_t first, uint32_t rows)
{
    const weight *w = &o->tiny.model.weights.at[value];
    uint64_t bytes = rows * dtype_form_bytes(w->dtype, form, w->cols);
    fak_error e = {0};
    void *dst = malloc(bytes);
    assert_non_null(dst);
    memset(dst, 0x5a, bytes);
    if (o->api.read(o->api.self, value, form, first, rows, dst, bytes, &e))
        fail_msg("%s", e.message);
    return dst;
}

/* Where HF row r lies in the file: HF row h*d + j*(d/2) + i is GGUF row h*d + 2i + j. */
static uint32_t gguf_row(uint32_t d, uint32_t r)
{
    for (uint32_t h = 0;; h++)
        for (uint32_t j = 0; j < 2; j++)
            for (uint32_t i = 0; i < d / 2; i++)
                if (h * d + j * (d / 2) + i == r) return h * d + 2 * i + j;
}

/* Is it a q or k, whose rows GGUF interleaves? */
static int permuted(const char *name)
{
    return strstr(name, "attn_q") || strstr(name, "attn_k");
}

static uint32_t expected_row(const opened *o, const weight *w, uint32_t r)
{
    return permuted(w->name) ? gguf_row(o->tiny.model.head_dim, r) : r;
}

/* ---- native bytes ---- */

static void assert_native(opened *o, uint32_t value)
{
    const weight *w = &o->tiny.model.weights.at[value];
    uint64_t row_bytes = dtype_row_bytes(w->dtype, w->cols);
    uint8_t *rows = read_rows(o, value, FAK_NATIVE, 0, w->rows);
    assert_int_equal(w->tensor->bytes, w->rows * row_bytes);
    uint8_t *row = malloc(row_bytes);
    assert_non_null(row);
    for (uint32_t r = 0; r < w->rows; r++) {
        to_host(w->dtype, w->cols, w->tensor->data + expected_row(o, w, r) * row_bytes, row);
        assert_memory_equal(rows + r * row_bytes, row, row_bytes);
    }
    const void *lent = o->api.borrow(o->api.self, value);
    if (permuted(w->name) || (BIG && dtype_find(w->dtype)->block == 1))
        assert_null(lent);
    else
        assert_ptr_equal(lent, w->tensor->data);
    free(rows);
    free(row);
}

/* Files of K blocks, which the tiny ones are too narrow for. */
static const char *const k_names[] = {"tiny-q4_k.gguf", "tiny-q5_k.gguf", "tiny-q6_k.gguf"};
static const uint32_t k_dtypes[] = {FAK_Q4_K, FAK_Q5_K, FAK_Q6_K};
enum { K_DTYPES = sizeof k_dtypes / sizeof *k_dtypes };

static void test_native(void **state)
{
    (void)state;
    for (int m = 0; m < TINY_MODELS + K_DTYPES; m++) {
        opened o;
        uint32_t turned = 0;
        open_source(&o, m < TINY_MODELS ? tiny_names[m] : k_names[m - TINY_MODELS], 0);
        for (uint32_t i = 0; i < o.source.values; i++) {
            const weight *w = &o.tiny.model.weights.at[i];
            if (w->tensor) assert_native(&o, i);
            turned += w->rot_dim > 0;
        }
        assert_int_equal(turned, 2 * o.tiny.model.layers);
        close_source(&o);
    }
}

static void test_made(void **state)
{
    opened o;
    (void)state;
    open_source(&o, "tiny-q8_0.gguf", 0);
    uint32_t value = model_weight(&o.tiny.model, MODEL_ROPE, 0);
    const weight *w = &o.tiny.model.weights.at[value];
    assert_null(w->tensor);
    assert_ptr_equal(o.api.borrow(o.api.self, value), w->made);
    void *rows = read_rows(&o, value, FAK_AS_F32, 0, w->rows);
    assert_memory_equal(rows, w->made, (size_t)w->rows * w->cols * 4);
    free(rows);
    close_source(&o);
}

static void test_borrow_refuses(void **state)
{
    opened o;
    (void)state;
    open_source(&o, "tiny-f32.gguf", FAK_F16); /* converted: there are no such bytes to lend */
    assert_null(o.api.borrow(o.api.self, model_weight(&o.tiny.model, MODEL_DOWN, 1)));
    const void *norm = o.api.borrow(o.api.self, model_weight(&o.tiny.model, MODEL_OUT_NORM, 0));
    assert_int_equal(!norm, BIG); /* numbers in the other byte order are not lent */
    assert_null(o.api.borrow(o.api.self, o.source.values));
    o.index[0] = FAK_NO_INDEX;
    assert_null(o.api.borrow(o.api.self, 0));
    assert_int_equal(o.source.done_bytes, BIG ? 0 : 64 * 4); /* what was not lent does not count */
    close_source(&o);
}

/* ---- heads ---- */

static void test_source_row(void **state)
{
    (void)state;
    for (uint32_t d = 2; d <= 128; d *= 2) {
        weight w = {.rows = 3 * d, .head_dim = d, .rot_dim = d};
        for (uint32_t r = 0; r < w.rows; r++)
            assert_int_equal(weights_source_row(&w, r), gguf_row(d, r));
        w.rot_dim = 0;
        for (uint32_t r = 0; r < w.rows; r++) assert_int_equal(weights_source_row(&w, r), r);
    }
}

/* Of heads of 8 rows the first 4 turn; the rest stays. */
static void test_partial_rotation(void **state)
{
    static const float expected[16] = {0, 2, 1, 3, 4, 5, 6, 7, 8, 10, 9, 11, 12, 13, 14, 15};
    float numbers[16][2], rows[16][2];
    uint8_t data[sizeof numbers];
    (void)state;
    for (int i = 0; i < 16; i++) numbers[i][0] = numbers[i][1] = (float)i;
    put_floats(data, numbers[0], 32);
    gguf_tensor tensor = {
        .dtype = FAK_F32, .dims = 2, .dim = {2, 16, 1, 1}, .bytes = sizeof data, .data = data};
    weight w = {.name = "q",
                .dtype = FAK_F32,
                .rows = 16,
                .cols = 2,
                .head_dim = 8,
                .rot_dim = 4,
                .tensor = &tensor};
    weights table = {0};
    uint32_t index = 0;
    fak_error e = {0};
    fak_source api;
    assert_int_equal(weights_add(&table, &w, &e), FAK_OK);
    weights_source s = {.table = &table, .index = &index, .values = 1};
    assert_int_equal(weights_source_open(&s, &api, &e), FAK_OK);
    assert_int_equal(api.read(api.self, 0, FAK_NATIVE, 0, 16, rows, sizeof rows, &e), FAK_OK);
    for (int i = 0; i < 16; i++) assert_true(rows[i][0] == expected[i] && rows[i][1] == rows[i][0]);
    assert_null(api.borrow(api.self, 0));
    weights_source_close(&s);
    weights_free(&table);
}

/* Data that lies at an odd address, as the format allows, is read and never lent. */
static void test_unaligned(void **state)
{
    float data[8] = {1, 2, 3, 4, 5, 6, 7, 8}, rows[8];
    uint8_t room[sizeof data + 1];
    (void)state;
    put_floats(room + 1, data, 8);
    gguf_tensor tensor = {
        .dtype = FAK_F32, .dims = 2, .dim = {4, 2, 1, 1}, .bytes = sizeof data, .data = room + 1};
    weight w = {.name = "w", .dtype = FAK_F32, .rows = 2, .cols = 4, .tensor = &tensor};
    weights table = {0};
    uint32_t index = 0;
    fak_error e = {0};
    fak_source api;
    assert_int_equal(weights_add(&table, &w, &e), FAK_OK);
    weights_source s = {.table = &table, .index = &index, .values = 1};
    assert_int_equal(weights_source_open(&s, &api, &e), FAK_OK);
    assert_int_equal(api.read(api.self, 0, FAK_NATIVE, 0, 2, rows, sizeof rows, &e), FAK_OK);
    assert_memory_equal(rows, data, sizeof data);
    assert_null(api.borrow(api.self, 0));
    weights_source_close(&s);
    weights_free(&table);
}

/* ---- conversions and forms ---- */

/* What row r of weight w must be in the dtype and form that are asked for. */
static void make_expected(const opened *o, const weight *w, uint32_t form, uint32_t r, void *out)
{
    uint32_t from = w->tensor->dtype;
    float *x = malloc(w->cols * 4ul);
    uint8_t *src = malloc(w->cols * 4ul), *row = malloc(w->cols * 4ul);
    assert_true(x && src && row);
    uint64_t bytes = dtype_row_bytes(from, w->cols);
    to_host(from, w->cols, w->tensor->data + expected_row(o, w, r) * bytes, src);
    dtype_decode_row(from, w->cols, src, x);
    dtype_encode_row(w->dtype, w->cols, x, row);
    dtype_serve_row(w->dtype, form, w->cols, from == w->dtype ? src : row, out);
    free(x);
    free(src);
    free(row);
}

static void assert_forms(opened *o, uint32_t value)
{
    const weight *w = &o->tiny.model.weights.at[value];
    for (uint32_t form = FAK_NATIVE; form <= FAK_ZEROS; form++) {
        uint64_t row_bytes = dtype_form_bytes(w->dtype, form, w->cols);
        if (!row_bytes) continue;
        uint8_t *rows = read_rows(o, value, form, 0, w->rows), *row = malloc(row_bytes);
        assert_non_null(row);
        for (uint32_t r = 0; r < w->rows; r++) {
            make_expected(o, w, form, r, row);
            assert_memory_equal(rows + r * row_bytes, row, row_bytes);
        }
        free(rows);
        free(row);
    }
}

static void test_conversions(void **state)
{
    static const enum model_role roles[] = {MODEL_EMBED, MODEL_OUT_NORM};
    static const enum model_role in_layer[] = {MODEL_Q, MODEL_K, MODEL_V, MODEL_DOWN,
                                               MODEL_ATTN_NORM};
    (void)state;
    for (int m = 0; m < TINY_MODELS; m++)
        for (uint32_t d = 0; d <= DTYPES; d++) {
            opened o;
            open_source(&o, tiny_names[m], d < DTYPES ? dtypes[d] : 0);
            for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
                assert_forms(&o, model_weight(&o.tiny.model, roles[i], 0));
            for (size_t i = 0; i < sizeof in_layer / sizeof *in_layer; i++)
                assert_forms(&o, model_weight(&o.tiny.model, in_layer[i], 1));
            close_source(&o);
        }
}

/* The tiny files hold the same weights, rounded by make-model: converting the one of F32 gives the
 * other's bytes. */
static void test_same_as_file(void **state)
{
    (void)state;
    for (int d = 0; d < DTYPES + K_DTYPES; d++) {
        opened a, b;
        uint32_t dtype = d < DTYPES ? dtypes[d] : k_dtypes[d - DTYPES];
        open_source(&a, d < DTYPES ? "tiny-f32.gguf" : "wide-f32.gguf", dtype);
        open_source(&b, d < DTYPES ? tiny_names[d] : k_names[d - DTYPES], 0);
        assert_int_equal(a.source.values, b.source.values);
        for (uint32_t i = 0; i < a.source.values; i++) {
            const weight *w = &a.tiny.model.weights.at[i];
            void *x = read_rows(&a, i, FAK_NATIVE, 0, w->rows);
            void *y = read_rows(&b, i, FAK_NATIVE, 0, w->rows);
            assert_int_equal(b.tiny.model.weights.at[i].dtype,
                             w->rows == 1 || !w->tensor ? FAK_F32 : dtype);
            assert_memory_equal(x, y, w->rows * dtype_row_bytes(w->dtype, w->cols));
            free(x);
            free(y);
        }
        close_source(&a);
        close_source(&b);
    }
}

/* scale * code + zero is the weight, to the bit: block formats are split without loss. */
static void test_planes(void **state)
{
    static const struct {
        const char *file;
        uint32_t zeros;
    } blocks[] = {
        {"tiny-q8_0.gguf", 0}, {"tiny-q4_0.gguf", 0}, {"tiny-q4_1.gguf", 1}, {"tiny-q5_0.gguf", 0},
        {"tiny-q5_1.gguf", 1}, {"tiny-q4_k.gguf", 1}, {"tiny-q5_k.gguf", 1}, {"tiny-q6_k.gguf", 0},
    };
    (void)state;
    for (size_t m = 0; m < sizeof blocks / sizeof *blocks; m++) {
        opened o;
        open_source(&o, blocks[m].file, 0);
        uint32_t value = model_weight(&o.tiny.model, MODEL_Q, 0);
        const weight *w = &o.tiny.model.weights.at[value];
        int8_t *code = read_rows(&o, value, FAK_CODES, 0, w->rows);
        float *scale = read_rows(&o, value, FAK_SCALES, 0, w->rows);
        float *zero = blocks[m].zeros ? read_rows(&o, value, FAK_ZEROS, 0, w->rows) : NULL;
        float *x = read_rows(&o, value, FAK_AS_F32, 0, w->rows);
        uint32_t n = m + 1 == sizeof blocks / sizeof *blocks ? 16 : 32; /* the last is Q6_K */
        for (uint32_t i = 0; i < w->rows * w->cols; i++) {
            float y = scale[i / n] * (float)code[i];
            if (zero) y = y + zero[i / n];
            assert_true(y == x[i]);
        }
        free(code);
        free(scale);
        free(zero);
        free(x);
        close_source(&o);
    }
}

/* ---- any rows in any order, again if wanted ---- */

static void test_any_order(void **state)
{
    uint64_t random = random_begin();
    (void)state;
    for (int m = 0; m < TINY_MODELS; m++) {
        opened o;
        open_source(&o, tiny_names[m], m % 2 ? FAK_Q4_1 : 0);
        for (int n = 0; n < 300; n++) {
            uint32_t value = random_below(&random, o.source.values);
            const weight *w = &o.tiny.model.weights.at[value];
            uint32_t form = random_below(&random, FAK_ZEROS + 1);
            uint64_t row_bytes = dtype_form_bytes(w->dtype, form, w->cols);
            uint32_t first = random_below(&random, w->rows + 1);
            uint32_t rows = random_below(&random, w->rows - first + 1);
            if (!row_bytes) continue;
            uint8_t *all = read_rows(&o, value, form, 0, w->rows);
            uint8_t *some = read_rows(&o, value, form, first, rows);
            assert_memory_equal(all + first * row_bytes, some, rows * row_bytes);
            free(all);
            free(some);
        }
        close_source(&o);
    }
}

/* ---- errors ---- */

enum { Q = 0x10000, NORM }; /* values that the test fills in */

static const struct {
    uint32_t value, form, first, rows;
    int64_t more; /* bytes beside what is right */
    int32_t code;
    const char *sentence;
} faults[] = {
    /* clang-format off */
    {0xfffffff0u, FAK_NATIVE, 0, 1, 0, FAK_E_ARGUMENT, "value 4294967280 is not a weight"},
    {1,    FAK_NATIVE, 0, 1, 0,  FAK_E_ARGUMENT, "value 1 is not a weight"},
    {Q,    FAK_NATIVE, 0, 65, 0, FAK_E_ARGUMENT,
     "weight \"blk.0.attn_q.weight\": rows 0+65 of 64 into 2340 bytes"},
    {Q,    FAK_NATIVE, 64, 1, 0, FAK_E_ARGUMENT, "rows 64+1 of 64"},
    {Q,    FAK_NATIVE, 65, 0, 0, FAK_E_ARGUMENT, "rows 65+0 of 64"},
    {Q,    FAK_NATIVE, 1, 0xffffffffu, 0, FAK_E_ARGUMENT, "rows 1+4294967295 of 64"},
    {Q,    FAK_NATIVE, 0, 1, -1, FAK_E_ARGUMENT, "rows 0+1 of 64 into 35 bytes"},
    {Q,    FAK_NATIVE, 0, 1, 1,  FAK_E_ARGUMENT, "rows 0+1 of 64 into 37 bytes"},
    {Q,    FAK_NATIVE, 0, 0, 36, FAK_E_ARGUMENT, "rows 0+0 of 64 into 36 bytes"},
    {Q,    FAK_CODES, 0, 1, -1,  FAK_E_ARGUMENT, "into 63 bytes"},
    {Q,    FAK_ZEROS, 0, 1, 0,   FAK_E_UNSUPPORTED,
     "weight \"blk.0.attn_q.weight\" is q4_0, which has no form 4"},
    {Q,    FAK_ZEROS + 1, 0, 1, 0, FAK_E_UNSUPPORTED, "which has no form 5"},
    {Q,    0xffffffffu, 0, 1, 0, FAK_E_UNSUPPORTED, "which has no form 4294967295"},
    {NORM, FAK_CODES, 0, 1, 0,   FAK_E_UNSUPPORTED,
     "weight \"output_norm.weight\" is f32, which has no form 2"},
    {NORM, FAK_SCALES, 0, 1, 0,  FAK_E_UNSUPPORTED, "which has no form 3"},
    /* clang-format on */
};

static void test_faults(void **state)
{
    opened o;
    uint8_t *dst = malloc(1 << 16);
    (void)state;
    assert_non_null(dst);
    open_source(&o, "tiny-q4_0.gguf", 0);
    o.index[1] = FAK_NO_INDEX;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        uint32_t value = faults[i].value, rows = faults[i].rows;
        if (value == Q) value = model_weight(&o.tiny.model, MODEL_Q, 0);
        if (value == NORM) value = model_weight(&o.tiny.model, MODEL_OUT_NORM, 0);
        const weight *w = &o.tiny.model.weights.at[value < o.source.values ? value : 0];
        uint64_t bytes = rows * dtype_form_bytes(w->dtype, faults[i].form, w->cols);
        fak_error e = {0};
        memset(dst, 0x5a, 1 << 16);
        int32_t s = o.api.read(o.api.self, value, faults[i].form, faults[i].first, rows, dst,
                               bytes + (uint64_t)faults[i].more, &e);
        assert_message(&e, faults[i].sentence);
        assert_int_equal(s, faults[i].code);
        assert_int_equal(e.code, faults[i].code);
        for (int k = 0; k < 1 << 16; k++) assert_int_equal(dst[k], 0x5a);
    }
    assert_int_equal(o.source.done_bytes, 0);
    close_source(&o);
    free(dst);
}

static void test_no_rows(void **state)
{
    opened o;
    fak_error e = {0};
    (void)state;
    open_source(&o, "tiny-f16.gguf", 0);
    uint32_t value = model_weight(&o.tiny.model, MODEL_UP, 0);
    assert_int_equal(o.api.read(o.api.self, value, FAK_NATIVE, 96, 0, NULL, 0, &e), FAK_OK);
    assert_int_equal(o.source.done_bytes, 0);
    close_source(&o);
}

/* ---- progress ---- */

typedef struct watcher {
    uint64_t done, stop_at; /* stop_at 0: never */
    uint32_t calls;
} watcher;

static int32_t watch(void *self, uint64_t done_bytes)
{
    watcher *w = self;
    assert_true(done_bytes > w->done);
    w->done = done_bytes;
    w->calls++;
    return w->stop_at && done_bytes >= w->stop_at ? 7 : 0;
}

/* Every weight once, half of them lent: the bytes end at the model's. */
static void test_progress(void **state)
{
    opened o;
    watcher w = {0};
    (void)state;
    open_source(&o, "tiny-q4_1.gguf", 0);
    o.source.progress = watch;
    o.source.progress_self = &w;
    for (uint32_t i = 0; i < o.source.values; i++) {
        if (i % 2 && o.api.borrow(o.api.self, i)) continue;
        const weight *made = &o.tiny.model.weights.at[i];
        uint32_t half = made->rows / 2;
        if (half) free(read_rows(&o, i, FAK_AS_F32, 0, half));
        free(read_rows(&o, i, FAK_NATIVE, half, made->rows - half));
    }
    assert_int_equal(w.done, model_weight_bytes(&o.tiny.model));
    assert_true(w.calls > o.source.values);
    close_source(&o);
}

static void test_cancel(void **state)
{
    opened o;
    watcher w = {.stop_at = 2 * 68};
    fak_error e = {0};
    uint8_t row[68];
    (void)state;
    open_source(&o, "tiny-q8_0.gguf", 0); /* blocks: lent on every machine */
    o.source.progress = watch;
    o.source.progress_self = &w;
    uint32_t value = model_weight(&o.tiny.model, MODEL_UP, 1);
    assert_int_equal(o.api.read(o.api.self, value, FAK_NATIVE, 3, 1, row, 68, &e), FAK_OK);
    assert_int_equal(o.api.read(o.api.self, value, FAK_NATIVE, 4, 1, row, 68, &e), FAK_E_CANCELLED);
    assert_string_equal(e.message, "cancelled while loading \"blk.1.ffn_up.weight\"");
    assert_int_equal(w.calls, 2);
    /* what is lent cannot fail: the next read tells */
    assert_non_null(o.api.borrow(o.api.self, value));
    assert_int_equal(w.calls, 3);
    assert_int_equal(o.api.read(o.api.self, value, FAK_NATIVE, 5, 1, row, 68, &e), FAK_E_CANCELLED);
    close_source(&o);
}

/* ---- the table ---- */

static void test_table(void **state)
{
    weights table = {0};
    fak_error e = {0};
    (void)state;
    for (uint32_t i = 0; i < 200; i++) {
        weight w = {.dtype = FAK_F32, .rows = i + 1, .cols = 1, .made = malloc(4)};
        snprintf(w.name, sizeof w.name, "w%" PRIu32, i);
        assert_int_equal(weights_add(&table, &w, &e), FAK_OK);
        assert_int_equal(table.count, i + 1);
    }
    for (uint32_t i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%" PRIu32, i);
        assert_string_equal(table.at[i].name, name);
        assert_int_equal(table.at[i].rows, i + 1);
    }
    weights_free(&table); /* frees what was made: the leak checker sees to it */
    assert_int_equal(table.count, 0);
    weights_free(&table);
}

/* A scale or a minimum that is no finite number is told with tensor, row and block. */
static void test_broken_blocks(void **state)
{
    uint8_t rows[3 * 40] = {0}, out[3 * 40];
    const gguf_tensor tensor = {.dtype = FAK_Q4_1, .data = rows};
    const weight w = {.name = "w", .dtype = FAK_Q4_1, .rows = 3, .cols = 64, .tensor = &tensor};
    const uint32_t index[2] = {FAK_NO_INDEX, 0};
    weights table = {0};
    fak_error e = {0};
    fak_source api;
    (void)state;
    assert_int_equal(weights_add(&table, &w, &e), 0);
    weights_source s = {.table = &table, .index = index, .values = 2};
    assert_int_equal(weights_source_open(&s, &api, &e), 0);
    assert_ptr_equal(api.borrow(&s, 1), rows);
    for (int i = 0; i < 2; i++) { /* the scale, then the minimum, of block 1 of row 2 */
        memset(rows, 0, sizeof rows);
        rows[2 * 40 + 20 + 2 * i + 1] = i ? 0xfc : 0x7e;
        assert_null(api.borrow(&s, 1));
        assert_int_equal(api.read(&s, 1, FAK_NATIVE, 0, 2, out, 80, &e), 0);
        assert_int_equal(api.read(&s, 1, FAK_NATIVE, 0, 3, out, 120, &e), STATUS_BAD_FILE);
        assert_message(&e, "tensor w: a scale of block 1 of row 2 is no finite number");
        assert_int_equal(api.read(&s, 1, FAK_SCALES, 2, 1, out, 8, &e), STATUS_BAD_FILE);
    }
    table.unverified = 1;
    assert_ptr_equal(api.borrow(&s, 1), rows);
    assert_int_equal(api.read(&s, 1, FAK_NATIVE, 0, 3, out, 120, &e), 0);
    weights_source_close(&s);
    weights_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken_blocks), cmocka_unit_test(test_native),
        cmocka_unit_test(test_made),          cmocka_unit_test(test_borrow_refuses),
        cmocka_unit_test(test_source_row),    cmocka_unit_test(test_partial_rotation),
        cmocka_unit_test(test_unaligned),     cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_same_as_file),  cmocka_unit_test(test_planes),
        cmocka_unit_test(test_any_order),     cmocka_unit_test(test_faults),
        cmocka_unit_test(test_no_rows),       cmocka_unit_test(test_progress),
        cmocka_unit_test(test_cancel),        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
