/* The op table says what the ABI says, and fused ops expand to their literal sequences. */
#include "../core/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The ABI's own list: id, name, operands, parameters. */
/* clang-format off */
static const struct {
    uint32_t id;
    const char *name, *operands, *params;
} expected[] = {
    {FAK_OP_EMBED, "embed", "w > y", ""},
    {FAK_OP_RMSNORM, "rmsnorm", "x w > y", "group eps"},
    {FAK_OP_MATMUL, "matmul", "x w > y", ""},
    {FAK_OP_ADD_BIAS, "add_bias", "x b > y", ""},
    {FAK_OP_ROPE, "rope", "x tab > y", "heads head_dim rot_dim"},
    {FAK_OP_KV_APPEND, "kv_append", "k v tab >", "kv_heads head_dim rot_dim"},
    {FAK_OP_ATTENTION, "attention", "q > y", "heads kv_heads head_dim window scale softcap"},
    {FAK_OP_GLU, "glu", "g u > y", "act"},
    {FAK_OP_ADD, "add", "a b > y", ""},
    {FAK_OP_SCALE, "scale", "x > y", "scale"},
    {FAK_OP_SOFTCAP, "softcap", "x > y", "softcap"},
    {FAK_OP_TAKE_ROWS, "take_rows", "x > y", ""},
    {FAK_OP_ARGMAX, "argmax", "x > y", ""},
    {FAK_OP_NORM_MATMUL, "norm_matmul", "x n w1 [w2 w3] > y1 [y2 y3]", "group eps"},
    {FAK_OP_NORM_MATMUL_GLU, "norm_matmul_glu", "x n wg wu > y", "group act eps"},
    {FAK_OP_GLU_MATMUL_ADD, "glu_matmul_add", "g u w r > y", "act"},
    {FAK_OP_MATMUL_ADD, "matmul_add", "x w r > y", ""},
    {FAK_OP_FFN, "ffn", "x n wg wu wd > y", "group act eps"},
    {FAK_OP_ROPE_APPEND, "rope_append", "q k v tab > y", "heads kv_heads head_dim rot_dim"},
    {FAK_OP_MATMUL_ARGMAX, "matmul_argmax", "x w > y", ""},
};
/* clang-format on */
enum { OPS = sizeof expected / sizeof *expected };

/* Operands named before and after '>', and those that may be absent. */
static void count_operands(const char *text, uint32_t *in, uint32_t *optional, uint32_t *out)
{
    uint32_t optional_now = 0, output = 0;
    *in = *optional = *out = 0;
    for (const char *c = text; *c; c++) {
        int start = *c != ' ' && *c != ']' && (c == text || c[-1] == ' ' || c[-1] == '[');
        if (*c == '[') optional_now = 1;
        if (*c == ']') optional_now = 0;
        if (*c == '>') {
            output = 1;
        } else if (start && *c != '[') {
            *(output ? out : in) += 1;
            *optional += optional_now && !output;
        }
    }
}

static void test_table_is_the_abi(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < OPS; i++) {
        const op_info *info = ops_find(expected[i].id);
        assert_non_null(info);
        assert_int_equal(info->id, expected[i].id);
        assert_string_equal(info->name, expected[i].name);
        assert_string_equal(info->operands, expected[i].operands);
        assert_ptr_equal(ops_by_name(expected[i].name), info);
        assert_string_equal(ops_name(expected[i].id), expected[i].name);
        uint32_t in, optional, out;
        count_operands(info->operands, &in, &optional, &out);
        assert_int_equal(info->inputs, in);
        assert_int_equal(info->required, in - optional);
        assert_int_equal(info->outputs, out);
        char params[128] = "";
        for (uint32_t j = 0; j < OP_PARAMS; j++)
            if (info->params >> j & 1) {
                if (*params) strcat(params, " ");
                strcat(params, op_params[j].name);
            }
        assert_string_equal(params, expected[i].params);
        assert_int_equal(info->params >> OP_PARAMS, 0);
    }
}

static void test_rows_are_unique(void **unused)
{
    (void)unused;
    uint32_t rows = 0;
    for (const op_info *a; (a = ops_row(rows)); rows++) {
        assert_ptr_equal(ops_find(a->id), a); /* not shadowed by an equal id or name */
        assert_ptr_equal(ops_by_name(a->name), a);
        assert_true(a->inputs <= OP_INPUTS && a->outputs <= OP_OUTPUTS && a->parts <= OP_PARTS);
    }
    assert_int_equal(rows, OPS);
    assert_null(ops_row(rows + 1));
    assert_null(ops_row(0xffffffff));
    static const uint32_t ids[] = {0, 14, 63, 71, FAK_OP_ALLREDUCE_SUM, 131, 0xffffffff};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        assert_null(ops_find(ids[i]));
        assert_string_equal(ops_name(ids[i]), "?");
    }
    assert_null(ops_by_name("?"));
    assert_null(ops_by_name("MATMUL"));
    assert_null(ops_by_name(""));
}

