/* cmd_tokenize - fakrun tokenize -m MODEL: text to ids. */
#include "cmd.h"
#include "json_out.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void print_json(const token_ids *ids)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ids->count; i++) json_array_append_new(list, json_integer(ids->id[i]));
    json_out_print(json_pack("{s:o}", "ids", list));
}

static void print_lines(const tokenizer *t, const token_ids *ids)
{
    for (size_t i = 0; i < ids->count; i++) {
        size_t bytes;
        const char *piece = tokenizer_token(t, ids->id[i], &bytes);
        json_t *text = json_out_text(piece, bytes);
        char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
        printf("%" PRIu32 "\t%s\n", ids->id[i], quoted ? quoted : "?");
        free(quoted);
        json_decref(text);
    }
}

int cmd_tokenize(int argc, char **argv, const environment *env)
{
    const char *path = NULL, *file = NULL, *text = NULL;
    int json = 0;
    /* clang-format off */
    const arg table[] = {
        {'m', "model", ARG_TEXT, "FILE", "a GGUF model; of one in parts the first", &path, 0, 0, NULL},
        {'p', "prompt", ARG_TEXT, "TEXT", "the text", &text, 0, 0, NULL},
        {'f', "file", ARG_TEXT, "FILE", "read the text from a file; - (the default) is standard input", &file, 0, 0, NULL},
        {0, "json", ARG_FLAG, NULL, "print {\"ids\": [...]}", &json, 0, 0, NULL},
    };
    /* clang-format on */
    const args a = {
        "usage: fakrun tokenize -m MODEL [-f FILE | -p TEXT] [--json]",
        "Prints the token ids of a text, one a line with its bytes.  The bytes are taken as they\n"
        "are; special tokens are recognised; no BOS is added unless the model asks for it.",
        "  fakrun tokenize -m model.gguf -p 'Hello world'\n"
        "  fakrun tokenize -m model.gguf -f book.txt --json\n",
        table,
        sizeof table / sizeof *table,
        0,
        0};
    (void)env;
    int rc = cmd_parse(&a, argc, argv, NULL);
    if (rc >= 0) return rc;

    gguf *g = NULL;
    tokenizer *t = NULL;
    token_ids ids = {0};
    char *data = NULL;
    size_t bytes = text ? strlen(text) : 0;
    fak_error e = {0};
    int32_t s = path ? FAK_OK : status_set(&e, STATUS_REFUSED, "no model; give one with -m FILE");
    if (!s && text && file)
        s = status_set(&e, STATUS_REFUSED, "give the text with -p or -f, not both");
    if (!s) s = gguf_open(&g, path, &e);
    if (!s) s = tokenizer_open(&t, g, &e);
    if (!s && !text) s = cmd_read_all(file ? file : "-", &data, &bytes, &e);
    if (!s) s = cmd_encode(t, text ? text : data ? data : "", bytes, &ids, &e);
    if (!s && json) print_json(&ids);
    if (!s && !json) print_lines(t, &ids);
    rc = s ? cmd_fail(&e) : cmd_printed(EXIT_DONE);
    token_ids_free(&ids);
    tokenizer_close(t);
    gguf_close(g);
    free(data);
    return rc;
}
