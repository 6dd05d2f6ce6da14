/* test_lockstep - a device and the reference side by side: devices that are right pass, whatever
 * their shape; and what is planted in one op is found in that op, in all of them. */
#include "../core/lockstep.h"
#include "../core/toy.h"
#include "engine.h"
#include "mock/planted.h"

#include <math.h>

static const planted_row rows[] = {PLANTED_TABLE(PLANTED_ROW)};
static const char planted_so[] = TEST_BUILT "/fak-backend-planted.so",
                  blind_so[] = TEST_BUILT "/fak-backend-planted-blind.so";

/* A text of N ids in steps of ROWS, then GREEDY more. */
enum { N = 13, ROWS = 5, GREEDY = 8, STEPS = (N + ROWS - 1) / ROWS + GREEDY };

typedef struct pair { /* zero-initialise */
    backend_pair b;
    tiny tiny;
    lockstep l;
} pair;

static void pair_open(pair *p, const char *file, const char *backend, const char *options,
                      uint32_t act, uint32_t kv_dtype)
{
    fak_error e = {0};
    session_options o = {.context = 32, .rows = ROWS, .act = act, .kv_dtype = kv_dtype};
    *p = (pair){0};
    backend_open(&p->b, backend, options);
    tiny_open(&p->tiny, file);
    if (lockstep_open(&p->l, &p->tiny.model, &p->b.dev, &p->b.host, &o, &e))
        fail_msg("%s on %s %s: %s", file, backend, options ? options : "", e.message);
}

static void pair_close(pair *p)
{
    lockstep_close(&p->l);
    tiny_close(&p->tiny);
    backend_close(&p->b);
}

static int32_t run(pair *p, fak_error *e)
{
    uint32_t id[N];
    uint64_t seed = 9;
    *e = (fak_error){0};
    for (uint32_t i = 0; i < N; i++) id[i] = random_below(&seed, p->tiny.model.vocab);
    int32_t s = lockstep_feed(&p->l, id, N, FAK_WANT_LOGITS, e);
    for (uint32_t i = 0; !s && i < GREEDY; i++) {
        uint32_t next = i ? lockstep_next(&p->l) : id[0];
        s = lockstep_feed(&p->l, &next, 1, FAK_WANT_ARGMAX, e);
    }
    return s;
}

/* ---- devices that are right ---- */

static const struct way { /* memory: little, for each device takes all of it when it is opened */
    const char *backend, *options;
    int exact;
} ways[] = {
    {"cpu-ref", NULL, 1},
    {"cpu-ref", "fused=1", 1},
    {"refuser", "async=1 refuse=rope+glu", 1},
    {"refuser", "graph=1 fused=1", 1},
    {"refuser", "refuse=kv", 1},
    {"honest", "memory=4000000 exact=1", 1},
    {"honest", "memory=4000000 exact=1 eager=1 fused=0", 1},
    {"honest", "memory=4000000 exact=1 graph-only=1 hold=1", 1},
    {"honest", "memory=4000000 eager=1", 0},
    {"honest", "memory=4000000 fused=0", 0},
    {"honest", "memory=4000000 hold=1", 0},
    {"honest", "memory=4000000 graph-only=1 leave=3", 0},
};
enum { WAYS = sizeof ways / sizeof *ways };

static void test_right_devices_pass(void **state)
{
    static const uint32_t kvs[] = {FAK_F32, FAK_F16, FAK_BF16};
    (void)state;
    for (uint32_t i = 0; i < WAYS * TINY_MODELS; i++) {
        const struct way *w = &ways[i % WAYS];
        uint32_t act = w->exact && i % 2 ? FAK_ACT_Q8 : FAK_ACT_F32;
        fak_error e;
        pair p;
        pair_open(&p, tiny_names[i / WAYS], w->backend, w->options, act, kvs[i % 3]);
        if (run(&p, &e)) fail_msg("%s %s: %s", w->backend, w->options, e.message);
        assert_int_equal(p.l.failed, 0);
        assert_int_equal(p.l.steps, STEPS);
        const exec *x = &p.l.dev.exec;
        int blind = !p.b.dev.api.kv_read;
        uint64_t alone = x->by_id[SIDE_DEVICE][FAK_OP_KV_APPEND];
        assert_int_equal(p.l.ops, x->ops[SIDE_DEVICE] - (blind ? alone : 0));
        assert_int_equal(p.l.unseen, blind ? alone + x->by_id[SIDE_DEVICE][FAK_OP_ROPE_APPEND] : 0);
        assert_true(p.l.worst.values > 0);
        assert_int_equal(p.l.worst.differ == 0, w->exact);
        assert_true(p.l.worst.rel_l2 < 1e-5);
        pair_close(&p);
    }
}

