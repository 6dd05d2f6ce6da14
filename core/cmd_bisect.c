/* cmd_bisect - fakrun bisect -m MODEL --backend X: the first op in which a device parts from the
 * reference, by lockstep.  The report goes to standard output, whether something parted or not. */
#include "cmd.h"
#include "json_out.h"
#include "lockstep.h"
#include "progress.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct bisect {
    /* what was asked */
    uint32_t greedy, rows;
    int json;
    choose_options backend;
    /* what was opened */
    cmd_input in;
    choice choice;
    lockstep l;
    /* on the way */
    uint64_t prompt_steps; /* of l.steps, once all of it is fed; the rest are greedy decode */
    uint32_t fed;          /* ids: the prompt's and the greedy ones */
    progress progress;
} bisect;

/* ---- the command line ---- */

/* Letters, capitals, digits, punctuation and a word in UTF-8: whatever they are cut into. */
static const char sentence[] =
    "The quick brown fox jumps over the lazy dog; in 1984 it was na\xc3\xafve.";

static const char examples[] =
    "  fakrun bisect -m model.gguf --backend cuda\n"
    "  fakrun bisect -m model.gguf --backend-path ./fak-backend-mine.so -o fused=0 --act f32\n"
    "  fakrun bisect -m model.gguf --backend mine -f long.txt --rows 64 -n 100 --json\n";

static int32_t check_asked(bisect *b, const char *usage, const environment *env, fak_error *e)
{
    const choose_options *o = &b->backend;
    if (!b->in.text && !b->in.file) b->in.text = sentence;
    int32_t s = cmd_input_check(&b->in, usage, e);
    if (s || o->backend || o->backend_path || o->settings.count || (env->backend && *env->backend))
        return s;
    return status_set(e, STATUS_REFUSED,
                      "name the backend that is compared: --backend NAME or --backend-path FILE");
}

static int parse(bisect *b, int argc, char **argv, const environment *env)
{
    /* clang-format off */
    const arg table[] = {
        CMD_MODEL_ARGS(&b->in),
        {'p', "prompt", ARG_TEXT, "TEXT", "the text to step through (default: a sentence)", &b->in.text, 0, 0, NULL},
        {'f', "file", ARG_TEXT, "FILE", "read the text from a file; - is standard input", &b->in.file, 0, 0, NULL},
        {'n', "steps", ARG_NUMBER, "N", "steps of greedy decode after the text (default 16)", &b->greedy, 0, 1u << 20, NULL},
        {0, "rows", ARG_NUMBER, "N", "most rows of a step of the text (default 16)", &b->rows, 1, 4096, NULL},
        CMD_LOAD_ARGS(&b->in),
        {0, "json", ARG_FLAG, NULL, "print one JSON object", &b->json, 0, 0, NULL},
        CHOOSE_ARGS(&b->backend),
    };
    /* clang-format on */
    const args a = {
        "usage: fakrun bisect -m MODEL (--backend NAME | --backend-path FILE) [options]",
        "Runs a text, then greedy decode, through a device and the reference in lockstep: every\n"
        "op gets the reference's own inputs, and the first whose output is past the bound of its\n"
        "class (reference: bit for bit) is named: step, layer, op, weights, shapes, the worst\n"
        "element.  A plugin that claims class reference is not asked to prove it first.\n"
        "Exit codes: 0 no op parted; 1 one did, or the work failed; 2 refused before work.",
        examples,
        table,
        sizeof table / sizeof *table,
        0,
        0};
    fak_error e;
    int rc = cmd_parse(&a, argc, argv, NULL);
    if (rc >= 0) return rc;
    return check_asked(b, a.usage, env, &e) ? cmd_fail(&e) : -1;
}

/* ---- the work ---- */

