/* test_cuda_driver - the emulated driver of plugins/cuda: what it must put off, refuse and fail. */
#include "cuda_misuse/child.h"

/* ---- what is asked is done later ---- */

static void copies_wait(void)
{
    uint32_t loose = 5, taken;
    begin("order=1");
    fill(1);
    host[0] = 2;
    OK(cuMemcpyHtoDAsync_v2(card, host, 4, stream));
    OK(cuMemcpyHtoDAsync_v2(card + 4, &loose, 4, stream));
    OK(cuMemcpyDtoHAsync_v2(host + 8, card, 8, stream));
    host[0] = 3; /* pinned memory is read when its turn comes, other memory at once */
    loose = 6;
    HOLDS(host[8] == 1 && host[9] == 1);
    OK(cuStreamSynchronize(stream));
    HOLDS(host[8] == 3 && host[9] == 5);
    HOLDS(cuMemcpyDtoHAsync_v2(&taken, card, 4, stream) == CU_INVALID_VALUE); /* would block */
    finish();
}
SEEN(copies_wait, NULL)

static void events(void)
{
    cu_event before, behind;
    begin("order=1");
    fill(0);
    OK(cuEventCreate(&before, CU_EVENT_FLAGS));
    OK(cuEventCreate(&behind, CU_EVENT_FLAGS));
    OK(cuEventRecord(before, stream));
    OK(ask(KERNEL_count_up, 1, 0, &(probe_args){.to = card, .value = 4}));
    OK(cuMemcpyDtoHAsync_v2(host, card, 4, stream));
    OK(cuEventRecord(behind, stream));
    OK(cuEventSynchronize(before)); /* what comes after it is not waited for */
    HOLDS(host[0] == 0);
    HOLDS(cuEventQuery(behind) == CU_NOT_READY);
    OK(cuEventSynchronize(behind));
    HOLDS(host[0] == 4);
    OK(cuEventDestroy_v2(before));
    OK(cuEventDestroy_v2(behind));
    finish();
}
SEEN(events, NULL)

static void graphs(void)
{
    cu_graph graph;
    cu_graph_exec exec;
    begin("order=1");
    fill(0);
    OK(cuStreamBeginCapture_v2(stream, CU_THREAD_LOCAL));
    OK(ask(KERNEL_count_up, 1, 0, &(probe_args){.to = card, .value = 4}));
    HOLDS(cuMemcpyHtoDAsync_v2(card, host, 4, stream) == CU_INVALIDATED);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    HOLDS(cuGraphLaunch(exec, stream) == CU_INVALID_VALUE); /* not uploaded */
    OK(cuGraphUpload(exec, stream));
    read_back();
    HOLDS(host[0] == 0); /* recorded, not run */
    for (int i = 0; i < 3; i++) OK(cuGraphLaunch(exec, stream));
    read_back();
    HOLDS(host[0] == 12);
    OK(cuGraphExecDestroy(exec));
    finish();
}
SEEN(graphs, NULL)

/* ---- what is refused ---- */

static void misuse(void)
{
    void *parameter[] = {&(probe_args){.to = card}};
    cu_context context;
    cu_ptr p;
    begin("order=1");
    HOLDS(cuMemcpyHtoDAsync_v2(card, host, 4, NULL) == CU_INVALID_VALUE); /* the null stream */
    HOLDS(cuMemcpyDtoHAsync_v2(host, card, 4, NULL) == CU_INVALID_VALUE);
    HOLDS(cuMemAllocFromPoolAsync(&p, 4, pool, NULL) == CU_INVALID_VALUE);
    HOLDS(cuMemFreeAsync(card, NULL) == CU_INVALID_VALUE);
    HOLDS(cuStreamSynchronize(NULL) == CU_INVALID_VALUE);
    HOLDS(cuLaunchKernel(kernel[0], 1, 1, 1, THREADS, 1, 1, 0, NULL, parameter, NULL) ==
          CU_INVALID_VALUE);
    HOLDS(cuLaunchKernel(kernel[0], 1, 65536, 1, THREADS, 1, 1, 0, stream, parameter, NULL) ==
          CU_INVALID_VALUE);
    HOLDS(cuLaunchKernel(kernel[0], 1, 1, 1, 2 * THREADS, 1, 1, 0, stream, parameter, NULL) ==
          CU_INVALID_VALUE);
    OK(cuCtxPopCurrent_v2(&context));
    HOLDS(cuStreamSynchronize(stream) == CU_INVALID_CONTEXT);
    HOLDS(cuMemFreeHost(host) == CU_INVALID_CONTEXT);
    OK(cuCtxPushCurrent_v2(context));
    finish();
}
SEEN(misuse, NULL)

