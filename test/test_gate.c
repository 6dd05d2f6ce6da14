/* The gate: what each floor must catch, by rows made wrong in one way, and by backends that leave ops. */
#include "engine.h"

#include "../core/gate.h"

#include <math.h>

enum { COLS = 4096, ROWS = 3 };
static float want[ROWS * COLS], got[ROWS * COLS];
static const plugin mock = {.name = "mock"};

/* Rows alike in size, as logits are: about -4 to 4. */
static void fill(void)
{
    uint64_t random = 7;
    for (size_t i = 0; i < ROWS * COLS; i++)
        got[i] = want[i] = (float)random_below(&random, 8000001) / 1e6f - 4;
}

static gate_figures compare(uint32_t rows)
{
    gate_figures f = GATE_NONE;
    for (uint32_t r = 0; r < rows; r++) gate_add_row(&f, r, COLS, want + r * COLS, got + r * COLS);
    return f;
}

static device device_of(uint32_t klass, const fak_bound *bound, uint32_t bounds)
{
    return (device){.from = &mock,
                    .facts = {.klass = klass,
                              .numerics = FAK_ACT_F32 | FAK_ACT_Q8 | FAK_ACT_F16,
                              .bounds = bounds,
                              .bound = bound,
                              .bound_stride = sizeof *bound}};
}

static gate_bound bound_of(uint32_t act, uint32_t weight_dtype)
{
    device d = device_of(FAK_APPROX, NULL, 0);
    return gate_bound_of(&d, act, weight_dtype, FAK_F32);
}

static void assert_near(double is, double should)
{
    if (!(fabs(is - should) <= 1e-6 * fabs(should))) fail_msg("%.9g is not %.9g", is, should);
}

/* ---- bounds ---- */

/* The table of abi/README.md. */
static void test_floors(void **state)
{
    (void)state;
    static const struct {
        uint32_t act, dtype;
        double cosine, norm_ratio, rel_l2, max_abs, op_l2;
    } row[] = {
        {FAK_ACT_F32, FAK_Q4_1, 0.9999, 0.002, 0.01, 0.1, 0.001},
        {FAK_ACT_Q8, FAK_F32, 0.9999, 0.002, 0.01, 0.1, 0.001},
        {FAK_ACT_F16, FAK_F32, 0.9999, 0.002, 0.01, 0.1, 0.001},
        {FAK_ACT_Q8, FAK_F16, 0.9999, 0.002, 0.01, 0.1, 0.001},
        {FAK_ACT_F16, FAK_F16, 0.999, 0.01, 0.05, 0.5, 0.01},
        {FAK_ACT_F16, FAK_Q8_0, 0.999, 0.01, 0.05, 0.5, 0.01},
        {FAK_ACT_Q8, FAK_Q6_K, 0.999, 0.01, 0.05, 0.5, 0.01},
        {FAK_ACT_Q8, FAK_F8E4M3, 0.995, 0.03, 0.1, 1.5, 0.05},
        {FAK_ACT_F16, FAK_I4, 0.995, 0.03, 0.1, 1.5, 0.05},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        gate_bound b = bound_of(row[i].act, row[i].dtype);
        assert_true(b.cosine == row[i].cosine && b.norm_ratio == row[i].norm_ratio);
        assert_true(b.rel_l2 == row[i].rel_l2 && b.max_abs == row[i].max_abs);
        assert_true(b.op_l2 == row[i].op_l2 && !b.exact && b.mode);
    }
    device d = device_of(FAK_REFERENCE, NULL, 0);
    assert_true(gate_bound_of(&d, FAK_ACT_Q8, FAK_Q4_0, FAK_F16).exact);
}

