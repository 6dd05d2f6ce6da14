/* cmd_run - fakrun -m MODEL -p TEXT: generates text. */
#include "cmd.h"
#include "gate.h"
#include "json_out.h"
#include "port.h"
#include "progress.h"
#include "session.h"
#include "trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct run {
    /* what was asked */
    uint32_t max_new, top_k, seed, logprobs; /* NOT_GIVEN where they are not */
    float temperature, top_p, min_p;         /* likewise -1 */
    int ignore_eos, json, special, no_verify, reference;
    choose_options backend;
    /* what was opened */
    cmd_input in;
    choice choice;
    session session;
    sampler sampler;
    /* on the way */
    generation g;
    text_stream stream;
    char *shown; /* --json: the text so far */
    size_t shown_bytes, shown_room;
    int broken; /* standard output cannot be written, or memory is out */
    double load_s;
    progress progress;
} run;

/* ---- the command line ---- */

enum { LOGPROBS_MAX = 20 };
static const uint32_t NOT_GIVEN = UINT32_MAX;

static const char examples[] =
    "  fakrun -m model.gguf -p 'The capital of France is'\n"
    "  fakrun -m model.gguf -f prompt.txt -n 200 --json\n"
    "  echo 'Once upon a time' | fakrun -m model.gguf -f - --dtype f32\n"
    "  fakrun -m model.gguf -p 'Once upon' --temp 0.8 --top-k 40 --top-p 0.95 --seed 7\n"
    "  fakrun -m model.gguf -p Hello --json --logprobs 5\n"
    "  fakrun -m model.gguf -p Hello --backend cpu-ref -o fused=1\n"
    "  fakrun -m model.gguf -p Hello --backend-path ./fak-backend-x.so --require-reference\n\n"
    "commands: fakrun backends, bench, bisect, inspect, opcheck, tokenize; each has --help\n";

