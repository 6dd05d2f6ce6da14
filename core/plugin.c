/* plugin - see plugin.h. */
#include "plugin.h"

#include "artefact.h"
#include "cpu.h"
#include "float_mode.h"
#include "port.h"
#include "probe.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- host services ---- */

static void host_log(void *self, uint32_t level, const char *sentence)
{
    const plugin_host *given = self;
    if (given->log) given->log(given->self, level, sentence);
}

static int32_t host_progress(void *self, const char *what, uint64_t done, uint64_t of)
{
    const plugin_host *given = self;
    return given->progress ? given->progress(given->self, what, done, of) : FAK_OK;
}

static uint64_t host_cache_get(void *self, const char *key, void *dst, uint64_t dst_bytes)
{
    return artefact_get(((const plugin_host *)self)->cache, key, dst, dst_bytes);
}

static void host_cache_put(void *self, const char *key, const void *src, uint64_t bytes)
{
    artefact_put(((const plugin_host *)self)->cache, key, src, bytes);
}

static const void *host_ext(void *self, const char *name)
{
    (void)self, (void)name;
    return NULL; /* the host has no extensions in 1.0 */
}

/* ---- the list ---- */

static plugin *append(plugins *all, const char *name, fak_error *e)
{
    plugin *at = realloc(all->at, (all->count + 1) * sizeof *at);
    if (!at) {
        status_memory(e, "the list of backends", sizeof *at);
        return NULL;
    }
    all->at = at;
    at += all->count++;
    *at = (plugin){.state = PLUGIN_FOUND};
    snprintf(at->name, sizeof at->name, "%s", name);
    return at;
}

/* Never shadowed: the core needs the reference that it was built with. */
static int32_t append_linked(plugins *all, const plugin_static *linked, fak_error *e)
{
    plugin *p = append(all, linked->name, e);
    if (!p) return FAK_E_MEMORY;
    p->entry = linked->entry;
    return FAK_OK;
}

static int32_t append_file(plugins *all, const char *path, const char *name, const char *why,
                           fak_error *e)
{
    const plugin *first = plugins_find(all, name); /* read before the list moves */
    char by[sizeof first->why] = "";
    if (first)
        snprintf(by, sizeof by, "shadowed by %.200s",
                 first->path ? first->path : "the one linked in");
    plugin *p = append(all, name, e);
    if (!p) return FAK_E_MEMORY;
    if (first || why[0]) p->state = first ? PLUGIN_SHADOWED : PLUGIN_REFUSED;
    snprintf(p->why, sizeof p->why, "%s", first ? by : why);
    p->path = strdup(path);
    return p->path ? FAK_OK : status_memory(e, "the list of backends", strlen(path));
}

static int32_t append_only(plugins *all, const char *file, int trusted, fak_error *e)
{
    char name[SEARCH_NAME_MAX + 1], why[128] = "", *real = port_real_path(file);
    if (real && !trusted) search_distrust(real, why);
    if (!real) return status_set(e, STATUS_REFUSED, "backend %s: %s", file, strerror(errno));
    int32_t s = search_name_of(file, name)
                    ? status_set(e, STATUS_REFUSED,
                                 "backend %s: a backend is named fak-backend-NAME.so", file)
                    : append_file(all, real, name, why, e);
    free(real);
    return s;
}

int32_t plugins_open(plugins *all, const plugin_search *where, const plugin_host *host,
                     fak_error *e)
{
    *all = (plugins){.given = malloc(sizeof *all->given)};
    if (!all->given) return status_memory(e, "the host's services", sizeof *all->given);
    *all->given = *host;
    all->host = (fak_host){.struct_size = sizeof(fak_host),
                           .abi_minor = FAK_ABI_MINOR,
                           .backend_minor_min = PLUGIN_BACKEND_MINOR_MIN,
                           .self = all->given,
                           .log = host_log,
                           .progress = host_progress,
                           .cache_get = host_cache_get,
                           .cache_put = host_cache_put,
                           .get_ext = host_ext};
    int32_t s = where->only_file ? append_only(all, where->only_file, where->trusted, e)
                                 : search_run(&all->found, where->path, where->trusted, e);
    for (const plugin_static *p = plugin_statics; !s && p->name; p++) s = append_linked(all, p, e);
    for (uint32_t i = 0; !s && i < all->found.files; i++)
        s = append_file(all, all->found.file[i].path, all->found.file[i].name,
                        all->found.file[i].why, e);
    return s;
}

void plugins_close(plugins *all)
{
    for (uint32_t i = 0; i < all->count; i++) {
        plugin *p = &all->at[i];
        if (p->state == PLUGIN_LOADED && p->api.shutdown) p->api.shutdown();
        port_library_close(p->library);
        free(p->path);
    }
    free(all->at);
    free(all->given);
    search_free(&all->found);
    *all = (plugins){0};
}

plugin *plugins_find(plugins *all, const char *name)
{
    for (uint32_t i = 0; i < all->count; i++)
        if (!strcmp(all->at[i].name, name)) return &all->at[i];
    return NULL;
}

plugin *plugins_linked_in(plugins *all, const char *name)
{
    for (uint32_t i = 0; i < all->count; i++)
        if (!all->at[i].path && !strcmp(all->at[i].name, name)) return &all->at[i];
    return NULL;
}

/* ---- the handshake ---- */

static int32_t refuse(plugin *p, fak_error *e, const char *why)
{
    status_set(e, STATUS_REFUSED, "backend %s: %s", p->path ? p->path : p->name, why);
    p->state = PLUGIN_REFUSED;
    snprintf(p->why, sizeof p->why, "%s", why);
    port_library_close(p->library);
    p->library = NULL;
    return STATUS_REFUSED;
}

