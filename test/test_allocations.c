/* Every allocation of prepare, load and step fails once: FAK_E_MEMORY with a sentence, nothing
 * leaks (the sanitizer build tells), and all works afterwards.  Linked with -Wl,--wrap=malloc,
 * --wrap=calloc,--wrap=realloc: what goes through the C library itself (strdup) is not seen. */
#include "engine.h"

#include "../core/session.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *at, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *at, size_t bytes);

static long left = -1;   /* allocations until one fails; below 0: none does */
static int ever_after;   /* and all that come after it */
static unsigned refused; /* how many failed */

static int refuse(void)
{
    if (left < 0) return 0;
    if (left > 0) {
        left--;
        return 0;
    }
    if (!ever_after) left = -1;
    refused++;
    return 1;
}

void *__wrap_malloc(size_t bytes)
{
    return refuse() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return refuse() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *at, size_t bytes)
{
    return refuse() ? NULL : __real_realloc(at, bytes);
}

static void fail_from(long at, int ever)
{
    left = at;
    ever_after = ever;
    refused = 0;
}

/* No more failures from here on; how many there were. */
static unsigned stop_failing(void)
{
    left = -1;
    return refused;
}

/* A call that met a failed allocation says so, and one that met none is done. */
static void assert_told(int32_t s, const fak_error *e, unsigned failed, long at, const char *what)
{
    if ((s != FAK_OK) != (failed > 0))
        fail_msg("%s: allocation %ld failed and the answer is %d", what, at, (int)s);
    if (s == FAK_OK) return;
    if (s != FAK_E_MEMORY || e->code != s || !strstr(e->message, "memory"))
        fail_msg("%s: allocation %ld: %d, \"%s\"", what, at, (int)s, e->message);
}

/* ---- prepare, load, step ---- */

enum { N = 9 };
static float want[N * ENGINE_VOCAB], got[N * ENGINE_VOCAB];

typedef struct way {
    const char *backend, *options, *file;
    uint32_t act, kv_dtype, flags;
    long least; /* allocations that there are at least */
} way;

static const way ways[] = {
    {"cpu-ref", "", "tiny-q8_0.gguf", FAK_ACT_Q8, FAK_F32, 0, 60},
    {"cpu-ref", "fused=1", "tiny-f16.gguf", FAK_ACT_F32, FAK_F16, FAK_EVICTABLE, 60},
    {"refuser", "refuse=glu", "tiny-q4_1.gguf", FAK_ACT_Q8, FAK_F32, 0, 90},
    {"refuser", "fused=1 refuse=kv-layer0+ffn async=1", "tiny-f32.gguf", FAK_ACT_F32, FAK_F32, 0,
     120},
    {"refuser", "late=rmsnorm", "tiny-f32.gguf", FAK_ACT_F32, FAK_F32, 0, 120},
};

/* One step of all ids in slot 1. */
static int32_t step(engine *g, const uint32_t *token, fak_error *e)
{
    fak_span span = {1, 0, N, 0};
    step_spec spec = engine_spec(&span, token, FAK_WANT_LOGITS);
    memset(got, 0, sizeof got);
    return engine_step(g, &spec, got, e);
}

/* What is left after a failure can be tried again where it stands: load, then open, then step. */
static int32_t go_on(engine *g, const fak_limits *limits, const way *w, fak_error *e)
{
    int32_t s = FAK_OK;
    if (!g->program.handle[SIDE_DEVICE] || (g->program.holes && !g->program.handle[SIDE_HOST])) {
        engine_end(g);
        return engine_try(g, limits, w->flags, e);
    }
    exec_close(&g->exec);
    kv_close(&g->kv);
    s = program_load(&g->program, NULL, NULL, e);
    if (!s) s = exec_open(&g->exec, &g->program, e);
    return s ? s : kv_open(&g->kv, &g->program, e);
}

/* Fails allocation `at`; 0 when there are not so many. */
static int fail_one(const way *w, long at, int ever)
{
    uint32_t token[N];
    engine g;
    fak_error e = {0};
    fak_limits limits = engine_limits(w->act, w->kv_dtype);
    engine_begin(&g, w->file, w->backend, w->options);
    engine_tokens(&g, 1, token, N);
    fail_from(at, ever);
    int32_t s = engine_try(&g, &limits, w->flags, &e);
    int opened = !s;
    if (!s) s = step(&g, token, &e);
    unsigned failed = stop_failing();
    assert_told(s, &e, failed, at, w->options);
    if (s && !opened && go_on(&g, &limits, w, &e))
        fail_msg("%s: after allocation %ld: %s", w->options, at, e.message);
    if (s && step(&g, token, &e))
        fail_msg("%s: a step after allocation %ld: %s", w->options, at, e.message);
    assert_rows(got, want, N * (size_t)g.V);
    engine_close(&g);
    return failed > 0;
}

static void test_prepare_load_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const way *w = &ways[i];
        engine g;
        uint32_t token[N];
        fak_error e;
        fak_limits limits = engine_limits(w->act, w->kv_dtype);
        engine_open(&g, w->file, "cpu-ref", NULL, &limits, 0);
        engine_tokens(&g, 1, token, N);
        assert_int_equal(step(&g, token, &e), FAK_OK);
        memcpy(want, got, sizeof want);
        engine_close(&g);
        for (int ever = 0; ever < 2; ever++) {
            long at = 0;
            while (fail_one(w, at, ever)) at++;
            print_message("%s %s: %ld allocations failed\n", w->backend, w->options, at);
            assert_true(at >= w->least);
        }
    }
}

/* ---- sessions ---- */

/* Opens and generates, drawing ids and keeping log-probabilities; the results are run's. */
static int32_t run_session(engine *g, generation *run, const uint32_t *token, fak_error *e)
{
    static const sampler_options how = {.temperature = 1, .top_p = 1, .logprobs = 1};
    session s = {0};
    sampler draws;
    uint32_t slot;
    *run = (generation){
        .prompt = token, .prompt_count = N, .max_new = 5, .sampler = &draws, .logprobs = 3};
    *e = (fak_error){0};
    int32_t rc = sampler_open(&draws, &how, g->V, e);
    if (!rc)
        rc = session_open(&s, &g->tiny.model, &g->backend.dev, &g->backend.host,
                          &(session_options){.context = ENGINE_CONTEXT}, NULL, NULL, e);
    if (!rc) rc = kv_take(&s.kv, &slot, e);
    if (!rc) rc = session_generate(&s, slot, run, e);
    session_close(&s);
    sampler_close(&draws);
    return rc;
}

static void test_session(void **state)
{
    uint32_t token[N];
    engine g;
    fak_error e;
    generation good, run;
    (void)state;
    engine_begin(&g, "tiny-q8_0.gguf", "cpu-ref", NULL);
    engine_tokens(&g, 1, token, N);
    assert_int_equal(run_session(&g, &good, token, &e), FAK_OK);
    for (int ever = 0; ever < 2; ever++) {
        unsigned failed = 1;
        for (long at = 0; failed; at++) { /* always on the same device */
            fail_from(at, ever);
            int32_t s = run_session(&g, &run, token, &e);
            failed = stop_failing();
            assert_told(s, &e, failed, at, "session");
            if (!s) assert_int_equal(run.ids.count, 5);
            if (!s) assert_memory_equal(run.ids.id, good.ids.id, 5 * sizeof *run.ids.id);
            token_ids_free(&run.ids);
            free(run.logprob);
            assert_true(at < 1000);
        }
    }
    token_ids_free(&good.ids);
    free(good.logprob);
    engine_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prepare_load_step),
        cmocka_unit_test(test_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