/* What no single option can tell. */
static int32_t check_asked(run *r, const char *usage, fak_error *e)
{
    const char *filter = r->top_k != NOT_GIVEN ? "top-k"
                         : r->top_p >= 0       ? "top-p"
                         : r->min_p >= 0       ? "min-p"
                                               : NULL;
    int32_t s = cmd_input_check(&r->in, usage, e);
    if (s) return s;
    if (filter && r->temperature < 0)
        return status_set(e, STATUS_REFUSED,
                          "--%s needs --temp: without it the most likely token is taken", filter);
    if (r->logprobs != NOT_GIVEN && !r->json)
        return status_set(e, STATUS_REFUSED, "--logprobs needs --json");
    if (r->seed == NOT_GIVEN && r->temperature > 0) {
        struct timespec now = {0};
        uint64_t state[4];
        timespec_get(&now, TIME_UTC);
        sampler_seed(state, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
        r->seed = (uint32_t)(state[0] >> 33); /* below NOT_GIVEN */
    }
    return FAK_OK;
}

static int parse(run *r, int argc, char **argv)
{
    /* clang-format off */
    const arg table[] = {
        CMD_MODEL_ARGS(&r->in),
        {'p', "prompt", ARG_TEXT, "TEXT", "the text to continue", &r->in.text, 0, 0, NULL},
        {'f', "file", ARG_TEXT, "FILE", "read the text from a file; - is standard input", &r->in.file, 0, 0, NULL},
        {'n', "predict", ARG_NUMBER, "N", "most new tokens (default 128)", &r->max_new, 1, 1u << 20, NULL},
        {0, "temp", ARG_REAL, "T", "0 takes the most likely token (default); above it tokens are drawn", &r->temperature, 0, 100, NULL},
        {0, "top-k", ARG_NUMBER, "K", "draw from the K most likely (default 0: all)", &r->top_k, 0, 1u << 20, NULL},
        {0, "top-p", ARG_REAL, "P", "of these, from the fewest that make P of the whole (default 1)", &r->top_p, 0, 1, NULL},
        {0, "min-p", ARG_REAL, "P", "of these, from those P times as likely as the first (default 0)", &r->min_p, 0, 1, NULL},
        {0, "seed", ARG_NUMBER, "N", "of the draws: same seed, same text (default: from the clock)", &r->seed, 0, NOT_GIVEN - 1, NULL},
        {0, "logprobs", ARG_NUMBER, "N", "with --json: of each token and of the N most likely", &r->logprobs, 0, LOGPROBS_MAX, NULL},
        CMD_LOAD_ARGS(&r->in),
        {0, "ignore-eos", ARG_FLAG, NULL, "go on after an end-of-text token", &r->ignore_eos, 0, 0, NULL},
        {0, "special", ARG_FLAG, NULL, "show control tokens as text", &r->special, 0, 0, NULL},
        {0, "no-verify", ARG_FLAG, NULL, "load weights without looking for broken blocks", &r->no_verify, 0, 0, NULL},
        {0, "require-reference", ARG_FLAG, NULL, "refuse a device that is not of class reference", &r->reference, 0, 0, NULL},
        {0, "json", ARG_FLAG, NULL, "print one JSON object instead of text", &r->json, 0, 0, NULL},
        CHOOSE_ARGS(&r->backend),
    };
    /* clang-format on */
    const args a = {
        "usage: fakrun -m MODEL (-p TEXT | -f FILE) [options]",
        "Continues a text with a language model.  The text streams to standard output as it is\n"
        "made; one line on standard error says which backend runs and why.\n"
        "Drawing applies top-k, top-p, min-p and last the temperature (llama.cpp's order); "
        "nothing\n"
        "is applied that was not asked.  --json tells the seed, and -v does.\n"
        "Exit codes: 0 done; 1 the work failed; 2 refused before work; 130 Ctrl-C.",
        examples,
        table,
        sizeof table / sizeof *table,
        0,
        0};
    fak_error e;
    int rc = cmd_parse(&a, argc, argv, NULL);
    if (rc >= 0) return rc;
    return check_asked(r, a.usage, &e) ? cmd_fail(&e) : -1;
}

/* ---- before work ---- */

static int32_t show_loading(void *self, uint64_t done)
{
    run *r = self;
    progress_show(&r->progress, done);
    return cmd_interrupted ? FAK_E_CANCELLED : FAK_OK;
}

static void show_prepared(void *self, const program *p)
{
    const run *r = self;
    const session_options o = cmd_input_session(&r->in);
    uint32_t rows = session_limits(&r->in.model, &r->choice.device, &o).rows;
    if (r->backend.quiet) return;
    cmd_show_capacity(p);
    if (!r->in.act && r->in.model.blocks && p->limits.numerics & FAK_ACT_F32)
        fprintf(stderr,
                "fakrun: activations in F32: backend %s offers no Q8, the default beside block "
                "weights; --act f32 asks others for the same\n",
                r->choice.device.from->name);
    if (p->limits.rows < rows)
        fprintf(stderr, "fakrun: %" PRIu32 " rows a step, not %" PRIu32 ": so the context fits\n",
                p->limits.rows, rows);
}

static int32_t open_sampler(run *r, fak_error *e)
{
    sampler_options how = {.temperature = r->temperature,
                           .top_k = r->top_k == NOT_GIVEN ? 0 : r->top_k,
                           .top_p = r->top_p < 0 ? 1 : r->top_p,
                           .min_p = r->min_p < 0 ? 0 : r->min_p,
                           .seed = r->seed,
                           .logprobs = r->logprobs != NOT_GIVEN};
    return sampler_open(&r->sampler, &how, r->in.model.vocab, e);
}

static int32_t open_all(run *r, const environment *env, fak_error *e)
{
    double start = port_seconds();
    session_options o = cmd_input_session(&r->in);
    int32_t s;
    o.on_capacity = show_prepared;
    if ((s = choose_open(&r->choice, &r->backend, env, e)) ||
        (r->reference && (s = gate_require_reference(&r->choice.device, e))) ||
        (s = cmd_input_open(&r->in, e)))
        return s;
    cmd_heeds_interrupts = 1;
    r->in.model.weights.unverified = r->no_verify;
    if (!r->backend.quiet) choose_print(&r->choice, stderr);
    if (r->backend.verbose && r->temperature > 0)
        fprintf(stderr, "fakrun: seed %" PRIu32 "\n", r->seed);
    if ((s = open_sampler(r, e))) return s;
    progress_start(&r->progress, "loading", model_weight_bytes(&r->in.model), r->backend.quiet);
    s = session_open(&r->session, &r->in.model, &r->choice.device, &r->choice.host, &o,
                     show_loading, r, e);
    progress_end(&r->progress);
    r->load_s = port_seconds() - start;
    if (!s && r->backend.verbose && r->session.program.holes)
        fprintf(stderr, "fakrun: %" PRIu32 " of %" PRIu32 " ops are left to the host's reference\n",
                r->session.program.holes, r->session.program.ops);
    return s;
}

/* ---- output ---- */

static void emit(run *r, const char *text, size_t bytes)
{
    if (r->json && bytes) {
        if (r->shown_bytes + bytes > r->shown_room) {
            size_t room = 2 * (r->shown_bytes + bytes);
            char *wider = realloc(r->shown, room);
            r->broken |= !wider;
            if (!wider) return;
            r->shown = wider;
            r->shown_room = room;
        }
        memcpy(r->shown + r->shown_bytes, text, bytes);
        r->shown_bytes += bytes;
    } else if (bytes) {
        r->broken |= fwrite(text, 1, bytes, stdout) != bytes || fflush(stdout) != 0;
    }
}

static int is_interrupted(void *self)
{
    (void)self;
    return cmd_interrupted;
}

static int on_token(void *self, uint32_t id)
{
    run *r = self;
    size_t bytes;
    const char *piece = tokenizer_token(r->in.tokenizer, id, &bytes);
    char *text = malloc(3 * (bytes + 4));
    if (!text) r->broken = 1;
    if (text && (r->special || !tokenizer_is_special(r->in.tokenizer, id)))
        emit(r, text, text_stream_push(&r->stream, piece, bytes, text));
    free(text);
    return r->broken || cmd_interrupted;
}

static json_t *json_ids(const uint32_t *id, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(list, json_integer(id[i]));
    return list;
}

/* JSON has no infinity. */
static json_t *json_number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *json_logprobs(const generation *g)
{
    json_t *list = json_array();
    for (size_t i = 0; i < g->ids.count; i++) {
        const sampler_logprob *row = g->logprob + i * g->logprobs;
        json_t *top = json_array();
        for (uint32_t j = 1; j < g->logprobs; j++)
            json_array_append_new(top, json_pack("{s:I, s:o}", "id", (json_int_t)row[j].id,
                                                 "logprob", json_number(row[j].logprob)));
        json_array_append_new(list, json_pack("{s:I, s:o, s:o}", "id", (json_int_t)row[0].id,
                                              "logprob", json_number(row[0].logprob), "top", top));
    }
    return list;
}

static json_t *report(const run *r)
{
    const generation *g = &r->g;
    const device *d = &r->choice.device;
    double prefill = g->prefill_s > 0 ? (double)g->prompt_count / g->prefill_s : 0;
    double decode = g->decode_s > 0 && g->ids.count > 1 ? (double)(g->ids.count - 1) / g->decode_s
                                                        : 0;
    json_t *all = json_pack(
        "{s:o, s:o, s:o, s:s, s:{s:s, s:o, s:s, s:s, s:s}, s:{s:f, s:f, s:f}, s:{s:I, s:I}}",
        "prompt_ids", json_ids(g->prompt, g->prompt_count), "ids",
        json_ids(g->ids.id, g->ids.count), "text",
        json_stringn(r->shown ? r->shown : "", r->shown_bytes), "finish",
        session_finish_name(g->finish), "backend", "name", d->from->name, "device",
        json_out_text(d->info.id, strlen(d->info.id)), "class", device_class_name(d->facts.klass),
        "kind", device_kind_name(d->info.kind), "why", r->choice.how, "timing", "load_s", r->load_s,
        "prefill_tok_s", prefill, "decode_tok_s", decode, "ops", "native",
        (json_int_t)r->session.exec.ops[SIDE_DEVICE], "host",
        (json_int_t)r->session.exec.ops[SIDE_HOST]);
    if (r->temperature > 0) json_object_set_new(all, "seed", json_integer(r->seed));
    if (g->logprobs) json_object_set_new(all, "logprobs", json_logprobs(g));
    return all;
}

static int finish(run *r)
{
    char rest[8];
    emit(r, rest, text_stream_finish(&r->stream, rest));
    if (r->json)
        r->broken |= json_out_print(report(r)) != 0;
    else
        r->broken |= putchar('\n') == EOF || fflush(stdout) != 0;
    if (r->g.finish == FINISH_CONTEXT && !r->backend.quiet)
        fprintf(stderr, "fakrun: the context of %" PRIu32 " is full\n", r->in.model.context);
    if (r->backend.verbose)
        fprintf(stderr, "fakrun: load %.3f s; prefill %.1f tok/s; decode %.1f tok/s; finish %s\n",
                r->load_s, (double)r->g.prompt_count / r->g.prefill_s,
                (double)(r->g.ids.count - 1) / r->g.decode_s, session_finish_name(r->g.finish));
    if (r->broken) fprintf(stderr, "fakrun: the result could not be written\n");
    return r->broken ? EXIT_FAILED : cmd_interrupted ? EXIT_INTERRUPTED : EXIT_DONE;
}

static void close_all(run *r)
{
    session_close(&r->session);
    choose_close(&r->choice);
    cmd_input_close(&r->in);
    token_ids_free(&r->g.ids);
    free(r->g.logprob);
    sampler_close(&r->sampler);
    free(r->shown);
}

static uint32_t logprob_columns(const run *r)
{
    if (r->logprobs == NOT_GIVEN) return 0;
    return 1 + (r->logprobs < r->in.model.vocab ? r->logprobs : r->in.model.vocab);
}

int cmd_run(int argc, char **argv, const environment *env)
{
    run r = {.max_new = 128,
             .top_k = NOT_GIVEN,
             .seed = NOT_GIVEN,
             .logprobs = NOT_GIVEN,
             .temperature = -1,
             .top_p = -1,
             .min_p = -1};
    fak_error e = {0};
    uint32_t slot;
    int rc = parse(&r, argc, argv);
    if (rc >= 0) return rc;
    int32_t s = open_all(&r, env, &e);
    if (s && r.choice.all.found.folders && r.choice.not_found && !r.backend.quiet)
        choose_print_folders(&r.choice, stderr);
    r.g = (generation){.prompt = r.in.prompt.id,
                       .prompt_count = (uint32_t)r.in.prompt.count,
                       .max_new = r.max_new,
                       .tokenizer = r.ignore_eos ? NULL : r.in.tokenizer,
                       .sampler = &r.sampler,
                       .logprobs = logprob_columns(&r),
                       .on_token = on_token,
                       .self = &r};
    r.session.stop = is_interrupted;
    if (!s) s = kv_take(&r.session.kv, &slot, &e);
    if (!s) s = session_generate(&r.session, slot, &r.g, &e);
    if (s == STATUS_NAN) s = trace_nan(&r.session, &r.choice.host, &r.g, &e);
    if (s && r.g.ids.count && !r.json) putchar('\n');
    rc = s == FAK_E_CANCELLED && cmd_interrupted ? EXIT_INTERRUPTED : s ? cmd_fail(&e) : finish(&r);
    close_all(&r);
    return rc;
}
