/* jobs - the phases of the pool: how many chunks a job has in this step, and what one does. */
#include "cpu.h"

#include <string.h>

static uint32_t ceil_of(uint32_t n, uint32_t by)
{
    return n / by + (n % by != 0);
}

static uint32_t at_most(uint32_t n, uint32_t most)
{
    return n < most ? n : most;
}

static float *row_of(const fak_program *p, uint32_t id, uint32_t row, uint32_t cols)
{
    return p->at[id] + (size_t)row * cols;
}

static int is_weight(const fak_program *p, uint32_t id)
{
    return p->value[id].kind == FAK_WEIGHT || p->value[id].kind == FAK_CONST;
}

static const float *floats_of(const fak_program *p, uint32_t id)
{
    return (const float *)(const void *)p->weights->at[id].data;
}

static char *scratch_of(const fak_program *p, uint32_t thread)
{
    return p->scratch + thread * p->scratch_bytes;
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
    } else if (m->packed) {
        size_t group = (size_t)GROUP * (w->cols / m->packed->cols) * m->packed->row_bytes;
        layout_decode(m->packed, w->cols, m->data + id / GROUP * group, id % GROUP, y);
    } else {
        plain_decode(w->dtype, w->cols, m->data + id * m->row_bytes, y);
    }
}

static void append(const fak_program *p, const job *j, uint32_t row)
{
    uint32_t operand[3];
    const fak_op *o = &p->op[j->op];
    const kv_layer *l = cpu_kv_layer(p, o->layer);
    uint32_t cols = l->kv_heads * l->head_dim;
    cpu_appends(o, operand);
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

static uint32_t tile_of(const fak_program *p, const job *j, uint32_t rows)
{
    return kernel_tile(p->d->set, j->blocks, rows);
}

static size_t panel_bytes(const job *j, uint32_t tokens)
{
    if (j->blocks) return (size_t)j->cols / BLOCK * tokens * PANEL_BLOCK_BYTES;
    return (size_t)((j->cols + 7) / 8 * 8) * tokens * sizeof(float);
}

static void fill_panel(const fak_program *p, const job *j, uint32_t rows, uint32_t panel)
{
    uint32_t tokens = tile_of(p, j, rows), first = panel * tokens, from = j->row ? j->y : j->a;
    uint32_t n = at_most(rows - first, tokens);
    if (j->row) some_rows(p, j, first, first + n);
    panel_args a = {tokens,  n,
                    j->cols, row_of(p, from, first, j->cols),
                    j->cols, (char *)p->panels + panel * panel_bytes(j, tokens)};
    panel_fn *fn =
        (panel_fn *)kernel_find(p->d->set, j->blocks ? KERNEL_QUANTISE : KERNEL_PANEL, 0, 0);
    fn(&a);
}

/* ---- MATMUL ---- */

static uint32_t groups_of(const fak_program *p, uint32_t w)
{
    return ceil_of(p->value[w].rows, GROUP);
}

static size_t group_bytes(const fak_program *p, uint32_t w)
{
    const matrix *m = &p->weights->at[w];
    if (!m->packed) return GROUP * m->row_bytes;
    return (size_t)GROUP * (p->value[w].cols / m->packed->cols) * m->packed->row_bytes;
}

/* Groups of all matrices one after another; with GLU those of the two go together. */
static uint32_t all_groups(const fak_program *p, const job *j)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < (j->glu ? 1 : j->matrices); i++) n += groups_of(p, j->w[i]);
    return n;
}

/* Enough work for a claim to cost nothing beside it, enough chunks for all threads to end together. */
static uint32_t groups_of_chunk(const fak_program *p, const job *j, uint32_t rows)
{
    enum { WORK = 24576, MANY = 8 };
    uint32_t all = all_groups(p, j), threads = p->d->threads;
    if (threads == 1 && rows == 1) return all;
    uint32_t n = rows == 1 ? (uint32_t)(WORK / group_bytes(p, j->w[0])) : MANY;
    if (n > all / (4 * threads)) n = all / (4 * threads);
    return n ? n : 1;
}

typedef struct tile_work { /* what the calls of one chunk share */
    const fak_program *p;
    const job *j;
    matmul_fn *fn;
    float *decoded; /* [16, cols], where a packed group is first turned into floats */
    uint32_t tokens, rows;
} tile_work;

/* One group of matrix w by one panel, into y. */
static void call(const tile_work *t, uint32_t w, uint32_t group, uint32_t panel, float *y,
                 const float *add, size_t stride)
{
    const fak_program *p = t->p;
    const matrix *m = &p->weights->at[w];
    uint32_t cols = t->j->cols, first = group * GROUP;
    const uint8_t *at = m->data + group * group_bytes(p, w);
    matmul_args a = {.w = t->decoded ? (const uint8_t *)t->decoded : at,
                     .row_bytes = t->decoded ? cols * sizeof(float) : m->row_bytes,
                     .x = (const char *)p->panels + panel * panel_bytes(t->j, t->tokens),
                     .y = y,
                     .add = add,
                     .stride = stride,
                     .cols = cols,
                     .rows = at_most(p->value[w].rows - first, GROUP),
                     .tokens = at_most(t->rows - panel * t->tokens, t->tokens)};
    t->fn(&a);
}

