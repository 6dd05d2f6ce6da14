/* capacity - see capacity.h. */
#include "capacity.h"

#include "memory.h"

#include <inttypes.h>

const char *capacity_text(uint64_t bytes, char text[16])
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double x = (double)bytes;
    int u = 0;
    for (; x >= 999.95 && u < 6; u++) x /= 1000;
    snprintf(text, 16, u ? "%.1f %s" : "%.0f %s", x, unit[u]);
    return text;
}

static int in_host_memory(const program *p, uint32_t side)
{
    return !(p->side[side]->facts.caps & FAK_CAP_DEVICE_MEMORY);
}

static int reads(const program *p, enum program_side side, uint32_t value)
{
    for (uint32_t i = 0; i < p->ops; i++)
        for (uint32_t j = 0; program_side_of(p, i) == side && j < OP_INPUTS; j++)
            if (p->op[i].in[j] == value) return 1;
    return 0;
}

/* Bytes of a side's weights that are served from where they lie. */
static uint64_t lent_bytes(const program *p, enum program_side side)
{
    uint64_t bytes = 0;
    for (uint32_t v = 0; v < p->values; v++) {
        uint32_t index = p->fused.weight[v];
        if (index == FAK_NO_INDEX || !reads(p, side, v)) continue;
        const weight *w = &p->m->weights.at[index];
        if (weights_lendable(w)) bytes += weights_bytes(w);
    }
    return bytes;
}

static void add_side(capacity *c, const program *p, enum program_side side)
{
    const fak_report *r = &p->report[side];
    int borrows = in_host_memory(p, side) && r->flags & FAK_BORROWS;
    uint64_t lent = borrows ? lent_bytes(p, side) : 0;
    lent = lent < r->weight_bytes ? lent : r->weight_bytes;
    c->lent_bytes += lent;
    c->weight_bytes += r->weight_bytes - lent;
    c->kv_bytes += r->kv_bytes;
    c->kv_position_bytes += r->kv_token_bytes * p->limits.slots;
    c->other_bytes += r->scratch_bytes + r->driver_bytes;
}

/* The context that fits beside what does not grow with it. */
static void finish(capacity *c, const program *p)
{
    c->context = p->limits.context;
    c->needed = c->weight_bytes + c->kv_bytes + c->other_bytes;
    uint64_t fixed = c->needed - c->kv_bytes, rest = c->there > fixed ? c->there - fixed : 0;
    uint64_t fits = c->kv_position_bytes ? rest / c->kv_position_bytes : rest ? UINT32_MAX : 0;
    c->fits = !c->there || fits > c->context ? c->context : (uint32_t)fits;
}

capacity capacity_of_host(const program *p)
{
    capacity c = {0};
    memory_room room = memory_look("");
    for (uint32_t side = 0; side < SIDES; side++) {
        c.other_bytes += p->report[side].host_bytes;
        if (in_host_memory(p, side)) add_side(&c, p, side);
    }
    c.there = room.bytes;
    c.who = room.who;
    finish(&c, p);
    return c;
}

capacity capacity_of_device(const program *p)
{
    capacity c = {.who = "the device"};
    if (in_host_memory(p, SIDE_DEVICE)) return c;
    add_side(&c, p, SIDE_DEVICE);
    c.there = p->side[SIDE_DEVICE]->info.memory_free;
    finish(&c, p);
    return c;
}

int32_t capacity_check(const program *p, fak_error *e)
{
    const capacity c[2] = {capacity_of_device(p), capacity_of_host(p)};
    for (int i = 0; i < 2; i++) {
        char needed[16], kv[16], there[16], fits[64];
        if (!c[i].there || c[i].needed <= c[i].there) continue;
        if (c[i].fits)
            snprintf(fits, sizeof fits, "the largest context that fits is %" PRIu32, c[i].fits);
        else
            snprintf(fits, sizeof fits, "without kv it is still %s",
                     capacity_text(c[i].needed - c[i].kv_bytes, kv));
        return status_set(
            e, STATUS_REFUSED, "a context of %" PRIu32 " needs %s (kv %s); %s has %s left; %s",
            c[i].context, capacity_text(c[i].needed, needed), capacity_text(c[i].kv_bytes, kv),
            c[i].who, capacity_text(c[i].there, there), fits);
    }
    return FAK_OK;
}

void capacity_print(const capacity *c, FILE *out)
{
    char a[16], b[16];
    fprintf(out, "needs %s of memory", capacity_text(c->needed, a));
    fprintf(out, " (weights %s", capacity_text(c->weight_bytes, a));
    if (c->lent_bytes) fprintf(out, " and %s lent from the file", capacity_text(c->lent_bytes, a));
    fprintf(out, "; kv %s at context %" PRIu32 ", %s a position; other %s)",
            capacity_text(c->kv_bytes, a), c->context, capacity_text(c->kv_position_bytes, b),
            capacity_text(c->other_bytes, (char[16]){0}));
    if (c->there) fprintf(out, "; %s has %s", c->who, capacity_text(c->there, a));
    fputc('\n', out);
}
