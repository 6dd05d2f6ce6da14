/* choose - see choose.h. */
#include "choose.h"

#include "golden.h"
#include "verdict.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char reference[] = "cpu-ref";

static void log_line(void *self, uint32_t level, const char *sentence)
{
    const choose_options *o = self;
    if (level <= FAK_LOG_WARN ? !o->quiet : o->verbose) fprintf(stderr, "fakrun: %s\n", sentence);
}

int32_t choose_settings(const arg_list *list, char text[32][256], fak_setting *set, fak_error *e)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const char *equals = strchr(list->at[i], '=');
        if (!equals || equals == list->at[i] || strlen(list->at[i]) > 255)
            return status_set(e, STATUS_REFUSED, "-o takes name=value, not \"%.80s\"", list->at[i]);
        strcpy(text[i], list->at[i]);
        text[i][equals - list->at[i]] = 0;
        set[i] = (fak_setting){text[i], text[i] + (equals - list->at[i]) + 1};
    }
    return FAK_OK;
}

/* The names there are, for a sentence. */
static int32_t unknown(choice *c, const char *name, fak_error *e)
{
    char names[160] = "";
    c->not_found = 1;
    for (uint32_t i = 0; i < c->all.count; i++) {
        const plugin *p = &c->all.at[i];
        size_t used = strlen(names);
        if (p->state != PLUGIN_SHADOWED && used + strlen(p->name) + 3 < sizeof names)
            sprintf(names + used, "%s%s", used ? ", " : "", p->name);
    }
    return status_set(e, STATUS_REFUSED, "there is no backend \"%.60s\"; there are: %s", name,
                      names);
}

/* ---- backends that cannot be built here ---- */

/* Known by name and refused with the reason; a file of that name is used like any other.  People
 * write these names in several ways: case does not matter. */
static const struct fenced_row {
    const char *name, *alias, *needs;
} fenced[] = {
    {"metal", "mps", "Apple's toolchain with its Metal framework"},
    {"coreml", "ane", "Apple's toolchain with its Core ML framework"},
};

static const struct fenced_row *find_fenced(const char *name)
{
    for (size_t i = 0; i < sizeof fenced / sizeof *fenced; i++)
        if (!strcasecmp(name, fenced[i].name) || !strcasecmp(name, fenced[i].alias))
            return &fenced[i];
    return NULL;
}

static int32_t find_backend(choice *c, const char *name, plugin **p, fak_error *e)
{
    const struct fenced_row *f = find_fenced(name);
    *p = plugins_find(&c->all, name);
    if (!*p && f) *p = plugins_find(&c->all, f->name);
    if (*p) return FAK_OK;
    if (!f) return unknown(c, name, e);
    return status_set(e, STATUS_REFUSED,
                      "backend %s is fenced: it needs %s, which this build does not have; see "
                      "abi/SUPPORT.md",
                      f->name, f->needs);
}

static int32_t find_device(const plugin *p, const char *wanted, const fak_setting *set,
                           uint32_t sets, uint32_t *index, fak_error *e)
{
    *index = 0;
    if (!wanted) return FAK_OK;
    uint32_t count = device_count(p, set, sets, e);
    if (count && *wanted && !wanted[strspn(wanted, "0123456789")]) {
        unsigned long n = strtoul(wanted, NULL, 10);
        *index = (uint32_t)n;
        if (n < count) return FAK_OK;
        return status_set(e, STATUS_REFUSED,
                          "backend %s has %" PRIu32 " device%s; there is no number %.60s", p->name,
                          count, count == 1 ? "" : "s", wanted);
    }
    for (; *index < count; (*index)++) {
        fak_device_info info;
        if (!device_describe(p, *index, set, sets, &info, e) && !strcmp(info.id, wanted))
            return FAK_OK;
    }
    if (!count) return STATUS_REFUSED;
    return status_set(e, STATUS_REFUSED, "backend %s has no device \"%.60s\"; see fakrun backends",
                      p->name, wanted);
}

/* Of a file that claims class reference a clean verdict stands until the file is another; of others what
 * they meet outside counts, too, and may change. */
static int keeps_verdicts(const plugin *p)
{
    return p->path && p->note.there && p->note.klass == FAK_REFERENCE;
}

/* Tries a file in a child, unless it was found clean before. */
static int32_t try_once(plugin *p, const choose_options *o, const environment *env, fak_error *e)
{
    int32_t s = plugin_check(p, e);
    if (s) return s;
    int keeps = keeps_verdicts(p);
    if (keeps && verdict_is_clean(env->cache, p->path, "")) {
        p->probed = 1;
        return FAK_OK;
    }
    s = plugin_probe(p, o->probe_seconds, e);
    if (!s && keeps && p->probed && !p->unproven) verdict_keep(env->cache, p->path, "");
    return s;
}

