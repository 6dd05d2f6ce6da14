/* plan_check: every way to be wrong with its sentence; random damage; text keeps what passes. */
#include "support.h"

#include "../core/fuse.h"
#include "../core/plan_check.h"
#include "../core/plan_text.h"

#include <inttypes.h>
#include <math.h>

#define NONE FAK_NO_INDEX
#define ANY 0xfffffffeu

/* ---- one word changed ---- */

enum where { HEAD, VALUE, OP, REPEAT, TAIL };
enum how { SET, ADD };

typedef struct mutation {
    enum where where;
    uint32_t index;
    size_t field;
    enum how how;
    uint32_t n;
} mutation;

static uint32_t *word_of(fak_plan *p, const mutation *m)
{
    const fak_array *array[] = {NULL, &p->values, &p->ops, &p->repeats, &p->tails};
    const fak_array *a = array[m->where];
    if (a) assert_true(m->index < a->count);
    return (uint32_t *)(void *)((char *)p + (a ? a->offset + m->index * a->stride : 0) + m->field);
}

/* A block in memory of exactly its size. */
static fak_plan *copy(const fak_plan *p, size_t bytes)
{
    fak_plan *q = malloc(bytes ? bytes : 1);
    assert_non_null(q);
    memcpy(q, p, bytes);
    return q;
}

/* Refused; the sentence has `part`; index: FAK_NO_INDEX for none, the op or value, or ANY. */
static void assert_refused(const fak_plan *good, const mutation *m, const char *part,
                           uint32_t index)
{
    fak_plan *p = copy(good, good->bytes);
    fak_error e = {0};
    uint32_t *word = word_of(p, m), was = *word;
    *word = m->how == SET ? m->n : *word + m->n;
    assert_int_not_equal(*word, was);
    if (!plan_check(p, good->bytes, &e))
        fail_msg("taken: word %zu of %d %u; \"%s\" was expected", m->field, (int)m->where,
                 (unsigned)m->index, part);
    assert_message(&e, part);
    assert_int_equal(e.code, FAK_E_ARGUMENT);
    if (index != ANY) assert_int_equal(e.index, index);
    free(p);
}

#define H(field) HEAD, 0, offsetof(fak_plan, field)
#define V(i, field) VALUE, i, offsetof(fak_value, field)
#define O(i, field) OP, i, offsetof(fak_op, field)
#define R(field) REPEAT, 0, offsetof(fak_repeat, field)
#define T(i, field) TAIL, i, offsetof(fak_tail, field)

enum { /* ops of tiny-f32.gguf; layer 1 begins at 16 */
       EMBED,
       NORM,
       Q,
       K,
       VALUES,
       ROPE,
       APPEND,
       ATTEND,
       OUT,
       ADDED,
       FFN_NORM,
       GATE,
       UP,
       GLU,
       DOWN,
       LAST,
       TAKE = 31,
       TAIL_NORM,
       LOGITS,
       TAKE_2,
       TAIL_NORM_2,
       LOGITS_2,
       ARGMAX,
       OPS
};
enum { /* and some values */
       V_ROPE = 1,
       V_EMBED,
       V_OUT_NORM,
       V_X,
       V_NORM_W,
       V_N,
       V_Q_W,
       V_Q,
       V_K_W,
       V_K,
       V_V_W,
       V_V,
       V_Q_TURNED,
       V_X_MID = 17,
       V_GATE = 21,
       V_NEXT = 27,
       V_LAST = 50,
       V_Y,
       V_Y_NORM,
       V_LOGITS,
       V_IDS = 57,
       VALUE_COUNT
};