static void test_bounds_tighten(void **state)
{
    (void)state;
    static const fak_bound bound[] = {
        {0, 0, 0.99995f, 0, 0, 5}, /* wider than the floor: it does not count */
        {FAK_Q4_1, 0, 0, 0.001f, 0.002f, 0},
        {FAK_Q4_1, FAK_F16, 0, 0, 0, 0.0625f},
    };
    device d = device_of(FAK_APPROX, bound, 3);
    gate_bound b = gate_bound_of(&d, FAK_ACT_F32, FAK_F32, FAK_F16);
    assert_near(b.cosine, 0.99995);
    assert_true(b.norm_ratio == 0.002 && b.rel_l2 == 0.01 && b.max_abs == 0.1);
    b = gate_bound_of(&d, FAK_ACT_F32, FAK_Q4_1, FAK_F32);
    assert_near(b.norm_ratio, 0.001);
    assert_near(b.rel_l2, 0.002);
    assert_true(b.max_abs == 0.1 && b.op_l2 == 0.001);
    b = gate_bound_of(&d, FAK_ACT_Q8, FAK_Q4_1, FAK_F16);
    assert_true(b.max_abs == 0.0625);
}

static void test_promises(void **state)
{
    (void)state;
    static const fak_bound good[] = {
        {0, 0, 0.999f, 0.01f, 0.05f, 0.5f}, /* the floors themselves */
        {FAK_F32, 0, 0.9999f, 0.002f, 0.01f, 0.1f},
        {FAK_F8E5M2, 0, 0.995f, 0.03f, 0.1f, 1.5f},
        {FAK_Q4_0, FAK_BF16, 1, 0, 1e-6f, 0}, /* 0 says nothing */
    };
    static const fak_bound bad[] = {
        {0, 0, 0.9989f, 0.01f, 0.05f, 0.5f},
        {0, 0, 0.999f, 0.011f, 0.05f, 0.5f},
        {0, 0, 0.999f, 0.01f, 0.051f, 0.5f},
        {0, 0, 0.999f, 0.01f, 0.05f, 0.51f},
        {FAK_F32, 0, 0.9998f, 0, 0, 0},
        {FAK_F32, 0, 0, 0.01f, 0, 0},
        {FAK_Q8_0, 0, 0.995f, 0, 0, 0},
        {FAK_I4, 0, 0.99f, 0, 0, 0},
        {0, 0, NAN, 0.01f, 0.05f, 0.5f},
        {0, 0, 0.999f, NAN, 0, 0},
        {0, 0, 0.999f, 0.01f, -1, 0.5f},
        {0, 0, 1.5f, 0, 0, 0},
        {0, 0, -1, 0, 0, 0},
        {0, 0, 0, 0, 0, INFINITY},
    };
    fak_error e = {0};
    device d = device_of(FAK_APPROX, good, 4);
    if (gate_promises(&d, &e)) fail_msg("%s", e.message);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fak_bound two[] = {good[0], bad[i]};
        d = device_of(FAK_APPROX, two, 2);
        if (gate_promises(&d, &e) != STATUS_GATE) fail_msg("bad bound %zu passes", i);
        assert_message(&e, "bound 1 (");
        assert_message(&e, "promises less than the floor");
    }
    d = device_of(FAK_APPROX, bad + 4, 1); /* one activation mode: its own floor */
    d.facts.numerics = FAK_ACT_F32;
    assert_int_equal(gate_promises(&d, &e), STATUS_GATE);
    assert_message(&e, "F32 activations");
}

/* ---- figures ---- */

static void test_equal_rows(void **state)
{
    (void)state;
    gate_bound b = bound_of(FAK_ACT_F32, FAK_F32);
    fak_error e;
    fill();
    want[5] = got[5] = INFINITY;
    want[6] = NAN, got[6] = -NAN;
    gate_figures f = compare(ROWS);
    assert_int_equal(f.values, ROWS * COLS);
    assert_int_equal(f.differ, 0);
    assert_true(f.cosine == 1 && f.norm_ratio == 1 && f.rel_l2 == 0 && f.max_abs == 0);
    assert_int_equal(gate_op(&b, &f, &e) | gate_logits(&b, &f, &e), 0);
    b.exact = 1;
    assert_int_equal(gate_op(&b, &f, &e) | gate_logits(&b, &f, &e), 0);
    b.exact = 0;
    got[9] += 1e-6f; /* what is no number on both sides says nothing of the others */
    f = compare(ROWS);
    assert_int_equal(f.differ, 1);
    assert_int_equal(gate_op(&b, &f, &e) | gate_logits(&b, &f, &e), 0);
}

