/* What a backend may ask of the host, seen from a backend: log, progress and its cancel, rows of weights
 * in any order, bytes that stay until release; and what the host may ask of it: extensions. */
#include "engine.h"

#include <inttypes.h>

enum { N = 8, V_MAX = ENGINE_VOCAB };

/* ---- log, progress ---- */

typedef struct heard { /* by the embedder */
    char sentence[200], what[40];
    uint32_t logs, level, calls, cancel_at; /* cancel_at: number of a progress call, 0 = never */
    uint64_t done, of;
    int falls; /* done went down, or beyond of */
} heard;

static void on_log(void *self, uint32_t level, const char *sentence)
{
    heard *h = self;
    h->logs++;
    h->level = level;
    snprintf(h->sentence, sizeof h->sentence, "%s", sentence);
}

static int32_t on_progress(void *self, const char *what, uint64_t done, uint64_t of)
{
    heard *h = self;
    snprintf(h->what, sizeof h->what, "%s", what);
    h->calls++;
    h->falls |= done < h->done || done > of || !of;
    h->done = done;
    h->of = of;
    return h->calls == h->cancel_at ? FAK_E_CANCELLED : FAK_OK;
}

typedef struct opened { /* the honest device, as a file, with a host that listens */
    heard heard;
    engine g;
} opened;

static void open_honest(opened *o)
{
    fak_error e = {0};
    backend_pair *b = &o->g.backend;
    *o = (opened){0};
    plugin_host host = {&o->heard, NULL, on_log, on_progress};
    tiny_open(&o->g.tiny, "tiny-q4_0.gguf");
    o->g.V = o->g.tiny.model.vocab;
    o->g.block = malloc(step_bytes(ENGINE_ROWS, ENGINE_ROWS, ENGINE_SLOTS));
    assert_non_null(o->g.block);
    if (plugins_open(&b->all, &(plugin_search){TEST_BUILT "/fak-backend-honest.so", NULL, 0}, &host,
                     &e))
        fail_msg("%s", e.message);
    plugin *ref = plugins_linked_in(&b->all, "cpu-ref");
    if (plugin_load(&b->all, &b->all.at[0], &e) || plugin_load(&b->all, ref, &e) ||
        device_open(&b->dev, &b->all.at[0], 0, NULL, 0, &e) ||
        device_open(&b->host, ref, 0, NULL, 0, &e))
        fail_msg("%s", e.message);
}

static void test_log(void **state)
{
    opened o;
    (void)state;
    open_honest(&o);
    assert_int_equal(o.heard.logs, 1);
    assert_int_equal(o.heard.level, FAK_LOG_INFO);
    assert_string_equal(o.heard.sentence, "honest: 67108864 bytes of device memory");
    engine_close(&o.g);
}

static void run(opened *o, float *out)
{
    uint32_t token[N];
    engine_tokens(&o->g, 1, token, N);
    engine_feed(&o->g, 0, 0, token, N, FAK_WANT_LOGITS, out);
}

static float want[N * V_MAX], got[N * V_MAX];

/* Cancelled by the host's progress at every call in turn; then the same device loads all of it. */
static void test_cancel_by_progress(void **state)
{
    opened o;
    fak_error e = {0};
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    (void)state;
    open_honest(&o);
    if (engine_try(&o.g, &limits, 0, &e)) fail_msg("%s", e.message);
    uint32_t calls = o.heard.calls;
    assert_true(calls > 10);
    assert_false(o.heard.falls);
    assert_int_equal(o.heard.done, o.heard.of);
    assert_string_equal(o.heard.what, "loading");
    run(&o, want);
    for (uint32_t at = 1; at <= calls; at++) {
        engine_end(&o.g);
        o.heard = (heard){.cancel_at = at};
        assert_int_equal(engine_try(&o.g, &limits, 0, &e), FAK_E_CANCELLED);
        assert_int_equal(e.code, FAK_E_CANCELLED);
        assert_int_equal(o.heard.calls, at); /* an early end */
        char part[80];
        snprintf(part, sizeof part, "cancelled after %" PRIu64 " of %" PRIu64 " bytes",
                 o.heard.done, o.heard.of);
        assert_message(&e, part);
        assert_int_equal(program_load(&o.g.program, NULL, NULL, &e), FAK_OK); /* the rest of it */
        assert_int_equal(exec_open(&o.g.exec, &o.g.program, &e), FAK_OK);
        memset(got, 0, sizeof got);
        run(&o, got);
        assert_rows(got, want, N * (size_t)o.g.V);
    }
    engine_close(&o.g);
}

