/* rig_step - see rig.h: what a step does on both sides. */
#include "rig.h"

#include "float_mode.h"
#include "port.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARDED = 0x5c, SPOILED = 0xff };

fak_stats rig_stats(const device *d, int *there)
{
    const fak_stats_ext *theirs = d->api.get_ext ? d->api.get_ext(d->handle, "fak.stats/1") : NULL;
    fak_stats s = {.struct_size = sizeof s};
    fak_stats_ext ext;
    *there = theirs != NULL;
    if (!theirs) return s;
    fak_take(&ext, sizeof ext, theirs);
    if (ext.get) ext.get(d->handle, &s);
    *there = ext.get != NULL;
    return s;
}

/* ---- inputs ---- */

/* A row of noise; every few an outlier, a row of zeros, or numbers below what an activation block sees. */
static void fill_row(rig *r, uint32_t row, uint32_t cols, float *x)
{
    for (uint32_t i = 0; i < cols; i++) x[i] = 2 * toy_noise(&r->toy.random);
    for (uint32_t i = 0; r->positive && i < cols; i++) x[i] = fabsf(x[i]);
    if (!r->special) return;
    if (row % 5 == 1) x[toy_below(&r->toy.random, cols)] *= 60;
    if (row % 5 == 3) memset(x, 0, cols * sizeof *x);
    for (uint32_t i = 0; r->bound.exact && row % 5 == 4 && i < cols; i++) x[i] *= 0x1p-110f;
}

/* For ARGMAX: equal maxima, infinities, zeros of both signs, a NaN. */
static void fill_extremes(rig *r, uint32_t row, uint32_t cols, float *x)
{
    uint32_t a = toy_below(&r->toy.random, cols), b = toy_below(&r->toy.random, cols);
    for (uint32_t i = 0; row % 6 == 2 && i < cols; i++) x[i] = -INFINITY;
    for (uint32_t i = 0; row % 6 == 3 && i < cols; i++) x[i] = i % 2 ? 0.0f : -0.0f;
    if (row % 6 == 1) x[a] = x[b] = 7;
    if (row % 6 == 4) x[a] = NAN;
    if (row % 6 == 5) x[a] = INFINITY;
}

static void fill(rig *r, const rig_spec *spec)
{
    int argmax = r->ops == 1 && r->op[0].id == FAK_OP_ARGMAX;
    for (uint32_t i = 0; i < r->inputs; i++) {
        const fak_value *v = &r->memory.value[r->input[i]];
        float *x = r->memory.at[r->input[i]];
        uint32_t rows = v->rows == FAK_WANTED_ROWS ? spec->wanted : spec->rows;
        for (uint32_t row = 0; row < rows; row++, x += v->cols) {
            fill_row(r, row, v->cols, x);
            if (argmax) fill_extremes(r, row, v->cols, x);
            for (uint32_t c = 0; spec->poison && c < v->cols; c++) x[c] = NAN;
        }
    }
}

/* Ids for EMBED: some that the vocabulary has not. */
static void draw_tokens(rig *r, uint32_t *token, uint32_t rows)
{
    uint32_t V = r->op[0].id == FAK_OP_EMBED ? r->memory.value[r->op[0].in[0]].rows : 8;
    int beyond = r->op[0].id == FAK_OP_EMBED;
    for (uint32_t i = 0; i < rows; i++) token[i] = toy_below(&r->toy.random, V);
    if (beyond && rows > 2) {
        token[1] = V;
        token[2] = FAK_NO_INDEX;
    }
}

/* ---- the device's side ---- */

typedef struct piece { /* what one step of the device takes of a step of the rig */
    uint32_t row, rows, wanted_first, wanted;
} piece;

static int32_t wait_for(rig *r, uint64_t ticket, const char *what, int32_t s, fak_error *e)
{
    const fak_backend *api = &r->dev->api;
    if (s || !ticket) return device_answer(r->dev, s, what, e);
    if (!api->wait)
        return status_set(e, STATUS_GATE, "%s answered a ticket, and there is no wait", what);
    s = api->wait(r->handle, ticket, 0, e);
    while (s == FAK_PENDING) s = api->wait(r->handle, ticket, 1000, e);
    return device_answer(r->dev, s, "wait", e);
}