/* The figures themselves: a row against itself scaled, and two whose angle is known. */
static void test_figures(void **state)
{
    (void)state;
    gate_figures f = GATE_NONE;
    const float a[4] = {3, 0, 0, 4}, b[4] = {3, 0, 0, 0}, c[4] = {6, 0, 0, 8};
    gate_add_row(&f, 9, 4, a, b);
    assert_near(f.cosine, 0.6);
    assert_near(f.norm_ratio, 0.6);
    assert_near(f.rel_l2, 0.8);
    assert_true(f.max_abs == 4 && f.element == 1.6);
    assert_true(f.values == 4 && f.differ == 1 && f.row == 9 && f.col == 3);
    assert_true(f.want == 4.0f && f.got == 0.0f);
    f = GATE_NONE;
    gate_add_row(&f, 0, 4, a, c);
    assert_true(f.norm_ratio == 2 && f.cosine == 1 && f.rel_l2 == 1 && f.differ == 2);
}

/* Cosine is 1 for all of them. */
static void test_scaled_rows(void **state)
{
    (void)state;
    fak_error e;
    fill();
    for (size_t i = 0; i < COLS; i++) got[COLS + i] = want[COLS + i] * 1.0001f;
    gate_figures f = compare(ROWS);
    gate_bound b = bound_of(FAK_ACT_F32, FAK_F32);
    assert_true(f.cosine > 0.9999999);
    assert_true(fabs(f.norm_ratio - 1.0001) < 1e-6 && fabs(f.rel_l2 - 1e-4) < 1e-6);
    assert_int_equal(f.row, 1);
    assert_int_equal(gate_logits(&b, &f, &e), FAK_OK); /* within the floors ... */
    b.exact = 1;                                       /* ... and no Reference */
    assert_int_equal(gate_logits(&b, &f, &e), STATUS_GATE);
    assert_message(
        &e, "of 12288 values differ from the reference's (class reference: none may): row 1");
    const fak_bound promise = {.norm_ratio = 0.00005f};
    device d = device_of(FAK_APPROX, &promise, 1); /* who promises more is held to it */
    b = gate_bound_of(&d, FAK_ACT_F32, FAK_F32, FAK_F32);
    assert_int_equal(gate_logits(&b, &f, &e), STATUS_GATE);
    assert_message(&e, "norm ratio 1.0001 is farther from 1 than 5e-05");
    for (size_t i = 0; i < COLS; i++) got[COLS + i] = want[COLS + i] * 1.02f;
    f = compare(ROWS);
    assert_true(f.cosine > 0.9999999);
    for (uint32_t act = FAK_ACT_F32; act <= FAK_ACT_F16; act <<= 1) {
        b = bound_of(act, FAK_Q8_0);
        assert_int_equal(gate_logits(&b, &f, &e), STATUS_GATE);
        assert_message(&e, "norm ratio 1.02 is farther from 1 than 0.0");
        assert_int_equal(gate_op(&b, &f, &e), STATUS_GATE);
        assert_message(&e, "relative L2 0.02");
    }
    for (size_t i = 0; i < COLS; i++) got[COLS + i] = want[COLS + i] * 0.98f;
    f = compare(ROWS); /* shorter, as well as longer */
    assert_int_equal(gate_logits(&b, &f, &e), STATUS_GATE);
    assert_message(&e, "norm ratio 0.98");
}

/* One of 4096: the L2 of the row hardly sees it. */
static void test_one_element(void **state)
{
    (void)state;
    gate_bound b = bound_of(FAK_ACT_F32, FAK_F32);
    fak_error e;
    fill();
    double rms = 0;
    for (size_t i = 0; i < COLS; i++) rms += (double)want[i] * (double)want[i] / COLS;
    rms = sqrt(rms);
    got[77] = want[77] + (float)(15 * b.op_l2 * rms);
    gate_figures f = compare(1);
    assert_int_equal(f.differ, 1);
    assert_int_equal(gate_op(&b, &f, &e), FAK_OK);
    got[77] = want[77] + (float)(17 * b.op_l2 * rms);
    f = compare(1);
    assert_true(f.rel_l2 < b.op_l2);
    assert_int_equal(f.col, 77);
    assert_int_equal(gate_op(&b, &f, &e), STATUS_GATE);
    assert_message(&e, "an element's difference over the row's RMS 0.017 is above 0.016");
    assert_message(&e, "row 0, column 77 is ");
    got[77] = want[77] + 0.11f; /* and of logits */
    f = compare(1);
    assert_true(f.rel_l2 < b.rel_l2);
    assert_int_equal(gate_logits(&b, &f, &e), STATUS_GATE);
    assert_message(&e, "the largest difference 0.11");
}

