/* jobs - the phases of the pool: how many chunks a job has in this step, and what one does. */
#include "jobs.h"

#include <string.h>

static int is_weight(const fak_program *p, uint32_t id)
{
    return p->value[id].kind == FAK_WEIGHT || p->value[id].kind == FAK_CONST;
}

static const float *floats_of(const fak_program *p, uint32_t id)
{
    return (const float *)(const void *)p->weights->at[id].data;
}

/* ---- rows ---- */

static uint32_t rows_of_job(const fak_program *p, const job *j)
{
    uint32_t id = j->kind == JOB_MATMUL ? p->op[j->op].in[0] : j->a;
    if (j->kind == JOB_EMBED || j->kind == JOB_APPEND || j->kind == JOB_ATTENTION) return p->rows;
    if (j->kind == JOB_TAKE) return p->wants;
    return cpu_rows(p, id < p->values ? id : p->op[j->op].in[0]);
}

enum { SMALL = 8192 }; /* elements that one thread does at once */

static uint32_t rows_of_chunk(const job *j)
{
    return j->cols >= SMALL ? 1 : SMALL / (j->cols ? j->cols : 1);
}

static void embed(const fak_program *p, const job *j, uint32_t row)
{
    const fak_value *w = &p->value[j->w[0]];
    const matrix *m = &p->weights->at[j->w[0]];
    uint32_t id = p->token[row], nan = 0x7fc00000u;
    float *y = row_of(p, j->y, row, w->cols);
    if (id >= w->rows) {
        for (uint32_t i = 0; i < w->cols; i++) memcpy(&y[i], &nan, sizeof nan);
    } else {
        const uint8_t *group = m->data + id / GROUP * layout_group(m->packed, w->cols);
        layout_decode(m->packed, w->cols, group, id % GROUP, y);
    }
}

static void append(const fak_program *p, const job *j, uint32_t row)
{
    uint32_t operand[3];
    const fak_op *o = &p->op[j->op];
    const kv_layer *l = cpu_kv_layer(p, o->layer);
    uint32_t cols = l->kv_heads * l->head_dim;
    if (!fak_appends(o, operand)) return;
    cpu_append(p, l, p->slot[row], p->position[row], row_of(p, operand[0], row, cols),
               row_of(p, operand[1], row, cols));
}

static void one_row(const fak_program *p, const job *j, uint32_t row)
{
    const float *a = row_of(p, j->a, row, j->cols), *b = a;
    if (j->b) b = is_weight(p, j->b) ? floats_of(p, j->b) : row_of(p, j->b, row, j->cols);
    uint32_t out = j->y < p->values ? p->value[j->y].cols : j->cols;
    j->row(&j->params, j->cols, a, b, row_of(p, j->y, row, out));
}

/* Rows [first, end) of the job's row kernel, four at a time where there is one for them. */
static void some_rows(const fak_program *p, const job *j, uint32_t first, uint32_t end)
{
    if (j->row4)
        for (; first + 4 <= end; first += 4)
            j->row4(&j->params, j->cols, row_of(p, j->a, first, j->cols), floats_of(p, j->b),
                    row_of(p, j->y, first, j->cols));
    for (; first < end; first++) one_row(p, j, first);
}

static void rope(const fak_program *p, const job *j, uint32_t row)
{
    const float *table = floats_of(p, j->b) + (size_t)p->position[row] * j->params.rot_dim;
    j->row(&j->params, j->cols, row_of(p, j->a, row, j->cols), table,
           row_of(p, j->y, row, j->cols));
}

static void row_work(const fak_program *p, const job *j, uint32_t row)
{
    switch (j->kind) {
    case JOB_EMBED:
        embed(p, j, row);
        break;
    case JOB_APPEND:
        append(p, j, row);
        break;
    case JOB_ROPE:
        rope(p, j, row);
        break;
    default: /* JOB_TAKE */
        memcpy(row_of(p, j->y, row, j->cols), row_of(p, j->a, p->wanted[row], j->cols),
               j->cols * sizeof(float));
    }
}

/* ---- panels ---- */

static void fill_panel(const fak_program *p, const job *j, uint32_t rows, uint32_t panel)
{
    uint32_t tokens = kernel_tile(p->d->set, rows), first = panel * tokens,
             from = j->row ? j->y : j->a;
    uint32_t n = at_most(rows - first, tokens);
    if (j->row) some_rows(p, j, first, first + n);
    panel_args a = {tokens,  n,
                    j->cols, row_of(p, from, first, j->cols),
                    j->cols, (char *)p->panels + panel * panel_bytes(p, j, tokens)};
    panel_fn *fn =
        (panel_fn *)kernel_find(p->d->set, j->blocks ? KERNEL_QUANTISE : KERNEL_PANEL, 0, 0);
    fn(&a);
}