/* ---- a wrong answer, in each op that there is ---- */

static fak_backend inner;
static struct {
    uint32_t value, cols, layer, part; /* value 0: none; part: 0 keys, 1 values, 2 neither */
    int bit, ids, rows_differ;
} spoil;

static float spoiled(float x)
{
    uint32_t bits;
    if (!spoil.bit) return x * 1.1f + 0.01f;
    memcpy(&bits, &x, sizeof bits);
    bits ^= 1;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* Done at once, whatever the device's tickets. */
static int32_t settle(fak_program *p, int32_t s, uint64_t *ticket, fak_error *e)
{
    while (!s && *ticket && (s = inner.wait(p, *ticket, FAK_FOREVER, e)) == FAK_PENDING) s = 0;
    *ticket = 0;
    return s;
}

static int32_t read_spoiled(fak_program *p, uint32_t value, uint32_t first, uint32_t n, void *dst,
                            uint64_t *ticket, fak_error *e)
{
    int32_t s = settle(p, inner.read(p, value, first, n, dst, ticket, e), ticket, e);
    float *row = (float *)dst + (size_t)(n - 1) * spoil.cols; /* the last one */
    if (s || value != spoil.value) return s;
    if (spoil.ids)
        ((uint32_t *)dst)[n - 1] ^= 1;
    else if (spoil.bit)
        row[spoil.cols / 2] = spoiled(row[spoil.cols / 2]);
    for (uint32_t i = 0; !spoil.ids && !spoil.bit && i < spoil.cols; i++) row[i] = spoiled(row[i]);
    return FAK_OK;
}

static int32_t kv_read_spoiled(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first,
                               uint32_t len, void *k, void *v, uint64_t *ticket, fak_error *e)
{
    int32_t s = settle(p, inner.kv_read(p, slot, layer, first, len, k, v, ticket, e), ticket, e);
    float *at = spoil.part ? v : k;
    if (!s && layer == spoil.layer && spoil.part < 2) at[0] = at[0] + 1;
    return s;
}

static void spoil_device(pair *p)
{
    inner = p->b.dev.api;
    p->b.dev.api.read = read_spoiled;
    if (inner.kv_read) p->b.dev.api.kv_read = kv_read_spoiled;
    memset(&spoil, 0, sizeof spoil);
    spoil.part = 2;
}

static void spoil_op(pair *p, const struct way *w, uint32_t op, uint32_t j)
{
    const program *prog = &p->l.dev.program;
    uint32_t id = prog->op[op].out[j];
    fak_error e;
    char text[64], part[128];
    spoil_device(p);
    spoil.value = id;
    spoil.cols = prog->value[id].cols;
    spoil.bit = w->exact;
    spoil.ids = prog->value[id].dtype == FAK_I32;
    if (run(p, &e) != STATUS_GATE)
        fail_msg("%s %s, op %u: found nothing", w->backend, w->options, op);
    assert_int_equal(p->l.failed, 1);
    assert_int_equal(p->l.part.op, op);
    assert_int_equal(p->l.part.value, id);
    assert_int_equal(p->l.part.where, spoil.ids ? PART_IDS : PART_OUTPUT);
    assert_int_equal(p->l.part.figures.row, p->l.part.rows - 1);
    assert_int_equal(p->l.part.bound.exact, w->exact);
    if (spoil.bit && !spoil.ids) assert_int_equal(p->l.part.figures.col, spoil.cols / 2);
    snprintf(part, sizeof part, "op %u (%s): ", op, lockstep_op_text(prog, op, text));
    assert_message(&e, part);
    assert_int_equal(e.index, op);
    if (spoil.ids) assert_int_equal(p->l.part.got_id, p->l.part.want_id ^ 1);
}

static void test_every_op_is_found(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WAYS; i++) {
        const struct way *w = &ways[i];
        uint32_t ops = 1, found = 0;
        for (uint32_t op = 0; op < ops; op++)
            for (uint32_t j = 0; j < OP_OUTPUTS; j++) {
                pair p;
                pair_open(&p, "tiny-q8_0.gguf", w->backend, w->options, FAK_ACT_F32, FAK_F32);
                ops = p.l.dev.program.ops;
                int there = p.l.dev.program.op[op].out[j] != 0;
                if (there && program_side_of(&p.l.dev.program, op) == SIDE_DEVICE) {
                    spoil_op(&p, w, op, j);
                    found++;
                }
                pair_close(&p);
            }
        assert_true(found >= 12);
    }
}

