/* kv: slots and lengths; a clone, a truncation and an eviction leave the bits of a sequence that
 * had never seen anything else.  The controls must differ. */
#include "engine.h"

#include <inttypes.h>

enum { N = 18, V_MAX = ENGINE_VOCAB };

static const uint32_t kvs[] = {FAK_F32, FAK_F16};
static float want[N * V_MAX], got[N * V_MAX];

/* ---- slots and lengths ---- */

static void test_slots(void **state)
{
    engine g;
    uint32_t slot[ENGINE_SLOTS + 1];
    fak_error e;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    (void)state;
    engine_open(&g, "tiny-f32.gguf", "cpu-ref", NULL, &limits, 0);
    for (uint32_t i = 0; i < ENGINE_SLOTS; i++) {
        assert_int_equal(kv_take(&g.kv, &slot[i], &e), FAK_OK);
        assert_in_range(slot[i], 0, ENGINE_SLOTS - 1);
        assert_int_equal(g.kv.length[slot[i]], 0);
        for (uint32_t j = 0; j < i; j++) assert_int_not_equal(slot[i], slot[j]);
    }
    assert_int_equal(kv_take(&g.kv, &slot[ENGINE_SLOTS], &e), FAK_E_KV_FULL);
    assert_message(&e, "all 4 sequences");
    kv_extend(&g.kv, slot[1], 7);
    kv_extend(&g.kv, slot[1], ENGINE_CONTEXT - 7);
    assert_int_equal(g.kv.length[slot[1]], ENGINE_CONTEXT);
    kv_truncate(&g.kv, slot[1], 5);
    assert_int_equal(g.kv.length[slot[1]], 5);
    assert_int_equal(g.kv.length[slot[0]], 0);
    assert_int_equal(kv_give(&g.kv, slot[1], &e), FAK_OK);
    assert_int_equal(kv_take(&g.kv, &slot[ENGINE_SLOTS], &e), FAK_OK);
    assert_int_equal(slot[ENGINE_SLOTS], slot[1]);
    assert_int_equal(g.kv.length[slot[1]], 0);
    engine_close(&g);
}

/* ---- sequences that go on ---- */

/* Ids after what the slot holds, all answers. */
static void append(engine *g, uint32_t slot, const uint32_t *token, uint32_t n, float *out)
{
    engine_feed(g, slot, g->kv.length[slot], token, n, FAK_WANT_LOGITS, out);
    kv_extend(&g->kv, slot, n);
}

static uint32_t take(engine *g)
{
    uint32_t slot;
    fak_error e;
    assert_int_equal(kv_take(&g->kv, &slot, &e), FAK_OK);
    return slot;
}

static void give(engine *g, uint32_t slot)
{
    fak_error e;
    assert_int_equal(kv_give(&g->kv, slot, &e), FAK_OK);
}

/* The answers of a sequence that was fed at once, in a slot of its own. */
static void alone(engine *g, const uint32_t *token, uint32_t n, float *out)
{
    uint32_t slot = take(g);
    append(g, slot, token, n, out);
    give(g, slot);
}

typedef void check(engine *g);

/* Both kv dtypes, kv on the device, on the host and on both. */
static void each_engine(check *f, const char *file, uint32_t flags)
{
    static const char *const ways[] = {"", "refuse=kv", "refuse=kv-layer0", "fused=1", "graph=1"};
    for (uint32_t i = 0; i < 10; i++) {
        engine g;
        fak_limits limits = engine_limits(FAK_ACT_Q8, kvs[i % 2]);
        engine_open(&g, file, "refuser", ways[i / 2], &limits, flags);
        f(&g);
        engine_close(&g);
    }
}

