/* Evidence: the fields of its head, hashes that others know, paths cut, files whole or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../core/evidence.h"
#include "../core/exec.h"
#include "../core/port.h"

static char room[64]; /* an empty folder for each test */

static int enter_room(void **state)
{
    (void)state;
    strcpy(room, "/tmp/fak-test-evidence-XXXXXX");
    return mkdtemp(room) ? 0 : -1;
}

static int leave_room(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", room);
    return system(command);
}

static const char *in_room(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", room, name);
    return path;
}

static const char *write_bytes(const char *name, const void *data, size_t bytes)
{
    const char *path = in_room(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
    return path;
}

static const char *string_at(const json_t *o, const char *a, const char *b)
{
    const char *s = json_string_value(json_object_get(b ? json_object_get(o, a) : o, b ? b : a));
    if (!s) fail_msg("no text at %s %s", a, b ? b : "");
    return s;
}

/* ---- hashes: FIPS 180-2's own examples, and a length at each edge of a block ---- */

static void test_sha256(void **state)
{
    (void)state;
    char hex[65];
    static const struct {
        const char *text, *hex;
    } row[] = {{"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
               {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
               {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_int_equal(evidence_sha256(write_bytes("f", row[i].text, strlen(row[i].text)), hex),
                         0);
        assert_string_equal(hex, row[i].hex);
    }
    char *million = malloc(1000000); /* more than a piece is taken of a larger file */
    assert_non_null(million);
    memset(million, 'a', 1000000);
    assert_int_equal(evidence_sha256(write_bytes("f", million, 1000000), hex), 0);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
    assert_int_equal(evidence_sha256(in_room("nothing"), hex), -1);
}

/* Pieces of a file longer than one are joined: as sha256sum says. */
static void test_sha256_of_pieces(void **state)
{
    (void)state;
    char hex[65], theirs[65] = "", command[192];
    enum { BYTES = (3 << 20) + 17 };
    char *data = malloc(BYTES);
    assert_non_null(data);
    for (size_t i = 0; i < BYTES; i++) data[i] = (char)(i * 2654435761u >> 13);
    const char *path = write_bytes("f", data, BYTES);
    assert_int_equal(evidence_sha256(path, hex), 0);
    snprintf(command, sizeof command, "sha256sum %s", path);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    assert_int_equal(fread(theirs, 1, 64, p), 64);
    pclose(p);
    assert_string_equal(hex, theirs);
    free(data);
}

/* ---- words ---- */

static void test_words(void **state)
{
    (void)state;
    static const char *const row[][2] = {
        {"-m", "-m"},
        {"/home/who/models/a.gguf", "a.gguf"},
        {"a/b", "b"},
        {"../a.gguf", "a.gguf"},
        {"/", ""},
        {"/a/b/", "b"},
        {"--json=/tmp/x.json", "--json=x.json"},
        {"--json=x.json", "--json=x.json"},
        {"-m/home/who/a.gguf", "-ma.gguf"},
        {"cache=/var/who", "cache=who"},
        {"/home/a=b/c", "c"},
        {"16,64", "16,64"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char out[64];
        evidence_word(row[i][0], out, sizeof out);
        assert_string_equal(out, row[i][1]);
    }
}

/* ---- heads ---- */

static const plugin file_plugin = {.name = "cpu-ref",
                                   .path = (char *)(uintptr_t)TEST_BACKEND,
                                   .api = {.version = "1.2", .vendor = "v\xff"}};
static const plugin linked_plugin = {.name = "cpu-ref", .api = {.version = "1.2"}};

static json_t *head_of(const plugin *p, uint32_t klass)
{
    char name[] = "bench", letter[] = "-m", path[] = "/secret/place/m.gguf", quoted[] = "it's here";
    char *argv[] = {name, letter, path, quoted};
    device d = {.from = p,
                .index = 2,
                .facts = {.klass = klass,
                          .caps = FAK_CAP_FUSED_ATTN | FAK_CAP_COLLECTIVE,
                          .numerics = FAK_ACT_F32 | FAK_ACT_F16 | FAK_DETERMINISTIC,
                          .upload_dtypes = 1u << FAK_F32 | 1u << FAK_Q4_1},
                .info = {.kind = FAK_DISCRETE, .id = "pci:1", .name = "A \"card\"", .tier = "t9"}};
    arg_list settings = {{"fused=1", "cache=/secret/place/c"}, 2};
    json_t *head = evidence_head("bench", 4, argv, &d, &settings);
    assert_non_null(head);
    return head;
}

static void test_head(void **state)
{
    (void)state;
    char hex[65];
    json_t *h = head_of(&file_plugin, FAK_APPROX);
    char *text = json_dumps(h, 0);
    assert_null(strstr(text, "secret"));
    assert_null(strstr(text, TEST_BACKEND));
    assert_string_equal(string_at(h, "evidence", NULL), "bench");
    assert_int_equal(json_integer_value(json_object_get(h, "schema")), 1);
    assert_string_equal(string_at(h, "command", NULL), "fakrun bench -m m.gguf 'it'\\''s here'");
    int year, n = 0;
    assert_int_equal(
        sscanf(string_at(h, "date", NULL), "%4d-%*2d-%*2dT%*2d:%*2d:%*2dZ%n", &year, &n), 1);
    assert_int_equal(n, 20);
    assert_true(year > 2020);
    assert_true(strlen(string_at(h, "fak", "version")) >= 5);
    assert_true(strlen(string_at(h, "machine", "system")) &&
                strlen(string_at(h, "machine", "cpu")));
    assert_true(json_integer_value(json_object_get(json_object_get(h, "machine"), "cores")) > 0);
    assert_string_equal(string_at(h, "plugin", "file"), "fak-backend-cpu-ref.so");
    assert_string_equal(string_at(h, "plugin", "vendor"), "v\xef\xbf\xbd");
    assert_int_equal(evidence_sha256(TEST_BACKEND, hex), 0);
    assert_string_equal(string_at(h, "plugin", "sha256"), hex);
    assert_true(json_is_false(json_object_get(json_object_get(h, "plugin"), "linked_in")));
    json_t *d = json_loads("{\"index\": 2, \"id\": \"pci:1\", \"name\": \"A \\\"card\\\"\","
                           "\"kind\": \"discrete\", \"tier\": \"t9\", \"class\": \"approx\","
                           "\"caps\": [\"FusedAttn\", \"Collective\"], \"numerics\":"
                           "[\"act_f32\", \"act_f16\", \"deterministic\"],"
                           "\"upload_dtypes\": [\"f32\", \"q4_1\"]}",
                           0, NULL);
    assert_true(json_equal(json_object_get(h, "device"), d));
    json_t *settings = json_loads("[\"fused=1\", \"cache=c\"]", 0, NULL);
    assert_true(json_equal(json_object_get(h, "settings"), settings));
    json_decref(settings);
    json_decref(d);
    json_decref(h);
    free(text);
}

/* The hash is that of the program which holds it. */
static void test_linked_in(void **state)
{
    (void)state;
    char self[4096], hex[65];
    json_t *h = head_of(&linked_plugin, FAK_REFERENCE);
    assert_int_equal(port_executable(self, sizeof self), 0);
    assert_int_equal(evidence_sha256(self, hex), 0);
    assert_string_equal(string_at(h, "plugin", "sha256"), hex);
    assert_true(json_is_null(json_object_get(json_object_get(h, "plugin"), "file")));
    assert_true(json_is_true(json_object_get(json_object_get(h, "plugin"), "linked_in")));
    assert_string_equal(string_at(h, "device", "class"), "reference");
    json_decref(h);
}

static void test_parts(void **state)
{
    (void)state;
    uint64_t by_id[EXEC_IDS] = {[FAK_OP_MATMUL] = 15, [FAK_OP_FFN] = 1};
    json_t *ops = evidence_ops(by_id), *file = evidence_model(write_bytes("m.gguf", "abc", 3));
    assert_int_equal(json_object_size(ops), 2);
    assert_int_equal(json_integer_value(json_object_get(ops, "matmul")), 15);
    assert_string_equal(string_at(file, "file", NULL), "m.gguf");
    assert_string_equal(string_at(file, "sha256", NULL),
                        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    json_t *number = evidence_number(0.5), *none = evidence_number((double)INFINITY);
    assert_true(json_real_value(number) == 0.5 && json_is_null(none));
    json_decref(ops);
    json_decref(file);
    json_decref(number);
    json_decref(none);
}

/* ---- files ---- */

static json_t *small(void)
{
    return json_pack("{s:i, s:i, s:i}", "b", 1, "c", 2, "a", 3);
}

static void test_write(void **state)
{
    (void)state;
    fak_error e = {0};
    char text[64] = "";
    assert_int_equal(evidence_write(small(), in_room("e.json"), &e), FAK_OK);
    FILE *f = fopen(in_room("e.json"), "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    assert_string_equal(text, "{\n  \"a\": 3,\n  \"b\": 1,\n  \"c\": 2\n}\n");
    assert_int_equal(evidence_write(NULL, in_room("e.json"), &e), FAK_E_MEMORY);
}

static void test_write_failures(void **state)
{
    (void)state;
    fak_error e = {0};
    assert_int_equal(evidence_write(small(), room, &e), STATUS_BAD_FILE); /* a folder */
    if (!strstr(e.message, "cannot be written")) fail_msg("%s", e.message);
    assert_int_equal(evidence_write(small(), write_bytes("f", "x", 1), &e), FAK_OK);
    char below[160];
    snprintf(below, sizeof below, "%s/f/e.json", room);
    assert_int_equal(evidence_write(small(), below, &e), STATUS_BAD_FILE);
}

/* Devices are reached by links and pipes of our own folder: code that is wrong must not be able to
 * replace the machine's. */
static void test_write_to_no_file(void **state)
{
    (void)state;
    fak_error e = {0};
    struct stat st;
    char text[64];
    assert_int_equal(mkfifo(in_room("pipe"), 0600), 0);
    int in = open(in_room("pipe"), O_RDONLY | O_NONBLOCK);
    assert_true(in >= 0);
    assert_int_equal(evidence_write(small(), in_room("pipe"), &e), FAK_OK);
    assert_int_equal(lstat(in_room("pipe"), &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_int_equal(read(in, text, sizeof text), 33);
    close(in);
    assert_int_equal(symlink("/dev/full", in_room("full")), 0);
    if (stat(in_room("full"), &st) || !S_ISCHR(st.st_mode)) return; /* a machine without it */
    assert_int_equal(evidence_write(small(), in_room("full"), &e), STATUS_BAD_FILE);
    if (!strstr(e.message, "No space left")) fail_msg("%s", e.message);
    assert_int_equal(lstat(in_room("full"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sha256, enter_room, leave_room),
        cmocka_unit_test_setup_teardown(test_sha256_of_pieces, enter_room, leave_room),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_linked_in),
        cmocka_unit_test_setup_teardown(test_parts, enter_room, leave_room),
        cmocka_unit_test_setup_teardown(test_write, enter_room, leave_room),
        cmocka_unit_test_setup_teardown(test_write_failures, enter_room, leave_room),
        cmocka_unit_test_setup_teardown(test_write_to_no_file, enter_room, leave_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
