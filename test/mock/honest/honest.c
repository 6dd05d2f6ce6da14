/* honest - what it is and offers, and its devices.  Options:
 *
 *   exact=0|1       0: class Approx, activations F32, sums in its own order, the C library's functions.
 *                   1: class Reference, activations F32 and Q8, the contract's order of operations
 *   fused=0|1       its table has the seven fused ops (default 1)
 *   graph-only=0|1  its table is empty: all core ops are run in ranges
 *   eager=0|1       no GraphCompile: ops are called one by one
 *   hold=0|1        nothing is executed until a call blocks: what has not been waited for is pending
 *   leave=ID        ops of this id are left to the host
 *   memory=BYTES    the device's, 64 MiB unless said
 *   fail-alloc=K    the K-th allocation of device memory fails, once
 *   fail-submit=K   the K-th submit fails while it is executed, once: FAK_E_STEP
 *   lose-device=K   from the K-th submit on the device is lost */
#include "honest.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

FAK_NOTE("honest", FAK_APPROX, "");

static const fak_host *host; /* lives until shutdown */

int32_t honest_fail(fak_error *e, int32_t code, uint32_t index, const char *format, ...)
{
    va_list arguments;
    *e = (fak_error){.code = code, .index = index};
    int n = snprintf(e->message, sizeof e->message, "honest: ");
    va_start(arguments, format);
    vsnprintf(e->message + n, sizeof e->message - (size_t)n, format, arguments);
    va_end(arguments);
    return code;
}

/* ---- what it offers ---- */

/* clang-format off */
#define ENTRY(id) {FAK_OP_##id, 1, honest_op}
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
    NUMERICS = FAK_ACT_F32 | FAK_BATCH_INVARIANT | FAK_DETERMINISTIC,
    UPLOAD = 1 << FAK_F32 | 1 << FAK_F16 | 1 << FAK_BF16 | 1 << FAK_Q8_0 | 1 << FAK_Q4_0 |
             1 << FAK_Q4_1 | 1 << FAK_Q5_0 | 1 << FAK_Q5_1
};
static const fak_option options[] = {
    {"exact", "0|1", "0", "compute in the contract's order of operations, as class Reference"},
    {"fused", "0|1", "1", "offer fused ops"},
    {"graph-only", "0|1", "0", "offer no op, but to run ranges"},
    {"eager", "0|1", "0", "take ops one by one, not ranges"},
    {"hold", "0|1", "0", "execute nothing until a call blocks"},
    {"memory", "0..1099511627776", "67108864", "bytes of device memory"},
    {"fail-alloc", "0..1000000", "0", "fail an allocation of device memory"},
    {"fail-submit", "0..1000000", "0", "fail a submit while it is executed"},
    {"lose-device", "0..1000000", "0", "lose the device at a submit"},
    {"leave", "0..131", "0", "leave an op to the host"},
};
enum { OPTIONS = sizeof options / sizeof *options };
/* clang-format on */

static const fak_bound bound = {
    .cosine = 0.9999f, .norm_ratio = 0.002f, .rel_l2 = 0.01f, .max_abs = 0.1f};

/* ---- devices ---- */

static int32_t device_info(uint32_t index, const fak_setting *set, uint32_t n, fak_device_info *out,
                           fak_error *e)
{
    fak_device_info info = {.kind = FAK_SOFTWARE,
                            .memory_total = 64 << 20,
                            .memory_free = 64 << 20,
                            .allocation_max = 64 << 20,
                            .id = "uuid:honest-0",
                            .name = "honest",
                            .tier = "one worker"};
    if (index) return honest_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX, "there is one device, number 0");
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(set[i].name, "memory"))
            info.memory_total = info.memory_free = info.allocation_max =
                strtoull(set[i].value, NULL, 10);
    fak_put(out, &info, sizeof info);
    return FAK_OK;
}

/* The number of a setting; its option's index, or OPTIONS for an unknown one or one out of range. */
static uint32_t read_setting(const fak_setting *set, uint64_t *number)
{
    uint32_t at = 0;
    while (at < OPTIONS && strcmp(set->name, options[at].name)) at++;
    if (at == OPTIONS) return at;
    uint64_t most = strcmp(options[at].values, "0|1") ? strtoull(options[at].values + 3, NULL, 10)
                                                      : 1;
    size_t digits = strspn(set->value, "0123456789");
    *number = strtoull(set->value, NULL, 10);
    return digits && digits < 16 && !set->value[digits] && *number <= most ? at : OPTIONS;
}