/* The field that a parameter's name promises: set it through the offset, see it by the name. */
static void test_params_are_fields(void **unused)
{
    (void)unused;
    fak_op o = {0};
    for (uint32_t j = 0; j < OP_PARAMS; j++) {
        uint32_t u = j + 1;
        float f = (float)u;
        memcpy((char *)&o + op_params[j].offset, op_params[j].is_float ? (void *)&f : &u, 4);
    }
    assert_string_equal(op_params[0].name, "heads");
    assert_true(o.heads == 1 && o.kv_heads == 2 && o.head_dim == 3 && o.rot_dim == 4);
    assert_true(o.window == 5 && o.group == 6 && o.act == 7);
    assert_true(o.eps == 8 && o.scale == 9 && o.softcap == 10);
}

static void test_parts_are_sound(void **unused)
{
    (void)unused;
    for (uint32_t i = 0; ops_row(i); i++) {
        const op_info *fused = ops_row(i);
        uint32_t params = 0, seen_in = 0, seen_out = 0;
        assert_int_equal(fused->parts > 0, fused->id >= FAK_OP_NORM_MATMUL);
        for (uint32_t k = 0; k < fused->parts; k++) {
            const op_part *part = &fused->part[k];
            const op_info *core = ops_find(part->id);
            assert_non_null(core);
            assert_int_equal(core->parts, 0);
            params |= core->params;
            for (uint32_t j = 0; j < 4; j++) {
                uint8_t code = part->in[j];
                assert_int_equal(code == OP_ABSENT, j >= core->inputs);
                if (code == OP_ABSENT) continue;
                if (code >= OP_TEMP) { /* an earlier part that writes, and hands on only */
                    assert_true(code - OP_TEMP < (int)k);
                    const op_part *from = &fused->part[code - OP_TEMP];
                    assert_true(ops_find(from->id)->outputs && from->out == OP_ABSENT);
                } else {
                    assert_true(code < fused->inputs);
                    seen_in |= 1u << code;
                }
            }
            if (part->out == OP_ABSENT) continue;
            assert_true(part->out < fused->outputs && core->outputs);
            assert_false(seen_out >> part->out & 1); /* one writer */
            seen_out |= 1u << part->out;
        }
        if (!fused->parts) continue;
        assert_int_equal(params, fused->params);
        assert_int_equal(seen_in, (1u << fused->inputs) - 1); /* every operand is used */
        assert_int_equal(seen_out, (1u << fused->outputs) - 1);
    }
}

/* ---- expansion ------------------------------------------------------------------------------- */

static const uint32_t temp[OP_PARTS] = {50, 51, 52, 53, 54, 55};

/* Inputs 1.., outputs 31.., and every parameter set, whether the op reads it or not. */
static fak_op fused_op(uint32_t id, uint32_t inputs, uint32_t outputs)
{
    fak_op o = {.id = id, .revision = 3, .layer = 7};
    for (uint32_t i = 0; i < inputs; i++) o.in[i] = 1 + i;
    for (uint32_t i = 0; i < outputs; i++) o.out[i] = 31 + i;
    o.heads = 101, o.kv_heads = 102, o.head_dim = 103, o.rot_dim = 104, o.window = 105;
    o.group = 106, o.act = 107, o.eps = 0.5f, o.scale = 0.25f, o.softcap = 0.125f;
    return o;
}

/* The parts as text, an op a line: "rmsnorm 1 2 > 50 group eps;" */
static const char *expanded(const fak_op *fused)
{
    static char text[1024];
    fak_op part[OP_PARTS];
    size_t n = 0;
    text[0] = 0;
    uint32_t parts = ops_expand(fused, temp, part);
    for (uint32_t k = 0; k < parts; k++) {
        const fak_op *o = &part[k];
        assert_int_equal(o->revision, fused->revision);
        assert_int_equal(o->layer, fused->layer);
        n += (size_t)sprintf(text + n, "%s", ops_name(o->id));
        for (uint32_t i = 0; i < 8; i++)
            if (o->in[i]) n += (size_t)sprintf(text + n, " %u", o->in[i]);
        n += (size_t)sprintf(text + n, " >");
        for (uint32_t i = 0; i < 3; i++)
            if (o->out[i]) n += (size_t)sprintf(text + n, " %u", o->out[i]);
        for (uint32_t j = 0; j < OP_PARAMS; j++) {
            uint32_t zero = 0, offset = op_params[j].offset;
            if (!memcmp((const char *)o + offset, &zero, 4)) continue;
            assert_memory_equal((const char *)o + offset, (const char *)fused + offset, 4);
            n += (size_t)sprintf(text + n, " %s", op_params[j].name);
        }
        n += (size_t)sprintf(text + n, ";");
    }
    return text;
}

