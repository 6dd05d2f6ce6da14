/* ops - the op table: names, operands, parameters, and the literal sequences of fused ops.
 * A new op is one row here, one case in ref.c and one line in the ABI. */
#ifndef OPS_H
#define OPS_H
#include "../abi/fak_backend.h"

enum { OP_INPUTS = 8, OP_OUTPUTS = 3, OP_PARTS = 6, OP_PARAMS = 10 };

typedef struct op_param { /* a parameter field of fak_op */
    const char *name;
    uint32_t offset, is_float; /* of the field; float rather than uint32_t */
} op_param;
extern const op_param op_params[OP_PARAMS];

enum { OP_TEMP = 16, OP_ABSENT = 255 };
typedef struct op_part {  /* one op of a fused op's literal sequence */
    uint32_t id;
    uint8_t in[4];        /* input i of the fused op, or OP_TEMP + k: what part k wrote */
    uint8_t out;          /* output i of the fused op, or OP_ABSENT: only other parts see it */
} op_part;                /* a part whose `in` names an absent operand is left out */

typedef struct op_info {
    uint32_t id;
    const char *name, *operands;          /* operands: "x w > y" */
    uint32_t inputs, required, outputs;   /* at most; at least; outputs at most */
    uint32_t params;                      /* bit i: reads op_params[i] */
    uint32_t parts;                       /* 0 for a core op */
    op_part part[OP_PARTS];
} op_info;

const op_info *ops_find(uint32_t id);        /* NULL for an id that is not in the table */
const op_info *ops_by_name(const char *name);
const op_info *ops_row(uint32_t i);          /* rows of the table, in order; NULL past the end */
const char *ops_name(uint32_t id);           /* "?" for an unknown id */

/* Writes the literal sequence of a fused op; temp[k] is the value id for what part k hands on.
 * Returns the number of ops written, 0 for a core op. */
uint32_t ops_expand(const fak_op *fused, const uint32_t temp[OP_PARTS], fak_op out[OP_PARTS]);

/* Columns of op's first output, from its values ([value id]); 0 where it has none. */
uint32_t ops_out_cols(const fak_op *op, const fak_value *value);
/* What its rows follow: FAK_STEP_ROWS or FAK_WANTED_ROWS. */
uint32_t ops_out_rows(const fak_op *op, const fak_value *value);
#endif