static void test_every_kv_is_found(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WAYS * 4; i++) {
        const struct way *w = &ways[i / 4];
        uint32_t layer = i / 2 % 2, values = i % 2;
        fak_error e;
        pair p;
        pair_open(&p, "tiny-f32.gguf", w->backend, w->options, FAK_ACT_F32, FAK_F16);
        const program *prog = &p.l.dev.program;
        spoil_device(&p);
        spoil.layer = layer;
        spoil.part = values;
        int here = 0, sees = p.b.dev.api.kv_read != NULL;
        for (uint32_t op = 0; op < prog->ops; op++)
            here |= sees && prog->op[op].id == FAK_OP_ATTENTION &&
                    program_side_of(prog, op) == SIDE_DEVICE;
        int32_t s = run(&p, &e);
        assert_int_equal(s, here ? STATUS_GATE : FAK_OK);
        if (here) {
            const fak_op *o = &prog->op[p.l.part.op];
            assert_int_equal(p.l.part.where, values ? PART_VALUES : PART_KEYS);
            assert_true(o->id == FAK_OP_KV_APPEND || o->id == FAK_OP_ROPE_APPEND);
            assert_int_equal(o->layer, layer);
            assert_int_equal(p.l.part.slot, 0);
            assert_message(&e, values ? "values appended by op " : "keys appended by op ");
        }
        pair_close(&p);
    }
}

/* ---- planted faults ---- */

/* Does the op that was named have the fault's op, alone or as a part? */
static int has_op(const fak_op *o, uint32_t id)
{
    const op_info *info = ops_find(o->id);
    int has = o->id == id;
    for (uint32_t k = 0; k < info->parts; k++) has |= info->part[k].id == id;
    return has;
}

static void expect_found(const planted_row *r, uint32_t layer, int fused)
{
    char options[128];
    fak_error e;
    pair p;
    snprintf(options, sizeof options, "fault=%s layer=%u fused=%d class=%s", r->name, layer, fused,
             strcmp(r->name, "reversed") ? "approx" : "reference");
    pair_open(&p, "tiny-untied.gguf", planted_so, options, FAK_ACT_F32, FAK_F32);
    if (run(&p, &e) != STATUS_GATE) fail_msg("%s: found nothing", options);
    const fak_op *o = &p.l.dev.program.op[p.l.part.op];
    if (!has_op(o, r->op)) fail_msg("%s: found in %s: %s", options, ops_name(o->id), e.message);
    assert_int_equal(o->layer, r->layered ? layer : FAK_NO_INDEX);
    if (r->multi) assert_true(p.l.part.rows > 1);
    pair_close(&p);
}

static void test_planted_faults(void **state)
{
    (void)state;
    assert_int_equal(sizeof rows / sizeof *rows, PLANTED_ROWS);
    for (uint32_t i = 0; i < PLANTED_ROWS * 2; i++) {
        const planted_row *r = &rows[i / 2];
        int tie = !strcmp(r->name, "argmax-last"); /* needs a model with ties: below */
        for (uint32_t layer = 0; !tie && layer < (r->layered ? 3 : 1); layer++)
            expect_found(r, layer, i % 2);
    }
}

/* Without the fault it is the reference; a sum in another order is one for class Reference only. */
static void test_planted_is_honest(void **state)
{
    static const char *const right[] = {"class=reference", "class=reference fused=1",
                                        "fault=reversed layer=1"};
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        fak_error e;
        pair p;
        pair_open(&p, "tiny-untied.gguf", planted_so, right[i], FAK_ACT_F32, FAK_F32);
        if (run(&p, &e)) fail_msg("%s: %s", right[i], e.message);
        assert_int_equal(p.l.worst.differ > 0, i == 2);
        pair_close(&p);
    }
}

