/* backend - what the plugin is and offers. */
#include "program.h"

#include <string.h>

FAK_NOTE("vulkan", FAK_APPROX, "");

static const fak_host *host; /* lives until shutdown */

/* clang-format off */
#define ENTRY(id) {FAK_OP_##id, 1, vk_call}
static const fak_op_entry table[] = {
    ENTRY(EMBED), ENTRY(RMSNORM), ENTRY(MATMUL), ENTRY(ADD_BIAS), ENTRY(ROPE), ENTRY(KV_APPEND),
    ENTRY(ATTENTION), ENTRY(GLU), ENTRY(ADD), ENTRY(SCALE), ENTRY(SOFTCAP), ENTRY(TAKE_ROWS),
    ENTRY(ARGMAX),
    ENTRY(NORM_MATMUL), ENTRY(NORM_MATMUL_GLU), ENTRY(GLU_MATMUL_ADD), ENTRY(MATMUL_ADD),
    ENTRY(FFN), ENTRY(ROPE_APPEND), ENTRY(MATMUL_ARGMAX),
};
enum {
    OPS = sizeof table / sizeof *table, CORE_OPS = OPS - 7,
    CAPS = FAK_CAP_FUSED_ATTN | FAK_CAP_FUSED_FFN | FAK_CAP_GRAPH_COMPILE | FAK_CAP_ASYNC |
           FAK_CAP_DEVICE_MEMORY | FAK_CAP_CAPACITY_PROBE,
    NUMERICS = FAK_ACT_F32 | FAK_ACT_Q8 | FAK_DETERMINISTIC | FAK_BATCH_INVARIANT,
    UPLOAD = 1 << FAK_F32 | 1 << FAK_F16 | 1 << FAK_BF16 | 1 << FAK_Q8_0 | 1 << FAK_Q4_0 |
             1 << FAK_Q4_1 | 1 << FAK_Q4_K | 1 << FAK_Q6_K
};
/* clang-format on */

/* The contract's order gives its bits where subnormals are kept and divisions are rounded right; drivers
 * do not tell (SwiftShader, which flushes, says as much as llvmpipe), so only what was seen is claimed. */
static int gives_bits(const fak_device *d)
{
    return d->opt.exact && d->adapter.driver_id == VK_DRIVER_ID_MESA_LLVMPIPE;
}

static int32_t open_device(uint32_t index, const fak_setting *set, uint32_t n, fak_device **out,
                           const fak_opened **facts, fak_error *e)
{
    fak_device *d;
    int32_t s = vk_open(index, set, n, host, &d, e);
    if (s) return s;
    d->facts = (fak_opened){.struct_size = sizeof d->facts,
                            .klass = gives_bits(d) ? FAK_REFERENCE : FAK_APPROX,
                            .caps = CAPS,
                            .numerics = NUMERICS,
                            .upload_dtypes = UPLOAD,
                            .ops = d->opt.fused ? (uint32_t)OPS : (uint32_t)CORE_OPS,
                            .op_stride = sizeof *table,
                            .op = table};
    if (!d->use.int8dot) d->facts.numerics &= ~(uint32_t)FAK_ACT_Q8;
    if (!d->opt.fused) d->facts.caps &= ~(uint32_t)FAK_CAP_FUSED_FFN;
    if (!d->opt.rows) d->facts.numerics &= ~(uint32_t)FAK_BATCH_INVARIANT;
    *out = d;
    *facts = &d->facts;
    return FAK_OK;
}

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

static fak_backend backend = {
    .struct_size = sizeof backend,
    .abi_minor = FAK_ABI_MINOR,
    .caps = CAPS,
    .numerics = NUMERICS,
    .upload_dtypes = UPLOAD,
    .option_stride = sizeof *vk_options,
    .ops = OPS,
    .op_stride = sizeof *table,
    .name = "vulkan",
    .version = "0.1.0",
    .vendor = "fak",
    .option = vk_options,
    .op = table,
    .device_count = vk_device_count,
    .device_info = vk_device_info,
    .open = open_device,
    .close = vk_close,
    .prepare = vk_prepare,
    .release = vk_release,
    .load = vk_load,
    .unload = vk_unload,
    .begin = vk_begin,
    .run = vk_run,
    .read = vk_read,
    .write = vk_write,
    .wait = vk_wait,
    .kv_clone = vk_kv_clone,
    .kv_trim = vk_kv_trim,
    .kv_evict = vk_kv_evict,
    .kv_read = vk_kv_read,
    .kv_write = vk_kv_write,
    .get_ext = get_ext,
};

int32_t FAK_ENTRY(const fak_host *theirs, const fak_backend **out, fak_error *e)
{
    (void)e;
    host = theirs;
    backend.options = vk_option_count;
    *out = &backend;
    return FAK_OK;
}
