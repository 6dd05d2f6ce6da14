/* planted - cpu-ref, linked in under the name "inner", with a fault in one op of one layer: what
 * bisect must name.  It knows cpu-ref's insides; without option fault it is cpu-ref.  Options:
 *
 *   fault=NAME               a row of planted.h
 *   layer=L                  of that layer (0)
 *   nth=K                    its op of the kind, counted from 0 in plan order (0)
 *   from=P                   only in steps that reach position P (0)
 *   class=approx|reference   what it claims (approx)
 *   fused=0|1                offers fused ops; then a fault is in that which has the op
 *
 * Built with -DPLANTED_BLIND it has no kv_read and no kv_write. */
#include "planted.h"

#include "cpu_ref.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef PLANTED_BLIND
#define NAME "planted-blind"
#else
#define NAME "planted"
#endif
FAK_NOTE(NAME, FAK_APPROX, "");

extern fak_entry_fn fak_backend_entry_v1_inner;
static const planted_row row_of[] = {PLANTED_TABLE(PLANTED_ROW)};
static const fak_backend *in; /* cpu-ref's table */
static struct {
    enum planted_id fault; /* PLANTED_ROWS: none */
    uint32_t layer, nth, from, reference;
} asked;

/* ---- where ---- */

/* Is it an op of the kind and layer that was asked for? */
static int is_kind(const fak_op *o)
{
    const planted_row *r = &row_of[asked.fault];
    return o->id == r->op && o->layer == (r->layered ? asked.layer : FAK_NO_INDEX);
}

static uint32_t parts_of(const fak_program *p, uint32_t op, fak_op part[OP_PARTS])
{
    uint32_t temp[OP_PARTS];
    for (uint32_t k = 0; k < OP_PARTS; k++) temp[k] = p->values + k;
    uint32_t n = ops_expand(&p->op[op], temp, part);
    if (!n) part[n++] = p->op[op];
    return n;
}

/* The part of the op that goes wrong, or -1. */
static int find_part(const fak_program *p, uint32_t op)
{
    const fak_step *s = p->memory.step;
    fak_op part[OP_PARTS];
    fak_span span;
    uint32_t met = 0;
    if (asked.fault == PLANTED_ROWS) return -1;
    FAK_GET(&span, s, span, 0);
    if (span.first + span.rows <= asked.from) return -1;
    for (uint32_t i = 0; i <= op; i++) {
        uint32_t n = parts_of(p, i, part);
        for (uint32_t k = 0; k < n; k++) {
            if (!is_kind(&part[k])) continue;
            int outside = !row_of[asked.fault].layered; /* of both tails: each that is run */
            if (i == op && (outside || met == asked.nth)) return (int)k;
            met++;
        }
    }
    return -1;
}

/* ---- what: after the op ---- */

static float *row(const ref_memory *m, uint32_t id, uint32_t r)
{
    return (float *)m->at[id] + (size_t)r * m->value[id].cols;
}

static uint32_t rows_of(const ref_memory *m, uint32_t id)
{
    return ref_rows(&m->value[id], m->step->rows, m->step->wanted.count);
}

/* y of a MATMUL once more, in a wrong way; the row of the weight decoded. */
static float wrong_dot(uint32_t I, const float *x, const float *w, float y)
{
    float sum = 0;
    if (asked.fault == PLANTED_scaled) return y * 1.02f;
    for (uint32_t i = 0; asked.fault == PLANTED_dropped_tail && i < I - 8; i++)
        sum = sum + x[i] * w[i];
    for (uint32_t i = I; asked.fault == PLANTED_reversed && i-- > 0;) sum = sum + x[i] * w[i];
    return sum;
}

static void spoil_matmul(const ref_memory *m, const fak_op *o)
{
    const fak_value *w = &m->value[o->in[1]];
    uint32_t rows = rows_of(m, o->out[0]);
    float *weights = malloc(w->cols * sizeof *weights);
    if (!weights) abort();
    for (uint32_t i = 0; i < w->rows; i++) {
        const char *native = (const char *)m->at[o->in[1]] + i * dtype_row_bytes(w->dtype, w->cols);
        dtype_decode_row(w->dtype, w->cols, native, weights);
        for (uint32_t r = 0; r < rows; r++) {
            float *y = row(m, o->out[0], r);
            if (asked.fault == PLANTED_shifted)
                y[i] = y[i + 1 < w->rows ? i + 1 : i];
            else if (asked.fault == PLANTED_nan)
                y[w->rows / 2] = NAN;
            else if (asked.fault != PLANTED_skipped_row)
                y[i] = wrong_dot(w->cols, row(m, o->in[0], r), weights, y[i]);
        }
    }
    if (asked.fault == PLANTED_skipped_row && rows > 1)
        memset(row(m, o->out[0], rows - 1), 0, w->rows * sizeof(float));
    free(weights);
}

