/* image - see image.h. */
#include "image.h"

#include <math.h>
#include <stdlib.h>
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

/* ---- whole files ---- */

void make_full(image *m, uint32_t version)
{
    put_header(m, version, 4, 21);
    put_value(m, "general.alignment", GGUF_U32, 64, 4);
    put_value(m, "u8", GGUF_U8, 200, 1);
    put_value(m, "i8", GGUF_I8, (uint64_t)-100, 1);
    put_value(m, "u16", GGUF_U16, 60000, 2);
    put_value(m, "i16", GGUF_I16, (uint64_t)-30000, 2);
    put_value(m, "u32", GGUF_U32, 4000000000u, 4);
    put_value(m, "i32", GGUF_I32, (uint64_t)-2000000000, 4);
    put_value(m, "u64", GGUF_U64, UINT64_MAX, 8);
    put_value(m, "i64", GGUF_I64, (uint64_t)INT64_MIN, 8);
    put_value(m, "f32", GGUF_F32, bits_of_f32(1e-5f), 4);
    put_value(m, "f64", GGUF_F64, bits_of(0.1), 8);
    put_value(m, "f64 huge", GGUF_F64, bits_of(1e300), 8);
    put_value(m, "f64 inf", GGUF_F64, bits_of((double)INFINITY), 8);
    put_value(m, "yes", GGUF_BOOL, 1, 1);
    put_key(m, "string", GGUF_STRING);
    put_string(m, "smollm");
    put_key(m, "empty string", GGUF_STRING);
    put_string(m, "");
    put_array(m, "tokens", GGUF_STRING, 3);
    put_string(m, "a");
    put_string(m, "");
    put_string(m, "bcd");
    put_array(m, "types", GGUF_I32, 3);
    put_u32(m, 1);
    put_u32(m, (uint32_t)-7);
    put_u32(m, 3);
    put_array(m, "nothing", GGUF_STRING, 0);
    put_array(m, "bools", GGUF_BOOL, 2);
    put_raw(m, "\1", 2);
    put_array(m, "floats", GGUF_F32, 2);
    put_u32(m, bits_of_f32(2.5f));
    put_u32(m, bits_of_f32(NAN));
    put_tensor(m, "late", 2, (uint64_t[]){32, 2}, 3 /* Q4_1 */, 192);
    put_tensor(m, "first", 1, (uint64_t[]){16}, 0 /* F32 */, 0);
    put_tensor(m, "odd", 4, (uint64_t[]){3, 1, 2, 1}, 77, 128);
    put_tensor(m, "scalar", 0, NULL, 30 /* BF16 */, 64);
    put_data(m, 64, 192 + 40);
}

void make_small(image *m)
{
    put_header(m, 3, 2, 3);
    put_value(m, "n", GGUF_U32, 5, 4);
    put_array(m, "flags", GGUF_BOOL, 2);
    put_raw(m, "\1", 2);
    put_array(m, "tokens", GGUF_STRING, 2);
    put_string(m, "ab");
    put_string(m, "c");
    put_tensor(m, "blk.0.attn_q.weight", 2, (uint64_t[]){4, 2}, 0, 0);
    put_tensor(m, "b", 1, (uint64_t[]){32}, 8 /* Q8_0 */, 32);
    put_data(m, 32, 32 + 34);
}

/* ---- opening ---- */

/* What was opened last, to the byte: sanitizers see what is read beyond it. */
static uint8_t *exact;

int32_t open_bytes(const void *data, size_t bytes, gguf **g, fak_error *e)
{
    free(exact);
    exact = malloc(bytes ? bytes : 1);
    assert_non_null(exact);
    memcpy(exact, data, bytes);
    memset(e, 0, sizeof *e);
    return gguf_open_memory(g, exact, bytes, "m.gguf", e);
}

gguf *open_good(const image *m)
{
    gguf *g;
    fak_error e;
    if (open_bytes(m->data, m->bytes, &g, &e)) fail_msg("refused: %s", e.message);
    return g;
}

uint64_t walk(const gguf *g)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < gguf_value_count(g); i++) {
        const gguf_value *v = gguf_value_at(g, i);
        uint32_t type = v->type == GGUF_ARRAY ? v->element : v->type;
        const uint8_t *at = v->data;
        for (uint64_t k = 0; k < v->key.bytes; k++) sum += (uint8_t)v->key.data[k];
        for (uint64_t k = 0; k < v->count; k++) {
            if (type != GGUF_STRING) {
                sum += (uint64_t)gguf_integer(v, k) + (gguf_number(v, k) > 0);
                continue;
            }
            gguf_string s = gguf_next_string(v, &at);
            for (uint64_t j = 0; j < s.bytes; j++) sum += (uint8_t)s.data[j];
        }
    }
    for (uint32_t i = 0; i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        for (uint64_t k = 0; k < t->bytes; k++) sum += t->data[k];
        for (uint64_t k = 0; k < t->name.bytes; k++) sum += (uint8_t)t->name.data[k];
        sum += t->data[0];
    }
    return sum;
}

void close_bytes(void)
{
    free(exact);
    exact = NULL;
}
