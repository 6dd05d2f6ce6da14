/* trace: a NaN is followed to the op that made it, through the reference; or the backend is at fault. */
#include "engine.h"

#include "../core/golden.h"
#include "../core/trace.h"

#include <inttypes.h>
#include <math.h>

enum { PROMPT = 21, NEW = 5 };

typedef struct opened { /* zero-initialise */
    toy toy;
    backend_pair backend;
    session session;
    uint32_t prompt[PROMPT];
    generation g;
} opened;

static void open_all(opened *o, const char *backend, const char *options)
{
    fak_error e = {0};
    uint64_t random = 12345;
    *o = (opened){0};
    backend_open(&o->backend, backend, options);
    if (toy_make(&o->toy, &golden_shape, FAK_F32, TOY_SEED, &e) ||
        session_open(&o->session, &o->toy.m, &o->backend.dev, &o->backend.host,
                     &(session_options){0}, NULL, NULL, &e))
        fail_msg("%s", e.message);
    for (uint32_t i = 0; i < PROMPT; i++) o->prompt[i] = random_below(&random, golden_shape.vocab);
}

static int32_t generate(opened *o, fak_error *e)
{
    uint32_t slot;
    assert_int_equal(kv_take(&o->session.kv, &slot, e), FAK_OK);
    o->g = (generation){.prompt = o->prompt, .prompt_count = PROMPT, .max_new = NEW};
    return session_generate(&o->session, slot, &o->g, e);
}

static void close_all(opened *o)
{
    token_ids_free(&o->g.ids);
    session_close(&o->session);
    toy_free(&o->toy);
    backend_close(&o->backend);
}

/* A NaN as weight 5 of a norm, which is used where it lies. */
static const char *poison(opened *o, enum model_role role, uint32_t layer)
{
    uint32_t index = model_weight(&o->toy.m, role, layer);
    ((float *)(uintptr_t)toy_rows(&o->toy, index))[5] = NAN;
    return o->toy.m.weights.at[index].name;
}

static void test_the_op_is_named(void **state)
{
    static const struct {
        enum model_role role;
        uint32_t layer;
        const char *where;
    } at[] = {{MODEL_ATTN_NORM, 0, "layer 0"},
              {MODEL_FFN_NORM, 1, "layer 1"},
              {MODEL_OUT_NORM, 0, "outside layers"}};
    (void)state;
    for (uint32_t i = 0; i < 2 * sizeof at / sizeof *at; i++) {
        opened o;
        fak_error e;
        char part[120];
        open_all(&o, i % 2 ? "refuser" : "cpu-ref", i % 2 ? "fused=1 refuse=att" : NULL);
        snprintf(part, sizeof part, "(rmsnorm, %s; %s), row 0, column 5", at[i / 2].where,
                 poison(&o, at[i / 2].role, at[i / 2].layer));
        assert_int_equal(generate(&o, &e), STATUS_NAN);
        assert_int_equal(trace_nan(&o.session, &o.backend.host, &o.g, &e), STATUS_NAN);
        assert_message(&e, part);
        assert_int_equal(e.code, STATUS_NAN);
        close_all(&o);
    }
}

/* All of the ids are fed again: nothing is found, and it is the backend. */
static void test_the_backend_is_at_fault(void **state)
{
    opened o;
    fak_error e;
    (void)state;
    open_all(&o, "refuser", NULL);
    assert_int_equal(generate(&o, &e), FAK_OK);
    assert_int_equal(trace_nan(&o.session, &o.backend.host, &o.g, &e), STATUS_NAN);
    assert_message(&e, "the reference has none: backend refuser is at fault");
    o.session.program.limits.numerics = FAK_ACT_F16; /* which the reference does not have */
    assert_int_equal(trace_nan(&o.session, &o.backend.host, &o.g, &e), STATUS_NAN);
    assert_message(&e, "the reference has none: backend refuser is at fault");
    close_all(&o);
}

/* What cannot be traced is a NaN all the same. */
static void test_what_cannot_be_traced(void **state)
{
    opened o;
    fak_error e;
    (void)state;
    open_all(&o, "cpu-ref", NULL);
    poison(&o, MODEL_OUT_NORM, 0);
    assert_int_equal(generate(&o, &e), STATUS_NAN);
    o.session.program.limits.context = golden_shape.context + 1;
    assert_int_equal(trace_nan(&o.session, &o.backend.host, &o.g, &e), STATUS_NAN);
    assert_message(&e, "the logits hold a NaN, and cannot be traced: a context of 33");
    close_all(&o);
}

static int after(void *self)
{
    uint32_t *left = self;
    return !*left || !--*left;
}

/* Between the steps of the prompt, and between those of the ids. */
static void test_stopped(void **state)
{
    opened o;
    fak_error e;
    (void)state;
    open_all(&o, "cpu-ref", NULL);
    assert_int_equal(generate(&o, &e), FAK_OK);
    o.session.stop = after;
    for (uint32_t n = 1; n < 1 + NEW; n++) {
        uint32_t left = n;
        o.session.stop_self = &left;
        assert_int_equal(trace_nan(&o.session, &o.backend.host, &o.g, &e), FAK_E_CANCELLED);
        assert_message(&e, "stopped");
    }
    close_all(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_op_is_named),
        cmocka_unit_test(test_the_backend_is_at_fault),
        cmocka_unit_test(test_what_cannot_be_traced),
        cmocka_unit_test(test_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
