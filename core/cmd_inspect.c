/* cmd_inspect - fakrun inspect MODEL: metadata, tensors, shape, and the plan. */
#include "capacity.h"
#include "cmd.h"
#include "json_out.h"
#include "plan_text.h"
#include "session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 8 }; /* elements of an array that people see */

/* JSON has neither NaN nor infinities: they are strings. */
static json_t *real(double x)
{
    return x - x == 0 ? json_real(x) : json_string(x > 0 ? "inf" : x < 0 ? "-inf" : "nan");
}

/* jansson has no integers above 2^63: they are strings. */
static json_t *natural(uint64_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, n);
    return n >> 63 ? json_string(text) : json_integer((json_int_t)n);
}

static json_t *string(gguf_string s)
{
    return json_out_text(s.data, (size_t)s.bytes);
}

static json_t *scalar(const gguf_value *v, uint32_t type, uint64_t i)
{
    switch (type) {
    case GGUF_F32:
    case GGUF_F64:
        return real(gguf_number(v, i));
    case GGUF_BOOL:
        return json_boolean(gguf_integer(v, i) != 0);
    case GGUF_U64:
        return natural((uint64_t)gguf_integer(v, i));
    default:
        return json_integer(gguf_integer(v, i));
    }
}

/* The value; of an array its type, count and first elements. */
static json_t *metadata_value(const gguf_value *v)
{
    const uint8_t *at = v->data;
    if (v->type == GGUF_STRING) return string(gguf_next_string(v, &at));
    if (v->type != GGUF_ARRAY) return scalar(v, v->type, 0);
    json_t *first = json_array();
    for (uint64_t i = 0; i < v->count && i < SHOWN; i++) {
        json_array_append_new(first, v->element == GGUF_STRING ? string(gguf_next_string(v, &at))
                                                               : scalar(v, v->element, i));
    }
    return json_pack("{s:s, s:I, s:o}", "array_of", gguf_type_name(v->element), "count",
                     (json_int_t)v->count, "first", first);
}

static json_t *metadata(const gguf *g)
{
    json_t *out = json_array();
    for (uint32_t i = 0; i < gguf_value_count(g); i++) {
        const gguf_value *v = gguf_value_at(g, i);
        json_array_append_new(out, json_pack("{s:o, s:s, s:o}", "key", string(v->key), "type",
                                             gguf_type_name(v->type), "value", metadata_value(v)));
    }
    return out;
}

static json_t *tensors(const gguf *g)
{
    json_t *out = json_array();
    for (uint32_t i = 0; i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        json_t *shape = json_array();
        for (uint32_t d = 0; d < t->dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->dim[d]));
        json_array_append_new(out, json_pack("{s:o, s:s, s:o, s:I}", "name", string(t->name),
                                             "type", gguf_ggml_type_name(t->ggml_type), "shape",
                                             shape, "bytes", (json_int_t)t->bytes));
    }
    return out;
}

static json_t *shape(const model *m)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:b, s:f, s:f, s:I}",
                     "architecture", m->architecture, "layers", (int)m->layers, "width",
                     (int)m->width, "ffn", (int)m->ffn, "heads", (int)m->heads, "kv_heads",
                     (int)m->kv_heads, "head_dim", (int)m->head_dim, "rot_dim", (int)m->rot_dim,
                     "vocab", (int)m->vocab, "context", (json_int_t)m->context_max, "tied", m->tied,
                     "eps", (double)m->eps, "rope_theta", m->rope_theta, "weight_bytes",
                     (json_int_t)model_weight_bytes(m));
}

static json_t *memory_json(const capacity *c)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "needed",
                     (json_int_t)c->needed, "weights", (json_int_t)c->weight_bytes, "lent",
                     (json_int_t)c->lent_bytes, "kv", (json_int_t)c->kv_bytes, "kv_position",
                     (json_int_t)c->kv_position_bytes, "other", (json_int_t)c->other_bytes, "there",
                     (json_int_t)c->there, "context", (json_int_t)c->context, "context_fits",
                     (json_int_t)c->fits);
}

