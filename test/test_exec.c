/* Steps: however a sequence is cut into steps, whatever else is in them and whoever runs which op,
 * the logits have the same bits. */
#include "engine.h"

#include <inttypes.h>

enum { N = 20, V_MAX = ENGINE_VOCAB };

static const uint32_t acts[] = {FAK_ACT_F32, FAK_ACT_Q8}, kvs[] = {FAK_F32, FAK_F16, FAK_BF16};

static float want[N * V_MAX], got[ENGINE_ROWS * V_MAX];

/* Calls f with every tiny model on cpu-ref, act mode and kv dtype. */
static void each_engine(void (*f)(engine *g, uint64_t *random), uint64_t *random)
{
    for (uint32_t i = 0; i < TINY_MODELS * 6; i++) {
        engine g;
        fak_limits limits = engine_limits(acts[i % 2], kvs[i / 2 % 3]);
        engine_open(&g, tiny_names[i / 6], "cpu-ref", NULL, &limits, 0);
        f(&g, random);
        engine_close(&g);
    }
}

/* ---- one sequence, cut in any way ---- */

static void feed_split(engine *g, uint32_t slot, const uint32_t *token, uint64_t *random)
{
    for (uint32_t at = 0, n; at < N; at += n) {
        n = random ? 1 + random_below(random, N - at) : 1;
        engine_feed(g, slot, at, token + at, n, FAK_WANT_LOGITS, got + (size_t)at * g->V);
    }
}

static void check_splits(engine *g, uint64_t *random)
{
    uint32_t token[N];
    engine_tokens(g, 1, token, N);
    engine_feed(g, 0, 0, token, N, FAK_WANT_LOGITS, want);
    assert_memory_not_equal(want, want + g->V, g->V * sizeof *want);
    for (int i = 0; i < 4; i++) {
        memset(got, 0, sizeof got);
        feed_split(g, i % 2 ? 0 : 3, token, i ? random : NULL); /* first one by one */
        assert_rows(got, want, (size_t)N * g->V);
    }
}

static void test_splits(void **state)
{
    uint64_t random = random_begin();
    (void)state;
    each_engine(check_splits, &random);
}

/* What must make a difference does: else the comparisons above could not fail. */
static void test_modes_differ(void **state)
{
    (void)state;
    uint32_t token[N];
    for (int i = 0; i < 2; i++) { /* kv dtype of an F32 model; act mode of a Q4_1 one */
        const char *file = i ? "tiny-q4_1.gguf" : "tiny-f32.gguf";
        for (int j = 0; j < 2; j++) {
            engine g;
            fak_limits limits = engine_limits(i ? acts[j] : FAK_ACT_F32, i ? FAK_F32 : kvs[j]);
            engine_open(&g, file, "cpu-ref", NULL, &limits, 0);
            engine_tokens(&g, 1, token, N);
            engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, j ? got : want);
            engine_close(&g);
        }
        assert_memory_not_equal(got, want, N * 100 * sizeof *want);
    }
}

/* ---- several sequences in a step ---- */

enum { SEQUENCES = 3 };

/* Two steps of three spans: lengths differ, and in the second two go on while one begins. */
static const fak_span batch[2][SEQUENCES] = {
    {{2, 0, 9, 0}, {0, 9, 1, 0}, {3, 10, 6, 0}},
    {{1, 0, 4, 0}, {2, 4, 1, 9}, {0, 5, 12, 1}},
};

static void batch_step(engine *g, uint32_t n, const uint32_t *token, void *out)
{
    const fak_span *last = &batch[n][SEQUENCES - 1];
    fak_error e;
    step_spec spec = {.want = FAK_WANT_LOGITS,
                      .rows = last->row + last->rows,
                      .wanted = last->row + last->rows,
                      .spans = SEQUENCES,
                      .token = token,
                      .wanted_row = engine_rows,
                      .span = batch[n]};
    if (engine_step(g, &spec, out, &e)) fail_msg("batch %" PRIu32 ": %s", n, e.message);
}

