/* pool - see pool.h.
 *
 * All is in one word, the cursor: which job, which phase, how many of its chunks nobody has taken yet.
 * A chunk is taken by counting it down with compare-and-swap, so that who comes late, with the cursor of
 * an earlier phase in hand, takes nothing. */
#include "pool.h"

#include <stdlib.h>

#if defined __linux__
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 256, SPINS = 2000, LINE = 64 };
static const double solo_first_s = 0.005, solo_most_s = 0.2, calm_s = 0.05;

/* cursor: generation of the job (24 bits), phase (20), chunks left (20); all phases done: LAST */
enum { LEFT_BITS = 20, PHASE_BITS = 20 };
static const uint32_t last_phase = (1u << PHASE_BITS) - 1;

typedef struct helper {
    pool *of;
    pthread_t thread;
    uint32_t index;
} helper;

struct pool {
    uint32_t threads;
    helper *helper; /* [threads - 1] */
    const pool_job *job;
    uint32_t count; /* chunks of the phase */
    double alone_until, alone_s, calm_since;
    double longest; /* seconds of the caller's longest chunk of the job */
    uint64_t long_waits;
    char apart[LINE];
    _Atomic uint64_t cursor;
    char apart2[LINE];
    _Atomic uint32_t done; /* chunks of the phase */
    char apart3[LINE];
    _Atomic uint32_t sleepers, bell, quit;
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline void pause_a_little(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static uint64_t pack_cursor(uint64_t generation, uint32_t phase, uint32_t left)
{
    return generation << (LEFT_BITS + PHASE_BITS) | (uint64_t)phase << LEFT_BITS | left;
}

static uint32_t left_of(uint64_t cursor)
{
    return (uint32_t)(cursor & ((1u << LEFT_BITS) - 1));
}

static uint32_t phase_of(uint64_t cursor)
{
    return (uint32_t)(cursor >> LEFT_BITS & last_phase);
}

/* ---- going on ---- */

static void set_cursor(pool *p, uint64_t cursor)
{
    atomic_store(&p->cursor, cursor);
    if (!atomic_load(&p->sleepers)) return;
    atomic_fetch_add(&p->bell, 1);
    syscall(SYS_futex, &p->bell, FUTEX_WAKE_PRIVATE, THREADS_MAX, NULL, NULL, 0);
}

/* From `phase` on: what has one chunk is done here, the first with more is opened. */
static void go_on(pool *p, uint64_t generation, uint32_t phase, uint32_t thread)
{
    const pool_job *j = p->job;
    for (; phase < j->end; phase++) {
        uint32_t n = j->chunks(j->self, phase);
        if (n > 1) {
            p->count = n;
            atomic_store_explicit(&p->done, 0, memory_order_relaxed);
            set_cursor(p, pack_cursor(generation, phase, n));
            return;
        }
        if (n) j->work(j->self, phase, 0, thread);
    }
    set_cursor(p, pack_cursor(generation, last_phase, 0));
}

/* Takes a chunk and does it; 0 when there was none to take. */
static int take(pool *p, uint64_t cursor, uint32_t thread)
{
    uint32_t left = left_of(cursor), phase = phase_of(cursor);
    if (!left || !atomic_compare_exchange_strong(&p->cursor, &cursor, cursor - 1)) return left != 0;
    const pool_job *j = p->job;
    uint32_t n = p->count;
    double start = thread ? 0 : seconds();
    j->work(j->self, phase, n - left, thread);
    if (!thread && seconds() - start > p->longest) p->longest = seconds() - start;
    if (atomic_fetch_add(&p->done, 1) + 1 == n)
        go_on(p, cursor >> (LEFT_BITS + PHASE_BITS), phase + 1, thread);
    return 1;
}

/* Until the cursor is another; 1 when the thread slept meanwhile. */
static int await(pool *p, uint64_t cursor)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->cursor, memory_order_acquire) != cursor) return 0;
        pause_a_little();
    }
    atomic_fetch_add(&p->sleepers, 1);
    for (;;) {
        uint32_t bell = atomic_load(&p->bell);
        if (atomic_load(&p->cursor) != cursor || atomic_load(&p->quit)) break;
        syscall(SYS_futex, &p->bell, FUTEX_WAIT_PRIVATE, bell, NULL, NULL, 0);
    }
    atomic_fetch_sub(&p->sleepers, 1);
    return 1;
}