/* A dry run on the backend that would run it: what it needs and what there is.  Nothing is loaded. */
static int32_t look_at_memory(json_t *all, const model *m, const choose_options *o,
                              const environment *env, capacity out[2], fak_error *e)
{
    choice c;
    program p = {0};
    session_options options = {0};
    int32_t s = choose_open(&c, o, env, e);
    if (s && c.not_found) choose_print_folders(&c, stderr);
    fak_limits limits = s ? (fak_limits){0} : session_limits(m, &c.device, &options);
    if (!s) s = program_prepare(&p, &c.device, &c.host, m, &limits, FAK_DRY_RUN, e);
    if (!s) {
        out[0] = capacity_of_host(&p);
        out[1] = capacity_of_device(&p);
        json_object_set_new(all, "backend", json_string(c.device.from->name));
        json_object_set_new(all, "memory", memory_json(&out[0]));
        if (out[1].needed) json_object_set_new(all, "device_memory", memory_json(&out[1]));
    }
    program_close(&p);
    choose_close(&c);
    return s;
}

/* ---- for people ---- */

/* At most so many bytes of a value as JSON has it, without the quotes of a string when bare: nothing
 * in it steers a terminal. */
static int print_value(const json_t *value, int bare, size_t most)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
    size_t n = text ? strlen(text) : 0, from = bare && n > 1, to = n - from;
    if (to - from > most)
        for (to = from + most; ((unsigned char)text[to] & 0xc0) == 0x80;) to--;
    printf("%.*s%s", (int)(to - from), text ? text + from : "", to + from < n ? "..." : "");
    free(text);
    return (int)(to - from);
}

static void print_metadata(const json_t *list)
{
    size_t i;
    const json_t *item;
    printf("metadata: %zu keys\n", json_array_size(list));
    json_array_foreach(list, i, item)
    {
        printf("  ");
        print_value(json_object_get(item, "key"), 1, 200);
        printf(" = ");
        print_value(json_object_get(item, "value"), 0, 100);
        printf("\n");
    }
}

static void print_tensors(const json_t *list)
{
    size_t i, d;
    const json_t *item, *dim;
    printf("tensors: %zu\n", json_array_size(list));
    json_array_foreach(list, i, item)
    {
        printf("  ");
        int width = print_value(json_object_get(item, "name"), 1, 200);
        printf("%*s %-5s", width < 32 ? 32 - width : 0, "",
               json_string_value(json_object_get(item, "type")));
        json_array_foreach(json_object_get(item, "shape"), d, dim)
            printf("%s%" JSON_INTEGER_FORMAT, d ? " x " : " ", json_integer_value(dim));
        printf("\n");
    }
}

static void print_people(const json_t *all)
{
    const json_t *m = json_object_get(all, "model");
    const char *not_model = json_string_value(json_object_get(all, "not_a_model"));
    int parts = (int)json_integer_value(json_object_get(all, "parts"));
    printf("%s: GGUF version %d, %s", json_string_value(json_object_get(all, "file")),
           (int)json_integer_value(json_object_get(all, "version")),
           json_is_true(json_object_get(all, "big_endian")) ? "big-endian, " : "");
    if (parts > 1) printf("%d parts, ", parts);
    printf("%" JSON_INTEGER_FORMAT " bytes\n", json_integer_value(json_object_get(all, "bytes")));
    print_metadata(json_object_get(all, "metadata"));
    print_tensors(json_object_get(all, "tensors"));
    if (not_model) printf("fak cannot run it: %s\n", not_model);
    const char *key;
    json_t *value;
    if (m) printf("model:");
    json_object_foreach((json_t *)(uintptr_t)m, key, value)
    {
        char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
        printf(" %s %s;", key, shown ? shown : "?");
        free(shown);
    }
    if (m) printf("\n");
}

static const char *value_name(void *self, uint32_t id)
{
    const struct {
        const model *m;
        const plan *p;
    } *of = self;
    uint32_t index = of->p->weight[id];
    return index == FAK_NO_INDEX ? NULL : of->m->weights.at[index].name;
}

static int32_t print_plan(const model *m, int whole, fak_error *e)
{
    plan p;
    int32_t s = plan_build(&p, m, e);
    struct {
        const model *m;
        const plan *p;
    } of = {m, &p};
    if (!s) plan_print(p.block, stdout, whole ? 0 : PLAN_FOLD, value_name, &of);
    plan_free(&p);
    return s;
}