static const struct {
    mutation m;
    const char *sentence;
    uint32_t index;
} faults[] = {
    /* clang-format off */
    {{H(struct_size), SET, 60},                "the block is shorter than it says", NONE},
    {{H(struct_size), SET, 0},                 "the block is shorter than it says", NONE},
    {{H(struct_size), SET, 0xffffffff},        "the block is shorter than it says", NONE},
    {{H(bytes), ADD, 4},                       "the block is shorter than it says", NONE},
    {{H(bytes), SET, 60},                      "the block is shorter than it says", NONE},
    {{H(bytes), ADD, 0u - 4},                  "an array lies outside the block", NONE},
    {{H(values.offset), ADD, 2},               "an array lies outside the block", NONE},
    {{H(values.offset), SET, 0xfffffffc},      "an array lies outside the block", NONE},
    {{H(values.stride), SET, 44},              "an array lies outside the block", NONE},
    {{H(values.stride), SET, 50},              "an array lies outside the block", NONE},
    {{H(values.stride), SET, 0},               "an array lies outside the block", NONE},
    {{H(values.count), SET, 0xffffffff},       "an array lies outside the block", NONE},
    {{H(ops.offset), SET, 0x80000000},         "an array lies outside the block", NONE},
    {{H(ops.count), ADD, 1},                   "an array lies outside the block", NONE},
    {{H(ops.stride), SET, 92},                 "an array lies outside the block", NONE},
    {{H(repeats.count), SET, 1u << 28},        "an array lies outside the block", NONE},
    {{H(repeats.stride), SET, 12},             "an array lies outside the block", NONE},
    {{H(tails.count), ADD, 1},                 "an array lies outside the block", NONE},
    {{H(tails.offset), ADD, 4},                "an array lies outside the block", NONE},
    {{H(tails.stride), SET, 20},               "an array lies outside the block", NONE},
    {{H(body_ops), SET, OPS + 1},              "body longer than the ops", NONE},
    {{H(body_ops), SET, 0xffffffff},           "body longer than the ops", NONE},

    {{V(0, kind), SET, FAK_ACT},               "value 0 is used", 0},
    {{V(0, kind), SET, 99},                    "value 0 is used", 0},
    {{V(V_X, kind), SET, 5},                   "a value of unknown kind", V_X},
    {{V(V_X, kind), SET, 0xffffffff},          "a value of unknown kind", V_X},
    {{V(V_EMBED, dtype), SET, 0},              "a value of unknown dtype", V_EMBED},
    {{V(V_EMBED, dtype), SET, 32},             "a value of unknown dtype", V_EMBED},
    {{V(V_EMBED, layout), SET, 1},             "a value of unknown layout", V_EMBED},
    {{V(V_EMBED, rows), SET, 0},               "a value without rows or columns", V_EMBED},
    {{V(V_N, cols), SET, 0},                   "a value without rows or columns", V_N},
    {{V(V_EMBED, rows), SET, FAK_STEP_ROWS},   "a weight whose rows follow the step", V_EMBED},
    {{V(V_ROPE, rows), SET, FAK_WANTED_ROWS},  "a weight whose rows follow the step", V_ROPE},
    {{V(V_X, rows), SET, 7},                   "an activation of fixed rows", V_X},
    {{V(V_IDS, rows), SET, 1},                 "an activation of fixed rows", V_IDS},
    {{V(V_EMBED, kind), SET, FAK_ACT},         "an activation of fixed rows", V_EMBED},
    {{V(V_X, kind), SET, FAK_WEIGHT},          "a weight whose rows follow the step", V_X},

    {{O(NORM, id), SET, 0},                    "an op of unknown id", NORM},
    {{O(NORM, id), SET, 14},                   "an op of unknown id", NORM},
    {{O(NORM, id), SET, FAK_OP_ALLREDUCE_SUM}, "an op of unknown id", NORM},
    {{O(NORM, revision), SET, 0},              "an op of unknown revision", NORM},
    {{O(NORM, revision), SET, 2},              "an op of unknown revision", NORM},
    {{O(NORM, layer), SET, 2},                 "an op of a layer that is not there", NORM},
    {{O(APPEND, layer), SET, NONE},            "an op of a layer that is not there", APPEND},
    {{O(ATTEND, layer), SET, NONE},            "an op of a layer that is not there", ATTEND},
    {{H(layers), SET, 1},                      "an op of a layer that is not there", 16},

    {{O(NORM, heads), SET, 4},                 "a parameter that it does not read", NORM},
    {{O(Q, kv_heads), SET, 1},                 "a parameter that it does not read", Q},
    {{O(Q, head_dim), SET, 1},                 "a parameter that it does not read", Q},
    {{O(ATTEND, rot_dim), SET, 2},             "a parameter that it does not read", ATTEND},
    {{O(ROPE, window), SET, 2},                "a parameter that it does not read", ROPE},
    {{O(GLU, group), SET, 2},                  "a parameter that it does not read", GLU},
    {{O(ADDED, act), SET, 1},                  "a parameter that it does not read", ADDED},
    {{O(EMBED, eps), SET, 0x3f800000},         "a parameter that it does not read", EMBED},
    {{O(NORM, scale), SET, 0x3f800000},        "a parameter that it does not read", NORM},
    {{O(TAKE, softcap), SET, 0x80000000},      "a parameter that it does not read", TAKE},
    {{O(ROPE, heads), SET, 0},                 "an op with impossible heads", ROPE},
    {{O(ROPE, head_dim), SET, 0},              "an op with impossible heads", ROPE},
    {{O(APPEND, kv_heads), SET, 0},            "an op with impossible heads", APPEND},
    {{O(APPEND, head_dim), SET, 0},            "an op with impossible heads", APPEND},
    {{O(ATTEND, kv_heads), SET, 3},            "an op with impossible heads", ATTEND},
    {{O(ATTEND, head_dim), SET, 0},            "an op with impossible heads", ATTEND},
    {{O(ROPE, rot_dim), SET, 18},              "an op with impossible rotary dimensions", ROPE},
    {{O(APPEND, rot_dim), SET, 15},            "an op with impossible rotary dimensions", APPEND},
    {{O(GLU, act), SET, 2},                    "an op of unknown activation", GLU},

    {{O(NORM, in[0]), SET, 0},                 "an op with a wrong input", NORM},
    {{O(NORM, in[1]), SET, 0},                 "an op with a wrong input", NORM},
    {{O(NORM, in[0]), SET, VALUE_COUNT},       "an op with a wrong input", NORM},
    {{O(NORM, in[1]), SET, 0xffffffff},        "an op with a wrong input", NORM},
    {{O(NORM, in[2]), SET, V_X},               "an op with a wrong input", NORM},
    {{O(NORM, in[7]), SET, V_X},               "an op with a wrong input", NORM},
    {{O(NORM, in[0]), SET, V_X_MID},           "an op reads what is not written yet", NORM},
    {{O(NORM, in[0]), SET, V_N},               "an op reads what is not written yet", NORM},
    {{O(TAKE_2, in[0]), SET, V_Y},             "an op reads what is not written yet", TAKE_2},
    {{O(LOGITS_2, in[0]), SET, V_Y_NORM},      "an op reads what is not written yet", LOGITS_2},
    {{O(NORM, out[0]), SET, 0},                "an op with a wrong output", NORM},
    {{O(NORM, out[0]), SET, V_X},              "an op with a wrong output", NORM},
    {{O(NORM, out[0]), SET, V_Q_W},            "an op with a wrong output", NORM},
    {{O(NORM, out[0]), SET, VALUE_COUNT},      "an op with a wrong output", NORM},
    {{O(NORM, out[1]), SET, V_Q},              "an op with a wrong output", NORM},
    {{O(APPEND, out[0]), SET, V_Q_TURNED + 1}, "an op with a wrong output", APPEND},
    {{O(Q, out[0]), SET, V_N},                 "an op with a wrong output", Q},

    {{O(EMBED, in[0]), SET, V_ROPE},           "an op whose operands' shapes disagree", EMBED},
    {{O(EMBED, out[0]), SET, V_GATE},          "an op whose operands' shapes disagree", EMBED},
    {{O(NORM, in[1]), SET, V_Q_W},             "an op whose operands' shapes disagree", NORM},
    {{O(NORM, group), SET, 16},                "an op whose operands' shapes disagree", NORM},
    {{O(Q, in[1]), SET, V_ROPE},               "an op whose operands' shapes disagree", Q},
    {{O(Q, in[1]), SET, V_K_W},                "an op whose operands' shapes disagree", Q},
    {{O(Q, in[1]), SET, V_N},                  "an op whose operands' shapes disagree", Q},
    {{O(ROPE, heads), SET, 5},                 "an op whose operands' shapes disagree", ROPE},
    {{O(ROPE, rot_dim), SET, 8},               "an op whose operands' shapes disagree", ROPE},
    {{O(ROPE, in[1]), SET, V_EMBED},           "an op whose operands' shapes disagree", ROPE},
    {{O(ROPE, heads), SET, 0x10000004},        "an op whose operands' shapes disagree", ROPE},
    {{O(APPEND, in[0]), SET, V_Q},             "an op whose operands' shapes disagree", APPEND},
    {{O(APPEND, in[1]), SET, V_Q},             "an op whose operands' shapes disagree", APPEND},
    {{O(APPEND, in[2]), SET, V_EMBED},         "an op whose operands' shapes disagree", APPEND},
    {{O(APPEND, rot_dim), SET, 4},             "an op whose operands' shapes disagree", APPEND},
    {{O(APPEND, kv_heads), SET, 1},            "an op whose operands' shapes disagree", APPEND},
    {{O(ATTEND, in[0]), SET, V_K},             "an op whose operands' shapes disagree", ATTEND},
    {{O(ATTEND, head_dim), SET, 17},           "an op whose operands' shapes disagree", ATTEND},
    {{O(GLU, in[1]), SET, V_N},                "an op whose operands' shapes disagree", GLU},
    {{O(ADDED, in[0]), SET, V_Q_W},            "an op whose operands' shapes disagree", ADDED},
    {{O(ADDED, in[0]), SET, V_K},              "an op whose operands' shapes disagree", ADDED},
    {{O(TAKE, in[0]), SET, V_K},               "an op whose operands' shapes disagree", TAKE},
    {{O(TAIL_NORM, in[0]), SET, V_LAST},       "an op whose operands' shapes disagree", TAIL_NORM},
    {{V(V_IDS, cols), SET, 2},                 "an op whose operands' shapes disagree", ARGMAX},
    {{V(V_LOGITS, rows), SET, FAK_STEP_ROWS},  "an op whose operands' shapes disagree", LOGITS},
    {{V(V_ROPE, kind), SET, FAK_WEIGHT},       "an op whose operands' shapes disagree", ROPE},
    {{V(V_Q_W, kind), SET, FAK_CONST},         "an op whose operands' shapes disagree", Q},

    {{T(0, want), SET, FAK_WANT_NONE},         "a tail outside the ops", NONE},
    {{T(0, want), SET, 3},                     "a tail outside the ops", NONE},
    {{T(0, first), SET, TAKE + 1},             "a tail outside the ops", NONE},
    {{T(0, first), SET, TAKE - 1},             "a tail outside the ops", NONE},
    {{T(0, ops), SET, 0},                      "a tail outside the ops", NONE},
    {{T(1, ops), SET, 5},                      "a tail outside the ops", NONE},
    {{T(1, ops), SET, 0xffffffff},             "a tail outside the ops", NONE},
    {{T(0, ops), SET, 2},                      "a tail without its output", V_LOGITS},
    {{T(0, out), SET, 0},                      "a tail without its output", 0},
    {{T(0, out), SET, V_Y},                    "a tail without its output", V_Y},
    {{T(0, out), SET, V_IDS},                  "a tail without its output", V_IDS},
    {{T(1, out), SET, V_LOGITS},               "a tail without its output", V_LOGITS},
    {{T(1, out), SET, VALUE_COUNT},            "a tail without its output", VALUE_COUNT},
    {{V(V_LOGITS, kind), SET, FAK_ACT},        "a tail without its output", V_LOGITS},
    {{T(1, ops), SET, 3},                      "a tail without its output", V_IDS},
    {{H(tails.count), SET, 1},                 "ops that no tail runs", NONE},
    {{H(tails.count), SET, 0},                 "ops that no tail runs", NONE},

    {{R(ops), SET, 0},                         "a repeat outside the body", 1},
    {{R(times), SET, 0},                       "a repeat outside the body", 1},
    {{R(times), SET, 1},                       "a repeat outside the body", 1},
    {{R(times), SET, 3},                       "a repeat outside the body", 1},
    {{R(first), SET, 2},                       "a repeat outside the body", 2},
    {{R(first), SET, 0xffffffff},              "a repeat outside the body", NONE},
    {{R(ops), SET, 0x80000001},                "a repeat outside the body", 1},
    {{R(stride), SET, 22},                     "a repeated op with another input", 16},
    {{R(stride), SET, 0},                      "a repeated op with another input", 16},
    {{R(first), SET, 0},                       "a repeated op with another input", 15},
    {{O(16 + ADDED - 1, in[1]), SET, V_N + 23}, "a repeated op with another input", 16 + ADDED - 1},
    {{O(16 + OUT - 1, in[0]), SET, V_N + 23},  "a repeated op with another input", 16 + OUT - 1},
    {{O(16 + NORM - 1, eps), SET, 0x3f000000}, "a repeated op that differs", 16 + NORM - 1},
    {{O(16 + GLU - 1, act), SET, FAK_GELU_TANH}, "a repeated op that differs", 16 + GLU - 1},
    {{O(16 + ATTEND - 1, window), SET, 5},     "a repeated op that differs", 16 + ATTEND - 1},
    {{R(ops), SET, 14},                        "a repeated op ", 15},
    /* clang-format on */
};

