/* gguf_format - the numbers of the GGUF format and how its values are read: the types of metadata and
 * of tensor data, their sizes, and the one place that reads more than one byte, in either order.
 * Values have been checked by gguf_open: nothing here looks at bounds.  No state: any thread. */
#ifndef GGUF_FORMAT_H
#define GGUF_FORMAT_H
#include "../abi/fak_backend.h"

#include <stddef.h>

typedef struct gguf_string { const char *data; uint64_t bytes; } gguf_string; /* not terminated */

enum gguf_type { /* of metadata values, the format's numbers */
    GGUF_U8 = 0, GGUF_I8 = 1, GGUF_U16 = 2, GGUF_I16 = 3, GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6,
    GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9, GGUF_U64 = 10, GGUF_I64 = 11, GGUF_F64 = 12
};

typedef struct gguf_value { /* one metadata entry */
    gguf_string key;
    uint32_t type, element; /* enum gguf_type; element type when type is GGUF_ARRAY */
    uint64_t count;         /* elements of an array, else 1 */
    const uint8_t *data;    /* first element, as it lies in the file */
    int big;                /* the file's byte order: big-endian */
} gguf_value;

typedef struct gguf_tensor {
    gguf_string name;
    uint32_t ggml_type;      /* the format's number */
    uint32_t dtype;          /* enum fak_dtype, 0 where fak has no such dtype */
    uint32_t dims;           /* 0..4; dim[0] is the row length; dims beyond are 1 */
    uint64_t dim[4];
    uint64_t bytes;          /* of all its data; 0 where the ggml type is unknown */
    const uint8_t *data;     /* as in the file; aligned as the file says, perhaps to 1 byte only */
    int big;                 /* the numbers in data are big-endian: dtype_swap_row */
    int mapped;              /* data lies in a mapped file: port_forget */
} gguf_tensor;

enum { /* masks of 1 << enum gguf_type */
    GGUF_SIGNED_TYPES = 1 << GGUF_I8 | 1 << GGUF_I16 | 1 << GGUF_I32 | 1 << GGUF_I64,
    GGUF_INTEGER_TYPES = GGUF_SIGNED_TYPES | 1 << GGUF_U8 | 1 << GGUF_U16 | 1 << GGUF_U32 |
                         1 << GGUF_U64,
    GGUF_FLOAT_TYPES = 1 << GGUF_F32 | 1 << GGUF_F64,
    GGUF_TYPES = GGUF_F64 + 1
};

typedef struct gguf_ggml_type { /* of tensor data */
    const char *name;           /* NULL: a number that ggml has withdrawn or not given out */
    uint32_t block, block_bytes, dtype; /* elements and bytes of a block; enum fak_dtype or 0 */
} gguf_ggml_type;
const gguf_ggml_type *gguf_find_ggml_type(uint32_t id); /* NULL for one that is unknown */
const char *gguf_ggml_type_name(uint32_t ggml_type);                   /* "Q4_1", "?" */
const char *gguf_type_name(uint32_t type);                             /* "u32", "?" */
uint32_t gguf_type_bytes(uint32_t type); /* of an element; 0: not fixed, or an unknown type */

/* Numbers of 1..8 bytes in either byte order: everything that is read goes through here. */
uint64_t gguf_read_number(const uint8_t *p, uint32_t bytes, int big);
uint32_t gguf_read_u32(const uint8_t *p, int big);
uint64_t gguf_read_u64(const uint8_t *p, int big);

/* Element i < count of an array of strings: linear in i once, so walk with the cursor:
 * `const uint8_t *at = v->data; for (...) s = gguf_next_string(v, &at);` */
gguf_string gguf_next_string(const gguf_value *v, const uint8_t **at);
/* Element i of an array (or the value itself, i = 0) of integers, bools or floats.  As an integer a
 * U64 keeps its bits (cast it back), a float is cut to an integer, and 0 where that cannot fit. */
int64_t gguf_integer(const gguf_value *v, uint64_t i);
double gguf_number(const gguf_value *v, uint64_t i);
int gguf_string_is(gguf_string s, const char *text); /* equal bytes */

/* s in printable ASCII, other bytes as \xNN, cut with "..." to fit; returns dst. */
const char *gguf_show(char *dst, size_t dst_bytes, gguf_string s);
/* Sorts pointers to names by bytes; 0, or the index of one that equals the one before it.  find: the
 * pointer to that name, or NULL. */
uint32_t gguf_sort_names(const gguf_string **order, uint32_t count);
const void *gguf_find_name(const gguf_string *const *order, uint32_t count, const char *name);
#endif