static void check_clone(engine *g)
{
    uint32_t token[N], mixed[N], from = take(g), slot;
    fak_error e;
    engine_tokens(g, 1, token, N);
    engine_tokens(g, 2, mixed, N);
    append(g, from, token, N, want);
    for (uint32_t cut = 0; cut <= N - 5; cut += 4) {
        alone(g, mixed, N, got); /* the slot that the clone will get holds something else */
        assert_int_equal(kv_clone(&g->kv, from, cut, &slot, &e), FAK_OK);
        assert_int_not_equal(slot, from);
        assert_int_equal(g->kv.length[slot], cut);
        append(g, slot, token + cut, N - cut, got); /* the same suffix */
        assert_rows(got, want + (size_t)cut * g->V, (N - cut) * (size_t)g->V);
        give(g, slot);
    }
    assert_int_equal(kv_clone(&g->kv, from, 9, &slot, &e), FAK_OK);
    memcpy(mixed, token, 9 * sizeof *token);
    append(g, slot, mixed + 9, N - 9, got); /* another suffix; the first sequence does not see it */
    float *full = calloc((size_t)N * g->V, sizeof *full);
    assert_non_null(full);
    alone(g, mixed, N, full);
    assert_rows(got, full + 9ul * g->V, (N - 9) * (size_t)g->V);
    free(full);
    kv_truncate(&g->kv, from, 9);
    append(g, from, token + 9, N - 9, got);
    assert_rows(got, want + 9ul * g->V, (N - 9) * (size_t)g->V);
}

static void test_clone(void **state)
{
    (void)state;
    each_engine(check_clone, "tiny-q8_0.gguf", 0);
    each_engine(check_clone, "tiny-f32.gguf", FAK_EVICTABLE);
}

static void check_truncate(engine *g)
{
    uint32_t token[N], other[N], slot = take(g);
    engine_tokens(g, 1, token, N);
    engine_tokens(g, 2, other, N);
    append(g, slot, token, N, want);
    for (uint32_t keep = 0; keep < N; keep += 5) {
        kv_truncate(&g->kv, slot, keep);
        append(g, slot, other, N - keep, got); /* a draft that went wrong */
        assert_memory_not_equal(got, want + (size_t)keep * g->V, g->V * sizeof *got);
        kv_truncate(&g->kv, slot, keep);
        append(g, slot, token + keep, N - keep, got);
        assert_rows(got, want + (size_t)keep * g->V, (N - keep) * (size_t)g->V);
    }
}

static void test_truncate(void **state)
{
    (void)state;
    each_engine(check_truncate, "tiny-q4_1.gguf", 0);
}

/* Positions behind a truncation may hold anything: NaNs there reach nobody. */
static void check_nan_behind(engine *g)
{
    uint32_t token[N], bad[N], slot = take(g);
    engine_tokens(g, 1, token, N);
    alone(g, token, N, want);
    memcpy(bad, token, sizeof bad);
    bad[6] = g->V; /* embeds as NaNs */
    append(g, slot, bad, N, got);
    assert_memory_not_equal(got + 7ul * g->V, want + 7ul * g->V, g->V * sizeof *got);
    kv_truncate(&g->kv, slot, 6);
    append(g, slot, token + 6, 2, got);
    append(g, slot, token + 8, N - 8, got + 2ul * g->V);
    assert_rows(got, want + 6ul * g->V, (N - 6) * (size_t)g->V);
}

static void test_nan_behind(void **state)
{
    (void)state;
    each_engine(check_nan_behind, "tiny-f16.gguf", 0);
}

/* ---- room ---- */

/* One step with a span for each of `slots`, `rows` rows each after what the slot holds. */
static int32_t append_all(engine *g, const uint32_t *slot, uint32_t slots, uint32_t rows,
                          fak_error *e)
{
    uint32_t token[ENGINE_ROWS];
    fak_span span[ENGINE_SLOTS];
    engine_tokens(g, 9, token, ENGINE_ROWS);
    for (uint32_t i = 0; i < slots; i++)
        span[i] = (fak_span){slot[i], i * rows, rows, g->kv.length[slot[i]]};
    step_spec spec = {.rows = slots * rows, .spans = slots, .token = token, .span = span};
    int32_t s = engine_step(g, &spec, NULL, e);
    for (uint32_t i = 0; !s && i < slots; i++) kv_extend(&g->kv, slot[i], rows);
    return s;
}

enum { ROOM = 30 }; /* positions of all slots together */

static void open_narrow(engine *g, const char *options)
{
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    limits.kv_tokens = ROOM;
    engine_open(g, "tiny-f32.gguf", "refuser", options, &limits, 0);
}

