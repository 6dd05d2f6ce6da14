/* args: what a command line fills in, and the sentence for each way of being wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../core/args.h"

static struct {
    int flag, other;
    const char *text, *choice;
    uint32_t number, any;
    float real;
    arg_list list;
    arg_numbers numbers;
} out;

static const arg table[] = {
    {'x', "flag", ARG_FLAG, NULL, "a flag", &out.flag, 0, 0, NULL},
    {0, "other", ARG_FLAG, NULL, "a flag without a letter", &out.other, 0, 0, NULL},
    {'t', "text", ARG_TEXT, "TEXT", "any text", &out.text, 0, 0, NULL},
    {'n', "number", ARG_NUMBER, "N", "a number", &out.number, 1, 128, NULL},
    {0, "any", ARG_NUMBER, "N", "any number", &out.any, 0, UINT32_MAX, NULL},
    {'r', "real", ARG_REAL, "R", "a real", &out.real, 0, 2, NULL},
    {0, "only", ARG_REAL, "R", "a real with one value", &out.real, 0, 0, NULL},
    {'c', "choice", ARG_CHOICE, "KIND", "a choice", &out.choice, 0, 0, "file|f32|f16|q4_0"},
    {'o', "option", ARG_LIST, "NAME=VALUE", "a list", &out.list, 0, 0, NULL},
    {'s', "sizes", ARG_NUMBERS, "N,N", "numbers", &out.numbers, 1, 256, NULL},
};
static const args line = {.usage = "usage: fakrun try [options] MODEL",
                          .about = "Tries.",
                          .examples = "  fakrun try -x m\n",
                          .table = table,
                          .count = sizeof table / sizeof *table,
                          .operands = 1};

enum { WORDS = 80 };
#define Z40 "0000000000000000000000000000000000000000"

/* Parses words that are parted by one space; "''" is an empty word. */
static int32_t parse(const args *a, const char *words, const char **operand, fak_error *e)
{
    static char text[8192];
    char *argv[WORDS + 2] = {"fakrun"};
    int argc = 1;
    memset(&out, 0, sizeof out);
    memset(e, 0, sizeof *e);
    assert_in_range(strlen(words), 0, sizeof text - 1);
    strcpy(text, words);
    for (char *at = strtok(text, " "); at; at = strtok(NULL, " ")) {
        assert_in_range(argc, 1, WORDS);
        argv[argc++] = strcmp(at, "''") ? at : "";
    }
    return args_parse(a, argc, argv, operand, e);
}

static void assert_parsed(const char *words)
{
    const char *operand = NULL;
    fak_error e;
    int32_t s = parse(&line, words, &operand, &e);
    if (s) fail_msg("%s: %d %s", words, s, e.message);
    assert_string_equal(operand, "m");
}

/* ---- what is taken ---- */

static void values_are_filled_in(void **state)
{
    (void)state;
    assert_parsed("m");
    assert_int_equal(out.flag + out.other, 0);
    assert_null(out.text);
    assert_parsed("-x m");
    assert_int_equal(out.flag, 1);
    assert_int_equal(out.other, 0);
    assert_parsed("m -x --other");
    assert_int_equal(out.flag + out.other, 2);
    assert_parsed("-t a --text b m"); /* the last counts */
    assert_string_equal(out.text, "b");
    assert_parsed("--text=a=b m");
    assert_string_equal(out.text, "a=b");
    assert_parsed("-ta m");
    assert_string_equal(out.text, "a");
    assert_parsed("-t -x m"); /* what follows is the text, whatever it looks like */
    assert_string_equal(out.text, "-x");
    assert_int_equal(out.flag, 0);
    assert_parsed("-t '' m");
    assert_string_equal(out.text, "");
    assert_parsed("-xtx m");
    assert_string_equal(out.text, "x");
    assert_int_equal(out.flag, 1);
    assert_parsed("-x -- m");
    assert_int_equal(out.flag, 1);
}

