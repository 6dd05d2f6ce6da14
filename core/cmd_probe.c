/* cmd_probe - fakrun probe-backend FILE [--unproven]: the child that tries a plugin (probe.h).  Not for
 * people, but it harms nobody: one line a stage, then "clean" or "refused <sentence>". */
#include "cmd.h"
#include "golden.h"
#include "port.h"
#include "probe.h"

#include <inttypes.h>
#include <string.h>

/* Opens each device; a Reference claim is proven by golden bits, or only computed with. */
static int32_t try_devices(int out, const plugin *p, device *host, int unproven, fak_error *e)
{
    char stage[64];
    int32_t s = FAK_OK;
    probe_stage(out, "looking for devices");
    uint32_t count = device_count(p, NULL, 0, e);
    if (!count && e->code == FAK_E_PROGRAM) return e->code; /* to have none is no fault */
    for (uint32_t i = 0; !s && i < count; i++) {
        device d;
        snprintf(stage, sizeof stage, "opening device %" PRIu32, i);
        probe_stage(out, stage);
        s = device_open(&d, p, i, NULL, 0, e);
        if (s) break;
        if (p->note.there && p->note.klass == FAK_REFERENCE && d.facts.klass != FAK_REFERENCE)
            s = status_set(e, STATUS_REFUSED,
                           "its note claims class reference; device %" PRIu32 " is of class %s", i,
                           device_class_name(d.facts.klass));
        if (!s && d.facts.klass == FAK_REFERENCE) {
            snprintf(stage, sizeof stage, "computing on device %" PRIu32, i);
            probe_stage(out, stage);
            s = golden_compare(&d, host, e);
            if (s == STATUS_REFUSED && unproven) s = FAK_OK;
        }
        snprintf(stage, sizeof stage, "closing device %" PRIu32, i);
        probe_stage(out, stage);
        device_close(&d);
    }
    return s;
}

static int32_t try_plugin(int out, plugins *all, int unproven, fak_error *e)
{
    device host = {0};
    plugin *ref = plugins_linked_in(all, "cpu-ref");
    int32_t s = ref ? plugin_load(all, ref, e)
                    : status_set(e, STATUS_REFUSED, "no reference is linked in");
    if (!s) s = device_open(&host, ref, 0, NULL, 0, e);
    probe_stage(out, "loading");
    if (!s) s = plugin_load(all, &all->at[0], e);
    if (!s) s = try_devices(out, &all->at[0], &host, unproven, e);
    device_close(&host);
    return s;
}

/* The sentence without "backend NAME: ", which the parent puts before it. */
static const char *bare(const plugin *p, const fak_error *e)
{
    char prefix[SEARCH_NAME_MAX + 16];
    int n = snprintf(prefix, sizeof prefix, "backend %s: ", p->name);
    if (p->state == PLUGIN_REFUSED) return p->why;
    return strncmp(e->message, prefix, (size_t)n) ? e->message : e->message + n;
}

int cmd_probe(int argc, char **argv, const environment *env)
{
    plugins all;
    plugin_host services = {0};
    int unproven = argc == 3 && !strcmp(argv[2], probe_unproven), right = argc == 2 || unproven;
    plugin_search where = {.only_file = right ? argv[1] : NULL, .trusted = 1};
    fak_error e = {0};
    char why[sizeof e.message];
    (void)env;
    int out = port_hide_output();
    if (!right || out < 0) {
        status_set(&e, STATUS_REFUSED, "usage: fakrun probe-backend FILE [--unproven]");
        return cmd_fail(&e);
    }
    int32_t s = plugins_open(&all, &where, &services, &e);
    if (!s) s = try_plugin(out, &all, unproven, &e);
    snprintf(why, sizeof why, "%s", s && all.count ? bare(&all.at[0], &e) : e.message);
    probe_stage(out, "shutting down");
    plugins_close(&all);
    fflush(NULL);
    if (!s && port_hidden_bytes() > 0)
        s = status_set(&e, STATUS_REFUSED, "it prints to standard output");
    probe_verdict(out, !s ? NULL : why[0] ? why : e.message);
    return EXIT_DONE;
}
