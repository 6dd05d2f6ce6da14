/* The GGUF reader: good files in both byte orders, each fault with its sentence, every truncation,
 * random damage. */
#include "image.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];
static const char *fault_name = ""; /* of the row being tried */

/* ---- making images --------------------------------------------------------------------------- */

/* Every metadata type, arrays, an odd alignment and four tensors, one of a type unknown to us. */
static void make_full(image *m, uint32_t version)
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

/* One key of each kind of length, two tensors back to back; ends with the last tensor's data. */
static void make_small(image *m)
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

/* ---- opening --------------------------------------------------------------------------------- */

/* What was opened last, to the byte: sanitizers see what is read beyond it. */
static uint8_t *exact;

static int32_t open_bytes(const void *data, size_t bytes, gguf **g, fak_error *e)
{
    free(exact);
    exact = malloc(bytes ? bytes : 1);
    assert_non_null(exact);
    memcpy(exact, data, bytes);
    memset(e, 0, sizeof *e);
    return gguf_open_memory(g, exact, bytes, path, e);
}

static void write_file(const image *m)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(m->data, 1, m->bytes, f), m->bytes);
    assert_int_equal(fclose(f), 0);
}

static gguf *open_good(const image *m)
{
    gguf *g;
    fak_error e;
    if (open_bytes(m->data, m->bytes, &g, &e)) fail_msg("refused: %s", e.message);
    return g;
}

/* Refused, with the file's name and `part` in the sentence. */
static void open_bad(const image *m, size_t bytes, const char *part)
{
    gguf *g = (gguf *)(uintptr_t)1;
    fak_error e;
    assert_int_equal(open_bytes(m->data, bytes, &g, &e), STATUS_BAD_FILE);
    assert_null(g);
    assert_int_equal(e.code, STATUS_BAD_FILE);
    assert_int_equal(strncmp(e.message, "m.gguf: ", 8), 0);
    if (!strstr(e.message, part))
        fail_msg("%s: got \"%s\", wanted \"%s\"", fault_name, e.message, part);
}

/* Reads all that the interface shows, for the sanitizers. */
static uint64_t walk(const gguf *g)
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

/* ---- good files ------------------------------------------------------------------------------ */

static void check_numbers(int big)
{
    static image m;
    gguf *g;
    m.big = big;
    make_full(&m, 3);
    g = open_good(&m);
    assert_int_equal(gguf_is_big(g), big);
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_integer(gguf_find(g, "u8"), 0), 200);
    assert_int_equal(gguf_integer(gguf_find(g, "i8"), 0), -100);
    assert_int_equal(gguf_integer(gguf_find(g, "u16"), 0), 60000);
    assert_int_equal(gguf_integer(gguf_find(g, "i16"), 0), -30000);
    assert_int_equal(gguf_integer(gguf_find(g, "u32"), 0), 4000000000);
    assert_int_equal(gguf_integer(gguf_find(g, "i32"), 0), -2000000000);
    assert_true((uint64_t)gguf_integer(gguf_find(g, "u64"), 0) == UINT64_MAX);
    assert_true(gguf_integer(gguf_find(g, "i64"), 0) == INT64_MIN);
    assert_int_equal(gguf_integer(gguf_find(g, "yes"), 0), 1);
    assert_int_equal(gguf_integer(gguf_find(g, "types"), 1), -7);
    assert_int_equal(gguf_integer(gguf_find(g, "floats"), 0), 2);
    assert_int_equal(gguf_integer(gguf_find(g, "floats"), 1), 0);
    assert_int_equal(gguf_integer(gguf_find(g, "f64 huge"), 0), 0);
    assert_true(gguf_number(gguf_find(g, "f32"), 0) == (double)1e-5f);
    assert_true(gguf_number(gguf_find(g, "f64"), 0) == 0.1);
    assert_true(gguf_number(gguf_find(g, "u64"), 0) == 0x1p64);
    assert_true(gguf_number(gguf_find(g, "i64"), 0) == -0x1p63);
    assert_true(gguf_number(gguf_find(g, "i8"), 0) == -100);
    assert_true(gguf_number(gguf_find(g, "floats"), 0) == 2.5);
    assert_true(isnan(gguf_number(gguf_find(g, "floats"), 1)));
    gguf_close(g);
}

