/* test_capacity - what a program needs, from its reports, against what there is. */
#include "../core/capacity.h"
#include "../core/memory.h"
#include "../core/port.h"
#include "engine.h"

#include <sys/resource.h>
#include <unistd.h>

enum { SLOTS = 4 };

static void open_dry(engine *g, const char *file, const char *options, uint32_t slots,
                     uint32_t flags)
{
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    fak_error e = {0};
    limits.slots = slots;
    limits.kv_tokens = slots * limits.context;
    memset(g, 0, sizeof *g);
    engine_begin(g, file, options ? "refuser" : "cpu-ref", options);
    if (program_prepare(&g->program, &g->backend.dev, &g->backend.host, &g->tiny.model, &limits,
                        flags | FAK_DRY_RUN, &e))
        fail_msg("%s", e.message);
}

static uint64_t lendable(const model *m, int lent)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->weights.count; i++)
        if (weights_lendable(&m->weights.at[i]) == lent) bytes += weights_bytes(&m->weights.at[i]);
    return bytes;
}

static void test_parts(void **state)
{
    engine g;
    (void)state;
    open_dry(&g, "tiny-q8_0.gguf", NULL, SLOTS, 0);
    capacity c = capacity_of_host(&g.program);
    const model *m = &g.tiny.model;
    assert_true(c.lent_bytes == lendable(m, 1) && c.weight_bytes == lendable(m, 0));
    assert_true(c.weight_bytes > 0 && c.lent_bytes > c.weight_bytes); /* q and k are un-permuted */
    uint64_t cell = 2ull * m->layers * m->kv_heads * m->head_dim * 4;
    assert_true(c.kv_bytes == cell * SLOTS * g.program.limits.context);
    assert_true(c.kv_position_bytes == cell * SLOTS);
    assert_true(c.needed == c.weight_bytes + c.kv_bytes + c.other_bytes);
    assert_int_equal(c.context, g.program.limits.context);
    assert_int_equal(c.fits, c.context);
    assert_true(c.there > 0 && c.who);
    assert_true(capacity_of_device(&g.program).needed == 0); /* it computes in host memory */
    engine_close(&g);
}

static void test_evictable_needs_more(void **state)
{
    engine g, h;
    (void)state;
    open_dry(&g, "tiny-f32.gguf", NULL, SLOTS, 0);
    open_dry(&h, "tiny-f32.gguf", NULL, SLOTS, FAK_EVICTABLE);
    assert_true(2 * capacity_of_host(&h.program).kv_bytes ==
                3 * capacity_of_host(&g.program).kv_bytes);
    engine_close(&g);
    engine_close(&h);
}

/* A device with its own memory: what it leaves is needed in the host's; the same kv in all. */
static void test_holes_are_counted(void **state)
{
    engine g, h;
    (void)state;
    open_dry(&g, "tiny-f32.gguf", NULL, SLOTS, 0);
    open_dry(&h, "tiny-f32.gguf", "refuse=att-layer1", SLOTS, 0);
    assert_true(h.program.holes > 0);
    capacity whole = capacity_of_host(&g.program);
    capacity host = capacity_of_host(&h.program), own = capacity_of_device(&h.program);
    assert_true(host.kv_bytes > 0 && own.kv_bytes > 0);
    assert_true(whole.kv_bytes == host.kv_bytes + own.kv_bytes);
    assert_int_equal(own.lent_bytes, 0); /* nothing is lent to another memory */
    assert_string_equal(own.who, "the device");
    engine_close(&g);
    engine_close(&h);
}

/* With little address space a dry run of many slots is refused, with both numbers and what fits. */
static void test_refused(void **state)
{
    engine g;
    fak_error e = {0};
    struct rlimit old, tight;
    (void)state;
    open_dry(&g, "tiny-f32.gguf", NULL, 1u << 20, 0);
    capacity c = capacity_of_host(&g.program);
    assert_true(c.needed > (uint64_t)10 << 30);
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    tight = old;
    memory_room before = memory_look("");
    FILE *statm = fopen("/proc/self/statm", "r");
    unsigned long long pages = 0;
    assert_true(statm && fscanf(statm, "%llu", &pages) == 1);
    fclose(statm);
    tight.rlim_cur = pages * (uint64_t)sysconf(_SC_PAGESIZE) + ((rlim_t)4 << 30);
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    if (port_address_limit() != tight.rlim_cur) { /* as under qemu-user */
        engine_close(&g);
        print_message("limits are taken and ignored here\n");
        skip();
    }
    int32_t s = capacity_check(&g.program, &e);
    capacity now = capacity_of_host(&g.program);
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    assert_true(before.bytes > (uint64_t)4 << 30); /* else this machine is too small to tell */
    assert_int_equal(s, STATUS_REFUSED);
    assert_message(&e, "a context of 40 needs ");
    assert_message(&e,
                   "its address space limit has 4.3 GB left; the largest context that fits is ");
    assert_true(now.fits > 0 && now.fits < 40);
    uint64_t fixed = now.needed - now.kv_bytes;
    assert_true(fixed + now.fits * now.kv_position_bytes <= now.there);
    assert_true(fixed + (now.fits + 1) * now.kv_position_bytes > now.there);
    engine_close(&g);
}

static void test_text(void **state)
{
    char text[16];
    (void)state;
    assert_string_equal(capacity_text(0, text), "0 B");
    assert_string_equal(capacity_text(999, text), "999 B");
    assert_string_equal(capacity_text(1000, text), "1.0 kB");
    assert_string_equal(capacity_text(999960, text), "1.0 MB");
    assert_string_equal(capacity_text(UINT64_MAX, text), "18.4 EB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_evictable_needs_more),
        cmocka_unit_test(test_holes_are_counted),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
