/* pool - see pool.h.
 *
 * Each thread has a share of a phase's chunks, neighbours in memory mostly, and takes them from the front:
 * a processor fetches ahead what is read in order, and reads at two thirds of its speed where two threads
 * take turns.  Who has none left takes from the back of another's share.  A share is one word: the turn
 * that it belongs to, its first chunk and its end.  Who comes late, with a word of an earlier turn in
 * hand, fails to swap it, and takes nothing. */
#include "pool.h"

#include <stdlib.h>

#if defined __linux__
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 256, SPINS = 2000, LINE = 64 };
/* Where threads together lose a quarter of so much time to others, the caller goes on alone for a while. */
static const double window_s = 0.01, lost_most = 0.25, alone_first_s = 0.02, alone_most_s = 1;

/* A share: its turn (24 bits), its first chunk (20), its end (20). */
enum { CHUNK_BITS = 20 };
static const uint32_t chunk_mask = (1u << CHUNK_BITS) - 1, turn_mask = 0xffffffu;
enum { OVER = 1 << 30 }; /* flag of a turn: the job is done */

typedef struct share {
    _Atomic uint64_t word;
    char apart[LINE - sizeof(uint64_t)];
} share;

typedef struct helper {
    pool *of;
    pthread_t thread;
    uint32_t index;
} helper;

struct pool {
    uint32_t threads;
    helper *helper; /* [threads - 1] */
    share *share;   /* [threads] */
    const pool_job *job;
    uint32_t phase, count; /* the phase of this turn, its chunks */
    double alone_until, alone_s;
    double together_s, lost_s; /* since the last verdict */
    double slept_s;            /* of the caller, in this job */
    double shortest;           /* seconds of the caller's shortest chunk of the turn `timed` */
    uint32_t timed;
    uint64_t long_waits;
    char apart[LINE];
    _Atomic uint32_t turn; /* a number for each phase that was opened, and OVER after the last */
    char apart2[LINE];
    _Atomic uint32_t done; /* chunks of the phase */
    char apart3[LINE];
    _Atomic uint32_t sleepers, bell, quit;
};

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
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

static uint64_t pack_share(uint32_t turn, uint32_t first, uint32_t end)
{
    return (uint64_t)(turn & turn_mask) << (2 * CHUNK_BITS) | (uint64_t)first << CHUNK_BITS | end;
}

/* ---- going on ---- */

/* A swap, not a store: the read below must not pass it, and under qemu reads pass arm's stores. */
static void set_turn(pool *p, uint32_t turn)
{
    (void)atomic_exchange(&p->turn, turn);
    if (!atomic_load(&p->sleepers)) return;
    atomic_fetch_add(&p->bell, 1);
    syscall(SYS_futex, &p->bell, FUTEX_WAKE_PRIVATE, THREADS_MAX, NULL, NULL, 0);
}

static void open_phase(pool *p, uint32_t phase, uint32_t chunks)
{
    uint32_t turn = (atomic_load(&p->turn) + 1) & turn_mask;
    p->phase = phase;
    p->count = chunks;
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    for (uint32_t t = 0; t < p->threads; t++) {
        uint64_t first = (uint64_t)chunks * t / p->threads;
        uint64_t end = (uint64_t)chunks * (t + 1) / p->threads;
        atomic_store_explicit(&p->share[t].word, pack_share(turn, (uint32_t)first, (uint32_t)end),
                              memory_order_relaxed);
    }
    set_turn(p, turn);
}

/* Is the caller to work alone still? */
static int alone(pool *p, uint32_t thread)
{
    if (p->threads == 1) return 1;
    if (thread || p->alone_until <= 0) return 0;
    if (seconds(CLOCK_MONOTONIC) < p->alone_until) return 1;
    p->alone_until = 0;
    return 0;
}

/* From `phase` on: what has one chunk is done here, the first with more is opened. */
static void go_on(pool *p, uint32_t phase, uint32_t thread)
{
    const pool_job *j = p->job;
    for (; phase < j->end; phase++) {
        uint32_t n = j->chunks(j->self, phase);
        if (n > 1 && !alone(p, thread)) {
            open_phase(p, phase, n);
            return;
        }
        for (uint32_t c = 0; c < n; c++) j->work(j->self, phase, c, thread);
    }
    set_turn(p, atomic_load(&p->turn) | OVER);
}

