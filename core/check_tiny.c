/* check_tiny - R3: small models made in memory, on the device and on the reference side by side: op by
 * op, prefill, split, decode, greedy, batch, clone, truncate, evict. */
#include "check_pair.h"
#include "lockstep.h"
#include "ref.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { V = PAIR_V, N = 23 };
static const toy_shape shape = {.width = 96,
                                .ffn = 160,
                                .heads = 6,
                                .kv_heads = 2,
                                .head_dim = 16,
                                .vocab = V,
                                .layers = 3,
                                .context = PAIR_CONTEXT};
static const toy_shape shape_k = {.width = 256, /* rows of one K block, and of two */
                                  .ffn = 512,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 64,
                                  .vocab = V,
                                  .layers = 1,
                                  .context = PAIR_CONTEXT};

/* ---- scripts ---- */

static int32_t prefill(pair *p, fak_error *e)
{
    uint32_t slot;
    int32_t s = pair_take(p, &slot, e);
    return s ? s : pair_feed(p, slot, p->id, N, e);
}

static int32_t split(pair *p, fak_error *e)
{
    static const uint32_t parts[] = {1, 7, 2, 13};
    uint32_t slot, at = 0;
    int32_t s = pair_take(p, &slot, e);
    for (size_t i = 0; !s && i < sizeof parts / sizeof *parts; at += parts[i++])
        s = pair_feed(p, slot, p->id + at, parts[i], e);
    return s;
}

static int32_t decode(pair *p, fak_error *e)
{
    uint32_t slot;
    int32_t s = pair_take(p, &slot, e);
    if (!s) s = pair_feed(p, slot, p->id, 5, e);
    for (uint32_t i = 5; !s && i < 40; i++) s = pair_feed(p, slot, p->id + i, 1, e);
    return s;
}

/* The device's own ids, and by ARGMAX: where they part at a tie the reference's go on. */
static int32_t greedy(pair *p, fak_error *e)
{
    uint32_t slot, mine = 0, theirs = p->id[0];
    float *logits = p->row[1];
    int32_t s = pair_take(p, &slot, e);
    if (!s) s = pair_feed(p, slot, p->id, 11, e);
    for (uint32_t i = 0; !s && i < 40; i++) {
        uint32_t fed = theirs;
        s = session_feed(&p->s[0], slot, &fed, 1, FAK_WANT_ARGMAX, 0, &mine, e);
        if (!s) s = session_feed(&p->s[1], slot, &fed, 1, FAK_WANT_LOGITS, 0, logits, e);
        if (s) break;
        theirs = ref_argmax(V, logits);
        p->c->row.cases++;
        if (mine == theirs) continue;
        double gap = mine < V && theirs < V ? (double)(logits[theirs] - logits[mine]) : 1e30;
        if (p->bound.exact || gap >= 2 * p->bound.max_abs)
            return status_set(e, STATUS_GATE,
                              "step %" PRIu32 " gives id %" PRIu32 " where the reference has "
                              "%" PRIu32 ", whose logit is higher by %g",
                              i, mine, theirs, gap);
    }
    return s;
}

static int32_t batch(pair *p, fak_error *e)
{
    uint32_t slot[3];
    int32_t s = FAK_OK;
    for (int i = 0; !s && i < 3; i++) s = pair_take(p, &slot[i], e);
    if (!s) s = pair_batch(p, (fak_span[]){{slot[0], 0, 5, 0}, {slot[1], 5, 9, 0}}, 2, e);
    if (!s)
        s = pair_batch(p, (fak_span[]){{slot[1], 0, 1, 9}, {slot[2], 1, 7, 0}, {slot[0], 8, 2, 5}},
                       3, e);
    for (uint32_t i = 0; !s && i < 4; i++)
        s = pair_batch(
            p,
            (fak_span[]){{slot[2], 0, 1, 7 + i}, {slot[0], 1, 1, 7 + i}, {slot[1], 2, 1, 10 + i}},
            3, e);
    return s;
}

/* Two that begin alike go their own ways; what is written to one is not in the other. */
static int32_t clone(pair *p, fak_error *e)
{
    uint32_t a, b;
    int32_t s = pair_take(p, &a, e);
    if (!s) s = pair_feed(p, a, p->id, 21, e);
    if (!s) s = pair_clone(p, a, 18, &b, e);
    if (!s) s = pair_feed(p, b, p->id + 30, 6, e);
    if (!s) s = pair_feed(p, a, p->id + 21, 4, e);
    if (!s) s = pair_feed(p, b, p->id + 40, 3, e);
    return s;
}

static int32_t truncate_(pair *p, fak_error *e)
{
    uint32_t slot;
    int32_t s = pair_take(p, &slot, e);
    if (!s) s = pair_feed(p, slot, p->id, 30, e);
    if (!s) pair_truncate(p, slot, 13);
    if (!s) s = pair_feed(p, slot, p->id + 33, 5, e);
    if (!s) pair_truncate(p, slot, 0);
    if (!s) s = pair_feed(p, slot, p->id + 7, 9, e);
    return s;
}

