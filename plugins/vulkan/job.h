/* job - how dispatches are made: kernel, grid, what is bound, constants. */
#ifndef JOB_H
#define JOB_H
#include "program.h"

enum { X = 0, W = 1, Y = 2, Z = 3 }; /* places in job.bind: bindings 1 to 4 */
enum { THREADS = 64, ROW_COLUMNS = 16 }; /* of a workgroup; columns that ATTENTION's invocations share */

typedef struct maker {
    fak_program *p;
    const fak_op *o;
    uint32_t wanted; /* the rows of the op are the wanted ones */
    int32_t failed;  /* FAK_E_MEMORY: of the host; FAK_E_UNSUPPORTED: too many grids */
} maker;

static inline uint32_t job_up(uint32_t n, uint32_t d)
{
    return n / d + (n % d != 0);
}

/* A job with the parameters of its op, x workgroups for each row. */
job *job_add(maker *, enum shader, uint32_t x);
void job_spec(job *, uint32_t id, uint32_t n);         /* of all shapes */
void job_tile(maker *, job *, uint32_t count, int q8); /* `count` outputs: its kernels and grids */
uint32_t job_grid(maker *, grid);                      /* its number */
void job_bind(const maker *, job *, int at, uint32_t value);
void job_bind_span(const maker *, job *, int at, const uint32_t *value, uint32_t n);
void job_bind_step(const maker *, job *);
void job_bind_segment(const maker *, job *, uint32_t value, const segment *, const tensor *);
void job_bind_row(const maker *, job *, uint32_t value); /* of a weight in one piece */
void job_bind_norm(const maker *, job *, uint32_t value); /* such a one where others have what they add */
void job_bind_kv(const maker *, job *, int at, const kv_layer *, uint32_t piece);
uint32_t job_word(const maker *, const job *, int at, uint32_t value); /* from where a binding begins */

/* beside.c: survivors of an eviction move */
void job_make_side(maker *);
#endif
