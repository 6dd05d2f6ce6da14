/* test_vulkan - plugins/vulkan on a model, step by step: a token is one submit, recorded ranges give what
 * eager ones give, nothing is taken after load; told: dispatches, and what a token costs the calling
 * thread.  usage: test_vulkan PLUGIN.so MODEL [act=q8] [NAME=VALUE ...].  77 where the device is absent. */
#include "../core/plugin.h"
#include "../core/rig.h"
#include "../core/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { PROMPT = 9, TOKENS = 12, CONTEXT = 64, SETTINGS = 8 };
static const uint32_t prompt[PROMPT] = {5, 17, 101, 2, 33, 64, 150, 8, 90};
static const char *plugin_path, *model_path;
static fak_setting set[SETTINGS + 1]; /* the last: recorded=0|1 */
static uint32_t settings, act = FAK_ACT_F32;
static plugins all;
static device host;
static gguf *file;
static model m;

typedef struct told {                /* of the prompt, then of the tokens after it */
    uint32_t id[TOKENS], evicted[2]; /* after an eviction: of the clone, of the first */
    fak_stats first, before, after;
    double host_us; /* of a token, the median */
} told;

static double thread_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void open_session(session *s, device *dev)
{
    fak_error e = {0};
    session_options o = {.context = CONTEXT, .slots = 3, .rows = 16, .act = act};
    o.flags = FAK_EVICTABLE;
    if (session_open(s, &m, dev, &host, &o, NULL, NULL, &e)) fail_msg("%s", e.message);
    assert_int_equal(s->program.holes, 0);
}

/* A prompt, tokens one by one, a clone that goes on alone, evictions from both. */
static void generate(session *s, device *dev, told *t)
{
    uint32_t slot, other, id;
    double us[TOKENS] = {0};
    int there;
    fak_error e = {0};
    int32_t rc = kv_take(&s->kv, &slot, &e);
    t->first = rig_stats(dev, &there);
    if (!rc) rc = session_feed(s, slot, prompt, PROMPT, FAK_WANT_ARGMAX, 0, &id, &e);
    t->before = rig_stats(dev, &there);
    for (int i = 0; !rc && i < TOKENS; i++) {
        double start = thread_us();
        t->id[i] = id;
        rc = session_feed(s, slot, &t->id[i], 1, FAK_WANT_ARGMAX, 0, &id, &e);
        us[i] = thread_us() - start;
    }
    qsort(us, TOKENS, sizeof *us, ascending);
    t->host_us = us[TOKENS / 2];
    t->after = rig_stats(dev, &there);
    if (!rc) rc = kv_clone(&s->kv, slot, PROMPT, &other, &e);
    if (!rc) rc = session_feed(s, other, t->id, 3, FAK_WANT_ARGMAX, 0, &id, &e);
    if (!rc) assert_int_equal(id, t->id[3]);
    for (int i = 0; !rc && i < 2; i++) {
        uint32_t of = i ? slot : other;
        rc = kv_evict(&s->kv, of, 2, 5, &e);
        if (!rc) rc = session_feed(s, of, prompt, 2, FAK_WANT_ARGMAX, 0, &t->evicted[i], &e);
    }
    if (rc) fail_msg("%s", e.message);
}

static void run_on(plugin *p, uint32_t n, told *t)
{
    device dev;
    session s;
    fak_error e = {0};
    if (device_open(&dev, p, 0, set, n, &e)) fail_msg("%s", e.message);
    open_session(&s, &dev);
    generate(&s, &dev, t);
    session_close(&s);
    device_close(&dev);
}