/* Rows of a value between guards, on NaNs; *touched when a guard is not whole any more. */
static int32_t read_guarded(rig *r, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                            fak_error *e)
{
    size_t row = r->memory.value[value].cols * 4ul, bytes = rows * row, guard = 64 + 2 * row;
    uint8_t *whole = malloc(bytes + 2 * guard);
    uint64_t ticket = 0;
    if (!whole) return status_memory(e, "rows between guards", bytes);
    memset(whole, GUARDED, bytes + 2 * guard);
    memset(whole + guard, SPOILED, bytes);
    *e = (fak_error){.index = FAK_NO_INDEX};
    int32_t s = r->dev->api.read(r->handle, value, first, rows, whole + guard, &ticket, e);
    s = wait_for(r, ticket, "read", s, e);
    for (size_t i = 0; i < guard; i++)
        r->touched |= whole[i] != GUARDED || whole[guard + bytes + i] != GUARDED;
    memcpy(dst, whole + guard, bytes);
    free(whole);
    if (!s && r->touched)
        return status_set(e, STATUS_GATE, "read writes outside the %zu bytes of its rows", bytes);
    return s;
}

static int32_t write_spoiled(rig *r, uint32_t value, const piece *p, fak_error *e)
{
    const fak_value *v = &r->memory.value[value];
    int wanted = v->rows == FAK_WANTED_ROWS;
    uint32_t rows = wanted ? p->wanted : p->rows, first = wanted ? p->wanted_first : p->row;
    size_t bytes = (size_t)rows * v->cols * 4;
    if (!rows) return FAK_OK;
    uint8_t *lent = rig_lend(r, bytes);
    if (!lent) return status_memory(e, "rows of an input", bytes);
    memcpy(lent, (float *)r->memory.at[value] + (size_t)first * v->cols, bytes);
    *e = (fak_error){.index = FAK_NO_INDEX};
    int32_t s = r->dev->api.write(r->handle, value, 0, rows, lent, e);
    rig_take_back(lent);
    return device_answer(r->dev, s, "write", e);
}

static int32_t run_ops(rig *r, fak_error *e)
{
    const device *d = r->dev;
    int32_t s = FAK_OK;
    *e = (fak_error){.index = FAK_NO_INDEX};
    if (d->facts.caps & FAK_CAP_GRAPH_COMPILE)
        return device_answer(d, d->api.run(r->handle, r->first, r->ops, e), "run", e);
    for (uint32_t i = 0; !s && i < r->ops; i++) {
        fak_op_entry entry;
        if (device_find_op(d, r->op[i].id, &entry)) return FAK_E_UNSUPPORTED;
        s = device_answer(d, entry.call(r->handle, r->first + i, e), ops_name(r->op[i].id), e);
    }
    return s;
}

/* Reads an output whole, and once more in part: the same bits. */
static int32_t read_output(rig *r, uint32_t value, const piece *p, float *into, fak_error *e)
{
    const fak_value *v = &r->memory.value[value];
    uint32_t rows = v->rows == FAK_WANTED_ROWS ? p->wanted : p->rows;
    float *dst = into + (size_t)(v->rows == FAK_WANTED_ROWS ? p->wanted_first : p->row) * v->cols;
    if (!rows) return FAK_OK;
    int32_t s = read_guarded(r, value, 0, rows, dst, e);
    if (s || rows < 3) return s;
    float *part = malloc((rows - 2) * v->cols * sizeof *part);
    if (!part) return status_memory(e, "rows of an output", (rows - 2) * v->cols * 4ull);
    s = read_guarded(r, value, 1, rows - 2, part, e);
    if (!s && memcmp(part, dst + v->cols, (rows - 2) * v->cols * sizeof *part))
        s = status_set(e, STATUS_GATE,
                       "rows 1 to %" PRIu32 ", read alone, are not what all of them were",
                       rows - 2);
    free(part);
    return s;
}

