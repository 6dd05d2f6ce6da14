/* search: where backends are looked for, in which order, and which names count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../core/search.h"

/* ---- a folder to try things in ---- */

static char room[64]; /* absolute; every test starts with an empty one */

static const char *in_room(const char *rest)
{
    static char path[2][4200];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", room, rest);
    return path[turn];
}

static void touch(const char *rest)
{
    FILE *f = fopen(in_room(rest), "wb");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
}

static void make_folder(const char *rest)
{
    assert_int_equal(mkdir(in_room(rest), 0755), 0);
}

static int enter_room(void **state)
{
    (void)state;
    strcpy(room, "/tmp/fak-test-search-XXXXXX");
    return mkdtemp(room) ? 0 : -1;
}

static int leave_room(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", room);
    return system(command);
}

/* ---- names ---- */

#define A10 "aaaaaaaaaa"
#define A63 A10 A10 A10 A10 A10 A10 "aaa"

static const struct {
    const char *path, *name; /* NULL: refused */
} names[] = {
    {"fak-backend-cuda.so", "cuda"},
    {"/a/b/fak-backend-cpu-ref.so", "cpu-ref"},
    {"./fak-backend-0.so", "0"},
    {"x/fak-backend--.so", "-"},
    {"fak-backend-abcdefghijklmnopqrstuvwxyz0123456789-.so",
     "abcdefghijklmnopqrstuvwxyz0123456789-"},
    {"fak-backend-fak-backend-x.so", "fak-backend-x"},
    {"fak-backend-" A63 ".so", A63},
    {"fak-backend-" A63 "a.so", NULL},
    {"fak-backend-" A63 A63 A63 ".so", NULL},
    {"fak-backend-.so", NULL},
    {"fak-backend.so", NULL},
    {"fak-backend-CUDA.so", NULL},
    {"fak-backend-a_b.so", NULL},
    {"fak-backend-a.b.so", NULL},
    {"fak-backend-a b.so", NULL},
    {"fak-backend-a\n.so", NULL},
    {"fak-backend-\xc3\xa9.so", NULL},
    {"fak-backend-a.so.1", NULL},
    {"fak-backend-a.so~", NULL},
    {"fak-backend-a", NULL},
    {"libfak-backend-a.so", NULL},
    {"Fak-backend-a.so", NULL},
    {"fak-backend-a.so/", NULL},
    {"fak-backend-a.so/x", NULL},
    {".so", NULL},
    {"/", NULL},
    {"", NULL},
};

static void names_accepted_and_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[SEARCH_NAME_MAX + 1] = "untouched";
        int rc = search_name_of(names[i].path, name);
        if (rc != (names[i].name ? 0 : -1)) fail_msg("%s: %d", names[i].path, rc);
        assert_string_equal(name, names[i].name ? names[i].name : "untouched");
    }
}

/* ---- folders ---- */

static void run(search *s, const char *path)
{
    fak_error e = {0};
    int32_t rc = search_run(s, path, 0, &e);
    if (rc) fail_msg("%s", e.message);
}

/* Folders that come with any search: the compiled-in one and those beside the executable. */
static uint32_t own_folders(void)
{
    search s;
    run(&s, NULL);
    uint32_t n = s.folders;
    search_free(&s);
    return n;
}

static void folders_in_order(void **state)
{
    (void)state;
    search s;
    char path[4300], beside[4300];
    make_folder("b");
    make_folder("a");
    snprintf(path, sizeof path, "%s/b:%s/a", room, room);
    run(&s, path);
    assert_in_range(s.folders, 4, 5);                    /* the two ones beside may be one */
    assert_string_equal(s.folder[0].path, in_room("b")); /* as given, not sorted */
    assert_string_equal(s.folder[1].path, in_room("a"));
    assert_string_equal(s.folder[0].why, "");
    assert_string_equal(s.folder[1].why, "");
#ifdef FAK_BACKEND_FOLDER
    assert_string_equal(s.folder[2].path, FAK_BACKEND_FOLDER);
#endif
    ssize_t n = readlink("/proc/self/exe", beside, sizeof beside - 1);
    assert_in_range(n, 1, 4095);
    beside[n] = 0;
    *strrchr(beside, '/') = 0;
    *strrchr(beside, '/') = 0;
    size_t prefix = strlen(beside);
    strcat(beside, "/lib/fak/backends");
    assert_string_equal(s.folder[s.folders - 1].path, beside);
#ifdef FAK_LIBDIR
    strcpy(beside + prefix, "/" FAK_LIBDIR "/fak/backends");
    assert_string_equal(s.folder[3].path, beside);
#endif
    for (uint32_t i = 0; i < s.folders; i++) assert_int_equal(s.folder[i].path[0], '/');
    search_free(&s);
}

static void without_a_path(void **state)
{
    (void)state;
    search s;
    uint32_t own = own_folders();
    assert_in_range(own, 2, 3);
    run(&s, "");
    assert_int_equal(s.folders, own);
    search_free(&s);
    assert_null(s.folder);
    assert_null(s.file);
    assert_int_equal(s.folders + s.files, 0);
    search_free(&s); /* again is fine */
}

static void entries_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *path, *entry[4];
        uint32_t entries;
    } row[] = {
        {"relative", {"relative"}, 1},
        {".", {"."}, 1},
        {":", {"", ""}, 2},
        {"./plugins:../x", {"./plugins", "../x"}, 2},
        {"::a:", {"", "", "a", ""}, 4},
        {"~/x", {"~/x"}, 1},
    };
    uint32_t own = own_folders();
    touch("fak-backend-here.so");
    assert_int_equal(chdir(room), 0); /* were the working directory looked in, it would be found */
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        search s;
        run(&s, row[i].path);
        assert_int_equal(s.folders, row[i].entries + own);
        for (uint32_t j = 0; j < row[i].entries; j++) {
            assert_string_equal(s.folder[j].path, row[i].entry[j]);
            assert_string_equal(s.folder[j].why, row[i].entry[j][0]
                                                     ? "FAK_PLUGIN_PATH takes absolute folders only"
                                                     : "an empty entry of FAK_PLUGIN_PATH");
        }
        for (uint32_t j = 0; j < s.files; j++) assert_string_not_equal(s.file[j].name, "here");
        search_free(&s);
    }
    assert_int_equal(chdir("/"), 0);
}

