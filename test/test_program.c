/* A plan made ready: who runs which op, what it costs, what is loaded where. */
#include "engine.h"

#include <inttypes.h>

/* tiny-f32: 2 layers of 15 ops, embed, tails of 3 and 4 ops. */
enum { LAYER = 15, BODY = 1 + 2 * LAYER, OPS = BODY + 3 + 4, FUSED_OPS = 1 + 2 * 5 + 2 + 3 };

static fak_limits limits_f32(void)
{
    return engine_limits(FAK_ACT_F32, FAK_F32);
}

static void prepare(engine *g, const char *backend, const char *options, uint32_t flags)
{
    fak_error e = {0};
    fak_limits limits = limits_f32();
    engine_begin(g, "tiny-f32.gguf", backend, options);
    if (program_prepare(&g->program, &g->backend.dev, &g->backend.host, &g->tiny.model, &limits,
                        flags, &e))
        fail_msg("%s %s: %s", backend, options, e.message);
}

/* Each op is one side's; the holes are counted. */
static void assert_verdicts(const program *p)
{
    uint32_t holes = 0;
    for (uint32_t i = 0; i < p->ops; i++) {
        assert_int_equal(p->verdict[SIDE_DEVICE][i] == FAK_TAKEN,
                         p->verdict[SIDE_HOST][i] != FAK_TAKEN);
        holes += program_side_of(p, i) == SIDE_HOST;
    }
    assert_int_equal(p->holes, holes);
    for (uint32_t i = 0; i < p->ops; i++) /* kv of a layer is on one side */
        for (uint32_t j = 0; j < p->ops; j++)
            if ((p->op[i].id == FAK_OP_KV_APPEND || p->op[i].id == FAK_OP_ROPE_APPEND) &&
                p->op[j].id == FAK_OP_ATTENTION && p->op[i].layer == p->op[j].layer)
                assert_int_equal(program_side_of(p, i), program_side_of(p, j));
}

/* ---- who runs what ---- */

typedef struct verdicts {
    const char *options;
    uint32_t ops, holes, unfused;
    uint8_t device_kv, host_kv;
} verdicts;

static const verdicts known[] = {
    {"", OPS, 0, 0, 1, 0},
    {"async=1", OPS, 0, 0, 1, 0},
    {"graph=1", OPS, 0, 0, 1, 0},
    {"refuse=rope", OPS, 2, 0, 1, 0},
    {"refuse=glu", OPS, 2, 0, 1, 0},
    {"refuse=glu-layer1", OPS, 1, 0, 1, 0},
    {"refuse=kv", OPS, 4, 0, 0, 1},
    {"refuse=att-layer1", OPS, 2, 0, 1, 1},
    {"refuse=matmul", OPS, 2 * 7 + 2, 0, 1, 0},
    {"refuse=embed", OPS, 1, 0, 1, 0},
    {"refuse=argmax", OPS, 1, 0, 1, 0},
    {"refuse=take_rows", OPS, 2, 0, 1, 0},
    {"refuse=all", OPS, OPS, 0, 0, 1},
    {"refuse=all keep=matmul", OPS, OPS - 2 * 7 - 2, 0, 0, 1},
    {"partial-kv=1", OPS, 2, 0, 1, 1},
    {"partial-kv=1 graph=1", OPS, 2, 0, 1, 1},
    {"fused=1", FUSED_OPS, 0, 0, 1, 0},
    {"fused=1 async=1", FUSED_OPS, 0, 0, 1, 0},
    /* rope_append becomes rope, kv_append; kv is the host's */
    {"fused=1 refuse=kv", FUSED_OPS + 2, 4, 2, 0, 1},
    {"fused=1 refuse=att-layer1", FUSED_OPS + 1, 2, 1, 1, 1},
    {"fused=1 partial-kv=1", FUSED_OPS + 1, 2, 1, 1, 1},
    /* the next best in the table is tried: ffn becomes norm_matmul_glu, matmul_add */
    {"fused=1 refuse=ffn", FUSED_OPS + 2, 0, 2, 1, 0},
    {"fused=1 refuse=ffn-layer1", FUSED_OPS + 1, 0, 1, 1, 0},
    {"fused=1 refuse=rope_append-layer0", FUSED_OPS + 1, 0, 1, 1, 0},
    {"fused=1 refuse=matmul_argmax", FUSED_OPS, 0, 1, 1, 0}, /* norm_matmul, argmax */
    {"fused=1 refuse=fusion graph=1", OPS, 0, 0, 1, 0},      /* no table, no fused ops */
};

