/* Files of the other byte order: the same rows, the same logits as of the little-endian twin, for each
 * dtype and form.  On a big-endian host the twins change places and the same must hold. */
#include "support.h"

#include "../core/plugin.h"
#include "../core/session.h"

static const char *const dtypes[] = {"f32",  "f16",  "bf16", "q8_0", "q4_0", "q4_1",
                                     "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"};

enum { DTYPES = sizeof dtypes / sizeof *dtypes };

typedef struct twins {
    tiny little, big;
} twins;

static void open_twins(twins *t, const char *dtype)
{
    char name[32];
    snprintf(name, sizeof name, "tiny-%s.gguf", dtype);
    tiny_open(&t->little, name);
    snprintf(name, sizeof name, "big-%s.gguf", dtype);
    tiny_open(&t->big, name);
    assert_int_equal(gguf_is_big(t->little.file), 0);
    assert_int_equal(gguf_is_big(t->big.file), 1);
}

static void close_twins(twins *t)
{
    tiny_close(&t->little);
    tiny_close(&t->big);
}

/* ---- rows ---- */

static void open_source(weights_source *s, fak_source *api, const tiny *t)
{
    fak_error e;
    *s = (weights_source){
        .table = &t->model.weights, .index = t->plan.weight, .values = t->plan.block->values.count};
    assert_int_equal(weights_source_open(s, api, &e), FAK_OK);
}

static void compare_rows(fak_source *a, fak_source *b, uint32_t value, const weight *w)
{
    fak_error e;
    for (uint32_t form = 0; form <= FAK_ZEROS; form++) {
        size_t bytes = (size_t)w->rows * dtype_form_bytes(w->dtype, form, w->cols);
        if (!bytes) continue;
        void *x = malloc(bytes), *y = malloc(bytes);
        assert_true(x && y);
        assert_int_equal(a->read(a->self, value, form, 0, w->rows, x, bytes, &e), FAK_OK);
        assert_int_equal(b->read(b->self, value, form, 0, w->rows, y, bytes, &e), FAK_OK);
        assert_memory_equal(x, y, bytes);
        free(x);
        free(y);
    }
}

static void test_rows(void **state)
{
    (void)state;
    for (int i = 0; i < DTYPES; i++) {
        twins t;
        weights_source s[2];
        fak_source api[2];
        uint32_t lent[2] = {0, 0};
        open_twins(&t, dtypes[i]);
        open_source(&s[0], &api[0], &t.little);
        open_source(&s[1], &api[1], &t.big);
        assert_int_equal(t.little.model.weights.count, t.big.model.weights.count);
        for (uint32_t v = 0; v < s[0].values; v++) {
            if (s[0].index[v] == FAK_NO_INDEX) continue;
            const weight *w = &t.little.model.weights.at[s[0].index[v]];
            compare_rows(&api[0], &api[1], v, w);
            if (!w->tensor) continue;     /* what the core makes is in the host's order */
            for (int k = 0; k < 2; k++) { /* what is foreign is not lent, and that alone */
                int is_lent = api[k].borrow(api[k].self, v) != NULL;
                assert_int_equal(is_lent, !w->rot_dim && !dtype_is_foreign(w->dtype, k));
                lent[k] += (uint32_t)is_lent;
            }
        }
        assert_true(lent[0] != lent[1]);
        weights_source_close(&s[0]);
        weights_source_close(&s[1]);
        close_twins(&t);
    }
}

/* The bytes in the files do differ, or nothing was tested. */
static void test_the_twins_differ(void **state)
{
    (void)state;
    for (int i = 0; i < DTYPES; i++) {
        twins t;
        open_twins(&t, dtypes[i]);
        const gguf_tensor *a = gguf_find_tensor(t.little.file, "token_embd.weight");
        const gguf_tensor *b = gguf_find_tensor(t.big.file, "token_embd.weight");
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_not_equal(a->data, b->data, a->bytes);
        close_twins(&t);
    }
}

