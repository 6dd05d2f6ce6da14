/* image - GGUF files in the making, in either byte order, right or wrong as the caller likes. */
#ifndef IMAGE_H
#define IMAGE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../core/gguf.h"

enum { IMAGE_MAX = 1 << 20 };

typedef struct image { /* zero-initialise */
    uint8_t data[IMAGE_MAX];
    size_t bytes;
    int big; /* big-endian numbers */
} image;

void put_raw(image *m, const void *data, size_t bytes);
void put(image *m, uint64_t n, uint32_t bytes); /* a number of so many bytes */
void put_u32(image *m, uint32_t n);
void put_u64(image *m, uint64_t n);
void put_string(image *m, const char *text);
void put_header(image *m, uint32_t version, uint64_t tensors, uint64_t values); /* starts anew */
void put_key(image *m, const char *key, uint32_t type);
void put_value(image *m, const char *key, uint32_t type, uint64_t n, uint32_t bytes); /* a scalar */
void put_array(image *m, const char *key, uint32_t element, uint64_t count);          /* its head */
void put_tensor(image *m, const char *name, uint32_t dims, const uint64_t *dim, uint32_t type,
                uint64_t offset);
void put_data(image *m, size_t alignment, size_t bytes); /* counting up */

/* Every metadata type, arrays, an odd alignment and four tensors, one of a type unknown to us. */
void make_full(image *m, uint32_t version);
/* One key of each kind of length, two tensors back to back; ends with the last tensor's data. */
void make_small(image *m);

/* Opens a copy to the byte, which is kept until the next: sanitizers see what is read beyond it. */
int32_t open_bytes(const void *data, size_t bytes, gguf **g, fak_error *e);
void close_bytes(void);
gguf *open_good(const image *m); /* or the test fails */
uint64_t walk(const gguf *g);    /* reads all that the interface shows */

uint64_t bits_of(double x);
uint32_t bits_of_f32(float x);
#endif
