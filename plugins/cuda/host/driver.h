/* driver - what is used of the CUDA driver's API, by the names that the library exports; no header of the
 * toolkit is needed (test/cuda_driver.c compares with the toolkit's own where there is one). */
#ifndef DRIVER_H
#define DRIVER_H
#include <stddef.h>

typedef unsigned cu_result; /* CUresult */
enum {
    CU_OK = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_INVALID_IMAGE = 200,
    CU_INVALID_CONTEXT = 201,
    CU_NOT_FOUND = 500,
    CU_NOT_READY = 600,
    CU_ILLEGAL_ADDRESS = 700,
    CU_INVALIDATED = 901 /* a capture */
};
typedef int cu_device;
typedef unsigned long long cu_ptr;
typedef struct CUctx_st *cu_context;
typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;
typedef struct CUgraph_st *cu_graph;
typedef struct CUgraphExec_st *cu_graph_exec;
typedef struct CUmemPoolHandle_st *cu_pool;
typedef struct cu_uuid { char bytes[16]; } cu_uuid;

typedef struct cu_pool_props {
    unsigned type, handles;           /* PINNED; no handles */
    struct { unsigned type; int id; } location; /* DEVICE */
    void *security;
    size_t most;
    unsigned short usage;
    unsigned char reserved[54];
} cu_pool_props;

enum {
    CU_MULTIPROCESSORS = 16, /* attributes of a device */
    CU_INTEGRATED = 18,
    CU_MAJOR = 75,
    CU_MINOR = 76,
    CU_POOLS = 115,
    CU_POOL_THRESHOLD = 4, /* of a pool: bytes that it keeps */
    CU_POOL_RESERVED = 5,
    CU_POOL_USED = 7,
    CU_POOL_PINNED = 1, /* type of what a pool gives, and where it lies */
    CU_ON_DEVICE = 1,
    CU_NON_BLOCKING = 1,   /* stream: not ordered with the null stream */
    CU_EVENT_FLAGS = 1 | 2, /* waits sleep; no timing */
    CU_THREAD_LOCAL = 1,   /* capture: other threads' calls are their own */
    CU_PORTABLE = 1        /* pinned memory */
};

/* X(name, parameters) */
#define DRIVER_CALLS(X)                                                                            \
    X(cuInit, (unsigned))                                                                          \
    X(cuDriverGetVersion, (int *))                                                                 \
    X(cuGetErrorName, (cu_result, const char **))                                                  \
    X(cuGetErrorString, (cu_result, const char **))                                                \
    X(cuDeviceGetCount, (int *))                                                                   \
    X(cuDeviceGet, (cu_device *, int))                                                             \
    X(cuDeviceGetName, (char *, int, cu_device))                                                   \
    X(cuDeviceGetUuid_v2, (cu_uuid *, cu_device))                                                  \
    X(cuDeviceTotalMem_v2, (size_t *, cu_device))                                                  \
    X(cuDeviceGetAttribute, (int *, unsigned, cu_device))                                          \
    X(cuDevicePrimaryCtxRetain, (cu_context *, cu_device))                                         \
    X(cuDevicePrimaryCtxRelease_v2, (cu_device))                                                   \
    X(cuCtxPushCurrent_v2, (cu_context))                                                           \
    X(cuCtxPopCurrent_v2, (cu_context *))                                                          \
    X(cuMemGetInfo_v2, (size_t *, size_t *))                                                       \
    X(cuModuleLoadData, (cu_module *, const void *))                                               \
    X(cuModuleUnload, (cu_module))                                                                 \
    X(cuModuleGetFunction, (cu_function *, cu_module, const char *))                               \
    X(cuFuncLoad, (cu_function))                                                                   \
    X(cuStreamCreate, (cu_stream *, unsigned))                                                     \
    X(cuStreamDestroy_v2, (cu_stream))                                                             \
    X(cuStreamSynchronize, (cu_stream))                                                            \
    X(cuMemPoolCreate, (cu_pool *, const cu_pool_props *))                                         \
    X(cuMemPoolDestroy, (cu_pool))                                                                 \
    X(cuMemPoolSetAttribute, (cu_pool, unsigned, void *))                                          \
    X(cuMemPoolGetAttribute, (cu_pool, unsigned, void *))                                          \
    X(cuMemAllocFromPoolAsync, (cu_ptr *, size_t, cu_pool, cu_stream))                             \
    X(cuMemFreeAsync, (cu_ptr, cu_stream))                                                         \
    X(cuMemHostAlloc, (void **, size_t, unsigned))                                                 \
    X(cuMemFreeHost, (void *))                                                                     \
    X(cuMemcpyHtoDAsync_v2, (cu_ptr, const void *, size_t, cu_stream))                             \
    X(cuMemcpyDtoHAsync_v2, (void *, cu_ptr, size_t, cu_stream))                                   \
    X(cuLaunchKernel, (cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,    \
                       unsigned, cu_stream, void **, void **))                                     \
    X(cuEventCreate, (cu_event *, unsigned))                                                       \
    X(cuEventDestroy_v2, (cu_event))                                                               \
    X(cuEventRecord, (cu_event, cu_stream))                                                        \
    X(cuEventQuery, (cu_event))                                                                    \
    X(cuEventSynchronize, (cu_event))                                                              \
    X(cuStreamBeginCapture_v2, (cu_stream, unsigned))                                              \
    X(cuStreamEndCapture, (cu_stream, cu_graph *))                                                 \
    X(cuGraphInstantiateWithFlags, (cu_graph_exec *, cu_graph, unsigned long long))                \
    X(cuGraphUpload, (cu_graph_exec, cu_stream))                                                   \
    X(cuGraphLaunch, (cu_graph_exec, cu_stream))                                                   \
    X(cuGraphExecDestroy, (cu_graph_exec))                                                         \
    X(cuGraphDestroy, (cu_graph))
#endif
