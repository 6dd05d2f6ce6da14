/* gpu - see gpu.h. */
#include "driver_calls.h"
#include "gpu.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpu {
    cu_device device;
    cu_context context;
    cu_module module;
    cu_stream stream;
    cu_pool pool;
    cu_function kernel[KERNELS];
    uint32_t processors, kernels, capturing; /* kernels launched while capturing */
    gpu_faults faults;
    uint64_t allocations, submits; /* tried, for the faults */
    pthread_mutex_t lock;          /* of what follows */
    fak_error lost;                /* code 0: it is not */
    fak_stats stats;
};
struct gpu_graph {
    cu_graph_exec exec;
    uint32_t kernels;
};

static const char *const kernel_name[] = {
#define K(name, args) #name,
#include "kernels.def"
#undef K
};

/* ---- errors ---- */

int32_t gpu_lost(gpu *g, fak_error *e)
{
    pthread_mutex_lock(&g->lock);
    int32_t s = g->lost.code;
    if (s) *e = g->lost;
    pthread_mutex_unlock(&g->lock);
    return s;
}

static int32_t lose(gpu *g, const fak_error *why, fak_error *e)
{
    pthread_mutex_lock(&g->lock);
    if (!g->lost.code) g->lost = *why;
    *e = g->lost;
    pthread_mutex_unlock(&g->lock);
    return e->code;
}

static int32_t answer(gpu *g, cu_result r, const char *call, fak_error *e)
{
    const char *name = NULL, *text = NULL;
    fak_error why;
    if (r == CU_OK) return FAK_OK;
    if (r == CU_NOT_READY) return FAK_PENDING;
    cu.cuGetErrorName(r, &name);
    cu.cuGetErrorString(r, &text);
    cuda_fail(&why, r == CU_OUT_OF_MEMORY ? FAK_E_MEMORY : FAK_E_LOST, FAK_NO_INDEX,
              "%s answers %s, %s", call, name ? name : "an error without a name",
              text ? text : "unexplained");
    why.native = (int32_t)r;
    *e = why;
    return why.code == FAK_E_LOST ? lose(g, &why, e) : why.code;
}

static int32_t enter(gpu *g, fak_error *e)
{
    int32_t s = gpu_lost(g, e);
    return s ? s : answer(g, cu.cuCtxPushCurrent_v2(g->context), "cuCtxPushCurrent", e);
}

static int32_t leave(gpu *g, cu_result r, const char *call, fak_error *e)
{
    cu_context mine;
    cu.cuCtxPopCurrent_v2(&mine);
    return answer(g, r, call, e);
}
/* A call in the card's context. */
#define CALL(g, e, f, ...) (enter(g, e) ? (e)->code : leave(g, cu.f(__VA_ARGS__), #f, e))

/* What gives back is tried on a lost card too: the driver may refuse, but nothing of ours is kept. */
#define GIVE_BACK(g, f, ...)                                                                       \
    do {                                                                                           \
        cu_context mine_;                                                                          \
        if (cu.cuCtxPushCurrent_v2((g)->context)) break;                                           \
        cu.f(__VA_ARGS__);                                                                         \
        cu.cuCtxPopCurrent_v2(&mine_);                                                             \
    } while (0)

/* ---- open ---- */

static int32_t make_pool(gpu *g, uint32_t index, fak_error *e)
{
    cu_pool_props props = {.type = CU_POOL_PINNED, .location = {CU_ON_DEVICE, (int)index}};
    uint64_t all = UINT64_MAX; /* freed memory stays with the pool until it goes */
    int32_t s = CALL(g, e, cuMemPoolCreate, &g->pool, &props);
    return s ? s : CALL(g, e, cuMemPoolSetAttribute, g->pool, CU_POOL_THRESHOLD, &all);
}

static int32_t load_kernels(gpu *g, fak_error *e)
{
    int32_t s = CALL(g, e, cuModuleLoadData, &g->module, cuda_port_now->image);
    for (int i = 0; !s && i < KERNELS; i++) {
        s = CALL(g, e, cuModuleGetFunction, &g->kernel[i], g->module, kernel_name[i]);
        /* or the first step that uses it would take device memory */
        if (!s) s = CALL(g, e, cuFuncLoad, g->kernel[i]);
    }
    return s;
}