/* Each span of both steps on its own, into want (step n at row n * ENGINE_ROWS / 2). */
static void check_batch(engine *g, uint64_t *random)
{
    static float alone[ENGINE_ROWS * V_MAX];
    uint32_t token[2][ENGINE_ROWS / 2];
    (void)random;
    for (uint32_t n = 0; n < 2; n++) {
        engine_tokens(g, 2 + n, token[n], ENGINE_ROWS / 2);
        for (uint32_t i = 0; i < SEQUENCES; i++) {
            const fak_span *s = &batch[n][i];
            engine_feed(g, s->slot, s->first, token[n] + s->row, s->rows, FAK_WANT_LOGITS,
                        alone + (n * ENGINE_ROWS / 2 + s->row) * (size_t)g->V);
        }
    }
    for (uint32_t n = 0; n < 2; n++) {
        const fak_span *last = &batch[n][SEQUENCES - 1];
        memset(got, 0, sizeof got);
        batch_step(g, n, token[n], got);
        assert_rows(got, alone + n * ENGINE_ROWS / 2 * (size_t)g->V,
                    (size_t)(last->row + last->rows) * g->V);
    }
}

static void test_batch(void **state)
{
    (void)state;
    each_engine(check_batch, NULL);
}

/* ---- argmax ---- */

static uint32_t first_maximum(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static void check_argmax(engine *g, uint64_t *random)
{
    uint32_t token[N], id[N], seen = 0;
    (void)random;
    engine_tokens(g, 4, token, N);
    engine_feed(g, 0, 0, token, N, FAK_WANT_LOGITS, want);
    engine_feed(g, 1, 0, token, N, FAK_WANT_ARGMAX, id);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(id[i], first_maximum(want + (size_t)i * g->V, g->V));
        seen += id[i] != id[0];
    }
    assert_true(seen > 0);
}

static void test_argmax(void **state)
{
    (void)state;
    each_engine(check_argmax, NULL);
}

enum { CHAIN = 6 };

/* One step of three spans of one row each; token NULL: the last step's argmax. */
static void greedy_step(engine *g, uint32_t first, const uint32_t *token, uint32_t *id)
{
    const fak_span span[SEQUENCES] = {{2, 0, 1, first}, {0, 1, 1, first}, {1, 2, 1, first}};
    fak_error e;
    step_spec spec = {.want = FAK_WANT_ARGMAX,
                      .flags = token ? 0 : FAK_TOKENS_FROM_ARGMAX,
                      .rows = SEQUENCES,
                      .wanted = SEQUENCES,
                      .spans = SEQUENCES,
                      .token = token,
                      .wanted_row = engine_rows,
                      .span = span};
    if (engine_step(g, &spec, id, &e)) fail_msg("at %" PRIu32 ": %s", first, e.message);
}

static void check_from_argmax(engine *g, uint64_t *random)
{
    uint32_t token[SEQUENCES], hand[CHAIN][SEQUENCES], kept[CHAIN][SEQUENCES];
    (void)random;
    engine_tokens(g, 5, token, SEQUENCES);
    for (uint32_t i = 0; i < CHAIN; i++) greedy_step(g, i, i ? hand[i - 1] : token, hand[i]);
    for (uint32_t i = 0; i < CHAIN; i++) greedy_step(g, i, i ? NULL : token, kept[i]);
    assert_memory_equal(kept, hand, sizeof hand);
    for (uint32_t i = 0; i < CHAIN; i++) /* most ids are never looked at */
        greedy_step(g, i, i ? NULL : token, i + 1 < CHAIN ? NULL : kept[i]);
    assert_memory_equal(kept[CHAIN - 1], hand[CHAIN - 1], sizeof *hand);
}

static void test_tokens_from_argmax(void **state)
{
    (void)state;
    each_engine(check_from_argmax, NULL);
    engine g;
    fak_limits limits = engine_limits(FAK_ACT_Q8, FAK_F32);
    engine_open(&g, "tiny-q8_0.gguf", "cpu-ref", "fused=1", &limits, 0);
    check_from_argmax(&g, NULL);
    engine_close(&g);
}