static void test_swap(void **state)
{
    static const struct {
        uint32_t id, cols;
        uint8_t before[210], after[210];
    } rows[] = {
        {FAK_F32, 2, {1, 2, 3, 4, 5, 6, 7, 8}, {4, 3, 2, 1, 8, 7, 6, 5}},
        {FAK_F16, 2, {1, 2, 3, 4}, {2, 1, 4, 3}},
        {FAK_BF16, 1, {1, 2}, {2, 1}},
        {FAK_Q4_0, 32, {1, 2, 3, 4, 5, 6}, {2, 1, 3, 4, 5, 6}},
        {FAK_Q4_1, 32, {1, 2, 3, 4, 5, 6}, {2, 1, 4, 3, 5, 6}},
        {FAK_Q5_0, 32, {1, 2, 3, 4, 5, 6, 7, 8}, {2, 1, 6, 5, 4, 3, 7, 8}},
        {FAK_Q5_1, 32, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {2, 1, 4, 3, 8, 7, 6, 5, 9}},
        {FAK_Q4_K, 256, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {2, 1, 4, 3, 5, 6, 7, 8, 9}},
        {FAK_Q5_K, 256, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {2, 1, 4, 3, 5, 6, 7, 8, 9}},
        {FAK_Q6_K, 256, {1, 2, [207] = 3, 4, 5}, {1, 2, [207] = 3, 5, 4}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t row[210];
        memcpy(row, rows[i].before, sizeof row);
        dtype_swap_row(rows[i].id, rows[i].cols, row);
        assert_memory_equal(row, rows[i].after, sizeof row);
    }
    assert_true(dtype_is_foreign(FAK_F32, 0) != dtype_is_foreign(FAK_F32, 1));
    assert_false(dtype_is_foreign(FAK_Q4_1, 0)); /* blocks are little-endian on every host */
    assert_true(dtype_is_foreign(FAK_Q4_1, 1));
}

/* A scale that is no number is seen through the order: 7c 00 is infinite in a big-endian file, and
 * 00 7c is a small number. */
static void test_bad_scales(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        uint8_t *data = tiny_bytes("big-q4_1.gguf", &bytes);
        gguf *g;
        model m;
        plan p;
        weights_source s;
        fak_source api;
        fak_error e = {0};
        assert_int_equal(gguf_open_memory(&g, data, bytes, "m.gguf", &e), FAK_OK);
        size_t at = (size_t)(gguf_find_tensor(g, "blk.1.ffn_up.weight")->data - data);
        data[at + 22] = i ? 0 : 0x7c; /* the second scale of the second block */
        data[at + 23] = i ? 0x7c : 0;
        assert_int_equal(model_open(&m, g, 0, 0, &e), FAK_OK);
        assert_int_equal(plan_build(&p, &m, &e), FAK_OK);
        s = (weights_source){
            .table = &m.weights, .index = p.weight, .values = p.block->values.count};
        assert_int_equal(weights_source_open(&s, &api, &e), FAK_OK);
        uint32_t index = model_weight(&m, MODEL_UP, 1), value = 0;
        while (s.index[value] != index) value++;
        float row[64];
        int32_t rc = api.read(api.self, value, FAK_AS_F32, 0, 1, row, sizeof row, &e);
        assert_int_equal(rc, i ? FAK_OK : STATUS_BAD_FILE);
        if (!i) assert_message(&e, "a scale of block 1 of row 0 is no finite number (bits 7c00)");
        weights_source_close(&s);
        plan_free(&p);
        model_close(&m);
        gguf_close(g);
        free(data);
    }
}

/* ---- logits ---- */

enum { IDS = 6 };

/* [IDS, V] of the reference. */
static float *logits_of(const tiny *t)
{
    static const uint32_t id[IDS] = {1, 40, 263, 7, 7, 299};
    plugin_host services = {0};
    plugins all = {0};
    device dev = {0}, host = {0};
    session s = {0};
    session_options o = {.wanted = IDS};
    uint32_t slot;
    fak_error e = {0};
    float *out = malloc(IDS * t->model.vocab * sizeof *out);
    assert_non_null(out);
    if (plugins_open(&all, &(plugin_search){0}, &services, &e)) fail_msg("%s", e.message);
    plugin *ref = plugins_linked_in(&all, "cpu-ref");
    if (plugin_load(&all, ref, &e) || device_open(&dev, ref, 0, NULL, 0, &e) ||
        device_open(&host, ref, 0, NULL, 0, &e) ||
        session_open(&s, &t->model, &dev, &host, &o, NULL, NULL, &e) || kv_take(&s.kv, &slot, &e) ||
        session_feed(&s, slot, id, IDS, FAK_WANT_LOGITS, 1, out, &e))
        fail_msg("%s", e.message);
    session_close(&s);
    device_close(&dev);
    device_close(&host);
    plugins_close(&all);
    return out;
}

static void test_logits(void **state)
{
    (void)state;
    for (int i = 0; i < DTYPES; i++) {
        twins t;
        open_twins(&t, dtypes[i]);
        float *a = logits_of(&t.little), *b = logits_of(&t.big);
        uint32_t moved = 0;
        assert_memory_equal(a, b, IDS * t.little.model.vocab * sizeof *a);
        for (uint32_t k = 1; k < t.little.model.vocab; k++) moved += a[k] - a[0] != 0;
        assert_true(moved > 0);
        free(a);
        free(b);
        close_twins(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),   cmocka_unit_test(test_the_twins_differ),
        cmocka_unit_test(test_swap),   cmocka_unit_test(test_bad_scales),
        cmocka_unit_test(test_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
