/* verdict - see verdict.h. */
#include "verdict.h"

#include "../abi/fak_backend.h"
#include "cpu.h"
#include "port.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 4096 + 512, PATH_BYTES = 4096 };

/* All that the verdict depends on, as one line; 0, or -1 when the file is gone. */
static int key_of(const char *file, char key[KEY_BYTES])
{
    port_status st, self;
    cpu_state cpu;
    char features[64], program[PATH_BYTES];
    cpu_look(&cpu);
    cpu_text(&cpu, features, sizeof features);
    if (port_stat(file, &st) || port_executable(program, sizeof program) ||
        port_stat(program, &self))
        return -1;
    int n = snprintf(key, KEY_BYTES,
                     "abi %u.%u cpu %s program %" PRIu64 " %" PRIu64 " %" PRId64 " file %" PRIu64
                     " %" PRIu64 " %" PRId64 " %s\n",
                     FAK_ABI_MAJOR, FAK_ABI_MINOR, features, self.inode, self.bytes,
                     self.modified_ns, st.inode, st.bytes, st.modified_ns, file);
    return n < KEY_BYTES ? 0 : -1;
}

static int path_of(const char *cache, const char *key, char path[PATH_BYTES])
{
    uint64_t h = 14695981039346656037ull; /* FNV-1a */
    for (const char *at = key; *at; at++) h = (h ^ (uint8_t)*at) * 1099511628211ull;
    int n = snprintf(path, PATH_BYTES, "%s/fak/verdicts/%016" PRIx64, cache, h);
    return n < PATH_BYTES ? 0 : -1;
}

int verdict_is_clean(const char *cache, const char *file)
{
    char key[KEY_BYTES], path[PATH_BYTES];
    port_map map;
    if (!cache || key_of(file, key) || path_of(cache, key, path) || port_map_file(&map, path))
        return 0;
    int clean = map.bytes == strlen(key) && !memcmp(map.data, key, strlen(key));
    port_unmap(&map);
    return clean;
}

void verdict_keep(const char *cache, const char *file)
{
    char key[KEY_BYTES], path[PATH_BYTES];
    if (!cache || key_of(file, key) || path_of(cache, key, path)) return;
    port_replace_file(path, key, strlen(key)); /* that it cannot be written is no fault */
}