static int32_t open_all(bisect *b, const environment *env, fak_error *e)
{
    session_options o = cmd_input_session(&b->in);
    int32_t s;
    o.rows = b->rows;
    b->backend.unproven = 1; /* finding what is wrong with it is what this command is for */
    if ((s = choose_open(&b->choice, &b->backend, env, e)) || (s = cmd_input_open(&b->in, e)))
        return s;
    cmd_heeds_interrupts = 1;
    if (!b->backend.quiet) choose_print(&b->choice, stderr);
    uint32_t left = b->in.model.context - (uint32_t)b->in.prompt.count;
    if (b->greedy > left) b->greedy = left;
    s = lockstep_open(&b->l, &b->in.model, &b->choice.device, &b->choice.host, &o, e);
    const program *p = &b->l.dev.program;
    if (!s && b->backend.verbose && p->holes)
        fprintf(stderr, "fakrun: %" PRIu32 " of %" PRIu32 " ops are left to the host's reference\n",
                p->holes, p->ops);
    return s;
}

/* Ids in steps of their own, so that a Ctrl-C is heard and progress is shown between them. */
static int32_t feed(bisect *b, const uint32_t *id, uint32_t count, uint32_t want, fak_error *e)
{
    uint32_t most = session_step_rows(&b->l.dev);
    int32_t s = FAK_OK;
    for (uint32_t done = 0, rows; !s && done < count; done += rows) {
        rows = count - done < most ? count - done : most;
        if (cmd_interrupted) return status_set(e, FAK_E_CANCELLED, "interrupted");
        s = lockstep_feed(&b->l, id + done, rows, want, e);
        if (!s) b->fed += rows;
        progress_show(&b->progress, b->fed);
    }
    return s;
}

/* The text with logits, its last id and what follows with ids: both tails are run. */
static int32_t step_through(bisect *b, fak_error *e)
{
    uint32_t last = (uint32_t)b->in.prompt.count - 1;
    progress_start(&b->progress, "comparing", (uint64_t)last + 1 + b->greedy, b->backend.quiet);
    int32_t s = feed(b, b->in.prompt.id, last, FAK_WANT_LOGITS, e);
    if (!s) s = feed(b, b->in.prompt.id + last, 1, FAK_WANT_ARGMAX, e);
    if (!s) b->prompt_steps = b->l.steps;
    for (uint32_t i = 0; !s && i < b->greedy; i++) {
        uint32_t id = lockstep_next(&b->l);
        if (id >= b->in.model.vocab)
            s = status_set(e, STATUS_NAN,
                           "the reference's own logits hold a NaN after %" PRIu32
                           " ids: the model is at fault, not backend %s",
                           b->fed, b->choice.device.from->name);
        if (!s) s = feed(b, &id, 1, FAK_WANT_ARGMAX, e);
    }
    progress_end(&b->progress);
    return s;
}

/* ---- what is told of it ---- */

static int is_prefill(const bisect *b)
{
    return !b->prompt_steps || b->l.part.step < b->prompt_steps;
}

static const char *const where_name[] = {"output", "ids", "keys", "values"};

/* The i-th weight among an op's inputs, or NULL. */
static const char *weight_name(const bisect *b, const fak_op *o, uint32_t i)
{
    const program *p = &b->l.dev.program;
    for (uint32_t j = 0; j < OP_INPUTS; j++) {
        uint32_t index = o->in[j] ? p->fused.weight[o->in[j]] : FAK_NO_INDEX;
        if (index != FAK_NO_INDEX && !i--) return p->m->weights.at[index].name;
    }
    return NULL;
}

/* An attention whose keys could not be looked at may not be the one at fault. */
static const char *hint(const bisect *b)
{
    uint32_t id = b->l.dev.program.op[b->l.part.op].id;
    if (id == FAK_OP_ATTENTION && !b->choice.device.api.kv_read)
        return "the backend has no kv_read, so what its kv_append kept in this layer was not seen: "
               "it may be that which parted";
    if (ops_find(id)->parts)
        return "it is a fused op: leave it out of the op table to learn which of its parts it is";
    return NULL;
}

