/* cmd_opcheck_rungs - the child of fakrun opcheck, in which the backend is loaded: see cmd_opcheck.h. */
#include "cmd_opcheck.h"
#include "evidence.h"
#include "opcheck.h"
#include "opcheck_out.h"
#include "port.h"
#include "watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rungs {
    const opcheck_options *o;
    int argc;
    char **argv;
    check c;
    plugins all;
    device host;
    char text[32][256], name[SEARCH_NAME_MAX + 1];
    fak_setting set[33];
    const void *inside; /* an address of the plugin's code; NULL where it is linked in */
    int sealed;
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

/* Sentences name the file as it is called: evidence has no place of one machine. */
static void cut_folder(char *text, const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    for (char *at = text; n && (at = strstr(at, path));) {
        size_t whole = strlen(path);
        memmove(at, path + n, whole - n);
        memmove(at + whole - n, at + whole, strlen(at + whole) + 1);
        at += whole - n;
    }
}

static void on_row(void *self, const check_row *row)
{
    rungs *r = self;
    check_row mine = *row;
    cut_folder(mine.reason, r->c.plugin->path);
    cut_folder(mine.reason, r->c.model_path);
    say(self, "row", opcheck_row(&mine), "null");
}

static void on_open(void *self, const device *d)
{
    rungs *r = self;
    memcpy(&r->inside, &d->api.open, sizeof r->inside);
    if (!r->c.plugin->path) r->inside = NULL;
    say(r, "head", evidence_head("opcheck", r->argc, r->argv, d, &r->o->backend.settings), "null");
}

/* ---- what is asked for ---- */

/* The backend of --backend NAME[:NUMBER]. */
static int32_t find_named(rungs *r, const char *text, fak_error *e)
{
    const char *colon = strchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    char *end = NULL;
    if (n < sizeof r->name) memcpy(r->name, text, n);
    r->c.plugin = plugins_find(&r->all, r->name);
    if (!r->c.plugin)
        return status_set(e, STATUS_REFUSED, "there is no backend \"%.60s\"; see fakrun backends",
                          text);
    if (!colon) return FAK_OK;
    unsigned long index = strtoul(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end || index > 1000)
        return status_set(e, STATUS_REFUSED,
                          "--backend takes NAME or NAME:NUMBER here, not \"%.60s\"", text);
    r->c.index = (uint32_t)index;
    return FAK_OK;
}

/* The plugin that is asked for, and which of its devices. */
static int32_t find(rungs *r, const environment *env, fak_error *e)
{
    static const plugin_host services = {0};
    const opcheck_options *o = r->o;
    plugin_search where = {o->file, env->plugin_path, o->backend.trusted};
    int32_t s = plugins_open(&r->all, &where, &services, e);
    if (s) return s;
    plugin *ref = plugins_linked_in(&r->all, "cpu-ref");
    if (!ref) return status_set(e, STATUS_REFUSED, "no reference is linked in");
    if (o->file) {
        r->c.plugin = &r->all.at[0];
        r->c.index = o->device;
    } else if ((s = find_named(r, o->backend.backend, e))) {
        return s;
    }
    if (r->c.plugin->state == PLUGIN_REFUSED) return plugin_check(r->c.plugin, e);
    if ((s = choose_settings(&o->backend.settings, r->text, r->set, e))) return s;
    if ((s = plugin_load(&r->all, ref, e))) return s;
    return device_open(&r->host, ref, 0, NULL, 0, e);
}

/* ---- the rungs ---- */

static void seal(rungs *r)
{
    r->sealed = r->inside && !watch_seal(r->inside);
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
    for (uint32_t i = 0; i < r->o->rungs.count; i++) c->only |= 1u << r->o->rungs.at[i];
    c->on_stage = on_stage;
    c->on_row = on_row;
    c->on_open = on_open;
    c->self = r;
    say(r, "head", evidence_start("opcheck", r->argc, r->argv, c->plugin, &r->o->backend.settings),
        "null");
    opcheck_run(c);
    if (c->plugin->state == PLUGIN_LOADED)
        seal(r); /* nothing of it may run when this thread ends */
}

/* Has any code of it run since it was sealed? */
static void stays_quiet(rungs *r, const char *what, const char *sentence)
{
    int ran = watch_ran();
    check_begin(&r->c, R0, "manners", "%s", what);
    if (!r->inside)
        check_end(&r->c, CHECK_ABSTAIN,
                  r->c.plugin->path ? "none of its devices was opened"
                                    : "it is linked in: its code cannot be told from the host's");
    else if (!r->sealed)
        check_end(&r->c, CHECK_ABSTAIN, "cannot be seen on this system");
    else
        check_end(&r->c, ran ? CHECK_FAIL : CHECK_PASS, ran ? sentence : NULL);
}

static void prints(rungs *r, const char *what, long long bytes)
{
    char sentence[64];
    if (!r->c.plugin || r->c.plugin->state != PLUGIN_LOADED) return;
    snprintf(sentence, sizeof sentence, "it prints to %s: %lld bytes", what, bytes);
    check_begin(&r->c, R0, "manners", "%s", what);
    check_end(&r->c, bytes > 0 ? CHECK_FAIL : CHECK_PASS, bytes > 0 ? sentence : NULL);
}

static rungs *at_end; /* for what is run when the process exits */

/* Registered before the plugin was loaded, so that it runs after what the plugin has registered. */
static void sentinel(void)
{
    if (!at_end) return;
    if (at_end->c.plugin->state == PLUGIN_LOADED)
        stays_quiet(at_end, "exit handlers", "code of it runs when the process exits");
    watch_unseal();
    say(at_end, "end", NULL, "");
}

static void say_line(void *self, char *line)
{
    dprintf(*(int *)self, "%s\n", line);
}

int cmd_opcheck_rungs(int argc, char **argv, const environment *env)
{
    static opcheck_options o;
    static rungs r;
    static int out;
    fak_error e = {0};
    o = (opcheck_options){.seed = 1};
    out = port_hide_output();
    if (out < 0 || port_hide_errors() || opcheck_parse(&o, argc, argv) >= 0) return EXIT_REFUSED;
    r = (rungs){.o = &o, .argc = argc, .argv = argv, .say = say_line, .self = &out};
    atexit(sentinel);
    watch_one_heap();
    if (find(&r, env, &e)) {
        say(&r, "refused", NULL, e.message);
        return EXIT_REFUSED;
    }
    if (port_in_thread(run, &r)) return EXIT_FAILED;
    int loaded = r.c.plugin->state == PLUGIN_LOADED;
    if (loaded) stays_quiet(&r, "thread exit", "code of it runs when a thread that called it ends");
    fflush(NULL);
    prints(&r, "standard output", port_hidden_bytes());
    prints(&r, "standard error", port_hidden_error_bytes());
    device_close(&r.host);
    watch_unseal();
    seal(&r);
    at_end = &r;
    return EXIT_DONE;
}

int32_t opcheck_here(const opcheck_options *o, int argc, char **argv, const environment *env,
                     void (*say_it)(void *self, char *line), void *self, fak_error *e)
{
    rungs r = {.o = o, .argc = argc, .argv = argv, .say = say_it, .self = self};
    int32_t s = find(&r, env, e);
    if (!s) run(&r);
    watch_unseal();
    device_close(&r.host);
    plugins_close(&r.all);
    return s;
}