static void test_which_matmul(void **state)
{
    static const char *const name[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                       "ffn_gate", "ffn_up", "ffn_down"};
    (void)state;
    for (uint32_t nth = 0; nth < 7; nth++) {
        char options[64], want[64];
        fak_error e;
        pair p;
        snprintf(options, sizeof options, "fault=scaled layer=2 nth=%u", nth);
        pair_open(&p, "tiny-untied.gguf", planted_so, options, FAK_ACT_F32, FAK_F32);
        assert_int_equal(run(&p, &e), STATUS_GATE);
        const program *prog = &p.l.dev.program;
        uint32_t index = prog->fused.weight[prog->op[p.l.part.op].in[1]];
        snprintf(want, sizeof want, "blk.2.%s.weight", name[nth]);
        assert_string_equal(prog->m->weights.at[index].name, want);
        pair_close(&p);
    }
}

/* Which step, of which positions: the one that reaches the position, and none before. */
static void test_which_step(void **state)
{
    (void)state;
    for (uint32_t from = 0; from < N + GREEDY; from++) {
        char options[64];
        fak_error e;
        pair p;
        snprintf(options, sizeof options, "fault=lost-kv layer=1 from=%u", from);
        pair_open(&p, "tiny-untied.gguf", planted_so, options, FAK_ACT_F32, FAK_F32);
        assert_int_equal(run(&p, &e), STATUS_GATE);
        assert_int_equal(p.l.part.step, p.l.steps);
        assert_int_equal(p.l.steps, from < N ? from / ROWS : (N + ROWS - 1) / ROWS + (from - N));
        assert_in_range(from, p.l.part.first, p.l.part.first + p.l.part.rows - 1);
        assert_int_equal(p.l.part.figures.row, p.l.part.rows - 1); /* the last is what is lost */
        pair_close(&p);
    }
}

/* Where kv cannot be read, the attention that reads what was kept wrongly is what parts. */
static void test_without_kv_read(void **state)
{
    static const char *const options[] = {"", "fault=lost-kv layer=1", "fault=swapped-kv layer=2"};
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        fak_error e;
        pair p;
        pair_open(&p, "tiny-untied.gguf", blind_so, options[i], FAK_ACT_F32, FAK_F32);
        assert_int_equal(run(&p, &e), i ? STATUS_GATE : FAK_OK);
        if (i) {
            assert_int_equal(p.l.dev.program.op[p.l.part.op].id, FAK_OP_ATTENTION);
            assert_int_equal(p.l.dev.program.op[p.l.part.op].layer, i);
            assert_int_equal(p.l.part.where, PART_OUTPUT);
        } else {
            assert_int_equal(p.l.unseen, STEPS * p.tiny.model.layers);
            assert_int_equal(p.l.ops + p.l.unseen, p.l.dev.exec.ops[SIDE_DEVICE]);
        }
        pair_close(&p);
    }
}

/* A model in which every second id has the logit of the one before it. */
static void test_ties(void **state)
{
    static const toy_shape shape = {64, 96, 4, 2, 16, 128, 2, 32};
    static const char *const right[][2] = {{planted_so, "fault=argmax-last"},
                                           {planted_so, "fault=argmax-last fused=1"},
                                           {planted_so, ""},
                                           {"honest", "exact=1"}};
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        fak_error e = {0};
        toy t;
        backend_pair b;
        lockstep l;
        session_options o = {.rows = ROWS};
        const uint32_t id[] = {3, 1, 4, 1, 5};
        assert_int_equal(toy_make(&t, &shape, FAK_F32, 7, &e), FAK_OK);
        float *head = (float *)(uintptr_t)toy_rows(&t, model_weight(&t.m, MODEL_HEAD, 0));
        for (uint32_t r = 0; r < shape.vocab; r += 2)
            memcpy(head + (r + 1) * shape.width, head + r * shape.width, shape.width * 4);
        backend_open(&b, right[i][0], right[i][1]);
        assert_int_equal(lockstep_open(&l, &t.m, &b.dev, &b.host, &o, &e), FAK_OK);
        int32_t s = lockstep_feed(&l, id, 5, FAK_WANT_ARGMAX, &e);
        /* a fused op makes the logits itself, maybe a little different: there a tie is fine */
        assert_int_equal(s, i == 0 ? STATUS_GATE : FAK_OK);
        if (i == 0) assert_int_equal(l.dev.program.op[l.part.op].id, FAK_OP_ARGMAX);
        if (i == 0) assert_int_equal(l.part.got_id, l.part.want_id + 1);
        if (i == 0) assert_message(&e, "where the reference has");
        lockstep_close(&l);
        backend_close(&b);
        toy_free(&t);
    }
}

