/* artefact - the store behind fak_host's cache: what backends compile, by key, in files of the user's cache
 * folder.  A store that cannot be read or written is as good as an empty one.  Any thread. */
#ifndef ARTEFACT_H
#define ARTEFACT_H
#include <stdint.h>

/* Bytes of the entry, 0 = none; copies at most dst_bytes.  folder: the user's cache folder, NULL = none. */
uint64_t artefact_get(const char *folder, const char *key, void *dst, uint64_t dst_bytes);
void artefact_put(const char *folder, const char *key, const void *src, uint64_t bytes);
#endif
