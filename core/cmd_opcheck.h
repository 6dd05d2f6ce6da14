/* cmd_opcheck - what fakrun opcheck and its child share: the command line, and the rungs as they are told. */
#ifndef CMD_OPCHECK_H
#define CMD_OPCHECK_H
#include "cmd.h"

typedef struct opcheck_options {
    const char *file, *model_path, *json;
    choose_options backend;
    arg_list except; /* manners: NAME=WHOSE */
    arg_numbers rungs; /* none: all */
    uint32_t seed, seconds, device;
    int verbose;
} opcheck_options;

/* -1 to go on, or the exit code. */
int opcheck_parse(opcheck_options *o, int argc, char **argv);

/* The rungs in this process; what happens is said a line at a time: "stage R1 matmul, q8_0", "head JSON",
 * "row JSON".  STATUS_REFUSED where there is nothing to check. */
int32_t opcheck_here(const opcheck_options *o, int argc, char **argv, const environment *env,
                     void (*say)(void *self, char *line), void *self, fak_error *e);
#endif
