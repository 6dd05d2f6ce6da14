/* cmd - the subcommands, one file each.  Each returns the exit code: 0 done; 1 the work failed; 2 refused
 * before work.  Standard output carries only the result. */
#ifndef CMD_H
#define CMD_H
#include "choose.h"
#include "session.h"

#include <signal.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_REFUSED = 2, EXIT_INTERRUPTED = 130 };

/* What --dtype takes: the file's own, or one that the weights are rounded to as they are loaded. */
#define CMD_DTYPES "file|f32|f16|bf16|q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|q5_k|q6_k"
#define CMD_DTYPES_HELP /* likewise in a line of --help and the next */                            \
    "file|f32|f16|bf16|q8_0|q4_0|q4_1|q5_0|\n                               q5_1|q4_k|q5_k|q6_k"

int cmd_run(int argc, char **argv, const environment *env);
int cmd_backends(int argc, char **argv, const environment *env);
int cmd_bisect(int argc, char **argv, const environment *env);
int cmd_inspect(int argc, char **argv, const environment *env);
int cmd_tokenize(int argc, char **argv, const environment *env);
int cmd_bench(int argc, char **argv, const environment *env);
int cmd_opcheck(int argc, char **argv, const environment *env);
int cmd_opcheck_rungs(int argc, char **argv, const environment *env);
int cmd_probe(int argc, char **argv, const environment *env);

/* Ctrl-C ends the program at once, until a command says that it looks at cmd_interrupted: then that is
 * set. */
extern volatile sig_atomic_t cmd_heeds_interrupts, cmd_interrupted;

/* Prints "fakrun: <sentence>" to standard error; the exit code for the error. */
int cmd_fail(const fak_error *e);
/* Parses; returns -1 to go on, or the exit code (help printed, or the sentence). */
int cmd_parse(const args *a, int argc, char **argv, const char **operand);
/* The exit code after all was printed: EXIT_FAILED with a sentence when it did not get out. */
int cmd_printed(int rc);
/* What the host and the device need of memory, a line each, on standard error. */
void cmd_show_capacity(const program *p);
/* The ids of a text, after a BOS where the model asks for one. */
int32_t cmd_encode(const tokenizer *t, const char *text, size_t bytes, token_ids *ids, fak_error *e);

/* ---- a model and a text, for the commands that run the one on the other ---- */

typedef struct cmd_input {                 /* zero-initialise */
    const char *path, *text, *file;        /* as asked: the model; the text, or where to read it */
    const char *dtype, *act, *kv;
    uint32_t context;                      /* 0 = the model's */
    gguf *map;                             /* as opened */
    tokenizer *tokenizer;
    model model;
    token_ids prompt;
} cmd_input;

/* Rows of a command's table: what of cmd_input *in is given on the line. */
#define CMD_MODEL_ARGS(in)                                                                         \
    {'m', "model", ARG_TEXT, "FILE", "a GGUF model; of one in parts the first", &(in)->path, 0, 0, \
     NULL}
#define CMD_LOAD_ARGS(in)                                                                          \
    {0, "ctx", ARG_NUMBER, "N", "positions of context (default: the model's, at most 4096)",       \
     &(in)->context, 1, 1u << 20, NULL},                                                           \
    {0, "dtype", ARG_CHOICE, "TYPE",                                                               \
     "load weights as " CMD_DTYPES_HELP " (default file)", &(in)->dtype, 0, 0, CMD_DTYPES},        \
    {0, "act", ARG_CHOICE, "MODE",                                                                 \
     "activations beside block weights: q8|f32 (default q8 where offered)", &(in)->act, 0, 0,      \
     "q8|f32"},                                                                                    \
    {0, "kv", ARG_CHOICE, "TYPE", "keep keys and values as f32|f16|bf16 (default f32)", &(in)->kv, \
     0, 0, "f32|f16|bf16"}

/* STATUS_REFUSED where the model is missing, or the text is given twice or not at all. */
int32_t cmd_input_check(const cmd_input *in, const char *usage, fak_error *e);
/* Opens the model and reads the text into ids: at least one, and not more than the context. */
int32_t cmd_input_open(cmd_input *in, fak_error *e);
void cmd_input_close(cmd_input *in); /* a zero or half-open one is fine */
/* The session that was asked for: act and kv. */
session_options cmd_input_session(const cmd_input *in);

/* All of a file, or of standard input for "-"; the caller frees. */
int32_t cmd_read_all(const char *path, char **data, size_t *bytes, fak_error *e);
#endif