static void test_verdicts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const verdicts *k = &known[i];
        for (uint32_t flags = 0; flags <= FAK_DRY_RUN; flags++) {
            engine g;
            prepare(&g, "refuser", k->options, flags);
            const program *p = &g.program;
            if (p->ops != k->ops || p->holes != k->holes ||
                p->holds_kv[SIDE_DEVICE] != k->device_kv || p->holds_kv[SIDE_HOST] != k->host_kv)
                fail_msg("\"%s\": %" PRIu32 " ops, %" PRIu32 " holes, kv %d %d", k->options, p->ops,
                         p->holes, p->holds_kv[SIDE_DEVICE], p->holds_kv[SIDE_HOST]);
            if (p->unfused != k->unfused)
                fail_msg("\"%s\" flags %" PRIu32 ": %" PRIu32 " unfused, not %" PRIu32, k->options,
                         flags, p->unfused, k->unfused);
            assert_verdicts(p);
            assert_int_equal(p->handle[SIDE_HOST] != NULL, !flags && k->holes);
            engine_close(&g);
        }
    }
}

/* cpu-ref takes everything, with its fused ops or without. */
static void test_cpu_ref(void **state)
{
    (void)state;
    for (int fused = 0; fused < 2; fused++) {
        engine g;
        prepare(&g, "cpu-ref", fused ? "fused=1" : "fused=0", 0);
        assert_int_equal(g.program.ops, fused ? FUSED_OPS : OPS);
        assert_int_equal(g.program.holes + g.program.unfused, 0);
        assert_verdicts(&g.program);
        assert_non_null(g.program.handle[SIDE_DEVICE]);
        assert_null(g.program.handle[SIDE_HOST]);
        engine_close(&g);
    }
}

/* Which fused op a device gets, and what stands there when it refuses. */
static void test_fused_choice(void **state)
{
    static const uint32_t best[] = {FAK_OP_EMBED,     FAK_OP_NORM_MATMUL, FAK_OP_ROPE_APPEND,
                                    FAK_OP_ATTENTION, FAK_OP_MATMUL_ADD,  FAK_OP_FFN},
                          next[] = {FAK_OP_EMBED,           FAK_OP_NORM_MATMUL, FAK_OP_ROPE,
                                    FAK_OP_KV_APPEND,       FAK_OP_ATTENTION,   FAK_OP_MATMUL_ADD,
                                    FAK_OP_NORM_MATMUL_GLU, FAK_OP_MATMUL_ADD,  FAK_OP_NORM_MATMUL},
                          tails[] = {FAK_OP_TAKE_ROWS, FAK_OP_NORM_MATMUL, FAK_OP_TAKE_ROWS,
                                     FAK_OP_RMSNORM, FAK_OP_MATMUL_ARGMAX};
    engine g;
    (void)state;
    prepare(&g, "refuser", "fused=1", 0);
    for (uint32_t i = 0; i < 6; i++) assert_int_equal(g.program.op[i].id, best[i]);
    for (uint32_t i = 0; i < 5; i++) assert_int_equal(g.program.op[11 + i].id, tails[i]);
    assert_int_equal(g.program.fused.block->repeats.count, 1);
    engine_close(&g);
    prepare(&g, "refuser", "fused=1 refuse=ffn-layer0+rope_append-layer0", 0);
    for (uint32_t i = 0; i < 9; i++) assert_int_equal(g.program.op[i].id, next[i]);
    assert_int_equal(g.program.op[12].id, FAK_OP_FFN);
    assert_int_equal(g.program.fused.block->repeats.count, 0); /* the layers are not alike */
    engine_close(&g);
}

/* ---- a dry run ---- */

