/* gpu_inside - what gpu.c and gpu_stream.c share: a card, and how each call of the driver is made. */
#ifndef GPU_INSIDE_H
#define GPU_INSIDE_H
#include "driver_calls.h"
#include "gpu.h"

#include <pthread.h>

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

int32_t gpu_enter(gpu *g, fak_error *e);
int32_t gpu_leave(gpu *g, cu_result r, const char *call, fak_error *e);
int32_t gpu_answer(gpu *g, cu_result r, const char *call, fak_error *e); /* what it means here */
int32_t gpu_lose(gpu *g, const fak_error *why, fak_error *e); /* the first cause stays, and is told */
void gpu_count_wait(gpu *g);

/* A call in the card's context. */
#define CALL(g, e, f, ...) (gpu_enter(g, e) ? (e)->code : gpu_leave(g, cu.f(__VA_ARGS__), #f, e))

/* What gives back is tried on a lost card too: the driver may refuse, but nothing of ours is kept. */
#define GIVE_BACK(g, f, ...)                                                                       \
    do {                                                                                           \
        cu_context mine_;                                                                          \
        if (cu.cuCtxPushCurrent_v2((g)->context)) break;                                           \
        cu.f(__VA_ARGS__);                                                                         \
        cu.cuCtxPopCurrent_v2(&mine_);                                                             \
    } while (0)
#endif