static void find_fn(tile_work *t, uint32_t w, char *scratch)
{
    const fak_value *v = &t->p->value[w];
    int decode = t->p->weights->at[w].packed && !t->j->blocks;
    t->decoded = decode ? (float *)(void *)scratch : NULL;
    t->fn = (matmul_fn *)kernel_find(t->p->d->set, FAK_OP_MATMUL, decode ? FAK_F32 : v->dtype,
                                     t->tokens);
}

static void decode_group(const tile_work *t, uint32_t w, uint32_t group)
{
    const matrix *m = &t->p->weights->at[w];
    if (!t->decoded) return;
    for (uint32_t r = 0; r < GROUP; r++)
        layout_decode(m->packed, t->j->cols, m->data + group * group_bytes(t->p, w), r,
                      t->decoded + (size_t)r * t->j->cols);
}

/* Groups [first, end) of matrix number i by all panels: panels pass, the weights stay in the cache. */
static void multiply(tile_work *t, uint32_t i, uint32_t first, uint32_t end, char *scratch)
{
    const fak_program *p = t->p;
    const job *j = t->j;
    uint32_t w = j->w[i], cols = p->value[w].rows, panels = ceil_of(t->rows, t->tokens);
    find_fn(t, w, scratch);
    uint32_t step = t->decoded ? 1 : end - first; /* what is decoded is done with at once */
    for (uint32_t from = first; from < end; from += step) {
        decode_group(t, w, from);
        for (uint32_t panel = 0; panel < panels; panel++)
            for (uint32_t g = from; g < from + step; g++) {
                size_t at = (size_t)panel * t->tokens * cols + (size_t)g * GROUP;
                call(t, w, g, panel, p->at[j->ys[i]] + at, j->add ? p->at[j->add] + at : NULL,
                     cols);
            }
    }
}

/* The same of two matrices, gated: y = act(g) * u. */
static void multiply_glu(tile_work *gates, uint32_t first, uint32_t end, char *scratch)
{
    const fak_program *p = gates->p;
    const job *j = gates->j;
    tile_work ups = *gates, *of[2] = {gates, &ups};
    uint32_t F = j->out_cols, tokens = gates->tokens, rows = gates->rows;
    float out[2][GROUP * TILE_MAX];
    for (int i = 0; i < 2; i++) find_fn(of[i], j->w[i], scratch);
    for (uint32_t panel = 0; panel < ceil_of(rows, tokens); panel++)
        for (uint32_t g = first; g < end; g++) {
            uint32_t n = at_most(F - g * GROUP, GROUP);
            for (int i = 0; i < 2; i++) {
                decode_group(of[i], j->w[i], g);
                call(of[i], j->w[i], g, panel, out[i], NULL, GROUP);
            }
            for (uint32_t c = 0; c < tokens && panel * tokens + c < rows; c++)
                j->row(&j->params, n, out[0] + c * GROUP, out[1] + c * GROUP,
                       row_of(p, j->ys[0], panel * tokens + c, F) + g * GROUP);
        }
}

static void matmul(const fak_program *p, const job *j, uint32_t rows, uint32_t chunk,
                   uint32_t thread)
{
    uint32_t size = groups_of_chunk(p, j, rows), first = chunk * size, skipped = 0;
    uint32_t end = at_most(first + size, all_groups(p, j));
    tile_work t = {.p = p, .j = j, .tokens = tile_of(p, j, rows), .rows = rows};
    char *scratch = scratch_of(p, thread);
    if (j->glu) {
        multiply_glu(&t, first, end, scratch);
        return;
    }
    for (uint32_t i = 0; i < j->matrices; i++) {
        uint32_t n = groups_of(p, j->w[i]);
        uint32_t a = first > skipped ? first - skipped : 0, b = end > skipped ? end - skipped : 0;
        if (a < n && a < b) multiply(&t, i, a, at_most(b, n), scratch);
        skipped += n;
    }
}

/* ---- ATTENTION ---- */

/* Heads that are done together for one row: those of a kv head, or half of them where there would be too
 * few units for all threads to end together. */
static uint32_t heads_together(const fak_program *p, const fak_op *o)
{
    uint32_t share = o->heads / o->kv_heads;
    if (!p->singles) return 1;
    if (share > QUERIES) share = QUERIES;
    int few = p->d->threads > 1 && p->quads * o->kv_heads < 4 * p->d->threads;
    return few ? (share + 1) / 2 : share;
}

static uint32_t units_of_quad(const fak_program *p, const fak_op *o)
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
    uint32_t units = units_of_quad(p, o), together = heads_together(p, o),
             share = o->heads / o->kv_heads;
    const quad *q = &p->quad[chunk / units];
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
        return ceil_of(rows, tile_of(p, j, rows));
    case JOB_MATMUL:
        return ceil_of(all_groups(p, j), groups_of_chunk(p, j, rows));
    case JOB_ATTENTION:
        return p->quads * units_of_quad(p, &p->op[j->op]);
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
        matmul(p, j, rows, chunk, thread);
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
        uint64_t decoded = (uint64_t)GROUP * j->cols * sizeof(float);
        if (j->kind == JOB_MATMUL && decoded > most) most = decoded;
    }
    return (most + 4095) / 4096 * 4096;
}
