/* matmul - MATMUL by groups of 16 rows: a chunk is some groups by all panels.  Where the kernels for a
 * weight's own dtype do not fit or do not pay, groups are first turned into F32. */
#include "jobs.h"

#include <string.h>

static uint32_t groups_of(const fak_program *p, uint32_t w)
{
    return ceil_of(p->value[w].rows, GROUP);
}

static size_t group_bytes(const fak_program *p, uint32_t w)
{
    return layout_group(p->weights->at[w].packed, p->value[w].cols);
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
    widen_fn *widen; /* how packed groups of 16 bits become F32, or NULL */
    float *decoded;  /* [DECODED, 16*cols], where groups are first turned into F32, or NULL */
    uint32_t tokens, rows, w;
} tile_work;

enum { DECODED = 4, DECODE_FROM = 3 }; /* groups at once; panels from which it pays for 16 bits */

static size_t decoded_floats(const job *j)
{
    return (size_t)GROUP * ((j->cols + 7) / 8 * 8);
}

/* One group of the matrix by one panel, into y.  from: the first of those that are decoded. */
static void call(const tile_work *t, uint32_t group, uint32_t from, uint32_t panel, float *y,
                 const float *add, size_t stride)
{
    const fak_program *p = t->p;
    const uint8_t *at = p->weights->at[t->w].data + group * group_bytes(p, t->w);
    if (t->decoded) at = (const uint8_t *)(t->decoded + (group - from) * decoded_floats(t->j));
    matmul_args a = {.w = at,
                     .x = (const char *)p->panels + panel * panel_bytes(p, t->j, t->tokens),
                     .y = y,
                     .add = add,
                     .stride = stride,
                     .cols = t->j->cols,
                     .rows = at_most(p->value[t->w].rows - group * GROUP, GROUP),
                     .tokens = at_most(t->rows - panel * t->tokens, t->tokens)};
    t->fn(&a);
}

static tile_work start_work(const fak_program *p, const job *j, uint32_t rows, uint32_t w,
                            float *scratch)
{
    tile_work t = {.p = p, .j = j, .tokens = kernel_tile(p->d->set, rows), .rows = rows, .w = w};
    uint32_t dtype = p->value[w].dtype, plain = plain_bytes(dtype);
    if (plain == 2 && rows > (DECODE_FROM - 1) * t.tokens)
        t.widen = (widen_fn *)kernel_find(p->d->set, KERNEL_WIDEN, dtype, 0);
    if (t.widen || (!plain && !j->blocks)) t.decoded = scratch;
    t.fn =
        (matmul_fn *)kernel_find(p->d->set, FAK_OP_MATMUL, t.decoded ? FAK_F32 : dtype, t.tokens);
    return t;
}

/* Groups [first, end) as F32, packed as those are; row: room for one. */
static void decode_groups(const tile_work *t, uint32_t first, uint32_t end, float *row)
{
    const matrix *m = &t->p->weights->at[t->w];
    float *to = t->decoded;
    for (uint32_t g = first; t->decoded && g < end; g++, to += decoded_floats(t->j)) {
        const uint8_t *group = m->data + g * group_bytes(t->p, t->w);
        if (t->widen) t->widen((uint32_t)decoded_floats(t->j), group, to);
        for (uint32_t r = 0; !t->widen && r < GROUP; r++) {
            layout_decode(m->packed, t->j->cols, group, r, row);
            for (uint32_t i = 0; i < t->j->cols; i += 8) /* blocks are multiples of 8 */
                memcpy(to + (size_t)i * GROUP + r * 8, row + i, 8 * sizeof *row);
        }
    }
}

/* Groups [first, end) of matrix number i by all panels: panels pass, the weights stay in the cache. */
static void multiply(const fak_program *p, const job *j, uint32_t rows, uint32_t i, uint32_t first,
                     uint32_t end, float *scratch)
{
    tile_work t = start_work(p, j, rows, j->w[i], scratch + j->cols);
    uint32_t cols = p->value[t.w].rows, step = t.decoded ? DECODED : end - first;
    for (uint32_t from = first; from < end; from += step) {
        uint32_t to = at_most(end, from + step);
        decode_groups(&t, from, to, scratch);
        for (uint32_t panel = 0; panel < ceil_of(rows, t.tokens); panel++)
            for (uint32_t g = from; g < to; g++) {
                size_t at = (size_t)panel * t.tokens * cols + (size_t)g * GROUP;
                call(&t, g, from, panel, p->at[j->ys[i]] + at, j->add ? p->at[j->add] + at : NULL,
                     cols);
            }
    }
}

/* One group of both matrices by one panel, gated: y = act(g) * u. */
static void gated(const tile_work t[2], uint32_t group, uint32_t from, uint32_t panel)
{
    const job *j = t->j;
    uint32_t F = j->out_cols, n = at_most(F - group * GROUP, GROUP), first = panel * t->tokens;
    float out[2][GROUP * TILE_MAX];
    for (int i = 0; i < 2; i++) call(&t[i], group, from, panel, out[i], NULL, GROUP);
    for (uint32_t c = 0; c < t->tokens && first + c < t->rows; c++)
        j->row(&j->params, n, out[0] + c * GROUP, out[1] + c * GROUP,
               row_of(t->p, j->ys[0], first + c, F) + group * GROUP);
}

static void multiply_glu(const fak_program *p, const job *j, uint32_t rows, uint32_t first,
                         uint32_t end, float *scratch)
{
    float *second = scratch + j->cols + DECODED / 2 * decoded_floats(j);
    tile_work t[2] = {start_work(p, j, rows, j->w[0], scratch + j->cols),
                      start_work(p, j, rows, j->w[1], second)};
    uint32_t step = t->decoded || t[1].decoded ? DECODED / 2 : end - first;
    for (uint32_t from = first; from < end; from += step) {
        uint32_t to = at_most(end, from + step);
        for (int i = 0; i < 2; i++) decode_groups(&t[i], from, to, scratch);
        for (uint32_t panel = 0; panel < ceil_of(rows, t->tokens); panel++)
            for (uint32_t g = from; g < to; g++) gated(t, g, from, panel);
    }
}

void cpu_matmul(const fak_program *p, const job *j, uint32_t rows, uint32_t chunk, uint32_t thread)
{
    uint32_t size = groups_of_chunk(p, j, rows), first = chunk * size, skipped = 0;
    uint32_t end = at_most(first + size, all_groups(p, j));
    float *scratch = (float *)(void *)scratch_of(p, thread);
    if (j->glu) {
        multiply_glu(p, j, rows, first, end, scratch);
        return;
    }
    for (uint32_t i = 0; i < j->matrices; i++) {
        uint32_t n = groups_of(p, j->w[i]);
        uint32_t a = first > skipped ? first - skipped : 0, b = end > skipped ? end - skipped : 0;
        if (a < n && a < b) multiply(p, j, rows, i, a, at_most(b, n), scratch);
        skipped += n;
    }
}

uint32_t cpu_matmul_chunks(const fak_program *p, const job *j, uint32_t rows)
{
    return ceil_of(all_groups(p, j), groups_of_chunk(p, j, rows));
}

uint64_t cpu_matmul_scratch(const job *j)
{
    return (j->cols + DECODED * (uint64_t)decoded_floats(j)) * sizeof(float);
}