/* clang-format off */
static const struct {
    uint32_t id, inputs, outputs;
    const char *parts;
} sequences[] = {
    {FAK_OP_NORM_MATMUL, 3, 1, "rmsnorm 1 2 > 50 group eps;matmul 50 3 > 31;"},
    {FAK_OP_NORM_MATMUL, 4, 2, "rmsnorm 1 2 > 50 group eps;matmul 50 3 > 31;matmul 50 4 > 32;"},
    {FAK_OP_NORM_MATMUL, 5, 3, "rmsnorm 1 2 > 50 group eps;matmul 50 3 > 31;matmul 50 4 > 32;"
                               "matmul 50 5 > 33;"},
    {FAK_OP_NORM_MATMUL_GLU, 4, 1, "rmsnorm 1 2 > 50 group eps;matmul 50 3 > 51;"
                                   "matmul 50 4 > 52;glu 51 52 > 31 act;"},
    {FAK_OP_GLU_MATMUL_ADD, 4, 1, "glu 1 2 > 50 act;matmul 50 3 > 51;add 4 51 > 31;"},
    {FAK_OP_MATMUL_ADD, 3, 1, "matmul 1 2 > 50;add 3 50 > 31;"},
    {FAK_OP_FFN, 5, 1, "rmsnorm 1 2 > 50 group eps;matmul 50 3 > 51;matmul 50 4 > 52;"
                       "glu 51 52 > 53 act;matmul 53 5 > 54;add 1 54 > 31;"},
    {FAK_OP_ROPE_APPEND, 4, 1, "rope 1 4 > 31 heads head_dim rot_dim;"
                               "kv_append 2 3 4 > kv_heads head_dim rot_dim;"},
    {FAK_OP_MATMUL_ARGMAX, 2, 1, "matmul 1 2 > 50;argmax 50 > 31;"},
};
/* clang-format on */
enum { SEQUENCES = sizeof sequences / sizeof *sequences };

static void test_expand(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < SEQUENCES; i++) {
        fak_op o = fused_op(sequences[i].id, sequences[i].inputs, sequences[i].outputs);
        assert_string_equal(expanded(&o), sequences[i].parts);
    }
    fak_op part[OP_PARTS];
    for (uint32_t i = 0; ops_row(i); i++) {
        fak_op o = fused_op(ops_row(i)->id, ops_row(i)->inputs, ops_row(i)->outputs);
        assert_int_equal(ops_expand(&o, temp, part), ops_row(i)->parts); /* 0 for core ops */
        size_t listed = 0;
        for (size_t j = 0; j < SEQUENCES; j++) listed += sequences[j].id == o.id;
        assert_int_equal(listed > 0, ops_row(i)->parts > 0);
    }
    fak_op unknown = fused_op(99, 2, 1);
    assert_int_equal(ops_expand(&unknown, temp, part), 0);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

enum { ROWS_STEP = 1, ROWS_WANTED, WIDE, DOWN, UP, UP2, EMB, TAB };
static const fak_value value[] = {
    [ROWS_STEP] = {.kind = FAK_ACT, .dtype = FAK_F32, .rows = FAK_STEP_ROWS, .cols = 64},
    [ROWS_WANTED] = {.kind = FAK_ACT, .dtype = FAK_F32, .rows = FAK_WANTED_ROWS, .cols = 64},
    [WIDE] = {.kind = FAK_ACT, .dtype = FAK_F32, .rows = FAK_STEP_ROWS, .cols = 160},
    [DOWN] = {.kind = FAK_WEIGHT, .dtype = FAK_F32, .rows = 64, .cols = 160},
    [UP] = {.kind = FAK_WEIGHT, .dtype = FAK_F32, .rows = 160, .cols = 64},
    [UP2] = {.kind = FAK_WEIGHT, .dtype = FAK_F32, .rows = 96, .cols = 64},
    [EMB] = {.kind = FAK_WEIGHT, .dtype = FAK_F32, .rows = 500, .cols = 64},
    [TAB] = {.kind = FAK_CONST, .dtype = FAK_F32, .rows = 33, .cols = 16},
};

