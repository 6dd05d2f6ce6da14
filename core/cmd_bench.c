/* cmd_bench - fakrun bench: is a backend right on a model, how fast is it, and what does it need. */
#include "agree.h"
#include "bench_out.h"
#include "capacity.h"
#include "cmd.h"
#include "port.h"
#include "progress.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Positions that are compared: over 100, so that one tie is within 1 %. */
enum { GATE_PROMPT = 72, GATE_GREEDY = 32, GATE_POSITIONS = GATE_PROMPT + GATE_GREEDY };
enum { REPS_MAX = 100, BATCH_STEPS = 32, ROWS_MAX = 512 };

/* English and signs, of more than GATE_PROMPT tokens in any vocabulary. */
static const char text[] =
    "The river rises in the hills, where three small streams meet below an old stone bridge, and "
    "runs for 214 kilometres to the sea. In spring it floods the meadows; by late August, children "
    "can cross it on foot (\"without wet knees\", as they say). A mill stood here from 1683 to "
    "1951: "
    "its wheel turned whenever there was enough water, and its owner kept a diary in which every "
    "dry day is marked with a cross. What would he write today? Nobody knows, but the weather "
    "station that replaced the mill reports 12.5 mm of rain, wind from the north-west, and fog.";

typedef struct bench {
    /* what was asked */
    const char *model_path, *dtype, *act, *kv, *json;
    arg_numbers prefill, batch;
    uint32_t decode, reps;
    int non_reference, no_verify;
    choose_options backend;
    /* what was opened */
    choice choice;
    gguf *file;
    tokenizer *tokenizer;
    model model;
    session session;
    /* on the way */
    uint32_t single, several; /* positions that the measures of one sequence need, and of several */
    uint32_t most;            /* sequences at once */
    token_ids ids;            /* of the text, again and again, as many as are fed at most */
    uint32_t distinct;        /* before they begin again */
    progress progress;
    uint64_t steps; /* for the bar */
    bench_result result;
} bench;

/* ---- the command line ---- */

static const char examples[] =
    "  fakrun bench -m model.gguf --backend cpu-ref\n"
    "  fakrun bench -m model.gguf --backend cuda --require-non-reference --json cuda.json\n"
    "  fakrun bench -m model.gguf --backend-path ./fak-backend-x.so --prefill 512 --batch 1,4,16\n";