static void check_refused(uint32_t col, const char *what)
{
    fak_error e;
    gate_figures f = compare(ROWS);
    for (uint32_t act = FAK_ACT_F32; act <= FAK_ACT_F16; act <<= 1) {
        gate_bound b = bound_of(act, FAK_I4);
        if (gate_op(&b, &f, &e) != STATUS_GATE || gate_logits(&b, &f, &e) != STATUS_GATE)
            fail_msg("%s passes", what);
        if (!isinf(f.max_abs) || !isinf(f.element) || f.row != 2 || f.col != col)
            fail_msg("%s: row %u, column %u", what, (unsigned)f.row, (unsigned)f.col);
    }
}

/* On one side only; small differences come before and after it. */
static void test_no_numbers(void **state)
{
    (void)state;
    static const float pair[][2] = {{1, NAN},        {NAN, 1},        {1, INFINITY},
                                    {INFINITY, 1},   {0, -INFINITY},  {INFINITY, -INFINITY},
                                    {NAN, INFINITY}, {-INFINITY, NAN}};
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        char what[64];
        fill();
        got[3] += 1e-6f;
        got[2 * COLS + 1] += 1e-6f;
        got[2 * COLS + 9] += 1e-6f;
        want[2 * COLS + 4] = pair[i][0];
        got[2 * COLS + 4] = pair[i][1];
        snprintf(what, sizeof what, "%g for %g", (double)pair[i][1], (double)pair[i][0]);
        check_refused(4, what);
    }
}

static void test_zero_rows(void **state)
{
    (void)state;
    gate_bound b = bound_of(FAK_ACT_Q8, FAK_I4);
    fak_error e;
    fill();
    memset(want, 0, COLS * sizeof *want);
    memset(got, 0, COLS * sizeof *got);
    gate_figures f = compare(ROWS);
    assert_int_equal(gate_op(&b, &f, &e) | gate_logits(&b, &f, &e), FAK_OK);
    got[8] = -0.0f; /* equal to 0, but for the bits */
    f = compare(ROWS);
    assert_int_equal(f.differ, 1);
    assert_int_equal(gate_op(&b, &f, &e) | gate_logits(&b, &f, &e), FAK_OK);
    b.exact = 1;
    assert_int_equal(gate_op(&b, &f, &e), STATUS_GATE);
    assert_message(&e, "1 of 12288 values differ");
    assert_message(&e, "row 0, column 8 is -0 where the reference gives 0");
    b.exact = 0;
    got[8] = 1e-30f; /* where nothing should be */
    f = compare(ROWS);
    assert_true(f.cosine == 0 && isinf(f.norm_ratio) && isinf(f.rel_l2) && isinf(f.element));
    assert_int_equal(gate_op(&b, &f, &e), STATUS_GATE);
    assert_int_equal(gate_logits(&b, &f, &e), STATUS_GATE);
    fill();
    memset(got, 0, COLS * sizeof *got); /* nothing where something should be */
    f = compare(ROWS);
    assert_true(f.cosine == 0 && f.norm_ratio == 0 && f.rel_l2 == 1);
    assert_int_equal(gate_op(&b, &f, &e), STATUS_GATE);
}

