/* gpu - see gpu.h: errors, a card from open to close, its memory. */
#include "gpu_inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEAST_MAJOR = 8 }; /* of compute capability: sm_80 is what the kernels are built for */

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

int32_t gpu_lose(gpu *g, const fak_error *why, fak_error *e)
{
    pthread_mutex_lock(&g->lock);
    if (!g->lost.code) g->lost = *why;
    *e = g->lost;
    pthread_mutex_unlock(&g->lock);
    return e->code;
}

/* What is free, behind a sentence on memory that was not to be had. */
static void tell_room(gpu *g, fak_error *e)
{
    size_t room = 0, total = 0, n = strlen(e->message);
    cu_context mine;
    if (!g->context || cu.cuCtxPushCurrent_v2(g->context)) return;
    cu_result r = cu.cuMemGetInfo_v2(&room, &total);
    cu.cuCtxPopCurrent_v2(&mine);
    if (r) return;
    snprintf(e->message + n, sizeof e->message - n, "; %zu of %zu bytes of device memory are free",
             room, total);
}

int32_t gpu_answer(gpu *g, cu_result r, const char *call, fak_error *e)
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
    if (r == CU_OUT_OF_MEMORY) tell_room(g, &why);
    *e = why;
    return why.code == FAK_E_LOST ? gpu_lose(g, &why, e) : why.code;
}

int32_t gpu_enter(gpu *g, fak_error *e)
{
    int32_t s = gpu_lost(g, e);
    return s ? s : gpu_answer(g, cu.cuCtxPushCurrent_v2(g->context), "cuCtxPushCurrent", e);
}

int32_t gpu_leave(gpu *g, cu_result r, const char *call, fak_error *e)
{
    cu_context mine;
    cu.cuCtxPopCurrent_v2(&mine);
    return gpu_answer(g, r, call, e);
}
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

/* What the kernels need of a card. */
static int32_t check_card(gpu *g, uint32_t index, fak_error *e)
{
    int processors = 0, pools = 0, major = 0;
    const struct {
        unsigned which;
        int *to;
    } asked[] = {{CU_MULTIPROCESSORS, &processors}, {CU_POOLS, &pools}, {CU_MAJOR, &major}};
    int32_t s = gpu_answer(g, cu.cuDeviceGet(&g->device, (int)index), "cuDeviceGet", e);
    for (int i = 0; !s && i < 3; i++)
        s = gpu_answer(g, cu.cuDeviceGetAttribute(asked[i].to, asked[i].which, g->device),
                       "cuDeviceGetAttribute", e);
    g->processors = (uint32_t)processors;
    if (!s && major < LEAST_MAJOR)
        return cuda_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX,
                         "card %" PRIu32 " is of compute capability %d; the kernels need %d.0 or "
                         "newer",
                         index, major, LEAST_MAJOR);
    if (!s && !pools)
        return cuda_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, "card %" PRIu32 " has no memory pools",
                         index);
    return s;
}

static int32_t start(gpu *g, uint32_t index, fak_error *e)
{
    int32_t s = check_card(g, index, e);
    if (!s)
        s = gpu_answer(g, cu.cuDevicePrimaryCtxRetain(&g->context, g->device),
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

void gpu_count_wait(gpu *g)
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
                    ? gpu_answer(g, CU_OUT_OF_MEMORY, "option fail-alloc", e)
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
    if (s != FAK_E_MEMORY) return s;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return cuda_fail(
        e, s, FAK_NO_INDEX,
        "%" PRIu64 " bytes of pinned host memory asked; %" PRIu64 " of %" PRIu64 " are free", bytes,
        page * (uint64_t)sysconf(_SC_AVPHYS_PAGES), page * (uint64_t)sysconf(_SC_PHYS_PAGES));
}

void gpu_unpin(gpu *g, void *p)
{
    if (p) GIVE_BACK(g, cuMemFreeHost, p);
}
