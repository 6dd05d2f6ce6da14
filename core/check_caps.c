/* check_caps - R2: what a device claims is there.  Async and what it moves are judged by its own counts
 * (fak.stats/1), not by clocks; memory by what it reports and by what malloc gives out meanwhile. */
#include "check.h"
#include "golden.h"
#include "rig.h"
#include "session.h"
#include "watch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const toy_shape small = {.width = 64,
                                .ffn = 96,
                                .heads = 4,
                                .kv_heads = 2,
                                .head_dim = 16,
                                .vocab = 192,
                                .layers = 2,
                                .context = 64};
enum { PROMPT = 9 };
static const uint32_t prompt[PROMPT] = {5, 17, 101, 2, 33, 64, 150, 8, 90};

/* ---- a step that is counted ---- */

typedef struct counted {
    fak_stats loaded, begun, read; /* before, after the ops, and after the answer of one step */
    int there;
    uint32_t argmax_native; /* the device gives the ids itself */
    uint32_t device_ops;    /* run by it in the step */
} counted;

/* Prefills, then counts one step of a row in its two halves: the ops, and the reading of the answer. */
static int32_t count_step(check *c, counted *n, fak_error *e)
{
    toy g;
    session t = {0};
    session_options o = {.rows = 16, .wanted = 16};
    uint32_t slot, id[PROMPT];
    int32_t s = toy_make(&g, &small, FAK_F32, TOY_SEED, e);
    if (s) return s;
    s = session_open(&t, &g.m, &c->dev, c->host, &o, NULL, NULL, e);
    if (!s) s = kv_take(&t.kv, &slot, e);
    if (!s) s = session_feed(&t, slot, prompt, PROMPT, FAK_WANT_ARGMAX, 1, id, e);
    if (!s) {
        const program *p = &t.program;
        n->loaded = rig_stats(&c->dev, &n->there);
        uint64_t before = t.exec.ops[SIDE_DEVICE];
        s = session_feed(&t, slot, id, 3, FAK_WANT_ARGMAX, 1, NULL, e);
        n->device_ops = (uint32_t)(t.exec.ops[SIDE_DEVICE] - before);
        n->begun = rig_stats(&c->dev, &n->there);
        if (!s) kv_truncate(&t.kv, slot, PROMPT);
        if (!s) n->loaded.bytes_down = rig_stats(&c->dev, &n->there).bytes_down;
        if (!s) s = session_feed(&t, slot, id, 3, FAK_WANT_ARGMAX, 1, id, e);
        n->read = rig_stats(&c->dev, &n->there);
        n->argmax_native = program_side_of(p, p->ops - 1) == SIDE_DEVICE;
        if (p->holes) n->argmax_native = 0; /* what holes take and give is counted too */
    }
    session_close(&t);
    toy_free(&g);
    return s;
}

static const char no_stats[] = "it has no fak.stats/1, by which it could be judged";

static void check_async(check *c, const counted *n)
{
    fak_error e;
    uint64_t waits = n->begun.host_waits - n->loaded.host_waits;
    if (!(c->dev.facts.caps & FAK_CAP_ASYNC)) return;
    check_begin(c, R2, "Async", "%s", "ops return before they are done");
    if (!n->there) {
        check_end(c, CHECK_ABSTAIN, no_stats);
    } else if (!n->device_ops) {
        check_end(c, CHECK_ABSTAIN, "it runs no op of the model");
    } else if (waits) {
        status_set(&e, STATUS_GATE,
                   "a step blocked %" PRIu64 " times in %" PRIu32 " ops before anything was read",
                   waits, n->device_ops);
        check_end(c, CHECK_FAIL, e.message);
    } else {
        check_end(c, CHECK_PASS, NULL);
    }
}

