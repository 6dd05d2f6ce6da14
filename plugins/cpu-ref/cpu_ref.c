/* cpu_ref - the reference as a backend: every op at once, eagerly, on host memory.  The floor that
 * other backends are judged by; correct first, then only as fast as a compiler makes it. */
#include "cpu_ref.h"

#include <stdlib.h>
#include <string.h>

FAK_NOTE("cpu-ref", FAK_REFERENCE, "");

int32_t cpu_ref_fail(fak_error *e, int32_t code, uint32_t index, const char *sentence)
{
    *e = (fak_error){.code = code, .index = index};
    strncpy(e->message, "cpu-ref: ", sizeof e->message - 1);
    strncat(e->message, sentence, sizeof e->message - strlen(e->message) - 1);
    return code;
}

/* clang-format off */
#define ENTRY(id) {FAK_OP_##id, 1, cpu_ref_op}
static const fak_op_entry table[] = {
    ENTRY(EMBED), ENTRY(RMSNORM), ENTRY(MATMUL), ENTRY(ADD_BIAS), ENTRY(ROPE), ENTRY(KV_APPEND),
    ENTRY(ATTENTION), ENTRY(GLU), ENTRY(ADD), ENTRY(SCALE), ENTRY(SOFTCAP), ENTRY(TAKE_ROWS),
    ENTRY(ARGMAX),
    /* offered with fused=1 */
    ENTRY(NORM_MATMUL), ENTRY(NORM_MATMUL_GLU), ENTRY(GLU_MATMUL_ADD), ENTRY(MATMUL_ADD),
    ENTRY(FFN), ENTRY(ROPE_APPEND), ENTRY(MATMUL_ARGMAX),
};
enum {
    ALL_OPS = sizeof table / sizeof *table, CORE_OPS = ALL_OPS - 7,
    CAPS = FAK_CAP_FUSED_ATTN | FAK_CAP_CAPACITY_PROBE, CAPS_FUSED = CAPS | FAK_CAP_FUSED_FFN,
    NUMERICS = FAK_ACT_F32 | FAK_ACT_Q8 | FAK_BATCH_INVARIANT | FAK_DETERMINISTIC,
    UPLOAD = 1 << FAK_F32 | 1 << FAK_F16 | 1 << FAK_BF16 | 1 << FAK_Q8_0 | 1 << FAK_Q4_0 |
             1 << FAK_Q4_1 | 1 << FAK_Q5_0 | 1 << FAK_Q5_1 | 1 << FAK_Q4_K | 1 << FAK_Q5_K |
             1 << FAK_Q6_K
};
/* clang-format on */

#define OPENED(op_count, cap_bits)                                                                 \
    {                                                                                              \
        .struct_size = sizeof(fak_opened), .klass = FAK_REFERENCE, .caps = cap_bits,               \
        .numerics = NUMERICS, .upload_dtypes = UPLOAD, .ops = op_count,                            \
        .op_stride = sizeof(fak_op_entry), .op = table                                             \
    }
static const fak_opened opened[2] = {OPENED(CORE_OPS, CAPS), OPENED(ALL_OPS, CAPS_FUSED)};

static const fak_option options[] = {
    {"fused", "0|1", "0", "offer fused ops, run as their literal sequences (tests the fusion)"},
};

static int32_t device_info(uint32_t index, const fak_setting *set, uint32_t n, fak_device_info *out,
                           fak_error *e)
{
    fak_device_info info = {
        .kind = FAK_CPU, .id = "cpu:ref", .name = "reference", .tier = "scalar"};
    (void)set, (void)n;
    if (index)
        return cpu_ref_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX, "there is one device, number 0");
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

static int32_t open_device(uint32_t index, const fak_setting *set, uint32_t n, fak_device **out,
                           const fak_opened **facts, fak_error *e)
{
    int fused = 0;
    if (index)
        return cpu_ref_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX, "there is one device, number 0");
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(set[i].name, "fused"))
            return refuse_option(e, i, "unknown option; it has: fused");
        if (strcmp(set[i].value, "0") && strcmp(set[i].value, "1"))
            return refuse_option(e, i, "it is 0 or 1");
        fused = set[i].value[0] == '1';
    }
    fak_device *d = malloc(sizeof *d);
    if (!d) return cpu_ref_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for a device");
    d->fused = fused;
    *out = d;
    *facts = &opened[fused];
    return FAK_OK;
}

static void close_device(fak_device *d)
{
    free(d);
}

static const void *get_ext(fak_device *d, const char *name)
{
    static const fak_host_view view = {.struct_size = sizeof view, .view = cpu_ref_view};
    (void)d;
    return strcmp(name, "fak.host_view/1") ? NULL : &view;
}

static const fak_backend backend = {
    .struct_size = sizeof backend,
    .abi_minor = FAK_ABI_MINOR,
    .caps = CAPS_FUSED,
    .numerics = NUMERICS,
    .upload_dtypes = UPLOAD,
    .options = sizeof options / sizeof *options,
    .option_stride = sizeof *options,
    .ops = ALL_OPS,
    .op_stride = sizeof *table,
    .name = "cpu-ref",
    .version = "0.1.0",
    .vendor = "fak",
    .option = options,
    .op = table,
    .device_info = device_info,
    .open = open_device,
    .close = close_device,
    .prepare = cpu_ref_prepare,
    .release = cpu_ref_release,
    .load = cpu_ref_load,
    .unload = cpu_ref_unload,
    .begin = cpu_ref_begin,
    .read = cpu_ref_read,
    .write = cpu_ref_write,
    .kv_clone = cpu_ref_kv_clone,
    .kv_trim = cpu_ref_kv_trim,
    .kv_evict = cpu_ref_kv_evict,
    .kv_read = cpu_ref_kv_read,
    .kv_write = cpu_ref_kv_write,
    .get_ext = get_ext,
};

int32_t FAK_ENTRY(const fak_host *host, const fak_backend **out, fak_error *e)
{
    (void)host, (void)e;
    *out = &backend;
    return FAK_OK;
}
