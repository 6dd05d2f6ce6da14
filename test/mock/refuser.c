/* refuser - see refuser.h. */
#ifndef FAK_STATIC_NAME
#define FAK_STATIC_NAME refuser
#endif
#include "refuser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern fak_entry_fn fak_backend_entry_v1_cpu_ref;
refuser_counts refuser_seen;
static const fak_backend *ref; /* cpu-ref's table */

enum { OPS = 20, FIRST_FUSED = FAK_OP_NORM_MATMUL, NAME = 200 };
static fak_op_entry table[OPS]; /* cpu-ref's ops in its order, with our function */

struct fak_device {
    fak_device *inner;
    fak_opened facts;
    char refuse[NAME], keep[NAME], late[NAME];
    uint32_t fused, async, graph, partial, fail_step; /* fail_step: 0 when it is over */
};

typedef struct pending { /* a read that waits for its wait */
    uint64_t ticket;
    void *rows, *dst;
    uint64_t bytes;
    uint32_t polled;
} pending;

enum { PENDING = 8 };
struct fak_program {
    fak_device *d;
    fak_program *inner;
    fak_op *op;        /* [ops] */
    fak_value *value;  /* [values] */
    uint32_t *want_of; /* [ops] FAK_WANT_NONE for the body, else the tail's */
    uint32_t *taken;   /* [ops] */
    uint32_t ops, values, flags;
    fak_limits limits;
    uint32_t begun, want, rows, wanted, next; /* the step; next: the op after the last one run */
    pending queue[PENDING];
    uint32_t queued;
    uint64_t tickets;
};

static int32_t fail(fak_error *e, int32_t code, uint32_t index, const char *sentence)
{
    *e = (fak_error){.code = code, .index = index};
    snprintf(e->message, sizeof e->message, "refuser: %s", sentence);
    return code;
}

/* ---- options ---- */

static const char *const core_names[] = {"",      "embed",     "rmsnorm",   "matmul", "add_bias",
                                         "rope",  "kv_append", "attention", "glu",    "add",
                                         "scale", "softcap",   "take_rows", "argmax"};
static const char *const fused_names[] = {
    "norm_matmul", "norm_matmul_glu", "glu_matmul_add", "matmul_add",
    "ffn",         "rope_append",     "matmul_argmax"};

static int is_named(const char *word, uint32_t id)
{
    int kv = id == FAK_OP_KV_APPEND || id == FAK_OP_ATTENTION || id == FAK_OP_ROPE_APPEND;
    if (!strcmp(word, "all")) return 1;
    if (!strcmp(word, "fusion")) return id >= FIRST_FUSED;
    if (!strcmp(word, "kv") || !strcmp(word, "att")) return kv;
    return !strcmp(word, id < FIRST_FUSED ? core_names[id] : fused_names[id - FIRST_FUSED]);
}

/* Is the op in the '+'-separated list? */
static int is_listed(const char *list, const fak_op *o)
{
    char text[NAME], *rest = text;
    snprintf(text, sizeof text, "%s", list);
    for (char *word; (word = strsep(&rest, "+"));) {
        char *layer = strstr(word, "-layer");
        if (layer) *layer = 0;
        if (is_named(word, o->id) && (!layer || strtoul(layer + 6, NULL, 10) == o->layer)) return 1;
    }
    return 0;
}

static int32_t set_option(fak_device *d, const fak_setting *set, uint32_t at, fak_error *e)
{
    const struct {
        const char *name;
        uint32_t *number;
        char *text;
    } option[] = {
        {"refuse", NULL, d->refuse},       {"keep", NULL, d->keep},
        {"late", NULL, d->late},           {"fused", &d->fused, NULL},
        {"async", &d->async, NULL},        {"graph", &d->graph, NULL},
        {"partial-kv", &d->partial, NULL}, {"fail-step", &d->fail_step, NULL},
    };
    for (size_t i = 0; i < sizeof option / sizeof *option; i++) {
        if (strcmp(set->name, option[i].name)) continue;
        if (option[i].number)
            *option[i].number = (uint32_t)strtoul(set->value, NULL, 10);
        else
            snprintf(option[i].text, NAME, "%s", set->value);
        return FAK_OK;
    }
    return fail(e, FAK_E_ARGUMENT, at, "unknown option");
}

