/* An honest device beside the reference: in the contract's order it has its bits, in its own order it
 * keeps the floors of class Approx; and it is what it claims: asynchronous, exact about its memory. */
#include "engine.h"

#include "../core/golden.h"

#include <inttypes.h>
#include <math.h>

enum { N = 20, V_MAX = ENGINE_VOCAB, KV_PAGE = 16 };

static const uint32_t acts[] = {FAK_ACT_F32, FAK_ACT_Q8}, kvs[] = {FAK_F32, FAK_F16, FAK_BF16};
static float want[1 << 17], got[1 << 17];

/* Room for every slot's context in whole pages. */
static fak_limits paged(uint32_t act, uint32_t kv_dtype)
{
    fak_limits l = engine_limits(act, kv_dtype);
    l.kv_tokens = ENGINE_SLOTS * (ENGINE_CONTEXT / KV_PAGE + 2) * KV_PAGE;
    return l;
}

/* ---- one of everything that a sequence can go through ---- */

typedef struct sample { /* answers, one after another */
    engine *g;
    float *at;
} sample;

static void feed(sample *s, uint32_t slot, uint32_t first, const uint32_t *token, uint32_t n)
{
    engine_feed(s->g, slot, first, token, n, FAK_WANT_LOGITS, s->at);
    s->at += (size_t)n * s->g->V;
}

/* Three sequences of different lengths in a step, then two that go on while one begins. */
static void sample_batch(sample *s, const uint32_t *token)
{
    static const fak_span span[2][3] = {
        {{2, 0, 9, 0}, {0, 9, 1, 0}, {3, 10, 6, 0}},
        {{1, 0, 4, 0}, {2, 4, 1, 9}, {0, 5, 12, 1}},
    };
    fak_error e;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t rows = span[i][2].row + span[i][2].rows;
        step_spec spec = {FAK_WANT_LOGITS, 0, rows, rows, 3, token, engine_rows, span[i]};
        if (engine_step(s->g, &spec, s->at, &e)) fail_msg("%s", e.message);
        s->at += (size_t)rows * s->g->V;
    }
}

/* Greedy: ids by hand, then the same from the device's own argmax; ids and logits must agree. */
static void sample_greedy(sample *s, const uint32_t *token)
{
    uint32_t id[2][6][3];
    fak_error e;
    for (uint32_t way = 0; way < 2; way++)
        for (uint32_t i = 0; i < 6; i++) {
            const fak_span span[3] = {{2, 0, 1, i}, {0, 1, 1, i}, {1, 2, 1, i}};
            int kept = way && i;
            step_spec spec = {.want = FAK_WANT_ARGMAX,
                              .flags = kept ? FAK_TOKENS_FROM_ARGMAX : 0,
                              .rows = 3,
                              .wanted = 3,
                              .spans = 3,
                              .token = kept ? NULL
                                       : i  ? id[0][i - 1]
                                            : token,
                              .wanted_row = engine_rows,
                              .span = span};
            if (engine_step(s->g, &spec, id[way][i], &e)) fail_msg("%s", e.message);
        }
    assert_memory_equal(id[0], id[1], sizeof id[0]);
    for (uint32_t i = 0; i < 18; i++) *s->at++ = (float)id[0][i / 3][i % 3];
}

