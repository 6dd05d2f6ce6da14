/* driver - libcuda.so.1 as far as ../host/driver.h goes, over fibers.  One context; all streams are one.
 * Stricter than a real one: a call without a current context, a launch of a kernel that is not resident or
 * of a graph that was not uploaded, a copy that leaves its allocation, are errors.
 *
 * FAK_CUDA_SIM in the environment, for tests, is read when the driver and when a context starts: "order=N"
 * seeds the order of fibers, "memory=N" bytes the card has, "fail-launch=N" lets the N-th kernel of a
 * context fail, "fail-memory=N" refuses memory to the N-th call that takes some; "version=N", "major=N" and
 * "devices=N" are what it says of itself. */
#include "fiber.h"
#include "memory.h"
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER;
stream work;
list captured;
unsigned long long resident[4];
unsigned references;
__thread int depth;
int things;
static unsigned long long version = 13000, devices = 1, major_number = 9, fail_memory, takes;
static const cu_context the_context = reinterpret_cast<cu_context>(&references);

cu_result drain(void)
{
    while (stream_step(&work)) {
    }
    return static_cast<cu_result>(work.sticky);
}

bool refused(void)
{
    return ++takes == fail_memory;
}

/* ---- the driver, devices ---- */

static void read_environment(void)
{
    work.order = work.fail_launch = fail_memory = 0;
    memory_set_total(static_cast<size_t>(4) << 30);
    const struct {
        const char *name;
        unsigned long long *to;
    } known[] = {{"order=", reinterpret_cast<unsigned long long *>(&work.order)},
                 {"fail-launch=", reinterpret_cast<unsigned long long *>(&work.fail_launch)},
                 {"fail-memory=", &fail_memory},
                 {"version=", &version},
                 {"major=", &major_number},
                 {"devices=", &devices}};
    const char *at = getenv("FAK_CUDA_SIM");
    for (; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : nullptr) {
        for (const auto &k : known)
            if (!strncmp(at, k.name, strlen(k.name)))
                *k.to = strtoull(at + strlen(k.name), nullptr, 10);
        if (!strncmp(at, "memory=", 7)) memory_set_total(strtoull(at + 7, nullptr, 10));
    }
}

cu_result cuInit(unsigned)
{
    lock hold;
    read_environment();
    return CU_OK;
}

cu_result cuDriverGetVersion(int *v)
{
    *v = static_cast<int>(version);
    return CU_OK;
}

cu_result cuGetErrorName(cu_result r, const char **s)
{
    *s = r == CU_OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
         : r == CU_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
         : r == CU_INVALID_VALUE   ? "CUDA_ERROR_INVALID_VALUE"
         : r == CU_INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
                                   : "CUDA_ERROR_IN_EMULATION";
    return CU_OK;
}

cu_result cuGetErrorString(cu_result r, const char **s)
{
    *s = r == CU_OUT_OF_MEMORY     ? "out of memory"
         : r == CU_ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
                                   : "not what a card would take";
    return CU_OK;
}

cu_result cuDeviceGetCount(int *n)
{
    *n = static_cast<int>(devices);
    return CU_OK;
}