#define STEP FAK_STEP_ROWS
#define WANTED FAK_WANTED_ROWS
/* clang-format off */
static const struct {
    uint32_t id, in[5], cols, rows;
} shapes[] = {
    {FAK_OP_EMBED, {EMB}, 64, STEP},
    {FAK_OP_RMSNORM, {ROWS_STEP, UP2}, 64, STEP},
    {FAK_OP_RMSNORM, {ROWS_WANTED, UP2}, 64, WANTED},
    {FAK_OP_MATMUL, {ROWS_STEP, UP}, 160, STEP},
    {FAK_OP_MATMUL, {WIDE, DOWN}, 64, STEP},
    {FAK_OP_MATMUL, {ROWS_WANTED, EMB}, 500, WANTED},
    {FAK_OP_ADD_BIAS, {WIDE, DOWN}, 160, STEP},
    {FAK_OP_ROPE, {ROWS_STEP, TAB}, 64, STEP},
    {FAK_OP_ATTENTION, {ROWS_STEP}, 64, STEP},
    {FAK_OP_GLU, {WIDE, WIDE}, 160, STEP},
    {FAK_OP_ADD, {ROWS_WANTED, ROWS_WANTED}, 64, WANTED},
    {FAK_OP_SCALE, {ROWS_STEP}, 64, STEP},
    {FAK_OP_SOFTCAP, {ROWS_WANTED}, 64, WANTED},
    {FAK_OP_TAKE_ROWS, {ROWS_STEP}, 64, WANTED},
    {FAK_OP_ARGMAX, {ROWS_WANTED}, 1, WANTED},
    {FAK_OP_NORM_MATMUL, {ROWS_STEP, UP2, UP, UP2, UP2}, 160, STEP},
    {FAK_OP_NORM_MATMUL, {ROWS_WANTED, UP2, EMB}, 500, WANTED},
    {FAK_OP_NORM_MATMUL_GLU, {ROWS_STEP, UP2, UP, UP}, 160, STEP},
    {FAK_OP_GLU_MATMUL_ADD, {WIDE, WIDE, DOWN, ROWS_STEP}, 64, STEP},
    {FAK_OP_MATMUL_ADD, {WIDE, DOWN, ROWS_STEP}, 64, STEP},
    {FAK_OP_FFN, {ROWS_STEP, UP2, UP, UP, DOWN}, 64, STEP},
    {FAK_OP_ROPE_APPEND, {WIDE, ROWS_STEP, ROWS_STEP, TAB}, 160, STEP},
    {FAK_OP_MATMUL_ARGMAX, {ROWS_WANTED, EMB}, 1, WANTED},
};
/* clang-format on */

static void test_shapes(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        fak_op o = {.id = shapes[i].id, .head_dim = 8};
        memcpy(o.in, shapes[i].in, sizeof shapes[i].in);
        assert_int_equal(ops_out_cols(&o, value), shapes[i].cols);
        assert_int_equal(ops_out_rows(&o, value), shapes[i].rows);
    }
    fak_op append = {.id = FAK_OP_KV_APPEND, .in = {ROWS_STEP, ROWS_STEP, TAB}};
    assert_int_equal(ops_out_cols(&append, value), 0);
}

/* The ABI's inline functions know the operands of every op: matrices are what MATMUL multiplies by. */
static void test_operands_by_kind(void **unused)
{
    (void)unused;
    for (uint32_t r = 0; ops_row(r); r++) {
        const op_info *info = ops_row(r);
        for (uint32_t inputs = info->required; inputs <= info->inputs; inputs++) {
            fak_op op = {.id = info->id, .out = {40, 41, 42}}, part[OP_PARTS];
            uint32_t first, operand[3], matrices = info->id == FAK_OP_EMBED, appends = 0;
            for (uint32_t i = 0; i < inputs; i++) op.in[i] = 10 + i;
            uint32_t n = fak_matrices(&op, &first), parts = ops_expand(&op, temp, part);
            if (!parts) part[parts++] = op;
            for (uint32_t i = 0; i < parts; i++) {
                if (part[i].id == FAK_OP_MATMUL)
                    assert_int_equal(part[i].in[1], 10 + first + matrices++);
                if (part[i].id == FAK_OP_EMBED) assert_int_equal(part[i].in[0], 10 + first);
                if (part[i].id != FAK_OP_KV_APPEND) continue;
                assert_true(fak_appends(&op, operand));
                assert_memory_equal(operand, part[i].in, sizeof operand);
                appends = 1;
            }
            assert_int_equal(n, matrices);
            assert_int_equal(fak_appends(&op, operand), appends);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_the_abi),
        cmocka_unit_test(test_rows_are_unique),
        cmocka_unit_test(test_params_are_fields),
        cmocka_unit_test(test_parts_are_sound),
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_operands_by_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