/* Two sequences of 10; three spans of 4 need 32.  Nothing has changed when that is refused. */
static void check_full(engine *g)
{
    uint32_t token[N], slot[3];
    fak_error e;
    engine_tokens(g, 1, token, N);
    alone(g, token, 14, want);
    for (uint32_t i = 0; i < 3; i++) slot[i] = take(g);
    append(g, slot[0], token, 10, got);
    append(g, slot[1], token, 10, got);
    assert_int_equal(append_all(g, slot, 3, 4, &e), FAK_E_KV_FULL);
    assert_int_equal(e.code, FAK_E_KV_FULL);
    assert_int_equal(e.index, 2);
    assert_true(e.message[0]);
    append(g, slot[1], token + 10, 4, got); /* the refused step took nothing */
    assert_rows(got, want + 10ul * g->V, 4ul * g->V);
    append(g, slot[2], token, 6, got); /* to the brim */
    assert_rows(got, want, 6ul * g->V);
    assert_int_equal(append_all(g, slot, 1, 1, &e), FAK_E_KV_FULL);
    assert_int_equal(e.index, 0);
    kv_truncate(&g->kv, slot[0], 3); /* its own room is free again */
    append(g, slot[0], token + 3, 7, got);
    assert_rows(got, want + 3ul * g->V, 7ul * g->V);
    give(g, slot[2]);
    append(g, slot[0], token + 10, 4, got); /* and what another one gave back */
    assert_rows(got, want + 10ul * g->V, 4ul * g->V);
}

static void test_full(void **state)
{
    static const char *const ways[] = {"", "refuse=kv", "refuse=kv-layer1", "fused=1", "graph=1"};
    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        engine g;
        open_narrow(&g, ways[i]);
        check_full(&g);
        engine_close(&g);
    }
}

/* What is beyond a span's first is freed before room is judged, in whatever order spans stand. */
static void test_spans_free_first(void **state)
{
    engine g;
    uint32_t token[N], slot[2];
    fak_error e;
    (void)state;
    open_narrow(&g, "");
    engine_tokens(&g, 1, token, N);
    for (uint32_t i = 0; i < 2; i++) slot[i] = take(&g);
    append(&g, slot[0], token, 10, got);
    append(&g, slot[1], token, 18, got);
    g.kv.length[slot[1]] = 2; /* it simply begins earlier: 10 and 2; with 9 more each 30 */
    assert_int_equal(append_all(&g, slot, 2, 9, &e), FAK_OK);
    assert_int_equal(append_all(&g, slot, 1, 1, &e), FAK_E_KV_FULL);
    engine_close(&g);
}

/* A truncated sequence gives its room to others, not only to itself. */
static void test_truncation_gives_room(void **state)
{
    engine g;
    uint32_t token[N], slot[2];
    fak_error e;
    (void)state;
    open_narrow(&g, "");
    engine_tokens(&g, 1, token, N);
    for (uint32_t i = 0; i < 2; i++) slot[i] = take(&g);
    append(&g, slot[0], token, N, got);
    append(&g, slot[1], token, ROOM - N, got);
    assert_int_equal(append_all(&g, slot + 1, 1, 5, &e), FAK_E_KV_FULL);
    kv_truncate(&g.kv, slot[0], N - 5);
    int32_t s = append_all(&g, slot + 1, 1, 5, &e);
    if (s) fail_msg("the room of 5 truncated positions was not given back: %s", e.message);
    engine_close(&g);
}

/* A begin that fails on one side has taken no room on the other, which began before it. */
static void test_failed_begin_takes_no_room(void **state)
{
    engine g;
    uint32_t slot[2];
    fak_error e;
    (void)state;
    open_narrow(&g, "refuse=kv-layer0 fail-step=1");
    assert_true(g.program.holds_kv[SIDE_DEVICE] && g.program.holds_kv[SIDE_HOST]);
    for (uint32_t i = 0; i < 2; i++) slot[i] = take(&g);
    assert_int_equal(append_all(&g, slot, 1, 10, &e), FAK_E_STEP);
    int32_t s = append_all(&g, slot + 1, 1, ROOM, &e);
    if (s) fail_msg("%d positions in an empty kv: %s", ROOM, e.message);
    engine_close(&g);
}