static int parse(bench *b, int argc, char **argv)
{
    choose_options *c = &b->backend;
    /* clang-format off */
    const arg table[] = {
        {'m', "model", ARG_TEXT, "FILE", "a GGUF model; of one in parts the first", &b->model_path, 0, 0, NULL},
        {0, "backend", ARG_TEXT, "NAME[:DEV]", "this backend, and no other; DEV is a number or an id", &c->backend, 0, 0, NULL},
        {0, "backend-path", ARG_TEXT, "FILE", "the backend in this file, and no other", &c->backend_path, 0, 0, NULL},
        {'o', "option", ARG_LIST, "NAME=VALUE", "an option of the backend; see fakrun backends -v", &c->settings, 0, 0, NULL},
        {0, "require-non-reference", ARG_FLAG, NULL, "refuse a device of class reference", &b->non_reference, 0, 0, NULL},
        {0, "prefill", ARG_NUMBERS, "N,N", "prompts of so many tokens (default 16,64,256)", &b->prefill, 1, 1u << 20, NULL},
        {0, "decode", ARG_NUMBER, "N", "tokens that are decoded (default 128)", &b->decode, 1, 1u << 20, NULL},
        {0, "batch", ARG_NUMBERS, "B,B", "sequences decoded in one step (default 1,8)", &b->batch, 1, 256, NULL},
        {0, "reps", ARG_NUMBER, "N", "times that each is measured, after once without (default 5)", &b->reps, 1, REPS_MAX, NULL},
        {0, "dtype", ARG_CHOICE, "TYPE", "load weights as " CMD_DTYPES_HELP " (default file)", &b->dtype, 0, 0, CMD_DTYPES},
        {0, "act", ARG_CHOICE, "MODE", "activations of matmuls by block weights: q8|f32|f16 (default: what fits)", &b->act, 0, 0, "q8|f32|f16"},
        {0, "kv", ARG_CHOICE, "TYPE", "keep keys and values as f32|f16|bf16 (default f32)", &b->kv, 0, 0, "f32|f16|bf16"},
        {0, "no-verify", ARG_FLAG, NULL, "load weights without looking for broken blocks", &b->no_verify, 0, 0, NULL},
        {0, "probe-seconds", ARG_NUMBER, "N", "how long a plugin may take when it is tried (default 20)", &c->probe_seconds, 1, 600, NULL},
        {0, "trust", ARG_FLAG, NULL, "take plugin files and folders whoever owns or may write them", &c->trusted, 0, 0, NULL},
        {0, "json", ARG_TEXT, "FILE", "write evidence to a file; - is standard output, without the table", &b->json, 0, 0, NULL},
        {'q', "quiet", ARG_FLAG, NULL, "no line about the backend, no progress bar", &c->quiet, 0, 0, NULL},
        {'v', "verbose", ARG_FLAG, NULL, "say more on standard error", &c->verbose, 0, 0, NULL},
    };
    /* clang-format on */
    const args a = {
        "usage: fakrun bench -m MODEL [--backend NAME] [options]",
        "First the gate: the device's logits are compared with the reference's on a built-in "
        "text,\n"
        "bit for bit where it is of class reference, within the floors of its mode "
        "(abi/README.md)\n"
        "where it is not; no matmul and no attention may be left to the host.  Then the speed:\n"
        "median, lowest, highest and spread of several runs.  load: opening the model's file,\n"
        "preparing and loading.  first token: of a prompt of 8 tokens.\n"
        "What fails the gate is not measured; its evidence is written all the same.\n"
        "Exit codes: 0 done; 1 the gate or the work failed; 2 refused before work; 130 Ctrl-C.",
        examples,
        table,
        sizeof table / sizeof *table,
        0,
        0};
    fak_error e;
    port_status there;
    int rc = cmd_parse(&a, argc, argv, NULL);
    if (rc >= 0) return rc;
    if (!b->model_path) {
        status_set(&e, STATUS_REFUSED, "no model is given; %s; --help says more", a.usage);
        return cmd_fail(&e);
    }
    if (b->json && !port_stat(b->json, &there) && there.folder) {
        status_set(&e, STATUS_REFUSED, "--json is %.150s, which is a folder", b->json);
        return cmd_fail(&e);
    }
    return -1;
}

static uint32_t act_of(const bench *b)
{
    if (!b->act) return program_default_act(&b->model, &b->choice.device);
    return b->act[0] == 'q' ? FAK_ACT_Q8 : b->act[1] == '3' ? FAK_ACT_F32 : FAK_ACT_F16;
}

static uint32_t kv_dtype_of(const bench *b)
{
    return b->kv ? dtype_by_name(b->kv)->id : FAK_F32;
}

/* ---- the model ---- */

static int32_t open_model(bench *b, uint32_t context, fak_error *e)
{
    const dtype_info *dtype = b->dtype ? dtype_by_name(b->dtype) : NULL; /* NULL: file */
    int32_t s = gguf_open(&b->file, b->model_path, e);
    if (!s) s = model_open(&b->model, b->file, dtype ? dtype->id : 0, context, e);
    b->model.weights.unverified = b->no_verify;
    return s;
}

static void close_model(bench *b)
{
    session_close(&b->session);
    model_close(&b->model);
    gguf_close(b->file);
    b->file = NULL;
}

static uint32_t largest(const arg_numbers *list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->count; i++) n = list->at[i] > n ? list->at[i] : n;
    return n;
}

static uint32_t batch_steps(const bench *b)
{
    return b->decode < BATCH_STEPS ? b->decode : BATCH_STEPS;
}

