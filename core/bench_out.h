/* bench_out - what fakrun bench has found, as a table for people and as evidence. */
#ifndef BENCH_OUT_H
#define BENCH_OUT_H
#include "evidence.h"
#include "gate.h"
#include "measure.h"

typedef struct bench_row {  /* a line of the table, an object of "results" */
    const char *phase;      /* "prefill", "decode", "batch", "load", "ttft", "memory" */
    const char *what;       /* which of several of the phase: "loaded", "process peak"; or NULL */
    const char *unit;       /* "tok/s", "s", "bytes" */
    uint32_t tokens, batch; /* 0 where they say nothing */
    uint32_t depth;         /* tokens of context before what is decoded */
    measure m;
} bench_row;

typedef struct bench_gate {
    int skipped;            /* nothing was to be compared: no verdict, unless it failed otherwise */
    int compared;           /* else the device is the reference itself */
    gate_bound bound;
    gate_tally tally;
    uint64_t by_id[SIDES][EXEC_IDS]; /* ops that ran, comparing and measuring */
    int failed;
    fak_error why;          /* of a failed one */
} bench_gate;

enum { BENCH_ROWS = 56 }; /* three lists of 16, and 5 more */
typedef struct bench_result {
    bench_row row[BENCH_ROWS];
    uint32_t rows;
    bench_gate gate;
    uint64_t per_token[SIDES][EXEC_IDS]; /* ops of one step of decoding */
    double seconds;         /* of all of it */
} bench_result;

void bench_out_table(const bench_result *r, FILE *out);
/* Adds "gate", "results", "ops_per_token", "verdict" and "seconds" to evidence. */
void bench_out_json(const bench_result *r, json_t *evidence);
#endif
