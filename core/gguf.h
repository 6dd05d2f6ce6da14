/* gguf - a bounds-checked reader of GGUF v2/v3 containers; knows nothing of models.
 * The file is mapped; strings and tensor data point into the map.  Every count, length, offset and
 * product is checked before it is used; opening allocates in proportion to what the file holds.
 * Read-only after gguf_open: any thread. */
#ifndef GGUF_H
#define GGUF_H
#include "gguf_format.h"
#include "status.h"

typedef struct gguf gguf;

typedef struct gguf_tensor {
    gguf_string name;
    uint32_t ggml_type;      /* the format's number */
    uint32_t dtype;          /* enum fak_dtype, 0 where fak has no such dtype */
    uint32_t dims;           /* 0..4; dim[0] is the row length; dims beyond are 1 */
    uint64_t dim[4];
    uint64_t bytes;          /* of all its data; 0 where the ggml type is unknown */
    const uint8_t *data;     /* in the map; aligned as the file says, perhaps to 1 byte only */
} gguf_tensor;

/* STATUS_BAD_FILE with one sentence naming file, key or tensor and both numbers, and *out NULL. */
int32_t gguf_open(gguf **out, const char *path, fak_error *e);
void gguf_close(gguf *g); /* NULL is fine */

const char *gguf_path(const gguf *g);
uint32_t gguf_version(const gguf *g);
uint64_t gguf_file_bytes(const gguf *g);
uint32_t gguf_value_count(const gguf *g);
const gguf_value *gguf_value_at(const gguf *g, uint32_t i);
uint32_t gguf_tensor_count(const gguf *g);
const gguf_tensor *gguf_tensor_at(const gguf *g, uint32_t i);

const gguf_value *gguf_find(const gguf *g, const char *key);           /* NULL when absent */
const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name);  /* NULL when absent */

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
