/* The GGUF reader: good files in both byte orders, and the typed getters. */
#include "image.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

static void write_file(const image *m)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(m->data, 1, m->bytes, f), m->bytes);
    assert_int_equal(fclose(f), 0);
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

/* ---- paths ----------------------------------------------------------------------------------- */

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
    close_bytes();
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),    cmocka_unit_test(test_strings),
        cmocka_unit_test(test_tensors),    cmocka_unit_test(test_without_tensors),
        cmocka_unit_test(test_alignments), cmocka_unit_test(test_many),
        cmocka_unit_test(test_getters),    cmocka_unit_test(test_getters_refuse),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
