/* cmd - the subcommands, one file each.  Each returns the exit code: 0 done; 1 the work failed; 2 refused
 * before work.  Standard output carries only the result. */
#ifndef CMD_H
#define CMD_H
#include "choose.h"
#include "tokenizer.h"

#include <signal.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_REFUSED = 2, EXIT_INTERRUPTED = 130 };

/* What --dtype takes: the file's own, or one that the weights are rounded to as they are loaded. */
#define CMD_DTYPES "file|f32|f16|bf16|q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|q5_k|q6_k"
#define CMD_DTYPES_HELP /* likewise in a line of --help and the next */                            \
    "file|f32|f16|bf16|q8_0|q4_0|q4_1|q5_0|\n                               q5_1|q4_k|q5_k|q6_k"

int cmd_run(int argc, char **argv, const environment *env);
int cmd_backends(int argc, char **argv, const environment *env);
int cmd_inspect(int argc, char **argv, const environment *env);
int cmd_tokenize(int argc, char **argv, const environment *env);
int cmd_bench(int argc, char **argv, const environment *env);
int cmd_opcheck(int argc, char **argv, const environment *env);
int cmd_opcheck_rungs(int argc, char **argv, const environment *env);
int cmd_probe(int argc, char **argv, const environment *env);

extern volatile sig_atomic_t cmd_interrupted; /* set by Ctrl-C */

/* Prints "fakrun: <sentence>" to standard error; the exit code for the error. */
int cmd_fail(const fak_error *e);
/* Parses; returns -1 to go on, or the exit code (help printed, or the sentence). */
int cmd_parse(const args *a, int argc, char **argv, const char **operand);
/* The exit code after all was printed: EXIT_FAILED with a sentence when it did not get out. */
int cmd_printed(int rc);
/* The ids of a text, after a BOS where the model asks for one. */
int32_t cmd_encode(const tokenizer *t, const char *text, size_t bytes, token_ids *ids, fak_error *e);
/* All of a file, or of standard input for "-"; the caller frees. */
int32_t cmd_read_all(const char *path, char **data, size_t *bytes, fak_error *e);
#endif