static void test_numbers(void **state)
{
    (void)state;
    check_numbers(0);
    check_numbers(1);
}

static void check_strings(int big)
{
    static image m;
    const gguf_value *v;
    const uint8_t *at;
    gguf *g;
    fak_error e;
    m.big = big;
    make_full(&m, 2);
    write_file(&m);
    assert_int_equal(gguf_open(&g, path, &e), 0);
    assert_int_equal(gguf_version(g), 2);
    assert_int_equal(gguf_file_bytes(g), m.bytes);
    assert_int_equal(gguf_part_count(g), 1);
    assert_string_equal(gguf_path(g), path);
    assert_int_equal(gguf_value_count(g), 21);
    assert_true(gguf_string_is(gguf_value_at(g, 1)->key, "u8"));
    assert_false(gguf_string_is(gguf_value_at(g, 1)->key, "u"));
    assert_false(gguf_string_is(gguf_value_at(g, 1)->key, "i8"));
    assert_null(gguf_find(g, ""));
    assert_null(gguf_find(g, "u"));
    assert_null(gguf_find(g, "u88"));
    v = gguf_find(g, "tokens");
    assert_int_equal(v->type, GGUF_ARRAY);
    assert_int_equal(v->element, GGUF_STRING);
    assert_int_equal(v->count, 3);
    at = v->data;
    assert_true(gguf_string_is(gguf_next_string(v, &at), "a"));
    assert_true(gguf_string_is(gguf_next_string(v, &at), ""));
    assert_true(gguf_string_is(gguf_next_string(v, &at), "bcd"));
    assert_int_equal(gguf_find(g, "nothing")->count, 0);
    assert_int_equal(gguf_find(g, "string")->count, 1);
    assert_string_equal(gguf_type_name(GGUF_U32), "u32");
    assert_string_equal(gguf_type_name(GGUF_F64), "f64");
    assert_string_equal(gguf_type_name(13), "?");
    gguf_close(g);
}

static void test_strings(void **state)
{
    (void)state;
    check_strings(0);
    check_strings(1);
}

static void check_tensors(int big)
{
    static image m;
    const gguf_tensor *t;
    const uint8_t *base;
    gguf *g;
    m.big = big;
    make_full(&m, 3);
    g = open_good(&m);
    assert_int_equal(gguf_tensor_count(g), 4);
    t = gguf_tensor_at(g, 0);
    assert_int_equal(t->big, big);
    assert_ptr_equal(t, gguf_find_tensor(g, "late"));
    assert_int_equal(t->dtype, FAK_Q4_1);
    assert_int_equal(t->ggml_type, 3);
    assert_int_equal(t->bytes, 40);
    assert_int_equal(t->dims, 2);
    assert_int_equal(t->dim[0], 32);
    assert_int_equal(t->dim[1], 2);
    assert_int_equal(t->dim[2], 1);
    t = gguf_find_tensor(g, "first");
    base = t->data;
    assert_int_equal(t->dtype, FAK_F32);
    assert_int_equal(t->bytes, 64);
    assert_int_equal(base[5], 5);
    assert_ptr_equal(gguf_find_tensor(g, "late")->data, base + 192);
    t = gguf_find_tensor(g, "odd");
    assert_int_equal(t->dtype, 0);
    assert_int_equal(t->bytes, 0);
    assert_int_equal(t->dim[2], 2);
    assert_ptr_equal(t->data, base + 128);
    t = gguf_find_tensor(g, "scalar");
    assert_int_equal(t->dims, 0);
    assert_int_equal(t->dim[0], 1);
    assert_int_equal(t->bytes, 2);
    assert_int_equal(t->dtype, FAK_BF16);
    assert_null(gguf_find_tensor(g, "lat"));
    assert_string_equal(gguf_ggml_type_name(3), "Q4_1");
    assert_string_equal(gguf_ggml_type_name(5), "?");
    assert_string_equal(gguf_ggml_type_name(39), "MXFP4");
    assert_string_equal(gguf_ggml_type_name(UINT32_MAX), "?");
    walk(g);
    gguf_close(g);
}

static void test_tensors(void **state)
{
    (void)state;
    check_tensors(0);
    check_tensors(1);
}

