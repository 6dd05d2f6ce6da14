/* cmd_opcheck - fakrun opcheck: the conformance rungs.  The backend is loaded in a child, this program
 * again as "fakrun opcheck-rungs", which tells what it does a line at a time: a crash or a hang there is
 * a failed check here.  Where no child can be had the rungs run in this process. */
#include "cmd_opcheck.h"
#include "evidence.h"
#include "model.h"
#include "opcheck_out.h"
#include "port.h"
#include "progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the command line ---- */

/* "threads=the driver": what is excepted, and whose it is. */
static int32_t check_exceptions(const arg_list *except, fak_error *e)
{
    for (uint32_t i = 0; i < except->count; i++) {
        const char *text = except->at[i];
        size_t n = strcspn(text, "=");
        int known = 0;
        for (int k = 0; check_manner[k]; k++)
            known |= strlen(check_manner[k]) == n && !strncmp(check_manner[k], text, n);
        if (!known || !text[n] || !text[n + 1])
            return status_set(e, STATUS_REFUSED,
                              "--except takes MANNER=WHOSE, such as \"threads=the driver\", not "
                              "\"%.60s\"; fakrun opcheck --help has the manners",
                              text);
    }
    return FAK_OK;
}

int opcheck_parse(opcheck_options *o, int argc, char **argv)
{
    choose_options *c = &o->backend;
    /* clang-format off */
    const arg table[] = {
        {0, "backend", ARG_TEXT, "NAME[:DEV]", "a backend that is found by its name, instead of a FILE", &c->backend, 0, 0, NULL},
        {0, "device", ARG_NUMBER, "N", "the number of the device of FILE (default 0)", &o->device, 0, 1000, NULL},
        {'o', "option", ARG_LIST, "NAME=VALUE", "an option of the backend", &c->settings, 0, 0, NULL},
        {'m', "model", ARG_TEXT, "FILE", "rung R5 too, on this GGUF model", &o->model_path, 0, 0, NULL},
        {0, "except", ARG_LIST, "MANNER=WHOSE", "the vendor's own runtime may: threads, exit handlers, ...", &o->except, 0, 0, NULL},
        {0, "rungs", ARG_NUMBERS, "N,N", "R0 and these rungs only; that is no evidence (default: all)", &o->rungs, 0, 6, NULL},
        {0, "seed", ARG_NUMBER, "N", "draw the same inputs again (default: from the clock)", &o->seed, 1, UINT32_MAX, NULL},
        {0, "probe-seconds", ARG_NUMBER, "N", "how long a check of R0 may take (default 20)", &c->probe_seconds, 1, 600, NULL},
        {0, "seconds", ARG_NUMBER, "N", "how long any other check may take (default 120)", &o->seconds, 1, 3600, NULL},
        {0, "trust", ARG_FLAG, NULL, "take files and folders whoever owns or may write them", &c->trusted, 0, 0, NULL},
        {0, "json", ARG_TEXT, "FILE", "write evidence to a file; - is standard output, without the table", &o->json, 0, 0, NULL},
        {'q', "quiet", ARG_FLAG, NULL, "no progress", &c->quiet, 0, 0, NULL},
        {'v', "verbose", ARG_FLAG, NULL, "every check, also those that passed", &o->verbose, 0, 0, NULL},
    };
    /* clang-format on */
    const args a = {
        .usage = "usage: fakrun opcheck FILE.so [options]    or: fakrun opcheck --backend NAME",
        .about =
            "Is a backend what it says?  Needs nothing but the backend:\n"
            "  R0 load and manners; R1 every op by every dtype and awkward shape; R2 what it\n"
            "  claims; R3 a tiny model: prefill, split, decode, greedy, batch, clone, truncate,\n"
            "  evict; R4 errors; R5 the real model (-m); R6 the speed of ops.\n"
            "Class reference must be bit for bit the reference; class approx within the bounds of\n"
            "its mode (abi/README.md).  A check passes, fails, or abstains where there is nothing\n"
            "to judge by.  Exit codes: 0 no check failed; 1 some did; 2 refused before work.\n"
            "Manners that --except takes: environment variables, locale, working directory,\n"
            "signal handlers, file mode mask, child processes, threads, open files,\n"
            "floating-point mode, thread exit, exit handlers, standard output, standard error.",
        .examples = "  fakrun opcheck ./fak-backend-x.so\n"
                    "  fakrun opcheck ./fak-backend-x.so -m model.gguf --json x.json\n"
                    "  fakrun opcheck --backend cpu-ref -o fused=1 -v\n"
                    "  fakrun opcheck ./fak-backend-x.so --except 'threads=the driver'\n",
        .table = table,
        .count = sizeof table / sizeof *table,
        .operands = 1,
        .may_lack = 1};
    fak_error e;
    int rc = cmd_parse(&a, argc, argv, &o->file);
    if (rc >= 0) return rc;
    if (!o->file == !c->backend) {
        status_set(&e, STATUS_REFUSED, "%s; %s",
                   o->file ? "a FILE and --backend are given: one of them is meant"
                           : "no backend is given",
                   a.usage);
        return cmd_fail(&e);
    }
    return check_exceptions(&o->except, &e) ? cmd_fail(&e) : -1;
}

/* ---- here: what the child says ---- */

