/* plan_text - see plan_text.h.  One line a thing; what stands behind ';' is for people. */
#include "plan_text.h"

#include "plan_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"unused", "weight", "const", "act", "out"};
static const char *const wants[] = {"none", "logits", "argmax"};

/* clang-format off */
typedef struct field { const char *name; uint32_t offset, is_float; } field;
#define VALUE_FIELD(name, is_float) {#name, offsetof(fak_value, name), is_float}
static const field value_fields[] = {
    VALUE_FIELD(layout, 0),     VALUE_FIELD(quant_axis, 0),   VALUE_FIELD(quant_group, 0),
    VALUE_FIELD(quant_bits, 0), VALUE_FIELD(quant_signed, 0), VALUE_FIELD(quant_zero, 0),
    VALUE_FIELD(quant_scale_dtype, 0), VALUE_FIELD(quant_act_scale, 1),
};
/* clang-format on */
enum {
    VALUE_FIELDS = sizeof value_fields / sizeof *value_fields,
    VALUES_MAX = 1 << 17 /* more than 4096 layers have; a few bytes of text may claim as many */
};

/* ---- printing ---- */

static void print_field(FILE *out, const char *name, const void *at, int is_float)
{
    uint32_t word;
    float real;
    memcpy(&word, at, 4);
    memcpy(&real, at, 4);
    if (!word) return;
    if (is_float)
        fprintf(out, " %s %.9g", name, (double)real);
    else
        fprintf(out, " %s %" PRIu32, name, word);
}

static void print_rows(FILE *out, uint32_t rows)
{
    if (rows == FAK_STEP_ROWS)
        fputs(" step", out);
    else if (rows == FAK_WANTED_ROWS)
        fputs(" wanted", out);
    else
        fprintf(out, " %" PRIu32, rows);
}

static void print_value(const fak_plan *p, FILE *out, uint32_t id, const char *name)
{
    fak_value v = plan_value(p, id);
    fprintf(out, "value %" PRIu32 " %s", id, kinds[v.kind]);
    if (dtype_find(v.dtype))
        fprintf(out, " %s", dtype_name(v.dtype));
    else
        fprintf(out, " %" PRIu32, v.dtype);
    print_rows(out, v.rows);
    fprintf(out, " %" PRIu32, v.cols);
    for (int i = 0; i < VALUE_FIELDS; i++)
        print_field(out, value_fields[i].name, (const char *)&v + value_fields[i].offset,
                    (int)value_fields[i].is_float);
    fprintf(out, "%s%s\n", name ? " ; " : "", name ? name : "");
}

static void print_op(const fak_plan *p, FILE *out, uint32_t i)
{
    fak_op o = plan_op(p, i);
    fprintf(out, "op %" PRIu32 " %s", i, ops_name(o.id));
    if (o.revision != 1) fprintf(out, " revision %" PRIu32, o.revision);
    if (o.layer != FAK_NO_INDEX) fprintf(out, " layer %" PRIu32, o.layer);
    fputs(" in", out);
    for (int j = 0; j < OP_INPUTS && o.in[j]; j++) fprintf(out, " %" PRIu32, o.in[j]);
    fputs(" out", out);
    for (int j = 0; j < OP_OUTPUTS && o.out[j]; j++) fprintf(out, " %" PRIu32, o.out[j]);
    for (uint32_t j = 0; j < OP_PARAMS; j++)
        print_field(out, op_params[j].name, (const char *)&o + op_params[j].offset,
                    (int)op_params[j].is_float);
    fprintf(out, " ; %s\n", ops_find(o.id) ? ops_find(o.id)->operands : "");
}

/* Is op i in a turn after the first of some repeat? */
static int folded(const fak_plan *p, uint32_t i)
{
    for (uint32_t j = 0; j < p->repeats.count; j++) {
        fak_repeat r = plan_repeat(p, j);
        if (i >= r.first + r.ops && i < r.first + r.ops * r.times) return 1;
    }
    return 0;
}

/* Values that only folded ops name are left out with them. */
static uint8_t *shown_values(const fak_plan *p, int flags)
{
    uint8_t *shown = calloc((size_t)p->values.count + 1, 1);
    for (uint32_t i = 0; shown && i < p->ops.count; i++) {
        fak_op o = plan_op(p, i);
        if (flags & PLAN_FOLD && folded(p, i)) continue;
        for (uint32_t j = 0; j < OP_INPUTS; j++) shown[o.in[j]] = 1;
        for (uint32_t j = 0; j < OP_OUTPUTS; j++) shown[o.out[j]] = 1;
    }
    return shown;
}

