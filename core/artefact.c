/* artefact - see artefact.h.  A file is the key, a zero byte and the entry: keys of one hash do not meet. */
#include "artefact.h"

#include "port.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

static int path_of(const char *folder, const char *key, char path[PATH_BYTES])
{
    uint64_t h = 14695981039346656037ull; /* FNV-1a */
    for (const char *at = key; *at; at++) h = (h ^ (uint8_t)*at) * 1099511628211ull;
    if (!folder) return -1;
    return snprintf(path, PATH_BYTES, "%s/fak/artefacts/%016" PRIx64, folder, h) < PATH_BYTES ? 0
                                                                                              : -1;
}

uint64_t artefact_get(const char *folder, const char *key, void *dst, uint64_t dst_bytes)
{
    char path[PATH_BYTES];
    port_map map;
    size_t head = strlen(key) + 1;
    uint64_t bytes = 0;
    if (path_of(folder, key, path) || port_map_file(&map, path)) return 0;
    if (map.bytes > head && !memcmp(map.data, key, head)) {
        bytes = map.bytes - head;
        uint64_t copied = bytes < dst_bytes ? bytes : dst_bytes;
        if (copied) memcpy(dst, map.data + head, (size_t)copied);
    }
    port_unmap(&map);
    return bytes;
}

void artefact_put(const char *folder, const char *key, const void *src, uint64_t bytes)
{
    char path[PATH_BYTES];
    size_t head = strlen(key) + 1;
    if (!bytes || bytes > SIZE_MAX - head || path_of(folder, key, path)) return;
    char *whole = malloc(head + (size_t)bytes);
    if (!whole) return;
    memcpy(whole, key, head);
    memcpy(whole + head, src, (size_t)bytes);
    port_replace_file(path, whole, head + (size_t)bytes);
    free(whole);
}