static void test_without_tensors(void **state)
{
    static image m;
    gguf *g;
    (void)state;
    put_header(&m, 3, 0, 0);
    g = open_good(&m);
    assert_int_equal(gguf_value_count(g), 0);
    assert_int_equal(gguf_tensor_count(g), 0);
    assert_null(gguf_find(g, "a"));
    assert_null(gguf_find_tensor(g, "a"));
    gguf_close(g);
    put_header(&m, 3, 0, 1);
    put_value(&m, "a", GGUF_U8, 1, 1);
    g = open_good(&m);
    walk(g);
    gguf_close(g);
    gguf_close(NULL);
}

static void test_alignments(void **state)
{
    static image m;
    (void)state;
    for (uint32_t alignment = 1; alignment <= 1u << 16; alignment *= 2) {
        gguf *g;
        put_header(&m, 3, 1, 1);
        put_value(&m, "general.alignment", GGUF_U32, alignment, 4);
        put_tensor(&m, "t", 1, (uint64_t[]){3}, 0, 0);
        put_data(&m, alignment, 12);
        g = open_good(&m);
        assert_int_equal(gguf_tensor_at(g, 0)->data[11], 11);
        gguf_close(g);
    }
}

static void test_many(void **state)
{
    static image m;
    gguf *g;
    (void)state;
    put_header(&m, 3, 1000, 1000);
    for (int i = 0; i < 1000; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i * 7919 % 1000);
        put_value(&m, key, GGUF_U16, (uint64_t)i, 2);
    }
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i * 7919 % 1000);
        put_tensor(&m, name, 1, (uint64_t[]){1}, 24, 32 * (uint64_t)(999 - i));
    }
    put_data(&m, 32, 999 * 32 + 1);
    g = open_good(&m);
    for (int i = 0; i < 1000; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i * 7919 % 1000);
        assert_int_equal(gguf_integer(gguf_find(g, key), 0), i);
        key[0] = 't';
        assert_ptr_equal(gguf_find_tensor(g, key), gguf_tensor_at(g, (uint32_t)i));
    }
    gguf_close(g);
}

/* ---- typed getters --------------------------------------------------------------------------- */

static void test_getters(void **state)
{
    static image m;
    const gguf_value *v = NULL;
    gguf_string s = {0};
    uint32_t u = 0;
    float f = 0;
    int b = 0;
    fak_error e;
    gguf *g;
    (void)state;
    make_full(&m, 3);
    g = open_good(&m);
    assert_int_equal(gguf_get_u32(g, "u8", &u, &e), 0);
    assert_int_equal(u, 200);
    assert_int_equal(gguf_get_u32(g, "u32", &u, &e), 0);
    assert_int_equal(u, 4000000000u);
    assert_int_equal(gguf_get_f32(g, "f32", &f, &e), 0);
    assert_true(f == 1e-5f);
    assert_int_equal(gguf_get_f32(g, "f64", &f, &e), 0);
    assert_true(f == 0.1f);
    assert_int_equal(gguf_get_f32(g, "f64 inf", &f, &e), 0);
    assert_true(isinf(f));
    assert_int_equal(gguf_get_bool(g, "yes", &b, &e), 0);
    assert_int_equal(b, 1);
    assert_int_equal(gguf_get_string(g, "string", &s, &e), 0);
    assert_true(gguf_string_is(s, "smollm"));
    assert_int_equal(gguf_get_string(g, "empty string", &s, &e), 0);
    assert_true(gguf_string_is(s, ""));
    assert_int_equal(gguf_get_array(g, "tokens", GGUF_STRING, &v, &e), 0);
    assert_ptr_equal(v, gguf_find(g, "tokens"));
    assert_int_equal(gguf_get_array(g, "nothing", GGUF_STRING, &v, &e), 0);
    assert_int_equal(v->count, 0);
    u = 77; /* absent: nothing is touched */
    assert_int_equal(gguf_get_u32(g, "none", &u, &e), 1);
    assert_int_equal(u, 77);
    assert_int_equal(gguf_get_f32(g, "none", &f, &e), 1);
    assert_int_equal(gguf_get_bool(g, "none", &b, &e), 1);
    assert_int_equal(gguf_get_string(g, "none", &s, &e), 1);
    assert_int_equal(gguf_get_array(g, "none", GGUF_U32, &v, &e), 1);
    gguf_close(g);
}

