/* args - see args.h. */
#include "args.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS_MAX = 32, LONG_ONLY = 256 };

/* ---- values ---- */

static int32_t take_number(const arg *a, const char *text, fak_error *e)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (end == text || *end || errno == EINVAL)
        return status_set(e, STATUS_REFUSED, "--%s takes a number, not \"%s\"", a->name, text);
    if (errno == ERANGE || n < (long long)a->low || n > (long long)a->high)
        return status_set(e, STATUS_REFUSED, "--%s is %s; it takes %" PRIu32 " to %" PRIu32,
                          a->name, text, a->low, a->high);
    *(uint32_t *)a->out = (uint32_t)n;
    return FAK_OK;
}

static int32_t take_numbers(const arg *a, const char *text, fak_error *e)
{
    arg_numbers list = {.count = 0};
    char one[128];
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ",");
        arg single = *a;
        if (list.count == sizeof list.at / sizeof *list.at)
            return status_set(e, STATUS_REFUSED, "--%s takes at most %zu numbers", a->name,
                              sizeof list.at / sizeof *list.at);
        if (n >= sizeof one)
            return status_set(e, STATUS_REFUSED, "--%s takes a number, not \"%.80s...\"", a->name,
                              at);
        single.out = &list.at[list.count++];
        snprintf(one, sizeof one, "%.*s", (int)n, at);
        int32_t s = take_number(&single, one, e);
        if (s) return s;
        if (!*(at += n)) break;
    }
    *(arg_numbers *)a->out = list;
    return FAK_OK;
}

static int32_t take_real(const arg *a, const char *text, fak_error *e)
{
    char *end;
    float x = strtof(text, &end);
    if (end == text || *end)
        return status_set(e, STATUS_REFUSED, "--%s takes a number, not \"%s\"", a->name, text);
    if (a->low == a->high && !(x >= (float)a->low && x <= (float)a->high))
        return status_set(e, STATUS_REFUSED, "--%s is %s; it takes only %" PRIu32, a->name, text,
                          a->low);
    if (!(x >= (float)a->low && x <= (float)a->high))
        return status_set(e, STATUS_REFUSED, "--%s is %s; it takes %" PRIu32 " to %" PRIu32,
                          a->name, text, a->low, a->high);
    *(float *)a->out = x;
    return FAK_OK;
}

