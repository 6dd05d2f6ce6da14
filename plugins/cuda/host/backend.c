/* backend - what both plugins are and offer, their devices, their options. */
#include "cuda.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const fak_host *cuda_host;

/* clang-format off */
#define ENTRY(id) {FAK_OP_##id, 1, NULL}
static const fak_op_entry table[] = {
    ENTRY(EMBED), ENTRY(RMSNORM), ENTRY(MATMUL), ENTRY(ADD_BIAS), ENTRY(ROPE), ENTRY(KV_APPEND),
    ENTRY(ATTENTION), ENTRY(GLU), ENTRY(ADD), ENTRY(SCALE), ENTRY(SOFTCAP), ENTRY(TAKE_ROWS),
    ENTRY(ARGMAX),
    ENTRY(NORM_MATMUL), ENTRY(NORM_MATMUL_GLU), ENTRY(GLU_MATMUL_ADD), ENTRY(MATMUL_ADD),
    ENTRY(FFN), ENTRY(ROPE_APPEND), ENTRY(MATMUL_ARGMAX),
};
enum {
    ALL_OPS = sizeof table / sizeof *table, CORE_OPS = ALL_OPS - 7,
    CAPS = FAK_CAP_FUSED_ATTN | FAK_CAP_FUSED_FFN | FAK_CAP_GRAPH_COMPILE | FAK_CAP_ASYNC |
           FAK_CAP_DEVICE_MEMORY | FAK_CAP_CAPACITY_PROBE,
    NUMERICS = FAK_ACT_F32 | FAK_DETERMINISTIC,
    /* Rounded to 8 bits, the least difference before becomes one as large as the rounding's: Q8
     * activations are offered where every bit is the contract's. */
    EXACT_NUMERICS = NUMERICS | FAK_ACT_Q8 | FAK_BATCH_INVARIANT,
    UPLOAD = 1 << FAK_F32 | 1 << FAK_F16 | 1 << FAK_BF16 | 1 << FAK_Q8_0 | 1 << FAK_Q4_0 |
             1 << FAK_Q4_1 | 1 << FAK_Q4_K | 1 << FAK_Q6_K
};
static const fak_option options[] = {
    {"exact", "0|1", "0", "every op in the contract's order, as class Reference, Q8 activations too; slower"},
    {"fused", "0|1", "1", "offer fused ops"},
    {"graph", "0|1", "1", "replay the graph of a step; 0 launches its kernels one by one"},
    {"fail-alloc", "0..1000000", "0", "fail an allocation of device memory"},
    {"lose-device", "0..1000000", "0", "lose the card at a submit"},
};
enum { EXACT, FUSED, GRAPH, FAIL_ALLOC, LOSE_DEVICE, OPTIONS };
/* clang-format on */

/* ---- devices ---- */

static uint32_t device_count(const fak_setting *set, uint32_t n, fak_error *e)
{
    (void)set, (void)n;
    return gpu_count(e);
}

static int32_t device_info(uint32_t index, const fak_setting *set, uint32_t n, fak_device_info *out,
                           fak_error *e)
{
    fak_device_info info;
    (void)set, (void)n;
    int32_t s = gpu_describe(index, &info, e);
    if (!s) fak_put(out, &info, sizeof info);
    return s;
}

/* The host names the backend and the option. */
static int32_t read_settings(const fak_setting *set, uint32_t n, uint64_t value[OPTIONS],
                             fak_error *e)
{
    for (uint32_t i = 0; i < OPTIONS; i++) value[i] = strtoull(options[i].initial, NULL, 10);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = 0;
        while (at < OPTIONS && strcmp(set[i].name, options[at].name)) at++;
        size_t digits = strspn(set[i].value, "0123456789");
        uint64_t most = at < FAIL_ALLOC ? 1 : 1000000, number = strtoull(set[i].value, NULL, 10);
        int good = at < OPTIONS && digits && digits < 9 && !set[i].value[digits] && number <= most;
        if (good) {
            value[at] = number;
            continue;
        }
        *e = (fak_error){.code = FAK_E_ARGUMENT, .index = i};
        if (at == OPTIONS)
            snprintf(e->message, sizeof e->message,
                     "unknown option; it has: exact, fused, graph, fail-alloc, lose-device");
        else
            snprintf(e->message, sizeof e->message, "it is 0 to %" PRIu64 ", not \"%.40s\"", most,
                     set[i].value);
        return FAK_E_ARGUMENT;
    }
    return FAK_OK;
}

