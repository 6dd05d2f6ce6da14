/* Plans as text: printed and read again they are the same block; bad text is named by its line. */
#include "support.h"

#include "../core/fuse.h"
#include "../core/plan_check.h"
#include "../core/plan_text.h"

#include <inttypes.h>

/* ---- print, read, compare ---- */

static char *print(const fak_plan *p, int flags, const char *(*name)(void *, uint32_t))
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    plan_print(p, out, flags, name, NULL);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(strlen(text), bytes);
    return text;
}

/* Reads from memory of exactly the text's size, without a 0 behind it. */
static int32_t read_text(plan *p, const char *text, size_t bytes, fak_error *e)
{
    char *exact = malloc(bytes ? bytes : 1);
    assert_non_null(exact);
    memcpy(exact, text, bytes);
    *e = (fak_error){0};
    int32_t s = plan_read(p, exact, bytes, e);
    free(exact);
    return s;
}

static void assert_round_trip(const fak_plan *p)
{
    char *text = print(p, 0, NULL);
    plan again;
    fak_error e;
    if (read_text(&again, text, strlen(text), &e)) fail_msg("%s in:\n%s", e.message, text);
    assert_int_equal(again.block->bytes, p->bytes);
    assert_memory_equal(again.block, p, p->bytes);
    assert_true(plan_hash(again.block) == plan_hash(p));
    for (uint32_t i = 0; i < p->values.count; i++) assert_int_equal(again.weight[i], FAK_NO_INDEX);
    for (uint32_t i = 0; i < p->ops.count; i++) assert_int_equal(again.origin[i], i);
    plan_free(&again);
    free(text);
}

static uint32_t count(const char *text, const char *part)
{
    uint32_t n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) n++;
    return n;
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("lacks \"%s\":\n%s", part, text);
}

static void fuse_all(plan *to, const plan *from)
{
    fuse_mask refused[64] = {0}, all = 0;
    fak_error e = {0};
    assert_true(from->block->ops.count <= 64);
    for (uint32_t r = 0; ops_row(r); r++) all |= ops_row(r)->parts ? 1u << r : 0;
    if (fuse_plan(to, from, all, refused, &e)) fail_msg("%s", e.message);
}

/* ---- there and back ---- */

static void test_tiny(void **state)
{
    (void)state;
    for (int i = 0; i < TINY_MODELS; i++) {
        tiny t;
        plan fused;
        tiny_open(&t, tiny_names[i]);
        assert_round_trip(t.plan.block);
        fuse_all(&fused, &t.plan);
        assert_true(fused.block->ops.count < t.plan.block->ops.count);
        assert_round_trip(fused.block);
        plan_free(&fused);
        tiny_close(&t);
    }
}

/* The plan made by hand has every op, and every parameter and field that plan_check takes. */
static void test_full_is_full(void **state)
{
    plan p;
    fak_op some = {0};
    fak_value any = {0};
    uint32_t *words = (uint32_t *)(void *)&some, *fields = (uint32_t *)(void *)&any;
    uint8_t seen[128] = {0};
    (void)state;
    full_plan(&p);
    for (uint32_t i = 0; i < p.block->ops.count; i++) {
        fak_op o = plan_op(p.block, i);
        assert_true(o.id < sizeof seen);
        seen[o.id] = 1;
        for (size_t k = 0; k < sizeof o / 4; k++) words[k] |= ((uint32_t *)(void *)&o)[k];
    }
    for (uint32_t i = 0; i < p.block->values.count; i++) {
        fak_value v = plan_value(p.block, i);
        for (size_t k = 0; k < sizeof v / 4; k++) fields[k] |= ((uint32_t *)(void *)&v)[k];
    }
    for (uint32_t r = 0; ops_row(r); r++)
        if (!seen[ops_row(r)->id]) fail_msg("no %s", ops_row(r)->name);
    for (uint32_t j = 0; j < OP_PARAMS; j++)
        if (!words[op_params[j].offset / 4]) fail_msg("no %s", op_params[j].name);
    for (size_t k = 0; k < sizeof any / 4; k++)
        if (k != offsetof(fak_value, layout) / 4 && !fields[k]) fail_msg("no field %zu", k);
    assert_int_equal(p.block->repeats.count, 1);
    assert_int_equal(p.block->tails.count, 2);
    plan_free(&p);
}

