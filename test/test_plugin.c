/* plugin: which backends there are, which of a name wins, and the handshake.  TEST_PLUGINS is the
 * folder of mock/handshake.c's many builds. */
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

#include "../core/plugin.h"

enum { PATH_ROOM = 4400 };
static char room[64]; /* an empty folder for each test */
static const plugin_host no_host;

static const char *in_room(const char *rest)
{
    static char path[2][PATH_ROOM];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", room, rest);
    return path[turn];
}

static const char *built(const char *name)
{
    static char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/fak-backend-%s.so", TEST_PLUGINS, name);
    return path;
}

static void write_file(const char *rest, const void *data, size_t bytes)
{
    FILE *f = fopen(in_room(rest), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

/* A copy of the honest mock under another name, with bits of a byte flipped (at < 0: none). */
static void copy_good(const char *rest, long at, unsigned char flip)
{
    FILE *f = fopen(built("fault-good"), "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    size_t bytes = (size_t)ftell(f);
    unsigned char *data = malloc(bytes);
    assert_non_null(data);
    rewind(f);
    assert_int_equal(fread(data, 1, bytes, f), bytes);
    fclose(f);
    if (at >= 0) data[at] ^= flip;
    write_file(rest, data, bytes);
    free(data);
}

static int enter_room(void **state)
{
    (void)state;
    strcpy(room, "/tmp/fak-test-plugin-XXXXXX");
    return mkdtemp(room) ? 0 : -1;
}

static int leave_room(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", room);
    return system(command);
}

static void open_list(plugins *all, const char *only_file, const char *path)
{
    fak_error e = {0};
    if (plugins_open(all, &(plugin_search){only_file, path, 0}, &no_host, &e))
        fail_msg("%s", e.message);
}

/* ---- which there are ---- */

static void reference_is_always_there(void **state)
{
    (void)state;
    const char *const paths[] = {NULL, "", "/nowhere", "relative", room};
    copy_good("fak-backend-cpu-ref.so", -1, 0); /* does not take its place */
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        plugins all;
        fak_error e = {0};
        open_list(&all, NULL, paths[i]);
        plugin *ref = plugins_linked_in(&all, "cpu-ref");
        assert_non_null(ref);
        assert_ptr_equal(plugins_find(&all, "cpu-ref"), ref);
        assert_null(ref->path);
        assert_int_equal(ref->state, PLUGIN_FOUND); /* listing opens nothing */
        assert_int_equal(plugin_load(&all, ref, &e), FAK_OK);
        assert_int_equal(ref->state, PLUGIN_LOADED);
        assert_string_equal(ref->api.name, "cpu-ref");
        assert_string_equal(ref->why, "");
        assert_int_equal(plugin_load(&all, ref, &e), FAK_OK); /* again is fine */
        assert_null(plugins_find(&all, "nobody"));
        assert_null(plugins_linked_in(&all, "nobody"));
        plugins_close(&all);
        assert_int_equal(all.count, 0);
        plugins_close(&all); /* again is fine */
    }
}

static void first_of_a_name_wins(void **state)
{
    (void)state;
    plugins all;
    fak_error e = {0};
    char path[PATH_ROOM], expected[PATH_ROOM];
    assert_int_equal(mkdir(in_room("one"), 0755) | mkdir(in_room("two"), 0755), 0);
    copy_good("one/fak-backend-fault-good.so", -1, 0);
    copy_good("two/fak-backend-fault-good.so", -1, 0);
    copy_good("two/fak-backend-cpu-ref.so", -1, 0);
    snprintf(path, sizeof path, "%s/one:%s/two", room, room);
    open_list(&all, NULL, path);

    plugin *first = plugins_find(&all, "fault-good"), *second = NULL, *ref_file = NULL;
    assert_non_null(first);
    assert_string_equal(first->path, in_room("one/fak-backend-fault-good.so"));
    for (uint32_t i = 0; i < all.count; i++) {
        plugin *p = &all.at[i];
        if (p->path && !strcmp(p->path, in_room("two/fak-backend-fault-good.so"))) second = p;
        if (p->path && !strcmp(p->path, in_room("two/fak-backend-cpu-ref.so"))) ref_file = p;
    }
    assert_non_null(second);
    assert_non_null(ref_file);
    assert_int_equal(first->state, PLUGIN_FOUND);
    assert_int_equal(second->state, PLUGIN_SHADOWED);
    assert_int_equal(ref_file->state, PLUGIN_SHADOWED);
    snprintf(expected, sizeof expected, "shadowed by %s", first->path);
    assert_string_equal(second->why, expected);
    assert_string_equal(ref_file->why, "shadowed by the one linked in");

    assert_int_equal(plugin_load(&all, second, &e), STATUS_REFUSED); /* never opened */
    snprintf(expected, sizeof expected, "backend %s: shadowed by %s", second->path, first->path);
    assert_string_equal(e.message, expected);
    assert_int_equal(second->state, PLUGIN_SHADOWED);
    assert_null(second->library);
    assert_int_equal(plugin_load(&all, first, &e), FAK_OK);
    plugins_close(&all);
}

/* ---- one file ---- */

static void only_file_and_reference(void **state)
{
    (void)state;
    plugins all;
    fak_error e = {0};
    copy_good("fak-backend-fault-good.so", -1, 0);
    copy_good("fak-backend-other.so", -1, 0);
    open_list(&all, in_room("fak-backend-fault-good.so"), room); /* the path is not looked at */
    assert_int_equal(all.found.folders + all.found.files, 0);
    assert_null(plugins_find(&all, "other"));
    plugin *p = plugins_find(&all, "fault-good");
    assert_ptr_equal(p, &all.at[0]);
    assert_string_equal(p->path, in_room("fak-backend-fault-good.so"));
    assert_non_null(plugins_linked_in(&all, "cpu-ref"));
    assert_int_equal(plugin_load(&all, p, &e), FAK_OK);
    plugins_close(&all);
}

static void only_file_named_as_the_reference(void **state)
{
    (void)state;
    plugins all;
    fak_error e = {0};
    copy_good("fak-backend-cpu-ref.so", -1, 0); /* calls itself fault-good */
    open_list(&all, in_room("fak-backend-cpu-ref.so"), NULL);
    plugin *file = plugins_find(&all, "cpu-ref"), *linked = plugins_linked_in(&all, "cpu-ref");
    assert_non_null(file);
    assert_non_null(linked);
    assert_ptr_not_equal(file, linked);
    assert_non_null(file->path); /* the one that was asked for is used */
    assert_int_equal(plugin_load(&all, file, &e), STATUS_REFUSED);
    assert_string_equal(file->why, "it calls itself fault-good; its file's name says cpu-ref");
    assert_int_equal(plugin_load(&all, linked, &e), FAK_OK); /* and no harm to the other */
    plugins_close(&all);
}

static void only_file_by_links_and_relative_names(void **state)
{
    (void)state;
    plugins all;
    fak_error e = {0};
    copy_good("real.bin", -1, 0); /* the name asked for counts, not the one behind the link */
    assert_int_equal(symlink("real.bin", in_room("fak-backend-fault-good.so")), 0);
    assert_int_equal(chdir(room), 0);
    open_list(&all, "fak-backend-fault-good.so", NULL);
    assert_string_equal(all.at[0].name, "fault-good");
    assert_string_equal(all.at[0].path, in_room("real.bin")); /* so dlopen searches nowhere */
    assert_int_equal(plugin_load(&all, &all.at[0], &e), FAK_OK);
    plugins_close(&all);
    assert_int_equal(chdir("/"), 0);
}

static void assert_not_a_backend(const char *file, const char *why)
{
    plugins all;
    fak_error e = {0};
    char expected[PATH_ROOM];
    assert_int_equal(plugins_open(&all, &(plugin_search){file, NULL, 0}, &no_host, &e),
                     STATUS_REFUSED);
    snprintf(expected, sizeof expected, "backend %s: %s", file, why);
    assert_string_equal(e.message, expected);
    assert_int_equal(e.code, STATUS_REFUSED);
    plugins_close(&all);
}

static void only_file_that_cannot_be_one(void **state)
{
    (void)state;
    static const char named[] = "a backend is named fak-backend-NAME.so";
    write_file("x.so", "", 0);
    write_file("fak-backend-X.so", "", 0);
    assert_int_equal(symlink("nowhere", in_room("fak-backend-dangling.so")), 0);
    assert_not_a_backend(in_room("fak-backend-none.so"), "No such file or directory");
    assert_not_a_backend(in_room("fak-backend-dangling.so"), "No such file or directory");
    assert_not_a_backend(in_room("x.so/fak-backend-a.so"), "Not a directory");
    assert_not_a_backend("", "No such file or directory");
    assert_not_a_backend(in_room("x.so"), named);
    assert_not_a_backend(in_room("fak-backend-X.so"), named);
    assert_not_a_backend(room, named);
}

/* Loaded twice, refused twice, with dlopen's sentence naming the file. */
static void assert_not_loaded(const char *rest, const char *part)
{
    plugins all;
    fak_error e = {0}, again = {0};
    open_list(&all, in_room(rest), NULL);
    plugin *p = &all.at[0];
    assert_int_equal(plugin_load(&all, p, &e), STATUS_REFUSED);
    assert_int_equal(p->state, PLUGIN_REFUSED);
    assert_null(p->library);
    if (!strstr(e.message, part) || !strstr(p->why, part)) fail_msg("%s", e.message);
    assert_non_null(strstr(e.message, in_room(rest)));
    assert_int_equal(plugin_load(&all, p, &again), STATUS_REFUSED);
    assert_string_equal(again.message, e.message);
    assert_non_null(plugins_linked_in(&all, "cpu-ref"));
    plugins_close(&all);
}

static void files_that_are_no_library(void **state)
{
    (void)state;
    static const char text[80] = "#!/bin/sh\necho this is a script, as long as an ELF header\n";
    write_file("fak-backend-empty.so", "", 0);
    write_file("fak-backend-text.so", text, sizeof text);
    write_file("fak-backend-short.so",
               "\x7f"
               "ELF",
               4);
    assert_int_equal(mkdir(in_room("fak-backend-folder.so"), 0755), 0);
    copy_good("fak-backend-class.so", 4, 3);       /* 32-bit */
    copy_good("fak-backend-order.so", 5, 3);       /* the other byte order */
    copy_good("fak-backend-machine.so", 18, 0xcd); /* another processor */
    assert_not_loaded("fak-backend-empty.so", "it is empty");
    assert_not_loaded("fak-backend-text.so", "it is not an ELF file");
    assert_not_loaded("fak-backend-short.so", "it is not an ELF file");
    assert_not_loaded("fak-backend-folder.so", "Is a directory");
    assert_not_loaded("fak-backend-class.so", "it is an ELF file of ");
    assert_not_loaded("fak-backend-order.so", "it is an ELF file of the other byte order");
    assert_not_loaded("fak-backend-machine.so", "it is for ");
}

/* ---- the handshake ---- */

static const struct {
    const char *name, *why; /* %s: the file */
} faults[] = {
    {"fault-no-entry", "it has no symbol fak_backend_entry_v1"},
    {"fault-undefined", "%s: undefined symbol: handshake_undefined"},
    {"fault-entry-refuses", "this chip has no dot products"},
    {"fault-entry-silent", "it refused to load"},
    {"fault-no-table", "its table is 0 bytes; this host needs 240"},
    {"fault-short-table", "its table is 64 bytes; this host needs 240"},
    {"fault-needs-newer-host", "it needs ABI 1.3; this host has 1.0"},
    {"fault-wrong-name", "it calls itself another; its file's name says fault-wrong-name"},
    {"fault-null-name", "its table has no name, version or vendor"},
    {"fault-null-version", "its table has no name, version or vendor"},
    {"fault-null-vendor", "its table has no name, version or vendor"},
    {"fault-null-info", "its table has no device_info"},
    {"fault-null-open", "its table has no open"},
    {"fault-null-prepare", "its table has no prepare"},
    {"fault-null-release", "its table has no release"},
    {"fault-null-load", "its table has no load"},
    {"fault-null-begin", "its table has no begin"},
    {"fault-null-read", "its table has no read"},
    {"fault-null-write", "its table has no write"},
    {"fault-op-stride", "its op table is not one"},
    {"fault-option-table", "its option table is not one"},
    {"fault-no-ops", "it has neither ops nor run"},
    {"fault-graph-liar", "caps liar: GraphCompile and run disagree"},
    {"fault-graph-silent", "caps liar: GraphCompile and run disagree"},
    {"fault-async-liar", "caps liar: Async and wait disagree"},
    {"fault-async-silent", "caps liar: Async and wait disagree"},
};

static void assert_refused(plugins *all, plugin *p, const char *why)
{
    char expected[PATH_ROOM * 2];
    fak_error e = {0};
    assert_non_null(p);
    if (!strncmp(why, "%s", 2)) {
        snprintf(expected, sizeof expected, "%s%s", p->path, why + 2);
        expected[sizeof p->why - 1] = 0; /* a long folder may have cut it */
    } else {
        snprintf(expected, sizeof expected, "%s", why);
    }
    for (int again = 0; again < 3; again++) {
        memset(&e, 0, sizeof e);
        assert_int_equal(plugin_load(all, p, &e), STATUS_REFUSED);
        assert_int_equal(e.code, STATUS_REFUSED);
        assert_int_equal(p->state, PLUGIN_REFUSED);
        assert_null(p->library);
        assert_string_equal(p->why, expected);
        char message[PATH_ROOM * 3];
        snprintf(message, sizeof message, "backend %s: %s", p->path, expected);
        message[sizeof e.message - 1] = 0;
        assert_string_equal(e.message, message);
    }
}

/* Each alone, as --backend-path does. */
static void faults_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        plugins all;
        open_list(&all, built(faults[i].name), NULL);
        assert_refused(&all, plugins_find(&all, faults[i].name), faults[i].why);
        plugins_close(&all);
    }
}

