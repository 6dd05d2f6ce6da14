/* cmd_bench - fakrun bench: is a backend right on a model, how fast is it, and what does it need. */
#include "agree.h"
#include "bench.h"
#include "port.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Positions that are compared: over 100, so that one tie is within 1 %. */
enum { GATE_PROMPT = 72, GATE_GREEDY = 32, GATE_POSITIONS = GATE_PROMPT + GATE_GREEDY };

/* English and signs, of more than GATE_PROMPT tokens in any vocabulary. */
static const char text[] =
    "The river rises in the hills, where three small streams meet below an old stone bridge, and "
    "runs for 214 kilometres to the sea. In spring it floods the meadows; by late August, children "
    "can cross it on foot (\"without wet knees\", as they say). A mill stood here from 1683 on: "
    "its wheel turned whenever there was enough water, and its owner kept a diary in which every "
    "dry day is marked with a cross. What would he write today? Nobody knows, but the weather "
    "station that replaced the mill reports 12.5 mm of rain, wind from the north-west, and fog.";

/* ---- the command line ---- */

static const char examples[] =
    "  fakrun bench -m model.gguf --backend cpu-ref\n"
    "  fakrun bench -m model.gguf --backend cuda --require-non-reference --json cuda.json\n"
    "  fakrun bench -m model.gguf --backend-path ./fak-backend-x.so --prefill 512 --batch 1,4,16\n"
    "  fakrun bench -m model.gguf --phase decode --depth 0,1024 --no-gate    only speed\n";

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
        {0, "no-gate", ARG_FLAG, NULL, "compare nothing: only speed, and no verdict in the evidence", &b->no_gate, 0, 0, NULL},
        {0, "phase", ARG_CHOICE, "PHASE", "measure only this: load|prefill|decode|batch", &b->phase, 0, 0, "load|prefill|decode|batch"},
        {0, "prefill", ARG_NUMBERS, "N,N", "prompts of so many tokens (default 16,64,256)", &b->prefill, 1, 1u << 20, NULL},
        {0, "decode", ARG_NUMBER, "N", "tokens that are decoded (default 128)", &b->decode, 1, 1u << 20, NULL},
        {0, "depth", ARG_NUMBERS, "N,N", "after a context of so many tokens (default 8)", &b->depth, 0, 1u << 20, NULL},
        {0, "batch", ARG_NUMBERS, "B,B", "sequences decoded in one step, after the first --depth (default 1,8)", &b->batch, 1, 256, NULL},
        {0, "reps", ARG_NUMBER, "N", "times that each is measured, after once without (default 5)", &b->reps, 1, BENCH_REPS_MAX, NULL},
        {0, "dtype", ARG_CHOICE, "TYPE", "load weights as " CMD_DTYPES_HELP " (default file)", &b->dtype, 0, 0, CMD_DTYPES},
        {0, "act", ARG_CHOICE, "MODE", "activations beside block weights: q8|f32|f16 (default: what fits)", &b->act, 0, 0, "q8|f32|f16"},
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
        "median, lowest, highest and spread of several runs.  load: opening the model's file, its\n"
        "tokenizer, preparing and loading.  first token: of a prompt of 8 tokens.\n"
        "Clocks run for the steps alone; a context is fed once, before them.\n"
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

/* ---- the model ---- */

static uint32_t largest(const arg_numbers *list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->count; i++) n = list->at[i] > n ? list->at[i] : n;
    return n;
}

/* What is asked for must fit into the model's context. */
static int32_t check_context(bench *b, fak_error *e)
{
    uint32_t prefill = largest(&b->prefill), depth = largest(&b->depth);
    uint32_t decode = depth + b->decode, least = MEASURE_PROMPT + 1;
    b->most = largest(&b->batch);
    b->single = prefill > decode ? prefill : decode;
    if (b->single < least) b->single = least;
    b->several = b->depth.at[0] + bench_batch_steps(b);
    if (b->several < least) b->several = least;
    if (b->several < b->most) b->several = b->most; /* a step of so many rows */
    const struct {
        const char *what;
        uint32_t value, needs;
    } asked[] = {
        {"prefill", prefill, prefill},
        {depth > b->decode ? "depth" : "decode", depth > b->decode ? depth : b->decode, decode},
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
    while (b->ids.count < b->single || b->ids.count < b->several) {
        uint32_t id = b->ids.id[b->ids.count - b->distinct];
        if (token_ids_add(&b->ids, &id, 1))
            return status_memory(e, "the ids", (b->ids.count + 1) * 4ull);
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
    if (!s) s = bench_open_model(b, 0, e);
    if (!s) s = check_context(b, e);
    if (!s) s = tokenizer_open(&b->tokenizer, b->file, e);
    if (!s) s = fill_ids(b, e);
    if (s) return s;
    cmd_heeds_interrupts = 1;
    if (!b->backend.quiet) choose_print(&b->choice, stderr);
    uint32_t context = context_of(b);
    bench_close_model(b);
    return bench_open_model(b, context, e);
}

/* ---- progress ---- */

static int show_comparing(void *self, uint64_t done, uint64_t of)
{
    bench *b = self;
    b->progress.total = of;
    progress_show(&b->progress, done);
    return cmd_interrupted;
}

/* ---- the gate ---- */

static int32_t compare(bench *b, fak_error *e)
{
    bench_gate *g = &b->result.gate;
    device *dev = &b->choice.device, *host = &b->choice.host;
    uint32_t context = b->model.context < GATE_POSITIONS ? b->model.context : GATE_POSITIONS;
    uint32_t greedy = context == GATE_POSITIONS ? GATE_GREEDY : context / 3;
    agree_options o = {.act = bench_act(b),
                       .kv_dtype = bench_kv_dtype(b),
                       .context = context,
                       .greedy = greedy,
                       .prompt = b->ids.id,
                       .prompt_count = context - greedy,
                       .progress = show_comparing,
                       .self = b};
    if (o.prompt_count > b->distinct) o.prompt_count = b->distinct;
    g->bound = agree_bound(&b->model, dev, o.act, o.kv_dtype);
    g->skipped = b->no_gate;
    g->compared = !g->skipped && dev->from != host->from;
    int32_t s = gate_promises(dev, e);
    if (s || !g->compared) return bench_judge(b, s, e);
    progress_start(&b->progress, "comparing", 1, b->backend.quiet);
    s = agree_run(&b->model, dev, host, &o, &g->tally, g->by_id, NULL, e);
    progress_end(&b->progress);
    if (!s) s = gate_positions(&g->tally, &g->bound, e);
    if (!s) s = gate_native_counts(dev, g->by_id[0], e);
    return bench_judge(b, s, e);
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
               .depth = {{MEASURE_PROMPT}, 1},
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
    if (!s && !b.result.gate.failed) s = bench_measure(&b, &e);
    b.result.seconds = port_seconds() - start;
    if (!s) s = report(&b, argc, argv, &e);
    if (s == FAK_E_CANCELLED && cmd_interrupted)
        rc = EXIT_INTERRUPTED;
    else if (s || b.result.gate.failed)
        rc = cmd_fail(s ? &e : &b.result.gate.why);
    else
        rc = EXIT_DONE;
    bench_close_model(&b);
    choose_close(&b.choice);
    tokenizer_close(b.tokenizer);
    token_ids_free(&b.ids);
    return rc;
}