static void close_device(fak_device *d)
{
    if (d) gpu_close(d->g);
    free(d);
}

static int32_t open_device(uint32_t index, const fak_setting *set, uint32_t n, fak_device **out,
                           const fak_opened **facts, fak_error *e)
{
    uint64_t value[OPTIONS];
    int32_t s = read_settings(set, n, value, e);
    if (s) return s;
    uint32_t count = gpu_count(e);
    if (!count) return FAK_E_UNSUPPORTED;
    if (index >= count)
        return cuda_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX,
                         "there are %" PRIu32 " cards, and no number %" PRIu32, count, index);
    fak_device *d = calloc(1, sizeof *d);
    if (!d) return cuda_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for a device");
    s = gpu_open(&d->g, index, (gpu_faults){value[FAIL_ALLOC], value[LOSE_DEVICE]}, e);
    if (s) {
        close_device(d);
        return s;
    }
    int exact = value[EXACT] != 0, fused = value[FUSED] != 0;
    d->exact = (uint32_t)exact;
    d->graph = (uint32_t)value[GRAPH];
    d->facts = (fak_opened){.struct_size = sizeof d->facts,
                            .klass = exact ? FAK_REFERENCE : FAK_APPROX,
                            .caps = CAPS & ~(fused ? 0u : (uint32_t)FAK_CAP_FUSED_FFN),
                            .numerics = exact ? EXACT_NUMERICS : NUMERICS,
                            .upload_dtypes = UPLOAD,
                            .ops = fused ? (uint32_t)ALL_OPS : (uint32_t)CORE_OPS,
                            .op_stride = sizeof *table,
                            .op = table};
    *out = d;
    *facts = &d->facts;
    return FAK_OK;
}

/* ---- extensions ---- */

static void get_stats(fak_device *d, fak_stats *out)
{
    fak_stats mine = gpu_stats(d->g);
    fak_put(out, &mine, sizeof mine);
}

static const void *get_ext(fak_device *d, const char *name)
{
    static const fak_stats_ext stats = {.struct_size = sizeof stats, .get = get_stats};
    (void)d;
    return strcmp(name, "fak.stats/1") ? NULL : &stats;
}

static fak_backend backend = {
    /* the name is the port's */
    .struct_size = sizeof backend,
    .abi_minor = FAK_ABI_MINOR,
    .caps = CAPS,
    .numerics = EXACT_NUMERICS,
    .upload_dtypes = UPLOAD,
    .options = OPTIONS,
    .option_stride = sizeof *options,
    .ops = ALL_OPS,
    .op_stride = sizeof *table,
    .version = "0.1.0",
    .vendor = "fak",
    .option = options,
    .op = table,
    .device_count = device_count,
    .device_info = device_info,
    .open = open_device,
    .close = close_device,
    .prepare = cuda_prepare,
    .release = cuda_release,
    .load = cuda_load,
    .unload = cuda_unload,
    .begin = cuda_begin,
    .run = cuda_run,
    .read = cuda_read,
    .write = cuda_write,
    .wait = cuda_wait,
    .kv_clone = cuda_kv_clone,
    .kv_trim = cuda_kv_trim,
    .kv_evict = cuda_kv_evict,
    .kv_read = cuda_kv_read,
    .kv_write = cuda_kv_write,
    .get_ext = get_ext,
};

int32_t cuda_enter(const cuda_port *port, const fak_host *host, const fak_backend **out,
                   fak_error *e)
{
    (void)e;
    cuda_port_now = port;
    cuda_host = host;
    backend.name = port->name;
    *out = &backend;
    return FAK_OK;
}
