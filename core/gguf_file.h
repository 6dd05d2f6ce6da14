/* gguf_file - one GGUF file, v2 or v3 in either byte order, checked as a whole: every count, length,
 * offset and product before it is used; reading allocates in proportion to what the file holds.
 * A container may be several of these (gguf.h).  Read-only once read: any thread. */
#ifndef GGUF_FILE_H
#define GGUF_FILE_H
#include "gguf_format.h"
#include "port.h"
#include "status.h"

enum { GGUF_SHOWN = 64 }; /* of file names in sentences, with the end mark */

typedef struct gguf_file { /* zero-initialise */
    port_map map;          /* what names, values and data point into */
    int mapped;            /* the map is ours to unmap */
    int big;               /* big-endian */
    uint32_t version, value_count, tensor_count;
    gguf_value *value;
    gguf_tensor *tensor;           /* names may come twice: the container looks */
    const gguf_string **key_order; /* sorted; each points at the first member of a value */
    char shown[GGUF_SHOWN];        /* the base name, printable */
} gguf_file;

/* Maps the file; 0, or -1 with a reason in errno. */
int gguf_file_map(gguf_file *f, const char *path);
/* Uses bytes of the caller's, which must outlive *f. */
void gguf_file_use(gguf_file *f, const void *data, uint64_t bytes, const char *name);
/* Reads and checks what was mapped.  STATUS_BAD_FILE with one sentence naming file, key or tensor and
 * both numbers; close *f in any case. */
int32_t gguf_file_read(gguf_file *f, fak_error *e);
void gguf_file_close(gguf_file *f); /* a zero or half-read file is fine */

/* An entry of one of the types (a mask of 1 << enum gguf_type).  Else NULL, with *rc 1 when it is absent
 * and STATUS_BAD_FILE, "... has type T; <needed> is needed", when it has another. */
const gguf_value *gguf_file_get(const gguf_file *f, const char *key, uint32_t types,
                                const char *needed, int32_t *rc, fak_error *e);
/* An integer that fits, as gguf_get_u32. */
int32_t gguf_file_get_u32(const gguf_file *f, const char *key, uint32_t *out, fak_error *e);

/* STATUS_BAD_FILE with the sentence `<file>: <kind> "<name>" <what>`; `<file>: <what>` when kind is
 * NULL. */
int32_t gguf_file_fault(const gguf_file *f, fak_error *e, const char *kind, gguf_string name,
                        const char *what, ...) STATUS_PRINTF(5, 6);
#endif