/* Turned by the angles of the position, the other way round. */
static void turn_back(const fak_op *o, uint32_t heads, const float *x, const float *tab, float *y)
{
    float other[1024];
    for (uint32_t i = 0; i < o->rot_dim; i++) other[i] = i < o->rot_dim / 2 ? tab[i] : -tab[i];
    ref_rope(heads, o->head_dim, o->rot_dim, x, other, y);
}

static void spoil_position(const ref_memory *m, const fak_op *o, const fak_span *s, uint32_t r)
{
    float k[1024], v[1024];
    uint32_t pos = s->first + r, cols = o->kv_heads * o->head_dim;
    if (asked.fault == PLANTED_rope_sign)
        turn_back(o, o->heads, row(m, o->in[0], r), row(m, o->in[1], pos), row(m, o->out[0], r));
    if (o->id != FAK_OP_KV_APPEND) return;
    ref_kv_read(&m->kv, o->layer, s->slot, pos, cols, k, v);
    if (asked.fault == PLANTED_key_sign)
        turn_back(o, o->kv_heads, row(m, o->in[0], r), row(m, o->in[2], pos), k);
    if (asked.fault == PLANTED_lost_kv && r + 1 == s->rows) memset(k, 0, sizeof k);
    if (asked.fault == PLANTED_lost_kv && r + 1 == s->rows) memset(v, 0, sizeof v);
    ref_kv_write(&m->kv, o->layer, s->slot, pos, cols, k, v);
}

static void spoil_ids(const ref_memory *m, const fak_op *o)
{
    uint32_t V = m->value[o->in[0]].cols, best = 0;
    for (uint32_t r = 0; r < rows_of(m, o->out[0]); r++) {
        const float *x = row(m, o->in[0], r);
        best = 0;
        for (uint32_t i = 1; i < V; i++)
            if (asked.fault == PLANTED_argmax_half ? i < V / 2 && x[i] > x[best] : x[i] >= x[best])
                best = i;
        memcpy(row(m, o->out[0], r), &best, sizeof best);
    }
}

/* ---- what: before the op ---- */

/* Changes the op; or the step, which is cpu-ref's copy, until the op has run. */
static void spoil_op(const ref_memory *m, fak_op *o, fak_step *step, fak_span *span)
{
    uint32_t *word =
        (uint32_t *)(void *)((char *)step +
                             (o->id == FAK_OP_EMBED ? step->token.offset : step->wanted.offset));
    uint32_t first = o->in[0];
    if (asked.fault == PLANTED_norm_eps) o->eps += 0.1f;
    if (asked.fault == PLANTED_stale_step && span->first) span->first--;
    if (asked.fault == PLANTED_swapped_kv) {
        o->in[0] = o->in[1];
        o->in[1] = first;
    }
    if (asked.fault == PLANTED_swapped_slot) span->slot++;
    if (asked.fault == PLANTED_kv_layer) o->layer = o->layer ? o->layer - 1 : 1;
    if (asked.fault == PLANTED_window) o->window = span->first + span->rows - 1;
    if (asked.fault == PLANTED_scores) o->scale = 1;
    if (asked.fault == PLANTED_kv_heads) o->kv_heads = 1;
    if (asked.fault == PLANTED_gelu) o->act = FAK_GELU_TANH;
    if (asked.fault == PLANTED_add_twice) o->in[1] = first;
    for (uint32_t i = 0; asked.fault == PLANTED_embed_next && i < step->token.count; i++)
        word[i] = (word[i] + 1) % m->value[o->in[0]].rows;
    for (uint32_t i = 0; asked.fault == PLANTED_take_first && i < step->wanted.count; i++)
        word[i] = 0;
}

static int32_t run_wrong(fak_program *p, const fak_op *right)
{
    fak_step *step = p->step, *kept = malloc(p->limits.step_bytes);
    fak_op wrong = *right;
    fak_span span, was;
    char *at = (char *)step + step->span.offset;
    if (!kept) return FAK_E_MEMORY;
    memcpy(kept, step, step->bytes);
    memcpy(&span, at, sizeof span);
    was = span;
    spoil_op(&p->memory, &wrong, step, &span);
    memcpy(at, &span, sizeof span);
    int32_t s = ref_op(&p->memory, &wrong);
    memcpy(step, kept, step->bytes);
    free(kept);
    if (wrong.id == FAK_OP_MATMUL) spoil_matmul(&p->memory, right);
    if (wrong.id == FAK_OP_ARGMAX) spoil_ids(&p->memory, right);
    for (uint32_t r = 0; r < was.rows; r++) spoil_position(&p->memory, right, &was, r);
    return s;
}

