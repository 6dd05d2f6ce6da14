/* planted - the faults that planted.c can hold, and the op in which each must be found.
 *
 * PLANTED(symbol, name, op, layered, multi, what): op is of the plan that has no fused ops; layered:
 * in the layer that option layer says, else outside layers; multi: only a step of more than one row
 * shows it.
 * test/cli/cli_bisect.py reads this table too. */
#ifndef PLANTED_H
#define PLANTED_H

/* clang-format off */
#define PLANTED_TABLE(PLANTED)                                                                     \
    PLANTED(scaled, "scaled", MATMUL, 1, 0, "its output is 2 % too large")                         \
    PLANTED(dropped_tail, "dropped-tail", MATMUL, 1, 0, "the last 8 columns are not added")        \
    PLANTED(skipped_row, "skipped-row", MATMUL, 1, 1, "the last of several rows is not written")   \
    PLANTED(shifted, "shifted", MATMUL, 1, 0, "each output is of the weight's row after its own")  \
    PLANTED(nan, "nan", MATMUL, 1, 0, "one element is a NaN")                                      \
    PLANTED(reversed, "reversed", MATMUL, 1, 0, "summed from the last column on: fine for Approx") \
    PLANTED(norm_eps, "norm-eps", RMSNORM, 1, 0, "eps is 0.1 too large")                           \
    PLANTED(rope_sign, "rope-sign", ROPE, 1, 0, "q turns the other way")                           \
    PLANTED(stale_step, "stale-step", ROPE, 1, 0, "positions are those of the step before")        \
    PLANTED(key_sign, "key-sign", KV_APPEND, 1, 0, "k turns the other way")                        \
    PLANTED(lost_kv, "lost-kv", KV_APPEND, 1, 0, "the row of the last position is not written")    \
    PLANTED(swapped_kv, "swapped-kv", KV_APPEND, 1, 0, "k is kept as v, and v as k")               \
    PLANTED(swapped_slot, "swapped-slot", KV_APPEND, 1, 0, "rows go to the slot beside")           \
    PLANTED(kv_layer, "kv-layer", KV_APPEND, 1, 0, "rows go to the layer beside")                  \
    PLANTED(window, "window", ATTENTION, 1, 0, "the last row does not see position 0")             \
    PLANTED(scores, "scores", ATTENTION, 1, 0, "scores are not scaled")                            \
    PLANTED(kv_heads, "kv-heads", ATTENTION, 1, 0, "all heads read the first kv head")             \
    PLANTED(gelu, "gelu", GLU, 1, 0, "GELU in place of SILU")                                      \
    PLANTED(add_twice, "add-twice", ADD, 1, 0, "adds the first operand to itself")                 \
    PLANTED(embed_next, "embed-next", EMBED, 0, 0, "the row of the id after the token's")          \
    PLANTED(take_first, "take-first", TAKE_ROWS, 0, 1, "row 0 in place of each wanted row")        \
    PLANTED(argmax_half, "argmax-half", ARGMAX, 0, 0, "looks at the first half of a row")          \
    PLANTED(argmax_last, "argmax-last", ARGMAX, 0, 0, "the last maximum, where there are several")
/* clang-format on */

#define PLANTED_ID(symbol, name, op, layered, multi, what) PLANTED_##symbol,
enum planted_id { PLANTED_TABLE(PLANTED_ID) PLANTED_ROWS };

typedef struct planted_row {
    const char *name;
    unsigned op;
    int layered, multi;
} planted_row;
#define PLANTED_ROW(symbol, name, op, layered, multi, what) {name, FAK_OP_##op, layered, multi},
#endif