/* No room for a clone: nothing is taken, on no side. */
static void test_clone_without_room(void **state)
{
    static const char *const ways[] = {"", "refuse=kv-layer0"};
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        engine g;
        uint32_t token[N], from, slot = 77;
        fak_error e;
        open_narrow(&g, ways[i]);
        engine_tokens(&g, 1, token, N);
        from = take(&g);
        append(&g, from, token, N, want);
        assert_int_equal(kv_clone(&g.kv, from, ROOM - N + 1, &slot, &e), FAK_E_KV_FULL);
        for (uint32_t j = 0; j < ENGINE_SLOTS; j++) assert_int_equal(g.kv.used[j], j == from);
        assert_int_equal(kv_clone(&g.kv, from, ROOM - N, &slot, &e), FAK_OK);
        kv_truncate(&g.kv, slot, 9);
        append(&g, slot, token + 9, ROOM - N - 9, got);
        assert_rows(got, want + 9ul * g.V, (ROOM - N - 9ul) * g.V);
        engine_close(&g);
    }
}

/* What the target of a clone held is free for the clone itself. */
static void test_clone_over(void **state)
{
    engine g;
    uint32_t token[N], slot[2];
    fak_error e;
    (void)state;
    open_narrow(&g, "");
    engine_tokens(&g, 1, token, N);
    for (uint32_t i = 0; i < 2; i++) slot[i] = take(&g);
    append(&g, slot[0], token, N, want);
    append(&g, slot[1], token + 3, ROOM - N, got);
    const fak_backend *api = &g.backend.dev.api;
    fak_program *p = g.program.handle[SIDE_DEVICE];
    assert_int_equal(api->kv_clone(p, slot[1], slot[0], ROOM - N + 1, &e), FAK_E_KV_FULL);
    assert_int_equal(api->kv_clone(p, slot[1], slot[0], ROOM - N, &e), FAK_OK);
    g.kv.length[slot[1]] = 8;
    append(&g, slot[1], token + 8, 2, got);
    assert_rows(got, want + 8ul * g.V, 2ul * g.V);
    engine_close(&g);
}

/* ---- eviction ---- */

static void test_evict_gives_room(void **state)
{
    engine g;
    uint32_t token[N], slot[2];
    fak_error e;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    (void)state;
    limits.kv_tokens = ROOM;
    engine_open(&g, "tiny-f32.gguf", "cpu-ref", NULL, &limits, FAK_EVICTABLE);
    engine_tokens(&g, 1, token, N);
    for (uint32_t i = 0; i < 2; i++) slot[i] = take(&g);
    append(&g, slot[0], token, N, got);
    append(&g, slot[1], token, ROOM - N, got);
    assert_int_equal(append_all(&g, slot + 1, 1, 5, &e), FAK_E_KV_FULL);
    assert_int_equal(kv_evict(&g.kv, slot[0], 2, 5, &e), FAK_OK);
    assert_int_equal(append_all(&g, slot + 1, 1, 5, &e), FAK_OK);
    assert_int_equal(append_all(&g, slot + 1, 1, 1, &e), FAK_E_KV_FULL);
    engine_close(&g);
}

static void check_evict_tail(engine *g)
{
    uint32_t token[N], other[N], slot = take(g);
    fak_error e;
    engine_tokens(g, 1, token, N);
    engine_tokens(g, 2, other, N);
    alone(g, token, N, want);
    append(g, slot, token, 7, got);
    append(g, slot, other, 6, got);
    assert_int_equal(kv_evict(&g->kv, slot, 7, 6, &e), FAK_OK);
    assert_int_equal(g->kv.length[slot], 7);
    append(g, slot, token + 7, N - 7, got);
    assert_rows(got, want + 7ul * g->V, (N - 7) * (size_t)g->V);
    assert_int_equal(kv_evict(&g->kv, slot, N, 0, &e), FAK_OK); /* nothing */
    assert_int_equal(g->kv.length[slot], N);
}

static void test_evict_tail(void **state)
{
    (void)state;
    each_engine(check_evict_tail, "tiny-f32.gguf", FAK_EVICTABLE);
    each_engine(check_evict_tail, "tiny-q4_0.gguf", FAK_EVICTABLE);
}

/* Feeds N - 2 ids, drops [first, first + count) and asks for two more; then the same without ever
 * having seen what was dropped. */
