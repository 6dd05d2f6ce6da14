/* pool - threads that share out work by chunks.  A job is phases one after another.  Each thread has a
 * share of a phase's chunks, neighbours in memory, and takes them in order; who has none left takes from
 * the end of another's.  A phase ends when its chunks are done, not when all threads have come: one that
 * the system has put aside holds up no more than the chunk that it has taken.  Results cannot depend on
 * who takes what: chunks write apart.
 *
 * Who ends a phase's last chunk goes on: phases of one chunk at once, alone; the next one with more is
 * opened for all.  Who waits spins a little, then sleeps.  Where much time is lost, something else needs
 * the processors: the caller then works alone for a while, longer each time, and tries again. */
#ifndef POOL_H
#define POOL_H
#include <stdint.h>

typedef struct pool pool;

typedef struct pool_job {
    void *self;
    uint32_t first, end;                                   /* phases [first, end), below 2^20 */
    uint32_t (*chunks)(void *self, uint32_t phase);        /* below 2^20; 0: nothing to do */
    void (*work)(void *self, uint32_t phase, uint32_t chunk, uint32_t thread);
} pool_job;

/* NULL without memory; fewer threads than asked for where the system gives fewer. */
pool *pool_open(uint32_t threads);
void pool_close(pool *p); /* joins; NULL is fine */
uint32_t pool_threads(const pool *p);
/* Runs the job; the caller is thread 0.  One job at a time. */
void pool_run(pool *p, const pool_job *job);
uint64_t pool_waits(const pool *p); /* waits that took long, since open: for tests */

/* Cores that this process may use: those in its affinity mask, hyperthreads of one core as one, not more
 * than its control group's quota. */
uint32_t pool_default_threads(void);
#endif