/* ---- ATTENTION ---- */

/* Heads that are done together for one row: those of a kv head, or half of them where there would be too
 * few units for all threads to end together. */
static uint32_t heads_together(const fak_program *p, const fak_op *o)
{
    uint32_t share = o->heads / o->kv_heads;
    if (!p->singles) return 1;
    if (share > QUERIES) share = QUERIES;
    int few = p->d->threads > 1 && p->strips * o->kv_heads < 4 * p->d->threads;
    return few ? (share + 1) / 2 : share;
}

static uint32_t units_of_strip(const fak_program *p, const fak_op *o)
{
    uint32_t share = o->heads / o->kv_heads;
    return o->kv_heads * ceil_of(share, heads_together(p, o));
}

static void see(const fak_op *o, uint32_t position, uint32_t *from, uint32_t *end)
{
    *end = position + 1;
    *from = o->window && *end > o->window ? *end - o->window : 0;
}

static void attention(const fak_program *p, const job *j, uint32_t chunk, uint32_t thread)
{
    const fak_op *o = &p->op[j->op];
    const kv_layer *l = cpu_kv_layer(p, o->layer);
    uint32_t units = units_of_strip(p, o), together = heads_together(p, o),
             share = o->heads / o->kv_heads;
    const strip *q = &p->strip[chunk / units];
    uint32_t unit = chunk % units, of_head = ceil_of(share, together), kv = unit / of_head;
    uint32_t head = kv * share + unit % of_head * together, d = o->head_dim, width = o->heads * d;
    attention_args a = {.op = o,
                        .queries = p->singles ? at_most(together, kv * share + share - head)
                                              : q->rows,
                        .keys = cpu_keys(&p->kv, l, q->slot, kv),
                        .values = cpu_values(&p->kv, l, q->slot, kv),
                        .value_stride = l->value_stride,
                        .scratch = (float *)(void *)scratch_of(p, thread),
                        .score_stride = p->kv.padded};
    for (uint32_t i = 0; i < a.queries; i++) {
        uint32_t row = p->singles ? q->row : q->row + i, h = p->singles ? head + i : head;
        a.q[i] = row_of(p, j->a, row, width) + h * d;
        a.y[i] = row_of(p, j->y, row, width) + h * d;
        see(o, p->position[row], &a.from[i], &a.end[i]);
    }
    ((attention_fn *)kernel_find(p->d->set, FAK_OP_ATTENTION, p->kv.dtype, 0))(&a);
}

/* ---- the pool's view ---- */

uint32_t cpu_chunks(void *program, uint32_t index)
{
    const fak_program *p = program;
    const job *j = &p->jobs[index];
    uint32_t rows = rows_of_job(p, j);
    if (!rows) return 0;
    switch (j->kind) {
    case JOB_PANELS:
        return ceil_of(rows, kernel_tile(p->d->set, rows));
    case JOB_MATMUL:
        return cpu_matmul_chunks(p, j, rows);
    case JOB_ATTENTION:
        return p->strips * units_of_strip(p, &p->op[j->op]);
    case JOB_EMBED:
    case JOB_ROPE:
    case JOB_APPEND:
        return rows <= 4 ? 1 : ceil_of(rows, 16);
    default:
        return ceil_of(rows, rows_of_chunk(j));
    }
}

void cpu_work(void *program, uint32_t index, uint32_t chunk, uint32_t thread)
{
    const fak_program *p = program;
    const job *j = &p->jobs[index];
    uint32_t rows = rows_of_job(p, j), size = 16;
    switch (j->kind) {
    case JOB_PANELS:
        fill_panel(p, j, rows, chunk);
        return;
    case JOB_MATMUL:
        cpu_matmul(p, j, rows, chunk, thread);
        return;
    case JOB_ATTENTION:
        attention(p, j, chunk, thread);
        return;
    case JOB_EMBED:
    case JOB_ROPE:
    case JOB_APPEND:
        break;
    default:
        size = rows_of_chunk(j);
    }
    uint32_t end = at_most(chunk * size + size, rows);
    if (j->kind == JOB_ROWS) {
        some_rows(p, j, chunk * size, end);
        return;
    }
    for (uint32_t row = chunk * size; row < end; row++) row_work(p, j, row);
}

uint64_t cpu_scratch_bytes(const fak_program *p)
{
    uint64_t most = QUERIES * (uint64_t)p->kv.padded * sizeof(float);
    for (uint32_t i = 0; i < p->job_count; i++) {
        const job *j = &p->jobs[i];
        uint64_t bytes = j->kind == JOB_MATMUL ? cpu_matmul_scratch(j) : 0;
        if (bytes > most) most = bytes;
    }
    return (most + 4095) / 4096 * 4096;
}
