/* memory - how much of it there is for this process: the machine, its control groups, its own limit.
 * Reads files below root (""; tests give a folder) each time it is asked. */
#ifndef MEMORY_H
#define MEMORY_H
#include <stdint.h>

typedef struct memory_room {
    uint64_t bytes;     /* that can still be had; 0 = nobody says */
    const char *who;    /* "the machine", "its control group", "its address space limit" */
} memory_room;

/* The smallest of: MemAvailable; limit - use (less what is only cached) of each control group on the
 * way up, v1 or v2; the address space that is left. */
memory_room memory_look(const char *root);
#endif