/* ---- open ---- */

static int32_t open_device(uint32_t index, const fak_setting *set, uint32_t n, fak_device **out,
                           const fak_opened **facts, fak_error *e)
{
    const fak_setting fused = {"fused", "1"};
    const fak_opened *theirs;
    int32_t s = FAK_OK;
    fak_device *d = calloc(1, sizeof *d);
    if (!d) return fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no memory for a device");
    for (uint32_t i = 0; !s && i < n; i++) s = set_option(d, &set[i], i, e);
    if (!s) s = ref->open(index, &fused, d->fused, &d->inner, &theirs, e);
    if (s) {
        free(d);
        return s;
    }
    fak_take(&d->facts, sizeof d->facts, theirs);
    d->facts.op = table;
    d->facts.op_stride = sizeof *table;
    if (d->graph) {
        d->facts.ops = 0;
        d->facts.caps &= ~(uint32_t)(FAK_CAP_FUSED_ATTN | FAK_CAP_FUSED_FFN);
        d->facts.caps |= FAK_CAP_GRAPH_COMPILE;
    }
    d->facts.caps |= FAK_CAP_DEVICE_MEMORY | (d->async ? FAK_CAP_ASYNC : 0u);
    *facts = &d->facts;
    *out = d;
    return FAK_OK;
}

static void close_device(fak_device *d)
{
    if (d && ref->close) ref->close(d->inner);
    free(d);
}

/* ---- prepare and load ---- */

static void release(fak_program *p)
{
    if (!p) return;
    for (uint32_t i = 0; i < p->queued; i++) free(p->queue[i].rows);
    if (p->inner) refuser_seen.programs--;
    ref->release(p->inner);
    free(p->op);
    free(p->value);
    free(p->want_of);
    free(p->taken);
    free(p);
}

static fak_program *program_of(fak_device *d, const fak_plan *plan, const fak_limits *limits,
                               uint32_t flags)
{
    fak_program *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    *p =
        (fak_program){.d = d, .ops = plan->ops.count, .values = plan->values.count, .flags = flags};
    fak_take(&p->limits, sizeof p->limits, limits);
    p->op = calloc(p->ops, sizeof *p->op);
    p->value = calloc(p->values, sizeof *p->value);
    p->want_of = calloc(p->ops, sizeof *p->want_of);
    p->taken = calloc(p->ops, sizeof *p->taken);
    if (!p->op || !p->value || !p->want_of || !p->taken) {
        release(p);
        return NULL;
    }
    for (uint32_t i = 0; i < p->ops; i++) FAK_GET(&p->op[i], plan, ops, i);
    for (uint32_t i = 0; i < p->values; i++) FAK_GET(&p->value[i], plan, values, i);
    for (uint32_t t = 0; t < plan->tails.count; t++) {
        fak_tail tail;
        FAK_GET(&tail, plan, tails, t);
        for (uint32_t i = 0; i < tail.ops; i++) p->want_of[tail.first + i] = tail.want;
    }
    return p;
}

/* partial-kv: the append of layer 1 is kept although its attention is not. */
static int kept_alone(const fak_program *p, uint32_t op)
{
    uint32_t id = p->op[op].id;
    return p->d->partial && p->op[op].layer == 1 &&
           (id == FAK_OP_KV_APPEND || id == FAK_OP_ROPE_APPEND);
}

static void judge(const fak_program *p, uint32_t *verdict)
{
    for (uint32_t i = 0; i < p->ops; i++) {
        int refused = is_listed(p->d->refuse, &p->op[i]) && !is_listed(p->d->keep, &p->op[i]);
        refused |= p->d->partial && p->op[i].id == FAK_OP_ATTENTION && p->op[i].layer == 1;
        if (refused) verdict[i] = FAK_HOST;
    }
}