static void test_dry_run(void **state)
{
    static const char *const ways[] = {"", "refuse=kv-layer1", "fused=1 refuse=fusion-layer0",
                                       "graph=1 refuse=all keep=matmul"};
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        engine dry, real;
        refuser_seen = (refuser_counts){0};
        prepare(&dry, "refuser", ways[i], FAK_DRY_RUN);
        assert_int_equal(refuser_seen.prepares, 0);
        assert_true(refuser_seen.dry_runs > 0);
        assert_null(dry.program.handle[SIDE_DEVICE]);
        assert_null(dry.program.handle[SIDE_HOST]);
        prepare(&real, "refuser", ways[i], 0);
        assert_int_equal(refuser_seen.prepares, 1); /* nothing real is prepared in vain */
        assert_int_equal(refuser_seen.loads, 0);
        assert_non_null(real.program.handle[SIDE_DEVICE]);
        for (uint32_t side = 0; side < SIDES; side++) {
            const fak_report *r = &dry.program.report[side];
            assert_memory_equal(r, &real.program.report[side], sizeof *r);
            if (side == SIDE_HOST && !dry.program.holes) continue;
            assert_true(r->flags & FAK_EXACT);
            assert_true(r->weight_bytes > 0 && r->scratch_bytes > 0);
            assert_int_equal(r->kv_bytes > 0, dry.program.holds_kv[side]);
        }
        assert_true(program_bytes(&dry.program) > 0);
        assert_int_equal(program_bytes(&dry.program), program_bytes(&real.program));
        engine_close(&dry);
        engine_close(&real);
        assert_int_equal(refuser_seen.programs, 0);
    }
}

/* What is asked for depends on the limits as it should, and only there. */
static void test_bytes(void **state)
{
    engine g;
    fak_error e;
    fak_limits limits = limits_f32();
    (void)state;
    prepare(&g, "cpu-ref", NULL, FAK_DRY_RUN);
    fak_report base = g.program.report[SIDE_DEVICE];
    uint64_t bytes = program_bytes(&g.program);
    assert_int_equal(base.weight_bytes, model_weight_bytes(&g.tiny.model));
    assert_int_equal(base.kv_bytes, 2ul * 2 * 32 * 4 * ENGINE_SLOTS * ENGINE_CONTEXT);
    assert_int_equal(base.kv_token_bytes, 2 * 2 * 32 * 4);
    const struct {
        uint32_t context, kv_dtype, flags, factor; /* factor: of the kv, in quarters */
    } other[] = {{ENGINE_CONTEXT * 2, FAK_F32, 0, 8},
                 {ENGINE_CONTEXT, FAK_F16, 0, 2},
                 {ENGINE_CONTEXT, FAK_F32, FAK_EVICTABLE, 6}};
    for (uint32_t i = 0; i < 3; i++) {
        program_close(&g.program);
        limits.context = other[i].context;
        limits.kv_dtype = other[i].kv_dtype;
        assert_int_equal(program_prepare(&g.program, &g.backend.dev, &g.backend.host, &g.tiny.model,
                                         &limits, FAK_DRY_RUN | other[i].flags, &e),
                         FAK_OK);
        assert_int_equal(g.program.report[SIDE_DEVICE].kv_bytes,
                         base.kv_bytes / 4 * other[i].factor);
        const fak_report *r = &g.program.report[SIDE_DEVICE];
        assert_int_equal(r->weight_bytes, base.weight_bytes);
        assert_int_equal(program_bytes(&g.program) - bytes,
                         r->kv_bytes + r->scratch_bytes + r->host_bytes - base.kv_bytes -
                             base.scratch_bytes - base.host_bytes);
    }
    engine_close(&g);
}

/* ---- refused before work ---- */

static void test_numerics(void **state)
{
    engine g;
    fak_error e;
    fak_limits limits = limits_f32();
    (void)state;
    engine_begin(&g, "tiny-f32.gguf", "cpu-ref", NULL);
    const struct {
        uint32_t numerics;
        const char *part;
    } bad[] = {{FAK_ACT_F16, "F16 activations"}, {FAK_ACT_F32 | 1u << 20, "what is asked"}};
    for (uint32_t i = 0; i < 2; i++) {
        limits.numerics = bad[i].numerics;
        assert_int_equal(engine_try(&g, &limits, 0, &e), STATUS_REFUSED);
        assert_message(&e, "cpu-ref does not offer");
        assert_message(&e, bad[i].part);
        engine_end(&g);
    }
    g.backend.dev.facts.numerics &= ~(uint32_t)FAK_ACT_Q8; /* a device that has F32 only */
    assert_int_equal(program_default_act(&g.tiny.model, &g.backend.dev), FAK_ACT_F32);
    limits.numerics = FAK_ACT_Q8;
    assert_int_equal(engine_try(&g, &limits, 0, &e), STATUS_REFUSED);
    assert_message(&e, "Q8 activations");
    engine_end(&g);
    limits.numerics = FAK_ACT_F32 | FAK_BATCH_INVARIANT | FAK_DETERMINISTIC;
    assert_int_equal(engine_try(&g, &limits, 0, &e), FAK_OK);
    engine_close(&g);
}

