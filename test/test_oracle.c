/* test_oracle - the real model against transformers' float32 values (test/data/oracle_smollm2.json).
 * usage: test_oracle [short].  FAK_TEST_MODEL names SmolLM2-135M-Instruct.Q4_1.gguf; without it: 77. */
#include "../core/plugin.h"
#include "../core/session.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PROMPTS = 4, GREEDY = 64, WANTED = 32 };
static const char *const names[PROMPTS] = {"prose", "code", "chat", "long"};
static json_t *oracle;
static int short_form;

typedef struct engine {
    gguf *file;
    model m;
    plugins all;
    device dev, host;
    session s;
} engine;

static void open_engine(engine *x, uint32_t dtype, uint32_t act)
{
    plugin_host services = {0};
    session_options o = {.wanted = WANTED, .act = act};
    fak_error e = {0};
    memset(x, 0, sizeof *x);
    if (gguf_open(&x->file, getenv("FAK_TEST_MODEL"), &e) ||
        model_open(&x->m, x->file, dtype, 512, &e) ||
        plugins_open(&x->all, &(plugin_search){0}, &services, &e))
        fail_msg("%s", e.message);
    plugin *ref = plugins_linked_in(&x->all, "cpu-ref");
    if (plugin_load(&x->all, ref, &e) || device_open(&x->dev, ref, 0, NULL, 0, &e) ||
        device_open(&x->host, ref, 0, NULL, 0, &e) ||
        session_open(&x->s, &x->m, &x->dev, &x->host, &o, NULL, NULL, &e))
        fail_msg("%s", e.message);
}

static void close_engine(engine *x)
{
    session_close(&x->s);
    device_close(&x->dev);
    device_close(&x->host);
    plugins_close(&x->all);
    model_close(&x->m);
    gguf_close(x->file);
}

static json_t *prompt_of(int i, const char *key)
{
    return json_object_get(json_object_get(json_object_get(oracle, "prompts"), names[i]), key);
}

static uint32_t ids_of(int i, const char *key, uint32_t *id)
{
    json_t *list = prompt_of(i, key);
    uint32_t n = (uint32_t)json_array_size(list);
    for (uint32_t j = 0; j < n; j++) id[j] = (uint32_t)json_integer_value(json_array_get(list, j));
    return n;
}