static void test_faults(void **state)
{
    tiny t;
    (void)state;
    tiny_open(&t, "tiny-f32.gguf");
    assert_int_equal(t.plan.block->ops.count, OPS);
    assert_int_equal(t.plan.block->values.count, VALUE_COUNT);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        assert_refused(t.plan.block, &faults[i].m, faults[i].sentence, faults[i].index);
    tiny_close(&t);
}

/* With three turns the constant of the layers shows. */
static void test_layer_rises(void **state)
{
    tiny t;
    (void)state;
    tiny_open(&t, "tiny-untied.gguf");
    mutation m = {O(31 + ATTEND - 1, layer), SET, 1};
    assert_refused(t.plan.block, &m, "a repeated op that differs", 31 + ATTEND - 1);
    tiny_close(&t);
}

/* What stands in fused ops and in core ops that no tiny model has. */
static void test_other_ops(void **state)
{
    plan p;
    uint32_t seen = 0;
    (void)state;
    full_plan(&p);
    fak_error e = {0};
    if (plan_check(p.block, p.block->bytes, &e)) fail_msg("%s", e.message);
    for (uint32_t i = 0; i < p.block->ops.count; i++) {
        fak_op o = plan_op(p.block, i);
        const op_info *info = ops_find(o.id);
        mutation m = {O(i, in[0]), SET, 0};
        assert_refused(p.block, &m, "an op with a wrong input", i);
        m = (mutation){O(i, in[info->inputs]), SET, 1};
        assert_refused(p.block, &m, "an op with a wrong input", i);
        m = (mutation){O(i, in[info->required - 1]), SET, 0};
        assert_refused(p.block, &m, "an op with a wrong input", i);
        if (o.id == FAK_OP_ADD_BIAS || o.id == FAK_OP_NORM_MATMUL || o.id == FAK_OP_MATMUL_ADD ||
            o.id == FAK_OP_FFN || o.id == FAK_OP_NORM_MATMUL_GLU || o.id == FAK_OP_MATMUL_ARGMAX ||
            o.id == FAK_OP_GLU_MATMUL_ADD || o.id == FAK_OP_ROPE_APPEND) {
            m = (mutation){O(i, in[info->required - 1]), SET,
                           V_ROPE}; /* the table: no such shape */
            if (o.id == FAK_OP_ROPE_APPEND) m = (mutation){O(i, in[3]), SET, V_EMBED};
            assert_refused(p.block, &m, "an op whose operands' shapes disagree", i);
            seen++;
        }
        if (info->outputs) {
            m = (mutation){O(i, out[0]), SET, 0};
            assert_refused(p.block, &m, "an op with a wrong output", i);
        }
    }
    assert_true(seen >= 8);
    plan_free(&p);
}

