/* test_rig - one op on a device beside the reference: right devices pass, and each way of being wrong that
 * the rig looks for is told.  The wrong ones are cpu-ref with a function of its table wrapped. */
#include "engine.h"

#include "../core/check.h"
#include "../core/float_mode.h"
#include "../core/rig.h"

#include <math.h>

enum { ROWS = 8, COLS = 64, OUT = 24, SLOTS = 2, CONTEXT = 40, OPS = 32 };

/* ---- right devices ---- */

typedef struct tally {
    uint32_t of[CHECK_VERDICTS];
    const char *name;
} tally;

static void count_row(void *self, const check_row *row)
{
    tally *t = self;
    if (row->verdict == CHECK_FAIL)
        fail_msg("%s: %s, %s: %s", t->name, row->what, row->detail, row->reason);
    t->of[row->verdict]++;
}

static void test_every_op(void **state)
{
    static const struct {
        const char *name, *options;
        uint32_t passed;
    } asked[] = {{"cpu-ref", NULL, 28},
                 {"cpu-ref", "fused=1", 81},
                 {"honest", NULL, 60},
                 {"honest", "exact=1", 80},
                 {"honest", "graph-only=1", 20},
                 {"refuser", "fused=1 async=1", 81},
                 {"refuser", "async=1 graph=1", 28},
                 {"refuser", "refuse=matmul+embed", 10}};
    (void)state;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        backend_pair b;
        tally t = {.name = asked[i].name};
        backend_open(&b, asked[i].name, asked[i].options);
        check c = {.host = &b.host, .seed = 5 + i, .on_row = count_row, .self = &t, .dev = b.dev};
        check_ops(&c);
        if (t.of[CHECK_PASS] < asked[i].passed)
            fail_msg("%s %s: %u passed", t.name, asked[i].options, t.of[CHECK_PASS]);
        backend_close(&b);
    }
}

/* ---- a wrong one ---- */

static fak_backend in;          /* the table before it was changed */
static fak_op_entry table[OPS]; /* the device's ops, with our function */
static const fak_op_entry *inner_table;
static uint32_t step_rows, begins;
static const fak_step *kept_step;
static const fak_plan *kept_plan;
static uint32_t plan_bytes;

typedef struct wrong {
    const char *name, *part; /* of the sentence */
    void (*install)(fak_backend *api);
    int32_t (*op)(fak_program *, uint32_t, fak_error *); /* before each op; not 0: instead of it */
} wrong;
static const wrong *now;

static int32_t call(fak_program *p, uint32_t op, fak_error *e)
{
    int32_t s = now && now->op ? now->op(p, op, e) : FAK_OK;
    if (s == FAK_PENDING) return FAK_OK; /* it is left out */
    return s ? s : inner_table[0].call(p, op, e);
}

static int32_t begin(fak_program *p, const fak_step *s, fak_error *e)
{
    step_rows = s->rows;
    begins++;
    kept_step = s;
    return in.begin(p, s, e);
}

static void wrap(backend_pair *b, const wrong *w)
{
    now = w;
    in = b->dev.api;
    inner_table = b->dev.facts.op;
    assert_true(b->dev.facts.ops <= OPS);
    for (uint32_t i = 0; i < b->dev.facts.ops; i++) {
        table[i] = b->dev.facts.op[i];
        table[i].call = call; /* cpu-ref has one for all of them */
    }
    b->dev.facts.op = table;
    b->dev.api.begin = begin;
    if (w && w->install) w->install(&b->dev.api);
}

/* MATMUL in the body, its matrix of 24 rows. */
static int32_t open_matmul(rig *r, device *d, fak_error *e)
{
    int32_t s = rig_open(r, d, FAK_ACT_F32, ROWS, SLOTS, CONTEXT, 11, e);
    if (s) return s;
    uint32_t x = rig_input(r, COLS, 0), w = rig_weight(r, FAK_F32, OUT, COLS, 0, 1);
    rig_op(r, (fak_op){.id = FAK_OP_MATMUL, .in = {x, w}});
    return FAK_OK;
}

