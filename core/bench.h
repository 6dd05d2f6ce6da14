/* bench - the measures of fakrun bench, on a model and a device that are chosen. */
#ifndef BENCH_H
#define BENCH_H
#include "bench_out.h"
#include "cmd.h"
#include "progress.h"

enum { BENCH_REPS_MAX = 100 };

typedef struct bench {
    /* what was asked */
    const char *model_path, *dtype, *act, *kv, *json, *phase;
    arg_numbers prefill, depth, batch;
    uint32_t decode, reps;
    int non_reference, no_gate, no_verify;
    choose_options backend;
    /* what was opened */
    choice choice;
    gguf *file;
    tokenizer *tokenizer;
    model model;
    session session;
    /* on the way */
    uint32_t single, several; /* positions that the measures of one sequence need, and of several */
    uint32_t most;            /* sequences at once */
    token_ids ids;            /* of the text, again and again, as many as are fed at most */
    uint32_t distinct;        /* before they begin again */
    progress progress;
    uint64_t steps; /* for the bar */
    bench_result result;
} bench;

/* What is asked for, or what fits. */
uint32_t bench_act(const bench *b);
uint32_t bench_kv_dtype(const bench *b);
uint32_t bench_batch_steps(const bench *b); /* of one row, in each sequence of a batch */

/* The file and the model for so many positions; 0 = the model's own. */
int32_t bench_open_model(bench *b, uint32_t context, fak_error *e);
void bench_close_model(bench *b); /* and the session */

/* s, but FAK_OK where it is STATUS_GATE: that verdict goes to b->result.gate. */
int32_t bench_judge(bench *b, int32_t s, const fak_error *e);

/* Fills b->result with rows; judges what ran on the host, too. */
int32_t bench_measure(bench *b, fak_error *e);
#endif