static void check_bytes(check *c, const counted *n)
{
    fak_error e;
    uint64_t bytes = n->read.bytes_down - n->loaded.bytes_down;
    check_begin(c, R2, "argmax", "%s", "4 bytes a row to the host");
    if (!n->there) {
        check_end(c, CHECK_ABSTAIN, no_stats);
    } else if (!n->argmax_native) {
        check_end(c, CHECK_ABSTAIN, "ops are left to the host, which reads more");
    } else if (bytes != 3 * 4) {
        status_set(&e, STATUS_GATE, "the ids of 3 rows moved %" PRIu64 " bytes; 12 are asked for",
                   bytes);
        check_end(c, CHECK_FAIL, e.message);
    } else {
        check_end(c, CHECK_PASS, NULL);
    }
}

static void check_allocations(check *c, const counted *n)
{
    fak_error e;
    uint64_t more = n->read.allocations - n->loaded.allocations;
    check_begin(c, R2, "allocations", "%s", "none of device memory after load");
    if (!n->there) {
        check_end(c, CHECK_ABSTAIN, no_stats);
    } else if (more) {
        status_set(&e, STATUS_GATE, "two steps took device memory %" PRIu64 " times", more);
        check_end(c, CHECK_FAIL, e.message);
    } else {
        check_end(c, CHECK_PASS, NULL);
    }
}

/* ---- memory ---- */

/* A model whose activations outweigh the rest. */
static const toy_shape wide = {.width = 64,
                               .ffn = 192,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 16,
                               .vocab = 320,
                               .layers = 1,
                               .context = 512};

static int same_report(const fak_report *a, const fak_report *b)
{
    return a->weight_bytes == b->weight_bytes && a->kv_bytes == b->kv_bytes &&
           a->scratch_bytes == b->scratch_bytes && a->kv_token_bytes == b->kv_token_bytes;
}

/* Prepares and compares: the dry run with the real one, both with what malloc gave out. */
static int32_t weigh(check *c, fak_error *e)
{
    toy g;
    program p = {0};
    session_options o = {.rows = 512, .wanted = 512};
    int32_t s = toy_make(&g, &wide, FAK_F32, TOY_SEED, e);
    if (s) return s;
    fak_limits limits = session_limits(&g.m, &c->dev, &o);
    limits.kv_tokens *= 2; /* whole pages */
    s = program_prepare(&p, &c->dev, c->host, &g.m, &limits, FAK_DRY_RUN, e);
    fak_report dry = p.report[SIDE_DEVICE];
    uint64_t plan_bytes = s ? 0 : p.fused.block->bytes, before = watch_heap_bytes();
    if (!s) s = program_commit(&p, e);
    uint64_t after = watch_heap_bytes(), room = program_bytes(&p) + 8 * plan_bytes + 65536;
    if (!s && !same_report(&dry, &p.report[SIDE_DEVICE]))
        s = status_set(e, STATUS_GATE,
                       "its dry run reports %" PRIu64 " bytes of scratch and %" PRIu64
                       " of kv, prepare %" PRIu64 " and %" PRIu64,
                       dry.scratch_bytes, dry.kv_bytes, p.report[SIDE_DEVICE].scratch_bytes,
                       p.report[SIDE_DEVICE].kv_bytes);
    if (!s && after > before && after - before > room)
        s = status_set(e, STATUS_GATE,
                       "prepare took %" PRIu64 " bytes of host memory; it reports %" PRIu64
                       " in all, and 64 KiB and eight plans beside it would be fine",
                       after - before, program_bytes(&p));
    program_close(&p);
    toy_free(&g);
    return s;
}

static void check_capacity(check *c)
{
    fak_error e;
    if (!(c->dev.facts.caps & FAK_CAP_CAPACITY_PROBE)) return;
    check_begin(c, R2, "CapacityProbe", "%s", "it takes what its dry run reports");
    int32_t s = weigh(c, &e);
    c->row.cases = 1;
    if (!s && !watch_heap_bytes())
        check_end(c, CHECK_PASS, "as far as it tells: what malloc gives out cannot be seen here");
    else
        check_answer(c, s, &e);
}