/* Two steps of it; the answer of the first thing that fails. */
static int32_t run_matmul(const wrong *w, int lend, int *touched, fak_error *e)
{
    backend_pair b;
    rig r;
    backend_open(&b, "cpu-ref", NULL);
    wrap(&b, w);
    int32_t s = open_matmul(&r, &b.dev, e);
    r.lend = lend;
    if (!s) s = rig_ready(&r, e);
    if (!s) assert_true(r.taken);
    if (!s) s = rig_rows(&r, ROWS, 0, e);
    if (!s) s = rig_rows(&r, 5, 0, e);
    *touched = r.touched;
    rig_close(&r);
    backend_close(&b);
    return s;
}

/* ---- rows ---- */

static int32_t read_beyond(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                           uint64_t *ticket, fak_error *e)
{
    memset((float *)dst + (size_t)rows * OUT, 0x77, OUT * sizeof(float));
    return in.read(p, value, first, rows, dst, ticket, e);
}

static int32_t read_before(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                           uint64_t *ticket, fak_error *e)
{
    ((char *)dst)[-1] = 0;
    return in.read(p, value, first, rows, dst, ticket, e);
}

static int32_t read_flipped(fak_program *p, uint32_t value, uint32_t first, uint32_t rows,
                            void *dst, uint64_t *ticket, fak_error *e)
{
    int32_t s = in.read(p, value, first, rows, dst, ticket, e);
    if (first <= 3 && first + rows > 3) ((uint32_t *)dst)[(3 - first) * OUT + 7] ^= 1;
    return s;
}

static int32_t read_fewer(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                          uint64_t *ticket, fak_error *e)
{
    return in.read(p, value, first, rows - (first == 0), dst, ticket, e); /* of all of them */
}

static int32_t read_swapped(fak_program *p, uint32_t value, uint32_t first, uint32_t rows,
                            void *dst, uint64_t *ticket, fak_error *e)
{
    int32_t s = FAK_OK;
    for (uint32_t i = 0; !s && i < rows; i++) {
        uint32_t row = first + i;
        row = row == 1 ? 2 : row == 2 ? 1 : row;
        s = in.read(p, value, row, 1, (float *)dst + (size_t)i * OUT, ticket, e);
    }
    return s;
}

static int32_t read_from_0(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                           uint64_t *ticket, fak_error *e)
{
    (void)first;
    return in.read(p, value, 0, rows, dst, ticket, e);
}

static int32_t read_ticket(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                           uint64_t *ticket, fak_error *e)
{
    int32_t s = in.read(p, value, first, rows, dst, ticket, e);
    *ticket = 1;
    return s;
}

#define INSTALL(slot, function)                                                                    \
    static void set_##function(fak_backend *api)                                                   \
    {                                                                                              \
        api->slot = function;                                                                      \
    }
INSTALL(read, read_beyond)
INSTALL(read, read_before)
INSTALL(read, read_flipped)
INSTALL(read, read_fewer)
INSTALL(read, read_swapped)
INSTALL(read, read_from_0)
INSTALL(read, read_ticket)

/* ---- what is lent ---- */

static struct {
    fak_program *p;
    uint32_t value, first, rows;
    const void *src;
} late;

static int32_t write_later(fak_program *p, uint32_t value, uint32_t first, uint32_t rows,
                           const void *src, fak_error *e)
{
    (void)e;
    late.p = p;
    late.value = value;
    late.first = first;
    late.rows = rows;
    late.src = src;
    return FAK_OK;
}

static int32_t write_now(fak_program *p, uint32_t op, fak_error *e)
{
    (void)op;
    return in.write(p, late.value, late.first, late.rows, late.src, e);
}