/* Clones at every place of a page, truncations, and evictions in front, inside and across pages. */
static void sample_kv(sample *s, const uint32_t *token, int evicts)
{
    kv *k = &s->g->kv;
    fak_error e;
    uint32_t from, to;
    assert_int_equal(kv_take(k, &from, &e), FAK_OK);
    feed(s, from, 0, token, N);
    kv_extend(k, from, N);
    for (uint32_t cut = 14; cut <= 18; cut++) {
        if (kv_clone(k, from, cut, &to, &e)) fail_msg("%s", e.message);
        feed(s, to, cut, token + 1, N - cut); /* another suffix than the first one's */
        feed(s, from, cut, token + cut, N - cut);
        assert_int_equal(kv_give(k, to, &e), FAK_OK);
    }
    kv_truncate(k, from, 7);
    feed(s, from, 7, token + 3, 4);
    kv_truncate(k, from, 7);
    feed(s, from, 7, token + 7, N - 7);
    kv_extend(k, from, N - 7);
    for (uint32_t first = 0; evicts && first < 20; first += 3) {
        if (kv_clone(k, from, N, &to, &e)) fail_msg("%s", e.message); /* every page is shared */
        uint32_t count = first % 2 ? N - first : N / 3 < N - first ? N / 3 : N - first;
        if (kv_evict(k, to, first, count, &e)) fail_msg("%s", e.message);
        /* once more, before it: by raw keys of a page that was copied */
        if (first > 3 && kv_evict(k, to, 1, 2, &e)) fail_msg("%s", e.message);
        feed(s, to, k->length[to], token, 3);
        assert_int_equal(kv_give(k, to, &e), FAK_OK);
    }
    if (evicts && kv_evict(k, from, 5, 2, &e)) fail_msg("%s", e.message); /* and one in place */
    feed(s, from, k->length[from], token, 2);
    assert_int_equal(kv_give(k, from, &e), FAK_OK);
}

static size_t sample_of(engine *g, float *out, int evicts)
{
    uint32_t token[N];
    sample s = {g, out};
    engine_tokens(g, 6, token, N);
    feed(&s, 0, 0, token, N); /* at once */
    feed(&s, 1, 0, token, 3); /* in parts */
    for (uint32_t i = 3; i < N; i++) feed(&s, 1, i, token + i, 1);
    sample_batch(&s, token);
    sample_greedy(&s, token);
    sample_kv(&s, token, evicts);
    assert_in_range(s.at - out, N * g->V, sizeof want / sizeof *want);
    return (size_t)(s.at - out);
}

static void compare(const char *file, const fak_limits *limits, uint32_t flags,
                    const char *const *way, uint32_t ways)
{
    engine g;
    engine_open(&g, file, "cpu-ref", NULL, limits, flags);
    size_t count = sample_of(&g, want, flags & FAK_EVICTABLE ? 1 : 0);
    engine_close(&g);
    for (uint32_t i = 0; i < ways; i++) {
        memset(got, 0, count * sizeof *got);
        engine_open(&g, file, "honest", way[i], limits, flags);
        size_t n = sample_of(&g, got, flags & FAK_EVICTABLE ? 1 : 0);
        if (n != count || memcmp(got, want, count * sizeof *got))
            print_error("%s, \"%s\":\n", file, way[i]);
        assert_rows(got, want, count);
        assert_int_equal(n, count);
        engine_close(&g);
    }
}

static void test_exact(void **state)
{
    static const char *const way[] = {"exact=1", "exact=1 fused=0", "exact=1 graph-only=1",
                                      "exact=1 eager=1", "exact=1 eager=1 fused=0 hold=1"};
    (void)state;
    for (uint32_t i = 0; i < TINY_MODELS * 2; i++) {
        fak_limits limits = paged(acts[i % 2], kvs[i % 3]);
        uint32_t flags = i % 4 < 2 ? FAK_EVICTABLE : i % 4 == 2 ? FAK_KEEP_ALL : 0;
        compare(tiny_names[i / 2], &limits, flags, way, 5);
    }
}