typedef struct inspect {
    const char *path, *dtype;
    uint32_t context;
    int json, plan, verbose;
    choose_options backend;
} inspect;

static int parse(inspect *o, int argc, char **argv)
{
    /* clang-format off */
    const arg table[] = {
        {0, "plan", ARG_FLAG, NULL, "print the forward pass: one turn of the layers, both tails", &o->plan, 0, 0, NULL},
        {'v', "verbose", ARG_FLAG, NULL, "with --plan: every layer (what fak reads back)", &o->verbose, 0, 0, NULL},
        {0, "ctx", ARG_NUMBER, "N", "positions of context to reckon with", &o->context, 1, 1u << 20, NULL},
        {0, "dtype", ARG_CHOICE, "TYPE", "weights loaded as " CMD_DTYPES_HELP, &o->dtype, 0, 0, CMD_DTYPES},
        {0, "backend", ARG_TEXT, "NAME[:DEV]", "the backend to reckon with", &o->backend.backend, 0, 0, NULL},
        {0, "json", ARG_FLAG, NULL, "print one JSON object", &o->json, 0, 0, NULL},
    };
    /* clang-format on */
    const args a = {
        "usage: fakrun inspect MODEL [--plan [-v]] [--ctx N] [--json]",
        "Prints what is in a GGUF file, a model that fak can run or not, and what running it "
        "needs.",
        "  fakrun inspect model.gguf\n  fakrun inspect model.gguf --plan\n"
        "  fakrun inspect model.gguf --ctx 8192 --dtype f32\n",
        table,
        sizeof table / sizeof *table,
        1,
        0};
    fak_error e;
    int rc = cmd_parse(&a, argc, argv, &o->path);
    if (rc >= 0 || !o->plan || !o->json) return rc;
    status_set(&e, STATUS_REFUSED, "--plan is text; it does not go with --json");
    return cmd_fail(&e);
}

static json_t *describe(const inspect *o, const gguf *g, const model *m, const fak_error *why)
{
    json_t *all = json_pack("{s:o, s:i, s:b, s:i, s:I, s:o, s:o}", "file",
                            json_out_text(o->path, strlen(o->path)), "version",
                            (int)gguf_version(g), "big_endian", gguf_is_big(g), "parts",
                            (int)gguf_part_count(g), "bytes", (json_int_t)gguf_file_bytes(g),
                            "metadata", metadata(g), "tensors", tensors(g));
    json_object_set_new(all, why->code ? "not_a_model" : "model",
                        why->code ? json_out_text(why->message, strlen(why->message)) : shape(m));
    return all;
}

static int32_t print_all(const inspect *o, const gguf *g, const model *m, const fak_error *why,
                         const environment *env, fak_error *e)
{
    capacity memory[2] = {{0}};
    json_t *all = describe(o, g, m, why);
    int32_t s = why->code ? FAK_OK : look_at_memory(all, m, &o->backend, env, memory, e);
    if (!s && o->json) {
        json_out_print(all);
        return FAK_OK;
    }
    if (!s) print_people(all);
    for (int i = 0; !s && i < 2; i++) {
        if (!memory[i].needed) continue;
        printf(i ? "on the device: " : "on %s: ",
               json_string_value(json_object_get(all, "backend")));
        capacity_print(&memory[i], stdout);
    }
    json_decref(all);
    return s;
}

int cmd_inspect(int argc, char **argv, const environment *env)
{
    inspect o = {0};
    int rc = parse(&o, argc, argv);
    if (rc >= 0) return rc;
    gguf *g = NULL;
    model m = {0};
    fak_error e = {0}, why = {0};
    const dtype_info *dtype = o.dtype ? dtype_by_name(o.dtype) : NULL; /* NULL: as in the file */
    int32_t s = gguf_open(&g, o.path, &e);
    int32_t no_model = s ? s : model_open(&m, g, dtype ? dtype->id : 0, o.context, &why);
    if (!s && (o.plan || no_model == STATUS_REFUSED)) {
        s = no_model;
        e = why;
        if (!s) s = print_plan(&m, o.verbose, &e);
    } else if (!s) {
        s = print_all(&o, g, &m, &why, env, &e);
    }
    rc = s ? cmd_fail(&e) : cmd_printed(EXIT_DONE);
    model_close(&m);
    gguf_close(g);
    return rc;
}
