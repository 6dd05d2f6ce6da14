/* evidence - the head of evidence files: what was run, by which fakrun, on what machine, of which plugin
 * and device.  Nothing in it names this machine among its like: of paths only the last part is kept. */
#ifndef EVIDENCE_H
#define EVIDENCE_H
#include "args.h"
#include "device.h"

#include <jansson.h>

/* {"evidence": kind, "schema": 1, "fak", "date", "command", "machine", "plugin", "settings"}, of a plugin
 * that need not have been loaded: what it says of itself is empty then.  kind: "bench", "opcheck".  argv:
 * the command's words, its name first, as main gives them.  The sha256 of a linked-in plugin is that of
 * fakrun itself, null where nobody can tell.  NULL without memory. */
json_t *evidence_start(const char *kind, int argc, char **argv, const plugin *p,
                       const arg_list *settings);
/* The same of an open device, with "device". */
json_t *evidence_head(const char *kind, int argc, char **argv, const device *d,
                      const arg_list *settings);
/* The words after "fakrun", of paths only the last part. */
json_t *evidence_command(int argc, char **argv);
/* {"file", "sha256"} of a file; of one in parts that is the first part's. */
json_t *evidence_model(const char *path);
/* Adds `value` (taken over) to the object; -1 when either is NULL. */
int evidence_set(json_t *object, const char *key, json_t *value);
/* {"matmul": 15, ...} of [EXEC_IDS] counts, of those that are not 0. */
json_t *evidence_ops(const uint64_t *by_id);
/* A number; null where it is not finite. */
json_t *evidence_number(double x);
/* Writes it, keys sorted, to a file whole or not at all, or to standard output for "-"; takes the
 * reference over.  STATUS_BAD_FILE, or FAK_E_MEMORY when it is NULL. */
int32_t evidence_write(json_t *evidence, const char *path, fak_error *e);

/* 64 digits and an end; 0, or -1 with errno. */
int evidence_sha256(const char *path, char hex[65]);
/* A word of a command line with its path cut to the last part: "--json=/a/b" is "--json=b". */
void evidence_word(const char *word, char *out, size_t bytes);
#endif
