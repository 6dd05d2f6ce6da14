/* search - see search.h. */
#include "search.h"

#include "port.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef FAK_BACKEND_FOLDER
#define FAK_BACKEND_FOLDER "/usr/local/lib/fak/backends"
#endif
#ifndef FAK_LIBDIR
#define FAK_LIBDIR "lib"
#endif
enum { PATH_BYTES = 4096 };

int search_name_of(const char *path, char name[SEARCH_NAME_MAX + 1])
{
    static const char prefix[] = "fak-backend-", suffix[] = ".so";
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n = strlen(base), head = sizeof prefix - 1, tail = sizeof suffix - 1;
    if (n <= head + tail || n - head - tail > SEARCH_NAME_MAX || strncmp(base, prefix, head) ||
        strcmp(base + n - tail, suffix))
        return -1;
    n -= head + tail;
    if (strspn(base + head, "abcdefghijklmnopqrstuvwxyz0123456789-") < n) return -1;
    memcpy(name, base + head, n);
    name[n] = 0;
    return 0;
}

const char *search_distrust(const char *path, char why[128])
{
    port_status st;
    if (port_stat(path, &st))
        snprintf(why, 128, "%s", strerror(errno));
    else if (!st.ours)
        snprintf(why, 128, "it belongs to user %u, neither to root nor to you; --trust takes it",
                 (unsigned)st.owner);
    else if (st.mode & 2)
        snprintf(why, 128, "everybody may write to it (mode %04o); --trust takes it",
                 (unsigned)st.mode);
    else
        return NULL;
    return why;
}

static int32_t add_folder(search *s, const char *path, size_t bytes, const char *why, fak_error *e)
{
    search_folder *folder = realloc(s->folder, (s->folders + 1) * sizeof *folder);
    if (!folder) return status_memory(e, "the list of folders", bytes);
    s->folder = folder;
    folder += s->folders;
    *folder = (search_folder){.path = strndup(path, bytes)};
    if (!folder->path) return status_memory(e, "the list of folders", bytes);
    snprintf(folder->why, sizeof folder->why, "%s", why);
    s->folders++;
    return FAK_OK;
}

static int32_t add_file(search *s, search_folder *folder, const char *base, int trusted,
                        fak_error *e)
{
    char path[PATH_BYTES];
    search_file *file = realloc(s->file, (s->files + 1) * sizeof *file);
    if (!file) return status_memory(e, "the list of backends", sizeof *file);
    s->file = file;
    file += s->files;
    *file = (search_file){0};
    if (search_name_of(base, file->name)) {
        const char *end = strrchr(base, '.');
        if (end && !strcmp(end, ".so"))
            snprintf(folder->why, sizeof folder->why,
                     "%.60s is not looked at: a backend is named fak-backend-NAME.so", base);
        return FAK_OK;
    }
    if (snprintf(path, sizeof path, "%s/%s", folder->path, base) >= (int)sizeof path) return FAK_OK;
    file->path = strdup(path);
    if (!file->path) return status_memory(e, "the list of backends", strlen(path));
    if (!trusted) search_distrust(path, file->why);
    s->files++;
    return FAK_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const search_file *)a)->name, ((const search_file *)b)->name);
}

static int32_t list_folder(search *s, uint32_t at, int trusted, fak_error *e)
{
    uint32_t first = s->files;
    int32_t rc = FAK_OK;
    for (uint32_t i = 0; i < at; i++)
        if (!strcmp(s->folder[i].path, s->folder[at].path)) return FAK_OK; /* once is enough */
    if (!trusted && search_distrust(s->folder[at].path, s->folder[at].why)) return FAK_OK;
    DIR *dir = opendir(s->folder[at].path);
    if (!dir) {
        snprintf(s->folder[at].why, sizeof s->folder[at].why, "%s", strerror(errno));
        return FAK_OK;
    }
    for (struct dirent *entry; !rc && (entry = readdir(dir));)
        rc = add_file(s, &s->folder[at], entry->d_name, trusted, e);
    closedir(dir);
    if (s->files > first) qsort(s->file + first, s->files - first, sizeof *s->file, by_name);
    return rc;
}

static int32_t add_path(search *s, const char *path, fak_error *e)
{
    int32_t rc = FAK_OK;
    while (!rc && path) {
        const char *end = strchr(path, ':');
        size_t n = end ? (size_t)(end - path) : strlen(path);
        const char *why = n == 0           ? "an empty entry of FAK_PLUGIN_PATH"
                          : path[0] != '/' ? "FAK_PLUGIN_PATH takes absolute folders only"
                                           : "";
        rc = add_folder(s, path, n, why, e);
        path = end ? end + 1 : NULL;
    }
    return rc;
}

/* PREFIX/bin/fakrun -> PREFIX/LIBDIR/fak/backends, PREFIX/lib/fak/backends: an installed tree may be moved. */
static int32_t add_beside(search *s, fak_error *e)
{
    static const char *const libdirs[] = {FAK_LIBDIR, "lib"};
    char path[PATH_BYTES + sizeof FAK_LIBDIR + 32];
    int32_t rc = FAK_OK;
    if (port_executable(path, PATH_BYTES)) return FAK_OK;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');
        if (!slash) return FAK_OK;
        *slash = 0;
    }
    size_t prefix = strlen(path);
    for (int i = 0; !rc && i < 2; i++) {
        snprintf(path + prefix, sizeof path - prefix, "/%s/fak/backends", libdirs[i]);
        if (strcmp(path, FAK_BACKEND_FOLDER) && (!i || strcmp(libdirs[0], libdirs[1])))
            rc = add_folder(s, path, strlen(path), "", e);
    }
    return rc;
}

int32_t search_run(search *s, const char *path, int trusted, fak_error *e)
{
    int32_t rc;
    *s = (search){0};
    if ((rc = add_path(s, path && *path ? path : NULL, e)) ||
        (rc = add_folder(s, FAK_BACKEND_FOLDER, strlen(FAK_BACKEND_FOLDER), "", e)) ||
        (rc = add_beside(s, e)))
        return rc;
    for (uint32_t i = 0; !rc && i < s->folders; i++)
        if (!s->folder[i].why[0]) rc = list_folder(s, i, trusted, e);
    return rc;
}

void search_free(search *s)
{
    for (uint32_t i = 0; i < s->folders; i++) free(s->folder[i].path);
    for (uint32_t i = 0; i < s->files; i++) free(s->file[i].path);
    free(s->folder);
    free(s->file);
    *s = (search){0};
}