static void test_default_act(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < TINY_MODELS; i++) {
        engine g;
        engine_begin(&g, tiny_names[i], "cpu-ref", NULL);
        int blocks = strstr(tiny_names[i], "-q") != NULL;
        assert_int_equal(program_default_act(&g.tiny.model, &g.backend.dev),
                         blocks ? FAK_ACT_Q8 : FAK_ACT_F32);
        engine_close(&g);
    }
}

/* A kv dtype that nobody has: the device's sentence comes through. */
static void test_prepare_fails(void **state)
{
    engine g;
    fak_error e;
    fak_limits limits = limits_f32();
    (void)state;
    limits.kv_dtype = FAK_Q8_0;
    engine_begin(&g, "tiny-f32.gguf", "cpu-ref", NULL);
    assert_int_equal(engine_try(&g, &limits, 0, &e), FAK_E_UNSUPPORTED);
    assert_message(&e, "kv is F32, F16 or BF16");
    engine_close(&g);
}

/* ---- load ---- */

/* What a side needs, in the order of its ops, once each; no more, no less. */
static void assert_loaded(const program *p, enum program_side side, const uint32_t *id,
                          uint32_t ids)
{
    uint8_t seen[1024] = {0};
    uint32_t n = 0;
    assert_true(p->values <= sizeof seen && ids < REFUSER_IDS);
    for (uint32_t i = 0; i < p->ops; i++)
        for (uint32_t j = 0; program_side_of(p, i) == side && j < OP_INPUTS; j++) {
            uint32_t v = p->op[i].in[j];
            if (!v || seen[v] || p->value[v].kind >= FAK_ACT) continue;
            seen[v] = 1;
            if (n >= ids || id[n] != v)
                fail_msg("number %" PRIu32 " of %" PRIu32 " loaded is not value %" PRIu32, n, ids,
                         v);
            n++;
        }
    assert_int_equal(n, ids);
}

static void test_load_order(void **state)
{
    static const char *const ways[] = {"", "fused=1", "graph=1 refuse=kv", "refuse=matmul",
                                       "refuse=all keep=rope"};
    static const uint32_t count[] = {21, 21, 21, 7, 1}; /* 9 a layer, embed, norm, rope table */
    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        engine g;
        fak_limits limits = limits_f32();
        refuser_seen = (refuser_counts){0};
        engine_open(&g, "tiny-f32.gguf", "refuser", ways[i], &limits, 0);
        assert_int_equal(refuser_seen.loads, 1);
        assert_int_equal(refuser_seen.ids, count[i]);
        assert_loaded(&g.program, SIDE_DEVICE, refuser_seen.id, refuser_seen.ids);
        engine_close(&g);
    }
}