static void evict_and_compare(engine *g, uint32_t first, uint32_t count, int truncated)
{
    uint32_t token[N], rest[N], left = N - 2 - count, slot = take(g);
    fak_error e;
    engine_tokens(g, 1, token, N);
    for (uint32_t i = 0; i < left; i++) rest[i] = token[i < first ? i : i + count];
    append(g, slot, token, N - 2, got);
    if (truncated) { /* the device still holds more than the sequence has */
        append(g, slot, token, 2, got);
        kv_truncate(&g->kv, slot, N - 2);
    }
    assert_int_equal(kv_evict(&g->kv, slot, first, count, &e), FAK_OK);
    assert_int_equal(g->kv.length[slot], left);
    append(g, slot, token + N - 2, 2, got);
    give(g, slot);
    memcpy(rest + left, token + N - 2, 2 * sizeof *token);
    alone(g, rest, left + 2, want);
}

/* Where no row attended to what goes (one layer: keys know nothing but their own token). */
static void test_evict_one_layer(void **state)
{
    static const char *const ways[] = {"", "fused=1", "refuse=kv", "refuse=rope graph=1"};
    uint64_t random = random_begin();
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        engine g;
        fak_error e;
        fak_limits limits = engine_limits(FAK_ACT_F32, kvs[i % 2]);
        engine_begin(&g, "tiny-f32.gguf", "refuser", ways[i / 2]);
        g.tiny.model.layers = 1; /* as if the file had no more */
        if (engine_try(&g, &limits, FAK_EVICTABLE, &e)) fail_msg("%s", e.message);
        for (uint32_t first = 0; first < N - 2; first++) {
            uint32_t count = 1 + random_below(&random, N - 2 - first);
            evict_and_compare(&g, first, count, first % 2);
            assert_rows(got, want + (N - 2 - count) * (size_t)g.V, 2ul * g.V);
        }
        engine_close(&g);
    }
}

/* Control: from the second layer on, keys carry what their rows attended to. */
static void test_evict_two_layers_differs(void **state)
{
    engine g;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    (void)state;
    engine_open(&g, "tiny-f32.gguf", "cpu-ref", NULL, &limits, FAK_EVICTABLE);
    evict_and_compare(&g, 3, 4, 0);
    assert_memory_not_equal(got, want + (N - 2 - 4) * (size_t)g.V, g.V * sizeof *got);
    evict_and_compare(&g, 0, 1, 0);
    assert_memory_not_equal(got, want + (N - 2 - 1) * (size_t)g.V, g.V * sizeof *got);
    evict_and_compare(&g, 9, N - 2 - 9, 0); /* a tail: equal */
    assert_rows(got, want + 9ul * g.V, 2ul * g.V);
    engine_close(&g);
}

static void test_evict_needs_raw_keys(void **state)
{
    engine g;
    fak_error e;
    uint32_t token[N];
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    (void)state;
    engine_open(&g, "tiny-f32.gguf", "cpu-ref", NULL, &limits, 0);
    uint32_t slot = take(&g);
    engine_tokens(&g, 1, token, N);
    append(&g, slot, token, N, got);
    assert_int_equal(kv_evict(&g.kv, slot, 2, 3, &e), FAK_E_ARGUMENT);
    assert_message(&e, "evictable");
    assert_int_equal(g.kv.length[slot], N);
    engine_close(&g);
}

/* ---- the backend's own kv calls ---- */

static void test_kv_read_write(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        static float k[3][N][32], v[3][N][32];
        engine g;
        fak_error e;
        uint32_t token[N];
        uint64_t ticket;
        fak_limits limits = engine_limits(FAK_ACT_F32, kvs[i]);
        engine_open(&g, "tiny-untied.gguf", "cpu-ref", NULL, &limits, 0);
        const fak_backend *api = &g.backend.dev.api;
        fak_program *p = g.program.handle[SIDE_DEVICE];
        assert_int_equal(g.tiny.model.kv_heads * g.tiny.model.head_dim, 32);
        engine_tokens(&g, 1, token, N);
        engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, want);
        for (uint32_t l = 0; l < 3; l++) { /* carried over by hand, in two pieces */
            assert_int_equal(api->kv_read(p, 0, l, 0, N, k[l], v[l], &ticket, &e), FAK_OK);
            assert_int_equal(ticket, 0);
            assert_int_equal(api->kv_write(p, 2, l, 0, 5, k[l], v[l], &e), FAK_OK);
            assert_int_equal(api->kv_write(p, 2, l, 5, N - 6, k[l][5], v[l][5], &e), FAK_OK);
        }
        assert_memory_not_equal(k[0], k[1], sizeof k[0]);
        engine_feed(&g, 2, N - 1, token + N - 1, 1, FAK_WANT_LOGITS, got);
        assert_rows(got, want + (N - 1) * (size_t)g.V, g.V);
        k[1][3][17] += 1; /* one poisoned key */
        assert_int_equal(api->kv_write(p, 2, 1, 3, 1, k[1][3], v[1][3], &e), FAK_OK);
        engine_feed(&g, 2, N - 1, token + N - 1, 1, FAK_WANT_LOGITS, got);
        assert_memory_not_equal(got, want + (N - 1) * (size_t)g.V, g.V * sizeof *got);
        engine_close(&g);
    }
}