/* All of them in one list: none disturbs another, the honest one loads between them. */
static void faults_together(void **state)
{
    (void)state;
    plugins all;
    fak_error e = {0};
    open_list(&all, NULL, TEST_PLUGINS);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        assert_refused(&all, plugins_find(&all, faults[i].name), faults[i].why);
    plugin *good = plugins_find(&all, "fault-good");
    assert_non_null(good);
    if (plugin_load(&all, good, &e)) fail_msg("%s", e.message);
    assert_int_equal(plugin_load(&all, plugins_linked_in(&all, "cpu-ref"), &e), FAK_OK);
    plugins_close(&all);
}

/* A later minor whose table and elements are larger. */
static void good_one_loads(void **state)
{
    (void)state;
    plugins all;
    fak_error e = {0};
    open_list(&all, built("fault-good"), NULL);
    plugin *p = &all.at[0];
    if (plugin_load(&all, p, &e)) fail_msg("%s", e.message);
    assert_int_equal(p->state, PLUGIN_LOADED);
    assert_string_equal(p->why, "");
    assert_non_null(p->library);
    assert_int_equal(p->api.struct_size, sizeof(fak_backend)); /* ours now */
    assert_int_equal(p->api.abi_minor, 7);
    assert_string_equal(p->api.name, "fault-good");
    assert_string_equal(p->api.version, "7.0");
    assert_int_equal(p->api.ops, 3);
    assert_int_equal(p->api.op_stride, sizeof(fak_op_entry) + 8);
    assert_non_null(p->api.get_ext);
    void *library = p->library;
    assert_int_equal(plugin_load(&all, p, &e), FAK_OK);
    assert_ptr_equal(p->library, library); /* not opened once more */
    plugins_close(&all);
}

