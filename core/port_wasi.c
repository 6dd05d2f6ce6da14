/* port - see port.h.  WASI: no mapped files (they are read), no shared libraries, no executable's
 * path, no programs, no owners, no links that lead elsewhere. */
#include "port.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* All of an open file of st_size bytes, malloc'd; NULL with errno. */
static uint8_t *read_file(int fd, off_t st_size)
{
    uint8_t *data = (uint64_t)st_size <= SIZE_MAX ? malloc((size_t)st_size) : NULL;
    size_t done = 0;
    ssize_t got = 1;
    if (!data) {
        errno = ENOMEM;
        return NULL;
    }
    for (; done < (size_t)st_size && got > 0; done += got > 0 ? (size_t)got : 0)
        got = read(fd, data + done, (size_t)st_size - done);
    if (done == (size_t)st_size) return data;
    if (got == 0) errno = EIO; /* it has become shorter */
    free(data);
    return NULL;
}

int port_map_file(port_map *map, const char *path)
{
    struct stat st;
    int rc = -1, fd = open(path, O_RDONLY);
    *map = (port_map){0};
    if (fd < 0 || fstat(fd, &st)) goto out;
    if (S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        goto out;
    }
    if (st.st_size > 0) {
        uint8_t *data = read_file(fd, st.st_size);
        if (!data) goto out;
        *map = (port_map){data, (uint64_t)st.st_size};
    }
    rc = 0;
out:
    if (fd >= 0) {
        int kept = errno;
        close(fd);
        errno = kept;
    }
    return rc;
}

void port_unmap(port_map *map)
{
    free((void *)(uintptr_t)map->data);
    *map = (port_map){0};
}

void port_forget(const void *at, uint64_t bytes)
{
    (void)at, (void)bytes; /* files are read, not mapped */
}

void *port_library_open(const char *path, const char **why)
{
    (void)path;
    *why = "no shared libraries on this target: only what is linked in runs";
    return NULL;
}

void *port_library_symbol(void *library, const char *name)
{
    (void)library, (void)name;
    return NULL;
}

void port_library_close(void *library)
{
    (void)library;
}

int port_executable(char *dst, size_t dst_bytes)
{
    (void)dst, (void)dst_bytes;
    return -1;
}

char *port_real_path(const char *path)
{
    struct stat st;
    return stat(path, &st) ? NULL : strdup(path);
}

port_result port_run(char *const *argv, double seconds, char *out, size_t out_bytes)
{
    (void)argv, (void)seconds, (void)out, (void)out_bytes;
    return (port_result){.end = PORT_NOT_STARTED, .number = ENOSYS};
}

port_result port_run_lines(char *const *argv, char *setting, double *seconds,
                           void (*line)(void *self, char *text), void *self)
{
    (void)argv, (void)setting, (void)seconds, (void)line, (void)self;
    return (port_result){.end = PORT_NOT_STARTED, .number = ENOSYS};
}

int port_in_thread(void (*fn)(void *self), void *self)
{
    fn(self);
    return 0;
}

const char *port_signal_name(int number, char *text, size_t bytes)
{
    snprintf(text, bytes, "signal %d", number);
    return text;
}

int port_hide_output(void)
{
    errno = ENOSYS;
    return -1;
}

long long port_hidden_bytes(void)
{
    return 0;
}

int port_hide_errors(void)
{
    errno = ENOSYS;
    return -1;
}

long long port_hidden_error_bytes(void)
{
    return 0;
}

int port_stat(const char *path, port_status *out)
{
    struct stat st;
    if (stat(path, &st)) return -1;
    *out = (port_status){.mode = 0700, /* whoever gives us files has chosen them */
                         .folder = S_ISDIR(st.st_mode),
                         .file = S_ISREG(st.st_mode),
                         .ours = 1,
                         .inode = st.st_ino,
                         .bytes = (uint64_t)st.st_size};
    return 0;
}

int port_replace_file(const char *path, const char *text, size_t bytes)
{
    (void)path, (void)text, (void)bytes; /* kept for the next run: there is nothing to keep */
    errno = ENOSYS;
    return -1;
}

double port_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void port_machine_look(port_machine *out)
{
    *out = (port_machine){.system = "WASI wasm32", .cpu = "wasm32", .cores = 1};
}

uint64_t port_peak_bytes(void)
{
    return (uint64_t)__builtin_wasm_memory_size(0) * port_page_bytes(); /* it never shrinks */
}

uint64_t port_address_limit(void)
{
    return 0; /* 32 bits, but how much of it is in use nobody can tell */
}

uint64_t port_page_bytes(void)
{
    return 65536;
}

const char *port_environment(const char *name)
{
    return getenv(name);
}
