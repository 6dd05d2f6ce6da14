/* Containers in parts: found, counted and joined; each thing wrong with them is one sentence. */
#include "image.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/test_gguf_split_XXXXXX";
static const char *const names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                    "m-00003-of-00003.gguf"};

/* ---- making parts ---- */

enum { NONE = -1 };

/* Part `no` of `count` (NONE: the key is left out) with one tensor, or none; the first has a key. */
static void make_part(image *m, int64_t no, int64_t count, int64_t total, const char *tensor)
{
    put_header(m, 3, tensor ? 1 : 0,
               (uint64_t)((no != NONE) + (count != NONE) + (total != NONE) + (no == 0)));
    if (no != NONE) put_value(m, "split.no", GGUF_U16, (uint64_t)no, 2);
    if (count != NONE) put_value(m, "split.count", GGUF_U16, (uint64_t)count, 2);
    if (total != NONE) put_value(m, "split.tensors.count", GGUF_I32, (uint64_t)total, 4);
    if (no == 0) put_value(m, "a key", GGUF_U8, 7, 1);
    if (tensor) put_tensor(m, tensor, 1, (uint64_t[]){4}, 0, 0);
    put_data(m, 32, tensor ? 16 : 0);
}

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_as(const image *m, const char *name)
{
    unlink(path_of(name));
    FILE *f = fopen(path_of(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(m->data, 1, m->bytes, f), m->bytes);
    assert_int_equal(fclose(f), 0);
}

static void write_part(int i, int64_t no, int64_t count, int64_t total, const char *tensor)
{
    static image m;
    m.big = i == 1; /* parts may differ in their order, as in their alignment */
    make_part(&m, no, count, total, tensor);
    write_as(&m, names[i]);
}

static void write_good(void)
{
    write_part(0, 0, 3, 2, NULL);
    write_part(1, 1, 3, 2, "b");
    write_part(2, 2, 3, 2, "a");
}

static void refused(const char *name, const char *sentence)
{
    gguf *g = (gguf *)(uintptr_t)1;
    fak_error e = {0};
    assert_int_equal(gguf_open(&g, path_of(name), &e), STATUS_BAD_FILE);
    assert_null(g);
    assert_string_equal(e.message, sentence);
}

/* ---- tests ---- */

static void test_joined(void **state)
{
    gguf *g;
    fak_error e = {0};
    (void)state;
    write_good();
    if (gguf_open(&g, path_of(names[0]), &e)) fail_msg("%s", e.message);
    assert_int_equal(gguf_part_count(g), 3);
    assert_int_equal(gguf_tensor_count(g), 2);
    assert_int_equal(gguf_integer(gguf_find(g, "a key"), 0), 7);
    assert_true(gguf_string_is(gguf_tensor_at(g, 0)->name, "b"));
    assert_true(gguf_string_is(gguf_tensor_at(g, 1)->name, "a"));
    assert_ptr_equal(gguf_find_tensor(g, "a"), gguf_tensor_at(g, 1));
    assert_ptr_equal(gguf_find_tensor(g, "b"), gguf_tensor_at(g, 0));
    assert_null(gguf_find_tensor(g, "c"));
    assert_int_equal(gguf_find_tensor(g, "a")->data[15], 15);
    assert_int_equal(gguf_find_tensor(g, "b")->big, 1);
    assert_int_equal(gguf_find_tensor(g, "a")->big, 0);
    uint64_t bytes = 0;
    for (int i = 0; i < 3; i++) {
        FILE *f = fopen(path_of(names[i]), "rb");
        assert_non_null(f);
        assert_int_equal(fseek(f, 0, SEEK_END), 0);
        bytes += (uint64_t)ftell(f);
        fclose(f);
    }
    assert_int_equal(gguf_file_bytes(g), bytes);
    gguf_close(g);
}

static void test_whole_after_all(void **state)
{
    static image m;
    gguf *g;
    fak_error e = {0};
    (void)state;
    for (int64_t count = 0; count <= 1; count++) { /* what gguf-split --merge leaves is 0 */
        make_part(&m, 0, count, 5, "a");
        write_as(&m, "whole.gguf");
        if (gguf_open(&g, path_of("whole.gguf"), &e)) fail_msg("%s", e.message);
        assert_int_equal(gguf_part_count(g), 1);
        gguf_close(g);
    }
}

static void test_another_part_is_named(void **state)
{
    static image m;
    char here[128];
    gguf *g;
    fak_error e = {0};
    (void)state;
    write_good();
    refused(names[1], "m-00002-of-00003.gguf: part 2 of 3: open m-00001-of-00003.gguf instead");
    refused(names[2], "m-00003-of-00003.gguf: part 3 of 3: open m-00001-of-00003.gguf instead");
    for (int64_t no = 0; no < 2; no++) {
        make_part(&m, no, 3, 2, "a");
        write_as(&m, "x.gguf");
        snprintf(here, sizeof here,
                 "x.gguf: part %d of 3: open the part whose name ends in -00001-of-00003.gguf",
                 (int)no + 1);
        refused("x.gguf", here);
    }
    write_as(&m, "-00001-of-00003.gguf"); /* the suffix is all there is; it says part 2 */
    refused("-00001-of-00003.gguf", "-00001-of-00003.gguf: part 2 of 3: open the part whose name "
                                    "ends in -00001-of-00003.gguf");
    assert_int_equal(gguf_open_memory(&g, m.data, m.bytes, "m.gguf", &e), STATUS_BAD_FILE);
    assert_string_equal(e.message, "m.gguf: part 2 of 3, and nothing is beside it");
}

static void test_missing(void **state)
{
    (void)state;
    for (int i = 1; i < 3; i++) {
        char sentence[160];
        write_good();
        unlink(path_of(names[i]));
        snprintf(sentence, sizeof sentence,
                 "m-00001-of-00003.gguf: part %d of 3 is missing: %s: No such file or directory",
                 i + 1, names[i]);
        refused(names[0], sentence);
    }
}

static void test_faults(void **state)
{
    static const struct {
        int part;
        int64_t no, count, total;
        const char *tensor, *sentence;
    } rows[] = {
        {0, 0, 65535, 2, NULL, /* no room is made for what is only claimed */
         "m-00001-of-00003.gguf: part 1 of 65535: open the part whose name ends in "
         "-00001-of-65535.gguf"},
        {0, NONE, 3, 2, NULL, "m-00001-of-00003.gguf: one of 3 parts, without split.no"},
        {0, 3, 3, 2, NULL, "m-00001-of-00003.gguf: key \"split.no\" is 3, but split.count is 3"},
        {0, 0, 3, 3, NULL,
         "m-00001-of-00003.gguf: key \"split.tensors.count\" is 3, but the 3 parts have 2"},
        {0, 0, 3, -5, NULL, /* of type i32 */
         "m-00001-of-00003.gguf: key \"split.tensors.count\" is -5; 0 to 4294967295 fit"},
        {1, 2, 3, 2, "b",
         "m-00002-of-00003.gguf: says that it is part 3 of 3; m-00001-of-00003.gguf needs part 2 "
         "of 3"},
        {1, 0, 3, 2, "b",
         "m-00002-of-00003.gguf: says that it is part 1 of 3; m-00001-of-00003.gguf needs part 2 "
         "of 3"},
        {1, 1, 4, 2, "b",
         "m-00002-of-00003.gguf: says that it is part 2 of 4; m-00001-of-00003.gguf needs part 2 "
         "of 3"},
        {1, NONE, NONE, NONE, "b",
         "m-00002-of-00003.gguf: has no split.count; m-00001-of-00003.gguf needs part 2 of 3"},
        {2, 2, 3, 2, "b",
         "m-00002-of-00003.gguf: tensor \"b\" is there twice, here and in m-00003-of-00003.gguf"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_good();
        write_part(rows[i].part, rows[i].no, rows[i].count, rows[i].total, rows[i].tensor);
        refused(names[0], rows[i].sentence);
    }
}

static void test_a_broken_part(void **state)
{
    static image m;
    (void)state;
    write_good();
    make_part(&m, 2, 3, 2, "a");
    m.bytes--;
    write_as(&m, names[2]);
    char sentence[160];
    snprintf(sentence, sizeof sentence,
             "m-00003-of-00003.gguf: tensor \"a\" ends at byte %zu of %zu", m.bytes + 1, m.bytes);
    refused(names[0], sentence);
    m.bytes = 0;
    write_as(&m, names[2]);
    refused(names[0], "m-00003-of-00003.gguf: too short for a GGUF file: 0 bytes, the header alone "
                      "has 24");
}

/* Part i of the good container. */
static void make_good(image *m, int i)
{
    m->big = i == 1;
    make_part(m, i, 3, 2, i == 0 ? NULL : i == 1 ? "b" : "a");
}

/* Whatever a part has become: refused with a sentence, or whole and readable. */
static int try_damaged(void)
{
    gguf *g = NULL;
    fak_error e = {0};
    int32_t s = gguf_open(&g, path_of(names[0]), &e);
    if (s) {
        assert_int_equal(s, STATUS_BAD_FILE);
        assert_true(e.message[0] != 0);
        return 0;
    }
    walk(g);
    gguf_close(g);
    return 1;
}

static void test_damage(void **state)
{
    static image m;
    uint64_t random = 20240611;
    int opened = 0;
    (void)state;
    print_message("seed %" PRIu64 "\n", random);
    for (int i = 0; i < 3; i++) {
        write_good();
        make_good(&m, i);
        size_t taken = 0, padding = i == 0 ? 31 : 0; /* the first has no data to miss */
        for (size_t bytes = m.bytes; bytes-- > 0;) {
            m.bytes = bytes;
            write_as(&m, names[i]);
            taken += (size_t)try_damaged();
        }
        assert_true(taken <= padding);
        for (int k = 0; k < 600; k++) {
            make_good(&m, i);
            random = random * 6364136223846793005u + 1442695040888963407u;
            m.data[(random >> 33) % m.bytes] = (uint8_t)(random >> 24);
            write_as(&m, names[i]);
            opened += try_damaged();
        }
    }
    assert_true(opened > 0 && opened < 1800); /* some bytes are padding, some are not */
}

static void test_wrong_types(void **state)
{
    static image m;
    (void)state;
    put_header(&m, 3, 0, 1);
    put_key(&m, "split.count", GGUF_STRING);
    put_string(&m, "3");
    write_as(&m, "x.gguf");
    refused("x.gguf", "x.gguf: key \"split.count\" has type string; an integer is needed");
    put_header(&m, 3, 0, 1);
    put_value(&m, "split.count", GGUF_U32, 65536, 4);
    write_as(&m, "x.gguf");
    refused("x.gguf", "x.gguf: key \"split.count\" is 65536; at most 65535 are allowed");
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    static const char *const more[] = {"x.gguf", "whole.gguf", "-00001-of-00003.gguf"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        unlink(path_of(names[i]));
        unlink(path_of(more[i]));
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joined),
        cmocka_unit_test(test_whole_after_all),
        cmocka_unit_test(test_another_part_is_named),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_a_broken_part),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_wrong_types),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
