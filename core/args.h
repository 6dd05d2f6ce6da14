/* args - command lines from a table: parsing with ranges in the messages, and help text. */
#ifndef ARGS_H
#define ARGS_H
#include "status.h"

#include <stdio.h>

enum arg_kind {
    ARG_FLAG,   /* out: int, set to 1 */
    ARG_TEXT,   /* out: const char * */
    ARG_NUMBER, /* out: uint32_t within [low, high] */
    ARG_CHOICE, /* out: const char *, one of `choices` ("a|b|c") */
    ARG_REAL,   /* out: float within [low, high] */
    ARG_LIST,   /* out: arg_list, each use appends */
    ARG_NUMBERS /* out: arg_numbers, "16,64,256", each within [low, high]; the last use counts */
};

typedef struct arg_list { const char *at[32]; uint32_t count; } arg_list;
typedef struct arg_numbers { uint32_t at[16], count; } arg_numbers;

typedef struct arg {
    char letter;          /* 0 = none */
    const char *name;     /* long name, without dashes; never NULL */
    enum arg_kind kind;
    const char *value;    /* "FILE", NULL for a flag */
    const char *help;
    void *out;
    uint32_t low, high;
    const char *choices;
} arg;

typedef struct args {
    const char *usage;    /* "usage: fakrun inspect MODEL [options]" */
    const char *about;    /* what it does, in lines */
    const char *examples;
    const arg *table;
    uint32_t count;
    uint32_t operands;    /* words that are no options: exactly so many */
    int may_lack;         /* or fewer: operand[] is NULL where none was given */
} args;

/* Fills the table's outs and operand[a->operands].  STATUS_REFUSED with one sentence; 1 when --help was
 * asked (nothing is checked then). */
int32_t args_parse(const args *a, int argc, char **argv, const char **operand, fak_error *e);
void args_help(const args *a, FILE *out);
#endif