cu_result cuDeviceGet(cu_device *d, int i)
{
    *d = i;
    return static_cast<unsigned long long>(i) < devices ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuDeviceGetName(char *s, int n, cu_device)
{
    snprintf(s, static_cast<size_t>(n), "CUDA kernels on the CPU");
    return CU_OK;
}

cu_result cuDeviceGetUuid_v2(cu_uuid *u, cu_device d)
{
    memcpy(u->bytes, "fak-cuda-sim \0\0\0", 16);
    u->bytes[15] = static_cast<char>(d);
    return CU_OK;
}

cu_result cuDeviceTotalMem_v2(size_t *n, cu_device)
{
    *n = memory_total();
    return CU_OK;
}

cu_result cuDeviceGetAttribute(int *v, unsigned what, cu_device)
{
    *v = what == CU_MAJOR             ? static_cast<int>(major_number)
         : what == CU_MULTIPROCESSORS ? 48
         : what == CU_POOLS           ? 1
                                      : 0;
    return CU_OK;
}

/* ---- contexts ---- */

__attribute__((noreturn)) static void die_of(int count, const char *what)
{
    fprintf(stderr, "cuda-sim: %d %s\n", count, what);
    abort();
}

cu_result cuDevicePrimaryCtxRetain(cu_context *c, cu_device)
{
    lock hold;
    if (!references) {
        read_environment();
        takes = 0;
    }
    if (refused() || !fiber_ready()) return CU_OUT_OF_MEMORY;
    references++;
    *c = the_context;
    return CU_OK;
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device)
{
    lock hold;
    if (!references) return CU_INVALID_CONTEXT;
    if (--references) return CU_OK;
    if (depth) die_of(depth, "contexts are left pushed");
    stream_drop(&work);
    list_free(&captured);
    work.capture = nullptr;
    work.sticky = 0;
    work.launches = 0;
    memset(resident, 0, sizeof resident);
    if (memory_count())
        die_of(static_cast<int>(memory_count()), "allocations are left in a context that ends");
    if (things) die_of(things, "events and graphs are left in a context that ends");
    return CU_OK;
}

cu_result cuCtxPushCurrent_v2(cu_context c)
{
    if (c != the_context) return CU_INVALID_CONTEXT;
    depth++;
    return CU_OK;
}

cu_result cuCtxPopCurrent_v2(cu_context *c)
{
    if (!depth) return CU_INVALID_CONTEXT;
    depth--;
    *c = the_context;
    return CU_OK;
}

/* ---- modules ---- */

cu_result cuModuleLoadData(cu_module *m, const void *image)
{
    ENTER(0);
    if (refused()) return CU_OUT_OF_MEMORY;
    *m = reinterpret_cast<cu_module>(&resident);
    return *static_cast<const uint32_t *>(image) == 0xba55ed50u ? CU_OK : CU_INVALID_IMAGE;
}

cu_result cuModuleUnload(cu_module)
{
    ENTER(0);
    return CU_OK;
}

cu_result cuModuleGetFunction(cu_function *f, cu_module, const char *name)
{
    ENTER(0);
    for (int i = 0; i < kernel_count; i++) {
        if (strcmp(kernel_table[i].name, name)) continue;
        *f = reinterpret_cast<cu_function>(static_cast<uintptr_t>(i + 1));
        return CU_OK;
    }
    return CU_NOT_FOUND;
}

cu_result cuFuncLoad(cu_function f)
{
    ENTER(0);
    uintptr_t i = reinterpret_cast<uintptr_t>(f) - 1;
    if (i == 0 && refused()) return CU_OUT_OF_MEMORY; /* one stands for all of them */
    resident[i / 64] |= 1ull << i % 64;
    return CU_OK;
}

/* ---- memory ---- */

cu_result cuMemGetInfo_v2(size_t *free, size_t *total)
{
    ENTER(0);
    *total = memory_total();
    *free = memory_total() - memory_used();
    return CU_OK;
}

cu_result cuMemPoolCreate(cu_pool *p, const cu_pool_props *)
{
    ENTER(0);
    if (refused()) return CU_OUT_OF_MEMORY;
    *p = reinterpret_cast<cu_pool>(&captured);
    return CU_OK;
}

cu_result cuMemPoolDestroy(cu_pool)
{
    ENTER(0);
    return CU_OK;
}

cu_result cuMemPoolSetAttribute(cu_pool, unsigned, void *)
{
    ENTER(0);
    return CU_OK;
}

cu_result cuMemPoolGetAttribute(cu_pool, unsigned, void *value)
{
    ENTER(0);
    *static_cast<unsigned long long *>(value) = memory_used();
    return CU_OK;
}

cu_result cuMemAllocFromPoolAsync(cu_ptr *p, size_t bytes, cu_pool, cu_stream s)
{
    ENTER(0);
    if (!is_made(s)) return CU_INVALID_VALUE;
    *p = refused() ? 0 : reinterpret_cast<uintptr_t>(memory_take(bytes, MEMORY_DEVICE));
    return *p ? CU_OK : CU_OUT_OF_MEMORY;
}

/* Also of a context that is lost: a real one frees it all when it ends. */
static cu_result give(void *p, memory_kind kind)
{
    lock hold;
    if (!depth || !references) return CU_INVALID_CONTEXT;
    drain();
    if (!memory_give(p, kind)) return CU_INVALID_VALUE;
    return static_cast<cu_result>(work.sticky);
}

cu_result cuMemFreeAsync(cu_ptr p, cu_stream s)
{
    if (!is_made(s)) return CU_INVALID_VALUE;
    return give(host(p), MEMORY_DEVICE);
}

cu_result cuMemHostAlloc(void **p, size_t bytes, unsigned)
{
    ENTER(0);
    *p = refused() ? nullptr : memory_take(bytes, MEMORY_PINNED);
    return *p ? CU_OK : CU_OUT_OF_MEMORY;
}

cu_result cuMemFreeHost(void *p)
{
    return give(p, MEMORY_PINNED);
}