/* Every shorter piece of a block, in memory of its size. */
static void test_truncations(void **state)
{
    plan p;
    (void)state;
    full_plan(&p);
    for (uint32_t bytes = 0; bytes < p.block->bytes; bytes++) {
        fak_plan *q = copy(p.block, bytes);
        fak_error e = {0};
        assert_int_equal(plan_check(q, bytes, &e), FAK_E_ARGUMENT);
        assert_message(&e, "the block is shorter than it says");
        free(q);
    }
    plan_free(&p);
}

/* A block of a newer minor: longer head and elements, the arrays in another order, a gap. */
static void test_grown(void **state)
{
    plan p;
    fak_error e = {0};
    (void)state;
    full_plan(&p);
    const fak_plan *old = p.block;
    uint32_t room = 2 * old->bytes + 64, at = sizeof *old + 8;
    uint8_t *block = calloc(1, room);
    assert_non_null(block);
    fak_plan head = *old;
    const fak_array *from[] = {&old->tails, &old->repeats, &old->ops, &old->values};
    fak_array *to[] = {&head.tails, &head.repeats, &head.ops, &head.values};
    for (int a = 0; a < 4; a++) {
        *to[a] = (fak_array){at, from[a]->count, from[a]->stride + 8};
        for (uint32_t i = 0; i < from[a]->count; i++)
            memcpy(block + at + i * to[a]->stride,
                   (const uint8_t *)old + from[a]->offset + i * from[a]->stride, from[a]->stride);
        at += to[a]->count * to[a]->stride + 4;
    }
    head.struct_size = sizeof head + 8;
    head.bytes = at;
    memcpy(block, &head, sizeof head);
    fak_plan *grown = (fak_plan *)(void *)block;
    if (plan_check(grown, at, &e)) fail_msg("%s", e.message);
    for (uint32_t i = 0; i < old->ops.count; i++) {
        fak_op a = plan_op(old, i), b = plan_op(grown, i);
        assert_memory_equal(&a, &b, sizeof a);
    }
    free(block);
    plan_free(&p);
}

