/* device: which devices there are, what opening one refuses, and what is copied of its facts.
 * TEST_PLUGINS is the folder of mock/handshake.c's many builds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../core/device.h"

static plugins list;
static const plugin *loaded;

/* A mock, or the reference, loaded into `loaded`. */
static void load(const char *name)
{
    static const plugin_host host;
    char path[4400];
    fak_error e = {0};
    int mock = !strncmp(name, "fault-", 6);
    snprintf(path, sizeof path, "%s/fak-backend-%s.so", TEST_PLUGINS, name);
    if (plugins_open(&list, &(plugin_search){mock ? path : NULL, NULL, 0}, &host, &e))
        fail_msg("%s", e.message);
    plugin *p = mock ? &list.at[0] : plugins_linked_in(&list, name);
    assert_non_null(p);
    if (plugin_load(&list, p, &e)) fail_msg("%s", e.message);
    loaded = p;
}

static int unload(void **state)
{
    (void)state;
    plugins_close(&list);
    return 0;
}

/* Devices of a mock that are open at this moment. */
static int open_devices(void)
{
    const int *devices = loaded->api.get_ext(NULL, "fak-test.devices/1");
    assert_non_null(devices);
    return *devices;
}

static void open_fine(device *d, uint32_t index, const fak_setting *set, uint32_t sets)
{
    fak_error e = {0};
    if (device_open(d, loaded, index, set, sets, &e)) fail_msg("%s", e.message);
}

static void assert_refused(uint32_t index, const fak_setting *set, uint32_t sets,
                           const char *sentence)
{
    device d;
    fak_error e;
    memset(&e, 'x', sizeof e); /* nothing of the caller's memory is taken for a sentence */
    e.message[sizeof e.message - 1] = 0;
    assert_int_equal(device_open(&d, loaded, index, set, sets, &e), STATUS_REFUSED);
    assert_int_equal(e.code, STATUS_REFUSED);
    assert_string_equal(e.message, sentence);
    assert_null(d.handle);
    device_close(&d);
}

/* ---- the reference ---- */

static void reference_opens(void **state)
{
    (void)state;
    device d = {0};
    load("cpu-ref");
    device_close(&d); /* zero is fine */
    for (int twice = 0; twice < 2; twice++) {
        open_fine(&d, 0, NULL, 0);
        assert_ptr_equal(d.from, loaded);
        assert_int_equal(d.index, 0);
        assert_int_equal(d.facts.klass, FAK_REFERENCE);
        assert_int_equal(d.info.kind, FAK_CPU);
        assert_string_equal(d.info.id, "cpu:ref");
        assert_non_null(d.handle);
        device_close(&d);
        assert_null(d.handle);
    }
}

static void options_of_the_reference(void **state)
{
    (void)state;
    device d, plain;
    fak_op_entry entry;
    load("cpu-ref");
    open_fine(&plain, 0, &(fak_setting){"fused", "0"}, 1);
    open_fine(&d, 0, &(fak_setting){"fused", "1"}, 1); /* beside it */
    assert_int_equal(device_find_op(&plain, FAK_OP_FFN, &entry), -1);
    assert_int_equal(device_find_op(&d, FAK_OP_FFN, &entry), 0);
    assert_int_equal(entry.id, FAK_OP_FFN);
    assert_false(plain.facts.caps & FAK_CAP_FUSED_FFN);
    assert_true(d.facts.caps & FAK_CAP_FUSED_FFN);
    device_close(&plain);
    device_close(&d);
}

/* The option at fault is named, the backend once. */
static void unknown_option_named(void **state)
{
    (void)state;
    static const struct {
        fak_setting set[2];
        uint32_t sets;
        const char *named;
    } row[] = {
        {{{"nonsense", "1"}}, 1, "nonsense"},   {{{"fused", "2"}}, 1, "fused"},
        {{{"fused", ""}}, 1, "fused"},          {{{"fused", "11"}}, 1, "fused"},
        {{{"fused", "0"}, {"x", "y"}}, 2, "x"},
    };
    load("cpu-ref");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        device d;
        fak_error e = {0};
        assert_int_equal(device_open(&d, loaded, 0, row[i].set, row[i].sets, &e), STATUS_REFUSED);
        assert_true(!strncmp(e.message, "backend cpu-ref: ", 17));
        assert_non_null(strstr(e.message + 17, row[i].named));
        assert_null(strstr(e.message + 17, "cpu-ref"));
        device_close(&d);
    }
}

/* ---- counts and descriptions ---- */