static int32_t start(gpu *g, uint32_t index, fak_error *e)
{
    int pools = 0, processors = 0;
    int32_t s = answer(g, cu.cuDeviceGet(&g->device, (int)index), "cuDeviceGet", e);
    if (!s)
        s = answer(g, cu.cuDeviceGetAttribute(&pools, CU_POOLS, g->device), "cuDeviceGetAttribute",
                   e);
    if (!s)
        s = answer(g, cu.cuDeviceGetAttribute(&processors, CU_MULTIPROCESSORS, g->device),
                   "cuDeviceGetAttribute", e);
    if (!s && !pools)
        s = cuda_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "card %u has no memory pools", index);
    g->processors = (uint32_t)processors;
    if (!s)
        s = answer(g, cu.cuDevicePrimaryCtxRetain(&g->context, g->device),
                   "cuDevicePrimaryCtxRetain", e);
    if (!s) s = CALL(g, e, cuStreamCreate, &g->stream, CU_NON_BLOCKING);
    if (!s) s = make_pool(g, index, e);
    return s ? s : load_kernels(g, e);
}

int32_t gpu_open(gpu **out, uint32_t index, gpu_faults faults, fak_error *e)
{
    gpu *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g) return cuda_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for a card");
    pthread_mutex_init(&g->lock, NULL);
    g->faults = faults;
    g->stats.struct_size = sizeof g->stats;
    int32_t s = start(g, index, e);
    if (s)
        gpu_close(g);
    else
        *out = g;
    return s;
}