/* A chunk of this turn: of the thread's own share the first, of another's the last; -1: there is none. */
static int64_t claim(pool *p, uint32_t turn, uint32_t thread)
{
    for (uint32_t i = 0; i < p->threads; i++) {
        uint32_t whose = (thread + i) % p->threads;
        _Atomic uint64_t *word = &p->share[whose].word;
        uint64_t now = atomic_load(word);
        while (now >> (2 * CHUNK_BITS) == turn) {
            uint32_t first = (uint32_t)(now >> CHUNK_BITS) & chunk_mask, end = now & chunk_mask;
            if (first == end) break;
            uint64_t then = i ? pack_share(turn, first, end - 1) : pack_share(turn, first + 1, end);
            if (atomic_compare_exchange_strong(word, &now, then)) return i ? end - 1 : first;
        }
    }
    return -1;
}

static void note_chunk(pool *p, uint32_t turn, double took)
{
    if (p->timed != turn || took < p->shortest) p->shortest = took;
    p->timed = turn;
}

/* Takes a chunk and does it; 0 when there was none to take. */
static int take(pool *p, uint32_t turn, uint32_t thread)
{
    int64_t chunk = turn & OVER ? -1 : claim(p, turn, thread);
    if (chunk < 0) return 0;
    const pool_job *j = p->job;
    uint32_t n = p->count, phase = p->phase;
    double start = thread ? 0 : seconds(CLOCK_MONOTONIC);
    j->work(j->self, phase, (uint32_t)chunk, thread);
    if (!thread) note_chunk(p, turn, seconds(CLOCK_MONOTONIC) - start);
    if (atomic_fetch_add(&p->done, 1) + 1 == n) go_on(p, phase + 1, thread);
    return 1;
}

/* Until the turn is another; 1 when the thread slept meanwhile. */
static int await(pool *p, uint32_t turn)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->turn, memory_order_acquire) != turn) return 0;
        pause_a_little();
    }
    atomic_fetch_add(&p->sleepers, 1);
    for (;;) {
        uint32_t bell = atomic_load(&p->bell);
        if (atomic_load(&p->turn) != turn || atomic_load(&p->quit)) break;
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
        uint32_t turn = atomic_load(&p->turn);
        if (!take(p, turn, h->index)) await(p, turn);
    }
    return NULL;
}

/* ---- a job ---- */

/* Waits for the others, who end a chunk each.  Chunks of a phase are alike: far more than one is lost. */
static void await_others(pool *p, uint32_t turn)
{
    double start = seconds(CLOCK_MONOTONIC);
    if (!await(p, turn)) return;
    double took = seconds(CLOCK_MONOTONIC) - start;
    p->slept_s += took;
    if (took > 3 * p->shortest + 100e-6) p->lost_s += took - p->shortest;
}

/* Does something else need the processors?  Then alone, twice as long as the last time. */
static void judge(pool *p, double now)
{
    if (p->together_s < window_s) return;
    if (p->lost_s > lost_most * p->together_s) {
        p->alone_s = p->alone_s > 0 ? 2 * p->alone_s : alone_first_s;
        if (p->alone_s > alone_most_s) p->alone_s = alone_most_s;
        p->alone_until = now + p->alone_s;
        p->long_waits++;
    } else {
        p->alone_s = p->alone_s < alone_first_s ? 0
                                                : p->alone_s / 2; /* one good turn may be luck */
    }
    p->together_s = p->lost_s = 0;
}

/* What the caller neither computed nor slept, it was put aside for: that is lost, too. */
void pool_run(pool *p, const pool_job *job)
{
    uint32_t turn;
    int together = !alone(p, 0);
    double start = together ? seconds(CLOCK_MONOTONIC) : 0;
    double cpu = together ? seconds(CLOCK_THREAD_CPUTIME_ID) : 0;
    p->slept_s = 0;
    p->job = job;
    go_on(p, job->first, 0);
    while (!((turn = atomic_load(&p->turn)) & OVER))
        if (!take(p, turn, 0)) await_others(p, turn);
    if (!together) return;
    double end = seconds(CLOCK_MONOTONIC), took = end - start;
    double aside = took - (seconds(CLOCK_THREAD_CPUTIME_ID) - cpu) - p->slept_s;
    if (aside > 0) p->lost_s += aside;
    p->together_s += took;
    judge(p, end);
}

/* ---- open, close ---- */

pool *pool_open(uint32_t threads)
{
    if (threads > THREADS_MAX) threads = THREADS_MAX;
    pool *p = calloc(1, sizeof *p);
    helper *h = calloc(threads, sizeof *h);
    share *s = aligned_alloc(LINE, threads * sizeof *s);
    if (!p || !h || !s) {
        free(p);
        free(h);
        free(s);
        return NULL;
    }
    memset(s, 0, threads * sizeof *s);
    p->helper = h;
    p->share = s;
    p->threads = 1;
    atomic_store(&p->turn, OVER);
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
    free(p->share);
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