void plan_print(const fak_plan *p, FILE *out, int flags, const char *(*name)(void *, uint32_t),
                void *self)
{
    uint8_t *shown = shown_values(p, flags);
    fprintf(out, "plan values %" PRIu32 " body %" PRIu32 " layers %" PRIu32 "\n", p->values.count,
            p->body_ops, p->layers);
    for (uint32_t i = 1; i < p->values.count; i++)
        if ((!(flags & PLAN_FOLD) || (shown && shown[i])) && plan_value(p, i).kind)
            print_value(p, out, i, name ? name(self, i) : NULL);
    for (uint32_t i = 0; i < p->repeats.count; i++) {
        fak_repeat r = plan_repeat(p, i);
        fprintf(out,
                "repeat first %" PRIu32 " ops %" PRIu32 " times %" PRIu32 " stride %" PRIu32 "\n",
                r.first, r.ops, r.times, r.stride);
    }
    for (uint32_t i = 0; i < p->ops.count; i++) {
        if (!(flags & PLAN_FOLD) || !folded(p, i))
            print_op(p, out, i);
        else if (!folded(p, i - 1))
            fputs("; and so on: weights `stride` ids further, layer one higher\n", out);
    }
    for (uint32_t i = 0; i < p->tails.count; i++) {
        fak_tail t = plan_tail(p, i);
        fprintf(out, "tail %s first %" PRIu32 " ops %" PRIu32 " out %" PRIu32 "\n", wants[t.want],
                t.first, t.ops, t.out);
    }
    free(shown);
}

/* ---- reading ---- */

typedef struct reader {
    char *line, *rest; /* the line being read, cut into words by next */
    uint32_t number;
    plan_draft draft;
    fak_error *e;
} reader;

static int32_t complain(reader *r, const char *what, const char *word)
{
    return status_set(r->e, FAK_E_ARGUMENT, "plan, line %" PRIu32 ": %s%s%.40s%s", r->number, what,
                      word ? " \"" : "", word ? word : "", word ? "\"" : "");
}

static char *next(reader *r)
{
    return strtok_r(NULL, " \t\r", &r->rest);
}

static int32_t take_u32(reader *r, const char *word, uint32_t *out)
{
    char *end = NULL;
    errno = 0;
    unsigned long long n = word && *word >= '0' && *word <= '9' ? strtoull(word, &end, 10) : 0;
    if (!end || *end || errno || n > UINT32_MAX)
        return complain(r, "not a number:", word ? word : "");
    *out = (uint32_t)n;
    return FAK_OK;
}

static int32_t take_word(reader *r, const char *word, int is_float, void *at)
{
    char *end = NULL;
    uint32_t n;
    if (!is_float) {
        int32_t s = take_u32(r, word, &n);
        if (!s) memcpy(at, &n, 4);
        return s;
    }
    float x = word ? strtof(word, &end) : 0;
    if (!end || end == word || *end) return complain(r, "not a number:", word ? word : "");
    memcpy(at, &x, 4);
    return FAK_OK;
}

/* "<key> <number>" for each of keys, in order. */
static int32_t take_keys(reader *r, const char *const *key, uint32_t *const *out, int count)
{
    for (int i = 0; i < count; i++) {
        const char *word = next(r);
        if (!word || strcmp(word, key[i])) return complain(r, "expected the word:", key[i]);
        int32_t s = take_u32(r, next(r), out[i]);
        if (s) return s;
    }
    return FAK_OK;
}

static int32_t read_header(reader *r)
{
    uint32_t values;
    plan_draft *d = &r->draft;
    const char *const key[] = {"values", "body", "layers"};
    uint32_t *const out[] = {&values, &d->body_ops, &d->layers};
    int32_t s = take_keys(r, key, out, 3);
    if (s) return s;
    if (d->values) return complain(r, "a second header", NULL);
    if (!values || values > VALUES_MAX) return complain(r, "between 1 and 131072 values", NULL);
    for (uint32_t i = 0; i < values; i++)
        plan_add_value(d, &(fak_value){.kind = FAK_UNUSED}, FAK_NO_INDEX);
    return FAK_OK;
}

static int32_t find_word(reader *r, const char *const *names, uint32_t count, uint32_t *out)
{
    const char *word = next(r);
    for (uint32_t i = 0; word && i < count; i++)
        if (!strcmp(names[i], word)) {
            *out = i;
            return FAK_OK;
        }
    return complain(r, "an unknown word:", word ? word : "");
}

static int32_t read_value(reader *r)
{
    uint32_t id;
    fak_value v = {0};
    int32_t s;
    if ((s = take_u32(r, next(r), &id)) || (s = find_word(r, kinds, 5, &v.kind))) return s;
    const char *dtype = next(r), *rows = next(r);
    if (dtype && dtype_by_name(dtype))
        v.dtype = dtype_by_name(dtype)->id;
    else if ((s = take_u32(r, dtype, &v.dtype)))
        return s;
    if (rows && !strcmp(rows, "step"))
        v.rows = FAK_STEP_ROWS;
    else if (rows && !strcmp(rows, "wanted"))
        v.rows = FAK_WANTED_ROWS;
    else if ((s = take_u32(r, rows, &v.rows)))
        return s;
    if ((s = take_u32(r, next(r), &v.cols))) return s;
    for (const char *word; (word = next(r));) {
        int i = 0;
        while (i < VALUE_FIELDS && strcmp(value_fields[i].name, word)) i++;
        if (i == VALUE_FIELDS) return complain(r, "an unknown field:", word);
        s = take_word(r, next(r), (int)value_fields[i].is_float,
                      (char *)&v + value_fields[i].offset);
        if (s) return s;
    }
    if (id >= r->draft.values) return complain(r, "a value beyond the header's count", NULL);
    r->draft.value[id] = v;
    return FAK_OK;
}