static void test_getters_refuse(void **state)
{
    static const struct {
        char getter; /* u32, f32, bool, string, array of i32 */
        const char *key, *part;
    } rows[] = {
        {'u', "i8", "m.gguf: key \"i8\" is -100; 0 to 4294967295 fit"},
        {'u', "i64", "is -9223372036854775808; 0 to"},
        {'u', "u64", "is 18446744073709551615; 0 to"},
        {'u', "yes", "key \"yes\" has type bool; an integer is needed"},
        {'u', "f32", "has type f32; an integer is needed"},
        {'u', "string", "has type string; an integer is needed"},
        {'u', "types", "has type array of i32; an integer is needed"},
        {'f', "u32", "has type u32; a float is needed"},
        {'f', "f64 huge", "is 1e+300; at most 3.40282e+38 fits"},
        {'b', "u8", "has type u8; a bool is needed"},
        {'b', "bools", "has type array of bool; a bool is needed"},
        {'s', "f64", "has type f64; a string is needed"},
        {'s', "tokens", "has type array of string; a string is needed"},
        {'a', "i32", "has type i32; array of i32 is needed"},
        {'a', "tokens", "has type array of string; array of i32 is needed"},
        {'a', "nothing", "has type array of string; array of i32 is needed"},
    };
    static image m;
    gguf *g;
    (void)state;
    make_full(&m, 3);
    g = open_good(&m);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const gguf_value *v;
        gguf_string s;
        uint32_t u;
        float f;
        int b;
        fak_error e = {0};
        int32_t rc = 0;
        switch (rows[i].getter) {
        case 'u':
            rc = gguf_get_u32(g, rows[i].key, &u, &e);
            break;
        case 'f':
            rc = gguf_get_f32(g, rows[i].key, &f, &e);
            break;
        case 'b':
            rc = gguf_get_bool(g, rows[i].key, &b, &e);
            break;
        case 's':
            rc = gguf_get_string(g, rows[i].key, &s, &e);
            break;
        default:
            rc = gguf_get_array(g, rows[i].key, GGUF_I32, &v, &e);
        }
        assert_int_equal(rc, STATUS_BAD_FILE);
        if (!strstr(e.message, rows[i].part))
            fail_msg("got \"%s\", wanted \"%s\"", e.message, rows[i].part);
    }
    gguf_close(g);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* A file with one key (none for NULL) and one or two tensors, from the numbers of a row. */
typedef struct fault {
    const char *name, *part;
    uint64_t alignment; /* 0: no such key */
    struct {
        const char *name; /* NULL: no such tensor */
        uint32_t dims, type;
        uint64_t dim[4], offset;
    } tensor[2];
} fault;

static void make_fault(image *m, const fault *f)
{
    put_header(m, 3, f->tensor[1].name ? 2 : 1, f->alignment ? 1 : 0);
    if (f->alignment) put_value(m, "general.alignment", GGUF_U32, f->alignment, 4);
    for (int i = 0; i < 2; i++)
        if (f->tensor[i].name) {
            const uint64_t many[6] = {1, 1, 1, 1, 1, 1};
            put_tensor(m, f->tensor[i].name, f->tensor[i].dims,
                       f->tensor[i].dims > 4 ? many : f->tensor[i].dim, f->tensor[i].type,
                       f->tensor[i].offset);
        }
    put_data(m, 32, 128);
}