static void test_full(void **state)
{
    plan p;
    (void)state;
    full_plan(&p);
    assert_round_trip(p.block);
    char *text = print(p.block, 0, NULL);
    for (uint32_t r = 0; ops_row(r); r++) {
        char name[40];
        snprintf(name, sizeof name, " %s in ", ops_row(r)->name);
        if (!strstr(text, name)) snprintf(name, sizeof name, " %s layer ", ops_row(r)->name);
        assert_has(text, name);
    }
    free(text);
    plan_free(&p);
}

/* Floats come back to the bit: all of them that a number may have, in a field of each kind. */
static void test_floats(void **state)
{
    uint64_t random = random_begin();
    plan p;
    (void)state;
    full_plan(&p);
    float *act_scale = NULL, *scale = NULL;
    for (uint32_t i = 0; i < p.block->values.count; i++) {
        fak_value *v = (fak_value *)(uintptr_t)FAK_AT(p.block, values) + i;
        if (v->quant_act_scale != 0) act_scale = &v->quant_act_scale;
    }
    for (uint32_t i = 0; i < p.block->ops.count; i++) {
        fak_op *o = (fak_op *)(uintptr_t)FAK_AT(p.block, ops) + i;
        if (o->id == FAK_OP_ATTENTION) scale = &o->scale;
    }
    assert_true(act_scale && scale);
    static const uint32_t special[] = {1,          0x80000000, 0x007fffff, 0x00800000,
                                       0x7f7fffff, 0xff7fffff, 0x3f800001, 0x80000001};
    for (int n = 0; n < 500; n++) {
        uint32_t bits = n < 8 ? special[n] : random_next(&random);
        if ((bits & 0x7f800000) == 0x7f800000) continue;
        memcpy(scale, &bits, 4);
        bits = bits * 2654435761u & 0xbfffffffu;
        memcpy(act_scale, &bits, 4);
        assert_round_trip(p.block);
    }
    plan_free(&p);
}

/* What plan_check does not take is printed all the same, and refused when it is read. */
static void test_not_taken(void **state)
{
    plan p, again;
    fak_error e;
    (void)state;
    full_plan(&p);
    fak_value *v = (fak_value *)(uintptr_t)FAK_AT(p.block, values) + 3;
    fak_op *o = (fak_op *)(uintptr_t)FAK_AT(p.block, ops);
    v->layout = 3;
    char *text = print(p.block, 0, NULL);
    assert_has(text, " layout 3");
    assert_int_equal(read_text(&again, text, strlen(text), &e), FAK_E_ARGUMENT);
    assert_message(&e, "a value of unknown layout (3, 3)");
    assert_null(again.block);
    free(text);
    v->layout = 0;
    o->revision = 4294967295u;
    text = print(p.block, 0, NULL);
    assert_has(text, "op 0 embed revision 4294967295 in");
    assert_int_equal(read_text(&again, text, strlen(text), &e), FAK_E_ARGUMENT);
    assert_message(&e, "an op of unknown revision (0, 4294967295)");
    free(text);
    plan_free(&p);
}

/* A plan of several repeats, as many as there may be. */
static void test_many_repeats(void **state)
{
    plan_draft d;
    plan p;
    (void)state;
    draft_begin(&d);
    uint32_t w = draft_value(&d, FAK_WEIGHT, 9, 32);
    uint32_t x = DRAFT(&d, FAK_NO_INDEX, .id = FAK_OP_EMBED, .in = {w});
    for (int i = 0; i < 8; i++) {
        d.repeat[d.repeats++] = (fak_repeat){d.ops, 1, 2, 0};
        for (int t = 0; t < 2; t++)
            x = DRAFT(&d, FAK_NO_INDEX, .id = FAK_OP_SCALE, .in = {x}, .scale = 2);
    }
    d.body_ops = d.ops;
    draft_pack(&p, &d);
    assert_round_trip(p.block);
    char *text = print(p.block, PLAN_FOLD, NULL);
    assert_int_equal(count(text, "\nop "), 9);
    free(text);
    plan_free(&p);
}

static void test_smallest(void **state)
{
    plan p;
    fak_error e;
    const char *text = "plan values 1 body 0 layers 0";
    (void)state;
    if (read_text(&p, text, strlen(text), &e)) fail_msg("%s", e.message);
    assert_int_equal(p.block->ops.count, 0);
    assert_round_trip(p.block);
    plan_free(&p);
}

/* ---- for people ---- */

static const char *name_of(void *self, uint32_t id)
{
    (void)self;
    return id == 2 ? "token_embd.weight; op 7" : NULL;
}