static int32_t cancel_at(void *self, uint64_t done)
{
    (void)done;
    return --*(int *)self == 0;
}

/* Cancelled by the row source: the backend passes on what its read was told. */
static void test_cancel_by_source(void **state)
{
    opened o;
    fak_error e = {0};
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    (void)state;
    open_honest(&o);
    if (engine_try(&o.g, &limits, 0, &e)) fail_msg("%s", e.message);
    run(&o, want);
    for (int at = 1, left = 0; left <= 0; at++) {
        engine_end(&o.g);
        if (program_prepare(&o.g.program, &o.g.backend.dev, &o.g.backend.host, &o.g.tiny.model,
                            &limits, 0, &e))
            fail_msg("%s", e.message);
        left = at;
        int32_t s = program_load(&o.g.program, cancel_at, &left, &e);
        assert_int_equal(s, left > 0 ? FAK_OK : FAK_E_CANCELLED);
        if (s) assert_message(&e, "cancelled while loading \"");
        if (s && program_load(&o.g.program, NULL, NULL, &e)) fail_msg("%s", e.message);
        assert_int_equal(exec_open(&o.g.exec, &o.g.program, &e), FAK_OK);
        run(&o, got);
        assert_rows(got, want, N * (size_t)o.g.V);
        assert_true(at < 1000);
        if (left > 0) assert_true(at > 10);
    }
    engine_close(&o.g);
}

/* ---- the row source, seen from load ---- */

enum { VALUES = 512 };
static uint64_t seed;
static uint32_t loads, read_values;
static const void *lent[VALUES];
static uint64_t lent_bytes[VALUES], lent_hash[VALUES];
static int32_t (*real_load)(fak_program *, const uint32_t *, uint32_t, const fak_source *,
                            fak_error *);
static const program *loading;

static uint64_t hash_of(const void *at, uint64_t bytes)
{
    uint64_t h = 14695981039346656037ull;
    for (uint64_t i = 0; i < bytes; i++) h = (h ^ ((const uint8_t *)at)[i]) * 1099511628211ull;
    return h;
}

static void *row_of(const fak_source *s, uint32_t id, uint32_t form, uint32_t first, uint32_t rows,
                    uint64_t bytes)
{
    fak_error e = {0};
    char *dst = malloc(bytes + 8);
    assert_non_null(dst);
    memset(dst, 0x5a, bytes + 8);
    if (s->read(s->self, id, form, first, rows, dst, bytes, &e)) fail_msg("%s", e.message);
    for (int i = 0; i < 8; i++) assert_int_equal(dst[bytes + (uint64_t)i], 0x5a);
    return dst;
}

/* All rows at once, against: from the last to the first, any three in a row, the same ones again. */
static void pull_form(const fak_source *s, uint32_t id, const fak_value *v, uint32_t form)
{
    uint64_t row = dtype_form_bytes(v->dtype, form, v->cols);
    char *all = row_of(s, id, form, 0, v->rows, v->rows * row);
    for (uint32_t i = 0; i < 12; i++) {
        uint32_t n = i % 3 + 1 < v->rows ? i % 3 + 1 : v->rows;
        uint32_t first = i < 4 ? (v->rows - n) * (3 - i) / 3 : random_below(&seed, v->rows - n + 1);
        for (int again = 0; again < 2; again++) {
            char *part = row_of(s, id, form, first, n, n * row);
            assert_memory_equal(part, all + first * row, n * row);
            free(part);
        }
    }
    free(all);
}