/* A step begins and nothing of the one before is left, but for the ids. */
static void test_values_die(void **state)
{
    (void)state;
    engine g;
    uint32_t token[N];
    fak_limits limits = paged(FAK_ACT_F32, FAK_F32);
    engine_open(&g, "tiny-f32.gguf", "honest", "fused=0", &limits, FAK_KEEP_ALL);
    engine_tokens(&g, 6, token, N);
    for (uint32_t after = 0; after < 2; after++) {
        const fak_backend *api = &g.backend.dev.api;
        fak_program *p = g.program.handle[SIDE_DEVICE];
        fak_span span = {0, 0, 1, N};
        step_spec spec = engine_spec(&span, token, FAK_WANT_LOGITS);
        uint64_t ticket = 0;
        fak_error e;
        engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, want);
        if (after) assert_int_equal(api->begin(p, step_write(g.block, &spec), &e), FAK_OK);
        for (uint32_t i = 0; i < g.program.ops; i++) {
            uint32_t id = g.program.op[i].out[0];
            if (!id || i >= g.program.fused.block->body_ops) continue;
            memset(got, 0, sizeof *got);
            assert_int_equal(api->read(p, id, 0, 1, got, &ticket, &e), FAK_OK);
            assert_int_equal(api->wait(p, ticket, FAK_FOREVER, &e), FAK_OK);
            assert_int_equal(isnan(got[0]) != 0, after);
        }
    }
    engine_close(&g);
}

/* The proof that a Reference claim must pass; without exact=1 it would fail. */
static void test_golden(void **state)
{
    static const char *const way[] = {"exact=1", "exact=1 fused=0 eager=1", "exact=1 graph-only=1",
                                      "exact=1 hold=1 leave=3", ""};
    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        backend_pair b;
        fak_error e = {0};
        backend_open(&b, "honest", way[i]);
        int32_t s = golden_compare(&b.dev, &b.host, &e);
        if ((s == FAK_OK) != (i < 4)) fail_msg("\"%s\": %d, \"%s\"", way[i], (int)s, e.message);
        backend_close(&b);
    }
}

/* Every op left to the host in turn: rows cross in both directions while the device runs behind. */
static void test_exact_with_holes(void **state)
{
    (void)state;
    fak_limits limits = paged(FAK_ACT_Q8, FAK_F32);
    for (uint32_t id = FAK_OP_EMBED; id <= FAK_OP_ARGMAX; id++) {
        char option[64];
        const char *way = option;
        if (id == FAK_OP_ARGMAX || id == FAK_OP_EMBED) continue; /* greedy needs both on one side */
        snprintf(option, sizeof option, "exact=1 fused=0 leave=%u", (unsigned)id);
        compare("tiny-q4_1.gguf", &limits, FAK_EVICTABLE, &way, 1);
    }
}

/* Out of tree and beside the one linked in: the same bits. */
static void test_as_a_file(void **state)
{
    (void)state;
    engine g, h;
    fak_limits limits = paged(FAK_ACT_F32, FAK_F32);
    engine_open(&g, "tiny-f16.gguf", "honest", NULL, &limits, FAK_EVICTABLE);
    engine_open(&h, "tiny-f16.gguf", TEST_BUILT "/fak-backend-honest.so", NULL, &limits,
                FAK_EVICTABLE);
    assert_string_equal(h.backend.dev.from->name, "honest");
    assert_ptr_not_equal(g.backend.dev.api.open, h.backend.dev.api.open);
    size_t count = sample_of(&g, want, 1);
    assert_int_equal(sample_of(&h, got, 1), count);
    assert_rows(got, want, count);
    engine_close(&g);
    engine_close(&h);
}

/* ---- class Approx ---- */

static int keeps_floors(const float *a, const float *b, uint32_t n)
{
    double aa = 0, bb = 0, ab = 0, dd = 0, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        double x = a[i], y = b[i];
        aa += x * x, bb += y * y, ab += x * y, dd += (x - y) * (x - y);
        if (!(fabs(x - y) <= most)) most = fabs(x - y);
    }
    return ab / sqrt(aa * bb) >= 0.9999 && fabs(sqrt(aa / bb) - 1) <= 0.002 &&
           sqrt(dd / bb) <= 0.01 && most <= 0.1;
}

