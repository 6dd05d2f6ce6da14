/* handshake - a backend of a later minor that says one thing wrong of itself; which one, the build
 * says: -DFAULT=FAULT_x -DFAULT_NAME="fault-x".  It is loaded and opened, never run.  Everything in it
 * that may grow has grown: an honest one (FAULT_good) shows that a host of 1.0 takes it. */
#include "fak_backend.h"

#include <stdlib.h>
#include <string.h>

#define FAULT_no_entry 1 /* for #if */
enum {
    FAULT_good = 0,
    /* refused when loaded */
    FAULT_undefined = 2,
    FAULT_entry_refuses,
    FAULT_entry_silent,
    FAULT_no_table,
    FAULT_short_table,
    FAULT_needs_newer_host,
    FAULT_wrong_name,
    FAULT_null_name,
    FAULT_null_version,
    FAULT_null_vendor,
    FAULT_null_info,
    FAULT_null_open,
    FAULT_null_prepare,
    FAULT_null_release,
    FAULT_null_load,
    FAULT_null_begin,
    FAULT_null_read,
    FAULT_null_write,
    FAULT_op_stride,
    FAULT_option_table,
    FAULT_no_ops,
    FAULT_graph_liar,
    FAULT_graph_silent,
    FAULT_async_liar,
    FAULT_async_silent,
    /* refused when opened */
    FAULT_no_device,
    FAULT_no_device_silent,
    FAULT_info_silent,
    FAULT_unknown_kind,
    FAULT_open_fails,
    FAULT_open_silent,
    FAULT_no_facts,
    FAULT_unknown_class,
    FAULT_unknown_caps,
    FAULT_unknown_numerics,
    FAULT_more_than_backend,
    FAULT_no_act,
    FAULT_device_stride,
    FAULT_bounds,
    FAULT_unlisted_op,
    FAULT_later_revision,
    FAULT_null_call,
    FAULT_caps_attn,
    FAULT_attn_silent,
    FAULT_caps_ffn,
    FAULT_host_view,
    FAULT_collective
};
#define WITH(fault, bad, fine) (FAULT == FAULT_##fault ? (bad) : (fine))

int handshake_undefined(void); /* nowhere */

/* ---- devices ---- */

struct fak_device {
    uint32_t index;
};
static int devices; /* opened and not yet closed */

static uint32_t device_count(const fak_setting *set, uint32_t n, fak_error *e)
{
    (void)set, (void)n;
    if (FAULT == FAULT_no_device) strcpy(e->message, "absent: no such card");
    return FAULT == FAULT_no_device || FAULT == FAULT_no_device_silent ? 0 : 2;
}

static int32_t device_info(uint32_t index, const fak_setting *set, uint32_t n, fak_device_info *out,
                           fak_error *e)
{
    fak_device_info info = {.kind = WITH(unknown_kind, 99, FAK_NPU), .memory_total = 1u << 20};
    (void)set, (void)n, (void)e;
    if (FAULT == FAULT_info_silent) return FAK_E_LOST;
    memset(info.name, 'n', sizeof info.name); /* not terminated: the host's to see to */
    strcpy(info.id, index ? "uuid:1" : "uuid:0");
    fak_put(out, &info, sizeof info);
    return FAK_OK;
}

static int32_t op_call(fak_program *p, uint32_t op, fak_error *e)
{
    (void)p, (void)op, (void)e;
    return FAK_OK;
}