/* Without as many ids before there is nothing to take: the step fails.  Ids by hand still work. */
static void test_tokens_from_nothing(void **state)
{
    (void)state;
    engine g;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    engine_open(&g, "tiny-f32.gguf", "cpu-ref", NULL, &limits, 0);
    uint32_t token[2] = {5, 6}, id[2];
    fak_error e;
    fak_span span = {0, 0, 2, 0};
    step_spec spec = engine_spec(&span, NULL, FAK_WANT_ARGMAX);
    spec.flags = FAK_TOKENS_FROM_ARGMAX;
    for (uint32_t before = 0; before < 3; before++) { /* no step; one id; logits, not ids */
        if (before)
            engine_feed(&g, 0, 0, token, before, before == 1 ? FAK_WANT_ARGMAX : FAK_WANT_LOGITS,
                        got);
        assert_int_equal(engine_step(&g, &spec, id, &e), FAK_E_ARGUMENT);
        assert_message(&e, "argmax");
    }
    engine_feed(&g, 0, 0, token, 2, FAK_WANT_ARGMAX, id);
    engine_close(&g);
}

/* EMBED and ARGMAX are on one device; that other ops are holes must not matter. */
static void test_tokens_from_argmax_with_holes(void **state)
{
    (void)state;
    engine g;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    engine_open(&g, "tiny-f32.gguf", "refuser", "refuse=rope", &limits, 0);
    assert_int_equal(g.program.holes, 2);
    check_from_argmax(&g, NULL);
    engine_close(&g);
}

/* ---- whoever runs it ---- */

static const char *const ways[] = {
    "",
    "fused=1",
    "refuse=rope",
    "refuse=rope+glu",
    "refuse=kv",
    "refuse=att-layer1",
    "refuse=kv-layer0",
    "refuse=matmul",
    "refuse=matmul-layer1+rmsnorm",
    "refuse=embed",
    "refuse=argmax",
    "refuse=take_rows",
    "refuse=add+rmsnorm",
    "refuse=all keep=matmul",
    "refuse=all keep=kv",
    "refuse=all",
    "refuse=fusion fused=1",
    "refuse=fusion-layer1 fused=1",
    "refuse=ffn+norm_matmul-layer0 fused=1",
    "refuse=kv fused=1",
    "refuse=glu+matmul+rope fused=1",
    "async=1",
    "async=1 refuse=rope+glu+argmax",
    "async=1 fused=1 refuse=fusion-layer1",
    "graph=1",
    "graph=1 refuse=rope+glu",
    "graph=1 async=1 refuse=embed+att-layer1+argmax",
    "graph=1 refuse=all keep=matmul",
    "late=glu",
    "late=attention fused=1",
    "late=ffn fused=1",
    "graph=1 late=matmul",
    "partial-kv=1",
    "partial-kv=1 fused=1",
    "partial-kv=1 graph=1",
};
enum { WAYS = sizeof ways / sizeof *ways };

/* Prefill, decode, a batch and ids, all answers one after another; how many floats. */
static size_t sample_of(engine *g, float *out)
{
    uint32_t token[N];
    float *at = out;
    engine_tokens(g, 6, token, N);
    engine_feed(g, 0, 0, token, N - 3, FAK_WANT_LOGITS, at);
    at += (N - 3) * (size_t)g->V;
    for (uint32_t i = N - 3; i < N; i++, at += g->V)
        engine_feed(g, 0, i, token + i, 1, FAK_WANT_LOGITS, at);
    for (uint32_t n = 0; n < 2; n++) {
        batch_step(g, n, token, at);
        at += (batch[n][SEQUENCES - 1].row + batch[n][SEQUENCES - 1].rows) * (size_t)g->V;
    }
    uint32_t id[N];
    engine_feed(g, 1, 0, token, N, FAK_WANT_ARGMAX, id);
    for (uint32_t i = 0; i < N; i++) *at++ = (float)id[i];
    return (size_t)(at - out);
}