static void index_out_of_range(void **state)
{
    (void)state;
    load("cpu-ref");
    assert_refused(1, NULL, 0, "backend cpu-ref has 1 device; there is no number 1");
    assert_refused(UINT32_MAX, NULL, 0,
                   "backend cpu-ref has 1 device; there is no number 4294967295");
    plugins_close(&list);
    load("fault-good");
    assert_refused(2, NULL, 0, "backend fault-good has 2 devices; there is no number 2");
    assert_int_equal(open_devices(), 0);
}

static void no_device_says_why(void **state)
{
    (void)state;
    static const char *const row[][2] = {
        {"fault-no-device", "backend fault-no-device has no device: absent: no such card"},
        {"fault-no-device-silent",
         "backend fault-no-device-silent has no device: it does not say why"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        fak_error e = {0};
        load(row[i][0]);
        assert_int_equal(device_count(loaded, NULL, 0, &e), 0);
        assert_string_equal(e.message, row[i][1]);
        assert_int_equal(e.code, STATUS_REFUSED);
        assert_refused(0, NULL, 0, row[i][1]);
        plugins_close(&list);
    }
}

static void devices_described(void **state)
{
    (void)state;
    fak_device_info info;
    fak_error e = {0};
    char name[64];
    load("fault-good");
    assert_int_equal(device_count(loaded, NULL, 0, &e), 2);
    for (uint32_t i = 0; i < 2; i++) {
        memset(&info, 'x', sizeof info);
        assert_int_equal(device_describe(loaded, i, NULL, 0, &info, &e), FAK_OK);
        assert_int_equal(info.struct_size, sizeof info);
        assert_int_equal(info.kind, FAK_NPU);
        assert_int_equal(info.memory_total, 1 << 20);
        assert_int_equal(info.memory_free, 0);
        assert_string_equal(info.id, i ? "uuid:1" : "uuid:0");
        memset(name, 'n', 63);
        name[63] = 0;
        assert_string_equal(info.name, name); /* the plugin had not terminated it */
        assert_string_equal(info.tier, "");
    }
}

/* ---- facts ---- */

/* Elements are 8 bytes larger than this host knows; what it does not know is not read. */
static void larger_elements_work(void **state)
{
    (void)state;
    device d;
    fak_op_entry entry;
    load("fault-good");
    open_fine(&d, 1, NULL, 0);
    assert_int_equal(open_devices(), 1);
    assert_int_equal(d.facts.struct_size, sizeof d.facts);
    assert_int_equal(d.facts.klass, FAK_APPROX);
    assert_int_equal(d.facts.caps, FAK_CAP_FUSED_ATTN | FAK_CAP_DEVICE_MEMORY);
    assert_int_equal(d.facts.numerics, FAK_ACT_F32 | FAK_DETERMINISTIC);
    assert_int_equal(d.facts.ops, 2);
    assert_int_equal(d.facts.op_stride, sizeof(fak_op_entry) + 8);
    assert_string_equal(d.info.id, "uuid:1");
    assert_int_equal(device_find_op(&d, FAK_OP_ATTENTION, &entry), 0); /* the second element */
    assert_int_equal(entry.id, FAK_OP_ATTENTION);
    assert_int_equal(entry.revision, 1);
    assert_non_null(entry.call);
    assert_int_equal(device_find_op(&d, FAK_OP_MATMUL, &entry), 0);
    assert_int_equal(entry.revision, 2);
    assert_int_equal(device_find_op(&d, FAK_OP_FFN, &entry),
                     -1); /* the backend's, not this one's */
    assert_int_equal(device_find_op(&d, FAK_OP_NONE, &entry), -1);
    device_close(&d);
    assert_int_equal(open_devices(), 0);
}

static void offers_up_to_its_revision(void **state)
{
    (void)state;
    device d;
    load("fault-good");
    open_fine(&d, 0, NULL, 0);
    for (uint32_t revision = 1; revision <= 3; revision++) {
        fak_op matmul = {.id = FAK_OP_MATMUL, .revision = revision};
        fak_op attention = {.id = FAK_OP_ATTENTION, .revision = revision};
        assert_int_equal(device_offers(&d, &matmul), revision <= 2);
        assert_int_equal(device_offers(&d, &attention), revision <= 1);
    }
    assert_int_equal(device_offers(&d, &(fak_op){.id = FAK_OP_GLU, .revision = 1}), 0);
    device_close(&d);
    device whole = {0}; /* no op table but run: every core op */
    assert_int_equal(device_offers(&whole, &(fak_op){.id = FAK_OP_GLU, .revision = 1}), 1);
    assert_int_equal(device_offers(&whole, &(fak_op){.id = FAK_OP_FFN, .revision = 1}), 0);
    assert_int_equal(device_offers(&whole, &(fak_op){.id = 999, .revision = 1}), 0);
}

static void mocks_option_named(void **state)
{
    (void)state;
    device d;
    const fak_setting set[] = {{"known", "1"}, {"unheard-of", "1"}};
    load("fault-good");
    open_fine(&d, 0, set, 1);
    device_close(&d);
    fak_error e = {0};
    assert_int_equal(device_open(&d, loaded, 0, set, 2, &e), STATUS_REFUSED);
    assert_non_null(strstr(e.message, "backend fault-good: "));
    assert_non_null(strstr(e.message, "unknown option"));
    assert_non_null(strstr(e.message, "unheard-of"));
    assert_null(d.handle);
    assert_int_equal(open_devices(), 0);
}

static const struct {
    const char *name, *why;
} faults[] = {
    {"fault-unknown-kind", "device 0 is of unknown kind 99"},
    {"fault-open-fails", "the card is full"},
    {"fault-unknown-class", "an unknown class"},
    {"fault-unknown-caps", "unknown caps or numerics"},
    {"fault-unknown-numerics", "unknown caps or numerics"},
    {"fault-more-than-backend", "an open device offers more than its backend"},
    {"fault-no-act", "no activation mode at all"},
    {"fault-device-stride", "its op table is not one"},
    {"fault-bounds", "its table of bounds is not one"},
    {"fault-unlisted-op", "an open device has an op that its backend does not list"},
    {"fault-later-revision", "an open device has an op that its backend does not list"},
    {"fault-null-call", "an op of its table has no function, and there is no run"},
    {"fault-caps-attn", "caps liar: FusedAttn and the op table disagree"},
    {"fault-attn-silent", "caps liar: FusedAttn and the op table disagree"},
    {"fault-caps-ffn", "caps liar: FusedFFN and the op table disagree"},
    {"fault-host-view", "caps liar: DeviceMemory, and yet a host view"},
    {"fault-collective", "caps liar: collectives are reserved in 1.0"},
};

static void faults_of_a_device(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char sentence[300];
        load(faults[i].name);
        snprintf(sentence, sizeof sentence, "backend %s: %s", faults[i].name, faults[i].why);
        for (int twice = 0; twice < 2; twice++) assert_refused(0, NULL, 0, sentence);
        assert_int_equal(open_devices(), 0); /* what was opened is closed again */
        plugins_close(&list);
    }
}