/* The step block of a piece; the device is done with it when begin returns. */
static int32_t begin(rig *r, const rig_spec *spec, const piece *p, const uint32_t *token,
                     fak_error *e)
{
    void *block = rig_lend(r, r->limits.step_bytes);
    uint32_t *wanted = malloc((p->wanted + 1ul) * sizeof *wanted), spans = 0;
    fak_span *span = malloc(spec->spans * sizeof *span);
    uint32_t last = r->op[r->ops - 1].id;
    int ids = last == FAK_OP_ARGMAX || last == FAK_OP_MATMUL_ARGMAX;
    int32_t s = block && wanted && span ? FAK_OK : status_memory(e, "a step", r->limits.step_bytes);
    for (uint32_t i = 0; !s && i < p->wanted; i++)
        wanted[i] = spec->wanted_row[p->wanted_first + i] - p->row;
    for (uint32_t i = 0; !s && i < spec->spans; i++) {
        const fak_span *whole = &spec->span[i];
        if (whole->row + whole->rows <= p->row || whole->row >= p->row + p->rows) continue;
        uint32_t skipped = p->row > whole->row ? p->row - whole->row : 0;
        uint32_t rows = whole->rows - skipped < p->rows ? whole->rows - skipped : p->rows;
        span[spans++] = (fak_span){whole->slot, skipped ? 0 : whole->row - p->row, rows,
                                   whole->first + skipped};
    }
    step_spec out = {.want = p->wanted ? (ids ? FAK_WANT_ARGMAX : FAK_WANT_LOGITS) : FAK_WANT_NONE,
                     .rows = p->rows,
                     .wanted = p->wanted,
                     .spans = spans,
                     .token = token + p->row,
                     .wanted_row = wanted,
                     .span = span};
    *e = (fak_error){.index = FAK_NO_INDEX};
    if (!s)
        s = device_answer(r->dev, r->dev->api.begin(r->handle, step_write(block, &out), e), "begin",
                          e);
    rig_take_back(block);
    free(wanted);
    free(span);
    return s;
}

static int32_t run_piece(rig *r, const rig_spec *spec, const piece *p, const uint32_t *token,
                         float *const out[RIG_OUTPUTS], fak_error *e)
{
    int tail = r->outputs && r->memory.value[r->output[0]].rows == FAK_WANTED_ROWS;
    int32_t s = begin(r, spec, p, token, e);
    for (uint32_t i = 0; !s && i < r->inputs; i++) s = write_spoiled(r, r->input[i], p, e);
    if (s || (tail && !p->wanted)) return s;
    double start = port_seconds();
    s = run_ops(r, e);
    if (!s && !float_mode_ok())
        s = status_set(e, STATUS_GATE, "it changes the floating-point mode");
    for (uint32_t i = 0; !s && i < r->outputs; i++) {
        s = read_output(r, r->output[i], p, out[i], e);
        if (i == 0) r->run_s += port_seconds() - start;
    }
    return s;
}

/* Cuts the step where the device does not take any mix of spans. */
static int32_t run_device(rig *r, const rig_spec *spec, const uint32_t *token,
                          float *const out[RIG_OUTPUTS], fak_error *e)
{
    piece p = {.rows = spec->rows, .wanted = spec->wanted};
    int any = !r->report.shapes || r->report.shapes & FAK_ANY_SPANS ||
              (spec->spans == 1 && r->report.shapes & FAK_ONE_SPAN);
    int32_t s = FAK_OK;
    r->run_s = 0;
    if (any) return run_piece(r, spec, &p, token, out, e);
    p = (piece){.rows = 1};
    for (p.row = 0; !s && p.row < spec->rows; p.row++) {
        p.wanted_first += p.wanted;
        p.wanted = p.wanted_first < spec->wanted && spec->wanted_row[p.wanted_first] == p.row;
        s = run_piece(r, spec, &p, token, out, e);
    }
    return s;
}

/* ---- both ---- */

/* Ids are equal; of a MATMUL_ARGMAX of class Approx those that it cannot tell apart are, too. */
static int32_t compare_ids(rig *r, uint32_t value, const float *theirs, uint32_t rows, fak_error *e)
{
    const uint32_t *got = (const uint32_t *)(const void *)theirs, *want = r->memory.at[value];
    const fak_op *o = &r->op[r->ops - 1];
    uint32_t V = r->memory.value[o->in[1]].rows;
    const float *logits = r->memory.at[r->memory.values]; /* of part 0 of a MATMUL_ARGMAX */
    for (uint32_t row = 0; row < rows; row++) {
        r->figures.values++;
        if (got[row] == want[row]) continue;
        if (o->id == FAK_OP_MATMUL_ARGMAX && !r->bound.exact && got[row] < V && want[row] < V) {
            const float *z = logits + (size_t)row * V;
            double squares = 0, gap = (double)(z[want[row]] - z[got[row]]);
            for (uint32_t i = 0; i < V; i++) squares += (double)z[i] * (double)z[i];
            if (gap < 2 * GATE_ELEMENT * r->bound.op_l2 * sqrt(squares / V)) continue;
        }
        r->figures.differ++;
        return status_set(e, STATUS_GATE,
                          "row %" PRIu32 " is id %" PRIu32 " where the reference has %" PRIu32, row,
                          got[row], want[row]);
    }
    return FAK_OK;
}

