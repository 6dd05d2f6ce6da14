/* test_cpu_ref - what cpu-ref holds to as a backend, called as the ABI allows and as it does not:
 * what the host's own checks would keep from it. */
#include "engine.h"

#include "../core/fuse.h"

/* ---- on a model ---- */

static int32_t feed(engine *g, uint32_t slot, uint32_t first, uint32_t n, fak_error *e)
{
    static const uint32_t token[ENGINE_ROWS] = {1, 2, 3};
    fak_span span = {slot, 0, n, first};
    step_spec spec = engine_spec(&span, token, FAK_WANT_ARGMAX);
    return engine_step(g, &spec, NULL, e);
}

static void test_context_is_the_end(void **state)
{
    engine g;
    fak_error e;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    (void)state;
    engine_open(&g, "tiny-f32.gguf", "cpu-ref", NULL, &limits, 0);
    assert_int_equal(feed(&g, 2, 0, ENGINE_CONTEXT - 2, &e), FAK_OK);
    assert_int_equal(feed(&g, 2, ENGINE_CONTEXT - 2, 3, &e), FAK_E_KV_FULL);
    assert_int_equal(e.index, 0);
    assert_int_equal(feed(&g, 2, ENGINE_CONTEXT - 2, 2, &e), FAK_OK); /* nothing had changed */
    assert_int_equal(feed(&g, 2, ENGINE_CONTEXT, 1, &e), FAK_E_KV_FULL);
    engine_close(&g);
}

static void test_a_clone_has_its_own_length(void **state)
{
    engine g;
    fak_error e;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    (void)state;
    engine_open(&g, "tiny-f32.gguf", "cpu-ref", NULL, &limits, 0);
    assert_int_equal(feed(&g, 0, 0, 8, &e), FAK_OK);
    const fak_backend *api = &g.backend.dev.api;
    assert_int_equal(api->kv_clone(g.program.handle[SIDE_DEVICE], 1, 0, 3, &e), FAK_OK);
    assert_int_equal(feed(&g, 1, 4, 1, &e), FAK_E_ARGUMENT);
    assert_int_equal(feed(&g, 1, 3, 1, &e), FAK_OK);
    assert_int_equal(api->kv_clone(g.program.handle[SIDE_DEVICE], 2, 0, 9, &e), FAK_E_ARGUMENT);
    assert_int_equal(api->kv_clone(g.program.handle[SIDE_DEVICE], 0, 0, 1, &e), FAK_E_ARGUMENT);
    engine_close(&g);
}

/* The verdicts of a device for a plan that it was not opened for. */
static void test_fused_ops_only_where_offered(void **state)
{
    engine g;
    fak_error e;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    (void)state;
    engine_open(&g, "tiny-f32.gguf", "cpu-ref", "fused=1", &limits, 0);
    uint32_t verdict[64], fused = 0, ops = g.program.ops;
    for (int with = 0; with < 2; with++) {
        device *d = with ? &g.backend.dev : &g.backend.host;
        fak_report r = {.struct_size = sizeof r};
        fak_program *none;
        assert_in_range(ops, 1, 64);
        for (uint32_t i = 0; i < ops; i++) verdict[i] = FAK_TAKEN;
        assert_int_equal(d->api.prepare(d->handle, g.program.fused.block, &limits, NULL,
                                        FAK_DRY_RUN, verdict, &r, &none, &e),
                         FAK_OK);
        for (uint32_t i = 0; i < ops; i++) {
            int parts = ops_find(g.program.op[i].id)->parts > 0;
            int with_kv = g.program.op[i].id == FAK_OP_ATTENTION; /* goes with its ROPE_APPEND */
            assert_int_equal(verdict[i] == FAK_TAKEN, with || (!parts && !with_kv));
            fused += (uint32_t)parts;
        }
    }
    assert_true(fused >= 8);
    engine_close(&g);
}

/* Everything kept has a place of its own, and the report says so. */
static void test_report_of_what_is_kept(void **state)
{
    (void)state;
    uint64_t scratch[2], values = 0;
    for (uint32_t keep = 0; keep < 2; keep++) {
        engine g;
        fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
        engine_open(&g, "tiny-f32.gguf", "cpu-ref", NULL, &limits, keep ? FAK_KEEP_ALL : 0);
        scratch[keep] = g.program.report[SIDE_DEVICE].scratch_bytes;
        for (uint32_t i = 0; keep && i < g.program.values; i++)
            if (g.program.value[i].kind >= FAK_ACT)
                values += ENGINE_ROWS * 4ull * g.program.value[i].cols;
        engine_close(&g);
    }
    assert_true(scratch[1] >= values && scratch[1] < 2 * values);
    assert_true(scratch[0] < values / 2);
    assert_true(scratch[0] >= ENGINE_ROWS * 4ull * 302); /* at least the logits */
}

/* ---- on a plan by hand: a row of a table for each token ---- */

enum { V = 40, D = 32, T = 5 };
static float table[V][D], lent[V][D];
static const uint32_t token[T] = {7, 39, 0, 7, 12};
static uint32_t weight_id, out_id, reads;

static int32_t read_table(void *self, uint32_t value, uint32_t form, uint32_t first, uint32_t rows,
                          void *dst, uint64_t bytes, fak_error *e)
{
    (void)self, (void)e;
    assert_int_equal(value, weight_id);
    assert_int_equal(form, FAK_NATIVE);
    assert_int_equal(bytes, rows * sizeof *table);
    memcpy(dst, table[first], bytes);
    reads++;
    return FAK_OK;
}

