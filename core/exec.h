/* exec - runs steps of a program: ranges, holes, counts.  One thread at a time. */
#ifndef EXEC_H
#define EXEC_H
#include "program.h"
#include "step.h"

enum { EXEC_IDS = 128 }; /* above every id of the op table */

typedef struct exec {          /* zero-initialise */
    program *p;
    fak_op_fn **call;          /* [ops] the device's function, or the host's */
    uint8_t *fresh;            /* [values] bit side: holds this step's rows */
    uint8_t *readers;          /* [values] bit 1 << want: device ops of the body (0) or tail read it */
    void *bounce;              /* rows of the widest value that can cross */
    uint64_t ops[SIDES];       /* ops run, fused ones as one */
    uint64_t by_id[SIDES][EXEC_IDS]; /* of each id */
    uint64_t ranges, crossed_bytes;
    /* NULL, or called after each op, which is then run alone: the program must be KEEP_ALL.  Not 0 ends
     * the step with that status. */
    int32_t (*watch)(void *self, struct exec *x, uint32_t op, const fak_step *step, fak_error *e);
    void *watch_self;
} exec;

int32_t exec_open(exec *x, program *p, fak_error *e); /* after program_load */
void exec_close(exec *x);

/* Runs the body and the tail that the step wants.  out: the tail's wanted rows, dense (F32 logits
 * [wanted, V], or uint32_t ids), or NULL to leave them.  Returns when out is filled. */
int32_t exec_step(exec *x, const fak_step *step, void *out, fak_error *e);
/* Reads the rows of a value that the side of op `op` has just written; for a watch.  Rows of the value in
 * this step: exec_rows. */
int32_t exec_read(exec *x, uint32_t op, uint32_t value, const fak_step *step, void *dst, fak_error *e);
/* Gives that side other rows for it. */
int32_t exec_write(exec *x, uint32_t op, uint32_t value, const fak_step *step, const void *src,
                   fak_error *e);
/* Until a ticket that the side's device answered is done; s: what it answered with it, `what`: the call. */
int32_t exec_wait(const exec *x, enum program_side side, int32_t s, uint64_t ticket, const char *what,
                  fak_error *e);
uint32_t exec_rows(const exec *x, uint32_t value, const fak_step *step);
#endif