static void test_swapped_rows(void **state)
{
    (void)state;
    gate_bound b = bound_of(FAK_ACT_Q8, FAK_I4);
    fak_error e;
    fill();
    memcpy(got, want + COLS, COLS * sizeof *got);
    memcpy(got + COLS, want, COLS * sizeof *got);
    gate_figures f = compare(ROWS);
    assert_true(f.cosine < 0.1);
    assert_int_equal(gate_op(&b, &f, &e), STATUS_GATE);
    assert_int_equal(gate_logits(&b, &f, &e), STATUS_GATE);
    assert_message(&e, "cosine ");
}

/* A turned row: as long as before, no element far off; only the L2 is past its bound. */
static void test_turned_row(void **state)
{
    (void)state;
    gate_bound b = bound_of(FAK_ACT_F32, FAK_F32);
    fak_error e;
    fill();
    for (size_t i = 0; i < COLS; i += 2) {
        got[i] += 0.012f * want[i + 1];
        got[i + 1] -= 0.012f * want[i];
    }
    gate_figures f = compare(ROWS);
    assert_true(f.cosine > b.cosine && f.max_abs < b.max_abs);
    assert_true(fabs(f.norm_ratio - 1) < b.norm_ratio);
    assert_int_equal(gate_logits(&b, &f, &e), STATUS_GATE);
    assert_message(&e, "relative L2 0.012 is above 0.01 (F32 activations): row ");
}

/* Merged, in whatever order, as rows added to one. */
static void test_merge(void **state)
{
    (void)state;
    fill();
    got[10] += 0.01f;
    got[COLS + 20] += 0.5f;
    for (size_t i = 0; i < COLS; i++) got[2 * COLS + i] *= 0.999f;
    gate_figures all = compare(ROWS), ahead = GATE_NONE, back = GATE_NONE;
    for (uint32_t i = 0; i < ROWS; i++) {
        gate_figures one = GATE_NONE;
        gate_add_row(&one, i, COLS, want + i * COLS, got + i * COLS);
        gate_merge(&ahead, &one);
        one = GATE_NONE;
        uint32_t r = ROWS - 1 - i;
        gate_add_row(&one, r, COLS, want + r * COLS, got + r * COLS);
        gate_merge(&back, &one);
    }
    assert_memory_equal(&ahead, &all, sizeof all);
    assert_memory_equal(&back, &all, sizeof all);
    assert_true(all.row == 1 && all.col == 20);
    assert_true(fabs(all.norm_ratio - 0.999) < 1e-6);
}

/* ---- positions ---- */

/* A position whose reference prefers id 1 to id 2 by gap, and whose device has id 2. */
static int part_by(gate_tally *t, const gate_bound *b, float gap)
{
    const float w[4] = {0, 10, 10 - gap, 1}, g[4] = {0, 10 - gap, 10, 1};
    return gate_add_position(t, b, 4, w, g);
}

static void agree(gate_tally *t, const gate_bound *b, uint32_t count)
{
    const float w[4] = {0, 10, 9, 1};
    for (uint32_t i = 0; i < count; i++) assert_int_equal(gate_add_position(t, b, 4, w, w), 0);
}

static void test_ties(void **state)
{
    (void)state;
    gate_bound b = bound_of(FAK_ACT_F32, FAK_F32);
    gate_tally t = {.logits = GATE_NONE};
    fak_error e;
    assert_int_equal(gate_positions(&t, &b, &e), STATUS_GATE);
    assert_message(&e, "no position was compared");
    agree(&t, &b, 40);
    assert_int_equal(part_by(&t, &b, 0.05f), 1);
    agree(&t, &b, 59);
    assert_true(t.positions == 100 && t.ties == 1 && t.wrongs == 0);
    assert_true(t.tie[0].position == 40 && t.tie[0].want == 1 && t.tie[0].got == 2);
    assert_true(fabs((double)t.tie[0].gap - 0.05) < 1e-5);
    if (gate_positions(&t, &b, &e)) fail_msg("1 of 100: %s", e.message);
    part_by(&t, &b, 0.05f);
    assert_int_equal(gate_positions(&t, &b, &e), STATUS_GATE);
    assert_message(&e, "2 of 101 positions part at a tie; at most 1 % may");
    t = (gate_tally){.logits = GATE_NONE};
    agree(&t, &b, 98);
    part_by(&t, &b, 0.05f);
    assert_int_equal(gate_positions(&t, &b, &e), STATUS_GATE); /* 1 of 99 */
    for (int i = 0; i < 2 * GATE_TIES; i++) part_by(&t, &b, 0.05f);
    assert_int_equal(t.ties, 2 * GATE_TIES + 1); /* all are counted, the first are listed */
}