static int32_t refused_before(const plugin *p, fak_error *e)
{
    return status_set(e, STATUS_REFUSED, "backend %s: %s", p->path ? p->path : p->name, p->why);
}

int32_t plugin_check(plugin *p, fak_error *e)
{
    char why[sizeof p->why];
    cpu_state cpu;
    fak_error told;
    if (p->state == PLUGIN_REFUSED || p->state == PLUGIN_SHADOWED) return refused_before(p, e);
    if (!p->path || p->checked) return FAK_OK;
    if (elfnote_read(&p->note, p->path, &told)) return refuse(p, e, told.message);
    if (p->note.there && strcmp(p->note.backend, p->name)) {
        snprintf(why, sizeof why, "its note calls it %.32s; its file's name says %.63s",
                 p->note.backend, p->name);
        return refuse(p, e, why);
    }
    cpu_look(&cpu);
    if (cpu_lacks(&cpu, p->note.cpu, why, sizeof why)) return refuse(p, e, why);
    p->checked = 1;
    return FAK_OK;
}

int32_t plugin_probe(plugin *p, uint32_t seconds, fak_error *e)
{
    char program[4096];
    fak_error told;
    int32_t s = plugin_check(p, e);
    if (s || !p->path || p->probed || port_executable(program, sizeof program)) return s;
    if (!seconds) seconds = PLUGIN_PROBE_SECONDS;
    s = probe_run(program, p->path, seconds, p->unproven, &told);
    if (s == FAK_E_UNSUPPORTED) return FAK_OK; /* no child can be had: it stays untried */
    if (s) return refuse(p, e, told.message);
    p->probed = 1;
    return FAK_OK;
}

static int32_t find_entry(plugin *p, fak_entry_fn **entry, fak_error *e)
{
    const char *why;
    *entry = p->entry;
    if (!p->path) return FAK_OK;
    p->library = port_library_open(p->path, &why);
    if (!p->library) return refuse(p, e, why);
    void *symbol = port_library_symbol(p->library, "fak_backend_entry_v1");
    if (!symbol) return refuse(p, e, "it has no symbol fak_backend_entry_v1");
    memcpy(entry, &symbol, sizeof symbol);
    return FAK_OK;
}

/* What every backend must have, whatever it can do. */
static const char *missing_slot(const fak_backend *b)
{
    if (!b->name || !b->version || !b->vendor) return "its table has no name, version or vendor";
    if (!b->device_info) return "its table has no device_info";
    if (!b->open) return "its table has no open";
    if (!b->prepare) return "its table has no prepare";
    if (!b->release) return "its table has no release";
    if (!b->load) return "its table has no load";
    if (!b->begin) return "its table has no begin";
    if (!b->read) return "its table has no read";
    if (!b->write) return "its table has no write";
    if (b->ops && (!b->op || b->op_stride < sizeof(fak_op_entry))) return "its op table is not one";
    if (!b->ops && !b->run) return "it has neither ops nor run";
    if (b->options && (!b->option || b->option_stride < sizeof(fak_option)))
        return "its option table is not one";
    if (!(b->caps & FAK_CAP_GRAPH_COMPILE) != !b->run)
        return "caps liar: GraphCompile and run disagree";
    if (!(b->caps & FAK_CAP_ASYNC) != !b->wait) return "caps liar: Async and wait disagree";
    return NULL;
}

int32_t plugin_load(plugins *all, plugin *p, fak_error *e)
{
    fak_entry_fn *entry;
    const fak_backend *theirs = NULL;
    fak_error told = {0};
    char why[244];
    float_mode mode;
    if (p->state == PLUGIN_LOADED) return FAK_OK;
    int32_t s = plugin_check(p, e);
    if (s) return s;
    float_mode_save(&mode);
    s = find_entry(p, &entry, e);
    if (!s) s = entry(&all->host, &theirs, &told);
    int changed = float_mode_restore(&mode);
    if (p->state == PLUGIN_REFUSED) return s;
    if (changed)
        return refuse(
            p, e, "loading it changes the floating-point mode (is it linked with -ffast-math?)");
    if (s) {
        told.message[sizeof told.message - 1] = 0;
        snprintf(why, sizeof why, "%s", told.message[0] ? told.message : "it refused to load");
        return refuse(p, e, why);
    }
    if (!theirs || theirs->struct_size < offsetof(fak_backend, get_ext) + sizeof(void *)) {
        snprintf(why, sizeof why, "its table is %" PRIu32 " bytes; this host needs %zu",
                 theirs ? theirs->struct_size : 0, sizeof(fak_backend));
        return refuse(p, e, why);
    }
    fak_take(&p->api, sizeof p->api, theirs);
    if (p->api.host_minor_min > FAK_ABI_MINOR) {
        snprintf(why, sizeof why, "it needs ABI %u.%" PRIu32 "; this host has %u.%u", FAK_ABI_MAJOR,
                 p->api.host_minor_min, FAK_ABI_MAJOR, FAK_ABI_MINOR);
        return refuse(p, e, why);
    }
    if (p->api.abi_minor < all->host.backend_minor_min) {
        snprintf(why, sizeof why,
                 "it was built for ABI %u.%" PRIu32 "; this host takes %u.%" PRIu32 " on",
                 FAK_ABI_MAJOR, p->api.abi_minor, FAK_ABI_MAJOR, all->host.backend_minor_min);
        return refuse(p, e, why);
    }
    const char *missing = missing_slot(&p->api);
    if (missing) return refuse(p, e, missing);
    if (strcmp(p->api.name, p->name)) {
        snprintf(why, sizeof why, "it calls itself %.63s; its file's name says %.63s", p->api.name,
                 p->name);
        return refuse(p, e, why);
    }
    p->state = PLUGIN_LOADED;
    return FAK_OK;
}
