/* session - see session.h. */
#include "session.h"

#include "capacity.h"
#include "port.h"

#include <inttypes.h>
#include <stdlib.h>

enum { ROWS = 128, FEWEST_ROWS = 16 }; /* of a step, where nobody says how many */

static uint32_t at_least(uint32_t value, uint32_t otherwise)
{
    return value ? value : otherwise;
}

fak_limits session_limits(const model *m, const device *dev, const session_options *o)
{
    uint32_t context = at_least(o->context, m->context), slots = at_least(o->slots, 1);
    uint32_t rows = at_least(o->rows, ROWS), wanted = at_least(o->wanted, 1);
    if (rows > context) rows = context;
    if (wanted > rows) wanted = rows;
    return (fak_limits){.struct_size = sizeof(fak_limits),
                        .numerics = at_least(o->act, program_default_act(m, dev)),
                        .rows = rows,
                        .wanted = wanted,
                        .spans = slots,
                        .slots = slots,
                        .context = context,
                        .kv_tokens = slots * context,
                        .kv_dtype = at_least(o->kv_dtype, FAK_F32),
                        .step_bytes = step_bytes(rows, wanted, slots),
                        .steps = 1};
}

/* The device gives out kv in pages: room for the context of every slot at once takes whole ones. */
static uint32_t whole_pages(const program *p)
{
    uint32_t page = 1;
    for (uint32_t side = 0; side < SIDES; side++)
        if (p->report[side].kv_page > page) page = p->report[side].kv_page;
    uint64_t slot = ((uint64_t)p->limits.context + page - 1) / page * page;
    uint64_t all = slot * p->limits.slots;
    return all > UINT32_MAX ? UINT32_MAX : (uint32_t)all;
}

/* Each slot has whole pages: where the device's are larger than was reckoned, kv is reckoned anew. */
static int32_t reckon(session *s, device *dev, device *host, fak_limits *limits, uint32_t flags,
                      fak_error *e)
{
    int32_t rc = program_prepare(&s->program, dev, host, s->m, limits, flags | FAK_DRY_RUN, e);
    if (!rc && limits->kv_tokens < whole_pages(&s->program)) {
        limits->kv_tokens = whole_pages(&s->program);
        program_close(&s->program);
        rc = program_prepare(&s->program, dev, host, s->m, limits, flags | FAK_DRY_RUN, e);
    }
    return rc;
}

/* Fewer rows a step, from what the device says would fit: what it names where all of kv fits with it, else
 * half of the rows.  0: no fewer. */
static int take_fewer(fak_limits *limits, const fak_report *r)
{
    int named = r->fit_kv_tokens >= limits->kv_tokens && r->fit_rows < limits->rows;
    if (!r->fit_rows || (!named && limits->rows <= FEWEST_ROWS)) return 0;
    limits->rows = named ? r->fit_rows : limits->rows / 2;
    uint32_t wanted = named ? r->fit_wanted : limits->rows;
    if (limits->wanted > wanted) limits->wanted = wanted;
    limits->step_bytes = step_bytes(limits->rows, limits->wanted, limits->slots);
    return limits->wanted != 0;
}

/* Where the rows of a step are ours to choose, a device that lacks memory gets fewer before it is refused;
 * then the context that would fit is told. */
static int32_t dry_run(session *s, device *dev, device *host, fak_limits *limits,
                       const session_options *o, fak_error *e)
{
    int32_t rc = reckon(s, dev, host, limits, o->flags, e);
    const fak_error first = *e;
    const fak_report *r = &s->program.report[SIDE_DEVICE];
    while (rc == STATUS_REFUSED && !o->rows && take_fewer(limits, r)) {
        program_close(&s->program);
        rc = reckon(s, dev, host, limits, o->flags, e);
    }
    if (rc == STATUS_REFUSED && r->fit_rows && r->fit_kv_tokens < limits->kv_tokens)
        status_set(e, rc, "%s; the largest context that fits is %" PRIu32, first.message,
                   r->fit_kv_tokens / limits->slots);
    return rc;
}