/* The logits are all close: only the order of the best two is at stake. */
static void test_wrong_argmax(void **state)
{
    (void)state;
    gate_bound b = bound_of(FAK_ACT_F32, FAK_F32);
    fak_error e;
    b.max_abs = 0.25;
    static const struct {
        float gap;
        int tie;
    } row[] = {{0, 1}, {0.4375f, 1}, {0.5f, 0}, {3, 0}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        gate_tally t = {.logits = GATE_NONE};
        const float w[3] = {10, 10 - row[i].gap, 0};
        const float g[3] = {10 - row[i].gap / 2, 10 - row[i].gap / 2 + 0.001f, 0};
        agree(&t, &b, 150);
        assert_int_equal(gate_add_position(&t, &b, 3, w, g), 1);
        agree(&t, &b, 50);
        assert_int_equal(t.ties, row[i].tie);
        assert_int_equal(t.wrongs, !row[i].tie);
        if (row[i].tie) continue;
        assert_int_equal(gate_positions(&t, &b, &e), STATUS_GATE);
        assert_message(&e,
                       "1 of 201 positions have another argmax: position 150 has id 1 where the "
                       "reference has 0");
    }
    gate_tally t = {.logits = GATE_NONE}; /* Reference has no ties */
    b.exact = 1;
    agree(&t, &b, 200);
    assert_int_equal(gate_positions(&t, &b, &e), FAK_OK);
    part_by(&t, &b, 1e-6f);
    assert_true(t.ties == 0 && t.wrongs == 1);
    assert_int_equal(gate_positions(&t, &b, &e), STATUS_GATE);
}

/* Close argmax, far logits; a NaN is no id. */
static void test_positions_hold_the_logits(void **state)
{
    (void)state;
    gate_bound b = bound_of(FAK_ACT_F32, FAK_F32);
    fak_error e;
    gate_tally t = {.logits = GATE_NONE};
    const float w[4] = {0, 10, 9, 1}, far[4] = {0, 10, 9, 1.2f}, broken[4] = {0, 10, NAN, 1};
    agree(&t, &b, 200);
    assert_int_equal(gate_add_position(&t, &b, 4, w, far), 0);
    assert_int_equal(gate_positions(&t, &b, &e), STATUS_GATE);
    assert_message(&e, "row 200, column 3");
    t = (gate_tally){.logits = GATE_NONE};
    agree(&t, &b, 200);
    assert_int_equal(gate_add_position(&t, &b, 4, w, broken), 1);
    assert_int_equal(t.wrongs, 1);
    assert_int_equal(gate_positions(&t, &b, &e), STATUS_GATE);
    t = (gate_tally){.logits = GATE_NONE};
    agree(&t, &b, 200);
    assert_int_equal(gate_add_position(&t, &b, 4, broken, w), 1);
    assert_int_equal(t.wrongs, 1);
}

/* ---- requirements ---- */

static void test_classes(void **state)
{
    (void)state;
    fak_error e;
    device approx = device_of(FAK_APPROX, NULL, 0), reference = device_of(FAK_REFERENCE, NULL, 0);
    assert_int_equal(gate_require_reference(&reference, &e), FAK_OK);
    assert_int_equal(gate_require_non_reference(&approx, &e), FAK_OK);
    assert_int_equal(gate_require_reference(&approx, &e), STATUS_REFUSED);
    assert_message(&e, "backend mock is of class approx");
    assert_int_equal(gate_require_non_reference(&reference, &e), STATUS_REFUSED);
    assert_message(&e, "backend mock is of class reference");
}

