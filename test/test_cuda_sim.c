/* test_cuda_sim - the emulation of plugins/cuda itself: what it must see in kernels that are wrong in one way
 * (cuda_misuse). */
#include "cuda_misuse/child.h"

/* ---- shared memory ---- */

static void shared_is_poison(void)
{
    begin("order=1");
    fill(0);
    run(KERNEL_read_static, 3, 0, 0, 0);
    read_back();
    for (int i = 0; i < 3; i++) HOLDS(host[i] == POISON);
    fill(0);
    run(KERNEL_read_dynamic, 3, 16, 0, 0);
    read_back();
    for (int i = 0; i < 3; i++) HOLDS(host[i] == POISON);
    finish();
}
SEEN(shared_is_poison, NULL)

static void within_shared(void)
{
    begin("order=1");
    run(KERNEL_beyond_static, 2, 0, 3, 0);
    run(KERNEL_beyond_dynamic, 2, 32, 7, 0);
    finish();
}
SEEN(within_shared, NULL)

static void beyond_static(void)
{
    begin("order=1");
    run(KERNEL_beyond_static, 1, 0, 4, 0);
}
SEEN(beyond_static, "kernel beyond_static, block (0, 0, 0), thread")

static void beyond_dynamic(void)
{
    begin("order=1");
    run(KERNEL_beyond_dynamic, 1, 32, 8, 0);
}
SEEN(beyond_dynamic, "a write beyond its shared memory")

static void too_much(void)
{
    begin("order=1");
    HOLDS(ask(KERNEL_count_up, 1, (48 << 10) + 1, &(probe_args){.to = card}) == CU_INVALID_VALUE);
    run(KERNEL_too_much_static, 1, 256, 0, 0);
}
SEEN(too_much, "more shared memory than there is")

/* ---- warps and barriers ---- */

static void lanes_outside_of_a_mask(void)
{
    begin("order=1");
    run(KERNEL_outside_of_mask, 1, 0, 0, 0);
    read_back();
    HOLDS(host[0] == 5);
    HOLDS(host[1] == POISON);
    finish();
}
SEEN(lanes_outside_of_a_mask, NULL)

#define DIES(name, value, says)                                                                    \
    static void name(void)                                                                         \
    {                                                                                              \
        begin("order=1");                                                                          \
        run(KERNEL_##name, 1, 0, 0, value);                                                        \
    }                                                                                              \
    SEEN(name, says)
DIES(not_in_its_mask, 0, "thread 31: a thread that is not in its own mask")
DIES(lane_that_left, 0, "waits for a lane that has left")
DIES(masks_that_differ, 0, "threads that wait for each other")
DIES(left_a_barrier, 77, "a barrier that some threads have left")

/* ---- order ---- */

static int compare_words(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The order in which `most` threads, or blocks, came; each came once. */
static void order_of(int k, unsigned blocks, uint32_t most, uint32_t *came)
{
    uint32_t sorted[THREADS];
    fill(0);
    run(k, blocks, 0, 0, 0);
    read_back();
    HOLDS(host[0] == most);
    memcpy(came, host + 1, most * 4);
    memcpy(sorted, host + 1, most * 4);
    qsort(sorted, most, 4, compare_words);
    for (uint32_t i = 0; i < most; i++) HOLDS(sorted[i] == i);
}

static void orders(void)
{
    static const char *const setting[] = {"order=0", "order=1", "order=2", "order=3"};
    static uint32_t came[4][THREADS], blocks[4][9];
    for (int i = 0; i < 4; i++) {
        begin(setting[i]);
        order_of(KERNEL_turns, 1, THREADS, came[i]);
        order_of(KERNEL_block_turns, 9, 9, blocks[i]);
        finish();
        for (int j = 0; j < i; j++) HOLDS(memcmp(came[i], came[j], sizeof *came));
    }
    HOLDS(came[0][0] == 0 && came[0][THREADS - 1] == THREADS - 1); /* 0 proves nothing */
    HOLDS(blocks[0][0] == 0 && blocks[1][0] == 8 && blocks[2][0] == 0);
}
SEEN(orders, NULL)

/* ---- memory of the card ---- */

static void fresh_memory_is_poison(void)
{
    begin("order=1");
    memset(host, 0, WORDS * 4);
    read_back();
    for (int i = 0; i < WORDS; i++) HOLDS(host[i] == POISON);
    run(KERNEL_write_word, 1, 0, 0, 7);
    run(KERNEL_write_word, 1, 0, WORDS - 1, 7);
    finish();
}
SEEN(fresh_memory_is_poison, NULL)

static void write_before(void)
{
    begin("order=1");
    run(KERNEL_write_word, 1, 0, -1, 7);
}
SEEN(write_before, "kernel write_word, block (0, 0, 0), thread")

static void write_beyond(void)
{
    begin("order=1");
    run(KERNEL_write_word, 1, 0, WORDS, 7);
}
SEEN(write_beyond, "a write beyond what was allocated")

static void copies_stay_within(void)
{
    begin("order=1");
    HOLDS(cuMemcpyHtoDAsync_v2(card + 4, host, WORDS * 4, stream) == CU_INVALID_VALUE);
    HOLDS(cuMemcpyDtoHAsync_v2(host, card + 4, WORDS * 4, stream) == CU_INVALID_VALUE);
    HOLDS(cuMemcpyDtoHAsync_v2(host + 1, card, WORDS * 4, stream) == CU_INVALID_VALUE);
    OK(cuMemcpyDtoHAsync_v2(host + 1, card + 4, WORDS * 4 - 4, stream));
    finish();
}
SEEN(copies_stay_within, NULL)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(shared_is_poison), CASE(within_shared),  CASE(beyond_static),
        CASE(beyond_dynamic),   CASE(too_much),       CASE(lanes_outside_of_a_mask),
        CASE(not_in_its_mask),  CASE(lane_that_left), CASE(masks_that_differ),
        CASE(left_a_barrier),   CASE(orders),         CASE(fresh_memory_is_poison),
        CASE(write_before),     CASE(write_beyond),   CASE(copies_stay_within),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