static int32_t prepare_keeping(fak_device *d, const fak_plan *block, const fak_limits *limits,
                               fak_program *of, uint32_t flags, uint32_t *verdict, fak_report *r,
                               fak_program **out, fak_error *e)
{
    kept_plan = block;
    plan_bytes = block->bytes;
    return in.prepare(d, block, limits, of, flags, verdict, r, out, e);
}

static int32_t look_at_plan(fak_program *p, uint32_t op, fak_error *e)
{
    (void)p, (void)op, (void)e;
    return kept_plan->bytes == plan_bytes ? FAK_OK : FAK_PENDING;
}

static int32_t look_at_step(fak_program *p, uint32_t op, fak_error *e)
{
    (void)p, (void)op, (void)e;
    return kept_step->rows == step_rows ? FAK_OK : FAK_PENDING;
}

static int32_t load_stable(fak_program *p, const uint32_t *value, uint32_t n, const fak_source *s,
                           fak_error *e)
{
    fak_source mine;
    fak_take(&mine, sizeof mine, s);
    mine.flags |= FAK_STABLE;
    return in.load(p, value, n, &mine, e);
}

INSTALL(write, write_later)
INSTALL(prepare, prepare_keeping)
INSTALL(load, load_stable)

/* ---- steps ---- */

static int32_t only_first_step(fak_program *p, uint32_t op, fak_error *e)
{
    (void)p, (void)op, (void)e;
    return begins > 1 ? FAK_PENDING : FAK_OK;
}

/* The op runs, and the last row of what it wrote is gone. */
static int32_t lose_row(fak_program *p, uint32_t op, fak_error *e)
{
    float zeros[COLS] = {0};
    int32_t s = inner_table[0].call(p, op, e);
    for (uint32_t v = 1; !s && v < 8; v++) { /* the value that has such rows, whichever it is */
        float row[1024];
        uint64_t ticket;
        if (in.read(p, v, step_rows - 1, 1, row, &ticket, e)) continue;
        in.write(p, v, step_rows - 1, 1, zeros, e);
    }
    return s ? s : FAK_PENDING;
}

#if defined __x86_64__ || defined __aarch64__ /* others have no such mode */
static int32_t flush_to_zero(fak_program *p, uint32_t op, fak_error *e)
{
    (void)p, (void)op, (void)e;
#if defined __x86_64__
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040u);
#else
    unsigned long mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    __asm__ volatile("msr fpcr, %0" : : "r"(mode | 1ul << 24));
#endif
    return FAK_OK;
}
#endif

static int32_t answer_5(fak_program *p, uint32_t op, fak_error *e)
{
    (void)p, (void)op, (void)e;
    return 5;
}

static int32_t silent(fak_program *p, uint32_t op, fak_error *e)
{
    (void)p, (void)op, (void)e;
    return FAK_E_STEP;
}

/* ---- prepare ---- */

static int32_t prepare_changed(fak_device *d, const fak_plan *block, const fak_limits *limits,
                               fak_program *of, uint32_t flags, uint32_t *verdict, fak_report *r,
                               fak_program **out, fak_error *e)
{
    int is_dry = (flags & FAK_DRY_RUN) != 0;
    if (strstr(now->name, "dry run")) flags &= ~(uint32_t)FAK_DRY_RUN;
    int32_t s = in.prepare(d, block, limits, of, flags, verdict, r, out, e);
    if (strstr(now->name, "offered")) verdict[0] = FAK_TAKEN;
    if (strstr(now->name, "verdict of 7")) verdict[1] = 7;
    if (strstr(now->name, "no program") && !is_dry) {
        in.release(*out);
        *out = NULL;
    }
    return s;
}
INSTALL(prepare, prepare_changed)

/* ---- all of them ---- */

