/* port - see port.h.  POSIX. */
#include "port.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined __linux__
#include <sys/prctl.h>
#endif

int port_map_file(port_map *map, const char *path)
{
    struct stat st;
    int rc = -1, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is not waited for */
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

void port_forget(const void *at, uint64_t bytes)
{
    uintptr_t page = (uintptr_t)port_page_bytes(), first = ((uintptr_t)at + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)at + (uintptr_t)bytes) / page * page;
    if (end > first) madvise((void *)first, end - first, MADV_DONTNEED);
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

/* ---- programs ---- */

/* "NAME=VALUE" into the environment, unless it has the name. */
static void set_once(char *setting)
{
    char *value = strchr(setting, '=');
    *value = 0;
    int there = getenv(setting) != NULL;
    *value = '=';
    if (!there) putenv(setting);
}

/* In the child: it ends when `parent` does, however that ends. */
static void end_with(pid_t parent)
{
#if defined __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(126); /* it has ended meanwhile */
#else
    (void)parent;
#endif
}

/* In the child; what execv fails with is written to `failed`. */
static void become(char *const *argv, char *setting, int out, int failed)
{
    if (setting) set_once(setting);
    int null = open("/dev/null", O_RDWR);
    setpgid(0, 0);
    dup2(null, STDIN_FILENO);
    if (out == STDOUT_FILENO)
        fcntl(out, F_SETFD, 0); /* its own already, where ours was closed: it stays open */
    else
        dup2(out, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execv(argv[0], argv);
    int why = errno;
    _exit(write(failed, &why, sizeof why) == (ssize_t)sizeof why ? 127 : 126);
}

/* Reads until the other end is closed or the time is over; 0, or -1 for the latter. */
static int collect(int in, double until, char *out, size_t out_bytes, size_t *got)
{
    char rest[256];
    for (*got = 0;;) {
        double left = until - port_seconds();
        struct pollfd p = {.fd = in, .events = POLLIN};
        int ready = left > 0 ? poll(&p, 1, (int)(left * 1000) + 1) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return -1;
        int full = *got == out_bytes;
        ssize_t n = read(in, full ? rest : out + *got, full ? sizeof rest : out_bytes - *got);
        if (n == 0 || (n < 0 && errno != EINTR)) return 0;
        if (n > 0 && !full) *got += (size_t)n;
    }
}

/* Waits for the end of the child, but not beyond the time. */
static int await(pid_t pid, double until, int *status)
{
    for (;;) {
        pid_t ended = waitpid(pid, status, WNOHANG);
        if (ended == pid) return 0;
        if (port_seconds() > until) return -1;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

typedef struct child {
    pid_t pid; /* not above 0: it was not started, and number says why */
    int in, number;
} child;

static child start(char *const *argv, char *setting)
{
    int pipes[2], failed[2], status;
    child c = {.pid = -1};
    if (pipe2(pipes, O_CLOEXEC)) {
        c.number = errno;
        return c;
    }
    if (pipe2(failed, O_CLOEXEC)) {
        c.number = errno;
        close(pipes[0]);
        close(pipes[1]);
        return c;
    }
    c.in = pipes[0];
    pid_t self = getpid();
    c.pid = fork();
    if (c.pid == 0) {
        end_with(self);
        become(argv, setting, pipes[1], failed[1]);
    }
    c.number = errno;
    close(pipes[1]);
    close(failed[1]);
    if (c.pid > 0 && read(failed[0], &c.number, sizeof c.number) == (ssize_t)sizeof c.number) {
        waitpid(c.pid, &status, 0);
        c.pid = -1;
    }
    if (c.pid <= 0) close(c.in);
    close(failed[0]);
    return c;
}

/* Ends it, where it has not ended until then, and what it has left running. */
static port_result finish(child *c, int late, double until)
{
    port_result r = {.end = PORT_TIMEOUT};
    int status = 0;
    late = late || await(c->pid, until, &status);
    kill(-c->pid, SIGKILL);
    if (late) {
        kill(c->pid, SIGKILL);
        waitpid(c->pid, &status, 0);
    }
    close(c->in);
    if (!late) r.end = WIFSIGNALED(status) ? PORT_SIGNAL : PORT_EXIT;
    r.number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    return r;
}

port_result port_run(char *const *argv, double seconds, char *out, size_t out_bytes)
{
    double until = port_seconds() + seconds;
    size_t bytes = 0;
    child c = start(argv, NULL);
    if (c.pid <= 0) return (port_result){.end = PORT_NOT_STARTED, .number = c.number};
    int late = collect(c.in, until, out, out_bytes, &bytes);
    port_result r = finish(&c, late, until);
    r.bytes = bytes;
    return r;
}

enum { LINE = 16384 };

/* Hands out the whole lines of held[n]; returns the bytes of what is left, moved to the front. */
static size_t hand_out(char *held, size_t n, void (*line)(void *self, char *text), void *self)
{
    char *at = held, *end;
    while ((end = memchr(at, '\n', n - (size_t)(at - held)))) {
        *end = 0;
        line(self, at);
        at = end + 1;
    }
    n -= (size_t)(at - held);
    memmove(held, at, n);
    return n == LINE ? 0 : n; /* a line that is longer is none of ours */
}

port_result port_run_lines(char *const *argv, char *setting, double *seconds,
                           void (*line)(void *self, char *text), void *self)
{
    char *held = malloc(LINE);
    if (!held) return (port_result){.end = PORT_NOT_STARTED, .number = ENOMEM};
    child c = start(argv, setting);
    int late = -1;
    for (size_t n = 0, got; c.pid > 0 && late < 0; n = hand_out(held, n + got, line, self)) {
        struct pollfd p = {.fd = c.in, .events = POLLIN};
        int ready = poll(&p, 1, (int)(*seconds * 1000) + 1);
        ssize_t bytes = ready > 0 ? read(c.in, held + n, LINE - n) : 0;
        got = bytes > 0 ? (size_t)bytes : 0;
        if (ready == 0) late = 1;
        if (ready > 0 && bytes == 0) late = 0;
    }
    free(held);
    if (c.pid <= 0) return (port_result){.end = PORT_NOT_STARTED, .number = c.number};
    return finish(&c, late, port_seconds() + *seconds);
}

const char *port_signal_name(int number, char *text, size_t bytes)
{
    const char *name = sigabbrev_np(number);
    if (name)
        snprintf(text, bytes, "SIG%s", name);
    else
        snprintf(text, bytes, "signal %d", number);
    return text;
}

static int hide(int fd)
{
    int hidden = memfd_create("output", MFD_CLOEXEC);
    if (hidden < 0 || dup2(hidden, fd) < 0) return -1;
    close(hidden);
    return 0;
}

static long long hidden_bytes(int fd)
{
    struct stat st;
    return fstat(fd, &st) ? 0 : (long long)st.st_size;
}

int port_hide_output(void)
{
    int kept = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
    return kept < 0 || hide(STDOUT_FILENO) ? -1 : kept;
}

long long port_hidden_bytes(void)
{
    return hidden_bytes(STDOUT_FILENO);
}

int port_hide_errors(void)
{
    return hide(STDERR_FILENO);
}

long long port_hidden_error_bytes(void)
{
    return hidden_bytes(STDERR_FILENO);
}

/* ---- threads ---- */

typedef struct work {
    void (*fn)(void *self);
    void *self;
} work;

static void *run_work(void *w)
{
    ((work *)w)->fn(((work *)w)->self);
    return NULL;
}

int port_in_thread(void (*fn)(void *self), void *self)
{
    pthread_t thread;
    work w = {fn, self};
    if (pthread_create(&thread, NULL, run_work, &w)) return -1;
    return pthread_join(thread, NULL) ? -1 : 0;
}

/* ---- files ---- */

int port_stat(const char *path, port_status *out)
{
    struct stat st;
    if (stat(path, &st)) return -1;
    *out =
        (port_status){.owner = st.st_uid,
                      .mode = st.st_mode & 07777u,
                      .folder = S_ISDIR(st.st_mode),
                      .file = S_ISREG(st.st_mode),
                      .ours = st.st_uid == 0 || st.st_uid == geteuid(),
                      .inode = st.st_ino,
                      .bytes = (uint64_t)st.st_size,
                      .modified_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec};
    return 0;
}

int port_replace_file(const char *path, const char *text, size_t bytes)
{
    char part[4096];
    int rc = -1;
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part - 32) return -1;
    for (char *at = part + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(part, 0700);
    }
    snprintf(part, sizeof part, "%s.%ld", path, (long)getpid());
    FILE *out = fopen(part, "wb");
    if (!out) return -1;
    rc = fwrite(text, 1, bytes, out) == bytes ? 0 : -1;
    if (fclose(out)) rc = -1;
    if (!rc) rc = rename(part, path);
    if (rc) unlink(part);
    return rc;
}

char *port_real_path(const char *path)
{
    return realpath(path, NULL);
}

double port_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The rest of the first line of a file of /proc that begins with `key`, after its colon; 0, or -1. */
static int proc_line(const char *path, const char *key, char *text, size_t bytes)
{
    char line[512];
    int rc = -1;
    FILE *in = fopen(path, "r");
    while (rc && in && fgets(line, sizeof line, in)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key))) continue;
        colon += 1 + strspn(colon + 1, " \t");
        colon[strcspn(colon, "\n")] = 0;
        snprintf(text, bytes, "%s", colon);
        rc = 0;
    }
    if (in) fclose(in);
    return rc;
}

void port_machine_look(port_machine *out)
{
    struct utsname name = {.sysname = "?"};
    long cores = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES);
    *out = (port_machine){.cores = cores > 0 ? (uint32_t)cores : 1};
    if (pages > 0) out->memory = (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
    uname(&name);
    size_t release = strspn(name.release, "0123456789"); /* two numbers of it, 6.1 */
    if (name.release[release] == '.')
        release += 1 + strspn(name.release + release + 1, "0123456789");
    snprintf(out->system, sizeof out->system, "%.30s %.*s %.30s", name.sysname,
             (int)(release < 30 ? release : 30), name.release, name.machine);
    if (proc_line("/proc/cpuinfo", "model name", out->cpu, sizeof out->cpu))
        snprintf(out->cpu, sizeof out->cpu, "%.60s", name.machine);
}

uint64_t port_peak_bytes(void)
{
    char text[64];
    if (proc_line("/proc/self/status", "VmHWM", text, sizeof text)) return 0;
    return strtoull(text, NULL, 10) * 1024;
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