static int32_t set_up(fak_device *d, const fak_setting *set, uint32_t n, fak_error *e)
{
    uint64_t value[OPTIONS];
    for (uint32_t i = 0; i < OPTIONS; i++) value[i] = strtoull(options[i].initial, NULL, 10);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t number;
        uint32_t at = read_setting(&set[i], &number);
        if (at == OPTIONS) {
            *e = (fak_error){.code = FAK_E_ARGUMENT, .index = i};
            snprintf(e->message, sizeof e->message, "unknown option, or \"%.40s\" is out of range",
                     set[i].value);
            return FAK_E_ARGUMENT;
        }
        value[at] = number;
    }
    d->exact = (uint32_t)value[0];
    d->hold = (uint32_t)value[4];
    d->memory = value[5];
    d->fail_alloc = value[6];
    d->fail_submit = value[7];
    d->lose = value[8] ? value[8] : UINT64_MAX;
    d->leave = (uint32_t)value[9];
    int fused = value[1] && !value[2];
    d->facts = (fak_opened){.struct_size = sizeof d->facts,
                            .klass = d->exact ? FAK_REFERENCE : FAK_APPROX,
                            .caps = CAPS,
                            .numerics = NUMERICS | (d->exact ? FAK_ACT_Q8 : 0),
                            .upload_dtypes = UPLOAD,
                            .ops = value[2] ? 0u
                                   : fused  ? (uint32_t)ALL_OPS
                                            : (uint32_t)CORE_OPS,
                            .op_stride = sizeof *table,
                            .bounds = d->exact ? 0 : 1,
                            .bound_stride = sizeof bound,
                            .op = table,
                            .bound = &bound};
    if (!fused) d->facts.caps &= ~(uint32_t)FAK_CAP_FUSED_FFN;
    if (value[2]) d->facts.caps &= ~(uint32_t)FAK_CAP_FUSED_ATTN;
    if (!value[2] && value[3]) d->facts.caps &= ~(uint32_t)FAK_CAP_GRAPH_COMPILE;
    return FAK_OK;
}

static int32_t open_device(uint32_t index, const fak_setting *set, uint32_t n, fak_device **out,
                           const fak_opened **facts, fak_error *e)
{
    char sentence[80];
    if (index) return honest_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX, "there is one device, number 0");
    fak_device *d = calloc(1, sizeof *d);
    if (!d) return honest_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for a device");
    d->host = host;
    int32_t s = set_up(d, set, n, e);
    if (!s && !(d->block = malloc(d->memory + ALIGN)))
        s = honest_fail(e, FAK_E_MEMORY, FAK_NO_INDEX,
                        "no host memory for %" PRIu64 " bytes of device memory", d->memory);
    if (!s) s = honest_start(d, e);
    if (s) {
        free(d->block);
        free(d);
        return s;
    }
    snprintf(sentence, sizeof sentence, "honest: %" PRIu64 " bytes of device memory", d->memory);
    host->log(host->self, FAK_LOG_INFO, sentence);
    *out = d;
    *facts = &d->facts;
    return FAK_OK;
}

static void close_device(fak_device *d)
{
    if (!d) return;
    honest_stop(d);
    free(d->piece);
    free(d->block);
    free(d);
}

/* ---- extensions ---- */

static void get_stats(fak_device *d, fak_stats *out)
{
    pthread_mutex_lock(&d->lock);
    fak_put(out, &d->stats, sizeof d->stats);
    pthread_mutex_unlock(&d->lock);
}

static const void *get_ext(fak_device *d, const char *name)
{
    static const fak_stats_ext stats = {.struct_size = sizeof stats, .get = get_stats};
    (void)d;
    return strcmp(name, "fak.stats/1") ? NULL : &stats;
}

static const fak_backend backend = {
    .struct_size = sizeof backend,
    .abi_minor = FAK_ABI_MINOR,
    .caps = CAPS,
    .numerics = NUMERICS | FAK_ACT_Q8,
    .upload_dtypes = UPLOAD,
    .options = OPTIONS,
    .option_stride = sizeof *options,
    .ops = ALL_OPS,
    .op_stride = sizeof *table,
    .name = "honest",
    .version = "1.0",
    .vendor = "fak tests",
    .option = options,
    .op = table,
    .device_info = device_info,
    .open = open_device,
    .close = close_device,
    .prepare = honest_prepare,
    .release = honest_release,
    .load = honest_load,
    .unload = honest_unload,
    .begin = honest_begin,
    .run = honest_run,
    .read = honest_read,
    .write = honest_write,
    .wait = honest_wait,
    .kv_clone = honest_kv_clone,
    .kv_trim = honest_kv_trim,
    .kv_evict = honest_kv_evict,
    .kv_read = honest_kv_read,
    .kv_write = honest_kv_write,
    .get_ext = get_ext,
};

int32_t FAK_ENTRY(const fak_host *theirs, const fak_backend **out, fak_error *e)
{
    (void)e;
    host = theirs;
    *out = &backend;
    return FAK_OK;
}