static void not_resident(void)
{
    static const uint32_t image[2] = {0xba55ed50u, 0};
    void *parameter[] = {&(probe_args){.to = card}};
    cu_context context;
    begin("order=1");
    finish();
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxPushCurrent_v2(context));
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&kernel[0], module, names[0]));
    HOLDS(cuLaunchKernel(kernel[0], 1, 1, 1, THREADS, 1, 1, 0, stream, parameter, NULL) ==
          CU_INVALID_VALUE);
    HOLDS(cuModuleGetFunction(&kernel[0], module, "none") == CU_NOT_FOUND);
}
SEEN(not_resident, NULL)

static void left_memory(void)
{
    cu_context context;
    begin("order=1");
    OK(cuMemFreeAsync(card, stream));
    OK(cuCtxPopCurrent_v2(&context));
    cuDevicePrimaryCtxRelease_v2(0);
}
SEEN(left_memory, "1 allocations are left in a context that ends")

static void left_event(void)
{
    cu_event event;
    begin("order=1");
    OK(cuEventCreate(&event, CU_EVENT_FLAGS));
    finish();
}
SEEN(left_event, "1 events and graphs are left in a context that ends")

static void left_pushed(void)
{
    begin("order=1");
    OK(cuMemFreeAsync(card, stream));
    OK(cuMemFreeHost(host));
    cuDevicePrimaryCtxRelease_v2(0);
}
SEEN(left_pushed, "1 contexts are left pushed")

/* ---- what fails on demand ---- */

static void memory_that_fails(void)
{
    cu_ptr p;
    cu_event event;
    void *pinned;
    begin("order=1,memory=4000,fail-memory=9"); /* begin takes seven times */
    HOLDS(cuMemAllocFromPoolAsync(&p, 4000, pool, stream) == CU_OUT_OF_MEMORY); /* not so much */
    HOLDS(cuMemHostAlloc(&pinned, 4, CU_PORTABLE) == CU_OUT_OF_MEMORY);         /* the ninth */
    OK(cuMemHostAlloc(&pinned, 4, CU_PORTABLE));
    OK(cuMemFreeHost(pinned));
    OK(cuEventCreate(&event, CU_EVENT_FLAGS));
    OK(cuEventDestroy_v2(event));
    finish();
    begin("order=1,fail-memory=8");
    HOLDS(cuEventCreate(&event, CU_EVENT_FLAGS) == CU_OUT_OF_MEMORY);
    finish();
}
SEEN(memory_that_fails, NULL)

/* A kernel that fails loses the context: from then on nothing runs, and every call tells it. */
static void errors_stick(void)
{
    cu_event event;
    begin("order=1,fail-launch=2");
    fill(0);
    OK(cuEventCreate(&event, CU_EVENT_FLAGS));
    for (int i = 0; i < 3; i++)
        OK(ask(KERNEL_count_up, 1, 0, &(probe_args){.to = card, .value = 1}));
    HOLDS(cuStreamSynchronize(stream) == CU_ILLEGAL_ADDRESS);
    HOLDS(cuStreamSynchronize(stream) == CU_ILLEGAL_ADDRESS);
    HOLDS(cuEventRecord(event, stream) == CU_ILLEGAL_ADDRESS);
    HOLDS(cuMemcpyDtoHAsync_v2(host, card, 4, stream) == CU_ILLEGAL_ADDRESS);
    HOLDS(*(uint32_t *)(uintptr_t)card == 1);
    HOLDS(cuMemFreeAsync(card, stream) == CU_ILLEGAL_ADDRESS); /* and yet it is given back */
    HOLDS(cuMemFreeHost(host) == CU_ILLEGAL_ADDRESS);
    OK(cuEventDestroy_v2(event));
    cu_context context;
    OK(cuCtxPopCurrent_v2(&context));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    begin("order=1");
    fill(0);
    run(KERNEL_count_up, 1, 0, 0, 1);
    finish();
}
SEEN(errors_stick, NULL)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(copies_wait),       CASE(events),       CASE(graphs),     CASE(misuse),
        CASE(not_resident),      CASE(left_memory),  CASE(left_event), CASE(left_pushed),
        CASE(memory_that_fails), CASE(errors_stick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