static void check_ways(const char *file, uint32_t act, uint32_t kv_dtype)
{
    static float ref[4 * N * V_MAX], out[4 * N * V_MAX];
    engine g;
    fak_limits limits = engine_limits(act, kv_dtype);
    engine_open(&g, file, "cpu-ref", NULL, &limits, 0);
    size_t count = sample_of(&g, ref);
    engine_close(&g);
    for (uint32_t w = 0; w <= WAYS; w++) { /* the last: cpu-ref's own fusion */
        memset(out, 0, sizeof out);
        engine_open(&g, file, w < WAYS ? "refuser" : "cpu-ref", w < WAYS ? ways[w] : "fused=1",
                    &limits, 0);
        int equal = sample_of(&g, out) == count && !memcmp(out, ref, count * sizeof *out);
        if (!equal) print_error("%s, \"%s\":\n", file, w < WAYS ? ways[w] : "cpu-ref fused=1");
        assert_rows(out, ref, count);
        engine_close(&g);
    }
}

static void test_ways_f32(void **state)
{
    (void)state;
    check_ways("tiny-f32.gguf", FAK_ACT_F32, FAK_F32);
}

static void test_ways_blocks(void **state)
{
    (void)state;
    check_ways("tiny-q4_1.gguf", FAK_ACT_Q8, FAK_F16);
    check_ways("tiny-q8_0.gguf", FAK_ACT_F32, FAK_BF16);
}

static void test_ways_untied(void **state)
{
    (void)state;
    check_ways("tiny-untied.gguf", FAK_ACT_F32, FAK_F16);
}

/* The output of a hole is on the device before the next range runs, also when it comes in later. */
static void test_holes_are_filled_in_time(void **state)
{
    (void)state;
    float alone[N];
    engine g;
    uint32_t token[N];
    fak_error e;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    engine_open(&g, "tiny-f32.gguf", "refuser", "refuse=embed+rmsnorm+rope", &limits, 0);
    engine_tokens(&g, 1, token, N);
    fak_span span = {0, 0, N, 0};
    step_spec spec = engine_spec(&span, token, FAK_WANT_ARGMAX);
    if (engine_step(&g, &spec, alone, &e)) fail_msg("%s", e.message);
    engine_close(&g);
}

/* ---- counts ---- */

typedef struct counts {
    const char *options;
    uint32_t want, rows, wanted;
    uint64_t device, host, ranges, crossed_bytes;
} counts;

#define ONE_V (1ull << 40) /* a row of logits */

/* tiny-f32: 2 layers of 15 ops, width 64, ffn 96, kv 32; embed; tails of 3 and 4 ops.  A row of 64
 * is 256 bytes. */
static const counts known[] = {
    {"", FAK_WANT_LOGITS, 7, 2, 34, 0, 2, 0},
    {"", FAK_WANT_ARGMAX, 7, 2, 35, 0, 2, 0},
    {"", FAK_WANT_LOGITS, 7, 0, 31, 0, 1, 0},
    {"", FAK_WANT_NONE, 1, 0, 31, 0, 1, 0},
    {"fused=1", FAK_WANT_LOGITS, 7, 2, 13, 0, 2, 0}, /* embed, 5 a layer; take_rows, norm_matmul */
    {"fused=1", FAK_WANT_ARGMAX, 7, 2, 14, 0, 2, 0}, /* take_rows, rmsnorm, matmul_argmax */
    {"graph=1", FAK_WANT_LOGITS, 7, 2, 34, 0, 2, 0},
    /* q goes and comes back, in each layer */
    {"refuse=rope", FAK_WANT_LOGITS, 7, 2, 32, 2, 6, 2 * 2 * 7 * 256},
    {"graph=1 refuse=rope", FAK_WANT_NONE, 7, 0, 29, 2, 5, 2 * 2 * 7 * 256},
    /* gate and up go, h comes back */
    {"refuse=glu-layer1", FAK_WANT_NONE, 5, 0, 30, 1, 3, 3 * 5 * 384},
    /* q, k and v go (raw q is rotated on the device), y comes back */
    {"refuse=att-layer1", FAK_WANT_NONE, 5, 0, 29, 2, 3, 5 * (256 + 128 + 128 + 256)},
    {"refuse=embed", FAK_WANT_NONE, 9, 0, 30, 1, 2, 9 * 256},
    /* logits go, of the wanted rows only; the ids are read from the host's side */
    {"refuse=argmax", FAK_WANT_ARGMAX, 9, 2, 34, 1, 3, ONE_V * 2},
    /* x goes, the wanted rows of it come back */
    {"refuse=take_rows", FAK_WANT_LOGITS, 9, 2, 33, 1, 3, 9 * 256 + 2 * 256},
    {"refuse=take_rows", FAK_WANT_NONE, 9, 0, 31, 0, 1, 0},
    {"refuse=all", FAK_WANT_LOGITS, 9, 2, 0, 34, 2, 0},
    /* x and o go and their sum comes back, down goes; the last sum is for a tail, when one runs */
    {"refuse=add-layer1", FAK_WANT_NONE, 5, 0, 29, 2, 4, 4 * 5 * 256},
    {"refuse=add-layer1", FAK_WANT_LOGITS, 7, 2, 32, 2, 5, 5 * 7 * 256},
};

