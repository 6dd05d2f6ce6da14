/* port - what a target may lack: mapped files, shared libraries, the executable's path, a clock.
 * Lowest room: includes nothing of ours but the ABI's types. */
#ifndef PORT_H
#define PORT_H
#include <stddef.h>
#include <stdint.h>

typedef struct port_map { /* a whole file, read-only; zero-initialise */
    const uint8_t *data;  /* NULL for an empty file */
    uint64_t bytes;
} port_map;

/* 0, or -1 with a reason in errno (EISDIR for a folder).  The file may be closed by others later. */
int port_map_file(port_map *map, const char *path);
void port_unmap(port_map *map); /* a zero map is fine */

/* RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE.  NULL with *why (valid until the next call). */
void *port_library_open(const char *path, const char **why);
void *port_library_symbol(void *library, const char *name); /* NULL when absent */
void port_library_close(void *library);                     /* NULL is fine; code stays mapped */

/* The real path of the running executable into dst; 0, or -1 where the target cannot tell. */
int port_executable(char *dst, size_t dst_bytes);

double port_seconds(void); /* monotonic */

uint64_t port_address_limit(void); /* bytes of address space that the process may have, 0 = any */
uint64_t port_page_bytes(void);

/* The environment, for main only; NULL in a privileged process. */
const char *port_environment(const char *name);
#endif
