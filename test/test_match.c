/* A match_set against a plain search: at each place of the text the longest string. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "../core/match.h"

enum { STRINGS_MAX = 12, TEXT_MAX = 60 };

typedef struct string {
    char data[8];
    size_t bytes;
} string;

static uint32_t find_plainly(const string *s, size_t strings, const char *text, size_t bytes)
{
    uint32_t best = MATCH_NONE;
    for (uint32_t i = 0; i < strings; i++)
        if (s[i].bytes > 0 && s[i].bytes <= bytes && memcmp(s[i].data, text, s[i].bytes) == 0 &&
            (best == MATCH_NONE || s[i].bytes > s[best].bytes))
            best = i;
    return best;
}

/* Two or three letters, so that strings begin, end and hold one another, and occur twice. */
static void finds_as_a_plain_search(void **state)
{
    (void)state;
    const char *set = getenv("FAK_TEST_SEED");
    unsigned seed = set ? (unsigned)strtoul(set, NULL, 10) : (unsigned)time(NULL);
    print_message("FAK_TEST_SEED=%u\n", seed);
    srand(seed);
    for (int round = 0; round < 20000; round++) {
        match_set m = {0};
        string s[STRINGS_MAX];
        char text[TEXT_MAX];
        int letters = 2 + rand() % 2;
        size_t strings = (size_t)rand() % STRINGS_MAX, bytes = (size_t)rand() % TEXT_MAX;
        for (uint32_t i = 0; i < strings; i++) {
            s[i].bytes = (size_t)rand() % (sizeof s[i].data + 1);
            for (size_t j = 0; j < s[i].bytes; j++) s[i].data[j] = (char)(0xfe + rand() % letters);
            assert_int_equal(match_add(&m, s[i].data, s[i].bytes, i), 0);
        }
        assert_int_equal(match_link(&m), 0);
        for (size_t i = 0; i < bytes; i++) text[i] = (char)(0xfe + rand() % letters);
        uint32_t at = 0;
        for (size_t i = bytes; i-- > 0 && m.states > 0;) {
            at = match_step(&m, at, text[i]);
            assert_int_equal(m.state[at].longest, find_plainly(s, strings, text + i, bytes - i));
        }
        match_destroy(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_as_a_plain_search)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