/* load finds that an op cannot be: everything is prepared again without it. */
static void test_late(void **state)
{
    static const struct {
        const char *options;
        uint32_t ops, holes, unfused;
        const char *op; /* of the host, or gone */
    } late[] = {
        {"late=glu", OPS, 1, 0, "glu"},
        {"late=attention", OPS, 2, 0, "attention"},
        {"late=kv_append graph=1", OPS, 2, 0, "kv_append"},
        {"late=ffn fused=1", FUSED_OPS + 1, 0, 1, NULL},
        {"late=rope_append fused=1", FUSED_OPS + 1, 0, 1, NULL},
        {"late=rmsnorm fused=1 refuse=kv", FUSED_OPS + 2, 5, 2, "rmsnorm"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
        engine g;
        fak_limits limits = limits_f32();
        refuser_seen = (refuser_counts){0};
        engine_open(&g, "tiny-f32.gguf", "refuser", late[i].options, &limits, 0);
        const program *p = &g.program;
        if (p->ops != late[i].ops || p->holes != late[i].holes || p->unfused != late[i].unfused)
            fail_msg("\"%s\": %" PRIu32 " ops, %" PRIu32 " holes, %" PRIu32 " unfused",
                     late[i].options, p->ops, p->holes, p->unfused);
        assert_verdicts(p);
        assert_int_equal(refuser_seen.prepares, 2);
        assert_int_equal(refuser_seen.programs, 1); /* the first is gone */
        assert_int_equal(refuser_seen.loads, 2);
        assert_loaded(p, SIDE_DEVICE, refuser_seen.id, refuser_seen.ids);
        uint32_t left = 0;
        for (uint32_t j = 0; late[i].op && j < p->ops; j++)
            left += program_side_of(p, j) == SIDE_HOST &&
                    !strcmp(ops_name(p->op[j].id), late[i].op);
        assert_int_equal(left, late[i].op != NULL);
        engine_close(&g);
        assert_int_equal(refuser_seen.programs, 0);
    }
}

/* What was asked of prepare is asked again. */
static void test_late_keeps_flags(void **state)
{
    engine g;
    fak_error e;
    uint32_t slot, token[4] = {5, 6, 7, 8};
    fak_limits limits = limits_f32();
    (void)state;
    engine_open(&g, "tiny-f32.gguf", "refuser", "late=glu", &limits, FAK_EVICTABLE);
    assert_int_equal(kv_take(&g.kv, &slot, &e), FAK_OK);
    engine_feed(&g, slot, 0, token, 4, FAK_WANT_NONE, NULL);
    kv_extend(&g.kv, slot, 4);
    int32_t s = kv_evict(&g.kv, slot, 3, 1, &e);
    if (s) fail_msg("FAK_EVICTABLE was lost: %s", e.message);
    engine_close(&g);
}

typedef struct cancel {
    uint64_t at, last; /* bytes at which it says stop; that it was told of last */
    uint32_t calls;
} cancel;

static int32_t count_or_stop(void *self, uint64_t done)
{
    cancel *c = self;
    assert_true(done > c->last);
    c->last = done;
    c->calls++;
    return done >= c->at;
}

/* A load that was cancelled may be tried again, and then runs as any other. */
static void test_cancel(void **state)
{
    static float want[4 * ENGINE_VOCAB], got[4 * ENGINE_VOCAB];
    static const char *const ways[] = {"", "refuse=matmul"};
    uint32_t token[4] = {5, 6, 7, 8};
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        engine g;
        fak_error e;
        fak_limits limits = limits_f32();
        cancel all = {.at = UINT64_MAX};
        prepare(&g, "refuser", ways[i], 0);
        uint64_t bytes = g.program.report[0].weight_bytes + g.program.report[1].weight_bytes;
        for (uint64_t at = 1; at < bytes / 2; at = at * 5 + 3000) {
            cancel stop = {.at = at};
            assert_int_equal(program_load(&g.program, count_or_stop, &stop, &e), FAK_E_CANCELLED);
            assert_message(&e, "cancelled while loading");
            assert_in_range(stop.last, at, bytes - 1);
        }
        engine_end(&g);
        assert_int_equal(program_prepare(&g.program, &g.backend.dev, &g.backend.host, &g.tiny.model,
                                         &limits, 0, &e),
                         FAK_OK);
        cancel stop = {.at = 1};
        assert_int_equal(program_load(&g.program, count_or_stop, &stop, &e), FAK_E_CANCELLED);
        assert_int_equal(program_load(&g.program, count_or_stop, &all, &e), FAK_OK);
        assert_true(all.calls > 1 && all.last <= bytes);
        assert_int_equal(exec_open(&g.exec, &g.program, &e), FAK_OK);
        engine_feed(&g, 0, 0, token, 4, FAK_WANT_LOGITS, i ? got : want);
        engine_close(&g);
    }
    assert_rows(got, want, 4ul * 300);
}

/* Nothing half-built is left behind. */
static void test_close(void **state)
{
    engine g = {0};
    fak_error e;
    fak_limits limits = limits_f32();
    (void)state;
    program_close(&g.program);
    refuser_seen = (refuser_counts){0};
    engine_begin(&g, "tiny-f32.gguf", "refuser", "refuse=rope");
    for (int i = 0; i < 3; i++) { /* again and again on the same device */
        assert_int_equal(engine_try(&g, &limits, i ? 0 : FAK_KEEP_ALL, &e), FAK_OK);
        assert_int_equal(refuser_seen.programs, 1);
        engine_end(&g);
        assert_int_equal(refuser_seen.programs, 0);
        program_close(&g.program);
    }
    engine_close(&g);
}

/* ---- every value ---- */

enum { VALUES = 128, N = 9 };
typedef struct watched {
    float *rows[VALUES];
    uint32_t ops;
} watched;

static int32_t keep_outputs(void *self, exec *x, uint32_t op, const fak_step *s, fak_error *e)
{
    watched *w = self;
    uint32_t id = x->p->op[op].out[0];
    w->ops++;
    if (!id) return FAK_OK;
    assert_true(id < VALUES && !w->rows[id]);
    w->rows[id] = malloc((size_t)exec_rows(x, id, s) * x->p->value[id].cols * 4);
    assert_non_null(w->rows[id]);
    return exec_read(x, op, id, s, w->rows[id], e);
}

