/* test_leaks - a thousand loads of each refused backend leave no descriptor open and grow no map after the
 * first; nor do probes of those that crash. */
#include "../core/device.h"
#include "../core/probe.h"
#include "mock/wrong.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef __SANITIZE_ADDRESS__ /* a load takes five times as long */
enum { LOADS = 100, PROBES = 5 };
#else
enum { LOADS = 1000, PROBES = 20 };
#endif
static const wrong_row rows[] = {WRONG_TABLE(WRONG_ROW)};

static const char *file_of(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/fak-backend-%s.so", TEST_WRONG, name);
    return path;
}

static unsigned descriptors(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

/* Maps of files: what dlopen leaves.  (The heap of a sanitizer grows as it likes.) */
static unsigned file_maps(void)
{
    char line[4096];
    unsigned n = 0;
    FILE *in = fopen("/proc/self/maps", "r");
    assert_non_null(in);
    while (fgets(line, sizeof line, in)) n += strchr(line, '/') != NULL;
    fclose(in);
    return n;
}

/* As far as the handshake, or the device, lets it. */
static int32_t try_it(const char *path)
{
    static const plugin_host host;
    plugins all;
    device d;
    fak_error e = {0};
    if (plugins_open(&all, &(plugin_search){path, NULL, 0}, &host, &e)) fail_msg("%s", e.message);
    int32_t s = plugin_load(&all, &all.at[0], &e);
    if (!s && !(s = device_open(&d, &all.at[0], 0, NULL, 0, &e))) device_close(&d);
    assert_true(!s || e.message[0]);
    plugins_close(&all);
    return s;
}

static void test_loads(void **state)
{
    unsigned kinds = 0;
    (void)state;
    for (size_t i = 0; i < WRONG_ROWS; i++) {
        if (rows[i].alone || rows[i].stage < STAGE_NOTE || rows[i].stage > STAGE_OPEN) continue;
        const char *path = file_of(rows[i].name);
        int32_t first = try_it(path);
        unsigned fds = descriptors(), maps = file_maps();
        for (int k = 1; k < LOADS; k++)
            if (try_it(path) != first) fail_msg("%s: another answer at load %d", rows[i].name, k);
        if (descriptors() != fds || file_maps() != maps)
            fail_msg("%s: %u descriptors became %u, %u maps %u", rows[i].name, fds, descriptors(),
                     maps, file_maps());
        kinds++;
    }
    print_message("%u kinds, %d loads each\n", kinds, LOADS);
    assert_true(kinds > 40);
}

static void test_probes(void **state)
{
    unsigned fds = descriptors(), maps = file_maps(), kinds = 0;
    (void)state;
    for (size_t i = 0; i < WRONG_ROWS; i++) {
        if (!rows[i].alone || strstr(rows[i].name, "hang") || strstr(rows[i].name, "slow"))
            continue;
        for (int k = 0; k < PROBES; k++) {
            fak_error e = {0};
            int32_t s = probe_run(TEST_FAKRUN, file_of(rows[i].name), 60, 0, &e);
            assert_int_equal(s, STATUS_REFUSED);
            assert_true(e.message[0]);
        }
        kinds++;
    }
    assert_int_equal(descriptors(), fds);
    assert_int_equal(file_maps(), maps);
    assert_true(kinds >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loads), cmocka_unit_test(test_probes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
