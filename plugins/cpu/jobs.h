/* jobs - what the files that do a job's chunks share. */
#ifndef JOBS_H
#define JOBS_H
#include "cpu.h"

static inline uint32_t ceil_of(uint32_t n, uint32_t by)
{
    return n / by + (n % by != 0);
}

static inline uint32_t at_most(uint32_t n, uint32_t most)
{
    return n < most ? n : most;
}

static inline float *row_of(const fak_program *p, uint32_t id, uint32_t row, uint32_t cols)
{
    return p->at[id] + (size_t)row * cols;
}

static inline char *scratch_of(const fak_program *p, uint32_t thread)
{
    return p->scratch + thread * p->scratch_bytes;
}

static inline size_t panel_bytes(const fak_program *p, const job *j, uint32_t tokens)
{
    if (j->blocks) return (size_t)j->cols / BLOCK * tokens * PANEL_BLOCK_BYTES;
    return (size_t)((j->cols + 7) / 8 * 8) * tokens * p->d->set->pair * sizeof(float);
}

/* matmul.c: chunks of a MATMUL of so many rows; one of them; bytes of scratch that a thread needs */
uint32_t cpu_matmul_chunks(const fak_program *p, const job *j, uint32_t rows);
void cpu_matmul(const fak_program *p, const job *j, uint32_t rows, uint32_t chunk, uint32_t thread);
uint64_t cpu_matmul_scratch(const job *j);
#endif
