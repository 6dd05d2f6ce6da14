/* port: mapped files, shared libraries, the executable's path, the clock, the environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined __linux__
#include <sys/wait.h>
#endif

#include <cmocka.h>

#include "../core/port.h"

static char room[64]; /* an empty folder for each test */

static const char *in_room(const char *rest)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", room, rest);
    return path;
}

static const char *write_file(const char *rest, const void *data, size_t bytes)
{
    const char *path = in_room(rest);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
    return path;
}

static int enter_room(void **state)
{
    (void)state;
    strcpy(room, "/tmp/fak-test-port-XXXXXX");
    return mkdtemp(room) ? 0 : -1;
}

static int leave_room(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", room);
    return system(command);
}

/* The lowest descriptor that is free: it is the same before and after when none is leaked. */
static int next_descriptor(void)
{
    int fd = open("/dev/null", O_RDONLY);
    assert_in_range(fd, 0, 1 << 20);
    close(fd);
    return fd;
}

/* ---- mapped files ---- */

static void maps_a_whole_file(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 4095, 4096, 4097, 100001};
    int fd = next_descriptor();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *data = malloc(sizes[i]);
        assert_non_null(data);
        for (size_t j = 0; j < sizes[i]; j++) data[j] = (uint8_t)(j * 31 + i);
        port_map map = {0};
        const char *path = write_file("f", data, sizes[i]);
        assert_int_equal(port_map_file(&map, path), 0);
        assert_int_equal(unlink(path), 0); /* it stays readable */
        assert_int_equal(map.bytes, sizes[i]);
        assert_memory_equal(map.data, data, sizes[i]);
        port_unmap(&map);
        assert_null(map.data);
        assert_int_equal(map.bytes, 0);
        port_unmap(&map); /* a zero map is fine */
        free(data);
    }
    assert_int_equal(next_descriptor(), fd);
}

static void an_empty_file_is_fine(void **state)
{
    (void)state;
    port_map map = {(const uint8_t *)"x", 1};
    assert_int_equal(port_map_file(&map, write_file("empty", "", 0)), 0);
    assert_null(map.data);
    assert_int_equal(map.bytes, 0);
    port_unmap(&map);
}

/* A pipe in the place of a file: nobody will ever write to it. */
static void a_pipe_is_not_waited_for(void **state)
{
    (void)state;
    port_map map;
    assert_int_equal(mkfifo(in_room("pipe"), 0600), 0);
    alarm(20);
    assert_int_equal(port_map_file(&map, in_room("pipe")), 0);
    alarm(0);
    assert_int_equal(map.bytes, 0);
    port_unmap(&map);
}

static void assert_no_map(const char *path, int why)
{
    port_map map = {(const uint8_t *)"x", 1};
    errno = 0;
    assert_int_equal(port_map_file(&map, path), -1);
    assert_int_equal(errno, why);
    assert_null(map.data);
    assert_int_equal(map.bytes, 0);
}

static void files_that_cannot_be_mapped(void **state)
{
    (void)state;
    int fd = next_descriptor();
    assert_no_map(in_room("missing"), ENOENT);
    assert_no_map("", ENOENT);
    assert_no_map(room, EISDIR);
    write_file("file", "x", 1);
    assert_no_map(in_room("file/below"), ENOTDIR);
    assert_int_equal(symlink("loop", in_room("loop")), 0);
    assert_no_map(in_room("loop"), ELOOP);
    assert_int_equal(chmod(in_room("file"), 0), 0);
    if (access(in_room("file"), R_OK)) assert_no_map(in_room("file"), EACCES); /* root may */
    assert_int_equal(next_descriptor(), fd);
}

/* ---- shared libraries ---- */

static void assert_no_library(const char *path, const char *part)
{
    const char *why = NULL;
    assert_null(port_library_open(path, &why));
    assert_non_null(why);
    assert_non_null(strstr(why, path)); /* the sentence names the file */
    if (!strstr(why, part)) fail_msg("%s", why);
}

static void libraries_that_do_not_open(void **state)
{
    (void)state;
    static const char text[] =
        "this is text, and there is enough of it for an ELF header's 64 bytes";
    int fd = next_descriptor();
    assert_no_library(in_room("missing.so"), "No such file or directory");
    assert_no_library(room, "Is a directory");
    assert_no_library(write_file("text.so", text, sizeof text), "invalid ELF header");
    assert_no_library(write_file("empty.so", "", 0), "file too short");
    assert_int_equal(next_descriptor(), fd);
    port_library_close(NULL);
}

static void a_library_opens_and_has_symbols(void **state)
{
    (void)state;
    const char *why = "untouched";
    void *library = port_library_open("libm.so.6", &why);
    if (!library) skip(); /* another C library */
    assert_null(why);
    assert_non_null(port_library_symbol(library, "cos"));
    assert_null(port_library_symbol(library, "fak_backend_entry_v1"));
    port_library_close(library);
}

/* What a plugin exports is found in it alone: nobody else's symbols are taken for it. */
static void a_library_keeps_its_symbols(void **state)
{
    (void)state;
    static const char name[] = "fak_backend_entry_v1";
    const char *why;
    void *library = port_library_open(TEST_BACKEND, &why), *all = dlopen(NULL, RTLD_NOW);
    assert_non_null(library);
    assert_non_null(all);
    assert_non_null(port_library_symbol(library, name));
    assert_null(port_library_symbol(all, name));
    dlclose(all);
    port_library_close(library);
}

