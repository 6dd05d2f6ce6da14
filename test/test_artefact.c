/* test_artefact - the store of compiled artefacts, and the host's cache services over it. */
#include "../core/artefact.h"
#include "../core/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[64];

static int begin(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/fak-test-artefact-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void test_store(void **state)
{
    char got[16] = "";
    (void)state;
    assert_int_equal(artefact_get(folder, "k", got, sizeof got), 0);
    artefact_put(folder, "k", "hello", 5);
    assert_int_equal(artefact_get(folder, "k", got, sizeof got), 5);
    assert_string_equal(got, "hello");
    assert_int_equal(artefact_get(folder, "k", NULL, 0), 5); /* how large is it? */
    memset(got, 'x', sizeof got);
    assert_int_equal(artefact_get(folder, "k", got, 2), 5); /* cut to what there is room for */
    assert_memory_equal(got, "hexx", 4);
    artefact_put(folder, "k", "other", 5); /* the newest is kept */
    artefact_put(folder, "kk", "more", 4);
    assert_int_equal(artefact_get(folder, "k", got, sizeof got), 5);
    assert_memory_equal(got, "other", 5);
    assert_int_equal(artefact_get(folder, "kk", got, sizeof got), 4);
    artefact_put(folder, "empty", "", 0); /* nothing is no entry */
    assert_int_equal(artefact_get(folder, "empty", got, sizeof got), 0);
}

/* Damage, another key of the same file, no folder: none of it is an entry, or a fault. */
static void test_bad_stores(void **state)
{
    char got[16], command[256];
    (void)state;
    artefact_put(folder, "key", "value", 5);
    snprintf(command, sizeof command,
             "for f in '%s'/fak/artefacts/*; do printf 'kez\\0value' > $f; done", folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(artefact_get(folder, "key", got, sizeof got), 0);
    snprintf(command, sizeof command, "for f in '%s'/fak/artefacts/*; do printf ke > $f; done",
             folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(artefact_get(folder, "key", got, sizeof got), 0);
    artefact_put(NULL, "key", "value", 5);
    assert_int_equal(artefact_get(NULL, "key", got, sizeof got), 0);
    artefact_put("/proc/nowhere", "key", "value", 5);
    assert_int_equal(artefact_get("/proc/nowhere", "key", got, sizeof got), 0);
}

/* As a backend sees it. */
static void test_host_services(void **state)
{
    const plugin_host with = {.cache = folder}, without = {0};
    plugins all;
    fak_error e;
    char got[8];
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(plugins_open(&all, &(plugin_search){0}, i ? &without : &with, &e), 0);
        const fak_host *h = &all.host;
        h->cache_put(h->self, "graph 1", "abc", 3);
        assert_int_equal(h->cache_get(h->self, "graph 1", got, sizeof got), i ? 0 : 3);
        h->log(h->self, FAK_LOG_INFO, "nobody listens");
        assert_int_equal(h->progress(h->self, "nobody looks", 1, 2), FAK_OK);
        assert_null(h->get_ext(h->self, "vendor.thing/1"));
        plugins_close(&all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_store, begin, end),
        cmocka_unit_test_setup_teardown(test_bad_stores, begin, end),
        cmocka_unit_test_setup_teardown(test_host_services, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