static int32_t prepare(fak_device *d, const fak_plan *plan, const fak_limits *limits,
                       fak_program *weights_of, uint32_t flags, uint32_t *verdict,
                       fak_report *report, fak_program **out, fak_error *e)
{
    fak_program *p = program_of(d, plan, limits, flags);
    if (!p) return fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no memory for a program");
    for (uint32_t i = 0; i < p->ops; i++) p->taken[i] = verdict[i];
    judge(p, verdict);
    int32_t s = ref->prepare(d->inner, plan, limits, weights_of ? weights_of->inner : NULL, flags,
                             verdict, report, &p->inner, e);
    for (uint32_t i = 0; i < p->ops; i++) {
        if (p->taken[i] == FAK_TAKEN && kept_alone(p, i)) verdict[i] = FAK_TAKEN;
        p->taken[i] = verdict[i];
    }
    if (p->inner) refuser_seen.programs++;
    refuser_seen.prepares += p->inner != NULL;
    refuser_seen.dry_runs += (flags & FAK_DRY_RUN) != 0;
    *out = s || flags & FAK_DRY_RUN ? NULL : p;
    if (!*out) release(p);
    return s;
}

static int32_t load(fak_program *p, const uint32_t *value, uint32_t values,
                    const fak_source *source, fak_error *e)
{
    refuser_seen.loads++;
    refuser_seen.ids = values;
    for (uint32_t i = 0; i < values && i < REFUSER_IDS; i++) refuser_seen.id[i] = value[i];
    for (uint32_t i = 0; p->d->late[0] && i < p->ops; i++) {
        if (p->taken[i] != FAK_TAKEN || !is_listed(p->d->late, &p->op[i])) continue;
        p->d->late[0] = 0;
        return fail(e, FAK_E_UNSUPPORTED, i, "an op that cannot be compiled");
    }
    return ref->load(p->inner, value, values, source, e);
}

/* ---- steps ---- */

static int fails_now(fak_device *d)
{
    return d->fail_step && --d->fail_step == 0;
}

static int32_t begin(fak_program *p, const fak_step *step, fak_error *e)
{
    refuser_seen.begins++;
    p->begun = 0;
    if (step->bytes > p->limits.step_bytes || step->rows > p->limits.rows ||
        step->wanted.count > p->limits.wanted || step->span.count > p->limits.spans)
        return fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX, "a step beyond the limits");
    if (fails_now(p->d)) return fail(e, FAK_E_STEP, FAK_NO_INDEX, "a begin failed");
    int32_t s = ref->begin(p->inner, step, e);
    if (s) return s;
    p->begun = 1;
    p->want = step->want;
    p->rows = step->rows;
    p->wanted = step->wanted.count;
    p->next = 0;
    return FAK_OK;
}

static int is_active(const fak_program *p, uint32_t op)
{
    return p->want_of[op] == FAK_WANT_NONE || p->want_of[op] == p->want;
}

/* The first op from `from` on that this step gives us; ops when there is none. */
static uint32_t next_taken(const fak_program *p, uint32_t from)
{
    while (from < p->ops && (p->taken[from] != FAK_TAKEN || !is_active(p, from))) from++;
    return from;
}

/* Runs ops [first, first + n).  None of ours may have been left out before it; whole: nor may the
 * next op be ours, for the range is maximal. */