static const char parts_from[] = "where the reference gives";
static const wrong rows_wrong[] = {
    {"a row too many", "read writes outside the 768 bytes of its rows", set_read_beyond, NULL},
    {"a byte before", "read writes outside the", set_read_before, NULL},
    {"one bit",
     "1 of 192 values differ from the reference's (class reference: none may): row 3, "
     "column 7 is",
     set_read_flipped, NULL},
    {"one row fewer", "row 7, column 0 is -nan", set_read_fewer, NULL},
    {"rows swapped", "48 of 192 values differ", set_read_swapped, NULL},
    {"a part that begins at 0", "rows 1 to 6, read alone, are not what all of them were",
     set_read_from_0, NULL},
    {"a ticket", "read answered a ticket, and there is no wait", set_read_ticket, NULL},
    {"src read later", parts_from, set_write_later, write_now},
    {"a plan that was kept", parts_from, set_prepare_keeping, look_at_plan},
    {"a step that was kept", parts_from, NULL, look_at_step},
    {"rows of the step before", parts_from, NULL, only_first_step},
    {"a row is lost", "24 of 192 values differ", NULL, lose_row},
    {"no status", "answered 5, which is no status", NULL, answer_5},
    {"no sentence", "matmul failed with -6 and no sentence", NULL, silent},
    {"what was not offered", "its verdict on op 0, which was not offered, is 1",
     set_prepare_changed, NULL},
    {"a verdict of 7", "is 7", set_prepare_changed, NULL},
    {"a dry run that is none", "a dry run answered a program", set_prepare_changed, NULL},
    {"no program", "prepare answered no program", set_prepare_changed, NULL},
};

static void test_nothing_wrong(void **state)
{
    static const wrong none = {"nothing", "", NULL, NULL};
    fak_error e;
    int touched;
    (void)state;
    for (int lend = 0; lend < 2; lend++)
        if (run_matmul(&none, lend, &touched, &e) || touched) fail_msg("%s", e.message);
}

static void test_each_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows_wrong / sizeof *rows_wrong; i++) {
        const wrong *w = &rows_wrong[i];
        fak_error e = {0};
        int touched = 0;
        begins = 0;
        int32_t s = run_matmul(w, 1, &touched, &e);
        if (!s) fail_msg("%s is not seen", w->name);
        if (!strstr(e.message, w->part)) fail_msg("%s: %s", w->name, e.message);
        int32_t status = w->op == answer_5 ? FAK_E_PROGRAM
                         : w->op == silent ? FAK_E_STEP
                                           : STATUS_GATE;
        assert_int_equal(s, status);
        assert_int_equal(touched, strstr(w->part, "outside") != NULL);
    }
}

static void test_borrowed(void **state)
{
    static const wrong keeps = {"borrowed bytes", parts_from, set_load_stable, NULL};
    fak_error e;
    int touched;
    (void)state;
    if (run_matmul(&keeps, 1, &touched, &e)) fail_msg("%s", e.message); /* they are STABLE */
    assert_int_equal(run_matmul(&keeps, 0, &touched, &e), STATUS_GATE);
    assert_message(&e, parts_from);
}

static void test_float_mode(void **state)
{
#if defined __x86_64__ || defined __aarch64__
    static const wrong ftz = {"flush to zero", "", NULL, flush_to_zero};
    fak_error e;
    int touched;
    float_mode mode;
    (void)state;
    float_mode_save(&mode);
    int32_t s = run_matmul(&ftz, 1, &touched, &e);
    float_mode_restore(&mode);
    assert_int_equal(s, STATUS_GATE);
    assert_message(&e, "changes the floating-point mode");
#else
    (void)state;
    skip();
#endif
}

/* Class Approx: the last bit may be another, a value may not. */
static int32_t read_scaled(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                           uint64_t *ticket, fak_error *e)
{
    int32_t s = read_flipped(p, value, first, rows, dst, ticket, e);
    if (first <= 3 && first + rows > 3) ((float *)dst)[(3 - first) * OUT + 7] *= 1.2f;
    return s;
}
INSTALL(read, read_scaled)

