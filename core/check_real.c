/* check_real - R5: a model of a file: argmax at every position, the four figures, 64 greedy ids, ties. */
#include "agree.h"
#include "check.h"
#include "tokenizer.h"
#include "toy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 80, GREEDY = 64 };

static const char text[] =
    "Once, on a cold evening in November 1893, a clockmaker named Ilse found that every clock in "
    "her "
    "shop had stopped at 7:42. She opened the first: nothing was broken. \"How strange,\" she "
    "said, and "
    "wound it again. By morning all 31 of them were running, each a little faster than the last, "
    "and "
    "the town's bells had begun to answer them one by one, although nobody had pulled a rope. What "
    "would you have done?";

typedef struct real {
    gguf *file;
    tokenizer *tokenizer;
    model model;
    token_ids ids;
} real;

static void close_real(real *r)
{
    model_close(&r->model);
    tokenizer_close(r->tokenizer);
    gguf_close(r->file);
    token_ids_free(&r->ids);
}

/* The text's ids; for a file without a tokenizer that is known here any ids will do. */
static int32_t find_ids(check *c, real *r, fak_error *e)
{
    uint64_t random = check_seed(c, 80);
    if (!tokenizer_open(&r->tokenizer, r->file, e) &&
        tokenizer_size(r->tokenizer) <= r->model.vocab)
        return tokenizer_encode(r->tokenizer, text, sizeof text - 1, &r->ids, e);
    for (int i = 0; i < PROMPT; i++) {
        uint32_t id = toy_below(&random, r->model.vocab);
        if (token_ids_add(&r->ids, &id, 1)) return status_memory(e, "ids", PROMPT * 4);
    }
    return FAK_OK;
}

static int32_t open_real(check *c, real *r, fak_error *e)
{
    *r = (real){0};
    int32_t s = gguf_open(&r->file, c->model_path, e);
    if (!s) s = model_open(&r->model, r->file, 0, 0, e);
    uint32_t context = r->model.context_max < PROMPT + GREEDY ? r->model.context_max
                                                              : PROMPT + GREEDY;
    model_close(&r->model);
    if (!s) s = model_open(&r->model, r->file, 0, context, e);
    if (!s) s = find_ids(c, r, e);
    if (!s && !r->ids.count)
        s = status_set(e, STATUS_BAD_FILE, "%s has no token for the text", gguf_shown(r->file));
    return s;
}

/* How it went, in one sentence: ties first. */
static void describe(const gate_tally *t, uint32_t greedy, fak_error *e)
{
    char ties[120] = "no tie";
    size_t used = 0;
    for (uint32_t i = 0; i < t->ties && i < 3; i++)
        used += (size_t)snprintf(ties + used, sizeof ties - used,
                                 "%sposition %" PRIu64 " (%" PRIu32 " for %" PRIu32 ", %.3g)",
                                 i ? ", " : "ties: ", t->tie[i].position, t->tie[i].got,
                                 t->tie[i].want, (double)t->tie[i].gap);
    status_set(e, 0,
               "argmax equal at %" PRIu64 " of %" PRIu64 " positions, %" PRIu32
               " of them greedy; %s",
               t->positions - t->ties, t->positions, greedy, ties);
}

static int stage(void *self, uint64_t done, uint64_t of)
{
    const check *c = self;
    char what[160];
    if (done % 16) return 0; /* it is told now and then that all is well */
    snprintf(what, sizeof what, "R5 %s, %" PRIu64 " of %" PRIu64, c->row.detail, done, of);
    if (c->on_stage) c->on_stage(c->self, what);
    return 0;
}

static void run_mode(check *c, real *r, uint32_t act)
{
    fak_error e;
    gate_tally t;
    uint64_t by_id[SIDES][EXEC_IDS];
    uint32_t context = r->model.context, greedy = context == PROMPT + GREEDY ? GREEDY : context / 2;
    agree_options o = {.act = act,
                       .context = context,
                       .greedy = greedy,
                       .prompt = r->ids.id,
                       .prompt_count = context - greedy,
                       .progress = stage,
                       .self = c};
    if (o.prompt_count > r->ids.count) o.prompt_count = (uint32_t)r->ids.count;
    gate_bound b = agree_bound(&r->model, &c->dev, act, FAK_F32);
    check_begin(c, R5, "model", "%s, %s", r->model.name[0] ? r->model.name : "unnamed",
                check_act_name(act));
    int32_t s = agree_run(&r->model, &c->dev, c->host, &o, &t, by_id, NULL, &e);
    if (!s) {
        check_add(c, &t.logits);
        c->row.cases = (uint32_t)t.positions;
        s = gate_positions(&t, &b, &e);
    }
    if (!s) describe(&t, greedy, &e);
    check_end(c, s ? CHECK_FAIL : CHECK_PASS, e.message);
    if (s && s != STATUS_GATE && check_open(c, NULL, NULL, &e))
        c->stopped = "it does not open again";
}

void check_real(check *c)
{
    real r;
    fak_error e;
    if (!c->model_path) {
        check_begin(c, R5, "model", "%s", "");
        check_end(c, CHECK_ABSTAIN, "no model was given: -m FILE");
        return;
    }
    int32_t s = open_real(c, &r, &e);
    if (s) {
        check_begin(c, R5, "model", "%s", "");
        check_end(c, CHECK_FAIL, e.message);
    }
    for (uint32_t act = check_next_act(c, 0); !s && act && !c->stopped;
         act = check_next_act(c, act)) {
        run_mode(c, &r, act);
        if (!r.model.blocks) break; /* the act mode says nothing */
    }
    close_real(&r);
}
