/* UTF-8: text_stream gives the same text however its bytes are portioned out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../core/text.h"

#define R "\xef\xbf\xbd" /* U+FFFD */

static const struct {
    const char *in, *out;
} streams[] = {
    {"", ""},
    {"plain", "plain"},
    {"\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80", "\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80"},
    {"\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf", /* the borders of what is valid */
     "\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf"},
    {"\xe0\xa0\x80\xf0\x90\x80\x80\xc2\x80", "\xe0\xa0\x80\xf0\x90\x80\x80\xc2\x80"},
    {"\x80", R},
    {"a\x80\xbf"
     "b",
     "a" R R "b"},
    {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", R R R R R R R R "A"},   /* Unicode, table 3-8 */
    {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", R R R R R R R R "A"},   /* table 3-9 */
    {"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", R R R R R "A" R R "B"}, /* table 3-10 */
    {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", R R R R "A"},           /* table 3-11 */
    {"\xf0\x9f\x98", R},
    {"\xf0\x9f\x98x", R "x"},
    {"\xf0\x9f\xf0\x9f\x98\x80", R "\xf0\x9f\x98\x80"},
    {"\xe6\xc3\xa9", R "\xc3\xa9"},
    {"\xe6\x97", R},
    {"\xc3", R},
    {"\xf5\x80", R R},
    {"\xf4\x90\x80\x80", R R R R},
    {"\xf8\x88\x80\x80\x80", R R R R R},
};

static void assert_streams(const char *in, size_t first, size_t second, const char *expected)
{
    text_stream s = {0};
    size_t bytes = strlen(in), cut[] = {0, first, second, bytes}, written = 0;
    char out[256];
    for (size_t i = 0; i < 3; i++) {
        size_t part = cut[i + 1] - cut[i];
        char *to = malloc(3 * (part + 4)); /* of exactly the size that is asked for */
        assert_non_null(to);
        size_t n = text_stream_push(&s, in + cut[i], part, to);
        for (size_t j = 0; j < n;) { /* each push writes whole code points */
            enum text_kind kind;
            j += text_part(to + j, n - j, &kind);
            assert_int_equal(kind, TEXT_WHOLE);
        }
        memcpy(out + written, to, n);
        written += n;
        free(to);
    }
    written += text_stream_finish(&s, out + written);
    assert_int_equal(text_stream_finish(&s, out), 0);
    out[written] = 0;
    assert_string_equal(out, expected);
}

static void streams_alike_however_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        size_t bytes = strlen(streams[i].in);
        for (size_t a = 0; a <= bytes; a++)
            for (size_t b = a; b <= bytes; b++) assert_streams(streams[i].in, a, b, streams[i].out);
    }
}

static void shows_text_in_sentences(void **state)
{
    (void)state;
    char out[TEXT_SHOW_ROOM];
    assert_string_equal(text_show(out,
                                  "a\n\x7f\xff"
                                  "b\0c",
                                  7),
                        "a??" R "b?c");
    char text[100];
    memset(text, 'a', sizeof text);
    assert_int_equal(strlen(text_show(out, text, sizeof text)), TEXT_SHOWN);
    memset(text, 0xff, sizeof text);
    assert_int_equal(strlen(text_show(out, text, sizeof text)), 3 * TEXT_SHOWN);
    memcpy(text + TEXT_SHOWN - 1, "\xc3\xa9", 2); /* not cut in two */
    assert_int_equal(strlen(text_show(out, text, sizeof text)), 3 * (TEXT_SHOWN - 1));
    assert_string_equal(text_show(out, NULL, 0), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_alike_however_cut),
        cmocka_unit_test(shows_text_in_sentences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
