/* Drawn ids through a session: the same for a seed however the work is cut and whoever does it, and
 * log-probabilities that are those of the logits. */
#include "engine.h"

#include "../core/session.h"

#include <math.h>

enum { PROMPT = 11, NEW = 16, TOP = 3 };

typedef struct way {
    const char *backend, *options;
    uint32_t rows;
} way;

static const way ways[] = {
    {"cpu-ref", "", 0},
    {"cpu-ref", "", 1},
    {"cpu-ref", "fused=1", 7},
    {"refuser", "fused=1 graph=1", 3},
    {"refuser", "refuse=rope+matmul async=1", 0},
    {"refuser", "refuse=kv-layer0 graph=1", 5},
};

/* The caller frees what run holds. */
static void generate(const char *file, const way *w, const sampler_options *how, uint32_t logprobs,
                     generation *run)
{
    engine g;
    session s = {0};
    sampler draws = {0};
    uint32_t slot, token[PROMPT];
    fak_error e = {0};
    engine_begin(&g, file, w->backend, w->options);
    engine_tokens(&g, 1, token, PROMPT);
    *run = (generation){.prompt = token,
                        .prompt_count = PROMPT,
                        .max_new = NEW,
                        .sampler = how ? &draws : NULL,
                        .logprobs = logprobs};
    if ((how && sampler_open(&draws, how, g.V, &e)) ||
        session_open(&s, &g.tiny.model, &g.backend.dev, &g.backend.host,
                     &(session_options){.context = ENGINE_CONTEXT, .rows = w->rows}, NULL, NULL,
                     &e) ||
        kv_take(&s.kv, &slot, &e) || session_generate(&s, slot, run, &e))
        fail_msg("%s on %s %s: %s", file, w->backend, w->options, e.message);
    assert_int_equal(run->ids.count, NEW);
    session_close(&s);
    sampler_close(&draws);
    engine_close(&g);
}

static void release(generation *run)
{
    token_ids_free(&run->ids);
    free(run->logprob);
}

static const sampler_options draws = {
    .temperature = 0.9f, .top_k = 100, .top_p = 0.9f, .min_p = 0.01f, .seed = 5};

static void test_same_seed_same_ids(void **state)
{
    static const sampler_options tells = {
        .temperature = 0.9f, .top_k = 100, .top_p = 0.9f, .min_p = 0.01f, .seed = 5, .logprobs = 1};
    (void)state;
    for (uint32_t m = 0; m < TINY_MODELS; m++) {
        generation first, other;
        sampler_options again = draws;
        generate(tiny_names[m], &ways[0], &draws, 0, &first);
        for (size_t w = 1; w < sizeof ways / sizeof *ways; w++) {
            generate(tiny_names[m], &ways[w], w % 2 ? &draws : &tells, w % 2 ? 0 : 1 + TOP, &other);
            assert_memory_equal(other.ids.id, first.ids.id, NEW * sizeof *first.ids.id);
            release(&other);
        }
        again.seed = 6;
        generate(tiny_names[m], &ways[0], &again, 0, &other);
        assert_memory_not_equal(other.ids.id, first.ids.id, NEW * sizeof *first.ids.id);
        release(&other);
        generate(tiny_names[m], &ways[0], NULL, 0, &other);
        assert_memory_not_equal(other.ids.id, first.ids.id, NEW * sizeof *first.ids.id);
        release(&other);
        release(&first);
    }
}

/* Pinned: a seed is a text on every machine. */
static void test_golden(void **state)
{
    static const uint32_t want[2][NEW] = {
        {162, 128, 226, 53, 279, 4, 265, 47, 136, 158, 10, 180, 32, 16, 119, 281},
        {222, 140, 113, 258, 50, 136, 32, 165, 55, 116, 250, 265, 72, 71, 71, 101}};
    (void)state;
    for (int m = 0; m < 2; m++) {
        generation run;
        generate(m ? "tiny-q4_1.gguf" : "tiny-f32.gguf", &ways[0], &draws, 0, &run);
        for (uint32_t i = 0; i < NEW; i++)
            if (run.ids.id[i] != want[m][i])
                fail_msg("model %d: id %u is %u, not %u", m, i, run.ids.id[i], want[m][i]);
        release(&run);
    }
}

/* One candidate left is greedy, and so is asking for log-probabilities only. */
static void test_greedy(void **state)
{
    static const sampler_options how[] = {{.temperature = 3, .top_k = 1, .top_p = 1},
                                          {.temperature = 3, .top_p = 0},
                                          {.temperature = 3, .top_p = 1, .min_p = 1},
                                          {.logprobs = 1},
                                          {.top_k = 3, .seed = 4}};
    (void)state;
    for (int i = 0; i < 5 * 2; i++) {
        const char *file = i % 2 ? "tiny-q8_0.gguf" : "tiny-untied.gguf";
        generation plain, other;
        generate(file, &ways[0], NULL, 0, &plain);
        generate(file, &ways[i % 3], &how[i / 2], how[i / 2].logprobs ? 1 : 0, &other);
        assert_memory_equal(other.ids.id, plain.ids.id, NEW * sizeof *plain.ids.id);
        assert_true(!other.logprob == !how[i / 2].logprobs);
        release(&plain);
        release(&other);
    }
}

/* A row for each id: its own, then the most likely; against the logits fed by hand. */
static void test_logprobs(void **state)
{
    static const sampler_options how = {.temperature = 2, .top_p = 1, .seed = 1, .logprobs = 1};
    static float logits[NEW * ENGINE_VOCAB];
    generation run;
    engine g;
    uint32_t token[PROMPT + NEW];
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    (void)state;
    generate("tiny-f32.gguf", &ways[1], &how, 1 + TOP, &run);
    engine_open(&g, "tiny-f32.gguf", "cpu-ref", NULL, &limits, 0);
    engine_tokens(&g, 1, token, PROMPT);
    memcpy(token + PROMPT, run.ids.id, NEW * sizeof *token);
    engine_feed(&g, 0, 0, token, PROMPT - 1, FAK_WANT_NONE, NULL);
    engine_feed(&g, 0, PROMPT - 1, token + PROMPT - 1, NEW, FAK_WANT_LOGITS, logits);
    for (uint32_t i = 0; i < NEW; i++) {
        const float *row = logits + (size_t)i * g.V;
        const sampler_logprob *said = run.logprob + (size_t)i * (1 + TOP);
        double sum = 0;
        uint32_t above = 0;
        for (uint32_t j = 0; j < g.V; j++) {
            sum += exp((double)row[j]);
            above += row[j] > row[said[TOP].id];
        }
        assert_int_equal(above, TOP - 1);
        assert_int_equal(said[0].id, run.ids.id[i]);
        for (uint32_t j = 0; j <= TOP; j++)
            assert_true(fabs(said[j].logprob - (row[said[j].id] - log(sum))) < 1e-5);
        assert_true(said[1].logprob > said[2].logprob && said[2].logprob > said[3].logprob);
    }
    engine_close(&g);
    release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_seed_same_ids),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_logprobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
