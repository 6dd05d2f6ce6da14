/* cmd_opcheck - fakrun opcheck: the conformance rungs.  The backend is loaded in a child, this program
 * again as "fakrun opcheck-rungs", which tells what it does a line at a time: a crash or a hang there is
 * a failed check here.  Where no child can be had the rungs run in this process. */
#include "cmd.h"
#include "evidence.h"
#include "opcheck.h"
#include "opcheck_out.h"
#include "port.h"
#include "progress.h"
#include "watch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct options {
    const char *file, *model_path, *json;
    choose_options backend;
    arg_list except; /* manners: NAME=WHOSE */
    uint32_t seed, seconds, device;
    int verbose;
} options;

static int parse(options *o, int argc, char **argv)
{
    choose_options *c = &o->backend;
    /* clang-format off */
    const arg table[] = {
        {0, "backend", ARG_TEXT, "NAME[:DEV]", "a backend that is found by its name, instead of a FILE", &c->backend, 0, 0, NULL},
        {0, "device", ARG_NUMBER, "N", "the number of the device of FILE (default 0)", &o->device, 0, 1000, NULL},
        {'o', "option", ARG_LIST, "NAME=VALUE", "an option of the backend", &c->settings, 0, 0, NULL},
        {'m', "model", ARG_TEXT, "FILE", "rung R5 too, on this GGUF model", &o->model_path, 0, 0, NULL},
        {0, "except", ARG_LIST, "MANNER=WHOSE", "the vendor's own runtime may: threads, exit handlers, ...", &o->except, 0, 0, NULL},
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
            "to judge by.  Exit codes: 0 no check failed; 1 some did; 2 refused before work.",
        .examples = "  fakrun opcheck ./fak-backend-x.so\n"
                    "  fakrun opcheck ./fak-backend-x.so -m model.gguf --json x.json\n"
                    "  fakrun opcheck --backend cpu-ref -o fused=1 -v\n",
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
    return -1;
}

/* ---- the rungs: in the child, or here ---- */

typedef struct rungs {
    const options *o;
    int argc;
    char **argv;
    check c;
    plugins all;
    device host;
    char text[32][256], name[SEARCH_NAME_MAX + 1];
    fak_setting set[33];
    const void *inside; /* an address of the plugin's code; NULL where it is linked in */
    fak_error error;
    void (*say)(void *self, char *line);
    void *self;
} rungs;

static void say(rungs *r, const char *kind, json_t *value, const char *word)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    const char *what = text ? text : word;
    char *line = malloc(strlen(kind) + strlen(what) + 2);
    if (line) {
        sprintf(line, "%s %s", kind, what);
        r->say(r->self, line);
    }
    free(line);
    free(text);
    json_decref(value);
}

static void on_stage(void *self, const char *what)
{
    say(self, "stage", NULL, what);
}

static void on_row(void *self, const check_row *row)
{
    say(self, "row", opcheck_row(row), "null");
}

static void on_open(void *self, const device *d)
{
    rungs *r = self;
    memcpy(&r->inside, &d->api.open, sizeof r->inside);
    if (!r->c.plugin->path) r->inside = NULL;
    say(r, "head", evidence_head("opcheck", r->argc, r->argv, d, &r->o->backend.settings), "null");
}

/* The plugin that is asked for, and which of its devices. */
static int32_t find(rungs *r, const environment *env, fak_error *e)
{
    static const plugin_host services = {0};
    const options *o = r->o;
    plugin_search where = {o->file, env->plugin_path, o->backend.trusted};
    int32_t s = plugins_open(&r->all, &where, &services, e);
    if (s) return s;
    plugin *ref = plugins_linked_in(&r->all, "cpu-ref");
    if (!ref) return status_set(e, STATUS_REFUSED, "no reference is linked in");
    r->c.plugin = o->file ? &r->all.at[0] : NULL;
    if (!o->file) {
        const char *colon = strchr(o->backend.backend, ':');
        size_t n = colon ? (size_t)(colon - o->backend.backend) : strlen(o->backend.backend);
        if (n < sizeof r->name) memcpy(r->name, o->backend.backend, n);
        r->c.plugin = plugins_find(&r->all, r->name);
        if (!r->c.plugin)
            return status_set(e, STATUS_REFUSED,
                              "there is no backend \"%.60s\"; see fakrun backends",
                              o->backend.backend);
        r->c.index = colon ? (uint32_t)strtoul(colon + 1, NULL, 10) : 0;
    } else {
        r->c.index = o->device;
    }
    if ((s = choose_settings(&o->backend.settings, r->text, r->set, e))) return s;
    if ((s = plugin_load(&r->all, ref, e))) return s;
    return device_open(&r->host, ref, 0, NULL, 0, e);
}

static void run(void *self)
{
    rungs *r = self;
    check *c = &r->c;
    c->all = &r->all;
    c->set = r->set;
    c->sets = r->o->backend.settings.count;
    c->host = &r->host;
    c->model_path = r->o->model_path;
    c->seed = r->o->seed;
    c->on_stage = on_stage;
    c->on_row = on_row;
    c->on_open = on_open;
    c->self = r;
    opcheck_run(c);
    if (r->inside) watch_seal(r->inside); /* nothing of it may run at the end of this thread */
}