static void folders_that_cannot_be_read(void **state)
{
    (void)state;
    search s;
    char path[4300];
    touch("file");
    make_folder("good");
    touch("good/fak-backend-x.so");
    snprintf(path, sizeof path, "%s/missing:%s/file:%s/good", room, room, room);
    run(&s, path);
    assert_string_equal(s.folder[0].why, "No such file or directory");
    assert_string_equal(s.folder[1].why, "Not a directory");
    assert_string_equal(s.folder[2].why, "");
    assert_string_equal(s.file[0].path, in_room("good/fak-backend-x.so"));
    search_free(&s);

    char *longest = malloc(9001); /* longer than any path may be */
    assert_non_null(longest);
    memset(longest, 'a', 9000);
    longest[0] = '/';
    longest[9000] = 0;
    run(&s, longest);
    assert_string_equal(s.folder[0].path, longest);
    assert_string_equal(s.folder[0].why, "File name too long");
    search_free(&s);
    free(longest);
}

/* ---- files ---- */

/* Files that come from the folders of room; those of the machine's own folders follow. */
static void assert_files(const search *s, const char *const *expected, uint32_t count)
{
    size_t n = strlen(room);
    uint32_t here = 0;
    while (here < s->files && !strncmp(s->file[here].path, room, n)) here++;
    for (uint32_t i = 0; i < here && i < count; i++) {
        char name[SEARCH_NAME_MAX + 1];
        assert_string_equal(s->file[i].path + n + 1, expected[i]);
        assert_int_equal(search_name_of(expected[i], name), 0);
        assert_string_equal(s->file[i].name, name);
    }
    assert_int_equal(here, count);
}

static void files_sorted_by_folder_and_name(void **state)
{
    (void)state;
    static const char *const expected[] = {
        "z/fak-backend--.so", "z/fak-backend-0.so",  "z/fak-backend-a-b.so", "z/fak-backend-a0.so",
        "z/fak-backend-b.so", "a/fak-backend-a0.so", "a/fak-backend-b.so"};
    search s;
    char path[4300];
    make_folder("z");
    make_folder("a");
    for (int i = 6; i >= 0; i -= 2) touch(expected[i]); /* in no order */
    for (int i = 1; i < 7; i += 2) touch(expected[i]);
    snprintf(path, sizeof path, "%s/z:%s/a", room, room);
    run(&s, path);
    assert_files(&s, expected, 7);
    search_free(&s);
    run(&s, path); /* and the same again */
    assert_files(&s, expected, 7);
    search_free(&s);
}

static void other_files_are_not_looked_at(void **state)
{
    (void)state;
    static const char *const expected[] = {"f/fak-backend-" A63 ".so", "f/fak-backend-dangling.so",
                                           "f/fak-backend-folder.so", "f/fak-backend-linked.so",
                                           "f/fak-backend-x.so"};
    search s;
    make_folder("f");
    make_folder("f/sub");
    touch("f/sub/fak-backend-deep.so"); /* not recursive */
    make_folder("f/fak-backend-folder.so");
    touch("f/fak-backend-folder.so/fak-backend-deeper.so");
    touch("f/fak-backend-x.so");
    touch("f/fak-backend-X.so");
    touch("f/fak-backend-x.so.bak");
    touch("f/.fak-backend-x.so");
    touch("f/README");
    touch("f/" A63 A63 A63 A63);
    touch("f/fak-backend-" A63 ".so");
    touch("f/fak-backend-" A63 "a.so");
    touch("f/fak-backend-" A63 A63 A63 ".so");
    assert_int_equal(symlink("nowhere", in_room("f/fak-backend-dangling.so")), 0);
    assert_int_equal(symlink("fak-backend-x.so", in_room("f/fak-backend-linked.so")), 0);
    run(&s, in_room("f"));
    assert_files(&s, expected, 5);
    search_free(&s);
    make_folder("g");
    touch("g/README");
    touch("g/libacme.so.1");
    touch("g/fak-backend-x.so");
    run(&s, in_room("g"));
    assert_string_equal(s.folder[0].why, "");
    search_free(&s);
    touch("g/libacme.so");
    run(&s, in_room("g"));
    assert_string_equal(s.folder[0].why, "libacme.so is not looked at: a backend is named "
                                         "fak-backend-NAME.so");
    assert_string_equal(s.file[0].name, "x");
    search_free(&s);
}

static void many_files(void **state)
{
    (void)state;
    search s;
    make_folder("m");
    for (int i = 0; i < 300; i++) {
        char name[64];
        snprintf(name, sizeof name, "m/fak-backend-%03d.so", i * 7 % 300);
        touch(name);
    }
    run(&s, in_room("m"));
    assert_in_range(s.files, 300, 10000);
    for (uint32_t i = 0; i < 300; i++) assert_int_equal(atoi(s.file[i].name), i);
    search_free(&s);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, enter_room, leave_room)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_accepted_and_refused),
        cmocka_unit_test(without_a_path),
        TEST(folders_in_order),
        TEST(entries_refused_by_name),
        TEST(folders_that_cannot_be_read),
        TEST(files_sorted_by_folder_and_name),
        TEST(other_files_are_not_looked_at),
        TEST(many_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