static void check_counts(const counts *k)
{
    static const uint32_t wanted[] = {3, 4};
    uint32_t token[ENGINE_ROWS];
    engine g;
    fak_error e;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    engine_open(&g, "tiny-f32.gguf", "refuser", k->options, &limits, 0);
    engine_tokens(&g, 1, token, k->rows);
    fak_span span = {0, 0, k->rows, 0};
    step_spec spec = engine_spec(&span, token, k->want);
    spec.wanted = k->wanted;
    spec.wanted_row = wanted;
    uint64_t crossed = k->crossed_bytes < ONE_V ? k->crossed_bytes
                                                : k->crossed_bytes / ONE_V * 4 * g.V;
    for (uint64_t n = 1; n < 3; n++) { /* they add up */
        span.first = n == 2 ? k->rows : 0;
        if (engine_step(&g, &spec, got, &e)) fail_msg("\"%s\": %s", k->options, e.message);
        if (g.exec.ops[SIDE_DEVICE] != n * k->device || g.exec.ops[SIDE_HOST] != n * k->host ||
            g.exec.ranges != n * k->ranges || g.exec.crossed_bytes != n * crossed)
            fail_msg("\"%s\", %" PRIu64 " steps: ops %" PRIu64 " and %" PRIu64 ", %" PRIu64
                     " ranges, %" PRIu64 " bytes",
                     k->options, n, g.exec.ops[SIDE_DEVICE], g.exec.ops[SIDE_HOST], g.exec.ranges,
                     g.exec.crossed_bytes);
    }
    engine_close(&g);
}

static void test_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) check_counts(&known[i]);
}

/* A device that holds nothing back is called as often as counted; run once a range. */
static void test_calls(void **state)
{
    (void)state;
    for (int graph = 0; graph < 2; graph++) {
        engine g;
        uint32_t token[N];
        fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
        refuser_seen = (refuser_counts){0};
        engine_open(&g, "tiny-f32.gguf", "refuser", graph ? "graph=1" : "async=1", &limits, 0);
        assert_int_equal(refuser_seen.programs, 1);
        engine_tokens(&g, 1, token, N);
        engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, got);
        assert_int_equal(refuser_seen.calls, graph ? 2 : 34);
        assert_int_equal(refuser_seen.begins, 1);
        assert_int_equal(refuser_seen.reads, 1);
        assert_int_equal(refuser_seen.writes, 0);
        engine_close(&g);
        assert_int_equal(refuser_seen.programs, 0);
    }
}

