/* vulkan - a device with its own memory, one queue and one timeline, and what it is found and made by. */
#ifndef VK_H
#define VK_H
#include "fak_backend.h"

#define VK_NO_PROTOTYPES
#include <pthread.h>
#include <volk.h>

enum {
    BINDINGS = 4, /* storage buffers of a kernel: what every driver has; beside them the step's head */
    SPECS = 6     /* specialisation constants of a kernel, at most */
};

/* ---- instance.c: the loader and what it finds ---- */

typedef struct features { /* what is optional */
    uint32_t subgroup; /* invocations that add without shared memory; 0: not there */
    uint32_t int8dot;  /* four products of int8 at a time: is there */
} features;

typedef struct adapter { /* a physical device that could be used */
    VkPhysicalDevice phys;
    VkPhysicalDeviceProperties properties;
    VkPhysicalDeviceMemoryProperties memory;
    uint8_t uuid[VK_UUID_SIZE];
    uint64_t allocation_max;
    char driver[VK_MAX_DRIVER_NAME_SIZE];
    VkDriverId driver_id;
    uint32_t family; /* of its queue */
    int has_budget;  /* VK_EXT_memory_budget */
    features has;
} adapter;

/* Holds the instance: each that succeeds is matched by a put, and the last put ends the driver. */
int32_t vk_instance_get(fak_error *);
void vk_instance_put(void);
/* The usable adapters, at most `most`; 0 with a sentence in the error when there is none. */
uint32_t vk_adapters(adapter *, uint32_t most, fak_error *);
uint64_t vk_memory_total(const adapter *);
uint64_t vk_memory_free(const adapter *);
uint32_t vk_device_count(const fak_setting *, uint32_t settings, fak_error *);
int32_t vk_device_info(uint32_t index, const fak_setting *, uint32_t settings, fak_device_info *,
                       fak_error *);

/* ---- pipelines.c ---- */

enum shader {
    SHADER_ADD, SHADER_APPEND, SHADER_ARGMAX, SHADER_ATTEND, SHADER_ATTEND_ROW, SHADER_BEST,
    SHADER_BIAS, SHADER_EMBED, SHADER_GATHER, SHADER_GLU, SHADER_MATMUL, SHADER_MATMUL_Q8,
    SHADER_MATMUL_Q8_ROW, SHADER_MATMUL_ROW, SHADER_MATMUL_TILE, SHADER_NORM, SHADER_NORM_ROW,
    SHADER_QUANTISE, SHADER_ROPE, SHADER_SCALE, SHADER_SOFTCAP, SHADER_TAKE, SHADERS
};
enum { PLAIN, SUBGROUPS, WAYS }; /* the same kernel with subgroups, where there is another */
typedef struct spirv { const uint32_t *code; size_t bytes; } spirv;
extern const spirv vk_spirv[SHADERS][WAYS]; /* made by shaders/embed.py */

typedef struct kernel { /* a shader with its constants */
    enum shader shader;
    uint32_t spec[SPECS];
} kernel;
typedef struct pipeline { kernel key; VkPipeline vk; } pipeline;

typedef struct constants { /* shaders/common.glsl */
    uint32_t icols, ocols, which, x, y, y1, y2, n1, n2, count, first, base, a_row, b_row, b_at;
    uint32_t heads, kv_heads, head_dim, rot_dim, window, group, act;
    float eps, scale, softcap;
    uint32_t values, raw, source;
} constants;

int32_t vk_pipelines_make(fak_device *, fak_error *); /* layouts; what the host's store has of before */
void vk_pipelines_free(fak_device *);
/* The pipeline of a kernel, made when it is first asked for; *index counts from 0. */
int32_t vk_pipeline(fak_device *, const kernel *, uint32_t *index, fak_error *);
void vk_pipelines_keep(fak_device *); /* in the host's store, where it has them not */

/* ---- device.c ---- */

enum use { USE_ALL, USE_NONE, USE_SUBGROUP, USE_INT8DOT }; /* of features */

typedef struct options {
    uint32_t rows;      /* kernels that need no shared memory: an output an invocation */
    uint32_t exact;     /* rows, and in the contract's order throughout */
    uint32_t recorded, fused, barriers;
    uint32_t features; /* enum use */
    uint64_t work;     /* multiplications of a submit, at most */
    uint64_t stage, piece, memory; /* bytes: of a part of the ring; of a weight's piece; that there are */
    uint64_t fail_alloc, fail_submit, lose; /* numbers of what fails; UINT64_MAX: nothing */
} options;

struct fak_device {
    const fak_host *host;
    fak_opened facts;
    options opt;
    adapter adapter;
    VkDevice vk;
    VkQueue queue;
    VkSemaphore timeline;
    uint64_t submitted; /* value of the timeline after the last submit */
    VkDescriptorSetLayout set;
    VkPipelineLayout layout;
    features use;
    VkPipelineCache cache;
    size_t kept; /* bytes of it that the host's store has */
    pipeline *pipelines;
    uint32_t pipeline_count;
    uint64_t piece_max, block_max, align; /* bytes: of what a kernel sees at once; of an allocation */
    uint64_t used, attempts;              /* bytes of device memory; times it was asked for */
    pthread_mutex_t lock;
    /* under the lock */
    uint64_t done;  /* value that the timeline was last seen at */
    fak_error lost; /* code 0: not lost */
    fak_stats stats;
};

int32_t vk_open(uint32_t index, const fak_setting *, uint32_t settings, const fak_host *,
                fak_device **, fak_error *);
void vk_close(fak_device *);
features vk_use(const features *has, const options *); /* of what an adapter has, what options leave */

int32_t vk_fail(fak_error *, int32_t code, uint32_t index, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* 0, or MEMORY or LOST by what the driver answered to `what`; a lost device stays lost. */
int32_t vk_result(fak_device *, VkResult, const char *what, fak_error *);
int32_t vk_lost(fak_device *, fak_error *); /* 0, or LOST with the first cause */
void vk_count(fak_device *, uint64_t *which, uint64_t n); /* adds to one of its stats */

/* options.c */
extern const fak_option vk_options[];
extern const uint32_t vk_option_count;
int32_t vk_read_options(options *, const fak_setting *, uint32_t settings, const adapter *,
                        fak_error *);

/* ---- memory.c ---- */

typedef struct block { /* an allocation with a buffer all over it; zero: none */
    VkBuffer vk;
    VkDeviceMemory memory;
    void *map; /* of host memory only: device memory is never looked into */
    uint64_t bytes;
} block;

typedef struct place { uint32_t block; uint64_t at, bytes; } place; /* in a store; bytes 0: nowhere */

enum { STORE_BLOCKS = 64 };
typedef struct store { /* device memory of one owner: first laid out, then taken */
    block at[STORE_BLOCKS];
    uint64_t bytes[STORE_BLOCKS];
    uint32_t blocks;
    int full; /* more than it has room for was laid out */
} store;

place vk_lay(store *, const fak_device *, uint64_t bytes); /* `bytes` is at most block_max */
uint64_t vk_store_bytes(const store *);
int32_t vk_take(fak_device *, store *, const char *what, fak_error *);
void vk_give(fak_device *, store *);
int32_t vk_take_host(fak_device *, block *, uint64_t bytes, const char *what, fak_error *);
void vk_give_block(fak_device *, block *);

/* ---- halves.c: numbers of 16 bits on the host ---- */

void vk_widen(uint32_t dtype, uint64_t n, const void *from, float *to); /* kv dtypes */
void vk_narrow(uint32_t dtype, uint64_t n, const float *from, void *to);
uint32_t vk_element_bytes(uint32_t dtype);
#endif