static void refuse_form(const fak_source *s, uint32_t id, const fak_value *v)
{
    uint64_t row = dtype_row_bytes(v->dtype, v->cols), byte = 0;
    const struct {
        uint32_t value, form, first, rows;
        uint64_t bytes;
        int32_t status;
    } bad[] = {
        {id, FAK_NATIVE, v->rows, 1, row, FAK_E_ARGUMENT},
        {id, FAK_NATIVE, UINT32_MAX, 2, 2 * row, FAK_E_ARGUMENT},
        {id, FAK_NATIVE, 0, 1, row - 1, FAK_E_ARGUMENT},
        {id, FAK_NATIVE, 0, 1, row + 1, FAK_E_ARGUMENT},
        {0, FAK_NATIVE, 0, 1, row, FAK_E_ARGUMENT},
        {UINT32_MAX, FAK_NATIVE, 0, 1, row, FAK_E_ARGUMENT},
        {id, 99, 0, 1, row, FAK_E_UNSUPPORTED},
        {id, v->dtype < FAK_Q8_0 ? FAK_CODES : FAK_ZEROS, 0, 1, row, FAK_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fak_error e = {0};
        if (i == 7 && dtype_form_bytes(v->dtype, bad[i].form, v->cols))
            continue; /* it has every form */
        assert_int_equal(s->read(s->self, bad[i].value, bad[i].form, bad[i].first, bad[i].rows,
                                 &byte, bad[i].bytes, &e),
                         bad[i].status);
        assert_int_equal(e.code, bad[i].status);
        assert_true(e.message[0]);
        assert_int_equal(byte, 0);
    }
    assert_null(s->borrow(s->self, 0));
    assert_null(s->borrow(s->self, UINT32_MAX));
}

static void borrow(const fak_source *s, uint32_t id, const fak_value *v)
{
    lent[id] = s->borrow(s->self, id);
    lent_bytes[id] = v->rows * dtype_row_bytes(v->dtype, v->cols);
    if (!lent[id]) return;
    char *all = row_of(s, id, FAK_NATIVE, 0, v->rows, lent_bytes[id]);
    assert_memory_equal(all, lent[id], lent_bytes[id]);
    lent_hash[id] = hash_of(lent[id], lent_bytes[id]);
    free(all);
}

/* In cpu-ref's place: pulls whatever it likes, then lets it load. */
static int32_t curious_load(fak_program *p, const uint32_t *id, uint32_t n, const fak_source *s,
                            fak_error *e)
{
    loads++;
    assert_true(s->struct_size >= sizeof *s);
    assert_true(s->flags & FAK_STABLE);
    for (uint32_t i = n; i-- > 0;) { /* the last first */
        const fak_value *v = &loading->value[id[i]];
        assert_in_range(v->kind, FAK_WEIGHT, FAK_CONST);
        for (uint32_t form = FAK_NATIVE; form <= FAK_ZEROS; form++)
            if (dtype_form_bytes(v->dtype, form, v->cols)) pull_form(s, id[i], v, form);
        refuse_form(s, id[i], v);
        borrow(s, id[i], v);
        read_values++;
    }
    return real_load(p, id, n, s, e);
}

static void test_row_source(void **state)
{
    (void)state;
    seed = random_begin();
    for (uint32_t m = 0; m < TINY_MODELS; m++) {
        engine g;
        uint32_t token[N], borrowed = 0;
        fak_error e = {0};
        fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
        engine_begin(&g, tiny_names[m], "cpu-ref", NULL);
        engine_tokens(&g, 1, token, N);
        loads = read_values = 0;
        memset(lent, 0, sizeof lent);
        loading = &g.program;
        real_load = g.backend.dev.api.load;
        g.backend.dev.api.load = curious_load;
        if (engine_try(&g, &limits, 0, &e)) fail_msg("%s", e.message);
        assert_int_equal(loads, 1);
        assert_true(read_values > 10);
        engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, got);
        for (uint32_t i = 0; i < VALUES; i++) { /* until release */
            borrowed += lent[i] != NULL;
            if (lent[i]) assert_int_equal(hash_of(lent[i], lent_bytes[i]), lent_hash[i]);
        }
        uint32_t lendable = 0; /* q and k rows are not as in the file; nor is the order, maybe */
        const weights *all = &g.tiny.model.weights;
        for (uint32_t i = 0; i < all->count; i++) lendable += weights_lendable(&all->at[i]) != 0;
        assert_true(lendable > 0 && lendable < read_values);
        assert_int_equal(borrowed, lendable);
        engine_close(&g);
    }
}

