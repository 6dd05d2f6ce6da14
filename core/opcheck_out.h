/* opcheck_out - the result of opcheck: collected, judged, as a table for people and as evidence. */
#ifndef OPCHECK_OUT_H
#define OPCHECK_OUT_H
#include "args.h"
#include "check.h"

#include <jansson.h>

typedef struct opcheck_result { /* zero-initialise */
    json_t *head, *checks;      /* what evidence begins with; rows in the order in which they came */
    json_t *excepted;
    json_t *evidence;           /* made by opcheck_finish */
    uint32_t count[CHECK_RUNGS][CHECK_VERDICTS];
    uint32_t failed;
} opcheck_result;

json_t *opcheck_row(const check_row *row);
/* A FAIL of the check that a stage ("R1 matmul, q8_0") has begun. */
json_t *opcheck_broken(const char *stage, const char *why);

/* Each takes its value over; NULL is fine.  A manner that fails and is excepted ("threads=CUDA") abstains. */
void opcheck_take_row(opcheck_result *r, json_t *row, const arg_list *except);
void opcheck_take_head(opcheck_result *r, json_t *head);

typedef struct opcheck_facts {
    int argc;
    char **argv;                /* of the command */
    uint32_t seed;
    const char *model_path;     /* or NULL */
    const arg_numbers *rungs;   /* that were asked for; none: all */
    double seconds;
} opcheck_facts;
void opcheck_finish(opcheck_result *r, const opcheck_facts *facts);
/* all: every check, else those that did not pass. */
void opcheck_print(const opcheck_result *r, int all, FILE *out);
void opcheck_free(opcheck_result *r);
#endif
