/* driver - libcuda.so.1 as far as ../host/driver.h goes, over fibers.  One context; all streams are one.
 * Stricter than a real one: a call without a current context, a launch of a kernel that is not resident or
 * of a graph that was not uploaded, a copy that leaves its allocation, are errors.
 *
 * FAK_CUDA_SIM in the environment, for tests: "order=N" seeds the order of fibers, "memory=N" bytes the
 * card has, "fail-launch=N" lets the N-th kernel of a context fail, "version=N", "devices=N". */
#include "host/driver.h"
#include "fiber.h"
#include "memory.h"
#include "stream.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#define DECLARE(name, parameters) __attribute__((visibility("default"))) cu_result name parameters;
DRIVER_CALLS(DECLARE)
#undef DECLARE
}

static pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER; /* everything is one card's */
static stream work;
static list captured;
static unsigned long long resident[4]; /* kernels that are */
static unsigned references;
static __thread int depth; /* contexts on this thread's stack */
static unsigned long long version = 13000, devices = 1;

struct lock {
    lock()
    {
        pthread_mutex_lock(&big);
    }
    ~lock()
    {
        pthread_mutex_unlock(&big);
    }
};
struct CUgraph_st {
    list l;
};
struct CUgraphExec_st {
    list l;
    int uploaded;
};

static const cu_context the_context = reinterpret_cast<cu_context>(&references);
static const cu_stream the_stream = reinterpret_cast<cu_stream>(&work);

/* In a context that is not lost; nothing of it may be asked while capturing, unless it is recorded. */
#define ENTER(recorded)                                                                            \
    lock hold_;                                                                                    \
    if (!depth || !references) return CU_INVALID_CONTEXT;                                          \
    if (work.sticky) return static_cast<cu_result>(work.sticky);                                   \
    if (work.capture && !(recorded)) return CU_INVALIDATED

static cu_result drain(void)
{
    while (stream_step(&work)) {
    }
    return static_cast<cu_result>(work.sticky);
}

static cu_result add(const command &c)
{
    if (stream_add(&work, &c)) return CU_OK;
    free(c.l);
    if (c.own) free(const_cast<void *>(c.src));
    return CU_OUT_OF_MEMORY;
}

/* ---- the driver, devices ---- */