/* Comments, blanks and empty lines mean nothing; names stand in comments. */
static void test_comments(void **state)
{
    tiny t;
    plan p;
    fak_error e;
    (void)state;
    tiny_open(&t, "tiny-f16.gguf");
    char *text = print(t.plan.block, 0, name_of);
    assert_int_equal(count(text, "token_embd.weight; op 7\n"), 1);
    assert_int_equal(read_text(&p, text, strlen(text), &e), FAK_OK);
    assert_memory_equal(p.block, t.plan.block, p.block->bytes);
    plan_free(&p);
    size_t room = 4 * strlen(text) + 64, n = 0;
    char *wide = malloc(room);
    assert_non_null(wide);
    n += (size_t)snprintf(wide, room, "; a comment\r\n\n \t \n");
    for (const char *c = text; *c; c++) {
        if (*c == '\n') n += (size_t)snprintf(wide + n, room - n, " ;;\r");
        if (*c == ' ') n += (size_t)snprintf(wide + n, room - n, "\t ");
        assert_true(n + 2 < room);
        wide[n++] = *c;
    }
    if (read_text(&p, wide, n, &e)) fail_msg("%s", e.message);
    assert_memory_equal(p.block, t.plan.block, p.block->bytes);
    plan_free(&p);
    free(wide);
    free(text);
    tiny_close(&t);
}

static void test_fold(void **state)
{
    tiny t;
    (void)state;
    tiny_open(&t, "tiny-untied.gguf");
    const fak_plan *p = t.plan.block;
    char *whole = print(p, 0, NULL), *folded = print(p, PLAN_FOLD, NULL);
    assert_int_equal(count(whole, "\nop "), p->ops.count);
    assert_int_equal(count(folded, "\nop "), p->ops.count - 2 * 15);
    assert_int_equal(count(whole, "\nvalue "), p->values.count - 1);
    /* of later turns only what the tails read, the last turn's output, is shown */
    assert_int_equal(count(folded, "\nvalue "), p->values.count - 1 - 2 * 23 + 1);
    assert_int_equal(count(folded, "; and so on"), 1);
    assert_int_equal(count(whole, "; and so on"), 0);
    assert_int_equal(count(folded, " attention "), 1);
    assert_has(folded, "repeat first 1 ops 15 times 3 stride 23\n");
    assert_has(folded, "plan values ");
    assert_int_equal(count(folded, "\ntail "), 2);
    for (char *line = strtok(folded, "\n"); line; line = strtok(NULL, "\n")) {
        char exact[256]; /* every line but the remark stands in the whole as well */
        snprintf(exact, sizeof exact, "%s\n", line);
        if (*line != ';') assert_has(whole, exact);
    }
    free(whole);
    free(folded);
    tiny_close(&t);
}

static void test_lines(void **state)
{
    static const char *const lines[] = {
        "plan values 58 body 31 layers 2\n",
        "\nvalue 1 const f32 128 16\n",
        "\nvalue 4 act f32 step 64\n",
        "\nvalue 57 out i32 wanted 1\n",
        "\nvalue 5 weight f32 1 64\n",
        "\nrepeat first 1 ops 15 times 2 stride 23\n",
        "\nop 0 embed in 2 out 4 ",
        "\nop 9 add layer 0 in 4 16 out 17 ",
        "\nop 6 kv_append layer 0 in 10 12 1 out kv_heads 2 head_dim 16 rot_dim 16 ",
        "\nop 1 rmsnorm layer 0 in 4 5 out 6 eps 9.99999975e-06 ",
        "\ntail logits first 31 ops 3 out 53\n",
        "\ntail argmax first 34 ops 4 out 57\n"};
    tiny t;
    (void)state;
    tiny_open(&t, "tiny-f32.gguf");
    char *text = print(t.plan.block, 0, NULL);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) assert_has(text, lines[i]);
    free(text);
    tiny_close(&t);
}

/* ---- bad text ---- */

#define HEADER "plan values 4 body 0 layers 1\n"
#define OP0 HEADER "op 0 "
#define EIGHT(x) x x x x x x x x

