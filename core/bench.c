/* bench - see bench.h. */
#include "bench.h"

#include "port.h"

#include <inttypes.h>
#include <string.h>

enum { BATCH_STEPS = 32, ROWS_MAX = 512 };

uint32_t bench_act(const bench *b)
{
    if (!b->act) return program_default_act(&b->model, &b->choice.device);
    return b->act[0] == 'q' ? FAK_ACT_Q8 : b->act[1] == '3' ? FAK_ACT_F32 : FAK_ACT_F16;
}

uint32_t bench_kv_dtype(const bench *b)
{
    return b->kv ? dtype_by_name(b->kv)->id : FAK_F32;
}

uint32_t bench_batch_steps(const bench *b)
{
    return b->decode < BATCH_STEPS ? b->decode : BATCH_STEPS;
}

int32_t bench_open_model(bench *b, uint32_t context, fak_error *e)
{
    const dtype_info *dtype = b->dtype ? dtype_by_name(b->dtype) : NULL; /* NULL: file */
    int32_t s = gguf_open(&b->file, b->model_path, e);
    if (!s) s = model_open(&b->model, b->file, dtype ? dtype->id : 0, context, e);
    b->model.weights.unverified = b->no_verify;
    return s;
}

void bench_close_model(bench *b)
{
    session_close(&b->session);
    model_close(&b->model);
    gguf_close(b->file);
    b->file = NULL;
}

int32_t bench_judge(bench *b, int32_t s, const fak_error *e)
{
    if (s != STATUS_GATE) return s;
    b->result.gate.failed = 1;
    b->result.gate.why = *e;
    return FAK_OK;
}

/* ---- sessions ---- */

static int is_interrupted(void *self)
{
    (void)self;
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
    if (!b->backend.quiet && !b->steps) cmd_show_capacity(p); /* once */
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

/* One run: of decoding where there is one, else of prefill. */
static int32_t run_once(bench *b, decoding *d, uint32_t tokens, double *seconds, fak_error *e)
{
    if (d) return decoding_run(d, tokens, seconds, e);
    return measure_prefill(&b->session, b->ids.id, tokens, seconds, e);
}

/* Once without a clock (a device may compile), then reps times; a rate of so many tokens, or seconds. */
static int32_t repeat(bench *b, bench_row *row, decoding *d, double tokens, fak_error *e)
{
    double sample[BENCH_REPS_MAX], seconds;
    int32_t s = run_once(b, d, row->tokens, &seconds, e);
    for (uint32_t i = 0; !s && i < b->reps; i++) {
        s = run_once(b, d, row->tokens, &seconds, e);
        sample[i] = tokens > 0 ? tokens / (seconds > 1e-9 ? seconds : 1e-9) : seconds;
        progress_show(&b->progress, ++b->steps);
    }
    if (!s) row->m = measure_of(sample, b->reps);
    return s;
}

/* A row of decoding `tokens` in each of `batch` sequences. */
static int32_t repeat_decoding(bench *b, bench_row *row, uint32_t batch, fak_error *e)
{
    decoding d;
    fak_error later;
    int32_t s = decoding_begin(&d, &b->session, b->ids.id, batch, row->depth, e);
    if (!s) s = repeat(b, row, &d, (double)batch * row->tokens, e);
    int32_t ended = decoding_end(&d, s ? &later : e);
    return s ? s : ended;
}

static int32_t open_session(bench *b, uint32_t context, uint32_t slots, uint32_t rows, fak_error *e)
{
    session_options o = {.context = context,
                         .slots = slots,
                         .rows = rows < ROWS_MAX ? rows : ROWS_MAX,
                         .wanted = slots,
                         .kv_dtype = bench_kv_dtype(b),
                         .act = bench_act(b),
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
    double load[BENCH_REPS_MAX], first[BENCH_REPS_MAX], seconds;
    uint32_t context = b->model.context;
    int32_t s = FAK_OK;
    for (uint32_t i = 0; !s && i < b->reps; i++) {
        close_session(b);
        bench_close_model(b);
        tokenizer_close(b->tokenizer);
        b->tokenizer = NULL;
        double start = port_seconds();
        s = bench_open_model(b, context, e);
        if (!s) s = tokenizer_open(&b->tokenizer, b->file, e);
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
    return repeat(b, row, NULL, 0, e);
}

static int wants(const bench *b, const char *phase)
{
    return !b->phase || !strcmp(b->phase, phase);
}

/* Prompts, and what is decoded after each context. */
static int32_t measure_single(bench *b, fak_error *e)
{
    int32_t s = FAK_OK;
    for (uint32_t i = 0; !s && i < b->prefill.count && wants(b, "prefill"); i++) {
        bench_row *row = add_row(b, "prefill", NULL, "tok/s");
        row->tokens = b->prefill.at[i];
        s = repeat(b, row, NULL, row->tokens, e);
    }
    for (uint32_t i = 0; !s && i < b->depth.count && wants(b, "decode"); i++) {
        bench_row *row = add_row(b, "decode", NULL, "tok/s");
        row->tokens = b->decode;
        row->depth = b->depth.at[i];
        s = repeat_decoding(b, row, 1, e);
    }
    return s;
}

static int32_t measure_several(bench *b, fak_error *e)
{
    int32_t s = open_session(b, b->several, b->most, b->several, e);
    for (uint32_t i = 0; !s && i < b->batch.count; i++) {
        bench_row *row = add_row(b, "batch", NULL, "tok/s");
        row->batch = b->batch.at[i];
        row->tokens = bench_batch_steps(b);
        row->depth = b->depth.at[0];
        s = repeat_decoding(b, row, row->batch, e);
    }
    return s;
}

/* One session for all that needs one sequence, then one for the batches. */
static int32_t measure_phases(bench *b, uint64_t *asked, fak_error *e)
{
    int single = !b->phase || !wants(b, "batch");
    int32_t s = FAK_OK;
    if (wants(b, "load"))
        s = measure_load(b, e);
    else if (single)
        s = open_session(b, b->single, 1, b->single, e);
    if (!s && single) s = measure_single(b, e);
    if (!s && single) s = measure_ops(&b->session, b->ids.id, b->result.per_token, e);
    if (!s && single) *asked = program_bytes(&b->session.program);
    if (s || !wants(b, "batch")) return s;
    close_session(b);
    s = measure_several(b, e);
    if (!s && !single) s = measure_ops(&b->session, b->ids.id, b->result.per_token, e);
    if (!s && !single) *asked = program_bytes(&b->session.program);
    return s;
}

static uint32_t rows_of(const bench *b)
{
    uint32_t n = 0;
    if (wants(b, "load")) n += 3;
    if (wants(b, "prefill")) n += b->prefill.count;
    if (wants(b, "decode")) n += b->depth.count;
    if (wants(b, "batch")) n += b->batch.count;
    return n;
}

int32_t bench_measure(bench *b, fak_error *e)
{
    uint64_t asked = 0;
    progress_start(&b->progress, "measuring", (uint64_t)b->reps * rows_of(b), b->backend.quiet);
    int32_t s = measure_phases(b, &asked, e);
    close_session(b);
    progress_end(&b->progress);
    if (s) return s;
    add_bytes(b, "program", asked);
    add_bytes(b, "process peak", port_peak_bytes());
    return bench_judge(b, gate_native_counts(&b->choice.device, b->result.gate.by_id[0], e), e);
}
