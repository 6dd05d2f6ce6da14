/* test_watch - what is seen of a library that does what it may not, and allocations that fail in it alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../core/watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void *take_fn(int kind);
typedef int answer_fn(int x);
static take_fn *take;
static answer_fn *answer;
static const void *inside;

static int open_library(void **state)
{
    void *library = dlopen(TEST_ALLOCATES, RTLD_NOW | RTLD_LOCAL), *at[2];
    (void)state;
    if (!library) return -1;
    at[0] = dlsym(library, "allocates_take");
    at[1] = dlsym(library, "allocates_answer");
    memcpy(&take, &at[0], sizeof take);
    memcpy(&answer, &at[1], sizeof answer);
    inside = at[1];
    return !take || !answer;
}

/* ---- code that runs ---- */

/* 0, or the test is skipped with the reason. */
static void seal_or_skip(void)
{
    if (!watch_seal(inside)) return;
    print_message("skipped: code cannot be sealed here\n");
    skip();
}

static void test_seal(void **state)
{
    (void)state;
    seal_or_skip();
    assert_int_equal(watch_ran(), 0);
    assert_int_equal(answer(4), 5); /* it is let go on */
    assert_int_equal(watch_ran(), 1);
    assert_int_equal(answer(5), 6); /* the first is what counts */
    assert_int_equal(watch_ran(), 1);
    watch_unseal();
    assert_int_equal(watch_ran(), 1);
    assert_int_equal(watch_seal(inside), 0);
    free(malloc(10)); /* others may run */
    watch_unseal();
    assert_int_equal(watch_ran(), 0);
    assert_int_equal(answer(6), 7);
    assert_int_equal(watch_ran(), 0);
    watch_unseal(); /* again is fine */
    assert_int_equal(watch_seal(NULL), -1);
}

static void at_end(void *value)
{
    *(int *)value = answer(*(int *)value);
}

static pthread_key_t key;
static pthread_barrier_t barrier;

static void *use(void *value)
{
    pthread_setspecific(key, value);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

/* As a destructor of thread-local storage does it. */
static void test_seal_at_thread_exit(void **state)
{
    int value = 1;
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_key_create(&key, at_end), 0);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, use, &value), 0);
    pthread_barrier_wait(&barrier);
    int sealed = watch_seal(inside);
    pthread_barrier_wait(&barrier);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_barrier_destroy(&barrier);
    assert_int_equal(value, 2);
    if (sealed) skip();
    assert_int_equal(watch_ran(), 1);
    watch_unseal();
}

/* Another crash is a crash. */
static void test_crash_while_sealed(void **state)
{
    int status;
    (void)state;
    seal_or_skip();
    watch_unseal();
    pid_t child = fork();
    if (!child) {
        signal(SIGSEGV, SIG_DFL);
        watch_seal(inside);
        *(volatile int *)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) = 1;
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
}

/* ---- allocations ---- */

enum { KINDS = 5 };

static void test_allocations(void **state)
{
    (void)state;
    int kinds = watch_allocations(inside);
    if (kinds < 0) {
        print_message("skipped: calls of a library cannot be watched here\n");
        skip();
    }
    assert_int_equal(kinds, KINDS);
    for (int kind = 0; kind < KINDS; kind++) {
        for (uint64_t k = 1; k < 4; k++) {
            watch_fail(k);
            for (uint64_t i = 1; i < 5; i++) {
                void *mine = malloc(10), *theirs = take(kind);
                assert_non_null(mine); /* only the library's fail */
                assert_int_equal(theirs == NULL, i == k);
                assert_int_equal(watch_failed(), i >= k);
                free(mine);
                free(theirs);
            }
        }
        watch_fail(0);
        void *p = take(kind);
        assert_non_null(p);
        assert_int_equal(watch_failed(), 0);
        free(p);
    }
    watch_fail(1);
    errno = 0;
    assert_null(take(0));
    assert_int_equal(errno, ENOMEM);
    watch_fail(1);
    watch_allocations_end();
    for (int kind = 0; kind < KINDS; kind++) {
        void *p = take(kind);
        assert_non_null(p);
        free(p);
    }
    assert_int_equal(watch_failed(), 0);
    watch_allocations_end(); /* again is fine */
    assert_int_equal(watch_allocations(NULL), -1);
    assert_int_equal(watch_allocations(inside), KINDS); /* anew */
    watch_allocations_end();
}