static void test_approx(void **state)
{
    static const wrong bit = {"a bit", "", set_read_flipped, NULL},
                       value = {"a value", "", set_read_scaled, NULL};
    (void)state;
    for (int i = 0; i < 2; i++) {
        backend_pair b;
        rig r;
        fak_error e;
        backend_open(&b, "cpu-ref", NULL);
        b.dev.facts.klass = FAK_APPROX;
        wrap(&b, i ? &value : &bit);
        assert_int_equal(open_matmul(&r, &b.dev, &e), FAK_OK);
        assert_int_equal(rig_ready(&r, &e), FAK_OK);
        assert_int_equal(rig_rows(&r, ROWS, 0, &e), i ? STATUS_GATE : FAK_OK);
        if (i) assert_message(&e, "relative L2");
        assert_int_equal(r.figures.differ, 1);
        rig_close(&r);
        backend_close(&b);
    }
}

/* ---- kv and ids ---- */

static int32_t kv_read_wrong(fak_program *p, uint32_t slot, uint32_t layer, uint32_t first,
                             uint32_t len, void *k, void *v, uint64_t *ticket, fak_error *e)
{
    int32_t s = in.kv_read(p, slot, layer, first, len, k, v, ticket, e);
    ((uint32_t *)v)[5] ^= 1;
    return s;
}
INSTALL(kv_read, kv_read_wrong)

static void test_kv(void **state)
{
    static const wrong bit = {"a bit of kv", "", set_kv_read_wrong, NULL},
                       none = {"nothing", "", NULL, NULL};
    (void)state;
    for (int i = 0; i < 2; i++) {
        backend_pair b;
        rig r;
        fak_error e;
        backend_open(&b, "cpu-ref", NULL);
        wrap(&b, i ? &bit : &none);
        assert_int_equal(rig_open(&r, &b.dev, FAK_ACT_F32, ROWS, SLOTS, CONTEXT, 3, &e), FAK_OK);
        uint32_t q = rig_input(&r, 16, 0), k = rig_input(&r, 8, 0), v = rig_input(&r, 8, 0);
        fak_op o = {.id = FAK_OP_KV_APPEND, .kv_heads = 1, .head_dim = 8, .rot_dim = 8};
        o.in[0] = k, o.in[1] = v, o.in[2] = rig_table(&r, 8);
        rig_op(&r, o);
        o = (fak_op){.id = FAK_OP_ATTENTION, .in = {q}, .heads = 2, .kv_heads = 1, .head_dim = 8};
        o.scale = 0.5f;
        rig_op(&r, o);
        if (rig_ready(&r, &e)) fail_msg("%s", e.message);
        assert_true(r.taken);
        if (rig_rows(&r, 6, 0, &e)) fail_msg("%s", e.message);
        assert_int_equal(rig_kv(&r, 0, 6, &e), i ? STATUS_GATE : FAK_OK);
        if (i) assert_message(&e, "1 of 96 values differ");
        rig_close(&r);
        backend_close(&b);
    }
}

static int32_t read_next_id(fak_program *p, uint32_t value, uint32_t first, uint32_t rows,
                            void *dst, uint64_t *ticket, fak_error *e)
{
    int32_t s = in.read(p, value, first, rows, dst, ticket, e);
    if (first <= 2 && first + rows > 2) ((uint32_t *)dst)[2 - first]++;
    return s;
}
INSTALL(read, read_next_id)

/* ids[4] = ARGMAX of 4 rows in a tail, on a device that does no such thing right. */
static void test_ids(void **state)
{
    static const wrong next = {"the next id", "", set_read_next_id, NULL},
                       none = {"nothing", "", NULL, NULL};
    (void)state;
    for (int i = 0; i < 2; i++) {
        backend_pair b;
        rig r;
        fak_error e;
        backend_open(&b, "cpu-ref", NULL);
        wrap(&b, i ? &next : &none);
        assert_int_equal(rig_open(&r, &b.dev, FAK_ACT_F32, ROWS, SLOTS, CONTEXT, 3, &e), FAK_OK);
        rig_op(&r, (fak_op){.id = FAK_OP_ARGMAX, .in = {rig_input(&r, 40, 1)}});
        if (rig_ready(&r, &e)) fail_msg("%s", e.message);
        assert_int_equal(rig_rows(&r, 4, 0, &e), i ? STATUS_GATE : FAK_OK);
        if (i) assert_message(&e, "row 2 is id ");
        rig_close(&r);
        backend_close(&b);
    }
}