typedef struct entry {
    fak_op_entry known;
    uint64_t later;
} entry;
static const entry backend_op[] = {
    {{FAK_OP_MATMUL, 2, op_call}, ~0ull},
    {{FAK_OP_ATTENTION, 1, op_call}, ~0ull},
    {{FAK_OP_FFN, 1, op_call}, ~0ull},
};
static const entry device_op[] = {
    {{WITH(unlisted_op, FAK_OP_SCALE, FAK_OP_MATMUL), WITH(later_revision, 3, 2),
      WITH(null_call, NULL, op_call)},
     ~0ull},
    {{FAK_OP_ATTENTION, 1, op_call}, ~0ull},
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

enum {
    CAPS = FAK_CAP_FUSED_ATTN | FAK_CAP_FUSED_FFN | FAK_CAP_DEVICE_MEMORY |
           WITH(collective, FAK_CAP_COLLECTIVE, 0) | WITH(unknown_caps, 1 << 20, 0) |
           WITH(graph_liar, FAK_CAP_GRAPH_COMPILE, 0) | WITH(async_liar, FAK_CAP_ASYNC, 0),
    DEVICE_CAPS = WITH(attn_silent, 0, FAK_CAP_FUSED_ATTN) | WITH(caps_ffn, FAK_CAP_FUSED_FFN, 0) |
                  FAK_CAP_DEVICE_MEMORY | WITH(collective, FAK_CAP_COLLECTIVE, 0) |
                  WITH(unknown_caps, 1 << 20, 0),
    NUMERICS = FAK_ACT_F32 | FAK_DETERMINISTIC | WITH(unknown_numerics, 1 << 20, 0),
    DEVICE_NUMERICS = WITH(no_act, 0, FAK_ACT_F32) | FAK_DETERMINISTIC |
                      WITH(more_than_backend, FAK_ACT_F16, 0) | WITH(unknown_numerics, 1 << 20, 0)
};

typedef struct opened {
    fak_opened known;
    uint64_t later;
} opened;
static const opened facts = {{.struct_size = sizeof facts,
                              .klass = WITH(unknown_class, 7, FAK_APPROX),
                              .caps = DEVICE_CAPS,
                              .numerics = DEVICE_NUMERICS,
                              .upload_dtypes = 1 << FAK_F32,
                              .ops = WITH(caps_attn, 1, COUNT(device_op)),
                              .op_stride = WITH(device_stride, 4, sizeof(entry)),
                              .bounds = WITH(bounds, 1, 0),
                              .op = &device_op->known},
                             ~0ull};

static int32_t open_device(uint32_t index, const fak_setting *set, uint32_t n, fak_device **out,
                           const fak_opened **its_facts, fak_error *e)
{
    if (FAULT == FAULT_open_silent) return FAK_E_LOST;
    if (FAULT == FAULT_open_fails) {
        *e =
            (fak_error){.code = FAK_E_MEMORY, .index = FAK_NO_INDEX, .message = "the card is full"};
        return FAK_E_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(set[i].name, "known")) {
            *e = (fak_error){.code = FAK_E_ARGUMENT, .index = i, .message = "unknown option"};
            return FAK_E_ARGUMENT;
        }
    *out = calloc(1, sizeof **out);
    if (!*out) return FAK_E_MEMORY;
    (*out)->index = index;
    devices++;
    if (FAULT != FAULT_no_facts) *its_facts = &facts.known;
    return FAK_OK;
}

static void close_device(fak_device *d)
{
    devices -= d != NULL;
    free(d);
}

/* ---- what is never called ---- */

static int32_t prepare(fak_device *d, const fak_plan *p, const fak_limits *l,
                       fak_program *weights_of, uint32_t flags, uint32_t *verdict, fak_report *r,
                       fak_program **out, fak_error *e)
{
    (void)d, (void)p, (void)l, (void)weights_of, (void)flags, (void)verdict, (void)r, (void)out;
    (void)e;
    return FAK_E_UNSUPPORTED;
}

static void release(fak_program *p)
{
    (void)p;
}

static int32_t load(fak_program *p, const uint32_t *value, uint32_t n, const fak_source *s,
                    fak_error *e)
{
    (void)p, (void)value, (void)n, (void)s, (void)e;
    return FAK_E_UNSUPPORTED;
}

static int32_t begin(fak_program *p, const fak_step *s, fak_error *e)
{
    (void)p, (void)s, (void)e;
    return FAK_E_UNSUPPORTED;
}

static int32_t run(fak_program *p, uint32_t first, uint32_t ops, fak_error *e)
{
    (void)p, (void)first, (void)ops, (void)e;
    return FAK_E_UNSUPPORTED;
}

static int32_t read_rows(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                         uint64_t *ticket, fak_error *e)
{
    (void)p, (void)value, (void)first, (void)rows, (void)dst, (void)ticket, (void)e;
    return FAK_E_UNSUPPORTED;
}

static int32_t write_rows(fak_program *p, uint32_t value, uint32_t first, uint32_t rows,
                          const void *src, fak_error *e)
{
    (void)p, (void)value, (void)first, (void)rows, (void)src, (void)e;
    return FAK_E_UNSUPPORTED;
}

static int32_t wait_for(fak_program *p, uint64_t ticket, uint32_t timeout_ms, fak_error *e)
{
    (void)p, (void)ticket, (void)timeout_ms, (void)e;
    return FAK_E_UNSUPPORTED;
}

/* ---- the table ---- */

static const void *get_ext(fak_device *d, const char *name)
{
    static const fak_host_view view = {.struct_size = sizeof view};
    if (!strcmp(name, "fak-test.devices/1")) return &devices;
    return FAULT == FAULT_host_view && d && !strcmp(name, "fak.host_view/1") ? &view : NULL;
}

typedef struct option {
    fak_option known;
    uint64_t later;
} option;
static const option options[] = {{{"known", "0|1", "0", "does nothing"}, ~0ull}};

typedef struct table {
    fak_backend known;
    uint64_t later[4];
} table;
static const table backend = {
    {.struct_size = WITH(short_table, 64, sizeof backend),
     .abi_minor = 7,
     .host_minor_min = WITH(needs_newer_host, 3, 0),
     .caps = CAPS,
     .numerics = NUMERICS,
     .upload_dtypes = 1 << FAK_F32,
     .options = COUNT(options),
     .option_stride = sizeof *options,
     .ops = WITH(no_ops, 0, COUNT(backend_op)),
     .op_stride = WITH(op_stride, 8, sizeof(entry)),
     .name = WITH(null_name, NULL, WITH(wrong_name, "another", FAULT_NAME)),
     .version = WITH(null_version, NULL, "7.0"),
     .vendor = WITH(null_vendor, NULL, "a test"),
     .option = WITH(option_table, NULL, &options->known),
     .op = &backend_op->known,
     .device_count = device_count,
     .device_info = WITH(null_info, NULL, device_info),
     .open = WITH(null_open, NULL, open_device),
     .close = close_device,
     .prepare = WITH(null_prepare, NULL, prepare),
     .release = WITH(null_release, NULL, release),
     .load = WITH(null_load, NULL, load),
     .begin = WITH(null_begin, NULL, begin),
     .run = WITH(graph_silent, run, NULL),
     .read = WITH(null_read, NULL, read_rows),
     .write = WITH(null_write, NULL, write_rows),
     .wait = WITH(async_silent, wait_for, NULL),
     .get_ext = get_ext},
    {~0ull}};

#if FAULT == FAULT_no_entry
#define ENTRY fak_backend_entry_v0
FAK_EXPORT fak_entry_fn ENTRY;
#else
#define ENTRY fak_backend_entry_v1
#endif

int32_t ENTRY(const fak_host *host, const fak_backend **out, fak_error *e)
{
    (void)host;
    if (FAULT == FAULT_undefined) return handshake_undefined();
    if (FAULT == FAULT_entry_refuses) strcpy(e->message, "this chip has no dot products");
    if (FAULT == FAULT_entry_refuses || FAULT == FAULT_entry_silent) return FAK_E_UNSUPPORTED;
    *out = FAULT == FAULT_no_table ? NULL : &backend.known;
    return FAK_OK;
}