static void numbers_within_their_range(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        uint32_t number, any;
    } row[] = {
        {"-n 1 m", 1, 0},         {"-n 128 m", 128, 0}, {"-n 007 m", 7, 0},
        {"--number=64 m", 64, 0}, {"--any 0 m", 0, 0},  {"--any 4294967295 m", 0, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_parsed(row[i].words);
        assert_int_equal(out.number, row[i].number);
        assert_int_equal(out.any, row[i].any);
    }
    assert_parsed("-r 0.25 m");
    assert_true(out.real == 0.25f);
    assert_parsed("-r 2 m");
    assert_true(out.real == 2.0f);
}

static void lists_of_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        uint32_t count, first, last;
    } row[] = {{"-s 1 m", 1, 1, 1},
               {"--sizes=16,64,256 m", 3, 16, 256},
               {"-s 1,2 -s 7 m", 1, 7, 7},   /* the last counts, whole */
               {"-s 1," Z40 "2 m", 2, 1, 2}, /* whole, however long */
               {"-s 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16 m", 16, 1, 16}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_parsed(row[i].words);
        assert_int_equal(out.numbers.count, row[i].count);
        assert_int_equal(out.numbers.at[0], row[i].first);
        assert_int_equal(out.numbers.at[row[i].count - 1], row[i].last);
    }
    assert_parsed("-s 16,64,256 m");
    assert_int_equal(out.numbers.at[1], 64);
}

static void choices_and_lists(void **state)
{
    (void)state;
    static const char *const word[] = {"file", "f32", "f16", "q4_0"};
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
        char words[32];
        snprintf(words, sizeof words, "-c %s m", word[i]);
        assert_parsed(words);
        assert_string_equal(out.choice, word[i]);
    }
    assert_parsed("-o a=1 m -o b=2 --option=c=3");
    assert_int_equal(out.list.count, 3);
    assert_string_equal(out.list.at[0], "a=1");
    assert_string_equal(out.list.at[1], "b=2");
    assert_string_equal(out.list.at[2], "c=3");
}

/* ---- what is refused ---- */