/* ---- what a device may do ---- */

static int32_t prepare_rows_only(fak_device *d, const fak_plan *block, const fak_limits *limits,
                                 fak_program *of, uint32_t flags, uint32_t *verdict, fak_report *r,
                                 fak_program **out, fak_error *e)
{
    fak_report mine = {.struct_size = sizeof mine};
    int32_t s = in.prepare(d, block, limits, of, flags, verdict, &mine, out, e);
    mine.shapes = FAK_ROW_SPANS;
    mine.kv_page = 16;
    fak_put(r, &mine, sizeof mine);
    return s;
}
INSTALL(prepare, prepare_rows_only)

/* Steps are cut into rows where it takes nothing else; kv comes in whole pages. */
static void test_shapes_and_pages(void **state)
{
    static const wrong rows_only = {"spans of a row", "", set_prepare_rows_only, NULL};
    backend_pair b;
    rig r;
    fak_error e;
    (void)state;
    backend_open(&b, "cpu-ref", NULL);
    wrap(&b, &rows_only);
    assert_int_equal(open_matmul(&r, &b.dev, &e), FAK_OK);
    if (rig_ready(&r, &e)) fail_msg("%s", e.message);
    assert_int_equal(r.limits.kv_tokens, SLOTS * 48);
    begins = 0;
    if (rig_rows(&r, 6, 0, &e)) fail_msg("%s", e.message);
    assert_int_equal(begins, 6);
    assert_int_equal(step_rows, 1);
    assert_int_equal(r.figures.values, 6 * OUT);
    rig_close(&r);
    backend_close(&b);
}

static void test_left(void **state)
{
    backend_pair b;
    rig r;
    fak_error e;
    (void)state;
    backend_open(&b, "refuser", "refuse=matmul");
    assert_int_equal(open_matmul(&r, &b.dev, &e), FAK_OK);
    if (rig_ready(&r, &e)) fail_msg("%s", e.message);
    assert_false(r.taken);
    assert_null(r.handle);
    rig_close(&r);
    backend_close(&b);
}

/* The row source fails at any of its reads: it is told, and loaded again all is well. */
static void test_source_fails(void **state)
{
    uint32_t failed = 0;
    (void)state;
    for (int k = 1; k < 4; k++) {
        backend_pair b;
        rig r;
        fak_error e;
        backend_open(&b, "honest", "exact=1");
        assert_int_equal(open_matmul(&r, &b.dev, &e), FAK_OK);
        r.fail_read = k;
        r.lend = 0;
        int32_t s = rig_ready(&r, &e);
        if (r.read_failed) {
            assert_int_equal(s, FAK_E_CANCELLED);
            failed++;
            s = rig_load(&r, &e);
        }
        if (!s) s = rig_rows(&r, ROWS, 0, &e);
        if (s) fail_msg("read %d: %s", k, e.message);
        rig_close(&r);
        backend_close(&b);
    }
    assert_int_equal(failed, 1); /* of its one weight; honest reads a whole one at once */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op),
        cmocka_unit_test(test_nothing_wrong),
        cmocka_unit_test(test_each_wrong),
        cmocka_unit_test(test_borrowed),
        cmocka_unit_test(test_float_mode),
        cmocka_unit_test(test_approx),
        cmocka_unit_test(test_kv),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_shapes_and_pages),
        cmocka_unit_test(test_left),
        cmocka_unit_test(test_source_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