static uint32_t first_maximum(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static double gap(const float *x, uint32_t n)
{
    uint32_t best = first_maximum(x, n);
    double second = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        if (i != best && x[i] > second) second = x[i];
    return x[best] - second;
}

/* Each row within the floors, and still not the reference's bits: it computes by itself. */
static void test_approx(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < TINY_MODELS; i++) {
        engine g;
        uint32_t token[N], ties = 0;
        fak_limits limits = paged(FAK_ACT_F32, FAK_F32);
        for (int honest = 0; honest < 2; honest++) {
            engine_open(&g, tiny_names[i], honest ? "honest" : "cpu-ref", NULL, &limits, 0);
            engine_tokens(&g, 7, token, N);
            engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, honest ? got : want);
            if (honest) assert_int_equal(g.backend.dev.facts.klass, FAK_APPROX);
            if (!honest) engine_close(&g);
        }
        assert_memory_not_equal(got, want, N * (size_t)g.V * sizeof *got);
        for (uint32_t r = 0; r < N; r++) {
            const float *a = got + (size_t)r * g.V, *b = want + (size_t)r * g.V;
            if (!keeps_floors(a, b, g.V)) fail_msg("%s: row %u", tiny_names[i], (unsigned)r);
            if (first_maximum(a, g.V) == first_maximum(b, g.V)) continue;
            if (gap(b, g.V) >= 0.2) fail_msg("%s: argmax of row %u", tiny_names[i], (unsigned)r);
            ties++;
        }
        assert_in_range(ties, 0, N / 10);
        engine_close(&g);
    }
}

/* In its own order it repeats itself to the bit: cut in parts, in a batch, in ranges or op by op. */
static void test_approx_repeats(void **state)
{
    static const char *const way[] = {"", "eager=1", "hold=1", "graph-only=1"};
    (void)state;
    size_t count = 0;
    for (uint32_t i = 0; i < 4; i++) {
        engine g;
        fak_limits limits = paged(FAK_ACT_F32, FAK_F16);
        engine_open(&g, "tiny-q8_0.gguf", "honest", way[i], &limits, FAK_EVICTABLE);
        size_t n = sample_of(&g, i ? got : want, 1);
        if (!i) count = n;
        assert_rows(want, want + (size_t)N * g.V, (size_t)N * g.V); /* at once, in parts */
        engine_close(&g);
        if (i) assert_rows(got, want, count);
    }
}

/* The four numbers see what they are for. */
static void test_floors_can_fail(void **state)
{
    (void)state;
    float a[100], b[100];
    for (int i = 0; i < 100; i++) a[i] = b[i] = sinf((float)i);
    assert_true(keeps_floors(a, b, 100));
    for (int i = 0; i < 100; i++) a[i] = b[i] * 1.003f; /* a norm */
    assert_false(keeps_floors(a, b, 100));
    for (int i = 0; i < 100; i++) a[i] = b[i];
    a[3] += 0.101f; /* one element */
    assert_false(keeps_floors(a, b, 100));
    a[3] = NAN;
    assert_false(keeps_floors(a, b, 100));
}

/* ---- options ---- */

static void test_options(void **state)
{
    static const fak_setting bad[] = {{"exact", "2"},   {"memory", "lots"},   {"memory", ""},
                                      {"nothing", "1"}, {"fail-alloc", "-1"}, {"hold", "1x"}};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        backend_pair b;
        device d;
        fak_error e = {0};
        const fak_setting set[] = {{"exact", "1"}, bad[i]};
        backend_open(&b, "honest", NULL);
        assert_int_equal(device_open(&d, b.dev.from, 0, set, 2, &e), STATUS_REFUSED);
        assert_message(&e, "backend honest: option ");
        assert_message(&e, bad[i].name);
        assert_int_equal(device_open(&d, b.dev.from, 1, set, 1, &e), STATUS_REFUSED);
        backend_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_die),     cmocka_unit_test(test_golden),
        cmocka_unit_test(test_exact),          cmocka_unit_test(test_exact_with_holes),
        cmocka_unit_test(test_as_a_file),      cmocka_unit_test(test_approx),
        cmocka_unit_test(test_approx_repeats), cmocka_unit_test(test_floors_can_fail),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
