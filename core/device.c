/* device - see device.h. */
#include "device.h"

#include "ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *device_kind_name(uint32_t kind)
{
    static const char *const name[] = {"?",   "cpu",      "discrete", "integrated",
                                       "npu", "dataflow", "software", "remote"};
    return kind <= FAK_REMOTE ? name[kind] : name[0];
}

const char *device_class_name(uint32_t klass)
{
    return klass == FAK_REFERENCE ? "reference" : "approx";
}

const char *device_cap_name(uint32_t i)
{
    static const char *const name[] = {"FusedAttn",    "FusedFFN",      "GraphCompile", "Async",
                                       "DeviceMemory", "CapacityProbe", "Collective"};
    return i < sizeof name / sizeof *name ? name[i] : NULL;
}

const char *device_numerics_name(uint32_t i)
{
    static const char *const name[] = {[0] = "act_f32",
                                       [1] = "act_q8",
                                       [2] = "act_f16",
                                       [8] = "batch_invariant",
                                       [9] = "deterministic"};
    return i < sizeof name / sizeof *name ? name[i] : NULL;
}

const char *device_numerics_title(uint32_t i)
{
    static const char *const title[] = {[0] = "F32 activations",
                                        [1] = "Q8 activations",
                                        [2] = "F16 activations",
                                        [8] = "batch-invariant",
                                        [9] = "deterministic"};
    return i < sizeof title / sizeof *title ? title[i] : NULL;
}

static int find_in(const fak_op_entry *op, uint32_t ops, uint32_t stride, uint32_t id,
                   fak_op_entry *entry)
{
    for (uint32_t i = 0; i < ops; i++) {
        fak_get(entry, sizeof *entry, op, stride, i);
        if (entry->id == id && entry->revision >= 1) return 0;
    }
    return -1;
}

int device_find_op(const device *d, uint32_t id, fak_op_entry *entry)
{
    return find_in(d->facts.op, d->facts.ops, d->facts.op_stride, id, entry);
}

int device_offers(const device *d, const fak_op *op)
{
    fak_op_entry entry;
    if (!d->facts.ops) return ops_find(op->id) && !ops_find(op->id)->parts;
    return !device_find_op(d, op->id, &entry) && entry.revision >= op->revision;
}

int32_t device_answer(const device *d, int32_t s, const char *what, fak_error *e)
{
    if (s == FAK_OK) return FAK_OK;
    e->message[sizeof e->message - 1] = 0;
    if (s > 0)
        return status_set(e, FAK_E_PROGRAM,
                          "backend %s: %s answered %" PRId32 ", which is no status", d->from->name,
                          what, s);
    if (!e->message[0]) {
        uint32_t index = e->index;
        status_set(e, s, "backend %s: %s failed with %" PRId32 " and no sentence", d->from->name,
                   what, s);
        e->index = index;
    }
    e->code = s;
    return s;
}

int32_t device_after(const device *d, int32_t s, const float_mode *before, const char *what,
                     fak_error *e)
{
    int changed = float_mode_restore(before);
    s = device_answer(d, s, what, e);
    if (s || !changed) return s;
    return status_set(e, FAK_E_PROGRAM, "backend %s changes the floating-point mode in %s",
                      d->from->name, what);
}

/* ---- devices of a plugin ---- */

uint32_t device_count(const plugin *p, const fak_setting *set, uint32_t sets, fak_error *e)
{
    fak_error told = {0};
    float_mode mode; /* a driver is often loaded here, and with it whatever its libraries set */
    float_mode_save(&mode);
    uint32_t n = p->api.device_count ? p->api.device_count(set, sets, &told) : 1;
    int changed = float_mode_restore(&mode);
    told.message[sizeof told.message - 1] = 0;
    if (changed) {
        status_set(e, FAK_E_PROGRAM,
                   "backend %s: looking for its devices changes the floating-point mode", p->name);
        return 0;
    }
    if (!n)
        status_set(e, STATUS_REFUSED, "backend %s has no device: %s", p->name,
                   told.message[0] ? told.message : "it does not say why");
    return n;
}

static void terminate(fak_device_info *info)
{
    info->id[sizeof info->id - 1] = 0;
    info->name[sizeof info->name - 1] = 0;
    info->tier[sizeof info->tier - 1] = 0;
}

int32_t device_describe(const plugin *p, uint32_t index, const fak_setting *set, uint32_t sets,
                        fak_device_info *info, fak_error *e)
{
    *info = (fak_device_info){.struct_size = sizeof *info};
    fak_error told = {0};
    float_mode mode;
    float_mode_save(&mode);
    int32_t s = p->api.device_info(index, set, sets, info, &told);
    int changed = float_mode_restore(&mode);
    terminate(info);
    told.message[sizeof told.message - 1] = 0;
    if (changed)
        return status_set(e, STATUS_REFUSED,
                          "backend %s: describing its device changes the floating-point mode",
                          p->name);
    if (s)
        return status_set(e, STATUS_REFUSED, "backend %s: %s", p->name,
                          told.message[0] ? told.message : "it does not say what its device is");
    if (info->kind < FAK_CPU || info->kind > FAK_REMOTE)
        return status_set(e, STATUS_REFUSED,
                          "backend %s: device %" PRIu32 " is of unknown kind %" PRIu32, p->name,
                          index, info->kind);
    return FAK_OK;
}