static int32_t run_ops(fak_program *p, uint32_t first, uint32_t n, int whole, fak_error *e)
{
    uint32_t end = first + n;
    refuser_seen.calls++;
    if (!p->begun) return fail(e, FAK_E_ARGUMENT, first, "an op without a step");
    if (!n || first >= p->ops || n > p->ops - first || first != next_taken(p, p->next))
        return fail(e, FAK_E_ARGUMENT, first, "an op out of turn");
    for (uint32_t i = first; i < end; i++)
        if (p->taken[i] != FAK_TAKEN || p->want_of[i] != p->want_of[first])
            return fail(e, FAK_E_ARGUMENT, i, "a range over a hole, or out of its tail");
    whole = whole && !(p->flags & FAK_KEEP_ALL); /* then ops are run one at a time */
    if (whole && end < p->ops && p->taken[end] == FAK_TAKEN && p->want_of[end] == p->want_of[first])
        return fail(e, FAK_E_ARGUMENT, end, "a range that is not maximal");
    if (p->want_of[first] != FAK_WANT_NONE && !p->wanted)
        return fail(e, FAK_E_ARGUMENT, first, "a tail of zero rows");
    if (fails_now(p->d)) return fail(e, FAK_E_STEP, first, "an op failed");
    for (uint32_t i = first; i < end; i++) {
        fak_op_entry entry = {0};
        for (uint32_t j = 0; j < ref->ops && entry.id != p->op[i].id; j++)
            fak_get(&entry, sizeof entry, ref->op, ref->op_stride, j);
        int32_t s = entry.call(p->inner, i, e);
        if (s) return s;
    }
    p->next = end;
    return FAK_OK;
}

static int32_t call_op(fak_program *p, uint32_t op, fak_error *e)
{
    return run_ops(p, op, 1, 0, e);
}

static int32_t run(fak_program *p, uint32_t first, uint32_t ops, fak_error *e)
{
    return run_ops(p, first, ops, 1, e);
}

/* ---- rows ---- */

/* Is it the operand of a hole between the last range and the next?  (Or an output, or KEEP_ALL.) */
static int crosses_here(const fak_program *p, uint32_t value, int writes)
{
    if (p->flags & FAK_KEEP_ALL || (!writes && p->value[value].kind == FAK_OUT)) return 1;
    for (uint32_t i = p->next, end = next_taken(p, p->next); i < end; i++) {
        const uint32_t *id = writes ? p->op[i].out : p->op[i].in;
        for (uint32_t j = 0; is_active(p, i) && j < (writes ? 3u : 8u); j++)
            if (id[j] == value) return 1;
    }
    return 0;
}

static int32_t check_rows(const fak_program *p, uint32_t value, uint32_t first, uint32_t rows,
                          int writes, fak_error *e)
{
    if (!p->begun || value >= p->values || p->value[value].kind < FAK_ACT)
        return fail(e, FAK_E_ARGUMENT, value, "rows of what is no value of a step");
    uint32_t most = p->value[value].rows == FAK_WANTED_ROWS ? p->wanted : p->rows;
    if (first > most || rows > most - first)
        return fail(e, FAK_E_ARGUMENT, value, "rows that the step does not have");
    if (!crosses_here(p, value, writes))
        return fail(e, FAK_E_ARGUMENT, value,
                    writes ? "a hole's output is written beside its neighbouring ranges"
                           : "a hole's input is read beside its neighbouring ranges");
    return FAK_OK;
}

static int32_t read_rows(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                         uint64_t *ticket, fak_error *e)
{
    int32_t s = check_rows(p, value, first, rows, 0, e);
    refuser_seen.reads++;
    if (s || !p->d->async) return s ? s : ref->read(p->inner, value, first, rows, dst, ticket, e);
    if (p->queued == PENDING)
        return fail(e, FAK_E_ARGUMENT, value, "more reads than were ever waited for");
    pending r = {.dst = dst, .bytes = rows * 4ull * p->value[value].cols};
    uint64_t done;
    r.rows = malloc(r.bytes + 1);
    if (!r.rows) return fail(e, FAK_E_MEMORY, value, "no memory for a read");
    s = ref->read(p->inner, value, first, rows, r.rows, &done, e);
    if (s) {
        free(r.rows);
        return s;
    }
    memset(dst, 0xa5, r.bytes); /* nobody may look before wait */
    *ticket = r.ticket = ++p->tickets;
    p->queue[p->queued++] = r;
    return FAK_OK;
}