static int32_t take_choice(const arg *a, const char *text, fak_error *e)
{
    size_t n = strcspn(text, "|");
    if (text[n]) n = 0; /* a bar is none of them */
    for (const char *at = a->choices; at && n; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (!strncmp(at, text, n) && (at[n] == '|' || !at[n])) {
            *(const char **)a->out = text;
            return FAK_OK;
        }
    return status_set(e, STATUS_REFUSED, "--%s is \"%s\"; it takes %s", a->name, text, a->choices);
}

static int32_t take_list(const arg *a, const char *text, fak_error *e)
{
    arg_list *list = a->out;
    if (list->count == sizeof list->at / sizeof *list->at)
        return status_set(e, STATUS_REFUSED, "--%s is given more than %zu times", a->name,
                          sizeof list->at / sizeof *list->at);
    list->at[list->count++] = text;
    return FAK_OK;
}

static int32_t take(const arg *a, const char *text, fak_error *e)
{
    switch (a->kind) {
    case ARG_FLAG:
        *(int *)a->out = 1;
        return FAK_OK;
    case ARG_TEXT:
        *(const char **)a->out = text;
        return FAK_OK;
    case ARG_NUMBER:
        return take_number(a, text, e);
    case ARG_REAL:
        return take_real(a, text, e);
    case ARG_CHOICE:
        return take_choice(a, text, e);
    case ARG_LIST:
        return take_list(a, text, e);
    case ARG_NUMBERS:
        return take_numbers(a, text, e);
    }
    return FAK_OK;
}

/* ---- the line ---- */

static int32_t complain(const args *a, char **argv, int found, fak_error *e)
{
    const char *word = argv[optind - 1];
    if (found != ':' && optopt > 0 && optopt < LONG_ONLY && strncmp(word, "--", 2))
        return status_set(e, STATUS_REFUSED, "unknown option -%c; see --help", optopt);
    for (uint32_t i = 0; found != ':' && optopt && i < a->count; i++) /* a flag with =value */
        if (optopt == (a->table[i].letter ? a->table[i].letter : LONG_ONLY + (int)i))
            return status_set(e, STATUS_REFUSED, "--%s takes no value", a->table[i].name);
    if (found != ':') return status_set(e, STATUS_REFUSED, "unknown option %s; see --help", word);
    for (uint32_t i = 0; i < a->count; i++)
        if (optopt == (a->table[i].letter ? a->table[i].letter : LONG_ONLY + (int)i))
            return status_set(e, STATUS_REFUSED, "--%s needs a %s", a->table[i].name,
                              a->table[i].value);
    return status_set(e, STATUS_REFUSED, "option %s needs a value", word);
}

/* getopt's own tables from ours. */
static void make_tables(const args *a, struct option *longs, char *letters)
{
    *letters++ = ':';
    *letters++ = 'h';
    for (uint32_t i = 0; i < a->count; i++) {
        const arg *o = &a->table[i];
        int has = o->kind == ARG_FLAG ? no_argument : required_argument;
        longs[i] = (struct option){o->name, has, NULL, o->letter ? o->letter : LONG_ONLY + (int)i};
        if (o->letter) *letters++ = o->letter;
        if (o->letter && has) *letters++ = ':';
    }
    longs[a->count] = (struct option){"help", no_argument, NULL, 'h'};
    longs[a->count + 1] = (struct option){0};
    *letters = 0;
}

int32_t args_parse(const args *a, int argc, char **argv, const char **operand, fak_error *e)
{
    struct option longs[OPTIONS_MAX + 2];
    char letters[3 * OPTIONS_MAX + 3];
    if (a->count > OPTIONS_MAX)
        return status_set(e, STATUS_REFUSED, "too many options in the table");
    make_tables(a, longs, letters);
    opterr = 0;
    optind = 0; /* GNU: start anew */
    for (int found; (found = getopt_long(argc, argv, letters, longs, NULL)) != -1;) {
        if (found == 'h') return 1;
        if (found == '?' || found == ':') return complain(a, argv, found, e);
        for (uint32_t i = 0; i < a->count; i++) {
            if (found != longs[i].val) continue;
            int32_t s = take(&a->table[i], optarg, e);
            if (s) return s;
            break;
        }
    }
    uint32_t given = (uint32_t)(argc - optind);
    if (given > a->operands)
        return status_set(e, STATUS_REFUSED, "unexpected word \"%s\"; see --help",
                          argv[optind + (int)a->operands]);
    for (uint32_t i = given; i < a->operands; i++) operand[i] = NULL;
    if (given < a->operands && !a->may_lack)
        return status_set(e, STATUS_REFUSED, "a MODEL is missing; %s", a->usage);
    for (uint32_t i = 0; i < given; i++) operand[i] = argv[optind + (int)i];
    return FAK_OK;
}

void args_help(const args *a, FILE *out)
{
    fprintf(out, "%s\n\n%s\n", a->usage, a->about);
    if (a->count) fprintf(out, "\noptions:\n");
    for (uint32_t i = 0; i < a->count; i++) {
        const arg *o = &a->table[i];
        char left[64];
        snprintf(left, sizeof left, "%c%c%s --%s %s", o->letter ? '-' : ' ',
                 o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name,
                 o->value ? o->value : "");
        fprintf(out, "  %-28s %s\n", left, o->help);
    }
    fprintf(out, "  -h, --help                   this text\n");
    if (a->examples) fprintf(out, "\nexamples:\n%s", a->examples);
}