static int32_t evict(pair *p, fak_error *e)
{
    uint32_t slot;
    int32_t s = pair_take(p, &slot, e);
    if (!s) s = pair_feed(p, slot, p->id, 29, e);
    if (!s) s = pair_evict(p, slot, 3, 10, e);
    if (!s) s = pair_feed(p, slot, p->id + 29, 4, e);
    if (!s) s = pair_evict(p, slot, 0, 5, e);
    if (!s) s = pair_evict(p, slot, 12, 6, e);
    if (!s) s = pair_feed(p, slot, p->id + 40, 3, e);
    return s;
}

/* The same bits however the ids are cut, and whatever else is in the step. */
static int32_t invariant(pair *p, fak_error *e)
{
    uint32_t slot, other;
    gate_figures f = GATE_NONE;
    int32_t s = pair_take(p, &slot, e);
    if (!s) s = pair_take(p, &other, e);
    if (!s) s = session_feed(&p->s[0], slot, p->id, N, FAK_WANT_LOGITS, 1, p->row[1], e);
    if (!s) kv_truncate(&p->s[0].kv, slot, 0);
    if (!s) s = session_feed(&p->s[0], slot, p->id, 9, FAK_WANT_LOGITS, 1, p->row[0], e);
    if (!s)
        s = pair_batch_step(&p->s[0], (fak_span[]){{slot, 0, N - 9, 9}, {other, N - 9, 5, 0}}, 2,
                            p->id + 9, N - 4, p->row[0] + (size_t)9 * V, e);
    for (uint32_t r = 0; !s && r < N; r++)
        gate_add_row(&f, r, V, p->row[1] + (size_t)r * V, p->row[0] + (size_t)r * V);
    if (!s && f.differ)
        s = status_set(e, STATUS_GATE,
                       "it offers batch invariance, but logit %" PRIu32 " of row %" PRIu32
                       " is %.9g alone and %.9g when it is cut and beside another sequence",
                       f.col, f.row, (double)f.want, (double)f.got);
    return s;
}

static int32_t deterministic(pair *p, fak_error *e)
{
    uint32_t slot;
    int32_t s = pair_take(p, &slot, e);
    for (int i = 0; !s && i < 2; i++) {
        s = session_feed(&p->s[0], slot, p->id, N, FAK_WANT_LOGITS, 1, p->row[i], e);
        if (!s) kv_truncate(&p->s[0].kv, slot, 0);
    }
    if (!s && memcmp(p->row[0], p->row[1], (size_t)N * V * sizeof(float)))
        s = status_set(e, STATUS_GATE,
                       "it offers determinism, and the same step twice gives other bits");
    return s;
}

/* ---- running them ---- */

typedef struct script {
    const char *name;
    int32_t (*run)(pair *, fak_error *);
    uint32_t flags, numerics; /* prepare flags; asked only where the device offers these */
} script;
static const script scripts[] = {
    {"prefill", prefill, 0, 0},
    {"split", split, 0, 0},
    {"decode", decode, 0, 0},
    {"greedy", greedy, 0, 0},
    {"batch", batch, 0, 0},
    {"clone", clone, 0, 0},
    {"truncate", truncate_, 0, 0},
    {"evict", evict, FAK_EVICTABLE, 0},
    {"batch-invariant", invariant, 0, FAK_BATCH_INVARIANT},
    {"deterministic", deterministic, 0, FAK_DETERMINISTIC},
};

typedef struct mode {
    uint32_t dtype, act, kv_dtype;
    char text[64];
} mode;

/* Can the sides that hold kv do it?  The device that leaves attention to the host need not. */
static const char *cannot(const check *c, const script *s, const session *t)
{
    const fak_backend *api = &c->dev.api;
    if (!t->program.holds_kv[SIDE_DEVICE]) return NULL;
    if (s->run == clone && !api->kv_clone) return "it has no kv_clone: the host prefills again";
    if (s->run == evict && !api->kv_evict) return "it has no kv_evict: the host prefills again";
    return NULL;
}

static void run_script(check *c, toy *g, const mode *m, const script *s, gate_tally *all)
{
    pair p;
    fak_error e;
    session_options o = {.act = m->act | s->numerics, .kv_dtype = m->kv_dtype, .flags = s->flags};
    check_begin(c, R3, s->name, "%s", m->text);
    int32_t rc = pair_open(&p, c, g, &o, m->dtype, &e);
    p.all = all;
    const char *why = rc ? NULL : cannot(c, s, &p.s[0]);
    if (!rc && !why) rc = s->run(&p, &e);
    check_add(c, &p.tally.logits);
    if (!rc && !why && p.tally.positions) rc = gate_logits(&p.bound, &p.tally.logits, &e);
    if (!rc && p.tally.wrongs) rc = gate_positions(&p.tally, &p.bound, &e);
    if (why)
        check_end(c, CHECK_ABSTAIN, why);
    else
        check_answer(c, rc, &e);
    pair_close(&p);
    if (rc && rc != STATUS_GATE && check_open(c, NULL, NULL, &e))
        c->stopped = "it does not open again";
}

