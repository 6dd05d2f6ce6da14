/* capacity - does it fit?  What a program needs, from the reports of its sides, against what there is;
 * answered before a weight is loaded. */
#ifndef CAPACITY_H
#define CAPACITY_H
#include "program.h"

#include <stdio.h>

typedef struct capacity {          /* of one memory: the host's, or the device's own */
    uint64_t weight_bytes;         /* kept there */
    uint64_t lent_bytes;           /* used where they lie in the mapped file; not in weight_bytes */
    uint64_t kv_bytes;             /* for all slots at the program's context */
    uint64_t kv_position_bytes;    /* of it, for one more position of context in all slots */
    uint64_t other_bytes;          /* activations, tables, what the driver adds */
    uint64_t needed, there;        /* there 0: nobody says */
    const char *who;               /* says what is there: "the machine", "the device" ... */
    uint32_t context, fits;        /* asked for; the most that would fit, 0 = none at all */
} capacity;

/* After program_prepare, a dry run or not. */
capacity capacity_of_host(const program *p);
/* needed is 0 where the device computes in host memory. */
capacity capacity_of_device(const program *p);
/* STATUS_REFUSED with both numbers and the largest context that fits. */
int32_t capacity_check(const program *p, fak_error *e);
/* One line: what is needed, of what parts, and what there is. */
void capacity_print(const capacity *c, FILE *out);
/* "48.1 MB", "1.2 GB" for people. */
const char *capacity_text(uint64_t bytes, char text[16]);
#endif