/* ---- what the header forbids, in any words ---- */

static const mutation forbidden[] = {
    /* clang-format off */
    {V(0, cols), SET, 1},                      /* value 0 is UNUSED: nothing is in it */
    {V(V_Q_W, kind), SET, FAK_UNUSED},         /* likewise, were it not read */
    {V(V_N, dtype), SET, FAK_F16},             /* activations, constants are F32 */
    {V(V_LOGITS, dtype), SET, FAK_BF16},
    {V(V_ROPE, dtype), SET, FAK_F16},
    {V(V_X, rows), SET, 0xffffffff},
    {V(V_EMBED, quant_act_scale), SET, 0x7fc00001}, /* no number: it has no text either */
    {O(TAIL_NORM, eps), SET, 0x7fc00001},
    {O(TAIL_NORM, eps), SET, 0xff800000},
    {H(struct_size), SET, 68},                 /* the head would lie over the values */
    {H(repeats.offset), SET, 0},
    {T(1, want), SET, FAK_WANT_LOGITS},        /* two tails of one want */
    {O(16 + Q - 1, in[0]), SET, V_N},          /* turn 1 reads what turn 0 wrote for itself */
    {O(16 + ATTEND - 1, layer), SET, 0},       /* layer rises by one constant */
    {O(TAKE, in[0]), SET, V_NEXT},             /* outside only the last turn is read */
    /* clang-format on */
};