static const struct {
    const char *words, *sentence;
} wrong[] = {
    {"-n 0 m", "--number is 0; it takes 1 to 128"},
    {"-n 129 m", "--number is 129; it takes 1 to 128"},
    {"-n -1 m", "--number is -1; it takes 1 to 128"},
    {"-n 99999999999 m", "--number is 99999999999; it takes 1 to 128"},
    {"-n 4294967297 m", "--number is 4294967297; it takes 1 to 128"}, /* 1 modulo 2^32 */
    {"-n 18446744073709551617 m", "--number is 18446744073709551617; it takes 1 to 128"},
    {"-n -99999999999999999999 m", "--number is -99999999999999999999; it takes 1 to 128"},
    {"--any 4294967296 m", "--any is 4294967296; it takes 0 to 4294967295"},
    {"-n abc m", "--number takes a number, not \"abc\""},
    {"-n 1x m", "--number takes a number, not \"1x\""},
    {"-n 1.5 m", "--number takes a number, not \"1.5\""},
    {"-n 1e2 m", "--number takes a number, not \"1e2\""},
    {"-n 0x10 m", "--number takes a number, not \"0x10\""},
    {"-n '' m", "--number takes a number, not \"\""},
    {"-s 1,0,2 m", "--sizes is 0; it takes 1 to 256"},
    {"-s 1,257 m", "--sizes is 257; it takes 1 to 256"},
    {"-s 1,,2 m", "--sizes takes a number, not \"\""},
    {"-s 1,2, m", "--sizes takes a number, not \"\""},
    {"-s ,1 m", "--sizes takes a number, not \"\""},
    {"-s '' m", "--sizes takes a number, not \"\""},
    {"-s 1;2 m", "--sizes takes a number, not \"1;2\""},
    {"-s 99999999999999999999999999,1 m",
     "--sizes is 99999999999999999999999999; it takes 1 to 256"},
    {"-s 1," Z40 Z40 Z40 Z40 "2 m", "--sizes takes a number, not \"" Z40 Z40 "...\""},
    {"-s 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17 m", "--sizes takes at most 16 numbers"},
    {"m -s", "--sizes needs a N,N"},
    {"-r 2.5 m", "--real is 2.5; it takes 0 to 2"},
    {"-r -1 m", "--real is -1; it takes 0 to 2"},
    {"-r inf m", "--real is inf; it takes 0 to 2"},
    {"-r nan m", "--real is nan; it takes 0 to 2"},
    {"-r 1e99 m", "--real is 1e99; it takes 0 to 2"},
    {"-r 0,5 m", "--real takes a number, not \"0,5\""},
    {"-r x m", "--real takes a number, not \"x\""},
    {"-r '' m", "--real takes a number, not \"\""},
    {"--only 1 m", "--only is 1; it takes only 0"},
    {"-c f64 m", "--choice is \"f64\"; it takes file|f32|f16|q4_0"},
    {"-c f m", "--choice is \"f\"; it takes file|f32|f16|q4_0"},
    {"-c f3 m", "--choice is \"f3\"; it takes file|f32|f16|q4_0"},
    {"-c f322 m", "--choice is \"f322\"; it takes file|f32|f16|q4_0"},
    {"-c F32 m", "--choice is \"F32\"; it takes file|f32|f16|q4_0"},
    {"-c 4_0 m", "--choice is \"4_0\"; it takes file|f32|f16|q4_0"},
    {"-c '' m", "--choice is \"\"; it takes file|f32|f16|q4_0"},
    {"-c f32|f16 m", "--choice is \"f32|f16\"; it takes file|f32|f16|q4_0"},
    {"-c file|f32|f16|q4_0 m", "--choice is \"file|f32|f16|q4_0\"; it takes file|f32|f16|q4_0"},
    {"-c |f32 m", "--choice is \"|f32\"; it takes file|f32|f16|q4_0"},
    {"m -n", "--number needs a N"},
    {"m --any", "--any needs a N"},
    {"m --choice", "--choice needs a KIND"},
    {"m -xo", "--option needs a NAME=VALUE"},
    {"--bogus m", "unknown option --bogus; see --help"},
    {"m --bogus=1", "unknown option --bogus=1; see --help"},
    {"-z m", "unknown option -z; see --help"},
    {"m -z", "unknown option -z; see --help"},
    {"-xz m", "unknown option -z; see --help"}, /* in a cluster: not the word before it */
    {"-zx m", "unknown option -z; see --help"},
    {"m -zzz", "unknown option -z; see --help"},
    {"--flag=1 m", "--flag takes no value"},
    {"a b", "unexpected word \"b\"; see --help"},
    {"a -x b c", "unexpected word \"b\"; see --help"},
    {"", "a MODEL is missing; usage: fakrun try [options] MODEL"},
    {"-x", "a MODEL is missing; usage: fakrun try [options] MODEL"},
};

static void refused_with_a_sentence(void **state)
{
    (void)state;
    uint32_t bad = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *operand = NULL;
        fak_error e;
        int32_t s = parse(&line, wrong[i].words, &operand, &e);
        if (s == STATUS_REFUSED && e.code == s && !strcmp(e.message, wrong[i].sentence)) continue;
        print_error("%s: %d \"%s\", not \"%s\"\n", wrong[i].words, s, e.message, wrong[i].sentence);
        bad++;
    }
    assert_int_equal(bad, 0);
}

static void a_list_that_is_full(void **state)
{
    (void)state;
    enum { ROOM = sizeof out.list.at / sizeof *out.list.at };
    const char *operand = NULL;
    char words[600] = "m";
    fak_error e;
    for (int i = 0; i < ROOM; i++) strcat(words, " -oa=1");
    assert_parsed(words);
    assert_int_equal(out.list.count, ROOM);
    strcat(words, " -oa=1");
    assert_int_equal(parse(&line, words, &operand, &e), STATUS_REFUSED);
    assert_string_equal(e.message, "--option is given more than 32 times");
    assert_int_equal(out.list.count, ROOM);
}

