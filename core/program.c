/* program - see program.h. */
#include "program.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum program_side program_side_of(const program *p, uint32_t op)
{
    return p->verdict[SIDE_DEVICE][op] == FAK_TAKEN ? SIDE_DEVICE : SIDE_HOST;
}

uint64_t program_bytes(const program *p)
{
    uint64_t bytes = 0;
    for (uint32_t side = 0; side < SIDES; side++) {
        const fak_report *r = &p->report[side];
        bytes += r->weight_bytes + r->kv_bytes + r->scratch_bytes + r->driver_bytes + r->host_bytes;
    }
    return bytes;
}

uint32_t program_default_act(const model *m, const device *dev)
{
    if (m->blocks && dev->facts.numerics & FAK_ACT_Q8) return FAK_ACT_Q8;
    if (dev->facts.numerics & FAK_ACT_F32) return FAK_ACT_F32;
    return dev->facts.numerics & FAK_ACT_F16 ? FAK_ACT_F16 : FAK_ACT_Q8;
}

/* ---- one call of prepare ---- */

/* Has a dry run reckoned what is needed, and found too little?  That refuses the work; a device that ran out
 * of memory while it reckoned has failed. */
static int is_refusal(int32_t s, uint32_t flags, const fak_report *r)
{
    return s == FAK_E_MEMORY && flags & FAK_DRY_RUN &&
           (r->weight_bytes || r->kv_bytes || r->scratch_bytes);
}

static int32_t prepare_side(program *p, enum program_side side, uint32_t flags, fak_error *e)
{
    device *d = p->side[side];
    fak_program *handle = NULL;
    p->report[side] = (fak_report){.struct_size = sizeof p->report[side]};
    float_mode mode;
    float_mode_save(&mode);
    *e = (fak_error){.index = FAK_NO_INDEX};
    int32_t s = d->api.prepare(d->handle, p->fused.block, &p->limits, NULL, flags, p->verdict[side],
                               &p->report[side], &handle, e);
    p->handle[side] = s ? NULL : handle; /* nothing was made */
    s = device_after(d, s, &mode, "prepare", e);
    if (s) return is_refusal(s, flags, &p->report[side]) ? (e->code = STATUS_REFUSED) : s;
    int probe = (d->facts.caps & FAK_CAP_CAPACITY_PROBE) != 0;
    if (flags & FAK_DRY_RUN && probe != (int)(p->report[side].flags & FAK_EXACT))
        return status_set(e, FAK_E_PROGRAM,
                          "backend %s: caps liar: CapacityProbe and its dry run disagree",
                          d->from->name);
    if (!handle && !(flags & FAK_DRY_RUN))
        return status_set(e, FAK_E_PROGRAM, "backend %s: prepare answered no program",
                          d->from->name);
    return FAK_OK;
}

static void release(program *p)
{
    for (uint32_t side = 0; side < SIDES; side++) {
        if (p->handle[side]) p->side[side]->api.release(p->handle[side]);
        p->handle[side] = NULL;
    }
}

/* ---- settling verdicts ---- */

static int is_kv(uint32_t id)
{
    return id == FAK_OP_KV_APPEND || id == FAK_OP_ATTENTION || id == FAK_OP_ROPE_APPEND;
}

/* Fuses anew and reads the plan into op[] and value[]. */
static int32_t fuse(program *p, fak_error *e)
{
    const device *d = p->side[SIDE_DEVICE];
    fuse_mask offered = fuse_offered(d->facts.op, d->facts.ops, d->facts.op_stride);
    plan_free(&p->fused);
    int32_t s = fuse_plan(&p->fused, &p->base, offered, p->refused, e);
    if (s) return s;
    p->ops = p->fused.block->ops.count;
    for (uint32_t i = 0; i < p->ops; i++) p->op[i] = plan_op(p->fused.block, i);
    for (uint32_t i = 0; i < p->values; i++) p->value[i] = plan_value(p->fused.block, i);
    return FAK_OK;
}

/* Has the layer's fused kv op come back?  Then its parts are offered first (unfuse). */
static int comes_apart(const program *p, uint32_t layer)
{
    for (uint32_t i = 0; i < p->ops; i++)
        if (p->op[i].layer == layer && is_kv(p->op[i].id) && ops_find(p->op[i].id)->parts &&
            p->verdict[SIDE_DEVICE][i] != FAK_TAKEN && !p->withheld[p->fused.origin[i]])
            return 1;
    return 0;
}