/* ---- the process ---- */

static void executable_has_a_real_path(void **state)
{
    (void)state;
    char path[4096], *real = realpath("/proc/self/exe", NULL);
    assert_non_null(real);
    assert_int_equal(port_executable(path, sizeof path), 0);
    assert_string_equal(path, real);
    size_t n = strlen(real);
    char *tight = malloc(n + 1); /* it just fits; a byte less does not */
    assert_non_null(tight);
    assert_int_equal(port_executable(tight, n + 1), 0);
    assert_string_equal(tight, real);
    assert_int_equal(port_executable(tight, n), -1);
    assert_int_equal(port_executable(tight, 0), -1);
    free(tight);
    free(real);
}

static void clock_goes_forward(void **state)
{
    (void)state;
    double first = port_seconds(), last = first;
    for (int i = 0; i < 1000; i++) {
        double now = port_seconds();
        assert_true(now >= last);
        last = now;
    }
    usleep(20000);
    last = port_seconds();
    assert_true(last - first >= 0.02 && last - first < 60);
}

static void a_real_path_follows_links(void **state)
{
    char target[128];
    (void)state;
    strcpy(target, write_file("target", "x", 1));
    assert_int_equal(symlink("target", in_room("link")), 0);
    char *real = port_real_path(in_room("link"));
    assert_non_null(real);
    assert_string_equal(real, target);
    free(real);
    assert_null(port_real_path(in_room("nothing")));
    assert_int_equal(errno, ENOENT);
}

/* A sanitizer would end the process instead of answering NULL. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void sizes_beyond_memory_are_none(void **state)
{
    volatile uint64_t bytes = 100; /* volatile: clang takes a malloc that nobody uses for granted */
    void *volatile some = port_alloc(bytes);
    (void)state;
    assert_non_null(some);
    free(some);
    bytes = UINT64_MAX;
    some = port_alloc(bytes);
    assert_null(some);
}

static void environment_is_read(void **state)
{
    (void)state;
    assert_int_equal(setenv("FAK_TEST_PORT", "value", 1), 0);
    assert_string_equal(port_environment("FAK_TEST_PORT"), "value");
    assert_int_equal(setenv("FAK_TEST_PORT", "", 1), 0);
    assert_string_equal(port_environment("FAK_TEST_PORT"), "");
    assert_int_equal(unsetenv("FAK_TEST_PORT"), 0);
    assert_null(port_environment("FAK_TEST_PORT"));
}

#if defined __linux__
/* In a process of its own, until that is killed.  The sleeper says that it runs, and keeps what it says it
 * with. */
static _Noreturn void run_a_sleeper(int say)
{
    char command[64];
    snprintf(command, sizeof command, "echo x >&%d && exec sleep 60", say);
    char *argv[] = {"/bin/sh", "-c", command, NULL};
    port_run(argv, 60, NULL, 0);
    _exit(0);
}

static void what_runs_ends_with_us(void **state)
{
    char said[2];
    int pipes[2], status;
    (void)state;
    assert_int_equal(pipe(pipes), 0);
    pid_t between = fork();
    if (!between) run_a_sleeper(pipes[1]);
    close(pipes[1]);
    assert_int_equal(read(pipes[0], said, 2), 2); /* it sleeps */
    double start = port_seconds();
    assert_int_equal(kill(between, SIGKILL), 0);
    assert_int_equal(waitpid(between, &status, 0), between);
    assert_int_equal(read(pipes[0], said, 1), 0); /* nobody is left to say more */
    assert_true(port_seconds() - start < 30);     /* it would have slept for 60 */
    close(pipes[0]);
}

/* Where we have neither input nor output, those of a child are its own all the same. */
static void what_runs_can_write(void **state)
{
    int status;
    (void)state;
    pid_t between = fork();
    if (!between) {
        char *argv[] = {"/bin/sh", "-c", "echo word", NULL}, said[8] = "";
        close(STDIN_FILENO);
        close(STDOUT_FILENO);
        port_result r = port_run(argv, 60, said, sizeof said);
        _exit(r.end != PORT_EXIT || r.number || r.bytes != 5 || strcmp(said, "word\n"));
    }
    assert_int_equal(waitpid(between, &status, 0), between);
    assert_int_equal(status, 0);
}
#endif

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, enter_room, leave_room)
    const struct CMUnitTest tests[] = {
        TEST(maps_a_whole_file),
        TEST(an_empty_file_is_fine),
        TEST(a_pipe_is_not_waited_for),
        TEST(files_that_cannot_be_mapped),
        TEST(libraries_that_do_not_open),
        cmocka_unit_test(a_library_opens_and_has_symbols),
        cmocka_unit_test(a_library_keeps_its_symbols),
        cmocka_unit_test(executable_has_a_real_path),
        TEST(a_real_path_follows_links),
        cmocka_unit_test(sizes_beyond_memory_are_none),
        cmocka_unit_test(clock_goes_forward),
        cmocka_unit_test(environment_is_read),
#if defined __linux__
        TEST(what_runs_ends_with_us),
        cmocka_unit_test(what_runs_can_write),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
