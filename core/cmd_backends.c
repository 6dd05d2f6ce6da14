/* cmd_backends - fakrun backends: every folder, file and verdict; devices, class, caps, memory. */
#include "cmd.h"
#include "dtype.h"
#include "json_out.h"
#include "ops.h"

#include <inttypes.h>
#include <string.h>

static const char *const states[] = {"found", "shadowed", "loaded", "refused"};

/* Strings of files and of plugins may be any bytes. */
static json_t *any(const char *s)
{
    return json_out_text(s ? s : "", s ? strlen(s) : 0);
}

/* What is known of a device: its facts need it open, its info does not. */
static json_t *describe_device(const plugin *p, uint32_t index)
{
    fak_device_info info;
    device d;
    fak_error e;
    if (device_describe(p, index, NULL, 0, &info, &e))
        return json_pack("{s:i, s:o}", "index", (int)index, "error", any(e.message));
    json_t *out = json_pack(
        "{s:i, s:o, s:o, s:s, s:o, s:I, s:I}", "index", (int)index, "id", any(info.id), "name",
        any(info.name), "kind", device_kind_name(info.kind), "tier", any(info.tier), "memory_total",
        (json_int_t)info.memory_total, "memory_free", (json_int_t)info.memory_free);
    if (device_open(&d, p, index, NULL, 0, &e)) {
        json_object_set_new(out, "error", any(e.message));
        return out;
    }
    json_t *caps = json_array(), *numerics = json_array(), *dtypes = json_array(),
           *ops = json_array();
    for (uint32_t i = 0; i < 32; i++) {
        const char *cap = device_cap_name(i), *title = device_numerics_title(i);
        if (cap && d.facts.caps >> i & 1) json_array_append_new(caps, json_string(cap));
        if (title && d.facts.numerics >> i & 1) json_array_append_new(numerics, json_string(title));
    }
    for (uint32_t t = 1; t < 32; t++)
        if (d.facts.upload_dtypes >> t & 1)
            json_array_append_new(dtypes, json_string(dtype_name(t)));
    for (uint32_t i = 0; i < d.facts.ops; i++) {
        fak_op_entry entry;
        fak_get(&entry, sizeof entry, d.facts.op, d.facts.op_stride, i);
        json_array_append_new(ops, json_string(ops_name(entry.id)));
    }
    json_object_set_new(out, "class", json_string(device_class_name(d.facts.klass)));
    json_object_set_new(out, "caps", caps);
    json_object_set_new(out, "numerics", numerics);
    json_object_set_new(out, "upload_dtypes", dtypes);
    json_object_set_new(out, "ops", ops);
    device_close(&d);
    return out;
}

static json_t *describe_plugin(plugins *all, plugin *p, uint32_t probe_seconds)
{
    fak_error e = {0};
    if (p->state == PLUGIN_FOUND && !plugin_probe(p, probe_seconds, &e)) plugin_load(all, p, &e);
    json_t *out = json_pack("{s:s, s:o, s:s}", "name", p->name, "path",
                            any(p->path ? p->path : "(linked in)"), "state", states[p->state]);
    if (p->why[0]) json_object_set_new(out, "why", any(p->why));
    if (p->note.there) {
        json_object_set_new(out, "abi",
                            json_pack("[i, i]", (int)p->note.major, (int)p->note.minor));
        json_object_set_new(out, "claims", json_string(device_class_name(p->note.klass)));
    }
    if (p->state != PLUGIN_LOADED) return out;
    json_object_set_new(out, "version", any(p->api.version));
    json_object_set_new(out, "vendor", any(p->api.vendor));
    json_t *devices = json_array(), *options = json_array();
    uint32_t count = device_count(p, NULL, 0, &e);
    if (!count) json_object_set_new(out, "why", any(e.message));
    for (uint32_t i = 0; i < count; i++) json_array_append_new(devices, describe_device(p, i));
    for (uint32_t i = 0; i < p->api.options; i++) {
        fak_option o;
        fak_get(&o, sizeof o, p->api.option, p->api.option_stride, i);
        json_array_append_new(options, json_pack("{s:o, s:o, s:o, s:o}", "name", any(o.name),
                                                 "values", any(o.values), "initial", any(o.initial),
                                                 "help", any(o.help)));
    }
    json_object_set_new(out, "devices", devices);
    json_object_set_new(out, "options", options);
    return out;
}

/* Equal ids are one device, seen through several backends: the later ones say whose it is. */
static void merge_devices(json_t *backends)
{
    json_t *owner = json_object(), *item, *part;
    size_t i, k;
    json_array_foreach(backends, i, item)
    {
        json_array_foreach(json_object_get(item, "devices"), k, part)
        {
            const char *id = json_string_value(json_object_get(part, "id"));
            const json_t *first = id && *id ? json_object_get(owner, id) : NULL;
            if (first)
                json_object_set_new(part, "same_as", json_string(json_string_value(first)));
            else if (id && *id)
                json_object_set(owner, id, json_object_get(item, "name"));
        }
    }
    json_decref(owner);
}

