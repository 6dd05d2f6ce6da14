/* image - see image.h. */
#include "image.h"

#include <string.h>

void put_raw(image *m, const void *data, size_t bytes)
{
    assert_true(bytes <= IMAGE_MAX - m->bytes);
    memcpy(m->data + m->bytes, data, bytes);
    m->bytes += bytes;
}

void put(image *m, uint64_t n, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        put_raw(m, &(uint8_t){(uint8_t)(n >> 8 * (m->big ? bytes - 1 - i : i))}, 1);
}

void put_u32(image *m, uint32_t n)
{
    put(m, n, 4);
}

void put_u64(image *m, uint64_t n)
{
    put(m, n, 8);
}

void put_string(image *m, const char *text)
{
    put_u64(m, strlen(text));
    put_raw(m, text, strlen(text));
}

void put_header(image *m, uint32_t version, uint64_t tensors, uint64_t values)
{
    m->bytes = 0;
    put_raw(m, "GGUF", 4);
    put_u32(m, version);
    put_u64(m, tensors);
    put_u64(m, values);
}

void put_key(image *m, const char *key, uint32_t type)
{
    put_string(m, key);
    put_u32(m, type);
}

/* A scalar of `bytes` bytes. */
void put_value(image *m, const char *key, uint32_t type, uint64_t n, uint32_t bytes)
{
    put_key(m, key, type);
    put(m, n, bytes);
}

void put_array(image *m, const char *key, uint32_t element, uint64_t count)
{
    put_key(m, key, GGUF_ARRAY);
    put_u32(m, element);
    put_u64(m, count);
}

void put_tensor(image *m, const char *name, uint32_t dims, const uint64_t *dim, uint32_t type,
                uint64_t offset)
{
    put_string(m, name);
    put_u32(m, dims);
    for (uint32_t i = 0; i < dims; i++) put_u64(m, dim[i]);
    put_u32(m, type);
    put_u64(m, offset);
}

void put_data(image *m, size_t alignment, size_t bytes)
{
    while (m->bytes % alignment) put(m, 0, 1);
    for (size_t i = 0; i < bytes; i++) put(m, i, 1);
}

uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

uint32_t bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