static int32_t open_named(choice *c, const choose_options *o, const environment *env,
                          const char *spec, fak_error *e)
{
    char name[SEARCH_NAME_MAX + 1], text[32][256];
    const char *colon = strchr(spec, ':');
    fak_setting set[32];
    uint32_t index;
    size_t n = colon ? (size_t)(colon - spec) : strlen(spec);
    if (n > SEARCH_NAME_MAX) return unknown(c, spec, e);
    memcpy(name, spec, n);
    name[n] = 0;
    plugin *p;
    int32_t s;
    if ((s = find_backend(c, name, &p, e))) return s;
    p->unproven = o->unproven;
    if ((s = try_once(p, o, env, e)) || (s = plugin_load(&c->all, p, e)) ||
        (s = choose_settings(&o->settings, text, set, e)) ||
        (s = find_device(p, colon ? colon + 1 : NULL, set, o->settings.count, &index, e)))
        return s;
    return device_open(&c->device, p, index, set, o->settings.count, e);
}

/* ---- a claim with options ---- */

/* "device 0 exact=1 threads=2"; 0, or -1 when there is no room for it. */
static int settings_text(const choice *c, const arg_list *settings, char *text, size_t bytes)
{
    int n = snprintf(text, bytes, "device %" PRIu32, c->device.index);
    for (uint32_t i = 0; i < settings->count && n < (int)bytes; i++)
        n += snprintf(text + n, bytes - (size_t)n, " %s", settings->at[i]);
    return n < (int)bytes ? 0 : -1;
}

/* A file is tried without options.  What it does with some is other code: a device that claims class
 * reference then is proven as it was opened. */
static int32_t prove(choice *c, const choose_options *o, const environment *env, fak_error *e)
{
    const plugin *p = c->device.from;
    char how[2048], why[sizeof e->message];
    if (!p->path || !o->settings.count || o->unproven || c->device.facts.klass != FAK_REFERENCE)
        return FAK_OK;
    int keeps = keeps_verdicts(p) && !settings_text(c, &o->settings, how, sizeof how);
    if (keeps && verdict_is_clean(env->cache, p->path, how)) return FAK_OK;
    int32_t s = golden_compare(&c->device, &c->host, e);
    if (!s && keeps) verdict_keep(env->cache, p->path, how);
    if (s != STATUS_REFUSED) return s;
    memcpy(why, e->message, sizeof why);
    return status_set(e, s, "backend %s, with these options: %s", p->name, why);
}

/* ---- the automatic choice ---- */

/* Higher is faster, as far as the kind can tell; 0: never by itself. */
static int rank(const plugin *p, const fak_device_info *info)
{
    static const int of_kind[] = {
        [FAK_CPU] = 2,      [FAK_DISCRETE] = 6, [FAK_INTEGRATED] = 5, [FAK_NPU] = 4,
        [FAK_DATAFLOW] = 3, [FAK_SOFTWARE] = 0, [FAK_REMOTE] = 1};
    return of_kind[info->kind] * 2 - (strcmp(p->name, reference) == 0);
}

/* Makes a plugin ready to be asked for devices, or says why it is not asked. */
static int may_be_asked(choice *c, plugin *p, const choose_options *o, const environment *env,
                        char why[128])
{
    fak_error e;
    if (p->state == PLUGIN_SHADOWED) return 0;
    int32_t s = plugin_check(p, &e);
    if (!s && p->path && !p->note.there)
        snprintf(why, 128, "it has no note that claims a class; name it to use it");
    else if (!s && p->path && p->note.klass != FAK_REFERENCE)
        snprintf(why, 128, "class approx, not tried; name it to use it");
    else if (!s)
        s = try_once(p, o, env, &e);
    if (!s && p->path && !p->probed && !why[0])
        snprintf(why, 128, "it cannot be tried here; name it to use it");
    if (!s && !why[0]) s = plugin_load(&c->all, p, &e);
    if (s) snprintf(why, 128, "%.127s", p->why);
    return !s && !why[0];
}