static void print_figures(const gate_figures *f, const gate_bound *bound)
{
    printf("figures   %" PRIu64 " of %" PRIu64 " values differ", f->differ, f->values);
    if (bound->exact)
        printf(" (class reference: none may)");
    else
        printf("; relative L2 %.3g (at most %.3g), worst difference %.3g of its row's RMS (at most "
               "%.3g; %s)",
               f->rel_l2, bound->op_l2, f->element, GATE_ELEMENT * bound->op_l2, bound->mode);
    putchar('\n');
}

static void print_worst(const lockstep_part *p)
{
    const gate_figures *f = &p->figures;
    printf("worst     row %" PRIu32 " (position %" PRIu32 ")", f->row, p->first + f->row);
    if (p->where == PART_IDS)
        printf(": id %" PRIu32 " where the reference gives %" PRIu32 "\n", p->got_id, p->want_id);
    else
        printf(", column %" PRIu32 ": %.9g where the reference gives %.9g\n", f->col,
               (double)f->got, (double)f->want);
}

static void print_op(const bisect *b, const fak_op *o)
{
    const op_info *info = ops_find(o->id);
    const lockstep_part *p = &b->l.part;
    char text[200];
    printf("op        %" PRIu32 ", %s", p->op, lockstep_op_text(&b->l.dev.program, p->op, text));
    for (uint32_t k = 0; k < info->parts; k++)
        printf("%s%s", k ? ", " : " (fused: ", ops_name(info->part[k].id));
    printf("%s\n", info->parts ? ")" : "");
    for (uint32_t i = 0; weight_name(b, o, i); i++)
        printf("%s%s", i ? ", " : "weights   ", weight_name(b, o, i));
    if (weight_name(b, o, 0)) putchar('\n');
    printf("shapes    %s\n", lockstep_shapes_text(&b->l.dev.program, p->op, p->rows, text));
}

static void print_text(const bisect *b)
{
    const lockstep *l = &b->l;
    const lockstep_part *p = &l->part;
    const gate_figures *w = &l->worst;
    uint64_t host = l->dev.exec.ops[SIDE_HOST];
    if (l->failed) {
        printf("%s parts from the reference in step %" PRIu64 " (%s, positions %" PRIu32
               " to %" PRIu32 "): its %s\n",
               b->choice.device.from->name, p->step, is_prefill(b) ? "prefill" : "decode", p->first,
               p->first + p->rows - 1, where_name[p->where]);
        print_op(b, &l->dev.program.op[p->op]);
        print_worst(p);
        if (p->where != PART_IDS) print_figures(&p->figures, &p->bound);
        if (hint(b)) printf("note      %s\n", hint(b));
        printf("compared  %" PRIu64 " ops in %" PRIu64 " whole steps before it", l->ops - 1,
               l->steps);
    } else {
        printf("no op parted in %" PRIu64 " steps, %" PRIu64 " ops compared", l->steps, l->ops);
    }
    if (host) printf(", %" PRIu64 " left to the host's reference", host);
    if (l->unseen) printf(", kv of %" PRIu64 " not seen: the backend has no kv_read", l->unseen);
    if (!l->failed && !w->differ) printf("; all %" PRIu64 " values are equal", w->values);
    if (!l->failed && w->differ)
        printf("; %" PRIu64 " of %" PRIu64 " values differ, worst: relative L2 %.3g, difference "
               "%.3g of a row's RMS",
               w->differ, w->values, w->rel_l2, w->element);
    putchar('\n');
}

/* JSON has no infinity and no NaN: they are told as words. */
static json_t *json_float(double x)
{
    if (isfinite(x)) return json_real(x);
    return json_string(isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
}

static json_t *json_figures(const gate_figures *f)
{
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "values", (json_int_t)f->values,
                     "differ", (json_int_t)f->differ, "rel_l2", json_float(f->rel_l2), "element",
                     json_float(f->element), "max_abs", json_float(f->max_abs), "cosine",
                     json_float(f->cosine), "norm_ratio", json_float(f->norm_ratio));
}

