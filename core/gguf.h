/* gguf - a bounds-checked reader of GGUF v2/v3 containers of either byte order; knows nothing of models.
 * A container is one file, or the parts that gguf-split makes of one: NAME-00001-of-00003.gguf is
 * opened, the others are found beside it, and callers see one list of tensors.
 * Files are mapped; strings and tensor data point into the maps.  Every count, length, offset and
 * product is checked before it is used; opening allocates in proportion to what the files hold.
 * Read-only after gguf_open: any thread. */
#ifndef GGUF_H
#define GGUF_H
#include "gguf_format.h"
#include "status.h"

typedef struct gguf gguf;

/* STATUS_BAD_FILE with one sentence naming file, key or tensor and both numbers, and *out NULL. */
int32_t gguf_open(gguf **out, const char *path, fak_error *e);
/* A whole container in memory, which must outlive it; `name` stands for the path. */
int32_t gguf_open_memory(gguf **out, const void *data, uint64_t bytes, const char *name,
                         fak_error *e);
void gguf_close(gguf *g); /* NULL is fine */

const char *gguf_path(const gguf *g);
const char *gguf_shown(const gguf *g);    /* the base name, printable: for sentences */
uint32_t gguf_version(const gguf *g);
int gguf_is_big(const gguf *g);           /* of the first part: big-endian */
uint32_t gguf_part_count(const gguf *g);  /* files; 1 when it is not split */
uint64_t gguf_file_bytes(const gguf *g);  /* of all parts */
uint32_t gguf_value_count(const gguf *g); /* values are those of the first part */
const gguf_value *gguf_value_at(const gguf *g, uint32_t i);
uint32_t gguf_tensor_count(const gguf *g);
const gguf_tensor *gguf_tensor_at(const gguf *g, uint32_t i);

const gguf_value *gguf_find(const gguf *g, const char *key);           /* NULL when absent */
const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name);  /* NULL when absent */

/* STATUS_BAD_FILE with the sentence "<g's file name>: <what>". */
int32_t gguf_fault(const gguf *g, fak_error *e, const char *what, ...) STATUS_PRINTF(3, 4);

/* Typed getters.  FAK_OK; 1 when the key is absent (then *out is untouched); STATUS_BAD_FILE with a
 * sentence when the type is wrong or the number does not fit.  Any integer type is an integer. */
int32_t gguf_get_u32(const gguf *g, const char *key, uint32_t *out, fak_error *e);
int32_t gguf_get_f32(const gguf *g, const char *key, float *out, fak_error *e); /* F32 or F64 */
int32_t gguf_get_bool(const gguf *g, const char *key, int *out, fak_error *e);
int32_t gguf_get_string(const gguf *g, const char *key, gguf_string *out, fak_error *e);
/* An array whose elements are of that type; count 0 is fine. */
int32_t gguf_get_array(const gguf *g, const char *key, uint32_t element, const gguf_value **out,
                       fak_error *e);
#endif