static void long_values_are_cut_in_the_sentence(void **state)
{
    (void)state;
    const char *operand = NULL;
    char words[2010] = "-n ";
    fak_error e;
    memset(words + 3, 'x', 2000);
    strcpy(words + 2003, " m");
    assert_int_equal(parse(&line, words, &operand, &e), STATUS_REFUSED);
    assert_int_equal(strlen(e.message), sizeof e.message - 1);
    assert_true(!strncmp(e.message, "--number takes a number, not \"xxx", 32));
}

/* ---- operands and help ---- */

static void operands_in_order(void **state)
{
    (void)state;
    const char *operand[3] = {NULL, NULL, NULL};
    fak_error e;
    args two = line, none = line;
    two.operands = 2;
    none.operands = 0;
    assert_int_equal(parse(&two, "a -x b", operand, &e), FAK_OK);
    assert_string_equal(operand[0], "a");
    assert_string_equal(operand[1], "b");
    assert_null(operand[2]);
    assert_int_equal(parse(&two, "-- -x --flag", operand, &e), FAK_OK);
    assert_string_equal(operand[0], "-x");
    assert_string_equal(operand[1], "--flag");
    assert_int_equal(out.flag, 0);
    assert_int_equal(parse(&none, "-x", NULL, &e), FAK_OK);
    assert_int_equal(parse(&none, "word", NULL, &e), STATUS_REFUSED);
    assert_string_equal(e.message, "unexpected word \"word\"; see --help");
    assert_int_equal(parse(&line, "-", operand, &e), FAK_OK); /* a word, no option */
    assert_string_equal(operand[0], "-");
}

static void help_wins(void **state)
{
    (void)state;
    const char *operand = NULL;
    fak_error e;
    assert_int_equal(parse(&line, "--help", &operand, &e), 1);
    assert_int_equal(parse(&line, "-h", &operand, &e), 1);
    assert_int_equal(parse(&line, "a b c --help", &operand, &e), 1);
    assert_int_equal(parse(&line, "-x -h --bogus", &operand, &e), 1);
    assert_int_equal(parse(&line, "-t --help m", &operand, &e), FAK_OK); /* a value */
    assert_string_equal(out.text, "--help");
}

static void help_has_all_of_it(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    args_help(&line, f);
    fclose(f);
    assert_true(!strncmp(text, "usage: fakrun try", 17));
    assert_non_null(strstr(text, "\nTries.\n"));
    assert_non_null(strstr(text, "\n  -x, --flag "));
    assert_non_null(strstr(text, "\n      --other "));
    assert_non_null(strstr(text, "\n  -n, --number N "));
    assert_non_null(strstr(text, "\n  -h, --help "));
    assert_non_null(strstr(text, "\nexamples:\n  fakrun try -x m\n"));
    for (uint32_t i = 0; i < line.count; i++) assert_non_null(strstr(text, table[i].help));
    for (char *at = text, *end; *at;
         at = end + 1) { /* no line is wider than a terminal should be */
        end = strchr(at, '\n');
        assert_non_null(end);
        assert_in_range(end - at, 0, 100);
    }
    free(text);

    args bare = {.usage = "usage: x", .about = "y"};
    f = open_memstream(&text, &bytes);
    assert_non_null(f);
    args_help(&bare, f);
    fclose(f);
    assert_null(strstr(text, "examples:"));
    assert_non_null(strstr(text, "--help"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_filled_in),
        cmocka_unit_test(numbers_within_their_range),
        cmocka_unit_test(lists_of_numbers),
        cmocka_unit_test(choices_and_lists),
        cmocka_unit_test(refused_with_a_sentence),
        cmocka_unit_test(a_list_that_is_full),
        cmocka_unit_test(long_values_are_cut_in_the_sentence),
        cmocka_unit_test(operands_in_order),
        cmocka_unit_test(help_wins),
        cmocka_unit_test(help_has_all_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
