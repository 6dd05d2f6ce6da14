/* elfnote - what a shared object says of itself, read without loading it: its machine, and the FAK_NOTE
 * of abi/fak_backend.h.  Robustness, not security. */
#ifndef ELFNOTE_H
#define ELFNOTE_H
#include "status.h"

typedef struct elfnote {
    int there;               /* the file has a FAK_NOTE */
    uint32_t major, minor;   /* ABI that it was built for */
    uint32_t klass;          /* enum fak_class that it claims with default options */
    char backend[33];        /* its name */
    char cpu[33];            /* what it needs of the CPU: cpu_lacks; "" = nothing */
} elfnote;

/* STATUS_REFUSED with the reason (no path in it) when the file cannot be read, is not an ELF shared
 * object for this machine, or has a note that is broken or of another ABI major. */
int32_t elfnote_read(elfnote *note, const char *path, fak_error *e);
#endif