static void manner(rungs *r, const char *what, int ran, const char *sentence)
{
    check_begin(&r->c, R0, "manners", "%s", what);
    if (!r->inside)
        check_end(&r->c, CHECK_ABSTAIN, "it is linked in: its code cannot be told from the host's");
    else
        check_end(&r->c, ran ? CHECK_FAIL : CHECK_PASS, ran ? sentence : NULL);
}

static void prints(rungs *r, const char *what, long long bytes)
{
    char sentence[64];
    if (!r->c.plugin || r->c.plugin->state != PLUGIN_LOADED) return;
    snprintf(sentence, sizeof sentence, "it prints %lld bytes to %s", bytes, what);
    check_begin(&r->c, R0, "manners", "%s", what);
    check_end(&r->c, bytes > 0 ? CHECK_FAIL : CHECK_PASS, bytes > 0 ? sentence : NULL);
}

static rungs *at_end; /* for what is run when the process exits */

/* Registered before the plugin was loaded, so that it runs after what the plugin has registered. */
static void sentinel(void)
{
    if (!at_end) return;
    if (at_end->inside)
        manner(at_end, "exit handlers", watch_ran(), "code of it runs when the process exits");
    watch_unseal();
    say(at_end, "end", NULL, "");
}

static void say_line(void *self, char *line)
{
    dprintf(*(int *)self, "%s\n", line);
}

int cmd_opcheck_rungs(int argc, char **argv, const environment *env)
{
    static options o;
    static rungs r;
    static int out;
    fak_error e = {0};
    o = (options){.seed = 1};
    out = port_hide_output();
    if (out < 0 || port_hide_errors() || parse(&o, argc, argv) >= 0) return EXIT_REFUSED;
    r = (rungs){.o = &o, .argc = argc, .argv = argv, .say = say_line, .self = &out};
    atexit(sentinel);
    watch_one_heap();
    if (find(&r, env, &e)) {
        say(&r, "refused", NULL, e.message);
        return EXIT_REFUSED;
    }
    if (port_in_thread(run, &r)) return EXIT_FAILED;
    if (r.c.plugin->state == PLUGIN_LOADED && r.inside)
        manner(&r, "thread exit", watch_ran(), "code of it runs when a thread that called it ends");
    fflush(NULL);
    prints(&r, "standard output", port_hidden_bytes());
    prints(&r, "standard error", port_hidden_error_bytes());
    device_close(&r.host);
    watch_unseal();
    if (r.inside) watch_seal(r.inside);
    at_end = &r;
    return EXIT_DONE;
}

/* ---- here: what the child says ---- */

typedef struct listener {
    options o;
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
    port_result r = port_run_lines(words, &l->seconds, listen, l);
    free(words);
    if (r.end == PORT_NOT_STARTED) return FAK_OK;
    *has_run = 1;
    if (l->refused[0]) return status_set(e, STATUS_REFUSED, "%s", l->refused);
    if (!l->ended || r.end != PORT_EXIT || r.number != EXIT_DONE) broke(l, &r);
    return FAK_OK;
}

static int32_t run_here(listener *l, int argc, char **argv, const environment *env, fak_error *e)
{
    rungs r = {.o = &l->o, .argc = argc, .argv = argv, .say = listen, .self = l};
    int32_t s = find(&r, env, e);
    if (!s) run(&r);
    watch_unseal();
    device_close(&r.host);
    plugins_close(&r.all);
    return s;
}

int cmd_opcheck(int argc, char **argv, const environment *env)
{
    listener l = {0};
    fak_error e = {0};
    int has_run = 0;
    double start = port_seconds();
    int rc = parse(&l.o, argc, argv);
    if (rc >= 0) return rc;
    if (!l.o.backend.probe_seconds) l.o.backend.probe_seconds = PLUGIN_PROBE_SECONDS;
    if (!l.o.seconds) l.o.seconds = 120;
    if (!l.o.seed) l.o.seed = (uint32_t)time(NULL) | 1u;
    progress_start(&l.progress, "", 1, l.o.backend.quiet);
    int32_t s = run_child(&l, argc, argv, &has_run, &e);
    if (!s && !has_run) s = run_here(&l, argc, argv, env, &e);
    progress_end(&l.progress);
    if (!s) {
        opcheck_finish(&l.result, &(opcheck_facts){.argc = argc,
                                                   .argv = argv,
                                                   .seed = l.o.seed,
                                                   .model_path = l.o.model_path,
                                                   .seconds = port_seconds() - start});
        if (!l.o.json || strcmp(l.o.json, "-")) opcheck_print(&l.result, l.o.verbose, stdout);
        if (l.o.json) s = evidence_write(json_incref(l.result.evidence), l.o.json, &e);
    }
    rc = s ? cmd_fail(&e) : cmd_printed(l.result.failed ? EXIT_FAILED : EXIT_DONE);
    opcheck_free(&l.result);
    return rc;
}