static int32_t call(fak_program *p, uint32_t op, fak_error *e)
{
    fak_op part[OP_PARTS];
    uint32_t temp[OP_PARTS];
    int wrong = find_part(p, op);
    uint32_t n = parts_of(p, op, part);
    int32_t s = FAK_OK;
    if (wrong < 0) return cpu_ref_op(p, op, e);
    ref_op_scratch(&p->op[op], p->memory.value, p->values, 1, 1, temp); /* shapes between parts */
    for (uint32_t k = 0; !s && k < n; k++)
        s = (int)k == wrong ? run_wrong(p, &part[k]) : ref_op(&p->memory, &part[k]);
    return s ? cpu_ref_fail(e, s, op, "planted: the op cannot be run") : s;
}

/* ---- what it is ---- */

static fak_op_entry table[32];
static fak_opened facts;

/* One slot more than is asked for: where misplaced rows go. */
static int32_t prepare(fak_device *d, const fak_plan *plan, const fak_limits *limits,
                       fak_program *weights_of, uint32_t flags, uint32_t *verdict, fak_report *r,
                       fak_program **out, fak_error *e)
{
    fak_limits wider;
    fak_take(&wider, sizeof wider, limits);
    wider.slots++;
    return in->prepare(d, plan, &wider, weights_of, flags, verdict, r, out, e);
}

static int take_option(const fak_setting *set, int *fused)
{
    uint32_t *number = !strcmp(set->name, "layer")  ? &asked.layer
                       : !strcmp(set->name, "nth")  ? &asked.nth
                       : !strcmp(set->name, "from") ? &asked.from
                                                    : NULL;
    if (number) *number = (uint32_t)strtoul(set->value, NULL, 10);
    if (!strcmp(set->name, "fused")) *fused = set->value[0] == '1';
    if (!strcmp(set->name, "class")) asked.reference = !strcmp(set->value, "reference");
    if (strcmp(set->name, "fault")) return 0;
    for (asked.fault = 0; asked.fault < PLANTED_ROWS; asked.fault++)
        if (!strcmp(row_of[asked.fault].name, set->value)) return 0;
    return -1;
}

static int32_t open_device(uint32_t index, const fak_setting *set, uint32_t n, fak_device **out,
                           const fak_opened **its_facts, fak_error *e)
{
    const fak_opened *theirs;
    int fused = 0;
    memset(&asked, 0, sizeof asked);
    asked.fault = PLANTED_ROWS;
    for (uint32_t i = 0; i < n; i++)
        if (take_option(&set[i], &fused))
            return cpu_ref_fail(e, FAK_E_ARGUMENT, i, "there is no such fault");
    const fak_setting inner = {"fused", fused ? "1" : "0"};
    int32_t s = in->open(index, &inner, 1, out, &theirs, e);
    if (s) return s;
    fak_take(&facts, sizeof facts, theirs);
    facts.klass = asked.reference ? FAK_REFERENCE : FAK_APPROX;
    facts.op = table;
    *its_facts = &facts;
    return FAK_OK;
}

static int32_t device_info(uint32_t index, const fak_setting *set, uint32_t n, fak_device_info *out,
                           fak_error *e)
{
    fak_device_info mine = {.struct_size = sizeof mine};
    int32_t s = in->device_info(index, set, n, &mine, e);
    mine.kind = FAK_SOFTWARE;
    if (!s) fak_put(out, &mine, sizeof mine);
    return s;
}

int32_t FAK_ENTRY(const fak_host *host, const fak_backend **out, fak_error *e)
{
    static const fak_option options[] = {
        {"fault", "text", "", "a row of planted.h"},
        {"layer", "0..65535", "0", "the layer that it is in"},
        {"nth", "0..65535", "0", "which op of the kind in that layer"},
        {"from", "0..65535", "0", "the first position at which it shows"},
        {"class", "approx|reference", "approx", "what it claims"},
        {"fused", "0|1", "0", "offer fused ops"},
    };
    static fak_backend b;
    int32_t s = fak_backend_entry_v1_inner(host, &in, e);
    if (s) return s;
    for (uint32_t i = 0; i < in->ops; i++) {
        fak_get(&table[i], sizeof table[i], in->op, in->op_stride, i);
        table[i].call = call;
    }
    b = *in; /* built together */
    b.name = NAME;
    b.vendor = "fak tests";
    b.options = sizeof options / sizeof *options;
    b.option = options;
    b.option_stride = sizeof *options;
    b.op = table;
    b.device_info = device_info;
    b.open = open_device;
    b.prepare = prepare;
#ifdef PLANTED_BLIND
    b.kv_read = NULL;
    b.kv_write = NULL;
#endif
    *out = &b;
    return FAK_OK;
}