/* ---- equal inputs ---- */

/* What is within its bound is put right: it is not carried on, unless that was asked for. */
static void test_differences_are_not_carried_on(void **state)
{
    uint64_t differ[2], one = (N + GREEDY) * 64; /* values of the op that differs */
    (void)state;
    for (int pure = 0; pure < 2; pure++) {
        fak_error e;
        pair p;
        pair_open(&p, "tiny-untied.gguf", planted_so, "fault=reversed layer=0", FAK_ACT_F32,
                  FAK_F32);
        p.l.pure = pure;
        if (run(&p, &e)) fail_msg("%s", e.message);
        differ[pure] = p.l.worst.differ;
        pair_close(&p);
    }
    assert_in_range(differ[0], 1, one);
    assert_true(differ[1] > 4 * one);
}

static uint32_t kv_written, kv_right;
static float kv_grain; /* of which the first key is off, relatively */
static int32_t kv_read_off(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first,
                           uint32_t len, void *k, void *v, uint64_t *ticket, fak_error *e)
{
    int32_t s = settle(p, inner.kv_read(p, slot, layer, first, len, k, v, ticket, e), ticket, e);
    ((float *)k)[1] *= 1 + kv_grain;
    return s;
}

static int32_t kv_write_seen(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first,
                             uint32_t len, const void *k, const void *v, fak_error *e)
{
    static float now[2][ROWS * 64];
    uint64_t ticket;
    size_t bytes = len * 32u * sizeof(float); /* 2 kv heads of 16 */
    int32_t s = inner.kv_read(p, slot, layer, first, len, now[0], now[1], &ticket, e);
    assert_int_equal(settle(p, s, &ticket, e), FAK_OK);
    kv_right += !memcmp(now[0], k, bytes) && !memcmp(now[1], v, bytes);
    kv_written++;
    return inner.kv_write(p, slot, layer, first, len, k, v, e);
}

/* A key may be rounded to the neighbour of the reference's, no farther; then it gets that. */
static void test_kv_is_put_right(void **state)
{
    static const struct {
        uint32_t dtype;
        float grain;
    } kinds[] = {{FAK_F32, 0x1p-12f}, {FAK_F16, 0x1p-10f}, {FAK_BF16, 0x1p-7f}};
    (void)state;
    for (uint32_t i = 0; i < 18; i++) { /* within; past it; within, and nothing is put right */
        uint32_t way = i / 3 % 3, pure = way == 2;
        fak_error e;
        pair p;
        pair_open(&p, "tiny-untied.gguf", i < 9 ? planted_so : "honest",
                  i < 9 ? NULL : "memory=4000000", FAK_ACT_F32, kinds[i % 3].dtype);
        inner = p.b.dev.api;
        p.b.dev.api.kv_read = kv_read_off;
        p.b.dev.api.kv_write = kv_write_seen;
        p.l.pure = (int)pure;
        kv_written = kv_right = 0;
        kv_grain = way == 1 ? 64 * kinds[i % 3].grain : kinds[i % 3].grain;
        assert_int_equal(run(&p, &e), way == 1 ? STATUS_GATE : FAK_OK);
        if (way == 1) assert_int_equal(p.l.part.where, PART_KEYS);
        if (way == 0) assert_int_equal(kv_written, STEPS * p.tiny.model.layers);
        if (way == 0) assert_int_equal(kv_right, kv_written);
        if (pure) assert_int_equal(kv_written, 0);
        pair_close(&p);
    }
}

/* ---- what else ---- */

static void test_nan_is_named(void **state)
{
    fak_error e;
    pair p;
    (void)state;
    pair_open(&p, "tiny-untied.gguf", planted_so, "fault=nan layer=1", FAK_ACT_F32, FAK_F32);
    assert_int_equal(run(&p, &e), STATUS_GATE);
    assert_true(isnan(p.l.part.figures.got) && !isnan(p.l.part.figures.want));
    assert_message(&e, "column 32 is nan where the reference gives ");
    pair_close(&p);
}