static json_t *describe_all(plugins *all, uint32_t probe_seconds)
{
    json_t *folders = json_array(), *backends = json_array();
    for (uint32_t i = 0; i < all->found.folders; i++)
        json_array_append_new(folders,
                              json_pack("{s:o, s:s}", "path", any(all->found.folder[i].path), "why",
                                        all->found.folder[i].why));
    for (uint32_t i = 0; i < all->count; i++)
        json_array_append_new(backends, describe_plugin(all, &all->at[i], probe_seconds));
    merge_devices(backends);
    return json_pack("{s:o, s:o, s:o}", "abi", json_pack("[i, i]", FAK_ABI_MAJOR, FAK_ABI_MINOR),
                     "folders", folders, "backends", backends);
}

/* ---- for people: the same object, as lines ---- */

static const char *text(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "";
}

static void print_list(const json_t *object, const char *key)
{
    const json_t *list = json_object_get(object, key);
    size_t i;
    const json_t *item;
    if (!json_array_size(list)) return;
    printf("      %s:", key);
    json_array_foreach(list, i, item) printf("%s %s", i ? "," : "", json_string_value(item));
    printf("\n");
}

static void print_device(const json_t *d, int verbose)
{
    json_int_t total = json_integer_value(json_object_get(d, "memory_total"));
    printf("    device %d: %s \"%s\"%s%s  [%s]  %s%s\n",
           (int)json_integer_value(json_object_get(d, "index")), text(d, "kind"), text(d, "name"),
           text(d, "tier")[0] ? ", " : "", text(d, "tier"), text(d, "id"), text(d, "class"),
           text(d, "error"));
    if (text(d, "same_as")[0]) printf("      the same device as %s's\n", text(d, "same_as"));
    if (total) printf("      memory: %" JSON_INTEGER_FORMAT " MB\n", total / 1000000);
    if (!verbose) return;
    print_list(d, "caps");
    print_list(d, "numerics");
    print_list(d, "upload_dtypes");
    print_list(d, "ops");
}

static void print_people(const json_t *all, int verbose)
{
    size_t i, j;
    const json_t *item, *part;
    json_array_foreach(json_object_get(all, "backends"), i, item)
    {
        printf("%s  %s  %s", text(item, "name"), text(item, "path"), text(item, "state"));
        printf("%s%s\n", text(item, "why")[0] ? ": " : "", text(item, "why"));
        json_array_foreach(json_object_get(item, "devices"), j, part) print_device(part, verbose);
        if (verbose)
            json_array_foreach(json_object_get(item, "options"), j, part)
                printf("    option -o %s=%s (default %s): %s\n", text(part, "name"),
                       text(part, "values"), text(part, "initial"), text(part, "help"));
    }
    if (!verbose) return;
    json_array_foreach(json_object_get(all, "folders"), i, item) printf(
        "folder %s%s%s\n", text(item, "path"), text(item, "why")[0] ? ": " : "", text(item, "why"));
}

int cmd_backends(int argc, char **argv, const environment *env)
{
    const char *file = NULL;
    int json = 0, verbose = 0, trusted = 0;
    uint32_t probe_seconds = 0;
    /* clang-format off */
    const arg table[] = {
        {'v', "verbose", ARG_FLAG, NULL, "folders, caps, ops and options too", &verbose, 0, 0, NULL},
        {0, "json", ARG_FLAG, NULL, "print one JSON object", &json, 0, 0, NULL},
        {0, "backend-path", ARG_TEXT, "FILE", "look at this file only", &file, 0, 0, NULL},
        {0, "probe-seconds", ARG_NUMBER, "N", "how long a plugin may take when it is tried (default 20)", &probe_seconds, 1, 600, NULL},
        {0, "trust", ARG_FLAG, NULL, "take files and folders whoever owns or may write them", &trusted, 0, 0, NULL},
    };
    /* clang-format on */
    const args a = {
        "usage: fakrun backends [-v] [--json] [--backend-path FILE]",
        "Lists the backends that are found and the devices that they see.  A backend is a file\n"
        "fak-backend-NAME.so in a folder of FAK_PLUGIN_PATH, in the folder that was compiled in,\n"
        "or in ../lib/fak/backends beside fakrun.",
        "  fakrun backends -v\n  FAK_PLUGIN_PATH=$PWD/build fakrun backends --json\n",
        table,
        sizeof table / sizeof *table,
        0,
        0};
    int rc = cmd_parse(&a, argc, argv, NULL);
    if (rc >= 0) return rc;
    plugins all;
    plugin_host host = {0};
    fak_error e = {0};
    plugin_search where = {file, env->plugin_path, trusted};
    int32_t s = plugins_open(&all, &where, &host, &e);
    json_t *found = s ? NULL : describe_all(&all, probe_seconds);
    rc = s ? cmd_fail(&e) : EXIT_DONE;
    if (!s && file && all.at[0].state == PLUGIN_REFUSED) rc = EXIT_FAILED;
    if (!s && json) {
        json_out_print(found);
        rc = cmd_printed(rc);
    } else if (!s) {
        print_people(found, verbose);
        json_decref(found);
        rc = cmd_printed(rc);
    }
    plugins_close(&all);
    return rc;
}
