/* The merge engine against a plain one that looks for the best pair again after each merge. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "../core/bpe.h"

enum { MERGES_MAX = 60, SYMBOLS_MAX = 80 };

typedef struct merge {
    uint32_t left, right, result;
} merge;

static size_t merge_plainly(const merge *m, size_t merges, uint32_t *id, size_t count)
{
    for (;;) {
        size_t best = merges, at = 0;
        for (size_t i = 0; i + 1 < count; i++)
            for (size_t r = 0; r < best; r++)
                if (m[r].left == id[i] && m[r].right == id[i + 1]) best = r, at = i;
        if (best == merges) return count;
        id[at] = m[best].result;
        memmove(id + at + 1, id + at + 2, (count - at - 2) * sizeof *id);
        count--;
    }
}

static uint32_t below(uint32_t limit)
{
    return (uint32_t)rand() % limit;
}

/* Few symbols, so that pairs overlap and occur often; now and then a pair twice, or a result that
 * is an old symbol. */
static void merges_as_a_plain_engine(void **state)
{
    (void)state;
    const char *set = getenv("FAK_TEST_SEED");
    unsigned seed = set ? (unsigned)strtoul(set, NULL, 10) : (unsigned)time(NULL);
    print_message("FAK_TEST_SEED=%u\n", seed);
    srand(seed);
    bpe_work w = {0};
    for (int round = 0; round < 20000; round++) {
        bpe b = {0};
        merge m[MERGES_MAX];
        uint32_t merges = below(MERGES_MAX), first = 1 + below(4), symbols = first;
        assert_int_equal(bpe_create(&b, merges), 0);
        for (uint32_t r = 0; r < merges; r++) {
            uint32_t result = below(8) ? symbols : below(symbols);
            m[r] = (merge){below(symbols), below(symbols), result};
            symbols += result == symbols;
            bpe_add(&b, m[r].left, m[r].right, m[r].result);
        }
        uint32_t plain[SYMBOLS_MAX];
        size_t count = below(SYMBOLS_MAX);
        assert_int_equal(bpe_reserve(&w, count), 0);
        for (size_t i = 0; i < count; i++) plain[i] = w.id[i] = below(first);
        size_t left = bpe_run(&b, &w, count);
        assert_int_equal(left, merge_plainly(m, merges, plain, count));
        if (left > 0) assert_memory_equal(w.id, plain, left * sizeof *plain);
        bpe_destroy(&b);
    }
    bpe_work_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(merges_as_a_plain_engine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
