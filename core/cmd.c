/* cmd - what the subcommands share. */
#include "capacity.h"
#include "cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

volatile sig_atomic_t cmd_heeds_interrupts, cmd_interrupted;

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

void cmd_show_capacity(const program *p)
{
    const capacity host = capacity_of_host(p), own = capacity_of_device(p);
    fprintf(stderr, "fakrun: ");
    capacity_print(&host, stderr);
    if (!own.needed) return;
    fprintf(stderr, "fakrun: on the device: ");
    capacity_print(&own, stderr);
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

/* ---- a model and a text ---- */

int32_t cmd_input_check(const cmd_input *in, const char *usage, fak_error *e)
{
    if (!in->path)
        return status_set(e, STATUS_REFUSED, "no model is given; %s; --help says more", usage);
    if (!in->text != !in->file) return FAK_OK;
    return status_set(e, STATUS_REFUSED, "give the text with -p TEXT or with -f FILE%s",
                      in->text ? ", not with both" : "");
}

static int32_t read_prompt(cmd_input *in, fak_error *e)
{
    char *data = NULL;
    const char *text = in->text ? in->text : "";
    size_t bytes = strlen(text);
    int32_t s = in->file ? cmd_read_all(in->file, &data, &bytes, e) : FAK_OK;
    if (!s) s = cmd_encode(in->tokenizer, data ? data : text, bytes, &in->prompt, e);
    free(data);
    if (!s && !in->prompt.count) s = status_set(e, STATUS_REFUSED, "the prompt is empty");
    return s;
}

int32_t cmd_input_open(cmd_input *in, fak_error *e)
{
    const dtype_info *dtype = in->dtype ? dtype_by_name(in->dtype) : NULL; /* NULL: file */
    int32_t s;
    if ((s = gguf_open(&in->map, in->path, e)) ||
        (s = tokenizer_open(&in->tokenizer, in->map, e)) || (s = read_prompt(in, e)) ||
        (s = model_open(&in->model, in->map, dtype ? dtype->id : 0, in->context, e)))
        return s;
    if (in->prompt.count > in->model.context)
        return status_set(e, STATUS_REFUSED, "prompt has %zu tokens; context is %" PRIu32,
                          in->prompt.count, in->model.context);
    if (tokenizer_size(in->tokenizer) <= in->model.vocab) return FAK_OK;
    return gguf_fault(in->map, e,
                      "tokenizer.ggml.tokens has %" PRIu32
                      " elements, token_embd.weight only %" PRIu32 " rows",
                      tokenizer_size(in->tokenizer), in->model.vocab);
}

void cmd_input_close(cmd_input *in)
{
    model_close(&in->model);
    tokenizer_close(in->tokenizer);
    gguf_close(in->map);
    token_ids_free(&in->prompt);
}

session_options cmd_input_session(const cmd_input *in)
{
    uint32_t act = !in->act ? 0 : in->act[0] == 'q' ? FAK_ACT_Q8 : FAK_ACT_F32;
    return (session_options){.act = act, .kv_dtype = in->kv ? dtype_by_name(in->kv)->id : 0};
}

int32_t cmd_encode(const tokenizer *t, const char *text, size_t bytes, token_ids *ids, fak_error *e)
{
    uint32_t bos = tokenizer_adds_bos(t) ? tokenizer_bos(t) : FAK_NO_INDEX;
    if (bos != FAK_NO_INDEX && token_ids_add(ids, &bos, 1))
        return status_memory(e, "the ids", sizeof bos);
    return tokenizer_encode(t, text, bytes, ids, e);
}