static void read_environment(void)
{
    const struct {
        const char *name;
        unsigned long long *to;
    } known[] = {{"order=", reinterpret_cast<unsigned long long *>(&work.order)},
                 {"fail-launch=", reinterpret_cast<unsigned long long *>(&work.fail_launch)},
                 {"version=", &version},
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
    *v = what == CU_MAJOR ? 9 : what == CU_MULTIPROCESSORS ? 12 : what == CU_POOLS ? 1 : 0;
    return CU_OK;
}

/* ---- contexts ---- */

cu_result cuDevicePrimaryCtxRetain(cu_context *c, cu_device)
{
    lock hold;
    if (!fiber_ready()) return CU_OUT_OF_MEMORY;
    references++;
    *c = the_context;
    return CU_OK;
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device)
{
    lock hold;
    if (!references) return CU_INVALID_CONTEXT;
    if (--references) return CU_OK;
    stream_drop(&work);
    list_free(&captured);
    work.capture = nullptr;
    work.sticky = 0;
    work.launches = 0;
    memset(resident, 0, sizeof resident);
    if (memory_count()) {
        fprintf(stderr, "cuda-sim: %u allocations are left in a context that ends\n",
                memory_count());
        abort();
    }
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

cu_result cuMemAllocFromPoolAsync(cu_ptr *p, size_t bytes, cu_pool, cu_stream)
{
    ENTER(0);
    *p = reinterpret_cast<uintptr_t>(memory_take(bytes, MEMORY_DEVICE));
    return *p ? CU_OK : CU_OUT_OF_MEMORY;
}

static void *host(cu_ptr p)
{
    return reinterpret_cast<void *>(static_cast<uintptr_t>(p));
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

cu_result cuMemFreeAsync(cu_ptr p, cu_stream)
{
    return give(host(p), MEMORY_DEVICE);
}

cu_result cuMemHostAlloc(void **p, size_t bytes, unsigned)
{
    ENTER(0);
    *p = memory_take(bytes, MEMORY_PINNED);
    return *p ? CU_OK : CU_OUT_OF_MEMORY;
}

cu_result cuMemFreeHost(void *p)
{
    return give(p, MEMORY_PINNED);
}

/* ---- the stream ---- */

cu_result cuStreamCreate(cu_stream *s, unsigned flags)
{
    ENTER(0);
    if (flags != CU_NON_BLOCKING) return CU_INVALID_VALUE;
    *s = the_stream;
    return CU_OK;
}

cu_result cuStreamDestroy_v2(cu_stream)
{
    return CU_OK;
}

cu_result cuStreamSynchronize(cu_stream)
{
    ENTER(0);
    return drain();
}

/* From memory that is not pinned the driver takes a copy at once; else it reads when its turn comes. */
cu_result cuMemcpyHtoDAsync_v2(cu_ptr to, const void *from, size_t bytes, cu_stream)
{
    ENTER(0);
    command c = {};
    if (!memory_holds(host(to), bytes, MEMORY_DEVICE)) return CU_INVALID_VALUE;
    c.kind = command::COPY;
    c.dst = host(to);
    c.src = from;
    c.bytes = bytes;
    if (!memory_holds(from, bytes, MEMORY_PINNED)) {
        void *copy = malloc(bytes ? bytes : 1);
        if (!copy) return CU_OUT_OF_MEMORY;
        c.src = memcpy(copy, from, bytes);
        c.own = 1;
    }
    return add(c);
}

cu_result cuMemcpyDtoHAsync_v2(void *to, cu_ptr from, size_t bytes, cu_stream)
{
    ENTER(0);
    command c = {};
    if (!memory_holds(host(from), bytes, MEMORY_DEVICE)) return CU_INVALID_VALUE;
    if (!memory_holds(to, bytes, MEMORY_PINNED)) return CU_INVALID_VALUE; /* it would block */
    c.kind = command::COPY;
    c.dst = to;
    c.src = host(from);
    c.bytes = bytes;
    return add(c);
}

cu_result cuLaunchKernel(cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                         unsigned by, unsigned bz, unsigned shared, cu_stream, void **args, void **)
{
    ENTER(1);
    command c = {};
    uintptr_t i = reinterpret_cast<uintptr_t>(f) - 1;
    if (i >= static_cast<uintptr_t>(kernel_count) || !(resident[i / 64] >> i % 64 & 1) || !gx ||
        !gy || gy > 65535 || !gz || gz > 65535 || bx != THREADS || by != 1 || bz != 1 ||
        shared > 48 << 10 || kernel_table[i].bytes > sizeof c.l->args)
        return CU_INVALID_VALUE;
    c.kind = command::LAUNCH;
    c.l = static_cast<launch *>(calloc(1, sizeof *c.l));
    if (!c.l) return CU_OUT_OF_MEMORY;
    c.l->kernel = static_cast<int>(i);
    c.l->grid[0] = gx, c.l->grid[1] = gy, c.l->grid[2] = gz;
    c.l->threads = bx;
    c.l->dynamic = shared;
    c.l->bytes = kernel_table[i].bytes;
    memcpy(c.l->args, args[0], c.l->bytes);
    return add(c);
}

/* ---- events ---- */

cu_result cuEventCreate(cu_event *e, unsigned)
{
    ENTER(0);
    *e = static_cast<cu_event>(calloc(1, sizeof **e));
    return *e ? CU_OK : CU_OUT_OF_MEMORY;
}

cu_result cuEventDestroy_v2(cu_event e)
{
    lock hold;
    if (references) drain(); /* a record may be on its way */
    free(e);
    return CU_OK;
}

cu_result cuEventRecord(cu_event e, cu_stream)
{
    ENTER(0);
    command c = {};
    c.kind = command::EVENT;
    c.event = e;
    e->recorded++;
    return add(c);
}

cu_result cuEventQuery(cu_event e)
{
    ENTER(0);
    if (e->passed < e->recorded) stream_step(&work);
    if (work.sticky) return static_cast<cu_result>(work.sticky);
    return e->passed < e->recorded ? CU_NOT_READY : CU_OK;
}

cu_result cuEventSynchronize(cu_event e)
{
    ENTER(0);
    while (e->passed < e->recorded && stream_step(&work)) {
    }
    return static_cast<cu_result>(work.sticky);
}

/* ---- graphs ---- */

cu_result cuStreamBeginCapture_v2(cu_stream, unsigned)
{
    ENTER(0);
    captured = {};
    work.capture = &captured;
    return CU_OK;
}

cu_result cuStreamEndCapture(cu_stream, cu_graph *g)
{
    ENTER(1);
    *g = static_cast<cu_graph>(calloc(1, sizeof **g));
    work.capture = nullptr;
    if (*g)
        (*g)->l = captured;
    else
        list_free(&captured);
    captured = {};
    return *g ? CU_OK : CU_OUT_OF_MEMORY;
}

cu_result cuGraphInstantiateWithFlags(cu_graph_exec *x, cu_graph g, unsigned long long)
{
    ENTER(0);
    *x = static_cast<cu_graph_exec>(calloc(1, sizeof **x));
    if (*x && list_copy(&(*x)->l, &g->l)) return CU_OK;
    free(*x);
    *x = nullptr;
    return CU_OUT_OF_MEMORY;
}

cu_result cuGraphUpload(cu_graph_exec x, cu_stream)
{
    ENTER(0);
    x->uploaded = 1;
    return CU_OK;
}

cu_result cuGraphLaunch(cu_graph_exec x, cu_stream)
{
    ENTER(0);
    command c = {};
    if (!x->uploaded) return CU_INVALID_VALUE;
    c.kind = command::REPLAY;
    c.graph = &x->l;
    return add(c);
}

cu_result cuGraphExecDestroy(cu_graph_exec x)
{
    lock hold;
    if (references) drain();
    list_free(&x->l);
    free(x);
    return CU_OK;
}

cu_result cuGraphDestroy(cu_graph g)
{
    lock hold;
    list_free(&g->l);
    free(g);
    return CU_OK;
}