static const struct {
    const char *text, *sentence;
} faults[] = {
    /* clang-format off */
    {"frob",                            "plan, line 1: an unknown line: \"frob\""},
    {"; x\n\n \r\nfrob 1",              "plan, line 4: an unknown line: \"frob\""},
    {HEADER "ops 0",                    "plan, line 2: an unknown line: \"ops\""},
    {"0123456789012345678901234567890123456789XYZ",
     "line 1: an unknown line: \"0123456789012345678901234567890123456789\""},
    {"plan",                            "plan, line 1: expected the word: \"values\""},
    {"plan body 1",                     "line 1: expected the word: \"values\""},
    {"plan values 4 body 0",            "line 1: expected the word: \"layers\""},
    {"plan values",                     "line 1: not a number: \"\""},
    {"plan values x body 0 layers 0",   "line 1: not a number: \"x\""},
    {"plan values 1x body 0 layers 0",  "line 1: not a number: \"1x\""},
    {"plan values -1 body 0 layers 0",  "line 1: not a number: \"-1\""},
    {"plan values +1 body 0 layers 0",  "line 1: not a number: \"+1\""},
    {"plan values 1 body 4294967296 layers 0", "line 1: not a number: \"4294967296\""},
    {"plan values 1 body 99999999999999999999999 layers 0", "line 1: not a number: \"999"},
    {"plan values 0 body 0 layers 0",   "line 1: between 1 and 131072 values"},
    {"plan values 131073 body 0 layers 0", "line 1: between 1 and 131072 values"},
    {HEADER HEADER,                     "line 2: a second header"},

    {"value 1 act 1 step 64",           "line 1: a value beyond the header's count"},
    {HEADER "value 4 act 1 step 64",    "line 2: a value beyond the header's count"},
    {HEADER "value 4294967295 act 1 step 64", "line 2: a value beyond the header's count"},
    {HEADER "value",                    "line 2: not a number: \"\""},
    {HEADER "value x",                  "line 2: not a number: \"x\""},
    {HEADER "value 1",                  "line 2: an unknown word: \"\""},
    {HEADER "value 1 acts f32 step 64", "line 2: an unknown word: \"acts\""},
    {HEADER "value 1 act",              "line 2: not a number: \"\""},
    {HEADER "value 1 act f33 step 64",  "line 2: not a number: \"f33\""},
    {HEADER "value 1 act f32",          "line 2: not a number: \"\""},
    {HEADER "value 1 act f32 steps 64", "line 2: not a number: \"steps\""},
    {HEADER "value 1 act f32 step",     "line 2: not a number: \"\""},
    {HEADER "value 1 act f32 step x",   "line 2: not a number: \"x\""},
    {HEADER "value 1 act f32 step 64 quant 3", "line 2: an unknown field: \"quant\""},
    {HEADER "value 1 act f32 step 64 quant_bits", "line 2: not a number: \"\""},
    {HEADER "value 1 act f32 step 64 quant_bits 1.5", "line 2: not a number: \"1.5\""},
    {HEADER "value 1 act f32 step 64 quant_act_scale x", "line 2: not a number: \"x\""},
    {HEADER "value 1 act f32 step 64 quant_act_scale 1.5x", "line 2: not a number: \"1.5x\""},
    {HEADER "value 1 act f32 step 64 quant_act_scale", "line 2: not a number: \"\""},

    {HEADER "op",                       "line 2: not a number: \"\""},
    {HEADER "op x add",                 "line 2: not a number: \"x\""},
    {HEADER "op 0",                     "line 2: an unknown op: \"\""},
    {OP0 "addd in 1 2 out 3",           "line 2: an unknown op: \"addd\""},
    {HEADER "op 1 add in 1 2 out 3",    "line 2: an op out of order"},
    {OP0 "add in 1 2 out 3\nop 0 add in 1 2 out 3", "line 3: an op out of order"},
    {OP0 "add in 1 2 3 4 5 6 7 8 9",    "line 2: too many operands"},
    {OP0 "add in 1 2 out 1 2 3 4",      "line 2: too many operands"},
    {OP0 "add in 1 2x out 3",           "line 2: not a number: \"2x\""},
    {OP0 "add in 1 99999999999 out 3",  "line 2: not a number: \"99999999999\""},
    {OP0 "add in 1 2 out 3 size 4",     "line 2: an unknown parameter: \"size\""},
    {OP0 "add in 1 2 out 3 heads x",    "line 2: not a number: \"x\""},
    {OP0 "add in 1 2 out 3 heads",      "line 2: not a number: \"\""},
    {OP0 "add in 1 2 out 3 eps",        "line 2: not a number: \"\""},
    {OP0 "add in 1 2 out 3 eps e",      "line 2: not a number: \"e\""},
    {OP0 "add layer in 1 2 out 3",      "line 2: not a number: \"in\""},
    {OP0 "add revision -1 in 1 2 out 3", "line 2: not a number: \"-1\""},

    {HEADER "repeat first 0 ops 1 times 2", "line 2: expected the word: \"stride\""},
    {HEADER "repeat 0",                 "line 2: expected the word: \"first\""},
    {HEADER "repeat first 0 ops x",     "line 2: not a number: \"x\""},
    {HEADER EIGHT("repeat first 0 ops 1 times 2 stride 1\n") "repeat first",
     "line 10: too many repeats"},
    {HEADER "tail",                     "line 2: an unknown word: \"\""},
    {HEADER "tail logit first 0 ops 1 out 1", "line 2: an unknown word: \"logit\""},
    {HEADER "tail logits first 0 ops 1", "line 2: expected the word: \"out\""},
    {HEADER "tail logits first 0 ops 1 out -", "line 2: not a number: \"-\""},
    {HEADER "\n" EIGHT("tail logits first 0 ops 1 out 1\n"), "line 7: too many tails"},

    /* read, but no plan */
    {HEADER "value 0 act f32 step 64",  "plan: value 0 is used (3, 0)"},
    {HEADER "value 1 act 0 step 64",    "plan: a value of unknown dtype (1, 0)"},
    {"plan values 4 body 1 layers 1",   "plan: body longer than the ops (1, 0)"},
    {OP0 "add in 1 2 out 3",            "plan: ops that no tail runs (0, 1)"},
    {HEADER "tail none first 0 ops 1 out 1", "plan: a tail outside the ops (0, 1)"},
    {"plan values 4 body 1 layers 1\nop 0 add in 0 1 out 3",
     "plan: an op with a wrong input (0, 0)"},
    {"; nothing\n",                     "no header"},
    {"",                                "no header"},
    /* clang-format on */
};

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        plan p = {.block = (fak_plan *)(uintptr_t)1};
        fak_error e;
        if (!read_text(&p, faults[i].text, strlen(faults[i].text), &e))
            fail_msg("taken; \"%s\" was expected", faults[i].sentence);
        assert_message(&e, faults[i].sentence);
        assert_int_equal(e.code, FAK_E_ARGUMENT);
        assert_null(p.block);
        assert_null(p.weight);
        assert_null(p.origin);
    }
}