/* A failure without a sentence gets one of ours; nothing stays open. */
static void silent_faults_get_a_sentence(void **state)
{
    (void)state;
    static const char *const name[] = {"fault-info-silent", "fault-open-silent", "fault-no-facts"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        device d;
        fak_error e;
        char start[100];
        memset(&e, 'x', sizeof e);
        e.message[sizeof e.message - 1] = 0;
        load(name[i]);
        int32_t s = device_open(&d, loaded, 0, NULL, 0, &e);
        assert_int_equal(s, STATUS_REFUSED);
        assert_int_equal(e.code, s);
        size_t n = (size_t)snprintf(start, sizeof start, "backend %s: ", name[i]);
        if (strncmp(e.message, start, n) || strlen(e.message) < n + 10)
            fail_msg("%s says \"%s\"", name[i], e.message);
        assert_int_equal(open_devices(), 0);
        device_close(&d);
        plugins_close(&list);
    }
}

static void names_for_people(void **state)
{
    (void)state;
    static const char *const kinds[] = {"?",   "cpu",      "discrete", "integrated",
                                        "npu", "dataflow", "software", "remote"};
    for (uint32_t i = 0; i < 8; i++) assert_string_equal(device_kind_name(i), kinds[i]);
    assert_string_equal(device_kind_name(8), "?");
    assert_string_equal(device_kind_name(UINT32_MAX), "?");
    assert_string_equal(device_class_name(FAK_REFERENCE), "reference");
    assert_string_equal(device_class_name(FAK_APPROX), "approx");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, unload)
    const struct CMUnitTest tests[] = {
        TEST(reference_opens),
        TEST(options_of_the_reference),
        TEST(unknown_option_named),
        TEST(index_out_of_range),
        TEST(no_device_says_why),
        TEST(devices_described),
        TEST(larger_elements_work),
        TEST(offers_up_to_its_revision),
        TEST(mocks_option_named),
        TEST(faults_of_a_device),
        TEST(silent_faults_get_a_sentence),
        cmocka_unit_test(names_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
