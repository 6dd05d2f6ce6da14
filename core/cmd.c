/* cmd - what the subcommands share. */
#include "cmd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

volatile sig_atomic_t cmd_interrupted;

int cmd_fail(const fak_error *e)
{
    fprintf(stderr, "fakrun: %s\n", e->message);
    return e->code == STATUS_REFUSED ? EXIT_REFUSED : EXIT_FAILED;
}

int cmd_printed(int rc)
{
    if (!fflush(stdout) && !ferror(stdout)) return rc;
    fprintf(stderr, "fakrun: the result could not be written\n");
    return EXIT_FAILED;
}

int cmd_parse(const args *a, int argc, char **argv, const char **operand)
{
    fak_error e;
    int32_t s = args_parse(a, argc, argv, operand, &e);
    if (s == 1) {
        args_help(a, stdout);
        return cmd_printed(EXIT_DONE);
    }
    return s ? cmd_fail(&e) : -1;
}

int32_t cmd_read_all(const char *path, char **data, size_t *bytes, fak_error *e)
{
    FILE *in = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    size_t room = 0, n = 0, got = 1;
    char *all = NULL;
    int32_t s = FAK_OK;
    if (!in) return status_set(e, STATUS_BAD_FILE, "%.150s: %s", path, strerror(errno));
    while (!s && got) {
        if (n == room) {
            room = room ? room * 2 : 65536;
            char *wider = realloc(all, room);
            if (!wider) {
                s = status_memory(e, "the text", room);
                break;
            }
            all = wider;
        }
        got = fread(all + n, 1, room - n, in);
        n += got;
    }
    if (!s && ferror(in)) s = status_set(e, STATUS_BAD_FILE, "%.150s: %s", path, strerror(errno));
    if (in != stdin) fclose(in);
    if (s) free(all);
    *data = s ? NULL : all;
    *bytes = s ? 0 : n;
    return s;
}

int32_t cmd_encode(const tokenizer *t, const char *text, size_t bytes, token_ids *ids, fak_error *e)
{
    uint32_t bos = tokenizer_adds_bos(t) ? tokenizer_bos(t) : FAK_NO_INDEX;
    if (bos != FAK_NO_INDEX && token_ids_add(ids, &bos, 1))
        return status_memory(e, "the ids", sizeof bos);
    return tokenizer_encode(t, text, bytes, ids, e);
}