static int32_t wait_for(fak_program *p, uint64_t ticket, uint32_t timeout_ms, fak_error *e)
{
    if (ticket > p->tickets) return fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX, "no such ticket");
    if (!timeout_ms && p->queued && p->queue[0].ticket <= ticket && !p->queue[0].polled) {
        p->queue[0].polled = 1;
        refuser_seen.polls++;
        return FAK_PENDING;
    }
    while (p->queued && p->queue[0].ticket <= ticket) { /* in order */
        memcpy(p->queue[0].dst, p->queue[0].rows, p->queue[0].bytes);
        free(p->queue[0].rows);
        memmove(p->queue, p->queue + 1, --p->queued * sizeof *p->queue);
    }
    return FAK_OK;
}

static int32_t write_rows(fak_program *p, uint32_t value, uint32_t first, uint32_t rows,
                          const void *src, fak_error *e)
{
    int32_t s = check_rows(p, value, first, rows, 1, e);
    refuser_seen.writes++;
    return s ? s : ref->write(p->inner, value, first, rows, src, e);
}

/* ---- kv and the rest are cpu-ref's ---- */

static int32_t unload(fak_program *p, const uint32_t *value, uint32_t values, fak_error *e)
{
    return ref->unload(p->inner, value, values, e);
}

static int32_t kv_clone(fak_program *p, uint32_t to, uint32_t from, uint32_t len, fak_error *e)
{
    return ref->kv_clone(p->inner, to, from, len, e);
}

static int32_t kv_trim(fak_program *p, uint32_t slot, uint32_t len, fak_error *e)
{
    return ref->kv_trim(p->inner, slot, len, e);
}

static int32_t kv_evict(fak_program *p, uint32_t slot, uint32_t first, uint32_t len, fak_error *e)
{
    return ref->kv_evict(p->inner, slot, first, len, e);
}

static int32_t device_info(uint32_t index, const fak_setting *set, uint32_t n, fak_device_info *out,
                           fak_error *e)
{
    return ref->device_info(index, set, n, out, e);
}

int32_t FAK_ENTRY(const fak_host *host, const fak_backend **out, fak_error *e)
{
    static const fak_option options[] = {
        {"refuse", "text", "", "ops that are left to the host"},
        {"keep", "text", "", "ops that are taken nevertheless"},
        {"fused", "0|1", "0", "offer fused ops"},
        {"async", "0|1", "0", "reads have tickets"},
        {"graph", "0|1", "0", "no op table, but run"},
        {"late", "text", "", "an op that the first load refuses"},
        {"fail-step", "0..1000000", "0", "the begin or op that fails once"},
        {"partial-kv", "0|1", "0", "break the rule that kv ops of a layer go together"},
    };
    static fak_backend backend;
    int32_t s = fak_backend_entry_v1_cpu_ref(host, &ref, e);
    if (s) return s;
    for (uint32_t i = 0; i < OPS && i < ref->ops; i++) {
        fak_get(&table[i], sizeof *table, ref->op, ref->op_stride, i);
        table[i].call = call_op;
    }
    backend = (fak_backend){.struct_size = sizeof backend,
                            .caps = ref->caps | FAK_CAP_GRAPH_COMPILE | FAK_CAP_ASYNC |
                                    FAK_CAP_DEVICE_MEMORY,
                            .numerics = ref->numerics,
                            .upload_dtypes = ref->upload_dtypes,
                            .options = sizeof options / sizeof *options,
                            .option_stride = sizeof *options,
                            .ops = ref->ops < OPS ? ref->ops : OPS,
                            .op_stride = sizeof *table,
                            .name = "refuser",
                            .version = "1",
                            .vendor = "fak tests",
                            .option = options,
                            .op = table,
                            .device_info = device_info,
                            .open = open_device,
                            .close = close_device,
                            .prepare = prepare,
                            .release = release,
                            .load = load,
                            .unload = unload,
                            .begin = begin,
                            .run = run,
                            .read = read_rows,
                            .write = write_rows,
                            .wait = wait_for,
                            .kv_clone = kv_clone,
                            .kv_trim = kv_trim,
                            .kv_evict = kv_evict};
    *out = &backend;
    return FAK_OK;
}