static const void *borrow_table(void *self, uint32_t value)
{
    (void)self, (void)value;
    memcpy(lent, table, sizeof lent);
    return lent;
}

typedef struct hand { /* zero-initialise */
    backend_pair b;
    plan plan;
    fak_limits limits;
} hand;

static void hand_open(hand *h)
{
    plan_draft d;
    for (uint32_t i = 0; i < V * D; i++) table[i / D][i % D] = (float)(i % 1009) * 0.25f - 100;
    draft_begin(&d);
    weight_id = draft_value(&d, FAK_WEIGHT, V, D);
    uint32_t x = DRAFT(&d, FAK_NO_INDEX, .id = FAK_OP_EMBED, .in = {weight_id});
    d.body_ops = d.ops;
    out_id = DRAFT(&d, FAK_NO_INDEX, .id = FAK_OP_TAKE_ROWS, .in = {x});
    draft_tail(&d, FAK_WANT_LOGITS, 1, out_id);
    draft_pack(&h->plan, &d);
    h->limits = engine_limits(FAK_ACT_F32, FAK_F32);
    backend_open(&h->b, "cpu-ref", NULL);
}

static void hand_close(hand *h)
{
    backend_close(&h->b);
    plan_free(&h->plan);
}

static fak_program *prepare(hand *h, fak_program *weights_of, uint32_t second)
{
    uint32_t verdict[2] = {FAK_TAKEN, second};
    fak_report r = {.struct_size = sizeof r};
    fak_program *p = NULL;
    fak_error e;
    assert_int_equal(h->b.dev.api.prepare(h->b.dev.handle, h->plan.block, &h->limits, weights_of, 0,
                                          verdict, &r, &p, &e),
                     FAK_OK);
    assert_non_null(p);
    return p;
}

static int32_t load(hand *h, fak_program *p, fak_source source)
{
    fak_error e;
    source.struct_size = sizeof source;
    source.read = read_table;
    return h->b.dev.api.load(p, &weight_id, 1, &source, &e);
}

static int32_t call(hand *h, fak_program *p, uint32_t op, uint32_t id)
{
    fak_op_entry entry;
    fak_error e;
    assert_int_equal(device_find_op(&h->b.dev, id, &entry), 0);
    return entry.call(p, op, &e);
}

/* Rows [first, T) of the answer are those of the table. */
static void check(hand *h, fak_program *p, uint32_t first)
{
    char block[1024];
    float got[T][D];
    uint64_t ticket;
    fak_error e;
    fak_span span = {0, 0, T, 0};
    step_spec spec = engine_spec(&span, token, FAK_WANT_LOGITS);
    assert_in_range(step_bytes(T, T, 1), 1, sizeof block);
    assert_int_equal(h->b.dev.api.begin(p, step_write(block, &spec), &e), FAK_OK);
    assert_int_equal(call(h, p, 0, FAK_OP_EMBED), FAK_OK);
    assert_int_equal(call(h, p, 1, FAK_OP_TAKE_ROWS), FAK_OK);
    assert_int_equal(h->b.dev.api.read(p, out_id, first, T - first, got, &ticket, &e), FAK_OK);
    for (uint32_t r = first; r < T; r++) assert_rows(got[r - first], table[token[r]], D);
}

/* What is lent for the call only is copied. */
static void test_lent_weights(void **state)
{
    hand h = {0};
    (void)state;
    hand_open(&h);
    fak_program *p = prepare(&h, NULL, FAK_TAKEN);
    assert_int_equal(load(&h, p, (fak_source){.borrow = borrow_table}), FAK_OK);
    memset(lent, 0xff, sizeof lent);
    check(&h, p, 0);
    check(&h, p, 3);
    h.b.dev.api.release(p);
    hand_close(&h);
}

/* Both use them, they are read once, and they go with the last. */
static void test_shared_weights(void **state)
{
    hand h = {0};
    (void)state;
    hand_open(&h);
    reads = 0;
    fak_program *p = prepare(&h, NULL, FAK_TAKEN);
    assert_int_equal(load(&h, p, (fak_source){0}), FAK_OK);
    fak_program *twin = prepare(&h, p, FAK_TAKEN);
    assert_int_equal(load(&h, twin, (fak_source){0}), FAK_OK);
    assert_int_equal(reads, 1);
    check(&h, twin, 0);
    h.b.dev.api.release(twin);
    check(&h, p, 0);
    h.b.dev.api.release(p);
    hand_close(&h);
}

static void test_an_op_that_was_not_taken(void **state)
{
    hand h = {0};
    (void)state;
    hand_open(&h);
    fak_program *p = prepare(&h, NULL, FAK_HOST);
    assert_int_equal(load(&h, p, (fak_source){0}), FAK_OK);
    assert_int_equal(call(&h, p, 1, FAK_OP_TAKE_ROWS), FAK_E_ARGUMENT);
    assert_int_equal(call(&h, p, 2, FAK_OP_TAKE_ROWS), FAK_E_ARGUMENT);
    h.b.dev.api.release(p);
    hand_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context_is_the_end),
        cmocka_unit_test(test_a_clone_has_its_own_length),
        cmocka_unit_test(test_fused_ops_only_where_offered),
        cmocka_unit_test(test_report_of_what_is_kept),
        cmocka_unit_test(test_lent_weights),
        cmocka_unit_test(test_shared_weights),
        cmocka_unit_test(test_an_op_that_was_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