static int32_t compare(rig *r, const rig_spec *spec, float *const out[RIG_OUTPUTS], fak_error *e)
{
    for (uint32_t i = 0; i < r->outputs; i++) {
        const fak_value *v = &r->memory.value[r->output[i]];
        uint32_t rows = v->rows == FAK_WANTED_ROWS ? spec->wanted : spec->rows;
        const float *want = r->memory.at[r->output[i]];
        gate_figures f = GATE_NONE;
        int32_t s = FAK_OK;
        if (v->dtype == FAK_I32) {
            s = compare_ids(r, r->output[i], out[i], rows, e);
        } else {
            for (uint32_t row = 0; row < rows; row++)
                gate_add_row(&f, row, v->cols, want + (size_t)row * v->cols,
                             out[i] + (size_t)row * v->cols);
            gate_merge(&r->figures, &f);
            s = gate_op(&r->bound, &f, e);
        }
        if (s) return s;
    }
    return FAK_OK;
}

static int32_t run_reference(rig *r, const rig_spec *spec, const uint32_t *token, fak_error *e)
{
    void *block = malloc(r->limits.step_bytes);
    step_spec step = {.want = spec->wanted ? FAK_WANT_LOGITS : FAK_WANT_NONE,
                      .rows = spec->rows,
                      .wanted = spec->wanted,
                      .spans = spec->spans,
                      .token = token,
                      .wanted_row = spec->wanted_row,
                      .span = spec->span};
    if (!block) return status_memory(e, "a step", r->limits.step_bytes);
    r->memory.step = step_write(block, &step);
    int32_t s = FAK_OK;
    for (uint32_t i = 0; !s && i < r->ops; i++) s = ref_op(&r->memory, &r->op[i]);
    r->memory.step = NULL;
    free(block);
    return s ? status_set(e, s, "the reference has no such op") : FAK_OK;
}

int32_t rig_step(rig *r, const rig_spec *spec, fak_error *e)
{
    float *out[RIG_OUTPUTS] = {NULL};
    uint32_t *token = malloc(spec->rows * sizeof *token);
    int32_t s = token ? FAK_OK : status_memory(e, "ids", spec->rows * 4ull);
    for (uint32_t i = 0; !s && i < r->outputs; i++) {
        size_t bytes = (size_t)spec->rows * r->memory.value[r->output[i]].cols * 4;
        out[i] = malloc(bytes);
        if (!out[i]) s = status_memory(e, "rows of an output", bytes);
        if (out[i]) memset(out[i], SPOILED, bytes);
    }
    if (!s) {
        fill(r, spec);
        draw_tokens(r, token, spec->rows);
        s = run_reference(r, spec, token, e);
    }
    if (!s) s = run_device(r, spec, token, out, e);
    if (!s && !spec->poison) s = compare(r, spec, out, e);
    for (uint32_t i = 0; i < r->outputs; i++) free(out[i]);
    free(token);
    return s;
}

int32_t rig_rows(rig *r, uint32_t rows, int poison, fak_error *e)
{
    fak_span span = {.rows = rows};
    uint32_t *wanted = malloc(rows * sizeof *wanted);
    if (!wanted) return status_memory(e, "wanted rows", rows * 4ull);
    for (uint32_t i = 0; i < rows; i++) wanted[i] = i;
    rig_spec spec = {rows, 1, &span, wanted, rows, poison};
    int32_t s = rig_step(r, &spec, e);
    free(wanted);
    return s;
}

int32_t rig_kv(rig *r, uint32_t slot, uint32_t len, fak_error *e)
{
    const fak_op *o = &r->op[0];
    uint32_t cols = o->kv_heads * o->head_dim;
    size_t count = (size_t)len * cols;
    float *rows = malloc(4 * count * sizeof *rows);
    uint64_t ticket = 0;
    if (!rows) return status_memory(e, "keys and values", 16 * count);
    memset(rows, SPOILED, 4 * count * sizeof *rows);
    *e = (fak_error){.index = FAK_NO_INDEX};
    int32_t s = r->dev->api.kv_read(r->handle, slot, 0, 0, len, rows, rows + count, &ticket, e);
    s = wait_for(r, ticket, "kv_read", s, e);
    gate_figures f = GATE_NONE;
    for (uint32_t t = 0; !s && t < len; t++) {
        float *k = rows + 2 * count, *v = k + cols;
        ref_kv_read(&r->memory.kv, 0, slot, t, cols, k, v);
        gate_add_row(&f, t, cols, k, rows + (size_t)t * cols);
        gate_add_row(&f, t, cols, v, rows + count + (size_t)t * cols);
    }
    gate_merge(&r->figures, &f);
    if (!s) s = gate_op(&r->bound, &f, e);
    free(rows);
    return s;
}