/* KEEP_ALL: every value readable and writable, ops run one at a time; the first that parts is named. */
static void run_lockstep(check *c, toy *g, const mode *m)
{
    lockstep l;
    fak_error e;
    session_options o = {.act = m->act, .kv_dtype = m->kv_dtype, .rows = 11};
    uint64_t random = check_seed(c, m->dtype + 100);
    uint32_t id[N];
    for (uint32_t i = 0; i < N; i++) id[i] = toy_below(&random, V);
    check_begin(c, R3, "op by op", "%s", m->text);
    int32_t s = lockstep_open(&l, &g->m, &c->dev, c->host, &o, &e);
    if (!s) s = lockstep_feed(&l, id, N, FAK_WANT_LOGITS, &e);
    for (uint32_t i = 0; !s && i < 4; i++) {
        uint32_t next = i ? lockstep_next(&l) : id[0];
        s = lockstep_feed(&l, &next, 1, FAK_WANT_ARGMAX, &e);
    }
    check_add(c, &l.worst);
    c->row.cases = (uint32_t)l.ops;
    check_answer(c, s, &e);
    lockstep_close(&l);
    if (s && s != STATUS_GATE && check_open(c, NULL, NULL, &e))
        c->stopped = "it does not open again";
}

static void run_mode(check *c, const mode *m)
{
    toy g;
    fak_error e;
    gate_tally all = {.logits = GATE_NONE};
    gate_bound bound = gate_bound_of(&c->dev, m->act, m->dtype, m->kv_dtype);
    if (toy_make(&g, dtype_find(m->dtype)->block == 256 ? &shape_k : &shape, m->dtype,
                 check_seed(c, 7), &e)) {
        check_begin(c, R3, "model", "%s", m->text);
        check_end(c, CHECK_ABSTAIN, e.message);
        return;
    }
    run_lockstep(c, &g, m);
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts && !c->stopped; i++)
        if (!(scripts[i].numerics & ~c->dev.facts.numerics))
            run_script(c, &g, m, &scripts[i], &all);
    check_begin(c, R3, "argmax", "%s", m->text);
    c->row.cases = (uint32_t)all.positions;
    c->row.figures = all.logits;
    c->row.measured = 1;
    int32_t s = gate_positions(&all, &bound, &e);
    if (!s && all.ties)
        status_set(&e, 0, "%" PRIu64 " of %" PRIu64 " positions part at a tie", all.ties,
                   all.positions);
    check_end(c, s ? CHECK_FAIL : CHECK_PASS, s || all.ties ? e.message : NULL);
    toy_free(&g);
}

/* Does the device keep a kv dtype?  prepare says so. */
static int keeps_kv(check *c, uint32_t kv_dtype)
{
    toy g;
    program p = {0};
    fak_error e;
    session_options o = {.act = check_next_act(c, 0), .kv_dtype = kv_dtype};
    if (toy_make(&g, &shape, FAK_F32, TOY_SEED, &e)) return 0;
    fak_limits limits = session_limits(&g.m, &c->dev, &o);
    limits.kv_tokens *= 2;
    int32_t s = program_prepare(&p, &c->dev, c->host, &g.m, &limits, FAK_DRY_RUN, &e);
    program_close(&p);
    toy_free(&g);
    return !s;
}

void check_tiny(check *c)
{
    static const uint32_t kv_dtypes[] = {FAK_F16, FAK_BF16};
    for (uint32_t t = 1; t < 32 && !c->stopped; t++) {
        const dtype_info *kind = dtype_find(t);
        if (!kind || t == FAK_I32 || (t != FAK_F32 && !(c->dev.facts.upload_dtypes >> t & 1)))
            continue;
        for (uint32_t act = check_next_act(c, 0); act; act = check_next_act(c, act)) {
            mode m = {t, act, FAK_F32, ""};
            snprintf(m.text, sizeof m.text, "%s%s%s", kind->name, kind->block > 1 ? ", " : "",
                     kind->block > 1 ? check_act_name(act) : "");
            run_mode(c, &m);
            if (kind->block == 1) break;
        }
    }
    for (int k = 0; k < 2 && !c->stopped; k++) {
        mode m = {FAK_F32, check_next_act(c, 0), kv_dtypes[k], ""};
        snprintf(m.text, sizeof m.text, "f32, %s kv", dtype_name(kv_dtypes[k]));
        if (keeps_kv(c, kv_dtypes[k])) {
            run_mode(c, &m);
            continue;
        }
        check_begin(c, R3, "prefill", "%s", m.text);
        check_end(c, CHECK_ABSTAIN, "it does not keep kv so");
    }
}