/* clang-format off */
static const fault faults[] = {
    {"alignment 3", "\"general.alignment\" is 3; a power of two up to 1048576",
     3, {{"a", 1, 0, {1}, 0}}},
    {"alignment 2^21", "is 2097152; a power of two", 1 << 21, {{"a", 1, 0, {1}, 0}}},
    {"alignment 2^31", "is 2147483648; a power of two", 1u << 31, {{"a", 1, 0, {1}, 0}}},
    {"5 dimensions", "tensor \"a\" has 5 dimensions; at most 4", 0, {{"a", 5, 0, {0}, 0}}},
    {"zero dimension", "\"a\" has 0 as dimension 2 of 2", 0, {{"a", 2, 0, {4, 0}, 0}}},
    {"product wraps to 0", "\"a\" has too many elements: 4294967296 times 4294967296",
     0, {{"a", 2, 0, {1ull << 32, 1ull << 32}, 0}}},
    {"product wraps to 4", "\"a\" has too many elements", 0, {{"a", 2, 0, {1ull << 63, 6}, 0}}},
    {"bytes wrap", "\"a\" has too many elements: 1 times 4611686018427387904",
     0, {{"a", 1, 0, {1ull << 62}, 0}}},
    {"bytes just fit", "\"a\" ends at byte 4611686018427387964 of 192",
     0, {{"a", 1, 0, {(1ull << 60) - 1}, 0}}},
    {"negative dimension", "\"a\" has too many elements", 0, {{"a", 1, 0, {UINT64_MAX}, 0}}},
    {"part of a block", "\"a\" has rows of 31, no multiple of the block of 32 of Q4_1",
     0, {{"a", 1, 3, {31}, 0}}},
    {"scalar of blocks", "has rows of 1, no multiple of the block of 256 of Q6_K",
     0, {{"a", 0, 14, {0}, 0}}},
    {"offset 33", "\"a\" is at offset 33, no multiple of the alignment 32",
     0, {{"a", 1, 0, {1}, 33}}},
    {"offset 32 of 64", "at offset 32, no multiple of the alignment 64",
     64, {{"a", 1, 0, {1}, 32}}},
    {"offset past the end", "\"a\" is at offset 9984 of 128 bytes of data",
     0, {{"a", 1, 0, {1}, 9984}}},
    {"offset at the end", "is at offset 128 of 128 bytes of data", 0, {{"a", 1, 0, {1}, 128}}},
    {"offset wraps", "is at offset 18446744073709551584 of 128",
     0, {{"a", 1, 0, {8}, UINT64_MAX - 31}}},
    {"unknown type at the end", "is at offset 128 of 128", 0, {{"a", 1, 99, {1}, 128}}},
    {"ends too late", "\"a\" ends at byte 196 of 192", 0, {{"a", 1, 0, {33}, 0}}},
    {"alignment past the end", "is at offset 0 of 0 bytes of data",
     1 << 20, {{"a", 1, 0, {33}, 0}}},
    {"overlap", "\"a\" starts at byte 128, inside tensor \"b\" that ends at byte 132",
     0, {{"a", 1, 0, {1}, 32}, {"b", 1, 0, {9}, 0}}},
    {"same place", "tensor \"b\" starts at byte 96, inside tensor \"a\"",
     0, {{"a", 1, 0, {1}, 0}, {"b", 1, 0, {1}, 0}}},
    {"unknown type overlaps", "tensor \"b\" starts at byte 96, inside tensor \"a\"",
     0, {{"a", 1, 77, {1}, 0}, {"b", 1, 78, {1}, 0}}},
    {"two of a name", "m.gguf: tensor \"a\" is there twice, at bytes 32 and 65",
     0, {{"a", 1, 0, {1}, 0}, {"a", 1, 0, {1}, 32}}},
    {"empty name", "tensor 0 has a name of 0 bytes; 1 to 65535", 0, {{"", 1, 0, {1}, 0}}},
    {"unprintable name", "tensor \"a\\x22\\x0a\\xff\" has 5 dim", 0, {{"a\"\n\xff", 5, 0, {0}, 0}}},
    {"long name", "tensor \"abcdefghijabcdefghijabcdefghijabcdefghij...\" has 5 dim",
     0, {{"abcdefghijabcdefghijabcdefghijabcdefghijabcdefghij", 5, 0, {0}, 0}}},
};
/* clang-format on */

static void test_tensor_faults(void **state)
{
    static image m;
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        make_fault(&m, &faults[i]);
        fault_name = faults[i].name;
        open_bad(&m, m.bytes, faults[i].part);
    }
}