static void test_tokens(void **state)
{
    static told reference, of[2];
    session s;
    (void)state;
    open_session(&s, &host);
    generate(&s, &host, &reference);
    session_close(&s);
    for (uint32_t recorded = 0; recorded < 2; recorded++) {
        told *t = &of[recorded];
        set[settings] = (fak_setting){"recorded", recorded ? "1" : "0"};
        run_on(&all.at[0], settings + 1, t);
        uint64_t submits = t->after.submits - t->before.submits;
        uint64_t dispatches = t->after.dispatches - t->before.dispatches;
        print_message("%s: %.2f submits, %.1f dispatches, %.1f us of the calling thread a token; "
                      "%d submits for the prompt\n",
                      recorded ? "recorded" : "eager", (double)submits / TOKENS,
                      (double)dispatches / TOKENS, t->host_us,
                      (int)(t->before.submits - t->first.submits));
        assert_int_equal(submits, TOKENS);
        assert_int_equal(t->after.allocations, t->before.allocations);
        assert_int_equal(t->after.bytes_down - t->before.bytes_down, 4 * TOKENS);
        assert_memory_equal(t->id, reference.id, sizeof t->id);
        assert_memory_equal(t->evicted, reference.evicted, sizeof t->evicted);
    }
    assert_int_equal(of[0].after.dispatches - of[0].before.dispatches,
                     of[1].after.dispatches - of[1].before.dispatches);
}

/* A block of activations with an infinity makes NaNs of its row, and of no other. */
static void test_infinity_in_q8(void **state)
{
    static const uint32_t dtypes[] = {FAK_Q8_0, FAK_Q4_0, FAK_Q4_1, FAK_Q4_K, FAK_Q6_K};
    device dev;
    fak_error e = {0};
    (void)state;
    if (device_open(&dev, &all.at[0], 0, set, settings, &e)) fail_msg("%s", e.message);
    for (size_t i = 0; i < 5 && dev.facts.numerics & FAK_ACT_Q8; i++) {
        rig r;
        int32_t rc = rig_open(&r, &dev, FAK_ACT_Q8, 12, 1, 16, 5, &e);
        uint32_t x = rig_input(&r, 256, 0), w = rig_weight(&r, dtypes[i], 40, 256, 0, 1);
        uint32_t y = rig_op(&r, (fak_op){.id = FAK_OP_SCALE, .in = {x}, .scale = 3e38f});
        rig_op(&r, (fak_op){.id = FAK_OP_MATMUL, .in = {y, w}});
        if (!rc) rc = rig_ready(&r, &e);
        if (!rc) rc = rig_rows(&r, 1, 0, &e);
        if (!rc) rc = rig_rows(&r, 12, 0, &e);
        if (rc) fail_msg("%s", e.message);
        assert_true(r.taken);
        rig_close(&r);
    }
    device_close(&dev);
}

static int open_all(void)
{
    static const plugin_host services;
    fak_error e = {0};
    if (plugins_open(&all, &(plugin_search){plugin_path, NULL, 1}, &services, &e) ||
        plugin_load(&all, plugins_linked_in(&all, "cpu-ref"), &e) ||
        plugin_load(&all, &all.at[0], &e) ||
        device_open(&host, plugins_linked_in(&all, "cpu-ref"), 0, NULL, 0, &e) ||
        gguf_open(&file, model_path, &e) || model_open(&m, file, 0, CONTEXT, &e)) {
        printf("%s\n", e.message);
        return strstr(e.message, "absent") ? 77 : 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tokens),
                                       cmocka_unit_test(test_infinity_in_q8)};
    if (argc < 3) return 2;
    plugin_path = argv[1];
    model_path = argv[2];
    for (int i = 3; i < argc && settings < SETTINGS; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals) return 2;
        *equals = '\0';
        if (!strcmp(argv[i], "act")) act = equals[1] == 'q' ? FAK_ACT_Q8 : FAK_ACT_F32;
        if (!strcmp(argv[i], "act")) continue;
        set[settings++] = (fak_setting){argv[i], equals + 1};
    }
    int rc = open_all();
    if (!rc) rc = cmocka_run_group_tests(tests, NULL, NULL);
    model_close(&m);
    gguf_close(file);
    device_close(&host);
    plugins_close(&all);
    return rc;
}