static void test_out_of_range(void **state)
{
    engine g;
    fak_error e;
    uint64_t ticket;
    uint32_t token[N];
    static float k[N * 32], v[N * 32];
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    (void)state;
    engine_open(&g, "tiny-f32.gguf", "cpu-ref", NULL, &limits, FAK_EVICTABLE);
    const fak_backend *api = &g.backend.dev.api;
    fak_program *p = g.program.handle[SIDE_DEVICE];
    engine_tokens(&g, 1, token, N);
    engine_feed(&g, 1, 0, token, N, FAK_WANT_LOGITS, want);
    assert_int_equal(api->kv_clone(p, 1, 1, 3, &e), FAK_E_ARGUMENT);
    assert_message(&e, "itself");
    assert_int_equal(api->kv_clone(p, 0, 1, N + 1, &e), FAK_E_ARGUMENT);
    assert_int_equal(api->kv_clone(p, ENGINE_SLOTS, 1, 3, &e), FAK_E_ARGUMENT);
    assert_int_equal(api->kv_clone(p, 0, ENGINE_SLOTS, 0, &e), FAK_E_ARGUMENT);
    assert_int_equal(api->kv_trim(p, ENGINE_SLOTS, 0, &e), FAK_E_ARGUMENT);
    assert_int_equal(api->kv_evict(p, 1, N, 1, &e), FAK_E_ARGUMENT);
    assert_int_equal(api->kv_evict(p, 1, 5, N - 4, &e), FAK_E_ARGUMENT);
    assert_int_equal(api->kv_evict(p, 1, 5, UINT32_MAX - 3, &e), FAK_E_ARGUMENT);
    assert_int_equal(api->kv_read(p, 1, 2, 0, 1, k, v, &ticket, &e), FAK_E_ARGUMENT);
    assert_int_equal(api->kv_read(p, 1, 0, ENGINE_CONTEXT, 1, k, v, &ticket, &e), FAK_E_ARGUMENT);
    assert_int_equal(api->kv_read(p, 1, 0, UINT32_MAX, 2, k, v, &ticket, &e), FAK_E_ARGUMENT);
    fak_span span = {0, 0, 1, 1}; /* begins beyond what the slot holds */
    step_spec spec = {.rows = 1, .spans = 1, .token = token, .span = &span};
    assert_int_equal(engine_step(&g, &spec, NULL, &e), FAK_E_ARGUMENT);
    assert_int_equal(e.index, 0);
    engine_feed(&g, 1, N - 1, token + N - 1, 1, FAK_WANT_LOGITS, got); /* nothing has changed */
    assert_rows(got, want + (N - 1) * (size_t)g.V, g.V);
    engine_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_clone),
        cmocka_unit_test(test_truncate),
        cmocka_unit_test(test_nan_behind),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_spans_free_first),
        cmocka_unit_test(test_truncation_gives_room),
        cmocka_unit_test(test_failed_begin_takes_no_room),
        cmocka_unit_test(test_clone_without_room),
        cmocka_unit_test(test_clone_over),
        cmocka_unit_test(test_evict_gives_room),
        cmocka_unit_test(test_evict_tail),
        cmocka_unit_test(test_evict_one_layer),
        cmocka_unit_test(test_evict_two_layers_differs),
        cmocka_unit_test(test_evict_needs_raw_keys),
        cmocka_unit_test(test_kv_read_write),
        cmocka_unit_test(test_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
