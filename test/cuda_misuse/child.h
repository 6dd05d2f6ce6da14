/* child - the emulated driver with the kernels of this folder, in a child process for each case, so that an
 * end of the process can be expected, with its sentence. */
#ifndef CHILD_H
#define CHILD_H
#include "args.h"
#include "host/driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define DECLARE(name, parameters) extern cu_result name parameters;
DRIVER_CALLS(DECLARE)
#undef DECLARE
#define K(name, args) KERNEL_##name,
enum {
#include "kernels.def"
    KERNELS
};
#undef K
#define K(name, args) #name,
static const char *const names[] = {
#include "kernels.def"
};
#undef K

enum { WORDS = 300 };
#define POISON 0xffffffffu

static cu_stream stream;
static cu_pool pool;
static cu_module module;
static cu_function kernel[KERNELS];
static cu_ptr card;    /* WORDS words */
static uint32_t *host; /* pinned: what read_back leaves */

/* In a child: an assertion that says itself what is wrong. */
#define HOLDS(x)                                                                                   \
    do {                                                                                           \
        if (x) break;                                                                              \
        fprintf(stderr, "line %d: %s\n", __LINE__, #x);                                            \
        _exit(1);                                                                                  \
    } while (0)
#define OK(call) HOLDS((call) == CU_OK)

static inline void begin(const char *settings)
{
    static const uint32_t image[2] = {0xba55ed50u, 0};
    const cu_pool_props props = {.type = CU_POOL_PINNED, .location = {CU_ON_DEVICE, 0}};
    cu_context context;
    void *p;
    setenv("FAK_CUDA_SIM", settings, 1);
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxPushCurrent_v2(context));
    OK(cuStreamCreate(&stream, CU_NON_BLOCKING));
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuModuleLoadData(&module, image));
    for (int i = 0; i < KERNELS; i++) OK(cuModuleGetFunction(&kernel[i], module, names[i]));
    for (int i = 0; i < KERNELS; i++) OK(cuFuncLoad(kernel[i]));
    OK(cuMemAllocFromPoolAsync(&card, WORDS * 4, pool, stream));
    OK(cuMemHostAlloc(&p, WORDS * 4, CU_PORTABLE));
    host = p;
}

static inline void finish(void)
{
    cu_context context;
    OK(cuMemFreeAsync(card, stream));
    OK(cuMemFreeHost(host));
    OK(cuCtxPopCurrent_v2(&context));
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

static inline cu_result ask(int k, unsigned blocks, unsigned shared, const probe_args *a)
{
    void *parameter[] = {(void *)(uintptr_t)a};
    return cuLaunchKernel(kernel[k], blocks, 1, 1, THREADS, 1, 1, shared, stream, parameter, NULL);
}

static inline void run(int k, unsigned blocks, unsigned shared, int at, uint32_t value)
{
    OK(ask(k, blocks, shared, &(probe_args){.to = card, .at = at, .value = value}));
    OK(cuStreamSynchronize(stream));
}

static inline void fill(uint32_t value)
{
    for (int i = 0; i < WORDS; i++) host[i] = value;
    OK(cuMemcpyHtoDAsync_v2(card, host, WORDS * 4, stream));
    OK(cuStreamSynchronize(stream));
}

static inline void read_back(void)
{
    OK(cuMemcpyDtoHAsync_v2(host, card, WORDS * 4, stream));
    OK(cuStreamSynchronize(stream));
}

/* ---- a child ---- */

typedef void test_case(void);

/* says NULL: the case comes to its end; else the process is aborted with a line that has it. */
static inline void in_child(test_case *run_it, const char *says)
{
    char heard[4096] = "";
    size_t n = 0;
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        dup2(ends[1], STDERR_FILENO);
        alarm(60);
        run_it();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got; n < sizeof heard - 1; n += (size_t)got)
        if ((got = read(ends[0], heard + n, sizeof heard - 1 - n)) <= 0) break;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    int ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    int aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    if (!says && !ended) fail_msg("status %#x: %s", (unsigned)status, heard);
    if (says && (!aborted || !strstr(heard, says)))
        fail_msg("status %#x, and it is not said that \"%s\": %s", (unsigned)status, says, heard);
}

#define SEEN(name, says)                                                                           \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        in_child(name, says);                                                                      \
    }
#define CASE(name) cmocka_unit_test(test_##name)
#endif
