/* The GGUF reader: each fault with its sentence, every truncation, random damage. */
#include "image.h"

#include <inttypes.h>
#include <string.h>

static const char *fault_name = ""; /* of the row being tried */

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

static int tear_down(void **state)
{
    (void)state;
    close_bytes();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_faults), cmocka_unit_test(test_header_faults),
        cmocka_unit_test(test_value_faults),  cmocka_unit_test(test_key_faults),
        cmocka_unit_test(test_truncations),   cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