static void test_header_faults(void **state)
{
    static const struct {
        const char *part;
        uint32_t version;
        uint64_t tensors, values;
    } rows[] = {
        {"GGUF version 0 is not supported; 2 and 3 are", 0, 0, 0},
        {"GGUF version 1 is not supported", 1, 0, 0},
        {"GGUF version 4 is not supported", 4, 0, 0},
        {"GGUF version 65537 is not supported; 2 and 3 are", 65537, 0, 0},
        {"GGUF version 4 (big-endian) is not supported; 2 and 3 are", 0x04000000, 0, 0},
        {"GGUF version 256 (big-endian) is not supported; 2 and 3 are", 0x00010000, 0, 0},
        {"m.gguf: 72057594037927936 tensors cannot be in 124 bytes", 0x03000000, 1, 0},
        {"m.gguf: 5 tensors cannot be in 124 bytes", 3, 5, 0},
        {"m.gguf: 8 keys cannot be in 124 bytes", 3, 0, 8},
        {"18446744073709551615 tensors cannot be in 124 bytes", 3, UINT64_MAX, 0},
        {"18446744073709551615 keys cannot be in 124 bytes", 3, 0, UINT64_MAX},
    };
    static image m;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_header(&m, rows[i].version, rows[i].tensors, rows[i].values);
        put_data(&m, 1, 100);
        open_bad(&m, m.bytes, rows[i].part);
    }
    put_header(&m, 3, 0, 0);
    m.data[2] = 'M';
    open_bad(&m, m.bytes, "not a GGUF file: it starts with 47 47 4d 46, not 47 47 55 46");
    open_bad(&m, 0, "too short for a GGUF file: 0 bytes, the header alone has 24");
    open_bad(&m, 23, "too short for a GGUF file: 23 bytes");
}

/* What follows the first key's name, with 16 zero bytes behind it. */
static void check_value(const char *part, uint32_t type, const image *rest)
{
    static image m;
    put_header(&m, 3, 0, 1);
    put_key(&m, "k", type);
    put_raw(&m, rest->data, rest->bytes);
    open_bad(&m, m.bytes, part);
}

static void test_value_faults(void **state)
{
    static image m;
    image *r = &m;
    (void)state;
    r->bytes = 0;
    put_u64(r, 0);
    check_value("m.gguf: key \"k\" has the unknown type 13; 0 to 12 are known", 13, r);
    check_value("has the unknown type 4294967295", UINT32_MAX, r);
    r->bytes = 0;
    put(r, 2, 1);
    check_value("key \"k\" has a bool of 2, not 0 or 1", GGUF_BOOL, r);
    check_value("key \"k\" is cut short: 1 of type u64 at byte 37 of 38", GGUF_U64, r);
    r->bytes = 0;
    put_u64(r, 9);
    put_u64(r, 0);
    check_value("key \"k\" is cut short: 9 bytes at byte 45 of 53", GGUF_STRING, r);
    r->bytes = 0;
    put_u64(r, UINT64_MAX);
    check_value("is cut short: 18446744073709551615 bytes at byte 45 of 45", GGUF_STRING, r);

    static const struct {
        const char *part;
        uint32_t element;
        uint64_t count;
    } rows[] = {
        {"key \"k\" is an array of arrays, which is not supported", GGUF_ARRAY, 1},
        {"key \"k\" has the unknown type 99; 0 to 12", 99, 1},
        {"is cut short: 5 of type u32 at byte 49 of 65", GGUF_U32, 5},
        {"is cut short: 4611686018427387905 of type u32", GGUF_U32, (1ull << 62) + 1},
        {"is cut short: 17 of type bool", GGUF_BOOL, 17},
        {"is cut short: 3 of type string at byte 49 of 65", GGUF_STRING, 3},
        {"is cut short: 2305843009213693953 of type string", GGUF_STRING, (1ull << 61) + 1},
        {"key \"k\" is cut short: 16 bytes at byte 57 of 65", GGUF_STRING, 1},
        {"has a bool of 16, not 0 or 1", GGUF_BOOL, 16},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        r->bytes = 0;
        put_u32(r, rows[i].element);
        put_u64(r, rows[i].count);
        put_u64(r, 16);
        put_u64(r, 0);
        check_value(rows[i].part, GGUF_ARRAY, r);
    }
}