/* The refuser's tickets are worth something: nothing is there before wait. */
static void test_tickets(void **state)
{
    (void)state;
    engine g;
    uint32_t token[N];
    uint64_t ticket[2];
    fak_error e;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    engine_open(&g, "tiny-f32.gguf", "refuser", "async=1", &limits, 0);
    engine_tokens(&g, 1, token, N);
    engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, want);
    const fak_backend *api = &g.backend.dev.api;
    fak_program *p = g.program.handle[SIDE_DEVICE];
    uint32_t out = plan_tail(g.program.fused.block, 0).out;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(api->read(p, out, i, 1, got + (size_t)i * g.V, &ticket[i], &e), FAK_OK);
        assert_memory_not_equal(got + (size_t)i * g.V, want + (size_t)i * g.V, g.V * sizeof *got);
    }
    assert_true(ticket[0] && ticket[1] > ticket[0]);
    assert_int_equal(api->wait(p, ticket[1], 0, &e), FAK_PENDING);
    assert_int_equal(api->wait(p, ticket[1], 0, &e), FAK_OK);
    assert_rows(got, want, 2ul * g.V);
    assert_int_equal(api->wait(p, ticket[1] + 1, 0, &e), FAK_E_ARGUMENT);
    engine_close(&g);
}

static int32_t (*real_wait)(fak_program *, uint64_t, uint32_t, fak_error *);
static uint32_t pending;
static int32_t slow_wait(fak_program *p, uint64_t ticket, uint32_t timeout_ms, fak_error *e)
{
    return pending++ % 3 < 2 ? FAK_PENDING : real_wait(p, ticket, timeout_ms, e);
}

/* A wait may be over before the ticket is done, even one for ever. */
static void test_waits_again(void **state)
{
    engine g;
    uint32_t token[N];
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    (void)state;
    engine_open(&g, "tiny-f32.gguf", "cpu-ref", NULL, &limits, 0);
    engine_tokens(&g, 1, token, N);
    engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, want);
    engine_close(&g);
    engine_open(&g, "tiny-f32.gguf", "refuser", "async=1", &limits, 0);
    real_wait = g.backend.dev.api.wait;
    g.backend.dev.api.wait = slow_wait;
    memset(got, 0, sizeof got);
    engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, got);
    assert_rows(got, want, (size_t)N * g.V);
    assert_int_equal(pending, 3);
    engine_close(&g);
}

/* ---- steps that fail ---- */

/* Where the device refuses a step, the host's kv has no more in use than before. */
static void test_refused_step_takes_no_room(void **state)
{
    engine g;
    uint32_t token[8];
    fak_error e;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    (void)state;
    limits.kv_tokens = 10;
    engine_open(&g, "tiny-f32.gguf", "refuser", "refuse=att-layer1 fail-step=1", &limits, 0);
    assert_true(g.program.holds_kv[SIDE_HOST] && g.program.holds_kv[SIDE_DEVICE]);
    engine_tokens(&g, 1, token, 8);
    for (uint32_t slot = 0; slot < 2; slot++) {
        fak_span span = {slot, 0, 8, 0};
        step_spec spec = engine_spec(&span, token, FAK_WANT_LOGITS);
        assert_int_equal(engine_step(&g, &spec, got, &e), slot ? FAK_OK : FAK_E_STEP);
    }
    engine_close(&g);
}

/* Fails begin or op number `at`; 0 when the run had fewer. */
static int fail_and_repeat(const char *options, uint32_t at, const float *ref)
{
    char with[128];
    uint32_t token[N], failed = 0, half = N / 2;
    engine g;
    fak_error e;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F16);
    snprintf(with, sizeof with, "%s fail-step=%" PRIu32, options, at);
    engine_open(&g, "tiny-f32.gguf", "refuser", with, &limits, 0);
    engine_tokens(&g, 1, token, N);
    for (uint32_t first = 0; first < N; first += half) {
        fak_span span = {1, 0, half, first};
        step_spec spec = engine_spec(&span, token + first, FAK_WANT_LOGITS);
        int32_t s = engine_step(&g, &spec, got + first * (size_t)g.V, &e);
        if (!s) continue;
        assert_int_equal(s, FAK_E_STEP);
        assert_int_equal(e.code, FAK_E_STEP);
        assert_message(&e, "refuser: ");
        failed++;
        first -= half; /* again */
    }
    assert_rows(got, ref, (size_t)N * g.V);
    engine_close(&g);
    assert_true(failed < 2);
    return failed == 1;
}

