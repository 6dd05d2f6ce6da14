/* choose - see choose.h. */
#include "choose.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

static int32_t open_named(choice *c, const choose_options *o, const char *spec, fak_error *e)
{
    char name[SEARCH_NAME_MAX + 1], text[32][256];
    const char *colon = strchr(spec, ':');
    fak_setting set[32];
    uint32_t index;
    size_t n = colon ? (size_t)(colon - spec) : strlen(spec);
    if (n > SEARCH_NAME_MAX) return unknown(c, spec, e);
    memcpy(name, spec, n);
    name[n] = 0;
    plugin *p = plugins_find(&c->all, name);
    if (!p) return unknown(c, name, e);
    int32_t s;
    if ((s = plugin_load(&c->all, p, e)) || (s = choose_settings(&o->settings, text, set, e)) ||
        (s = find_device(p, colon ? colon + 1 : NULL, set, o->settings.count, &index, e)))
        return s;
    return device_open(&c->device, p, index, set, o->settings.count, e);
}

int32_t choose_open(choice *c, const choose_options *o, const environment *env, fak_error *e)
{
    plugin_host host = {.self = (void *)(uintptr_t)o, .log = log_line};
    const char *spec = o->backend                      ? o->backend
                       : env->backend && *env->backend ? env->backend
                                                       : NULL;
    *c = (choice){.how = o->backend ? "named with --backend" : "named by FAK_BACKEND"};
    int32_t s = plugins_open(&c->all, o->backend_path, env->plugin_path, &host, e);
    if (s) return s;
    if (o->backend_path && !o->backend) {
        spec = c->all.at[0].name;
        c->how = "the file given with --backend-path";
    } else if (!spec) {
        spec = reference;
        c->how = "the only backend of class reference that is linked in";
    }
    if ((s = open_named(c, o, spec, e))) return s;
    plugin *ref = plugins_linked_in(&c->all, reference);
    if (!ref) return status_set(e, STATUS_REFUSED, "this fakrun was built without %s", reference);
    if ((s = plugin_load(&c->all, ref, e))) return s;
    return device_open(&c->host, ref, 0, NULL, 0, e);
}

void choose_close(choice *c)
{
    device_close(&c->host);
    device_close(&c->device);
    plugins_close(&c->all);
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
        if (p == d->from || p->state == PLUGIN_SHADOWED || !strcmp(p->name, reference)) continue;
        fprintf(out, "; not %s: %s", p->name, p->state == PLUGIN_REFUSED ? p->why : "not named");
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
