/* image - GGUF files in the making, in either byte order, right or wrong as the caller likes. */
#ifndef IMAGE_H
#define IMAGE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../core/gguf.h"

enum { IMAGE_MAX = 1 << 17 };

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

uint64_t bits_of(double x);
uint32_t bits_of_f32(float x);
#endif
