/* fiber - runs the blocks of a launch, one after another; a thread of a block is a fiber. */
#ifndef FIBER_H
#define FIBER_H
#include "args.h"

typedef struct launch {
    int kernel; /* its number in kernels.def */
    uint32_t grid[3], threads, dynamic; /* dynamic: bytes of shared memory */
    uint32_t bytes;
    alignas(8) unsigned char args[512];
} launch;

extern const struct kernel_row { const char *name; void (*call)(const void *); uint32_t bytes; } kernel_table[];
extern const int kernel_count;

/* order: seed of the order in which fibers go on, 0 = ascending.  A misuse ends the process with a line
 * that names kernel, block and thread. */
void fiber_run(const launch *l, uint64_t order);
void fiber_die(const char *what) __attribute__((noreturn));
int fiber_ready(void); /* stacks are there */
#endif