/* A byte 0 does not hide what stands behind it. */
static void test_zero_byte(void **state)
{
    static const char text[] = "plan values 1 body 0 layers 0\n\0frob\n";
    plan p;
    fak_error e;
    (void)state;
    assert_int_equal(read_text(&p, text, sizeof text - 1, &e), FAK_E_ARGUMENT);
}

/* ---- damaged text ---- */

/* Refused with a sentence, or a plan. */
static void assert_sane(const char *text, size_t bytes)
{
    plan p;
    fak_error e;
    int32_t s = read_text(&p, text, bytes, &e);
    if (s) {
        assert_int_equal(s, FAK_E_ARGUMENT);
        assert_message(&e, "plan");
        assert_null(p.block);
        return;
    }
    assert_int_equal(plan_check(p.block, p.block->bytes, &e), FAK_OK);
    plan_free(&p);
}

static void test_damage(void **state)
{
    static const char words[][8] = {" ",   "\n",   ";",   "0",   "9", "-",
                                    "in ", "out ", "op ", "1e9", "\t"};
    uint64_t random = random_begin();
    plan full;
    (void)state;
    full_plan(&full);
    char *text = print(full.block, 0, NULL);
    size_t bytes = strlen(text);
    char *damaged = malloc(bytes + 8);
    assert_non_null(damaged);
    for (uint32_t n = 0; n < 3000; n++) {
        uint32_t at = random_below(&random, (uint32_t)bytes);
        memcpy(damaged, text, bytes);
        if (n % 3 == 0)
            damaged[at] = (char)random_next(&random);
        else if (n % 3 == 1)
            memmove(damaged + at, damaged + at + 1, bytes - at - 1); /* the last stands twice */
        else {
            const char *word = words[random_below(&random, sizeof words / sizeof *words)];
            memcpy(damaged + at, word, strlen(word));
        }
        assert_sane(damaged, bytes);
    }
    for (size_t cut = 0; cut < bytes; cut += 7) assert_sane(text, cut);
    free(damaged);
    free(text);
    plan_free(&full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny),      cmocka_unit_test(test_full_is_full),
        cmocka_unit_test(test_full),      cmocka_unit_test(test_floats),
        cmocka_unit_test(test_not_taken), cmocka_unit_test(test_many_repeats),
        cmocka_unit_test(test_smallest),  cmocka_unit_test(test_comments),
        cmocka_unit_test(test_fold),      cmocka_unit_test(test_lines),
        cmocka_unit_test(test_faults),    cmocka_unit_test(test_zero_byte),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