static void test_failed_steps_repeat(void **state)
{
    static const char *const how[] = {"fused=1", "graph=1 async=1",
                                      "graph=1 refuse=rope+att-layer1", "refuse=matmul"};
    static const uint32_t steps[] = {2 * (1 + 13), 2 * (1 + 2), 2 * (1 + 4), 2 * (1 + 19)};
    uint32_t token[N];
    engine g;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F16);
    (void)state;
    engine_open(&g, "tiny-f32.gguf", "cpu-ref", NULL, &limits, 0);
    engine_tokens(&g, 1, token, N);
    engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, want);
    engine_close(&g);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t n = 0;
        while (fail_and_repeat(how[i], n + 1, want)) n++;
        if (n != steps[i]) fail_msg("\"%s\": %" PRIu32 " begins and ops failed", how[i], n);
    }
}

/* ---- wanted rows ---- */

static void test_wanted_subset(void **state)
{
    static const uint32_t wanted[] = {0, 3, N - 1};
    static const char *const how[] = {"", "fused=1", "refuse=take_rows", "graph=1 refuse=matmul"};
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t token[N];
        engine g;
        fak_error e;
        fak_limits limits = engine_limits(FAK_ACT_Q8, FAK_F32);
        engine_open(&g, "tiny-q4_0.gguf", "refuser", how[i], &limits, 0);
        engine_tokens(&g, 1, token, N);
        engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, want);
        fak_span span = {1, 0, N, 0};
        step_spec spec = engine_spec(&span, token, FAK_WANT_LOGITS);
        spec.wanted = 3;
        spec.wanted_row = wanted;
        memset(got, 0, sizeof got);
        if (engine_step(&g, &spec, got, &e)) fail_msg("\"%s\": %s", how[i], e.message);
        for (uint32_t r = 0; r < 3; r++)
            assert_rows(got + (size_t)r * g.V, want + (size_t)wanted[r] * g.V, g.V);
        for (size_t r = 3ul * g.V; r < 4ul * g.V; r++) assert_true(got[r] == 0); /* no more */
        engine_close(&g);
    }
}

/* Nothing is wanted: no tail runs, out is left alone, and what comes after is right. */
static void test_nothing_wanted(void **state)
{
    uint32_t token[N];
    engine g;
    fak_error e;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    (void)state;
    engine_open(&g, "tiny-untied.gguf", "cpu-ref", NULL, &limits, 0);
    engine_tokens(&g, 1, token, N);
    engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, want);
    uint64_t ops = g.exec.ops[SIDE_DEVICE];
    fak_span span = {1, 0, N - 1, 0};
    step_spec spec = engine_spec(&span, token, FAK_WANT_LOGITS);
    spec.wanted = 0;
    got[0] = 42;
    if (engine_step(&g, &spec, got, &e)) fail_msg("%s", e.message);
    assert_int_equal(g.exec.ops[SIDE_DEVICE] - ops, 1 + 3 * 15);
    assert_true(got[0] == 42);
    engine_feed(&g, 1, N - 1, token + N - 1, 1, FAK_WANT_LOGITS, got);
    assert_rows(got, want + (N - 1) * (size_t)g.V, g.V);
    engine_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_modes_differ),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_argmax),
        cmocka_unit_test(test_tokens_from_argmax),
        cmocka_unit_test(test_tokens_from_nothing),
        cmocka_unit_test(test_tokens_from_argmax_with_holes),
        cmocka_unit_test(test_ways_f32),
        cmocka_unit_test(test_ways_blocks),
        cmocka_unit_test(test_ways_untied),
        cmocka_unit_test(test_holes_are_filled_in_time),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_tickets),
        cmocka_unit_test(test_waits_again),
        cmocka_unit_test(test_refused_step_takes_no_room),
        cmocka_unit_test(test_failed_steps_repeat),
        cmocka_unit_test(test_wanted_subset),
        cmocka_unit_test(test_nothing_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