static int offered(const program *p, uint32_t op)
{
    return !p->withheld[p->fused.origin[op]] && device_offers(p->side[SIDE_DEVICE], &p->op[op]);
}

/* Asks the device; kv ops of a layer of which some were left are all withheld, and it is asked again. */
static int32_t ask(program *p, uint32_t flags, fak_error *e)
{
    uint32_t *verdict = p->verdict[SIDE_DEVICE];
    for (;;) {
        uint32_t again = 0;
        for (uint32_t i = 0; i < p->ops; i++) verdict[i] = offered(p, i) ? FAK_TAKEN : FAK_HOST;
        int32_t s = prepare_side(p, SIDE_DEVICE, flags, e);
        if (s) return s;
        for (uint32_t i = 0; i < p->ops; i++)
            if (verdict[i] > FAK_TAKEN || (verdict[i] == FAK_TAKEN && !offered(p, i)))
                return status_set(
                    e, FAK_E_PROGRAM,
                    "backend %s: verdict %" PRIu32 " on op %" PRIu32 " (%s), which was not offered",
                    p->side[SIDE_DEVICE]->from->name, verdict[i], i, ops_name(p->op[i].id));
        for (uint32_t i = 0; i < p->ops; i++) {
            if (verdict[i] == FAK_TAKEN || !is_kv(p->op[i].id)) continue;
            if (comes_apart(p, p->op[i].layer)) continue;
            for (uint32_t j = 0; j < p->ops; j++) {
                uint8_t *withheld = &p->withheld[p->fused.origin[j]];
                if (!is_kv(p->op[j].id) || p->op[j].layer != p->op[i].layer || *withheld) continue;
                again += verdict[j] == FAK_TAKEN;
                *withheld = 1;
            }
        }
        if (!again) return FAK_OK;
        release(p);
    }
}

/* Undoes the fused ops that came back; how many there were. */
static uint32_t unfuse(program *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->ops; i++) {
        const op_info *info = ops_find(p->op[i].id);
        if (p->verdict[SIDE_DEVICE][i] == FAK_TAKEN || !info->parts) continue;
        for (uint32_t r = 0; ops_row(r); r++)
            if (ops_row(r) == info) p->refused[p->fused.origin[i]] |= 1u << r;
        p->withheld[p->fused.origin[i]] = 0; /* its parts are offered again */
        n++;
    }
    p->unfused += n;
    return n;
}

static int32_t settle(program *p, uint32_t flags, fak_error *e)
{
    int32_t s;
    do {
        release(p);
        if ((s = fuse(p, e)) || (s = ask(p, flags, e))) return s;
    } while (unfuse(p));
    p->holes = 0;
    p->holds_kv[SIDE_DEVICE] = p->holds_kv[SIDE_HOST] = 0;
    for (uint32_t i = 0; i < p->ops; i++) {
        enum program_side side = program_side_of(p, i);
        p->verdict[SIDE_HOST][i] = side == SIDE_HOST ? FAK_TAKEN : FAK_HOST;
        p->holes += side == SIDE_HOST;
        if (is_kv(p->op[i].id)) p->holds_kv[side] = 1;
    }
    p->report[SIDE_HOST] = (fak_report){0};
    if (!p->holes) return FAK_OK;
    s = prepare_side(p, SIDE_HOST, flags, e);
    for (uint32_t i = 0; !s && i < p->ops; i++)
        if (program_side_of(p, i) == SIDE_HOST && p->verdict[SIDE_HOST][i] != FAK_TAKEN)
            s = status_set(e, FAK_E_UNSUPPORTED,
                           "op %" PRIu32 " (%s) is taken by neither %s nor %s", i,
                           ops_name(p->op[i].id), p->side[SIDE_DEVICE]->from->name,
                           p->side[SIDE_HOST]->from->name);
    return s;
}

/* ---- prepare ---- */

static int32_t check_numerics(const program *p, fak_error *e)
{
    const device *d = p->side[SIDE_DEVICE];
    uint32_t lacking = p->limits.numerics & ~d->facts.numerics;
    if (!lacking) return FAK_OK;
    return status_set(e, STATUS_REFUSED, "backend %s does not offer %s%s%s%s", d->from->name,
                      lacking & FAK_ACT_F32 ? "F32 activations" : "",
                      lacking & FAK_ACT_Q8 ? "Q8 activations" : "",
                      lacking & FAK_ACT_F16 ? "F16 activations" : "",
                      lacking & ~255u ? " what is asked of it" : "");
}

