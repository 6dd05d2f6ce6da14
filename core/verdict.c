/* verdict - see verdict.h. */
#include "verdict.h"

#include "../abi/fak_backend.h"
#include "artefact.h"
#include "cpu.h"
#include "port.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 2 * 4096, PATH_BYTES = 4096 };

/* All that the verdict depends on, as one line; 0, or -1 when the file is gone. */
static int key_of(const char *file, const char *how, char key[KEY_BYTES])
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
                     "verdict: abi %u.%u cpu %s program %" PRIu64 " %" PRIu64 " %" PRId64
                     " file %" PRIu64 " %" PRIu64 " %" PRId64 " %s %s\n",
                     FAK_ABI_MAJOR, FAK_ABI_MINOR, features, self.inode, self.bytes,
                     self.modified_ns, st.inode, st.bytes, st.modified_ns, file, how);
    return n < KEY_BYTES ? 0 : -1;
}

int verdict_is_clean(const char *cache, const char *file, const char *how)
{
    char key[KEY_BYTES];
    return !key_of(file, how, key) && artefact_get(cache, key, NULL, 0) > 0;
}

void verdict_keep(const char *cache, const char *file, const char *how)
{
    char key[KEY_BYTES];
    if (!key_of(file, how, key)) artefact_put(cache, key, "clean", 5);
}
