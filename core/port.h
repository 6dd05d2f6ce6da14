/* port - what a target may lack: mapped files, shared libraries, the executable's path, a clock.
 * port.c is for POSIX, port_wasi.c for WebAssembly; the build takes one.
 * Lowest room: includes nothing of ours but the ABI's types. */
#ifndef PORT_H
#define PORT_H
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct port_map { /* a whole file, read-only, mapped or read; zero-initialise */
    const uint8_t *data;  /* NULL for an empty file */
    uint64_t bytes;
} port_map;

/* 0, or -1 with a reason in errno (EISDIR for a folder).  A pipe or a device is as an empty file.  The
 * file may be closed by others later. */
int port_map_file(port_map *map, const char *path);
void port_unmap(port_map *map); /* a zero map is fine */
/* Bytes of a mapped file that are not needed soon may leave memory; they can be read again all the same. */
void port_forget(const void *at, uint64_t bytes);

/* RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE.  NULL with *why (valid until the next call). */
void *port_library_open(const char *path, const char **why);
void *port_library_symbol(void *library, const char *name); /* NULL when absent */
void port_library_close(void *library);                     /* NULL is fine; code stays mapped */

/* The real path of the running executable into dst; 0, or -1 where the target cannot tell. */
int port_executable(char *dst, size_t dst_bytes);
/* The absolute path of a file, links followed; the caller frees.  NULL with errno. */
char *port_real_path(const char *path);

/* How a program ended. */
enum port_end { PORT_EXIT, PORT_SIGNAL, PORT_TIMEOUT, PORT_NOT_STARTED };
typedef struct port_result {
    enum port_end end;
    int number;              /* exit status, signal, or errno */
    size_t bytes;            /* of what it wrote to descriptor 1, cut to fit */
} port_result;
/* Runs argv[0] (a path) with nothing to read and its standard error thrown away; kills it, and what it
 * has started, after so many seconds.  Its environment is ours; on Linux it is killed when we end, too. */
port_result port_run(char *const *argv, double seconds, char *out, size_t out_bytes);
/* The same, but each line that it writes is given to `line` as it comes (without its end); it is killed
 * when none has come for so many seconds, which `line` may change.  setting: "NAME=VALUE" of the child's
 * environment, where that has no such name; or NULL.  bytes says nothing. */
port_result port_run_lines(char *const *argv, char *setting, double *seconds,
                           void (*line)(void *self, char *text), void *self);
const char *port_signal_name(int number, char *text, size_t bytes); /* "SIGSEGV" */
/* Standard output becomes a hidden file; returns a descriptor that goes where it went, or -1. */
int port_hide_output(void);
long long port_hidden_bytes(void); /* written to standard output since port_hide_output */
/* Likewise for standard error, which goes nowhere. */
int port_hide_errors(void);
long long port_hidden_error_bytes(void);

/* Runs fn(self) in a thread of its own and waits for its end; where there are no threads, in this one. */
int port_in_thread(void (*fn)(void *self), void *self); /* 0, or -1: it did not run */

/* Owner and mode of a file or folder: 0, or -1 with errno. */
typedef struct port_status {
    uint32_t owner, mode;    /* mode: permission bits */
    int folder, file, ours;  /* file: a regular one; ours: owned by this process's user or by root */
    uint64_t inode, bytes;
    int64_t modified_ns;
} port_status;
int port_stat(const char *path, port_status *out);
/* Writes a file whole or not at all, making folders on the way; 0, or -1. */
int port_replace_file(const char *path, const char *text, size_t bytes);

double port_seconds(void); /* monotonic */

typedef struct port_machine { /* for evidence: nothing that names this one among its like */
    char system[96];     /* "Linux 6.1 x86_64" */
    char cpu[96];        /* its model's name, or that of its kind */
    uint32_t cores;      /* in use */
    uint64_t memory;     /* bytes, 0 = unknown */
} port_machine;
void port_machine_look(port_machine *out);
uint64_t port_peak_bytes(void); /* of memory that this process has had resident; 0 = unknown */

/* malloc for sizes that may be more than a size_t can say: then NULL. */
static inline void *port_alloc(uint64_t bytes)
{
    return (size_t)bytes == bytes ? malloc((size_t)bytes) : NULL;
}

uint64_t port_address_limit(void); /* bytes of address space that the process may have, 0 = any */
uint64_t port_page_bytes(void);

/* The environment, for main only; NULL in a privileged process. */
const char *port_environment(const char *name);
#endif