/* Weights of that dtype take what they take in the file, not what they are as F32. */
static void check_upload(check *c, uint32_t dtype)
{
    rig r;
    fak_error e;
    uint32_t I = 256, O = 96, act = check_next_act(c, 0);
    if (dtype_find(dtype)->block > 1 && c->dev.facts.numerics & FAK_ACT_Q8) act = FAK_ACT_Q8;
    check_begin(c, R2, "UploadDtype", "%s", dtype_name(dtype));
    int32_t s = rig_open(&r, &c->dev, act, 4, 1, 8, check_seed(c, dtype), &e);
    if (!s) {
        uint32_t x = rig_input(&r, I, 0), w = rig_weight(&r, dtype, O, I, 0, 1);
        rig_op(&r, (fak_op){.id = FAK_OP_MATMUL, .in = {x, w}});
        s = rig_ready(&r, &e);
    }
    uint64_t bytes = O * dtype_row_bytes(dtype, I), most = bytes + bytes / 8 + 4096;
    c->row.cases = 1;
    if (!s && !r.taken)
        check_end(c, CHECK_ABSTAIN, "its MATMUL is left to the host");
    else if (!s && r.report.weight_bytes > most) {
        status_set(&e, STATUS_GATE,
                   "%" PRIu64 " bytes for a matrix of %" PRIu64 " that it keeps in its own form",
                   r.report.weight_bytes, bytes);
        check_end(c, CHECK_FAIL, e.message);
    } else {
        check_answer(c, s, &e);
    }
    rig_close(&r);
}

/* ---- the rest ---- */

/* What device_open has proven, or R1 has: told so that evidence can be seen of each. */
static void tell(check *c, uint32_t cap, const char *name, const char *how)
{
    if (!(c->dev.facts.caps & cap)) return;
    check_begin(c, R2, name, "%s", how);
    c->row.cases = 1;
    check_end(c, CHECK_PASS, NULL);
}

/* A cap for an op means that the op is taken, not only listed. */
static void check_fused(check *c, uint32_t cap, const char *name, uint32_t op)
{
    if (!(c->dev.facts.caps & cap)) return;
    check_begin(c, R2, name, "%s", ops_name(op));
    c->row.cases = 1;
    if (c->taken[op])
        check_end(c, CHECK_PASS, NULL);
    else
        check_end(c, CHECK_FAIL, "it lists the op and leaves every case of it to the host");
}

/* Reference is proven bit for bit; Approx promises no less than the floors. */
static void check_class(check *c, fak_error *e)
{
    int reference = c->dev.facts.klass == FAK_REFERENCE;
    check_begin(c, R2, "class", "%s", device_class_name(c->dev.facts.klass));
    int32_t s = reference ? golden_compare(&c->dev, c->host, e) : gate_promises(&c->dev, e);
    const elfnote *note = &c->plugin->note;
    if (!s && note->there && note->klass == FAK_REFERENCE && !reference && !c->sets)
        s = status_set(e, STATUS_GATE, "its note claims class reference; the device is of class %s",
                       device_class_name(c->dev.facts.klass));
    check_answer(c, s, e);
}

void check_caps(check *c)
{
    counted n = {0};
    fak_error e;
    check_class(c, &e);
    check_fused(c, FAK_CAP_FUSED_ATTN, "FusedAttn", FAK_OP_ATTENTION);
    check_fused(c, FAK_CAP_FUSED_FFN, "FusedFFN", FAK_OP_FFN);
    tell(c, FAK_CAP_GRAPH_COMPILE, "GraphCompile", "ops are run in ranges");
    tell(c, FAK_CAP_DEVICE_MEMORY, "DeviceMemory", "no host view");
    check_begin(c, R2, "steps", "%s", "a small model, counted");
    int32_t s = count_step(c, &n, &e);
    check_answer(c, s, &e);
    if (!s) {
        check_async(c, &n);
        check_bytes(c, &n);
        check_allocations(c, &n);
    }
    check_capacity(c);
    for (uint32_t t = 1; t < 32; t++)
        if (c->dev.facts.upload_dtypes >> t & 1 && dtype_find(t)) check_upload(c, t);
}
