/* gpu_stream - see gpu.h: what is asked of the card and done in the stream's order, and how its end is known. */
#include "gpu_inside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

enum { SPIN_US = 2000 };

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
        return gpu_lose(g, &why, e);
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
    gpu_count_wait(g);
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

static int64_t microseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* A token may take less than a sleeper needs to wake: it looks for a while before it sleeps. */
static cu_result wait_for(cu_event v)
{
    int64_t end = microseconds() + SPIN_US;
    cu_result r;
    while ((r = cu.cuEventQuery(v)) == CU_NOT_READY)
        if (microseconds() > end) return cu.cuEventSynchronize(v);
    return r;
}

int32_t gpu_event_wait(gpu *g, gpu_event *v, fak_error *e)
{
    gpu_count_wait(g);
    return gpu_enter(g, e) ? e->code : gpu_leave(g, wait_for(v), "cuEventSynchronize", e);
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
