/* Backends of one op, the template in its two lanes and one in C++20: the host completes the rest, and
 * all of it is counted. */
#include "engine.h"

#include <unistd.h>

enum { N = 10, V_MAX = ENGINE_VOCAB };
static float want[2 * N * V_MAX], got[2 * N * V_MAX];

enum { EAGER, GRAPH, CPP, FILES };
static const char *const files[FILES] = {TEST_BUILT "/../plugins/fak-backend-template.so",
                                         TEST_BUILT "/fak-backend-template-graph.so",
                                         TEST_BUILT "/fak-backend-minimal-cpp.so"};

/* A prefill of N - 2 ids and two steps of one. */
static void sample_of(engine *g, float *out)
{
    uint32_t token[N];
    engine_tokens(g, 1, token, N);
    engine_feed(g, 0, 0, token, N - 2, FAK_WANT_LOGITS, out);
    for (uint32_t i = N - 2; i < N; i++)
        engine_feed(g, 0, i, token + i, 1, FAK_WANT_LOGITS, out + (size_t)i * g->V);
}

/* MATMULs of a step that wants logits, and the other ops. */
static void count_ops(const program *p, uint32_t count[SIDES])
{
    fak_tail tail = plan_tail(p->fused.block, 0);
    assert_int_equal(tail.want, FAK_WANT_LOGITS);
    for (uint32_t i = 0; i < tail.first + tail.ops; i++)
        count[p->op[i].id == FAK_OP_MATMUL ? SIDE_DEVICE : SIDE_HOST]++;
}

static void check(const char *path, const char *model_file)
{
    engine g;
    uint32_t count[SIDES] = {0};
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    engine_open(&g, model_file, "cpu-ref", NULL, &limits, 0);
    sample_of(&g, want);
    engine_close(&g);
    engine_open(&g, model_file, path, NULL, &limits, 0);
    assert_int_equal(g.backend.dev.facts.klass, FAK_APPROX);
    assert_int_equal(g.backend.dev.facts.caps, path == files[GRAPH] ? FAK_CAP_GRAPH_COMPILE : 0);
    memset(got, 0, sizeof got);
    sample_of(&g, got);
    assert_rows(got, want, N * (size_t)g.V);
    count_ops(&g.program, count);
    assert_true(count[SIDE_DEVICE] > 7);
    assert_int_equal(g.exec.ops[SIDE_DEVICE], 3 * count[SIDE_DEVICE]);
    assert_int_equal(g.exec.ops[SIDE_HOST], 3 * count[SIDE_HOST]);
    assert_true(g.exec.crossed_bytes > 0);
    for (uint32_t i = 0; i < g.program.ops; i++)
        assert_int_equal(program_side_of(&g.program, i),
                         g.program.op[i].id == FAK_OP_MATMUL ? SIDE_DEVICE : SIDE_HOST);
    engine_close(&g);
}

static void test_of(int file)
{
    for (uint32_t i = 0; i < TINY_MODELS; i++) check(files[file], tiny_names[i]);
}

static void test_eager(void **state)
{
    (void)state;
    test_of(EAGER);
}

static void test_graph(void **state)
{
    (void)state;
    test_of(GRAPH);
}

static void test_cpp(void **state)
{
    (void)state;
    if (access(files[CPP], R_OK)) skip(); /* no C++ compiler */
    test_of(CPP);
}

/* It has no Q8 activations, and no options: said before work. */
static void test_refusals(void **state)
{
    (void)state;
    for (int file = 0; file < FILES; file++) {
        engine g;
        device d;
        fak_error e = {0};
        fak_limits limits = engine_limits(FAK_ACT_Q8, FAK_F32);
        if (file == CPP && access(files[file], R_OK)) continue;
        engine_begin(&g, "tiny-q8_0.gguf", files[file], NULL);
        assert_int_equal(engine_try(&g, &limits, 0, &e), STATUS_REFUSED);
        assert_message(&e, "does not offer Q8 activations");
        assert_int_equal(device_open(&d, g.backend.dev.from, 0, &(fak_setting){"a", "b"}, 1, &e),
                         STATUS_REFUSED);
        assert_message(&e, "it has no options");
        engine_close(&g);
    }
}

/* What a vendor copies knows its flags, reports alike dry and real, keeps only what its ops touch. */
static void test_answers(void **state)
{
    (void)state;
    for (int file = 0; file < CPP; file++) {
        engine g;
        fak_error e = {0};
        fak_program *out = NULL;
        fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
        engine_open(&g, "tiny-f32.gguf", files[file], NULL, &limits, 0);
        program *p = &g.program;
        const fak_backend *api = &g.backend.dev.api;
        fak_report real = p->report[SIDE_DEVICE], dry = {.struct_size = sizeof dry};
        uint32_t *verdict = p->verdict[SIDE_DEVICE];
        assert_int_equal(api->prepare(g.backend.dev.handle, p->fused.block, &p->limits, NULL,
                                      FAK_DRY_RUN, verdict, &dry, &out, &e),
                         FAK_OK);
        assert_null(out);
        assert_memory_equal(&dry, &real, sizeof dry);
        assert_true(dry.weight_bytes > 0 && dry.scratch_bytes > 0);
        assert_int_equal(api->prepare(g.backend.dev.handle, p->fused.block, &p->limits, NULL,
                                      1u << 20, verdict, &dry, &out, &e),
                         FAK_E_UNSUPPORTED);
        uint64_t ticket;
        float row[ENGINE_VOCAB];
        uint32_t embedded = p->op[0].out[0]; /* the host's, and read by the host alone */
        assert_int_equal(p->op[0].id, FAK_OP_EMBED);
        assert_int_equal(api->read(p->handle[SIDE_DEVICE], embedded, 0, 1, row, &ticket, &e),
                         FAK_E_ARGUMENT);
        assert_int_equal(e.index, embedded);
        assert_int_equal(api->write(p->handle[SIDE_DEVICE], embedded, 0, 1, row, &e),
                         FAK_E_ARGUMENT);
        engine_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eager),    cmocka_unit_test(test_graph),   cmocka_unit_test(test_cpp),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