/* ---- state ---- */

static watch_state before;

/* Only that has changed. */
static void assert_changed(enum watch_what what)
{
    watch_state now = watch_look();
    for (int i = 0; i < WATCH_STATES; i++)
        if ((now.of[i] != before.of[i]) != (i == (int)what))
            fail_msg("%s: %s", watch_name[what], watch_name[i]);
}

static void assert_back(void)
{
    watch_state now = watch_look();
    for (int i = 0; i < WATCH_STATES; i++)
        if (now.of[i] != before.of[i]) fail_msg("%s stays changed", watch_name[i]);
}

static void look_or_skip(void)
{
    before = watch_look();
    if (before.there) return;
    print_message("skipped: nothing can be seen here\n");
    skip();
}

static void test_values(void **state)
{
    char folder[4096];
    (void)state;
    look_or_skip();
    assert_back();
    setenv("FAK_TEST_WATCH", "1", 1);
    assert_changed(WATCH_ENVIRONMENT);
    unsetenv("FAK_TEST_WATCH");
    assert_back();
    if (setlocale(LC_ALL, "C.UTF-8")) {
        assert_changed(WATCH_LOCALE);
        setlocale(LC_ALL, "C");
        assert_back();
    }
    assert_non_null(getcwd(folder, sizeof folder));
    assert_int_equal(chdir(strcmp(folder, "/") ? "/" : "/proc"), 0);
    assert_changed(WATCH_FOLDER);
    assert_int_equal(chdir(folder), 0);
    assert_back();
    void (*handler)(int) = signal(SIGUSR2, SIG_IGN);
    assert_changed(WATCH_SIGNALS);
    signal(SIGUSR2, handler);
    assert_back();
    mode_t mask = umask(0123);
    assert_changed(WATCH_UMASK);
    umask(mask);
    assert_back();
}

static void *wait_for_main(void *self)
{
    pthread_barrier_wait(self);
    return NULL;
}

static void test_counts(void **state)
{
    pthread_t thread;
    (void)state;
    look_or_skip();
    int file = open("/dev/null", O_RDONLY);
    assert_changed(WATCH_DESCRIPTORS);
    close(file);
    assert_back();
    pid_t child = fork();
    if (!child) {
        pause();
        _exit(0);
    }
    assert_changed(WATCH_CHILDREN);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_back();
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_main, &barrier), 0);
    assert_changed(WATCH_THREADS);
    assert_int_equal(watch_threads(before.of[WATCH_THREADS] + 1), before.of[WATCH_THREADS] + 1);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    assert_int_equal(watch_threads(before.of[WATCH_THREADS]), before.of[WATCH_THREADS]);
    pthread_barrier_destroy(&barrier);
}

static void test_memory(void **state)
{
    enum { SMALL = 5000, BIG = 8 << 20 };
    (void)state;
    watch_address_bytes(); /* what it keeps of the heap is taken before */
    free(malloc(SMALL));
    uint64_t heap = watch_heap_bytes(), address = watch_address_bytes();
#if defined __SANITIZE_ADDRESS__
    assert_int_equal(
        heap, 0); /* its heap is not the C library's: nothing is told, which is what 0 says */
    return;
#endif
    if (!heap || !address) {
        print_message("skipped: the use of memory is not told here\n");
        skip();
    }
    void *small = malloc(SMALL), *big = malloc(BIG);
    assert_non_null(small);
    assert_non_null(big);
    assert_in_range(watch_heap_bytes() - heap, SMALL + BIG, SMALL + BIG + 16384);
    assert_true(watch_address_bytes() >= address + BIG);
    free(big);
    free(small);
    assert_int_equal(watch_heap_bytes(), heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seal),
        cmocka_unit_test(test_seal_at_thread_exit),
        cmocka_unit_test(test_crash_while_sealed),
        cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, open_library, NULL);
}