/* ---- extensions ---- */

static void test_extensions_of_backends(void **state)
{
    opened o;
    (void)state;
    open_honest(&o);
    const device *honest = &o.g.backend.dev, *ref = &o.g.backend.host;
    assert_non_null(honest->api.get_ext(honest->handle, "fak.stats/1"));
    assert_null(honest->api.get_ext(honest->handle, "fak.host_view/1"));
    assert_null(honest->api.get_ext(honest->handle, "fak.stats/2"));
    assert_null(honest->api.get_ext(NULL, ""));
    assert_non_null(ref->api.get_ext(ref->handle, "fak.host_view/1"));
    assert_non_null(ref->api.get_ext(NULL, "fak.host_view/1"));
    assert_null(ref->api.get_ext(ref->handle, "vendor.thing/1"));
    const fak_host *host = &o.g.backend.all.host; /* and what a backend may ask */
    assert_null(host->get_ext(host->self, "vendor.thing/1"));
    assert_null(host->get_ext(host->self, ""));
    engine_close(&o.g);
}

/* Every value that a device op has written: what the view shows is what read gives. */
static void test_host_view(void **state)
{
    (void)state;
    engine g;
    uint32_t token[N], seen = 0;
    fak_error e = {0};
    fak_limits limits = engine_limits(FAK_ACT_Q8, FAK_F32);
    engine_open(&g, "tiny-q8_0.gguf", "cpu-ref", NULL, &limits, FAK_KEEP_ALL);
    const device *d = &g.backend.dev;
    fak_host_view view;
    fak_take(&view, sizeof view, d->api.get_ext(d->handle, "fak.host_view/1"));
    engine_tokens(&g, 1, token, N);
    engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, got);
    for (uint32_t i = 0; i < g.program.ops; i++) {
        uint32_t id = g.program.op[i].out[0];
        uint64_t ticket, bytes = N * 4ull * g.program.value[id].cols;
        fak_tail tail = plan_tail(g.program.fused.block, 0);
        if (!id || i >= tail.first + tail.ops) continue;
        char *rows = malloc(bytes);
        assert_non_null(rows);
        assert_int_equal(d->api.read(g.program.handle[SIDE_DEVICE], id, 0, N, rows, &ticket, &e),
                         0);
        const void *there = view.view(g.program.handle[SIDE_DEVICE], id);
        assert_non_null(there);
        assert_memory_equal(there, rows, bytes);
        if (id == tail.out) assert_memory_equal(there, got, bytes);
        free(rows);
        seen++;
    }
    assert_true(seen > 20);
    assert_null(view.view(g.program.handle[SIDE_DEVICE], UINT32_MAX));
    engine_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_cancel_by_progress),
        cmocka_unit_test(test_cancel_by_source),
        cmocka_unit_test(test_row_source),
        cmocka_unit_test(test_extensions_of_backends),
        cmocka_unit_test(test_host_view),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
