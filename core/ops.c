/* ops - see ops.h. */
#include "ops.h"

#include <string.h>

/* clang-format off */
#define FIELD(name, is_float) {#name, offsetof(fak_op, name), is_float}
const op_param op_params[OP_PARAMS] = {
    FIELD(heads, 0),  FIELD(kv_heads, 0), FIELD(head_dim, 0), FIELD(rot_dim, 0), FIELD(window, 0),
    FIELD(group, 0),  FIELD(act, 0),      FIELD(eps, 1),      FIELD(scale, 1),   FIELD(softcap, 1),
};
enum {
    HEADS = 1, KV_HEADS = 2, HEAD_DIM = 4, ROT_DIM = 8, WINDOW = 16,
    GROUP = 32, ACT = 64, EPS = 128, SCALE = 256, SOFTCAP = 512,
    NORM = GROUP | EPS, ROPE = HEADS | HEAD_DIM | ROT_DIM, APPEND = KV_HEADS | HEAD_DIM | ROT_DIM
};

#define T(part) (OP_TEMP + (part))
#define NO OP_ABSENT
#define CORE(id, name, operands, inputs, outputs, params)                                          \
    {FAK_OP_##id, name, operands, inputs, inputs, outputs, params, 0, {{0, {0}, 0}}}

static const op_info table[] = {
    CORE(EMBED, "embed", "w > y", 1, 1, 0),
    CORE(RMSNORM, "rmsnorm", "x w > y", 2, 1, NORM),
    CORE(MATMUL, "matmul", "x w > y", 2, 1, 0),
    CORE(ADD_BIAS, "add_bias", "x b > y", 2, 1, 0),
    CORE(ROPE, "rope", "x tab > y", 2, 1, ROPE),
    CORE(KV_APPEND, "kv_append", "k v tab >", 3, 0, APPEND),
    CORE(ATTENTION, "attention", "q > y", 1, 1,
         HEADS | KV_HEADS | HEAD_DIM | WINDOW | SCALE | SOFTCAP),
    CORE(GLU, "glu", "g u > y", 2, 1, ACT),
    CORE(ADD, "add", "a b > y", 2, 1, 0),
    CORE(SCALE, "scale", "x > y", 1, 1, SCALE),
    CORE(SOFTCAP, "softcap", "x > y", 1, 1, SOFTCAP),
    CORE(TAKE_ROWS, "take_rows", "x > y", 1, 1, 0),
    CORE(ARGMAX, "argmax", "x > y", 1, 1, 0),
    /* fused: where two would match, the one that stands first is taken */
    {FAK_OP_FFN, "ffn", "x n wg wu wd > y", 5, 5, 1, NORM | ACT, 6,
     {{FAK_OP_RMSNORM, {0, 1, NO, NO}, NO}, {FAK_OP_MATMUL, {T(0), 2, NO, NO}, NO},
      {FAK_OP_MATMUL, {T(0), 3, NO, NO}, NO}, {FAK_OP_GLU, {T(1), T(2), NO, NO}, NO},
      {FAK_OP_MATMUL, {T(3), 4, NO, NO}, NO}, {FAK_OP_ADD, {0, T(4), NO, NO}, 0}}},
    {FAK_OP_NORM_MATMUL_GLU, "norm_matmul_glu", "x n wg wu > y", 4, 4, 1, NORM | ACT, 4,
     {{FAK_OP_RMSNORM, {0, 1, NO, NO}, NO}, {FAK_OP_MATMUL, {T(0), 2, NO, NO}, NO},
      {FAK_OP_MATMUL, {T(0), 3, NO, NO}, NO}, {FAK_OP_GLU, {T(1), T(2), NO, NO}, 0}}},
    {FAK_OP_MATMUL_ARGMAX, "matmul_argmax", "x w > y", 2, 2, 1, 0, 2,
     {{FAK_OP_MATMUL, {0, 1, NO, NO}, NO}, {FAK_OP_ARGMAX, {T(0), NO, NO, NO}, 0}}},
    {FAK_OP_NORM_MATMUL, "norm_matmul", "x n w1 [w2 w3] > y1 [y2 y3]", 5, 3, 3, NORM, 4,
     {{FAK_OP_RMSNORM, {0, 1, NO, NO}, NO}, {FAK_OP_MATMUL, {T(0), 2, NO, NO}, 0},
      {FAK_OP_MATMUL, {T(0), 3, NO, NO}, 1}, {FAK_OP_MATMUL, {T(0), 4, NO, NO}, 2}}},
    {FAK_OP_GLU_MATMUL_ADD, "glu_matmul_add", "g u w r > y", 4, 4, 1, ACT, 3,
     {{FAK_OP_GLU, {0, 1, NO, NO}, NO}, {FAK_OP_MATMUL, {T(0), 2, NO, NO}, NO},
      {FAK_OP_ADD, {3, T(1), NO, NO}, 0}}},
    {FAK_OP_MATMUL_ADD, "matmul_add", "x w r > y", 3, 3, 1, 0, 2,
     {{FAK_OP_MATMUL, {0, 1, NO, NO}, NO}, {FAK_OP_ADD, {2, T(0), NO, NO}, 0}}},
    {FAK_OP_ROPE_APPEND, "rope_append", "q k v tab > y", 4, 4, 1, ROPE | APPEND, 2,
     {{FAK_OP_ROPE, {0, 3, NO, NO}, 0}, {FAK_OP_KV_APPEND, {1, 2, 3, NO}, NO}}},
};
/* clang-format on */
enum { ROWS = sizeof table / sizeof *table };

const op_info *ops_row(uint32_t i)
{
    return i < ROWS ? &table[i] : NULL;
}

const op_info *ops_find(uint32_t id)
{
    for (uint32_t i = 0; i < ROWS; i++)
        if (table[i].id == id) return &table[i];
    return NULL;
}

const op_info *ops_by_name(const char *name)
{
    for (uint32_t i = 0; i < ROWS; i++)
        if (!strcmp(table[i].name, name)) return &table[i];
    return NULL;
}

const char *ops_name(uint32_t id)
{
    const op_info *info = ops_find(id);
    return info ? info->name : "?";
}

/* The value that operand `code` of a part stands for. */
static uint32_t operand(const fak_op *fused, uint8_t code, const uint32_t *written)
{
    if (code == OP_ABSENT) return 0;
    return code >= OP_TEMP ? written[code - OP_TEMP] : fused->in[code];
}

uint32_t ops_expand(const fak_op *fused, const uint32_t temp[OP_PARTS], fak_op out[OP_PARTS])
{
    const op_info *info = ops_find(fused->id);
    uint32_t n = 0, written[OP_PARTS] = {0};
    for (uint32_t k = 0; info && k < info->parts; k++) {
        const op_part *part = &info->part[k];
        const op_info *core = ops_find(part->id);
        fak_op o = {.id = part->id, .revision = fused->revision, .layer = fused->layer};
        int absent = 0;
        for (uint32_t j = 0; j < core->inputs; j++) {
            o.in[j] = operand(fused, part->in[j], written);
            absent |= !o.in[j];
        }
        if (absent) continue;
        for (uint32_t j = 0; j < OP_PARAMS; j++)
            if (core->params >> j & 1)
                memcpy((char *)&o + op_params[j].offset, (const char *)fused + op_params[j].offset,
                       4);
        written[k] = part->out == OP_ABSENT ? temp[k] : fused->out[part->out];
        if (core->outputs) o.out[0] = written[k];
        out[n++] = o;
    }
    return n;
}

uint32_t ops_out_cols(const fak_op *op, const fak_value *value)
{
    switch (op->id) {
    case FAK_OP_KV_APPEND:
        return 0;
    case FAK_OP_EMBED:
        return value[op->in[0]].cols;
    case FAK_OP_MATMUL:
        return value[op->in[1]].rows;
    case FAK_OP_ARGMAX:
    case FAK_OP_MATMUL_ARGMAX:
        return 1;
    case FAK_OP_NORM_MATMUL:
    case FAK_OP_NORM_MATMUL_GLU:
    case FAK_OP_GLU_MATMUL_ADD:
        return value[op->in[2]].rows;
    case FAK_OP_MATMUL_ADD:
        return value[op->in[1]].rows;
    default:
        return value[op->in[0]].cols;
    }
}

uint32_t ops_out_rows(const fak_op *op, const fak_value *value)
{
    if (op->id == FAK_OP_EMBED) return FAK_STEP_ROWS;
    if (op->id == FAK_OP_TAKE_ROWS) return FAK_WANTED_ROWS;
    return value[op->in[0]].rows;
}