/* The verdict on what a backend ran of a model, by its counts. */
static int32_t native(const char *backend, const char *options, fak_error *e)
{
    static float logits[8 * ENGINE_VOCAB];
    uint32_t token[8];
    engine g;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    engine_open(&g, "tiny-f32.gguf", backend, options, &limits, 0);
    engine_tokens(&g, 1, token, 8);
    assert_int_equal(gate_native(&g.exec, e), STATUS_GATE); /* nothing has run */
    assert_message(e, "ran no matmul or no attention");
    engine_feed(&g, 0, 0, token, 8, FAK_WANT_LOGITS, logits);
    int32_t s = gate_native(&g.exec, e);
    engine_close(&g);
    return s;
}

static void test_native(void **state)
{
    (void)state;
    fak_error e;
    static const char *const fine[] = {"", "fused=1", "graph=1", "refuse=rope+glu+rmsnorm+argmax"};
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        if (native("refuser", fine[i], &e)) fail_msg("%s: %s", fine[i], e.message);
    if (native("cpu-ref", "fused=1", &e) || native("honest", NULL, &e)) fail_msg("%s", e.message);
    assert_int_equal(native("refuser", "refuse=att", &e), STATUS_GATE);
    assert_message(&e, "backend refuser left 0 matmuls and 2 attentions to the host");
    assert_int_equal(native("refuser", "refuse=att-layer1", &e), STATUS_GATE);
    assert_message(&e, "left 0 matmuls and 1 attentions");
    assert_int_equal(native("refuser", "refuse=matmul", &e), STATUS_GATE);
    assert_message(&e, "left 15 matmuls and 0 attentions");
    assert_int_equal(native("refuser", "refuse=all", &e), STATUS_GATE);
    assert_message(&e, "left 15 matmuls and 2 attentions");
    assert_int_equal(native(TEST_BUILT "/../plugins/fak-backend-template.so", NULL, &e),
                     STATUS_GATE);
    assert_message(&e, "backend template left 0 matmuls and 2 attentions");
}

/* A fused op that holds a matmul is one, too. */
static void test_fused_on_the_host(void **state)
{
    (void)state;
    static const struct {
        uint32_t id, matmul;
    } row[] = {{FAK_OP_MATMUL, 1},         {FAK_OP_NORM_MATMUL, 1}, {FAK_OP_NORM_MATMUL_GLU, 1},
               {FAK_OP_GLU_MATMUL_ADD, 1}, {FAK_OP_MATMUL_ADD, 1},  {FAK_OP_FFN, 1},
               {FAK_OP_MATMUL_ARGMAX, 1},  {FAK_OP_ROPE_APPEND, 0}, {FAK_OP_EMBED, 0},
               {FAK_OP_KV_APPEND, 0}};
    device d = device_of(FAK_APPROX, NULL, 0);
    fak_error e;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        uint64_t by_id[SIDES * EXEC_IDS] = {0};
        by_id[SIDE_DEVICE * EXEC_IDS + FAK_OP_FFN] = 3;
        by_id[SIDE_DEVICE * EXEC_IDS + FAK_OP_ATTENTION] = 3;
        assert_int_equal(gate_native_counts(&d, by_id, &e), FAK_OK);
        by_id[SIDE_HOST * EXEC_IDS + row[i].id] = 1;
        if (gate_native_counts(&d, by_id, &e) != (row[i].matmul ? STATUS_GATE : FAK_OK))
            fail_msg("%s on the host: %s", ops_name(row[i].id), e.message);
        by_id[SIDE_HOST * EXEC_IDS + row[i].id] = 0;
        by_id[SIDE_DEVICE * EXEC_IDS + FAK_OP_ATTENTION] = 0;
        assert_int_equal(gate_native_counts(&d, by_id, &e), STATUS_GATE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floors),
        cmocka_unit_test(test_bounds_tighten),
        cmocka_unit_test(test_promises),
        cmocka_unit_test(test_equal_rows),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_scaled_rows),
        cmocka_unit_test(test_one_element),
        cmocka_unit_test(test_no_numbers),
        cmocka_unit_test(test_zero_rows),
        cmocka_unit_test(test_swapped_rows),
        cmocka_unit_test(test_turned_row),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_wrong_argmax),
        cmocka_unit_test(test_positions_hold_the_logits),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_native),
        cmocka_unit_test(test_fused_on_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