void gpu_close(gpu *g)
{
    if (!g) return;
    if (g->stream) GIVE_BACK(g, cuStreamSynchronize, g->stream);
    if (g->pool) GIVE_BACK(g, cuMemPoolDestroy, g->pool);
    if (g->stream) GIVE_BACK(g, cuStreamDestroy_v2, g->stream);
    if (g->module) GIVE_BACK(g, cuModuleUnload, g->module);
    if (g->context) cu.cuDevicePrimaryCtxRelease_v2(g->device);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

uint32_t gpu_processors(const gpu *g)
{
    return g->processors;
}

fak_stats gpu_stats(gpu *g)
{
    pthread_mutex_lock(&g->lock);
    fak_stats s = g->stats;
    pthread_mutex_unlock(&g->lock);
    return s;
}

void gpu_count_bytes(gpu *g, uint64_t up, uint64_t down)
{
    pthread_mutex_lock(&g->lock);
    g->stats.bytes_up += up;
    g->stats.bytes_down += down;
    pthread_mutex_unlock(&g->lock);
}

static void count_wait(gpu *g)
{
    pthread_mutex_lock(&g->lock);
    g->stats.host_waits++;
    pthread_mutex_unlock(&g->lock);
}

/* ---- memory ---- */

int32_t gpu_room(gpu *g, uint64_t *room, uint64_t *total, fak_error *e)
{
    size_t f = 0, t = 0;
    uint64_t reserved = 0, used = 0;
    int32_t s = CALL(g, e, cuMemGetInfo_v2, &f, &t);
    if (!s) s = CALL(g, e, cuMemPoolGetAttribute, g->pool, CU_POOL_RESERVED, &reserved);
    if (!s) s = CALL(g, e, cuMemPoolGetAttribute, g->pool, CU_POOL_USED, &used);
    *room = f + (reserved > used ? reserved - used : 0); /* the pool's own room is room */
    *total = t;
    return s;
}

int32_t gpu_alloc(gpu *g, uint64_t bytes, const char *what, gpu_ptr *out, fak_error *e)
{
    cu_ptr p = 0;
    uint64_t room = 0, total = 0;
    fak_error ignored;
    int refused = ++g->allocations == g->faults.alloc;
    *out = 0;
    int32_t s = refused
                    ? answer(g, CU_OUT_OF_MEMORY, "option fail-alloc", e)
                    : CALL(g, e, cuMemAllocFromPoolAsync, &p, (size_t)bytes, g->pool, g->stream);
    if (s == FAK_E_MEMORY && !gpu_room(g, &room, &total, &ignored))
        return cuda_fail(e, FAK_E_MEMORY, FAK_NO_INDEX,
                         "%s: %" PRIu64 " bytes of device memory asked%s; %" PRIu64 " of %" PRIu64
                         " are free",
                         what, bytes, refused ? ", refused by option fail-alloc" : "", room, total);
    pthread_mutex_lock(&g->lock);
    g->stats.allocations += !s;
    pthread_mutex_unlock(&g->lock);
    *out = p;
    return s;
}

void gpu_free(gpu *g, gpu_ptr p)
{
    if (p) GIVE_BACK(g, cuMemFreeAsync, p, g->stream);
}

int32_t gpu_pin(gpu *g, uint64_t bytes, void **out, fak_error *e)
{
    *out = NULL;
    int32_t s = CALL(g, e, cuMemHostAlloc, out, (size_t)bytes, CU_PORTABLE);
    if (s == FAK_E_MEMORY)
        cuda_fail(e, s, FAK_NO_INDEX, "no %" PRIu64 " bytes of pinned host memory", bytes);
    return s;
}

void gpu_unpin(gpu *g, void *p)
{
    if (p) GIVE_BACK(g, cuMemFreeHost, p);
}

/* ---- the stream ---- */

int32_t gpu_up(gpu *g, gpu_ptr to, const void *pinned, uint64_t bytes, fak_error *e)
{
    return CALL(g, e, cuMemcpyHtoDAsync_v2, to, pinned, (size_t)bytes, g->stream);
}

int32_t gpu_down(gpu *g, void *pinned, gpu_ptr from, uint64_t bytes, fak_error *e)
{
    return CALL(g, e, cuMemcpyDtoHAsync_v2, pinned, from, (size_t)bytes, g->stream);
}

/* Counts a submit; the one at which option lose-device loses the card. */
static int32_t submit(gpu *g, uint32_t kernels, fak_error *e)
{
    fak_error why;
    if (++g->submits >= g->faults.submit && g->faults.submit) {
        cuda_fail(&why, FAK_E_LOST, FAK_NO_INDEX,
                  "the card was lost at submit %" PRIu64 " by option lose-device", g->submits);
        return lose(g, &why, e);
    }
    pthread_mutex_lock(&g->lock);
    g->stats.submits++;
    g->stats.dispatches += kernels;
    pthread_mutex_unlock(&g->lock);
    return FAK_OK;
}

int32_t gpu_launch(gpu *g, enum gpu_kernel k, gpu_grid grid, const void *args, fak_error *e)
{
    void *parameter[] = {(void *)(uintptr_t)args}; /* the driver copies */
    int32_t s = g->capturing ? FAK_OK : submit(g, 1, e);
    g->kernels++;
    return s ? s
             : CALL(g, e, cuLaunchKernel, g->kernel[k], grid.x, grid.y, grid.z, THREADS, 1, 1,
                    grid.shared, g->stream, parameter, NULL);
}

int32_t gpu_sync(gpu *g, fak_error *e)
{
    count_wait(g);
    return CALL(g, e, cuStreamSynchronize, g->stream);
}

/* ---- events ---- */

int32_t gpu_event_make(gpu *g, gpu_event **out, fak_error *e)
{
    return CALL(g, e, cuEventCreate, out, CU_EVENT_FLAGS);
}

void gpu_event_free(gpu *g, gpu_event *v)
{
    if (v) GIVE_BACK(g, cuEventDestroy_v2, v);
}

int32_t gpu_event_record(gpu *g, gpu_event *v, fak_error *e)
{
    return CALL(g, e, cuEventRecord, v, g->stream);
}

int32_t gpu_event_query(gpu *g, gpu_event *v, fak_error *e)
{
    return CALL(g, e, cuEventQuery, v);
}

int32_t gpu_event_wait(gpu *g, gpu_event *v, fak_error *e)
{
    count_wait(g);
    return CALL(g, e, cuEventSynchronize, v);
}

/* ---- graphs ---- */

int32_t gpu_capture_begin(gpu *g, fak_error *e)
{
    int32_t s = CALL(g, e, cuStreamBeginCapture_v2, g->stream, CU_THREAD_LOCAL);
    g->capturing = !s;
    g->kernels = 0;
    return s;
}

int32_t gpu_capture_end(gpu *g, gpu_graph **out, fak_error *e)
{
    cu_graph graph = NULL;
    gpu_graph *x = calloc(1, sizeof *x);
    *out = NULL;
    g->capturing = 0;
    int32_t s = CALL(g, e, cuStreamEndCapture, g->stream, &graph);
    if (!x && !s) s = cuda_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for a graph");
    if (!s) s = CALL(g, e, cuGraphInstantiateWithFlags, &x->exec, graph, 0);
    if (graph) GIVE_BACK(g, cuGraphDestroy, graph);
    if (!s) s = CALL(g, e, cuGraphUpload, x->exec, g->stream); /* or its first launch allocates */
    if (x) x->kernels = g->kernels;
    if (s)
        gpu_graph_free(g, x);
    else
        *out = x;
    return s;
}

int32_t gpu_replay(gpu *g, gpu_graph *x, fak_error *e)
{
    int32_t s = submit(g, x->kernels, e);
    return s ? s : CALL(g, e, cuGraphLaunch, x->exec, g->stream);
}

void gpu_graph_free(gpu *g, gpu_graph *x)
{
    if (!x) return;
    if (x->exec) GIVE_BACK(g, cuGraphExecDestroy, x->exec);
    free(x);
}