/* What is asked for must fit into the model's context. */
static int32_t check_context(bench *b, fak_error *e)
{
    uint32_t prefill = largest(&b->prefill), decode = MEASURE_PROMPT + b->decode;
    b->most = largest(&b->batch);
    b->single = prefill > decode ? prefill : decode;
    b->several = MEASURE_PROMPT + batch_steps(b);
    if (b->several < b->most) b->several = b->most; /* a step of so many rows */
    const struct {
        const char *what;
        uint32_t value, needs;
    } asked[] = {{"prefill", prefill, prefill},
                 {"decode", b->decode, decode},
                 {"batch", b->most, b->several}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        if (asked[i].needs > b->model.context_max)
            return status_set(e, STATUS_REFUSED,
                              "--%s %" PRIu32 " needs a context of %" PRIu32 "; %s takes %" PRIu32
                              ": give a smaller one",
                              asked[i].what, asked[i].value, asked[i].needs, gguf_shown(b->file),
                              b->model.context_max);
    return FAK_OK;
}

/* The ids of the text, and they again up to as many as are fed at once. */
static int32_t fill_ids(bench *b, fak_error *e)
{
    if (tokenizer_size(b->tokenizer) > b->model.vocab)
        return gguf_fault(b->file, e,
                          "tokenizer.ggml.tokens has %" PRIu32
                          " elements, token_embd.weight only %" PRIu32 " rows",
                          tokenizer_size(b->tokenizer), b->model.vocab);
    int32_t s = cmd_encode(b->tokenizer, text, sizeof text - 1, &b->ids, e);
    if (s) return s;
    if (!b->ids.count)
        return status_set(e, STATUS_REFUSED, "%s has no token for any of the built-in text",
                          gguf_shown(b->file));
    b->distinct = (uint32_t)b->ids.count;
    while (b->ids.count < b->single) {
        uint32_t id = b->ids.id[b->ids.count - b->distinct];
        if (token_ids_add(&b->ids, &id, 1)) return status_memory(e, "the ids", b->single * 4ull);
    }
    return FAK_OK;
}

static uint32_t context_of(const bench *b)
{
    uint32_t most = b->model.context_max < GATE_POSITIONS ? b->model.context_max : GATE_POSITIONS;
    if (most < b->single) most = b->single;
    return most < b->several ? b->several : most;
}

static int32_t open_all(bench *b, const environment *env, fak_error *e)
{
    int32_t s = choose_open(&b->choice, &b->backend, env, e);
    if (s && b->choice.not_found && !b->backend.quiet) choose_print_folders(&b->choice, stderr);
    if (!s && b->non_reference) s = gate_require_non_reference(&b->choice.device, e);
    if (!s) s = open_model(b, 0, e);
    if (!s) s = check_context(b, e);
    if (!s) s = tokenizer_open(&b->tokenizer, b->file, e);
    if (!s) s = fill_ids(b, e);
    if (s) return s;
    if (!b->backend.quiet) choose_print(&b->choice, stderr);
    uint32_t context = context_of(b);
    close_model(b);
    return open_model(b, context, e);
}

/* ---- progress ---- */

static int is_interrupted(void *self)
{
    (void)self;
    return cmd_interrupted;
}

static int show_comparing(void *self, uint64_t done, uint64_t of)
{
    bench *b = self;
    b->progress.total = of;
    progress_show(&b->progress, done);
    return cmd_interrupted;
}

static int32_t show_loading(void *self, uint64_t done)
{
    (void)self, (void)done;
    return cmd_interrupted ? FAK_E_CANCELLED : FAK_OK;
}

static void show_capacity(void *self, const program *p)
{
    const bench *b = self;
    const capacity host = capacity_of_host(p), own = capacity_of_device(p);
    if (b->backend.quiet || b->steps) return; /* once */
    fprintf(stderr, "fakrun: ");
    capacity_print(&host, stderr);
    if (!own.needed) return;
    fprintf(stderr, "fakrun: on the device: ");
    capacity_print(&own, stderr);
}

/* ---- the gate ---- */

/* FAK_OK with the verdict in b->result.gate; an error is one of the work. */
static int32_t judge(bench *b, int32_t s, const fak_error *e)
{
    if (s != STATUS_GATE) return s;
    b->result.gate.failed = 1;
    b->result.gate.why = *e;
    return FAK_OK;
}

static int32_t compare(bench *b, fak_error *e)
{
    bench_gate *g = &b->result.gate;
    device *dev = &b->choice.device, *host = &b->choice.host;
    uint32_t context = b->model.context < GATE_POSITIONS ? b->model.context : GATE_POSITIONS;
    uint32_t greedy = context == GATE_POSITIONS ? GATE_GREEDY : context / 3;
    agree_options o = {.act = act_of(b),
                       .kv_dtype = kv_dtype_of(b),
                       .context = context,
                       .greedy = greedy,
                       .prompt = b->ids.id,
                       .prompt_count = context - greedy,
                       .progress = show_comparing,
                       .self = b};
    if (o.prompt_count > b->distinct) o.prompt_count = b->distinct;
    g->bound = agree_bound(&b->model, dev, o.act, o.kv_dtype);
    g->compared = dev->from != host->from;
    int32_t s = gate_promises(dev, e);
    if (s || !g->compared) return judge(b, s, e);
    progress_start(&b->progress, "comparing", 1, b->backend.quiet);
    s = agree_run(&b->model, dev, host, &o, &g->tally, g->by_id, NULL, e);
    progress_end(&b->progress);
    if (!s) s = gate_positions(&g->tally, &g->bound, e);
    if (!s) s = gate_native_counts(dev, g->by_id[0], e);
    return judge(b, s, e);
}

/* ---- measures ---- */

static bench_row *add_row(bench *b, const char *phase, const char *what, const char *unit)
{
    bench_row *row = &b->result.row[b->result.rows++];
    *row = (bench_row){.phase = phase, .what = what, .unit = unit};
    return row;
}

static void add_bytes(bench *b, const char *what, uint64_t bytes)
{
    double n = (double)bytes;
    if (bytes) add_row(b, "memory", what, "bytes")->m = (measure){n, n, n};
}

/* One run: of what the row is about. */
static int32_t run_once(bench *b, const bench_row *row, double *seconds, fak_error *e)
{
    if (row->batch)
        return measure_batch(&b->session, b->ids.id, row->batch, row->tokens, seconds, e);
    if (row->phase[0] == 'd')
        return measure_decode(&b->session, b->ids.id, row->tokens, seconds, e);
    return measure_prefill(&b->session, b->ids.id, row->tokens, seconds, e);
}

/* Once without a clock (a device may compile), then reps times. */
static int32_t repeat(bench *b, bench_row *row, double tokens, fak_error *e)
{
    double sample[REPS_MAX], seconds;
    int32_t s = run_once(b, row, &seconds, e);
    for (uint32_t i = 0; !s && i < b->reps; i++) {
        s = run_once(b, row, &seconds, e);
        sample[i] = tokens > 0 ? tokens / (seconds > 1e-9 ? seconds : 1e-9) : seconds;
        progress_show(&b->progress, ++b->steps);
    }
    if (!s) row->m = measure_of(sample, b->reps);
    return s;
}

static int32_t open_session(bench *b, uint32_t context, uint32_t slots, uint32_t rows, fak_error *e)
{
    session_options o = {.context = context,
                         .slots = slots,
                         .rows = rows < ROWS_MAX ? rows : ROWS_MAX,
                         .wanted = slots,
                         .kv_dtype = kv_dtype_of(b),
                         .act = act_of(b),
                         .on_capacity = show_capacity};
    int32_t s = session_open(&b->session, &b->model, &b->choice.device, &b->choice.host, &o,
                             show_loading, b, e);
    b->session.stop = is_interrupted;
    return s;
}

/* What ran on which side is judged whatever it ran for. */
static void close_session(bench *b)
{
    for (uint32_t i = 0; i < SIDES * EXEC_IDS; i++)
        b->result.gate.by_id[i / EXEC_IDS][i % EXEC_IDS] +=
            b->session.exec.by_id[i / EXEC_IDS][i % EXEC_IDS];
    session_close(&b->session);
}

/* From the file's name to the first id, reps times; the last stays open. */
static int32_t measure_load(bench *b, fak_error *e)
{
    double load[REPS_MAX], first[REPS_MAX], seconds;
    uint32_t context = b->model.context;
    int32_t s = FAK_OK;
    for (uint32_t i = 0; !s && i < b->reps; i++) {
        close_session(b);
        close_model(b);
        double start = port_seconds();
        s = open_model(b, context, e);
        if (!s) s = open_session(b, b->single, 1, b->single, e);
        load[i] = port_seconds() - start;
        if (!s) s = measure_prefill(&b->session, b->ids.id, MEASURE_PROMPT, &seconds, e);
        first[i] = port_seconds() - start;
        progress_show(&b->progress, ++b->steps);
    }
    if (s) return s;
    add_row(b, "load", NULL, "s")->m = measure_of(load, b->reps);
    bench_row *row = add_row(b, "ttft", "with load", "s");
    row->tokens = MEASURE_PROMPT;
    row->m = measure_of(first, b->reps);
    row = add_row(b, "ttft", "loaded", "s");
    row->tokens = MEASURE_PROMPT;
    return repeat(b, row, 0, e);
}

static int32_t measure_single(bench *b, fak_error *e)
{
    int32_t s = FAK_OK;
    for (uint32_t i = 0; !s && i < b->prefill.count; i++) {
        bench_row *row = add_row(b, "prefill", NULL, "tok/s");
        row->tokens = b->prefill.at[i];
        s = repeat(b, row, row->tokens, e);
    }
    if (s) return s;
    bench_row *row = add_row(b, "decode", NULL, "tok/s");
    row->tokens = b->decode;
    s = repeat(b, row, row->tokens, e);
    return s ? s : measure_ops(&b->session, b->ids.id, b->result.per_token, e);
}

static int32_t measure_several(bench *b, fak_error *e)
{
    int32_t s = open_session(b, b->several, b->most, b->several, e);
    for (uint32_t i = 0; !s && i < b->batch.count; i++) {
        bench_row *row = add_row(b, "batch", NULL, "tok/s");
        row->batch = b->batch.at[i];
        row->tokens = batch_steps(b);
        s = repeat(b, row, (double)row->batch * row->tokens, e);
    }
    return s;
}

static int32_t measure_all(bench *b, fak_error *e)
{
    progress_start(&b->progress, "measuring",
                   (uint64_t)b->reps * (3 + b->prefill.count + b->batch.count), b->backend.quiet);
    int32_t s = measure_load(b, e);
    if (!s) s = measure_single(b, e);
    uint64_t asked = s ? 0 : program_bytes(&b->session.program);
    close_session(b);
    if (!s) s = measure_several(b, e);
    close_session(b);
    progress_end(&b->progress);
    if (s) return s;
    add_bytes(b, "what the program asks for", asked);
    add_bytes(b, "peak of the process", port_peak_bytes());
    return judge(b, gate_native_counts(&b->choice.device, b->result.gate.by_id[0], e), e);
}

/* ---- output ---- */

static int32_t report(const bench *b, int argc, char **argv, fak_error *e)
{
    int32_t s = FAK_OK;
    if (!b->result.gate.failed && !(b->json && !strcmp(b->json, "-"))) {
        bench_out_table(&b->result, stdout);
        if (fflush(stdout) || ferror(stdout))
            s = status_set(e, STATUS_BAD_FILE, "the result could not be written");
    }
    if (s || !b->json) return s;
    json_t *all = evidence_head("bench", argc, argv, &b->choice.device, &b->backend.settings);
    evidence_set(all, "model", evidence_model(b->model_path));
    bench_out_json(&b->result, all);
    return evidence_write(all, b->json, e);
}

int cmd_bench(int argc, char **argv, const environment *env)
{
    bench b = {.prefill = {{16, 64, 256}, 3},
               .batch = {{1, 8}, 2},
               .decode = 128,
               .reps = 5,
               .result.gate.tally.logits = GATE_NONE};
    fak_error e = {0};
    int rc = parse(&b, argc, argv);
    if (rc >= 0) return rc;
    double start = port_seconds();
    int32_t s = open_all(&b, env, &e);
    if (!s) s = compare(&b, &e);
    if (!s && !b.result.gate.failed) s = measure_all(&b, &e);
    b.result.seconds = port_seconds() - start;
    if (!s) s = report(&b, argc, argv, &e);
    if (s == FAK_E_CANCELLED && cmd_interrupted)
        rc = EXIT_INTERRUPTED;
    else if (s || b.result.gate.failed)
        rc = cmd_fail(s ? &e : &b.result.gate.why);
    else
        rc = EXIT_DONE;
    close_model(&b);
    choose_close(&b.choice);
    tokenizer_close(b.tokenizer);
    token_ids_free(&b.ids);
    return rc;
}