static json_t *json_part(const bisect *b, const fak_error *e)
{
    const lockstep_part *p = &b->l.part;
    const program *dev = &b->l.dev.program;
    const fak_op *o = &dev->op[p->op];
    const gate_figures *f = &p->figures;
    char shapes[200];
    json_t *names = json_array();
    for (uint32_t i = 0; weight_name(b, o, i); i++)
        json_array_append_new(names, json_string(weight_name(b, o, i)));
    json_t *all = json_pack("{s:I, s:s, s:I, s:I, s:I, s:s, s:o, s:s, s:o, s:s, s:s}", "step",
                            (json_int_t)p->step, "phase", is_prefill(b) ? "prefill" : "decode",
                            "first", (json_int_t)p->first, "rows", (json_int_t)p->rows, "op",
                            (json_int_t)p->op, "id", ops_name(o->id), "layer",
                            o->layer == FAK_NO_INDEX ? json_null() : json_integer(o->layer), "what",
                            where_name[p->where], "weights", names, "shapes",
                            lockstep_shapes_text(dev, p->op, p->rows, shapes), "why", e->message);
    json_object_set_new(all, "row", json_integer(f->row));
    if (p->where == PART_IDS) {
        json_object_set_new(all, "got", json_integer(p->got_id));
        json_object_set_new(all, "want", json_integer(p->want_id));
    } else {
        json_object_set_new(all, "figures", json_figures(f));
        json_object_set_new(all, "col", json_integer(f->col));
        json_object_set_new(all, "got", json_float((double)f->got));
        json_object_set_new(all, "want", json_float((double)f->want));
    }
    if (!p->bound.exact)
        json_object_set_new(all, "bound",
                            json_pack("{s:s, s:f, s:f}", "mode", p->bound.mode, "rel_l2",
                                      p->bound.op_l2, "element", GATE_ELEMENT * p->bound.op_l2));
    if (hint(b)) json_object_set_new(all, "note", json_string(hint(b)));
    return all;
}

static json_t *report(const bisect *b, const fak_error *e)
{
    const device *d = &b->choice.device;
    const lockstep *l = &b->l;
    return json_pack("{s:b, s:{s:s, s:o, s:s, s:s}, s:I, s:I, s:I, s:I, s:o, s:o}", "parted",
                     l->failed, "backend", "name", d->from->name, "device",
                     json_out_text(d->info.id, strlen(d->info.id)), "class",
                     device_class_name(d->facts.klass), "kind", device_kind_name(d->info.kind),
                     "steps", (json_int_t)l->steps, "ops", (json_int_t)l->ops, "unseen",
                     (json_int_t)l->unseen, "host", (json_int_t)l->dev.exec.ops[SIDE_HOST], "worst",
                     json_figures(&l->worst), "part", l->failed ? json_part(b, e) : json_null());
}

/* ---- the command ---- */

int cmd_bisect(int argc, char **argv, const environment *env)
{
    bisect b = {.greedy = 16, .rows = 16};
    fak_error e = {0};
    int rc = parse(&b, argc, argv, env);
    if (rc >= 0) return rc;
    int32_t s = open_all(&b, env, &e);
    if (s && b.choice.all.found.folders && b.choice.not_found && !b.backend.quiet)
        choose_print_folders(&b.choice, stderr);
    if (!s) s = step_through(&b, &e);
    if (s && !b.l.failed) {
        rc = s == FAK_E_CANCELLED && cmd_interrupted ? EXIT_INTERRUPTED : cmd_fail(&e);
    } else {
        int broken = b.json && json_out_print(report(&b, &e));
        if (!b.json) print_text(&b);
        if (broken) fprintf(stderr, "fakrun: the result could not be written\n");
        rc = broken ? EXIT_FAILED : cmd_printed(s ? EXIT_FAILED : EXIT_DONE);
    }
    lockstep_close(&b.l);
    choose_close(&b.choice);
    cmd_input_close(&b.in);
    return rc;
}