static void *help(void *self)
{
    helper *h = self;
    pool *p = h->of;
    while (!atomic_load(&p->quit)) {
        uint64_t cursor = atomic_load(&p->cursor);
        if (!take(p, cursor, h->index)) await(p, cursor);
    }
    return NULL;
}

/* ---- a job ---- */

static void run_alone(const pool_job *j)
{
    for (uint32_t phase = j->first; phase < j->end; phase++) {
        uint32_t n = j->chunks(j->self, phase);
        for (uint32_t c = 0; c < n; c++) j->work(j->self, phase, c, 0);
    }
}

/* Waits for the others; was it longer than any chunk could explain? */
static int await_others(pool *p, uint64_t cursor)
{
    double start = seconds();
    return await(p, cursor) && seconds() - start > 3 * p->longest + 100e-6;
}

/* A wait was long: alone for a while, twice as long as the last time unless it has been calm since. */
static void withdraw(pool *p)
{
    double now = seconds();
    int calm = now - p->calm_since > calm_s;
    p->alone_s = calm || p->alone_s <= 0 ? solo_first_s : p->alone_s * 2;
    if (p->alone_s > solo_most_s) p->alone_s = solo_most_s;
    p->alone_until = now + p->alone_s;
    p->calm_since = p->alone_until;
    p->long_waits++;
}

void pool_run(pool *p, const pool_job *job)
{
    if (p->threads == 1 || (p->alone_until > 0 && seconds() < p->alone_until)) {
        run_alone(job);
        return;
    }
    uint64_t cursor = atomic_load(&p->cursor),
             generation = (cursor >> (LEFT_BITS + PHASE_BITS)) + 1;
    int slow = 0;
    p->alone_until = 0;
    p->longest = 0;
    p->job = job;
    go_on(p, generation & 0xffffffu, job->first, 0);
    while (phase_of(cursor = atomic_load(&p->cursor)) != last_phase)
        if (!take(p, cursor, 0)) slow |= await_others(p, cursor);
    if (slow) withdraw(p);
}

/* ---- open, close ---- */

pool *pool_open(uint32_t threads)
{
    if (threads > THREADS_MAX) threads = THREADS_MAX;
    pool *p = calloc(1, sizeof *p);
    helper *h = calloc(threads, sizeof *h);
    if (!p || !h) {
        free(p);
        free(h);
        return NULL;
    }
    p->helper = h;
    p->threads = 1;
    atomic_store(&p->cursor, pack_cursor(0, last_phase, 0));
    while (p->threads < threads) {
        helper *one = &h[p->threads - 1];
        *one = (helper){.of = p, .index = p->threads};
        if (pthread_create(&one->thread, NULL, help, one)) break;
        p->threads++;
    }
    return p;
}

void pool_close(pool *p)
{
    if (!p) return;
    atomic_store(&p->quit, 1);
    atomic_fetch_add(&p->bell, 1);
    syscall(SYS_futex, &p->bell, FUTEX_WAKE_PRIVATE, THREADS_MAX, NULL, NULL, 0);
    for (uint32_t i = 0; i + 1 < p->threads; i++) pthread_join(p->helper[i].thread, NULL);
    free(p->helper);
    free(p);
}

#else /* one thread */

struct pool {
    uint32_t threads;
    uint64_t long_waits;
};

pool *pool_open(uint32_t threads)
{
    pool *p = calloc(1, sizeof *p);
    (void)threads;
    if (p) p->threads = 1;
    return p;
}

void pool_close(pool *p)
{
    free(p);
}

void pool_run(pool *p, const pool_job *j)
{
    (void)p;
    for (uint32_t phase = j->first; phase < j->end; phase++) {
        uint32_t n = j->chunks(j->self, phase);
        for (uint32_t c = 0; c < n; c++) j->work(j->self, phase, c, 0);
    }
}
#endif

uint32_t pool_threads(const pool *p)
{
    return p->threads;
}

uint64_t pool_waits(const pool *p)
{
    return p->long_waits;
}
