/* test_elfnote - what a shared object says of itself: the real plugin, and damage to it at every place
 * that is read. */
#include "../core/elfnote.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static uint8_t *image; /* of fak-backend-cpu-ref.so */
static size_t image_bytes, note_at;
static char path[64];

static int begin(void **state)
{
    (void)state;
    FILE *in = fopen(TEST_BACKEND, "rb");
    image = malloc(1 << 24);
    if (!in || !image) return -1;
    image_bytes = fread(image, 1, 1 << 24, in);
    fclose(in);
    const uint32_t head[3] = {4, 80, 1}; /* in this machine's order, as the note is */
    for (note_at = 0; note_at + 16 < image_bytes; note_at += 4)
        if (!memcmp(image + note_at, head, 12) && !memcmp(image + note_at + 12, "fak", 4)) break;
    strcpy(path, "/tmp/fak-test-elfnote-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int end(void **state)
{
    (void)state;
    free(image);
    return unlink(path);
}

/* Reads the image with `bytes` bytes in all and new bytes at a place. */
static int32_t read_with(size_t bytes, size_t at, const void *with, size_t n, elfnote *note,
                         fak_error *e)
{
    FILE *out = fopen(path, "wb");
    uint8_t *copy = malloc(image_bytes);
    assert_non_null(out);
    assert_non_null(copy);
    memcpy(copy, image, image_bytes);
    if (n) memcpy(copy + at, with, n);
    fwrite(copy, 1, bytes, out);
    fclose(out);
    free(copy);
    return elfnote_read(note, path, e);
}

static void test_good(void **state)
{
    elfnote note;
    fak_error e;
    (void)state;
    assert_true(note_at + 16 < image_bytes);
    assert_int_equal(read_with(image_bytes, 0, NULL, 0, &note, &e), FAK_OK);
    assert_true(note.there);
    assert_int_equal(note.major, FAK_ABI_MAJOR);
    assert_int_equal(note.minor, FAK_ABI_MINOR);
    assert_int_equal(note.klass, FAK_REFERENCE);
    assert_string_equal(note.backend, "cpu-ref");
    assert_string_equal(note.cpu, "");
}

static void test_faults(void **state)
{
    static const uint8_t foreign[2] = {0x77, 0x77}, two = 2, zero[8] = {0}, x = 'x';
    static const uint32_t major = 9, klass = 2, desc = 8;
    const uint8_t order = image[5] == 1 ? 2 : 1;
    const struct {
        size_t at;
        const void *with;
        size_t n;
        const char *part;
    } fault[] = {
        {0, &x, 1, "it is not an ELF file"},
        {4, "\1", 1, "it is an ELF file of 32 bits; this program has 64"},
        {5, &order, 1, "it is an ELF file of the other byte order"},
        {16, &two, 1, "it is an ELF file, but not a shared object"},
        {18, foreign, 2, "it is for another machine (ELF machine "},
        {18, "\x28\x28", 2, "(ELF machine 10280); this is "},
        {32, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8, "its program headers lie outside the file"},
        {32, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, "its program headers lie outside the file"},
        {54, zero, 2, "its program headers lie outside the file"},
        {56, "\xff\xff", 2, "its program headers lie outside the file"},
        {note_at + 16, &major, 4, "it is built for ABI 9.0; this program has 1.0"},
        {note_at + 24, &klass, 4, "its note claims the unknown class 2"},
        {note_at + 4, &desc, 4, "its note has 8 bytes; 80 are needed"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof fault / sizeof *fault; i++) {
        elfnote note;
        fak_error e = {0};
        int32_t s = read_with(image_bytes, fault[i].at, fault[i].with, fault[i].n, &note, &e);
        if (s != STATUS_REFUSED || !strstr(e.message, fault[i].part))
            fail_msg("fault %zu: %d \"%s\" lacks \"%s\"", i, s, e.message, fault[i].part);
    }
}

static void test_without_note(void **state)
{
    elfnote note;
    fak_error e;
    (void)state;
    assert_int_equal(read_with(image_bytes, note_at + 12, "xyz", 3, &note, &e), FAK_OK);
    assert_false(note.there);
}

/* Cut anywhere, it is refused with a sentence; the whole file passes. */
static void test_truncated(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < 3000; bytes += bytes < 200 ? 1 : 37) {
        elfnote note;
        fak_error e = {0};
        assert_int_equal(read_with(bytes, 0, NULL, 0, &note, &e), STATUS_REFUSED);
        assert_true(e.message[0]);
    }
}

/* Any single word of the head and of the note may be anything: an answer, never a crash. */
static void test_any_word(void **state)
{
    static const uint8_t words[][4] = {
        {0}, {1}, {0xff, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0x7f}};
    (void)state;
    for (size_t at = 0; at < 1024; at += 4)
        for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
            elfnote note;
            fak_error e = {0};
            int32_t s = read_with(image_bytes, at, words[w], 4, &note, &e);
            assert_true(s == FAK_OK || (s == STATUS_REFUSED && e.message[0]));
        }
}

static void test_no_file(void **state)
{
    elfnote note;
    fak_error e;
    (void)state;
    assert_int_equal(elfnote_read(&note, "/nonexistent/x.so", &e), STATUS_REFUSED);
    assert_string_equal(e.message, "No such file or directory");
    assert_int_equal(elfnote_read(&note, "/tmp", &e), STATUS_REFUSED);
    assert_string_equal(e.message, "Is a directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),         cmocka_unit_test(test_faults),
        cmocka_unit_test(test_without_note), cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_any_word),     cmocka_unit_test(test_no_file),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
