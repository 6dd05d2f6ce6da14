/* port - see port.h.  POSIX. */
#include "port.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int port_map_file(port_map *map, const char *path)
{
    struct stat st;
    int rc = -1, fd = open(path, O_RDONLY | O_CLOEXEC);
    *map = (port_map){0};
    if (fd < 0 || fstat(fd, &st)) goto out;
    if (S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        goto out;
    }
    if (st.st_size > 0) {
        void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) goto out;
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
    if (map->data) munmap((void *)(uintptr_t)map->data, (size_t)map->bytes);
    *map = (port_map){0};
}

void *port_library_open(const char *path, const char **why)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    *why = library ? NULL : dlerror();
    return library;
}

void *port_library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

void port_library_close(void *library)
{
    if (library) dlclose(library);
}

int port_executable(char *dst, size_t dst_bytes)
{
    char *path = realpath("/proc/self/exe", NULL);
    int rc = -1;
    size_t n = 0;
    while (path && path[n]) n++;
    if (path && n < dst_bytes) {
        for (size_t i = 0; i <= n; i++) dst[i] = path[i];
        rc = 0;
    }
    free(path);
    return rc;
}

double port_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

uint64_t port_address_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY) return 0;
    return limit.rlim_cur;
}

uint64_t port_page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

const char *port_environment(const char *name)
{
    return secure_getenv(name);
}