static void test_forbidden(void **state)
{
    tiny t;
    (void)state;
    tiny_open(&t, "tiny-f32.gguf");
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++)
        assert_refused(t.plan.block, &forbidden[i], "plan: ", ANY);
    tiny_close(&t);
}

static void test_no_numbers(void **state)
{
    plan p;
    uint32_t read = 0;
    (void)state;
    full_plan(&p);
    for (uint32_t i = 0; i < p.block->ops.count; i++)
        for (uint32_t j = 0; j < OP_PARAMS; j++) {
            mutation m = {OP, i, op_params[j].offset, SET, j % 2 ? 0x7f800000 : 0xffc00000};
            const op_info *info = ops_find(plan_op(p.block, i).id);
            if (!op_params[j].is_float || !(info->params >> j & 1)) continue;
            assert_refused(p.block, &m, "plan: ", ANY);
            read |= 1u << j;
        }
    assert_int_equal(__builtin_popcount(read), 3);
    plan_free(&p);
}

/* An input is the same id in all turns, or a weight's further on in all turns: not by turns. */
static void test_weights_by_turns(void **state)
{
    tiny t;
    (void)state;
    tiny_open(&t, "tiny-untied.gguf");
    fak_op o = plan_op(t.plan.block, Q);
    mutation second = {O(Q + 15, in[1]), SET, o.in[1]}, third = {O(Q + 30, in[1]), SET, o.in[1]};
    assert_refused(t.plan.block, &second, "a repeated op with another input", ANY);
    assert_refused(t.plan.block, &third, "a repeated op with another input", Q + 30);
    tiny_close(&t);
}

