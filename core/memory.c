/* memory - see memory.h. */
#include "memory.h"

#include "port.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

static void less(memory_room *room, uint64_t bytes, const char *who)
{
    if (room->who && room->bytes <= bytes) return;
    *room = (memory_room){bytes ? bytes : 1, who}; /* 0 would say that nobody knows */
}

/* The number behind `key` in a file of "key number" lines, or alone in it (key NULL); 0, or -1. */
static int read_number(const char *root, const char *folder, const char *file, const char *key,
                       uint64_t *out)
{
    char path[PATH_BYTES], line[256];
    int rc = -1;
    if (snprintf(path, sizeof path, "%s%s/%s", root, folder, file) >= (int)sizeof path) return -1;
    FILE *in = fopen(path, "r");
    while (in && rc && fgets(line, sizeof line, in)) {
        size_t n = key ? strlen(key) : 0;
        if (key && (strncmp(line, key, n) || (line[n] != ' ' && line[n] != ':'))) continue;
        const char *at = line + n + (key != NULL);
        at += strspn(at, " \t");
        if (*at < '0' || *at > '9') break; /* "max" */
        *out = strtoull(at, NULL, 10);
        rc = 0;
    }
    if (in) fclose(in);
    return rc;
}

typedef struct group_files {
    const char *limit, *use, *cached;
} group_files;
static const group_files v1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
static const group_files v2 = {"memory.max", "memory.current", "inactive_file"};

/* The group at mount + path and those above it. */
static void look_up(memory_room *room, const char *root, const char *mount, const char *path,
                    const group_files *f)
{
    char folder[PATH_BYTES];
    if (snprintf(folder, sizeof folder, "%s%s", mount, path) >= (int)sizeof folder) return;
    for (size_t top = strlen(mount);;) {
        uint64_t limit, use, cached = 0;
        if (!read_number(root, folder, f->limit, NULL, &limit) &&
            !read_number(root, folder, f->use, NULL, &use) && limit < UINT64_MAX / 4) {
            read_number(root, folder, "memory.stat", f->cached, &cached);
            use = use > cached ? use - cached : 0;
            less(room, limit > use ? limit - use : 0, "its control group");
        }
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < top) return;
        *slash = 0;
    }
}

/* Lines of /proc/self/cgroup: "0::/path" (v2), "4:memory:/path" (v1). */
static void look_at_groups(memory_room *room, const char *root)
{
    char path[PATH_BYTES], line[PATH_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *in = fopen(path, "r");
    while (in && fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = 0;
        char *kind = strchr(line, ':'), *where = kind ? strchr(kind + 1, ':') : NULL;
        if (!where) continue;
        *where++ = 0;
        if (!kind[1]) look_up(room, root, "/sys/fs/cgroup", where, &v2);
        if (strstr(kind + 1, "memory")) look_up(room, root, "/sys/fs/cgroup/memory", where, &v1);
    }
    if (in) fclose(in);
}

memory_room memory_look(const char *root)
{
    memory_room room = {0};
    uint64_t n;
    if (!read_number(root, "/proc", "meminfo", "MemAvailable", &n) && n < UINT64_MAX / 1024)
        less(&room, n * 1024, "the machine");
    look_at_groups(&room, root);
    uint64_t limit = port_address_limit();
    if (limit) {
        uint64_t pages = 0; /* of /proc/self/statm: the first number is the size in pages */
        read_number(root, "/proc/self", "statm", NULL, &pages);
        uint64_t used = pages * port_page_bytes();
        less(&room, limit > used ? limit - used : 0, "its address space limit");
    }
    return room;
}