/* Ids up to the first word that is none, which is returned. */
static char *read_ids(reader *r, uint32_t *id, uint32_t most, int32_t *s)
{
    char *word = next(r);
    for (uint32_t n = 0; word && *word >= '0' && *word <= '9'; word = next(r)) {
        if (n == most) *s = complain(r, "too many operands", NULL);
        if (*s || (*s = take_u32(r, word, &id[n++]))) return NULL;
    }
    return word;
}

static int32_t read_op(reader *r)
{
    uint32_t index;
    int32_t s = take_u32(r, next(r), &index);
    const char *name = s ? NULL : next(r);
    const op_info *info = name ? ops_by_name(name) : NULL;
    if (s) return s;
    if (!info) return complain(r, "an unknown op:", name ? name : "");
    if (index != r->draft.ops) return complain(r, "an op out of order", NULL);
    fak_op o = {.id = info->id, .revision = 1, .layer = FAK_NO_INDEX};
    for (char *word = next(r); word && !s;) {
        if (!strcmp(word, "in")) {
            word = read_ids(r, o.in, OP_INPUTS, &s);
        } else if (!strcmp(word, "out")) {
            word = read_ids(r, o.out, OP_OUTPUTS, &s);
        } else if (!strcmp(word, "layer") || !strcmp(word, "revision")) {
            s = take_u32(r, next(r), *word == 'l' ? &o.layer : &o.revision);
            word = s ? NULL : next(r);
        } else {
            uint32_t j = 0;
            while (j < OP_PARAMS && strcmp(op_params[j].name, word)) j++;
            if (j == OP_PARAMS) return complain(r, "an unknown parameter:", word);
            s = take_word(r, next(r), (int)op_params[j].is_float, (char *)&o + op_params[j].offset);
            word = s ? NULL : next(r);
        }
    }
    if (!s) plan_add_op(&r->draft, &o, index);
    return s;
}

static int32_t read_repeat(reader *r)
{
    plan_draft *d = &r->draft;
    fak_repeat x;
    const char *const key[] = {"first", "ops", "times", "stride"};
    uint32_t *const out[] = {&x.first, &x.ops, &x.times, &x.stride};
    if (d->repeats == sizeof d->repeat / sizeof *d->repeat)
        return complain(r, "too many repeats", NULL);
    int32_t s = take_keys(r, key, out, 4);
    if (!s) d->repeat[d->repeats++] = x;
    return s;
}

static int32_t read_tail(reader *r)
{
    plan_draft *d = &r->draft;
    fak_tail x;
    const char *const key[] = {"first", "ops", "out"};
    uint32_t *const out[] = {&x.first, &x.ops, &x.out};
    if (d->tails == sizeof d->tail / sizeof *d->tail) return complain(r, "too many tails", NULL);
    int32_t s = find_word(r, wants, 3, &x.want);
    if (!s) s = take_keys(r, key, out, 3);
    if (!s) d->tail[d->tails++] = x;
    return s;
}

static int32_t read_line(reader *r)
{
    static const struct {
        const char *word;
        int32_t (*read)(reader *);
    } line[] = {
        {"plan", read_header},   {"value", read_value}, {"op", read_op},
        {"repeat", read_repeat}, {"tail", read_tail},
    };
    char *comment = strchr(r->line, ';');
    if (comment) *comment = 0;
    const char *word = strtok_r(r->line, " \t\r", &r->rest);
    if (!word) return FAK_OK;
    for (size_t i = 0; i < sizeof line / sizeof *line; i++)
        if (!strcmp(line[i].word, word)) return line[i].read(r);
    return complain(r, "an unknown line:", word);
}

int32_t plan_read(plan *p, const char *text, size_t bytes, fak_error *e)
{
    reader r = {.e = e};
    char *copy = malloc(bytes + 1), *at = copy;
    int32_t s = copy ? FAK_OK : status_memory(e, "the plan's text", bytes);
    *p = (plan){0};
    if (copy) memcpy(copy, text, bytes);
    if (copy) copy[bytes] = 0;
    if (copy && strlen(copy) != bytes)
        s = status_set(e, FAK_E_ARGUMENT, "plan: a byte 0 in the text");
    while (!s && at) {
        r.line = at;
        at = strchr(at, '\n');
        if (at) *at++ = 0;
        r.number++;
        s = read_line(&r);
    }
    if (!s && !r.draft.values) s = complain(&r, "no header", NULL);
    if (!s) s = plan_pack(p, &r.draft, e);
    if (!s && (s = plan_check(p->block, p->block->bytes, e))) plan_free(p);
    plan_draft_free(&r.draft);
    free(copy);
    return s;
}