/* How many values do not hold at the end of the step what they held behind their op. */
static uint32_t lost_values(engine *g, const uint32_t *token, const float *want, float *got)
{
    watched w = {0};
    uint32_t lost = 0, outputs = 0;
    uint64_t ticket;
    fak_error e;
    g->exec.watch = keep_outputs;
    g->exec.watch_self = &w;
    engine_feed(g, 0, 0, token, N, FAK_WANT_LOGITS, got);
    assert_rows(got, want, (size_t)N * g->V);
    const fak_backend *api = &g->backend.dev.api;
    for (uint32_t id = 0; id < VALUES; id++) {
        if (!w.rows[id]) continue;
        outputs++;
        int32_t s = api->read(g->program.handle[SIDE_DEVICE], id, 0, N, got, &ticket, &e);
        assert_int_equal(s, FAK_OK);
        lost += memcmp(got, w.rows[id], (size_t)N * g->program.value[id].cols * 4) != 0;
        free(w.rows[id]);
    }
    assert_int_equal(w.ops, 34);
    assert_int_equal(outputs, 32); /* kv_append has none */
    return lost;
}

/* KEEP_ALL: what an op wrote is there until the step is over.  Else storage is used again. */
static void test_keep_all(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        static float want[N * ENGINE_VOCAB], got[N * ENGINE_VOCAB];
        uint32_t token[N];
        engine g;
        fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
        engine_open(&g, "tiny-f32.gguf", "cpu-ref", NULL, &limits, keep ? FAK_KEEP_ALL : 0);
        engine_tokens(&g, 1, token, N);
        engine_feed(&g, 0, 0, token, N, FAK_WANT_LOGITS, want);
        uint32_t lost = lost_values(&g, token, want, got);
        if (keep ? lost > 0 : lost < 20) fail_msg("keep %d: %" PRIu32 " are lost", keep, lost);
        engine_close(&g);
    }
}

/* A weight that says what a device does not know is left to the host, and nothing else is. */
static void test_unknown_forms(void **state)
{
    static const struct {
        size_t offset;
        uint32_t word;
    } form[] = {{offsetof(fak_value, layout), 1},
                {offsetof(fak_value, quant_bits), 4},
                {offsetof(fak_value, quant_act_scale), 0x3f000000}};
    static const char *const backend[] = {"cpu-ref", "honest"};
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        engine g;
        uint32_t verdict[OPS], w = 0;
        fak_error e = {0};
        prepare(&g, backend[i / 3], NULL, FAK_DRY_RUN);
        const program *p = &g.program;
        fak_report report = {.struct_size = sizeof report};
        fak_program *out = NULL;
        fak_plan *changed = malloc(p->fused.block->bytes);
        assert_non_null(changed);
        memcpy(changed, p->fused.block, p->fused.block->bytes);
        for (uint32_t k = 0; !w; k++)
            if (p->op[k].id == FAK_OP_NORM_MATMUL || p->op[k].id == FAK_OP_MATMUL)
                w = p->op[k].in[p->op[k].id == FAK_OP_MATMUL ? 1 : 2];
        memcpy((char *)changed + changed->values.offset + w * (size_t)changed->values.stride +
                   form[i % 3].offset,
               &form[i % 3].word, 4);
        for (uint32_t k = 0; k < p->ops; k++) verdict[k] = FAK_TAKEN;
        if (g.backend.dev.api.prepare(g.backend.dev.handle, changed, &p->limits, NULL, FAK_DRY_RUN,
                                      verdict, &report, &out, &e))
            fail_msg("%s", e.message);
        uint32_t left = 0;
        for (uint32_t k = 0; k < p->ops; k++) {
            int reads = 0;
            for (uint32_t j = 0; j < OP_INPUTS; j++) reads |= p->op[k].in[j] == w;
            assert_int_equal(verdict[k], reads ? FAK_HOST : FAK_TAKEN);
            left += reads != 0;
        }
        assert_int_equal(left, 1);
        free(changed);
        engine_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_cpu_ref),
        cmocka_unit_test(test_fused_choice),
        cmocka_unit_test(test_dry_run),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_numerics),
        cmocka_unit_test(test_default_act),
        cmocka_unit_test(test_prepare_fails),
        cmocka_unit_test(test_load_order),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_late_keeps_flags),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_keep_all),
        cmocka_unit_test(test_unknown_forms),
        cmocka_unit_test(test_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
