/* status: an error is a code and one sentence that always fits and is always UTF-8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../core/status.h"

enum { MOST = sizeof((fak_error *)0)->message - 1 };

static void assert_zero_after(const fak_error *e)
{
    for (size_t i = strlen(e->message); i < sizeof e->message; i++)
        assert_int_equal(e->message[i], 0);
}

static void code_index_and_sentence(void **state)
{
    (void)state;
    fak_error e;
    memset(&e, 'x', sizeof e);
    assert_int_equal(MOST, 243);
    assert_int_equal(status_set(&e, STATUS_REFUSED, "%s is %d", "a", 5), STATUS_REFUSED);
    assert_int_equal(e.code, STATUS_REFUSED);
    assert_int_equal(e.native, 0);
    assert_int_equal(e.index, FAK_NO_INDEX);
    assert_string_equal(e.message, "a is 5");
    assert_zero_after(&e); /* nothing of what was there before */
    assert_int_equal(status_set(&e, FAK_E_STEP, "short"), FAK_E_STEP);
    assert_string_equal(e.message, "short");
    assert_int_equal(status_set(&e, FAK_E_LOST, "%s", ""), FAK_E_LOST);
    assert_string_equal(e.message, "");
}

static void memory_names_what_and_how_much(void **state)
{
    (void)state;
    fak_error e;
    assert_int_equal(status_memory(&e, "the text", 12345678901234567890ull), FAK_E_MEMORY);
    assert_int_equal(e.code, FAK_E_MEMORY);
    assert_int_equal(e.index, FAK_NO_INDEX);
    assert_string_equal(e.message, "not enough memory for the text: 12345678901234567890 bytes");
}

static void long_sentences_are_cut(void **state)
{
    (void)state;
    char text[MOST + 3];
    for (int n = MOST - 2; n <= MOST + 2; n++) {
        fak_error e;
        memset(&e, 'x', sizeof e);
        memset(text, 'a', sizeof text);
        text[n] = 0;
        assert_int_equal(status_set(&e, -1, "%s", text), -1);
        assert_int_equal(strlen(e.message), n < MOST ? n : MOST);
        assert_int_equal(strspn(e.message, "a"), n < MOST ? n : MOST);
        assert_zero_after(&e);
    }
}

/* The ABI promises UTF-8: a sequence that does not fit is left out whole. */
static void never_cut_inside_a_character(void **state)
{
    (void)state;
    static const char *const character[] = {"\xc3\xa9", "\xe6\x97\xa5", "\xf0\x9f\x98\x80"};
    for (size_t c = 0; c < 3; c++)
        for (size_t before = 0; before < 5; before++) {
            size_t bytes = c + 2;
            char text[2 * MOST] = "";
            fak_error e;
            for (size_t i = 0; i < before; i++) strcat(text, "a");
            while (strlen(text) <= MOST) strcat(text, character[c]);
            status_set(&e, -1, "%s", text);
            size_t n = strlen(e.message);
            assert_in_range(n, MOST - bytes + 1, MOST);
            assert_int_equal((n - before) % bytes, 0);
            assert_memory_equal(e.message, text, n);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(code_index_and_sentence),
        cmocka_unit_test(memory_names_what_and_how_much),
        cmocka_unit_test(long_sentences_are_cut),
        cmocka_unit_test(never_cut_inside_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
