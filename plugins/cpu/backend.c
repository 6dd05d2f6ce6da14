/* backend - what the plugin is and offers, its one device, its options. */
#include "cpu.h"

#include <stdlib.h>
#include <string.h>

FAK_NOTE("cpu", FAK_REFERENCE, "");

int32_t cpu_fail(fak_error *e, int32_t code, uint32_t index, const char *sentence)
{
    *e = (fak_error){.code = code, .index = index};
    strncpy(e->message, "cpu: ", sizeof e->message - 1);
    strncat(e->message, sentence, sizeof e->message - strlen(e->message) - 1);
    return code;
}

/* clang-format off */
#define ENTRY(id) {FAK_OP_##id, 1, cpu_call}
static const fak_op_entry table[] = {
    ENTRY(EMBED), ENTRY(RMSNORM), ENTRY(MATMUL), ENTRY(ADD_BIAS), ENTRY(ROPE), ENTRY(KV_APPEND),
    ENTRY(ATTENTION), ENTRY(GLU), ENTRY(ADD), ENTRY(SCALE), ENTRY(SOFTCAP), ENTRY(TAKE_ROWS),
    ENTRY(ARGMAX),
    ENTRY(NORM_MATMUL), ENTRY(NORM_MATMUL_GLU), ENTRY(GLU_MATMUL_ADD), ENTRY(MATMUL_ADD),
    ENTRY(FFN), ENTRY(ROPE_APPEND), ENTRY(MATMUL_ARGMAX),
};
enum {
    OPS = sizeof table / sizeof *table,
    CAPS = FAK_CAP_FUSED_ATTN | FAK_CAP_FUSED_FFN | FAK_CAP_GRAPH_COMPILE | FAK_CAP_CAPACITY_PROBE,
    NUMERICS = FAK_ACT_F32 | FAK_ACT_Q8 | FAK_BATCH_INVARIANT | FAK_DETERMINISTIC,
    UPLOAD = 1 << FAK_F32 | 1 << FAK_F16 | 1 << FAK_BF16 | 1 << FAK_Q8_0 | 1 << FAK_Q4_0 |
             1 << FAK_Q4_1 | 1 << FAK_Q5_0 | 1 << FAK_Q5_1 | 1 << FAK_Q4_K | 1 << FAK_Q5_K |
             1 << FAK_Q6_K
};
/* clang-format on */

static const fak_option options[] = {
    {"tier", tier_names, "auto", "the kernels: auto takes the fastest that this machine has"},
    {"threads", "0..256", "0", "how many; 0: the cores that the process may use"},
};

static int32_t device_info(uint32_t index, const fak_setting *set, uint32_t n, fak_device_info *out,
                           fak_error *e)
{
    fak_device_info info = {.kind = FAK_CPU, .id = "cpu:0", .name = "this processor"};
    (void)set, (void)n;
    if (index) return cpu_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX, "there is one device, number 0");
    strncpy(info.tier, tier_best()->name, sizeof info.tier - 1);
    fak_put(out, &info, sizeof info);
    return FAK_OK;
}

/* The host names the backend and the option. */
static int32_t refuse_option(fak_error *e, uint32_t index, const char *sentence)
{
    *e = (fak_error){.code = FAK_E_ARGUMENT, .index = index};
    strncpy(e->message, sentence, sizeof e->message - 1);
    return FAK_E_ARGUMENT;
}

static int32_t read_settings(const fak_setting *set, uint32_t n, const tier **t, uint32_t *threads,
                             fak_error *e)
{
    *t = tier_best();
    *threads = 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *value = set[i].value;
        size_t digits = strspn(value, "0123456789");
        if (!strcmp(set[i].name, "tier")) {
            if (strcmp(value, "auto")) *t = tier_by_name(value);
            if (!*t)
                return refuse_option(e, i, "this machine has no such tier; see fakrun backends -v");
        } else if (!strcmp(set[i].name, "threads")) {
            *threads = (uint32_t)strtoul(value, NULL, 10);
            if (!digits || digits > 3 || value[digits] || *threads > 256)
                return refuse_option(e, i, "it is 0 to 256");
        } else {
            return refuse_option(e, i, "unknown option; it has: tier, threads");
        }
    }
    return FAK_OK;
}

static void close_device(fak_device *d)
{
    if (d) pool_close(d->pool);
    free(d);
}

static int32_t open_device(uint32_t index, const fak_setting *set, uint32_t n, fak_device **out,
                           const fak_opened **facts, fak_error *e)
{
    const tier *t;
    uint32_t threads;
    if (index) return cpu_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX, "there is one device, number 0");
    int32_t s = read_settings(set, n, &t, &threads, e);
    if (s) return s;
    fak_device *d = calloc(1, sizeof *d);
    pool *p = d ? pool_open(threads ? threads : pool_default_threads()) : NULL;
    if (!p) {
        free(d);
        return cpu_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for a device");
    }
    *d = (fak_device){.tier = t, .set = t->set, .pool = p, .threads = pool_threads(p)};
    d->facts = (fak_opened){.struct_size = sizeof d->facts,
                            .klass = FAK_REFERENCE,
                            .caps = CAPS,
                            .numerics = NUMERICS,
                            .upload_dtypes = UPLOAD,
                            .ops = OPS,
                            .op_stride = sizeof *table,
                            .op = table};
    *out = d;
    *facts = &d->facts;
    return FAK_OK;
}

static const void *get_ext(fak_device *d, const char *name)
{
    static const fak_host_view view = {.struct_size = sizeof view, .view = cpu_view};
    (void)d;
    return strcmp(name, "fak.host_view/1") ? NULL : &view;
}

static const fak_backend backend = {
    .struct_size = sizeof backend,
    .abi_minor = FAK_ABI_MINOR,
    .caps = CAPS,
    .numerics = NUMERICS,
    .upload_dtypes = UPLOAD,
    .options = sizeof options / sizeof *options,
    .option_stride = sizeof *options,
    .ops = OPS,
    .op_stride = sizeof *table,
    .name = "cpu",
    .version = "0.1.0",
    .vendor = "fak",
    .option = options,
    .op = table,
    .device_info = device_info,
    .open = open_device,
    .close = close_device,
    .prepare = cpu_prepare,
    .release = cpu_release,
    .load = cpu_load,
    .unload = cpu_unload,
    .begin = cpu_begin,
    .run = cpu_run,
    .read = cpu_read,
    .write = cpu_write,
    .kv_clone = cpu_kv_clone,
    .kv_trim = cpu_kv_trim,
    .kv_evict = cpu_kv_evict,
    .kv_read = cpu_kv_read,
    .kv_write = cpu_kv_write,
    .get_ext = get_ext,
};

int32_t FAK_ENTRY(const fak_host *host, const fak_backend **out, fak_error *e)
{
    (void)host, (void)e;
    *out = &backend;
    return FAK_OK;
}