/* An error of the device is its own, and nothing has parted. */
static void test_errors_pass_through(void **state)
{
    fak_error e;
    pair p;
    (void)state;
    pair_open(&p, "tiny-f32.gguf", "refuser", "fail-step=40", FAK_ACT_F32, FAK_F32);
    assert_int_equal(run(&p, &e), FAK_E_STEP);
    assert_int_equal(p.l.failed, 0);
    pair_close(&p);
    pair_open(&p, "tiny-f32.gguf", "cpu-ref", NULL, FAK_ACT_F32, FAK_F32);
    uint32_t id[33] = {0};
    assert_int_equal(lockstep_feed(&p.l, id, 33, FAK_WANT_NONE, &e), FAK_E_KV_FULL);
    pair_close(&p);
}

/* The reference's own greedy id, only after a step that asked for one. */
static void test_next(void **state)
{
    static float logits[ENGINE_VOCAB];
    const uint32_t id[] = {9, 8, 7};
    fak_error e = {0};
    pair p;
    uint32_t best = 0;
    (void)state;
    pair_open(&p, "tiny-f32.gguf", "honest", "memory=4000000", FAK_ACT_F32, FAK_F32);
    assert_int_equal(lockstep_next(&p.l), FAK_NO_INDEX);
    assert_int_equal(lockstep_feed(&p.l, id, 3, FAK_WANT_LOGITS, &e), FAK_OK);
    assert_int_equal(lockstep_next(&p.l), FAK_NO_INDEX);
    kv_truncate(&p.l.dev.kv, 0, 0);
    kv_truncate(&p.l.ref.kv, 0, 0);
    assert_int_equal(lockstep_feed(&p.l, id, 3, FAK_WANT_ARGMAX, &e), FAK_OK);
    uint32_t next = lockstep_next(&p.l);
    p.l.ref.exec.watch = NULL;
    kv_truncate(&p.l.ref.kv, 0, 0);
    assert_int_equal(session_feed(&p.l.ref, 0, id, 3, FAK_WANT_LOGITS, 0, logits, &e), FAK_OK);
    for (uint32_t i = 1; i < p.tiny.model.vocab; i++)
        if (logits[i] > logits[best]) best = i;
    assert_int_equal(next, best);
    pair_close(&p);
}

static void test_texts(void **state)
{
    char text[200];
    pair p;
    (void)state;
    pair_open(&p, "tiny-q4_1.gguf", "cpu-ref", "fused=1", FAK_ACT_F32, FAK_F32);
    const program *prog = &p.l.dev.program;
    for (uint32_t op = 0; op < prog->ops; op++) {
        uint32_t id = prog->op[op].id;
        const char *want =
            id == FAK_OP_EMBED ? "w [302, 64] q4_1 > y [7, 64]"
            : id == FAK_OP_NORM_MATMUL && prog->op[op].layer == 1
                ? "x [7, 64] n [1, 64] f32 w1 [64, 64] q4_1 w2 [32, 64] q4_1 w3 [32, "
                  "64] q4_1 > y1 [7, 64] y2 [7, 32] y3 [7, 32]"
            : id == FAK_OP_ROPE_APPEND ? "q [7, 64] k [7, 32] v [7, 32] tab [128, 16] > y [7, 64]"
                                       : NULL;
        if (want) assert_string_equal(lockstep_shapes_text(prog, op, 7, text), want);
    }
    assert_string_equal(lockstep_op_text(prog, 0, text), "embed, outside layers");
    assert_string_equal(lockstep_op_text(prog, 1, text), "norm_matmul, layer 0");
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_devices_pass),
        cmocka_unit_test(test_every_op_is_found),
        cmocka_unit_test(test_every_kv_is_found),
        cmocka_unit_test(test_planted_faults),
        cmocka_unit_test(test_planted_is_honest),
        cmocka_unit_test(test_which_matmul),
        cmocka_unit_test(test_which_step),
        cmocka_unit_test(test_without_kv_read),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_differences_are_not_carried_on),
        cmocka_unit_test(test_kv_is_put_right),
        cmocka_unit_test(test_nan_is_named),
        cmocka_unit_test(test_errors_pass_through),
        cmocka_unit_test(test_next),
        cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