typedef struct listener {
    opcheck_options o;
    opcheck_result result;
    char stage[200], refused[244];
    int ended;
    double seconds; /* that the next line may take */
    progress progress;
} listener;

static void listen(void *self, char *line)
{
    listener *l = self;
    char *rest = strchr(line, ' ');
    if (!rest) return;
    *rest++ = 0;
    if (!strcmp(line, "stage")) {
        snprintf(l->stage, sizeof l->stage, "%s", rest);
        l->seconds = rest[1] == '0' ? l->o.backend.probe_seconds : l->o.seconds;
        progress_say(&l->progress, rest);
    } else if (!strcmp(line, "row")) {
        opcheck_take_row(&l->result, json_loads(rest, JSON_DECODE_ANY, NULL), &l->o.except);
    } else if (!strcmp(line, "head")) {
        opcheck_take_head(&l->result, json_loads(rest, 0, NULL));
    } else if (!strcmp(line, "refused")) {
        snprintf(l->refused, sizeof l->refused, "%s", rest);
    } else if (!strcmp(line, "end")) {
        l->ended = 1;
    }
}

/* A check that never came to its end. */
static void broke(listener *l, const port_result *r)
{
    char name[32], why[160];
    if (r->end == PORT_TIMEOUT)
        snprintf(why, sizeof why, "it did not answer within %g s", l->seconds);
    else if (r->end == PORT_SIGNAL)
        snprintf(why, sizeof why, "it crashed (%s)",
                 port_signal_name(r->number, name, sizeof name));
    else
        snprintf(why, sizeof why, "it ended the process with status %d", r->number);
    opcheck_take_row(&l->result, opcheck_broken(l->stage, why), &l->o.except);
}

static int32_t run_child(listener *l, int argc, char **argv, int *has_run, fak_error *e)
{
    /* what glibc keeps of freed memory for a thread would count as used, and hide a small leak */
    static char setting[] = "GLIBC_TUNABLES=glibc.malloc.tcache_count=0";
    char self[4096], seed[16];
    char **words = calloc((size_t)argc + 4, sizeof *words);
    *has_run = 0;
    if (!words) return status_memory(e, "a command line", (uint64_t)argc * sizeof *words);
    if (port_executable(self, sizeof self)) {
        free(words);
        return FAK_OK;
    }
    int n = 0;
    words[n++] = self;
    words[n++] = (char *)(uintptr_t) "opcheck-rungs";
    snprintf(seed, sizeof seed, "%" PRIu32, l->o.seed);
    words[n++] = (char *)(uintptr_t) "--seed";
    words[n++] = seed;
    for (int i = 1; i < argc; i++)
        words[n++] = argv[i]; /* an own --seed comes later and is the same */
    snprintf(l->stage, sizeof l->stage, "R0 load");
    l->seconds = l->o.backend.probe_seconds;
    port_result r = port_run_lines(words, setting, &l->seconds, listen, l);
    free(words);
    if (r.end == PORT_NOT_STARTED) return FAK_OK;
    *has_run = 1;
    if (l->refused[0]) return status_set(e, STATUS_REFUSED, "%s", l->refused);
    if (!l->ended || r.end != PORT_EXIT || r.number != EXIT_DONE) broke(l, &r);
    return FAK_OK;
}

/* A file that is no model says nothing about a backend. */
static int32_t check_model(const char *path, fak_error *e)
{
    gguf *file = NULL;
    model m = {0};
    int32_t s = path ? gguf_open(&file, path, e) : FAK_OK;
    if (!s && path) s = model_open(&m, file, 0, 0, e);
    model_close(&m);
    gguf_close(file);
    return s;
}

int cmd_opcheck(int argc, char **argv, const environment *env)
{
    listener l = {0};
    fak_error e = {0};
    int has_run = 0;
    double start = port_seconds();
    int rc = opcheck_parse(&l.o, argc, argv);
    if (rc >= 0) return rc;
    if (!l.o.backend.probe_seconds) l.o.backend.probe_seconds = PLUGIN_PROBE_SECONDS;
    if (!l.o.seconds) l.o.seconds = 120;
    if (!l.o.seed) l.o.seed = (uint32_t)time(NULL) * 2 + 1;
    progress_start(&l.progress, "", 1, l.o.backend.quiet);
    int32_t s = check_model(l.o.model_path, &e);
    if (!s) s = run_child(&l, argc, argv, &has_run, &e);
    if (!s && !has_run) s = opcheck_here(&l.o, argc, argv, env, listen, &l, &e);
    progress_end(&l.progress);
    if (!s) {
        opcheck_finish(&l.result, &(opcheck_facts){.argc = argc,
                                                   .argv = argv,
                                                   .seed = l.o.seed,
                                                   .model_path = l.o.model_path,
                                                   .rungs = &l.o.rungs,
                                                   .seconds = port_seconds() - start});
        if (!l.o.json || strcmp(l.o.json, "-")) opcheck_print(&l.result, l.o.verbose, stdout);
        if (l.o.json) s = evidence_write(json_incref(l.result.evidence), l.o.json, &e);
    }
    rc = s ? cmd_fail(&e) : cmd_printed(l.result.failed ? EXIT_FAILED : EXIT_DONE);
    opcheck_free(&l.result);
    return rc;
}
