/* test_cpu_real - plugins/cpu on the real model: every logit is the reference's, bit for bit, whatever the
 * tier and the threads.  usage: test_cpu_real PLUGIN.so [short | DTYPE...].  short: one prompt, Q4_1 as in
 * the file and F32.  DTYPE: only these of the eight, which take ten minutes each on two cores.
 * FAK_TEST_MODEL names SmolLM2-135M-Instruct.Q4_1.gguf; without it: 77. */
#include "../core/plugin.h"
#include "../core/session.h"
#include "../core/ref.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PROMPTS = 4, GREEDY = 64, ROWS = 32, MOST = 512 };
static const char *const prompts[PROMPTS] = {"chat", "prose", "code", "long"};
static const char *const tiers[] = {"scalar", "avx2", "avx512", "avx512-vnni", "neon", "neon-dot"};
static const char *plugin_path;
static const char *const *chosen; /* [chosen_count] names of dtypes; none: all */
static int short_form, chosen_count;
static json_t *oracle;

typedef struct run { /* what the reference said: ids that were fed, and the logits of each */
    uint32_t id[MOST], prompt, count;
    float *logits;
} run;

static void read_prompt(run *r, int i)
{
    json_t *list = json_object_get(json_object_get(json_object_get(oracle, "prompts"), prompts[i]),
                                   "prompt_ids");
    r->prompt = (uint32_t)json_array_size(list);
    assert_in_range(r->prompt + GREEDY, GREEDY + 1, MOST);
    for (uint32_t j = 0; j < r->prompt; j++)
        r->id[j] = (uint32_t)json_integer_value(json_array_get(list, j));
}

/* Feeds the prompt whole and then one id at a time.  compare: against r->logits, else into them, and the
 * next id is their argmax.  Returns how many logits differ. */
static uint64_t feed(session *s, run *r, int compare)
{
    uint32_t slot, V = s->m->vocab;
    uint64_t differ = 0;
    fak_error e = {0};
    float *rows = malloc((size_t)ROWS * V * sizeof *rows);
    assert_non_null(rows);
    if (kv_take(&s->kv, &slot, &e)) fail_msg("%s", e.message);
    for (uint32_t at = 0, n; at < r->prompt + GREEDY; at += n) {
        n = at < r->prompt ? r->prompt - at : 1;
        if (n > ROWS) n = ROWS;
        if (at >= r->prompt && !compare)
            r->id[at] = ref_argmax(V, r->logits + (size_t)(at - 1) * V);
        if (session_feed(s, slot, r->id + at, n, FAK_WANT_LOGITS, 1, rows, &e))
            fail_msg("%s", e.message);
        float *keep = r->logits + (size_t)at * V;
        for (size_t i = 0; compare && i < (size_t)n * V; i++)
            differ += memcmp(&rows[i], &keep[i], 4) != 0;
        if (!compare) memcpy(keep, rows, (size_t)n * V * sizeof *rows);
    }
    if (kv_give(&s->kv, slot, &e)) fail_msg("%s", e.message);
    free(rows);
    return differ;
}

static int32_t open_session(session *s, const model *m, device *dev, device *host, fak_error *e)
{
    session_options o = {.context = MOST, .rows = ROWS, .wanted = ROWS};
    return session_open(s, m, dev, host, &o, NULL, NULL, e);
}

/* All tiers that this machine has, each with 1, 2 and 3 threads. */
static void compare_all(plugin *p, device *host, const model *m, run *r, int count,
                        const char *what)
{
    for (size_t t = 0; t < sizeof tiers / sizeof *tiers; t++)
        for (int threads = 1; threads <= 3; threads++) {
            char number[4];
            snprintf(number, sizeof number, "%d", threads);
            const fak_setting set[] = {{"tier", tiers[t]}, {"threads", number}};
            device dev;
            session s;
            fak_error e = {0};
            if (device_open(&dev, p, 0, set, 2, &e)) continue; /* not of this machine */
            if (open_session(&s, m, &dev, host, &e)) fail_msg("%s", e.message);
            assert_int_equal(s.program.holes, 0);
            for (int i = 0; i < count; i++) {
                uint64_t differ = feed(&s, &r[i], 1);
                print_message("%s %s %s, %d threads: %llu of %llu logits differ\n", what,
                              prompts[i], tiers[t], threads, (unsigned long long)differ,
                              (unsigned long long)(r[i].prompt + GREEDY) * m->vocab);
                assert_int_equal(differ, 0);
            }
            session_close(&s);
            device_close(&dev);
        }
}

static const char *name_of(uint32_t dtype)
{
    return dtype ? dtype_name(dtype) : "file";
}

static void check_dtype(plugins *all, device *host, uint32_t dtype)
{
    gguf *file;
    model m;
    session s;
    fak_error e = {0};
    static run r[PROMPTS];
    int count = short_form ? 1 : PROMPTS;
    if (gguf_open(&file, getenv("FAK_TEST_MODEL"), &e) || model_open(&m, file, dtype, MOST, &e) ||
        open_session(&s, &m, host, host, &e))
        fail_msg("%s", e.message);
    for (int i = 0; i < count; i++) {
        read_prompt(&r[i], i);
        r[i].logits = malloc((size_t)(r[i].prompt + GREEDY) * m.vocab * sizeof(float));
        assert_non_null(r[i].logits);
        feed(&s, &r[i], 0);
    }
    session_close(&s);
    compare_all(&all->at[0], host, &m, r, count, name_of(dtype));
    for (int i = 0; i < count; i++) free(r[i].logits);
    model_close(&m);
    gguf_close(file);
}

static const uint32_t dtypes[] = {0,        FAK_F32,  FAK_F16,  FAK_BF16,
                                  FAK_Q8_0, FAK_Q4_0, FAK_Q5_0, FAK_Q5_1};

static int is_asked(const char *name, size_t place)
{
    for (int i = 0; i < chosen_count; i++)
        if (!strcmp(chosen[i], name)) return 1;
    return short_form ? place < 2 : !chosen_count;
}

static void test_every_logit(void **state)
{
    static const plugin_host services;
    plugins all;
    device host;
    fak_error e = {0};
    (void)state;
    if (plugins_open(&all, &(plugin_search){plugin_path, NULL, 1}, &services, &e))
        fail_msg("%s", e.message);
    int asked = 0;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        asked += is_asked(name_of(dtypes[i]), i);
    if (asked < chosen_count)
        fail_msg("one of the names is none of: file f32 f16 bf16 q8_0 q4_0 q5_0 q5_1");
    plugin *ref = plugins_linked_in(&all, "cpu-ref");
    if (plugin_load(&all, ref, &e) || plugin_load(&all, &all.at[0], &e) ||
        device_open(&host, ref, 0, NULL, 0, &e))
        fail_msg("%s", e.message);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (is_asked(name_of(dtypes[i]), i)) check_dtype(&all, &host, dtypes[i]);
    device_close(&host);
    plugins_close(&all);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_logit)};
    if (!getenv("FAK_TEST_MODEL")) {
        printf("FAK_TEST_MODEL does not name the model\n");
        return 77;
    }
    plugin_path = argc > 1 ? argv[1] : "";
    short_form = argc > 2 && !strcmp(argv[2], "short");
    chosen = (const char *const *)argv + 2;
    chosen_count = argc > 2 && !short_form ? argc - 2 : 0;
    oracle = json_load_file(TEST_DATA "/oracle_smollm2.json", 0, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
