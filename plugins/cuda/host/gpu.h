/* gpu - a card through the CUDA driver: memory, one stream, launches by number, events, graphs.  The
 * context is pushed and popped in every call: the host may use CUDA as well.
 *
 * Errors   FAK_OK, or a status with *e filled.  Of what the driver answers, only a lack of memory is an
 *          answer; anything else loses the card: the first cause sticks, every later call tells it.
 * Threads  one at a time, but for gpu_event_query, gpu_event_wait and gpu_lost: [any]. */
#ifndef GPU_H
#define GPU_H
#include "args.h"
#include "fak_backend.h"

typedef struct gpu gpu;
typedef struct gpu_graph gpu_graph;
typedef struct CUevent_st gpu_event;
enum gpu_kernel {
#define K(name, args) KERNEL_##name,
#include "kernels.def"
#undef K
    KERNELS
};

/* What the plugins made of these files differ in. */
typedef struct cuda_port {
    const char *name;                  /* of the backend */
    uint32_t kind;                     /* enum fak_device_kind; 0: as the driver says */
    void *(*open)(char why[200]);      /* the driver's library; NULL and one sentence */
    void *(*symbol)(void *library, const char *name);
    const void *image;                 /* the kernels */
} cuda_port;

typedef struct gpu_faults { uint64_t alloc, submit; } gpu_faults; /* fail-alloc, lose-device */

/* One sentence of the backend's. */
int32_t cuda_fail(fak_error *e, int32_t code, uint32_t index, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
extern const cuda_port *cuda_port_now; /* set by the entry */

/* driver.c */
uint32_t gpu_count(fak_error *e); /* 0: e->message says why */
int32_t gpu_describe(uint32_t index, fak_device_info *info, fak_error *e);

/* gpu.c */
int32_t gpu_open(gpu **g, uint32_t index, gpu_faults faults, fak_error *e); /* kernels are resident */
void gpu_close(gpu *g);
uint32_t gpu_processors(const gpu *g);
int32_t gpu_lost(gpu *g, fak_error *e); /* FAK_OK, or FAK_E_LOST with the first cause */
int32_t gpu_room(gpu *g, uint64_t *free, uint64_t *total, fak_error *e);
fak_stats gpu_stats(gpu *g);
void gpu_count_bytes(gpu *g, uint64_t up, uint64_t down);

int32_t gpu_alloc(gpu *g, uint64_t bytes, const char *what, gpu_ptr *out, fak_error *e);
void gpu_free(gpu *g, gpu_ptr p);
int32_t gpu_pin(gpu *g, uint64_t bytes, void **out, fak_error *e);
void gpu_unpin(gpu *g, void *p);

/* In the stream's order. */
int32_t gpu_up(gpu *g, gpu_ptr to, const void *pinned, uint64_t bytes, fak_error *e);
int32_t gpu_down(gpu *g, void *pinned, gpu_ptr from, uint64_t bytes, fak_error *e);
typedef struct gpu_grid { uint32_t x, y, z, shared; } gpu_grid; /* blocks; bytes of dynamic memory */
int32_t gpu_launch(gpu *g, enum gpu_kernel k, gpu_grid grid, const void *args, fak_error *e);
int32_t gpu_sync(gpu *g, fak_error *e);

int32_t gpu_event_make(gpu *g, gpu_event **out, fak_error *e);
void gpu_event_free(gpu *g, gpu_event *v);
int32_t gpu_event_record(gpu *g, gpu_event *v, fak_error *e);
int32_t gpu_event_query(gpu *g, gpu_event *v, fak_error *e); /* FAK_PENDING too */
int32_t gpu_event_wait(gpu *g, gpu_event *v, fak_error *e);

/* Between them launches are recorded, not run; end in any case. */
int32_t gpu_capture_begin(gpu *g, fak_error *e);
int32_t gpu_capture_end(gpu *g, gpu_graph **out, fak_error *e);
int32_t gpu_replay(gpu *g, gpu_graph *x, fak_error *e);
void gpu_graph_free(gpu *g, gpu_graph *x);
#endif