int32_t program_prepare(program *p, device *dev, device *host, const model *m,
                        const fak_limits *limits, uint32_t flags, fak_error *e)
{
    *p = (program){.side = {dev, host}, .m = m, .limits = *limits, .flags = flags};
    p->limits.struct_size = sizeof p->limits;
    int32_t s;
    if ((s = check_numerics(p, e)) || (s = plan_build(&p->base, m, e))) return s;
    uint32_t ops = p->base.block->ops.count;
    p->values = p->base.block->values.count;
    p->op = calloc(ops, sizeof *p->op);
    p->value = calloc(p->values, sizeof *p->value);
    p->refused = calloc(ops, sizeof *p->refused);
    p->withheld = calloc(ops, 1);
    for (uint32_t side = 0; side < SIDES; side++) p->verdict[side] = calloc(ops, sizeof(uint32_t));
    if (!p->op || !p->value || !p->refused || !p->withheld || !p->verdict[SIDE_DEVICE] ||
        !p->verdict[SIDE_HOST])
        return status_memory(e, "the program", ops * sizeof *p->op);
    s = settle(p, FAK_DRY_RUN | flags, e);
    return s || flags & FAK_DRY_RUN ? s : program_commit(p, e);
}

int32_t program_commit(program *p, fak_error *e)
{
    p->flags &= ~(uint32_t)FAK_DRY_RUN;
    return settle(p, p->flags, e);
}

void program_close(program *p)
{
    release(p);
    plan_free(&p->base);
    plan_free(&p->fused);
    void *own[] = {
        p->op, p->value, p->refused, p->withheld, p->verdict[SIDE_DEVICE], p->verdict[SIDE_HOST]};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) free(own[i]);
    *p = (program){0};
}

/* ---- load ---- */

/* The weights and constants of a side's ops, in step order, once each. */
static uint32_t needed(const program *p, enum program_side side, uint32_t *id, uint8_t *seen)
{
    uint32_t n = 0;
    memset(seen, 0, p->values);
    for (uint32_t i = 0; i < p->ops; i++) {
        if (program_side_of(p, i) != side) continue;
        for (uint32_t j = 0; j < OP_INPUTS; j++) {
            uint32_t v = p->op[i].in[j], kind = p->value[v].kind;
            if ((kind == FAK_WEIGHT || kind == FAK_CONST) && !seen[v]) id[n++] = v;
            seen[v] = 1;
        }
    }
    return n;
}

static int32_t load_sides(program *p, weights_progress *progress, void *self, fak_error *e)
{
    weights_source source = {.table = &p->m->weights,
                             .index = p->fused.weight,
                             .values = p->values,
                             .progress = progress,
                             .progress_self = self};
    fak_source api;
    uint32_t *id = malloc(p->values * sizeof *id);
    uint8_t *seen = malloc(p->values);
    int32_t s = id && seen ? weights_source_open(&source, &api, e)
                           : status_memory(e, "the list of weights", p->values * 5ull);
    for (uint32_t side = 0; !s && side < SIDES; side++) {
        if (!p->handle[side]) continue;
        const device *d = p->side[side];
        uint32_t n = needed(p, side, id, seen);
        float_mode mode;
        float_mode_save(&mode);
        *e = (fak_error){.index = FAK_NO_INDEX};
        s = device_after(d, d->api.load(p->handle[side], id, n, &api, e), &mode, "load", e);
    }
    weights_source_close(&source);
    free(id);
    free(seen);
    return s;
}

int32_t program_load(program *p, weights_progress *progress, void *self, fak_error *e)
{
    for (;;) {
        int32_t s = load_sides(p, progress, self, e);
        if (s != FAK_E_UNSUPPORTED || e->index >= p->ops) return s;
        uint32_t origin = p->fused.origin[e->index]; /* compiling found that the op cannot be */
        const op_info *info = ops_find(p->op[e->index].id);
        if (p->withheld[origin]) return s;
        for (uint32_t r = 0; info->parts && ops_row(r); r++)
            if (ops_row(r) == info) p->refused[origin] |= 1u << r;
        if (!info->parts) p->withheld[origin] = 1;
        p->unfused += info->parts != 0;
        if ((s = settle(p, p->flags, e))) return s;
    }
}