int32_t session_open(session *s, const model *m, device *dev, device *host,
                     const session_options *options, weights_progress *progress, void *self,
                     fak_error *e)
{
    *s = (session){.m = m};
    fak_limits limits = session_limits(m, dev, options);
    if (limits.context > m->context)
        return status_set(e, STATUS_REFUSED,
                          "a context of %" PRIu32 "; the model was opened for %" PRIu32,
                          limits.context, m->context);
    int32_t rc = dry_run(s, dev, host, &limits, options, e);
    if (!rc && options->on_capacity) options->on_capacity(self, &s->program);
    if (rc || (rc = capacity_check(&s->program, e)) || (rc = program_commit(&s->program, e)) ||
        (rc = program_load(&s->program, progress, self, e)) ||
        (rc = exec_open(&s->exec, &s->program, e)) || (rc = kv_open(&s->kv, &s->program, e)))
        return rc;
    s->step = malloc(limits.step_bytes);
    s->row = malloc(limits.rows * sizeof *s->row);
    s->span = malloc(limits.slots * sizeof *s->span);
    if (!s->step || !s->row || !s->span) return status_memory(e, "a step", limits.step_bytes);
    for (uint32_t i = 0; i < limits.rows; i++) s->row[i] = i;
    return FAK_OK;
}

void session_close(session *s)
{
    kv_close(&s->kv);
    exec_close(&s->exec);
    program_close(&s->program);
    free(s->step);
    free(s->row);
    free(s->span);
    *s = (session){0};
}

/* One step of `rows` ids; answers for all of them, for the last, or for none. */
static int32_t feed_step(session *s, uint32_t slot, const uint32_t *id, uint32_t rows,
                         uint32_t wanted, uint32_t want, void *out, fak_error *e)
{
    fak_span span = {.slot = slot, .rows = rows, .first = s->kv.length[slot]};
    step_spec spec = {.want = wanted ? want : FAK_WANT_NONE,
                      .rows = rows,
                      .wanted = wanted,
                      .spans = 1,
                      .token = id,
                      .wanted_row = s->row + (rows - wanted),
                      .span = &span};
    int32_t rc = exec_step(&s->exec, step_write(s->step, &spec), out, e);
    if (!rc) kv_extend(&s->kv, slot, rows);
    return rc;
}

/* It may take only spans of one row. */
uint32_t session_step_rows(const session *s)
{
    const fak_report *r = &s->program.report[SIDE_DEVICE];
    uint32_t rows = s->program.limits.rows;
    if (r->shapes && !(r->shapes & (FAK_ONE_SPAN | FAK_ANY_SPANS))) return 1;
    return r->best_rows && r->best_rows < rows ? r->best_rows : rows;
}

static int32_t check_ids(const session *s, const uint32_t *id, uint32_t count, fak_error *e)
{
    for (uint32_t i = 0; i < count; i++)
        if (id[i] >= s->m->vocab)
            return status_set(e, FAK_E_ARGUMENT,
                              "token id %" PRIu32 "; the vocabulary has %" PRIu32, id[i],
                              s->m->vocab);
    return FAK_OK;
}

int32_t session_feed(session *s, uint32_t slot, const uint32_t *id, uint32_t count, uint32_t want,
                     int all, void *out, fak_error *e)
{
    const fak_limits *limits = &s->program.limits;
    uint32_t width = want == FAK_WANT_LOGITS ? s->m->vocab : 1, most = session_step_rows(s);
    if (count > s->kv.context - s->kv.length[slot])
        return status_set(e, FAK_E_KV_FULL,
                          "%" PRIu32 " tokens after %" PRIu32 "; context is %" PRIu32, count,
                          s->kv.length[slot], s->kv.context);
    int32_t known = check_ids(s, id, count, e);
    if (known) return known;
    if (all && limits->wanted < most) most = limits->wanted;
    for (uint32_t done = 0, rows; done < count; done += rows) {
        rows = count - done < most ? count - done : most;
        uint32_t wanted = want == FAK_WANT_NONE ? 0 : all ? rows : done + rows == count;
        if (done && s->stop && s->stop(s->stop_self))
            return status_set(e, FAK_E_CANCELLED, "stopped after %" PRIu32 " of %" PRIu32 " tokens",
                              done, count);
        int32_t rc = feed_step(s, slot, id + done, rows, wanted, want, out, e);
        if (rc) return rc;
        if (all && out) out = (char *)out + (size_t)rows * width * 4;
    }
    return FAK_OK;
}

