/* test_vulkan_pages - pages of kv from inside: what a call has changed is taken back whole, and no call
 * changes more than there is room to remember. */
#include "../plugins/vulkan/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SLOTS = 3, CONTEXT = 70, SLOT_PAGES = 5, COUNT = 9, TURNS = 20000 };

int32_t vk_fail(fak_error *e, int32_t code, uint32_t index, const char *format, ...)
{
    (void)format;
    *e = (fak_error){.code = code, .index = index};
    return code;
}

typedef struct tables {
    uint32_t length[SLOTS], page[SLOTS * SLOT_PAGES], refs[COUNT];
} tables;

static tables now(const kv_pages *g)
{
    tables t;
    memcpy(t.length, g->length, sizeof t.length);
    memcpy(t.page, g->page, sizeof t.page);
    memcpy(t.refs, g->refs, sizeof t.refs);
    return t;
}

/* A page is held by as many slots as its count says. */
static void check_counts(const kv_pages *g)
{
    uint32_t refs[COUNT] = {0};
    for (uint32_t s = 0; s < SLOTS; s++)
        for (uint32_t i = 0; i < vk_pages_of(g->length[s]); i++) refs[*vk_page_at(g, s, i)]++;
    assert_memory_equal(refs, g->refs, sizeof refs);
}

/* As kv_clone does it. */
static void share(kv_pages *g, uint32_t to, uint32_t from, uint32_t len)
{
    vk_pages_remember(g);
    for (uint32_t i = 0; i < vk_pages_of(len); i++) g->refs[*vk_page_at(g, from, i)]++;
    vk_pages_shorten(g, to, 0);
    memcpy(vk_page_at(g, to, 0), vk_page_at(g, from, 0), SLOT_PAGES * 4ul);
    g->length[to] = len;
}

static uint32_t below(uint32_t n)
{
    return (uint32_t)rand() % n;
}

/* All that a step may do to every slot: shorter, longer, alone on its pages. */
static int change_all(kv_pages *g)
{
    uint32_t first[SLOTS];
    vk_pages_remember(g);
    for (uint32_t s = 0; s < SLOTS; s++) {
        first[s] = below(g->length[s] < CONTEXT ? g->length[s] + 1 : CONTEXT);
        vk_pages_shorten(g, s, first[s]);
    }
    for (uint32_t s = 0; s < SLOTS; s++)
        if (vk_pages_own(g, s, first[s], first[s] + below(CONTEXT - first[s]) + 1)) return -1;
    return 0;
}

static void test_taken_back(void **state)
{
    kv_pages g = {0};
    fak_error e;
    uint32_t full = 0, copied = 0;
    (void)state;
    srand(3);
    assert_int_equal(vk_pages_make(&g, SLOTS, CONTEXT, COUNT, &e), FAK_OK);
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t from = below(SLOTS);
        if (!below(3)) share(&g, (from + 1) % SLOTS, from, below(g.length[from] + 1));
        tables before = now(&g);
        int rc = change_all(&g);
        copied += g.copies;
        if (rc) {
            full++;
            assert_int_equal(vk_pages_undo(&g, 7, 1, &e), FAK_E_KV_FULL);
            assert_int_equal(e.index, 7);
        } else if (below(2)) {
            vk_pages_restore(&g);
        } else {
            before = now(&g);
        }
        tables after = now(&g);
        assert_memory_equal(after.length, before.length, sizeof after.length);
        assert_memory_equal(after.refs, before.refs, sizeof after.refs);
        assert_memory_equal(after.page, before.page, sizeof after.page);
        check_counts(&g);
    }
    assert_true(full > TURNS / 100 && copied > TURNS / 100); /* both were met */
    vk_pages_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_taken_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