static uint32_t argmax(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static double nll(const float *x, uint32_t n, uint32_t id)
{
    double most = x[argmax(x, n)], sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += exp(x[i] - most);
    return most + log(sum) - x[id];
}

/* All logits of a prompt, [tokens, V]; the caller frees. */
static float *logits_of(engine *x, uint32_t slot, const uint32_t *id, uint32_t n)
{
    float *logits = malloc((size_t)n * x->m.vocab * sizeof *logits);
    fak_error e = {0};
    assert_non_null(logits);
    if (session_feed(&x->s, slot, id, n, FAK_WANT_LOGITS, 1, logits, &e)) fail_msg("%s", e.message);
    return logits;
}

/* Largest difference from the logits that the oracle gives for the last position. */
static double last_difference(int i, const float *last)
{
    double worst = 0;
    json_t *first = prompt_of(i, "logit_last_first8"), *top = prompt_of(i, "top5_last");
    for (size_t j = 0; j < json_array_size(first); j++)
        worst = fmax(worst, fabs(last[j] - json_number_value(json_array_get(first, j))));
    for (size_t j = 0; j < json_array_size(top); j++) {
        json_t *pair = json_array_get(top, j);
        uint32_t id = (uint32_t)json_integer_value(json_array_get(pair, 0));
        worst = fmax(worst, fabs(last[id] - json_number_value(json_array_get(pair, 1))));
    }
    return worst;
}

static void greedy(engine *x, uint32_t slot, int i)
{
    uint32_t want[GREEDY], id;
    fak_error e = {0};
    assert_int_equal(ids_of(i, "greedy_ids", want), GREEDY);
    uint32_t n = x->s.kv.length[slot], last[512];
    ids_of(i, "prompt_ids", last);
    kv_truncate(&x->s.kv, slot, n - 1);
    id = last[n - 1];
    for (int t = 0; t < GREEDY; t++) {
        uint32_t next;
        if (session_feed(&x->s, slot, &id, 1, FAK_WANT_ARGMAX, 0, &next, &e))
            fail_msg("%s", e.message);
        if (next != want[t]) fail_msg("%s: greedy id %d is %u, not %u", names[i], t, next, want[t]);
        id = next;
    }
}

static void test_f32_is_the_oracle(void **state)
{
    engine x;
    double worst = 0;
    (void)state;
    open_engine(&x, FAK_F32, FAK_ACT_F32);
    for (int i = 0; i < (short_form ? 2 : PROMPTS); i++) {
        uint32_t id[512], best[512], slot, n = ids_of(i, "prompt_ids", id);
        fak_error e;
        assert_int_equal(ids_of(i, "argmax_all_positions", best), n);
        assert_int_equal(kv_take(&x.s.kv, &slot, &e), 0);
        float *logits = logits_of(&x, slot, id, n);
        for (uint32_t t = 0; t < n; t++)
            if (argmax(logits + (size_t)t * x.m.vocab, x.m.vocab) != best[t])
                fail_msg("%s: argmax differs at position %u", names[i], t);
        worst = fmax(worst, last_difference(i, logits + (size_t)(n - 1) * x.m.vocab));
        greedy(&x, slot, i);
        free(logits);
        assert_int_equal(kv_give(&x.s.kv, slot, &e), 0);
    }
    print_message("max|logit - oracle| = %.2g\n", worst);
    assert_true(worst < 1e-3);
    close_engine(&x);
}

static void test_file_dtype_is_near(void **state)
{
    engine x;
    uint32_t equal = 0, positions = 0;
    double loss = 0;
    (void)state;
    open_engine(&x, 0, 0);
    assert_int_equal(x.s.program.limits.numerics, FAK_ACT_Q8);
    for (int i = 0; i < PROMPTS; i++) {
        uint32_t id[512], best[512], slot, n = ids_of(i, "prompt_ids", id);
        fak_error e;
        ids_of(i, "argmax_all_positions", best);
        assert_int_equal(kv_take(&x.s.kv, &slot, &e), 0);
        float *logits = logits_of(&x, slot, id, n);
        for (uint32_t t = 0; t < n; t++)
            equal += argmax(logits + (size_t)t * x.m.vocab, x.m.vocab) == best[t];
        positions += n;
        for (uint32_t t = 0; i == 3 && t + 1 < n; t++)
            loss += nll(logits + (size_t)t * x.m.vocab, x.m.vocab, id[t + 1]) / (n - 1);
        free(logits);
        assert_int_equal(kv_give(&x.s.kv, slot, &e), 0);
    }
    double want = json_number_value(prompt_of(3, "mean_nll"));
    print_message("argmax equal at %u of %u positions (%.1f %%); NLL of long %.4f (oracle %.4f)\n",
                  equal, positions, 100.0 * equal / positions, loss, want);
    assert_int_equal(positions, 367);
    assert_true(equal >= 0.96 * positions);
    assert_true(fabs(loss - want) < 0.005 * want);
    close_engine(&x);
}

/* The whole model, not a tiny one: prefill equals token by token, bit for bit. */
static void test_split_is_exact(void **state)
{
    engine x;
    uint32_t id[512], one, two, n = 0;
    fak_error e = {0};
    (void)state;
    open_engine(&x, 0, 0);
    n = ids_of(2, "prompt_ids", id);
    assert_int_equal(kv_take(&x.s.kv, &one, &e), 0);
    float *whole = logits_of(&x, one, id, n), *part = malloc(x.m.vocab * sizeof *part);
    assert_int_equal(kv_give(&x.s.kv, one, &e), 0);
    assert_int_equal(kv_take(&x.s.kv, &two, &e), 0);
    for (uint32_t t = 0; t < n; t++) {
        if (session_feed(&x.s, two, id + t, 1, FAK_WANT_LOGITS, 0, part, &e))
            fail_msg("%s", e.message);
        assert_memory_equal(part, whole + (size_t)t * x.m.vocab, x.m.vocab * sizeof *part);
    }
    free(whole);
    free(part);
    close_engine(&x);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32_is_the_oracle),
                                       cmocka_unit_test(test_file_dtype_is_near),
                                       cmocka_unit_test(test_split_is_exact)};
    short_form = argc > 1 && !strcmp(argv[1], "short");
    if (!getenv("FAK_TEST_MODEL")) {
        printf("skipped: FAK_TEST_MODEL does not name the model (scripts/fetch-model)\n");
        return 77;
    }
    oracle = json_load_file(TEST_DATA "/oracle_smollm2.json", 0, NULL);
    if (!oracle) {
        printf("%s/oracle_smollm2.json cannot be read\n", TEST_DATA);
        return 1;
    }
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(oracle);
    return rc;
}