/* Keeps the device if it is a better one; says why, if not. */
static void consider(choice *c, const plugin *p, uint32_t index, int *best, char why[128])
{
    device d;
    fak_error e;
    if (device_open(&d, p, index, NULL, 0, &e)) {
        snprintf(why, 128, "%.127s", e.message);
        return;
    }
    const uint32_t acts = FAK_ACT_F32 | FAK_ACT_Q8; /* the reference's: a choice changes no text */
    int r = rank(p, &d.info), same = c->device.handle && !strcmp(c->device.info.id, d.info.id);
    if (d.facts.klass != FAK_REFERENCE)
        snprintf(why, 128, "class approx with its default options; name it to use it");
    else if ((d.facts.numerics & acts) != acts)
        snprintf(why, 128, "it lacks F32 or Q8 activations, and other ones give other text");
    else if (r <= 0)
        snprintf(why, 128, "a device imitated in software; name it to use it");
    else if (r <= *best)
        snprintf(why, 128,
                 same ? "the same device through another backend"
                      : "a kind of device that is not faster");
    else {
        device_close(&c->device);
        c->device = d;
        *best = r;
        why[0] = 0;
        return;
    }
    device_close(&d);
}

static int32_t pick(choice *c, const choose_options *o, const environment *env, fak_error *e)
{
    int best = 0;
    for (uint32_t i = 0; i < c->all.count; i++) {
        plugin *p = &c->all.at[i];
        char *why = c->passed_over[i];
        if (!may_be_asked(c, p, o, env, why)) continue;
        uint32_t count = device_count(p, NULL, 0, e);
        if (!count) snprintf(why, 128, "%.127s", e->message);
        for (uint32_t k = 0; k < count; k++) consider(c, p, k, &best, why);
    }
    for (uint32_t i = 0; i < c->all.count; i++) { /* found before the best: say that it is less */
        if (c->all.at[i].state != PLUGIN_LOADED || &c->all.at[i] == c->device.from) continue;
        if (!c->passed_over[i][0])
            snprintf(c->passed_over[i], 128, "a kind of device that is not faster");
    }
    c->how = "the fastest known kind of class reference";
    return best ? FAK_OK
                : status_set(e, STATUS_REFUSED, "no backend of class reference can be used");
}

int32_t choose_open(choice *c, const choose_options *o, const environment *env, fak_error *e)
{
    plugin_host host = {.self = (void *)(uintptr_t)o, .cache = env->cache, .log = log_line};
    plugin_search where = {o->backend_path, env->plugin_path, o->trusted};
    const char *by_environment = env->backend && *env->backend ? env->backend : NULL;
    const char *spec = o->backend ? o->backend : by_environment;
    *c = (choice){.how = o->backend ? "named with --backend" : "named by FAK_BACKEND"};
    int32_t s = plugins_open(&c->all, &where, &host, e);
    if (s) return s;
    c->passed_over = calloc(c->all.count, sizeof *c->passed_over);
    if (!c->passed_over) return status_memory(e, "the choice of a backend", c->all.count * 128ull);
    if (o->backend_path && !o->backend) {
        spec = c->all.at[0].name;
        c->how = "the file given with --backend-path";
    }
    if (!spec && o->settings.count) { /* options are of a backend: of the linked-in one */
        spec = reference;
        c->how = "options were given, and no backend was named";
    }
    if ((s = spec ? open_named(c, o, env, spec, e) : pick(c, o, env, e))) return s;
    plugin *ref = plugins_linked_in(&c->all, reference);
    if (!ref) return status_set(e, STATUS_REFUSED, "this fakrun was built without %s", reference);
    if ((s = plugin_load(&c->all, ref, e))) return s;
    s = device_open(&c->host, ref, 0, NULL, 0, e);
    return s ? s : prove(c, o, env, e);
}

void choose_close(choice *c)
{
    device_close(&c->host);
    device_close(&c->device);
    plugins_close(&c->all);
    free(c->passed_over);
    *c = (choice){0};
}

void choose_print(const choice *c, FILE *out)
{
    const device *d = &c->device;
    fprintf(out, "fakrun: backend %s (%s; %s \"%s\"%s%s): %s", d->from->name,
            device_class_name(d->facts.klass), device_kind_name(d->info.kind), d->info.name,
            d->info.tier[0] ? ", " : "", d->info.tier, c->how);
    for (uint32_t i = 0; i < c->all.count; i++) {
        const plugin *p = &c->all.at[i];
        if (p == d->from || p->state == PLUGIN_SHADOWED || !c->passed_over[i][0]) continue;
        fprintf(out, "; not %s: %s", p->name, c->passed_over[i]);
    }
    fputc('\n', out);
}

void choose_print_folders(const choice *c, FILE *out)
{
    for (uint32_t i = 0; i < c->all.found.folders; i++) {
        const search_folder *f = &c->all.found.folder[i];
        fprintf(out, "fakrun: looked in %s%s%s\n", f->path, f->why[0] ? ": " : "", f->why);
    }
}