static void test_key_faults(void **state)
{
    static image m;
    char long_key[65536 + 1];
    (void)state;
    put_header(&m, 3, 0, 2);
    put_value(&m, "k", GGUF_U8, 0, 1);
    put_value(&m, "k", GGUF_U32, 0, 4);
    open_bad(&m, m.bytes, "m.gguf: key \"k\" is there twice, at bytes 32 and 46");
    put_header(&m, 3, 0, 1);
    put_value(&m, "", GGUF_U32, 0, 4);
    open_bad(&m, m.bytes, "m.gguf: key 0 has a name of 0 bytes; 1 to 65535 are allowed");
    memset(long_key, 'k', 65536);
    long_key[65536] = 0;
    put_header(&m, 3, 0, 1);
    put_value(&m, long_key, GGUF_U32, 0, 4);
    open_bad(&m, m.bytes, "key 0 has a name of 65536 bytes");
    put_header(&m, 3, 0, 1);
    put_value(&m, long_key + 1, GGUF_U32, 0, 4);
    gguf_close(open_good(&m));
    put_header(&m, 3, 0, 1);
    put_value(&m, "general.alignment", GGUF_U64, 32, 8);
    open_bad(&m, m.bytes, "key \"general.alignment\" has type u64; u32 is needed");
    put_header(&m, 3, 0, 1);
    put_value(&m, "general.alignment", GGUF_U32, 0, 4);
    open_bad(&m, m.bytes, "key \"general.alignment\" is 0; a power of two");
    put_header(&m, 3, 0, 1);
    put_u64(&m, 1ull << 63);
    put_data(&m, 1, 20);
    open_bad(&m, m.bytes, "key 0 is cut short: 9223372036854775808 bytes at byte 32 of 52");
}

static void test_paths(void **state)
{
    char none[200] = "/nonexistent/";
    gguf *g;
    fak_error e;
    (void)state;
    assert_int_equal(gguf_open(&g, "/nonexistent/m.gguf", &e), STATUS_BAD_FILE);
    assert_string_equal(e.message, "/nonexistent/m.gguf: cannot open: No such file or directory");
    assert_null(g);
    assert_int_equal(gguf_open(&g, "/", &e), STATUS_BAD_FILE);
    assert_string_equal(e.message, "/: cannot open: Is a directory");
    assert_int_equal(gguf_open(&g, "", &e), STATUS_BAD_FILE);
    memset(none + 13, 'x', sizeof none - 14);
    assert_int_equal(gguf_open(&g, none, &e), STATUS_BAD_FILE);
    assert_non_null(strstr(e.message, "xxx...: cannot open: No such file"));
}

static void test_truncations(void **state)
{
    static image m;
    (void)state;
    make_small(&m);
    gguf_close(open_good(&m));
    for (size_t bytes = 0; bytes < m.bytes; bytes++) open_bad(&m, bytes, "");
    for (m.big = 0; m.big <= 1; m.big++) {
        make_full(&m, 3);
        for (size_t bytes = 0; bytes < m.bytes; bytes++) open_bad(&m, bytes, "");
    }
}

/* Whatever the bytes are: refused with a sentence, or open and readable. */
static void try_damaged(const image *m)
{
    gguf *g;
    fak_error e;
    int32_t rc = open_bytes(m->data, m->bytes, &g, &e);
    if (rc) {
        assert_int_equal(rc, STATUS_BAD_FILE);
        assert_true(e.message[0] != 0);
        return;
    }
    walk(g);
    gguf_close(g);
}

static void test_damage(void **state)
{
    static const uint8_t bytes[] = {0, 1, 0x7f, 0x80, 0xff};
    static image good, m;
    uint64_t random = 20240611;
    (void)state;
    make_small(&good);
    for (size_t i = 0; i < good.bytes; i++)
        for (size_t k = 0; k < sizeof bytes; k++) {
            m = good;
            m.data[i] = bytes[k];
            try_damaged(&m);
        }
    print_message("seed %" PRIu64 "\n", random);
    for (int i = 0; i < 6000; i++) {
        m.big = i & 1;
        make_full(&m, 3);
        for (int k = 0; k < 1 + i % 3; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            m.data[(random >> 33) % m.bytes] = (uint8_t)(random >> 24);
        }
        try_damaged(&m);
    }
}

static char folder[] = "/tmp/test_gguf_XXXXXX";

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(exact);
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),       cmocka_unit_test(test_strings),
        cmocka_unit_test(test_tensors),       cmocka_unit_test(test_without_tensors),
        cmocka_unit_test(test_alignments),    cmocka_unit_test(test_many),
        cmocka_unit_test(test_getters),       cmocka_unit_test(test_getters_refuse),
        cmocka_unit_test(test_tensor_faults), cmocka_unit_test(test_header_faults),
        cmocka_unit_test(test_value_faults),  cmocka_unit_test(test_key_faults),
        cmocka_unit_test(test_paths),         cmocka_unit_test(test_truncations),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