/* A stacked weight has one dtype. */
static void test_weights_unlike(void **state)
{
    tiny t;
    (void)state;
    tiny_open(&t, "tiny-untied.gguf");
    mutation m = {V(plan_op(t.plan.block, Q + 15).in[1], dtype), SET, FAK_F16};
    assert_refused(t.plan.block, &m, "plan: ", ANY);
    tiny_close(&t);
}

/* NORM_MATMUL has an output for each weight, and none left out between. */
static void test_optional_operands(void **state)
{
    plan p;
    uint32_t i = 0;
    (void)state;
    full_plan(&p);
    while (plan_op(p.block, i).id != FAK_OP_NORM_MATMUL) i++;
    fak_op o = plan_op(p.block, i);
    assert_true(o.in[4] && o.out[2]);
    const mutation wrong[] = {{O(i, in[3]), SET, 0},
                              {O(i, in[4]), SET, 0},
                              {O(i, out[1]), SET, 0},
                              {O(i, out[2]), SET, 0}};
    for (int k = 0; k < 4; k++) assert_refused(p.block, &wrong[k], "plan: ", ANY);
    plan_free(&p);
}

/* kv is of the rows of the step; and of activations. */
static void test_kv_rows(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        plan_draft d;
        plan p;
        fak_error e = {0};
        draft_begin(&d);
        d.layers = 1;
        uint32_t table = draft_value(&d, FAK_CONST, 8, 16), w = draft_value(&d, FAK_WEIGHT, 9, 32);
        uint32_t x = DRAFT(&d, NONE, .id = FAK_OP_EMBED, .in = {w});
        d.body_ops = way == 1 || way == 3 ? 1 : 0;
        if (d.body_ops) x = DRAFT(&d, NONE, .id = FAK_OP_TAKE_ROWS, .in = {x});
        if (way == 2) x = w;
        if (way < 3)
            DRAFT(&d, 0, .id = FAK_OP_KV_APPEND, .in = {x, x, table}, .kv_heads = 2, .head_dim = 16,
                  .rot_dim = 16);
        uint32_t y = way == 2 ? 3 : x;
        if (way != 1)
            y = DRAFT(&d, 0, .id = FAK_OP_ATTENTION, .in = {y}, .heads = 2, .kv_heads = 1,
                      .head_dim = 16, .scale = 1);
        if (d.body_ops)
            draft_tail(&d, FAK_WANT_LOGITS, 1, y);
        else
            d.body_ops = d.ops;
        draft_pack(&p, &d);
        int32_t s = plan_check(p.block, p.block->bytes, &e);
        if (way == 0 && s) fail_msg("%s", e.message); /* the plan that the others differ from */
        if (way && !s) fail_msg("way %d is taken", way);
        plan_free(&p);
    }
}

/* ---- random damage ---- */

static void assert_same_content(const fak_plan *a, const fak_plan *b)
{
    assert_int_equal(a->body_ops, b->body_ops);
    assert_int_equal(a->layers, b->layers);
    assert_int_equal(a->values.count, b->values.count);
    assert_int_equal(a->ops.count, b->ops.count);
    assert_int_equal(a->repeats.count, b->repeats.count);
    assert_int_equal(a->tails.count, b->tails.count);
    for (uint32_t i = 0; i < a->values.count; i++) {
        fak_value x = plan_value(a, i), y = plan_value(b, i);
        assert_memory_equal(&x, &y, sizeof x);
    }
    for (uint32_t i = 0; i < a->ops.count; i++) {
        fak_op x = plan_op(a, i), y = plan_op(b, i);
        assert_memory_equal(&x, &y, sizeof x);
    }
    for (uint32_t i = 0; i < a->repeats.count; i++) {
        fak_repeat x = plan_repeat(a, i), y = plan_repeat(b, i);
        assert_memory_equal(&x, &y, sizeof x);
    }
    for (uint32_t i = 0; i < a->tails.count; i++) {
        fak_tail x = plan_tail(a, i), y = plan_tail(b, i);
        assert_memory_equal(&x, &y, sizeof x);
    }
}

