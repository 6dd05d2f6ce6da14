/* test_memory - what there is, from made-up /proc and /sys folders. */
#include "../core/memory.h"
#include "../core/port.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64];

/* Writes root + path, making the folders on the way. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(full, 0755);
    }
    FILE *out = fopen(full, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

static int begin(void **state)
{
    (void)state;
    strcpy(root, "/tmp/fak-test-memory-XXXXXX");
    return !mkdtemp(root);
}

static int end(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void expect(uint64_t bytes, const char *who)
{
    memory_room room = memory_look(root);
    assert_true(room.bytes == bytes);
    if (who)
        assert_string_equal(room.who, who);
    else
        assert_null(room.who);
}

static void test_nobody_says(void **state)
{
    (void)state;
    expect(0, NULL);
    put("/proc/meminfo", "MemTotal: 1000 kB\nMemAvailableX: 5 kB\n");
    expect(0, NULL);
}

static void test_machine(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal:       2000 kB\nMemFree: 1 kB\nMemAvailable:    1500 kB\n");
    expect(1500 * 1024, "the machine");
    put("/proc/meminfo", "MemAvailable: 0 kB\n");
    expect(1, "the machine"); /* nothing, which is not "nobody says" */
}

static void test_groups_v2(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemAvailable: 1000 kB\n");
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.current", "100\n");
    expect(1000 * 1024, "the machine");
    put("/sys/fs/cgroup/a/b/memory.max", "90000\n");
    put("/sys/fs/cgroup/a/b/memory.current", "50000\n");
    expect(40000, "its control group");
    put("/sys/fs/cgroup/a/b/memory.stat", "anon 5\ninactive_file 20000\ninactive_file_x 7\n");
    expect(60000, "its control group"); /* what is only cached can be had */
    put("/sys/fs/cgroup/a/memory.max", "70000\n");
    put("/sys/fs/cgroup/a/memory.current", "69000\n");
    expect(1000, "its control group"); /* the one above is tighter */
    put("/sys/fs/cgroup/memory.max", "500\n");
    put("/sys/fs/cgroup/memory.current", "600\n");
    expect(1, "its control group"); /* over its limit */
}

static void test_groups_v1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "5:devices:/x\n4:memory:/job\n0::/\n");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "10\n");
    expect(0, NULL); /* no limit */
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "3000\n");
    put("/sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 5\n");
    expect(2995, "its control group");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1500\n");
    expect(500, "its control group");
}

static void test_address_space(void **state)
{
    struct rlimit old, limit;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    limit = old;
    limit.rlim_cur = (rlim_t)1 << 44; /* generous: sanitizers reserve terabytes */
    put("/proc/self/statm", "1000 10 10\n");
    put("/proc/meminfo", "MemAvailable: 99999999999999 kB\n");
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    if (port_address_limit() != limit.rlim_cur) { /* as under qemu-user */
        print_message("limits are taken and ignored here\n");
        skip();
    }
    memory_room room = memory_look(root);
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    assert_string_equal(room.who, "its address space limit");
    assert_true(room.bytes == ((uint64_t)1 << 44) - 1000 * (uint64_t)sysconf(_SC_PAGESIZE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nobody_says, begin, end),
        cmocka_unit_test_setup_teardown(test_machine, begin, end),
        cmocka_unit_test_setup_teardown(test_groups_v2, begin, end),
        cmocka_unit_test_setup_teardown(test_groups_v1, begin, end),
        cmocka_unit_test_setup_teardown(test_address_space, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