/* ---- what an open device claims ---- */

/* A cap must have its thing, and the thing its cap. */
static const char *caps_liar(const device *d)
{
    fak_op_entry entry;
    uint32_t caps = d->facts.caps;
    int view = d->api.get_ext && d->api.get_ext(d->handle, "fak.host_view/1");
    if (!(caps & FAK_CAP_FUSED_ATTN) != (device_find_op(d, FAK_OP_ATTENTION, &entry) != 0))
        return "caps liar: FusedAttn and the op table disagree";
    if (!(caps & FAK_CAP_FUSED_FFN) != (device_find_op(d, FAK_OP_FFN, &entry) != 0))
        return "caps liar: FusedFFN and the op table disagree";
    if (caps & FAK_CAP_DEVICE_MEMORY && view) return "caps liar: DeviceMemory, and yet a host view";
    if (caps & FAK_CAP_COLLECTIVE) return "caps liar: collectives are reserved in 1.0";
    return NULL;
}

static const char *unknown_bits(const device *d)
{
    const fak_opened *f = &d->facts;
    const uint32_t caps = 2 * FAK_CAP_COLLECTIVE - 1, numerics = FAK_ACT_F32 | FAK_ACT_Q8 |
                                                                 FAK_ACT_F16 | FAK_BATCH_INVARIANT |
                                                                 FAK_DETERMINISTIC;
    if (f->klass > FAK_REFERENCE) return "an unknown class";
    if (f->caps & ~caps || f->numerics & ~numerics) return "unknown caps or numerics";
    if (f->caps & ~d->api.caps || f->numerics & ~d->api.numerics ||
        f->upload_dtypes & ~d->api.upload_dtypes)
        return "an open device offers more than its backend";
    if (!(f->numerics & (FAK_ACT_F32 | FAK_ACT_Q8 | FAK_ACT_F16)))
        return "no activation mode at all";
    if (f->ops && (!f->op || f->op_stride < sizeof(fak_op_entry))) return "its op table is not one";
    if (f->bounds && (!f->bound || f->bound_stride < sizeof(fak_bound)))
        return "its table of bounds is not one";
    if (!f->ops && !(f->caps & FAK_CAP_GRAPH_COMPILE)) return "it has neither ops nor run";
    return NULL;
}

static const char *bad_entry(const device *d)
{
    for (uint32_t i = 0; i < d->facts.ops; i++) {
        fak_op_entry mine, widest;
        fak_get(&mine, sizeof mine, d->facts.op, d->facts.op_stride, i);
        if (find_in(d->api.op, d->api.ops, d->api.op_stride, mine.id, &widest) ||
            widest.revision < mine.revision)
            return "an open device has an op that its backend does not list";
        if (!mine.call && !(d->facts.caps & FAK_CAP_GRAPH_COMPILE))
            return "an op of its table has no function, and there is no run";
    }
    return NULL;
}

int32_t device_open(device *d, const plugin *p, uint32_t index, const fak_setting *set,
                    uint32_t sets, fak_error *e)
{
    const fak_opened *theirs = NULL;
    fak_error told = {0};
    *d = (device){.from = p, .index = index, .api = p->api};
    uint32_t count = device_count(p, set, sets, e);
    if (!count) return STATUS_REFUSED;
    if (index >= count)
        return status_set(e, STATUS_REFUSED,
                          "backend %s has %" PRIu32 " device%s; there is no number %" PRIu32,
                          p->name, count, count == 1 ? "" : "s", index);
    int32_t s = device_describe(p, index, set, sets, &d->info, e);
    if (s) return s;
    float_mode mode;
    float_mode_save(&mode);
    s = p->api.open(index, set, sets, &d->handle, &theirs, &told);
    int changed = float_mode_restore(&mode);
    if (s || !theirs) {
        int named = s == FAK_E_ARGUMENT && told.index < sets;
        told.message[sizeof told.message - 1] = 0;
        if (s) d->handle = NULL; /* nothing was opened */
        device_close(d);
        return status_set(e, STATUS_REFUSED, "backend %s: %s%s%s%s", p->name,
                          named ? "option " : "", named ? set[told.index].name : "",
                          named ? ": " : "",
                          told.message[0] ? told.message
                          : s             ? "its device does not open, and it does not say why"
                                          : "its device opened without its facts");
    }
    fak_take(&d->facts, sizeof d->facts, theirs);
    if (theirs->struct_size < offsetof(fak_opened, bound) + sizeof theirs->bound) {
        device_close(d);
        return status_set(e, STATUS_REFUSED,
                          "backend %s: what it opened is described in %" PRIu32
                          " bytes (struct_size); this host needs %zu",
                          p->name, theirs->struct_size, sizeof *theirs);
    }
    const char *why = changed ? "opening its device changes the floating-point mode" : NULL;
    if (!why) why = unknown_bits(d);
    if (!why) why = bad_entry(d);
    if (!why) why = caps_liar(d);
    if (!why) return FAK_OK;
    device_close(d);
    return status_set(e, STATUS_REFUSED, "backend %s: %s", p->name, why);
}

void device_close(device *d)
{
    if (d->handle && d->api.close) d->api.close(d->handle);
    *d = (device){0};
}