static int32_t count_progress(void *self, const char *what, uint64_t done, uint64_t of)
{
    (void)what, (void)done, (void)of;
    return ++*(int *)self;
}

static void host_services_are_never_null(void **state)
{
    (void)state;
    plugins all;
    fak_error e = {0};
    char byte;
    int calls = 0;
    open_list(&all, NULL, NULL);
    const fak_host *h = &all.host;
    assert_int_equal(h->struct_size, sizeof *h);
    assert_int_equal(h->abi_minor, FAK_ABI_MINOR);
    h->log(h->self, FAK_LOG_ERROR, "nobody listens");
    assert_int_equal(h->progress(h->self, "work", 1, 2), FAK_OK);
    assert_int_equal(h->cache_get(h->self, "key", &byte, 1), 0);
    h->cache_put(h->self, "key", &byte, 1);
    assert_null(h->get_ext(h->self, "fak.nothing/1"));
    plugins_close(&all);

    plugin_host host = {.self = &calls, .progress = count_progress};
    assert_int_equal(plugins_open(&all, &(plugin_search){0}, &host, &e), FAK_OK);
    assert_int_equal(all.host.progress(all.host.self, "work", 1, 2), 1); /* the embedder's own */
    assert_int_equal(calls, 1);
    all.host.log(all.host.self, FAK_LOG_ERROR, "still nobody");
    plugins_close(&all);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, enter_room, leave_room)
    const struct CMUnitTest tests[] = {
        TEST(reference_is_always_there),
        TEST(first_of_a_name_wins),
        TEST(only_file_and_reference),
        TEST(only_file_named_as_the_reference),
        TEST(only_file_by_links_and_relative_names),
        TEST(only_file_that_cannot_be_one),
        TEST(files_that_are_no_library),
        cmocka_unit_test(faults_alone),
        cmocka_unit_test(faults_together),
        cmocka_unit_test(good_one_loads),
        cmocka_unit_test(host_services_are_never_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