/* Printed and read again it is the same block: the same bytes where the head is as plan_pack lays
 * blocks out, else the same content. */
static void assert_survives(const fak_plan *p, const fak_plan *good)
{
    char *text = NULL;
    size_t bytes = 0;
    plan again;
    fak_error e = {0};
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    plan_print(p, out, 0, NULL, NULL);
    fclose(out);
    if (plan_read(&again, text, bytes, &e)) fail_msg("%s in:\n%s", e.message, text);
    assert_same_content(p, again.block);
    if (!memcmp(p, good, offsetof(fak_plan, body_ops)))
        assert_memory_equal(p, again.block, again.block->bytes);
    out = fopen("/dev/null", "w"); /* folding must not crash either */
    assert_non_null(out);
    plan_print(p, out, PLAN_FOLD, NULL, NULL);
    fclose(out);
    free(text);
    plan_free(&again);
}

static uint32_t random_word(uint64_t *random, const fak_plan *good, uint32_t was)
{
    const uint32_t *words = (const uint32_t *)(const void *)good;
    static const uint32_t special[] = {0,
                                       1,
                                       2,
                                       31,
                                       32,
                                       0x7fffffff,
                                       0x80000000,
                                       FAK_WANTED_ROWS,
                                       FAK_STEP_ROWS,
                                       0xffffffff,
                                       0x7fc00000,
                                       0x3f800000};
    switch (random_below(random, 5)) {
    case 0:
        return was + random_below(random, 9) - 4;
    case 1:
        return special[random_below(random, sizeof special / sizeof *special)];
    case 2:
        return words[random_below(random, good->bytes / 4)];
    case 3:
        return was ^ 1u << random_below(random, 32);
    default:
        return random_next(random) >> random_below(random, 32);
    }
}

/* Returns how many of the damaged blocks were taken. */
static int damage(const fak_plan *good, uint64_t *random, int times)
{
    int taken = 0;
    for (int n = 0; n < times; n++) {
        fak_plan *p = copy(good, good->bytes);
        fak_error e = {0};
        uint32_t at = random_below(random, n % 4 ? good->bytes / 4 : sizeof *p / 4);
        uint32_t *word = (uint32_t *)(void *)p + at;
        *word = random_word(random, good, *word);
        int32_t s = plan_check(p, good->bytes, &e);
        assert_true(s == FAK_OK || s == FAK_E_ARGUMENT);
        if (s)
            assert_message(&e, "plan: ");
        else
            assert_survives(p, good);
        taken += !s;
        free(p);
    }
    return taken;
}

static void test_damage(void **state)
{
    uint64_t random = random_begin();
    tiny t;
    plan fused, full;
    fuse_mask refused[64] = {0};
    fak_error e = {0};
    (void)state;
    tiny_open(&t, "tiny-untied.gguf");
    full_plan(&full);
    assert_int_equal(fuse_plan(&fused, &t.plan, ~0u, refused, &e), FAK_OK);
    const fak_plan *good[] = {t.plan.block, fused.block, full.block};
    for (int i = 0; i < 3; i++) {
        int taken = damage(good[i], &random, 2000);
        assert_true(taken > 0 && taken < 1000); /* most damage is seen; equal words are none */
    }
    plan_free(&full);
    plan_free(&fused);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),         cmocka_unit_test(test_layer_rises),
        cmocka_unit_test(test_other_ops),      cmocka_unit_test(test_truncations),
        cmocka_unit_test(test_grown),          cmocka_unit_test(test_forbidden),
        cmocka_unit_test(test_no_numbers),     cmocka_unit_test(test_weights_by_turns),
        cmocka_unit_test(test_weights_unlike), cmocka_unit_test(test_optional_operands),
        cmocka_unit_test(test_kv_rows),        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