/* Sequences of a step of one row each that the device takes. */
static uint32_t step_spans(const session *s)
{
    const fak_limits *l = &s->program.limits;
    uint32_t shapes = s->program.report[SIDE_DEVICE].shapes;
    if (shapes && !(shapes & (FAK_ROW_SPANS | FAK_ANY_SPANS))) return 1;
    return l->wanted < l->spans ? l->wanted : l->spans; /* wanted is at most rows */
}

int32_t session_step_batch(session *s, const uint32_t *slot, const uint32_t *id, uint32_t count,
                           uint32_t want, void *out, fak_error *e)
{
    uint32_t width = want == FAK_WANT_LOGITS ? s->m->vocab : 1, most = step_spans(s);
    int32_t rc = check_ids(s, id, count, e);
    for (uint32_t i = 0; !rc && i < count; i++)
        if (s->kv.length[slot[i]] == s->kv.context)
            rc = status_set(e, FAK_E_KV_FULL,
                            "sequence %" PRIu32 " of %" PRIu32 " is full; context is %" PRIu32, i,
                            count, s->kv.context);
    for (uint32_t done = 0, n; !rc && done < count; done += n) {
        n = count - done < most ? count - done : most;
        for (uint32_t i = 0; i < n; i++)
            s->span[i] = (fak_span){slot[done + i], i, 1, s->kv.length[slot[done + i]]};
        step_spec spec = {.want = want,
                          .rows = n,
                          .wanted = n,
                          .spans = n,
                          .token = id + done,
                          .wanted_row = s->row,
                          .span = s->span};
        rc = exec_step(&s->exec, step_write(s->step, &spec), out, e);
        for (uint32_t i = 0; !rc && i < n; i++) kv_extend(&s->kv, slot[done + i], 1);
        out = (char *)out + (size_t)n * width * 4;
    }
    return rc;
}

/* ---- generation ---- */

const char *session_finish_name(enum session_finish finish)
{
    static const char *const name[] = {"eos", "length", "context", "stopped"};
    return name[finish];
}

/* Adds an id and what is asked of it. */
static int32_t keep(generation *g, const sampler *picked, uint32_t id, fak_error *e)
{
    size_t used = g->ids.count * g->logprobs;
    if (used + g->logprobs > g->logprob_room) {
        size_t room = 2 * (used + g->logprobs);
        sampler_logprob *wider = realloc(g->logprob, room * sizeof *wider);
        if (!wider) return status_memory(e, "the log-probabilities", room * sizeof *wider);
        g->logprob = wider;
        g->logprob_room = room;
    }
    if (g->logprobs) sampler_logprobs(picked, id, g->logprobs - 1, g->logprob + used);
    if (!token_ids_add(&g->ids, &id, 1)) return FAK_OK;
    return status_memory(e, "the generated ids", (g->ids.count + 1) * sizeof id);
}

/* Is it over after this id?  Then g->finish says why. */
static int finished(const session *s, uint32_t slot, generation *g, uint32_t id)
{
    if (g->tokenizer && tokenizer_is_end(g->tokenizer, id)) {
        g->finish = FINISH_EOS;
        return 1;
    }
    if (g->on_token && g->on_token(g->self, id)) {
        g->finish = FINISH_STOPPED;
        return 1;
    }
    g->finish = g->ids.count == g->max_new ? FINISH_LENGTH : FINISH_CONTEXT;
    return g->ids.count == g->max_new || s->kv.length[slot] == s->kv.context;
}

int32_t session_generate(session *s, uint32_t slot, generation *g, fak_error *e)
{
    sampler greedy = {0}, *picker = g->sampler ? g->sampler : &greedy;
    void *answer = sampler_answer(picker);
    uint32_t id, want = sampler_want(picker);
    double start = port_seconds();
    int32_t rc = session_feed(s, slot, g->prompt, g->prompt_count, want, 0, answer, e);
    double now = port_seconds();
    g->prefill_s = now - start;
    start = now;
    while (!rc) {
        if ((rc = sampler_pick(picker, &id, e)) || (rc = keep(g, picker, id, e))) break;
        if (finished(s, slot, g, id)) break;
        rc = session_feed(s, slot, &id, 1, want, 0, answer, e);
    }
    g->decode_s = port_seconds() - start;
    return rc;
}
