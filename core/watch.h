/* watch - looks at what a plugin does to the process that has loaded it, and makes its allocations fail.
 * For conformance only, in a process of its own; Linux with ELF; elsewhere nothing can be seen, and each
 * function says so.  One plugin at a time, one thread. */
#ifndef WATCH_H
#define WATCH_H
#include <stdint.h>

/* ---- what it may not change ---- */

enum watch_what {
    WATCH_ENVIRONMENT, WATCH_LOCALE, WATCH_FOLDER, WATCH_SIGNALS, WATCH_UMASK, WATCH_CHILDREN,
    WATCH_THREADS, WATCH_DESCRIPTORS, WATCH_STATES
};
extern const char *const watch_name[WATCH_STATES]; /* "environment variables", ... */
typedef struct watch_state { int there; uint64_t of[WATCH_STATES]; } watch_state;
watch_state watch_look(void);
/* Threads that were joined may be seen for a moment: looks again until there are at most so many. */
uint64_t watch_threads(uint64_t most);

uint64_t watch_heap_bytes(void);    /* in use, of malloc; 0 where nobody says */
uint64_t watch_address_bytes(void); /* of address space; 0 likewise */
void watch_one_heap(void);          /* before any other thread is made: one heap for all of them */

/* ---- code that runs when it may not ---- */

/* From now on no code of the object that holds `address` may run; 0, or -1 where that cannot be had.  The
 * first that does is let go on, and watch_ran counts it. */
int watch_seal(const void *address);
void watch_unseal(void);
int watch_ran(void); /* since watch_seal */

/* ---- allocations that fail ---- */

/* The object's own calls of malloc, calloc, realloc, aligned_alloc and posix_memalign are counted from now
 * on; returns how many kinds it calls, -1 where that cannot be had. */
int watch_allocations(const void *address);
/* The k-th call from now on fails, once; 0: none does. */
void watch_fail(uint64_t k);
uint64_t watch_failed(void); /* calls that have failed since watch_fail */
void watch_allocations_end(void);
#endif
