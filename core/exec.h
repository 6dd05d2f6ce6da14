/* exec - runs steps of a program: ranges, holes, counts.  One thread at a time. */
#ifndef EXEC_H
#define EXEC_H
#include "program.h"
#include "step.h"

typedef struct exec {          /* zero-initialise */
    program *p;
    fak_op_fn **call;          /* [ops] the device's function, or the host's */
    uint8_t *fresh;            /* [values] bit side: holds this step's rows */
    void *bounce;              /* rows of the widest value that can cross */
    uint64_t ops[SIDES];       /* ops run, fused ones as one */
    uint64_t ranges, crossed_bytes;
} exec;

int32_t exec_open(exec *x, program *p, fak_error *e); /* after program_load */
void exec_close(exec *x);

/* Runs the body and the tail that the step wants.  out: the tail's wanted rows, dense (F32 logits
 * [wanted, V], or uint32_t ids), or NULL to leave them.  Returns when out is filled. */
int32_t exec_step(exec *x, const fak_step *step, void *out, fak_error *e);
#endif
