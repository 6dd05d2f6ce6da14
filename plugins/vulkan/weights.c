/* weights - matrices on the device: blocks are cut into a plane of codes and a plane of scales, rows begin
 * at whole words, and a tensor that no kernel could see at once lies in several pieces. */
#include "program.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const weight_format formats[] = {
    {FAK_F32, 1, 4, 0, 4, 0, 0},      {FAK_F16, 1, 2, 0, 2, 0, 0},
    {FAK_BF16, 1, 2, 0, 2, 0, 0},     {FAK_Q8_0, 32, 34, 2, 32, 0, 2},
    {FAK_Q4_0, 32, 18, 2, 16, 0, 2},  {FAK_Q4_1, 32, 20, 4, 16, 0, 4},
    {FAK_Q4_K, 256, 144, 16, 128, 0, 16}, {FAK_Q6_K, 256, 210, 0, 192, 192, 18},
    {0},
};
/* clang-format on */

const weight_format *vk_format(uint32_t dtype)
{
    for (const weight_format *f = formats; f->cols; f++)
        if (f->dtype == dtype) return f;
    return NULL;
}

/* ---- sets ---- */

weight_set *vk_weights_new(uint32_t values, weight_set *lender)
{
    weight_set *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    *w = (weight_set){.refs = 1,
                      .values = values,
                      .home = calloc(values + 1ul, sizeof *w->home),
                      .tensor = calloc(values + 1ul, sizeof *w->tensor),
                      .loaded = calloc(values + 1ul, 1),
                      .lender = lender};
    if (lender) lender->refs++;
    if (w->home && w->tensor && w->loaded) return w;
    vk_weights_free(NULL, w);
    return NULL;
}

void vk_weights_free(fak_device *d, weight_set *w)
{
    if (!w || --w->refs) return;
    vk_weights_free(d, w->lender);
    if (d) vk_give(d, &w->store);
    for (uint32_t i = 0; w->tensor && i < w->tensors; i++) free(w->tensor[i].segment);
    free(w->tensor);
    free(w->home);
    free(w->loaded);
    free(w);
}

/* The set of the chain that holds a value; NULL when none does. */
static weight_set *holder(weight_set *w, uint32_t value)
{
    while (w && !(value < w->values && w->home[value].tensor)) w = w->lender;
    return w;
}

const tensor *vk_weight(weight_set *w, uint32_t value, uint32_t *first)
{
    w = holder(w, value);
    if (!w) return NULL;
    *first = w->home[value].first;
    return &w->tensor[w->home[value].tensor - 1];
}

const store *vk_weight_store(weight_set *w, uint32_t value)
{
    w = holder(w, value);
    return w ? &w->store : NULL;
}

/* ---- places ---- */

static uint64_t row_bytes(const tensor *t)
{
    return (t->a_row + t->b_row) * 4ull;
}

/* Values that have a place already serve as one tensor where their rows follow one another. */
static int fits_already(weight_set *w, const fak_value *v, const uint32_t *value, uint32_t n,
                        int whole)
{
    uint32_t first = 0, at = 0;
    const tensor *t = vk_weight(w, value[0], &at);
    for (uint32_t i = 1; i < n; i++) {
        at += v[value[i - 1]].rows;
        if (vk_weight(w, value[i], &first) != t || first != at) return 0;
    }
    return !whole || t->segments == 1;
}

static int lay_segments(fak_program *p, tensor *t, int whole)
{
    uint64_t row = row_bytes(t), room = p->d->piece_max;
    uint64_t most = (room < p->d->opt.piece ? room : p->d->opt.piece) / row;
    uint32_t each = most < t->rows ? (uint32_t)most : t->rows;
    if (!each || (whole && each < t->rows)) return 0;
    t->segments = (t->rows + each - 1) / each;
    t->segment = calloc(t->segments, sizeof *t->segment);
    if (!t->segment) return -1;
    for (uint32_t i = 0, at = 0; i < t->segments; i++, at += each) {
        uint32_t rows = t->rows - at < each ? t->rows - at : each;
        t->segment[i] = (segment){vk_lay(&p->weights->store, p->d, rows * row), at, rows};
        if (p->weights->store.full) return 0;
    }
    return 1;
}

int vk_weights_add(fak_program *p, const uint32_t *value, uint32_t n, int whole)
{
    weight_set *w = p->weights;
    const fak_value *v = &p->value[value[0]];
    const weight_format *f = vk_format(v->dtype);
    uint32_t there = 0, quads = (v->cols + 3) / 4, blocks = v->cols / f->cols;
    for (uint32_t i = 0; i < n; i++) there += holder(w, value[i]) != NULL;
    if (there) return there == n && fits_already(w, p->value, value, n, whole);
    tensor t = {.format = f, .cols = v->cols};
    t.a_row = f->cols == 1 ? quads * f->bytes : blocks * f->a_bytes / 4;
    t.b_row = (blocks * f->b_bytes + 3) / 4;
    for (uint32_t i = 0; i < n; i++) t.rows += p->value[value[i]].rows;
    int placed = lay_segments(p, &t, whole);
    if (placed <= 0) {
        free(t.segment);
        return placed;
    }
    w->tensor[w->tensors++] = t;
    for (uint32_t i = 0, at = 0; i < n; at += p->value[value[i++]].rows)
        w->home[value[i]] = (home){w->tensors, at};
    return 1;
}

/* ---- load ---- */

typedef struct loading { /* rows as they are served, and cut into planes */
    char *served, *a, *b;
    uint32_t most; /* rows */
} loading;

static uint64_t served_row(const tensor *t)
{
    return (uint64_t)t->cols / t->format->cols * t->format->bytes;
}

static int32_t make_room(loading *l, const tensor *t, uint64_t bytes, fak_error *e)
{
    uint64_t row = served_row(t) + row_bytes(t);
    l->most = row < bytes ? (uint32_t)(bytes / row) : 1;
    l->served = malloc(l->most * row);
    if (!l->served) return vk_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory to load through");
    l->a = l->served + l->most * served_row(t);
    l->b = l->a + l->most * t->a_row * 4ull;
    return FAK_OK;
}

static void cut(const tensor *t, const loading *l, uint32_t rows)
{
    const weight_format *f = t->format;
    uint32_t blocks = t->cols / f->cols;
    memset(l->a, 0, rows * t->a_row * 4ull);
    memset(l->b, 0, rows * t->b_row * 4ull);
    for (uint32_t r = 0; r < rows; r++) {
        const char *from = l->served + r * served_row(t);
        char *a = l->a + r * t->a_row * 4ull, *b = l->b + r * t->b_row * 4ull;
        if (f->cols == 1) memcpy(a, from, served_row(t));
        for (uint32_t i = 0; f->cols > 1 && i < blocks; i++, from += f->bytes) {
            memcpy(a + i * f->a_bytes, from + f->a_from, f->a_bytes);
            memcpy(b + i * f->b_bytes, from + f->b_from, f->b_bytes);
        }
    }
}

/* Rows [first, first + rows) of a tensor, all of one segment, from l->a and l->b. */
static int32_t upload_rows(fak_program *p, const store *in, const tensor *t, const segment *g,
                           uint32_t first, uint32_t rows, const loading *l, fak_error *e)
{
    const block *to = &in->at[g->at.block];
    uint64_t at = first - g->first, b = g->at.at + g->rows * t->a_row * 4ull;
    int32_t s = vk_upload(p, to, g->at.at + at * t->a_row * 4, l->a, rows * t->a_row * 4ull, e);
    return s ? s : vk_upload(p, to, b + at * t->b_row * 4, l->b, rows * t->b_row * 4ull, e);
}

static int32_t load_one(fak_program *p, uint32_t id, const fak_source *src, fak_error *e)
{
    uint32_t base;
    loading l = {0};
    const tensor *t = vk_weight(p->weights, id, &base);
    int32_t s = make_room(&l, t, p->queue.stage.each, e);
    for (uint32_t i = 0; !s && i < t->segments; i++) {
        const segment *g = &t->segment[i];
        uint32_t at = g->first > base ? g->first : base, end = base + p->value[id].rows, n;
        if (end > g->first + g->rows) end = g->first + g->rows;
        for (; !s && at < end; at += n) {
            n = end - at < l.most ? end - at : l.most;
            s = src->read(src->self, id, FAK_NATIVE, at - base, n, l.served, n * served_row(t), e);
            if (s) break;
            cut(t, &l, n);
            s = upload_rows(p, vk_weight_store(p->weights, id), t, g, at, n, &l, e);
        }
    }
    free(l.served);
    return s;
}

static uint64_t load_bytes(const fak_program *p, uint32_t id)
{
    const weight_format *f = vk_format(p->value[id].dtype);
    return (uint64_t)p->value[id].rows * (p->value[id].cols / f->cols) * f->bytes;
}

int32_t vk_load(fak_program *p, const uint32_t *value, uint32_t values, const fak_source *theirs,
                fak_error *e)
{
    const fak_host *host = p->d->host;
    fak_source src;
    uint64_t done = 0, of = 0;
    int32_t s = vk_lost(p->d, e);
    fak_take(&src, sizeof src, theirs);
    for (uint32_t i = 0; !s && i < values; i++) {
        if (!holder(p->weights, value[i]))
            return vk_fail(e, FAK_E_ARGUMENT, value[i], "load of a value that is no weight here");
        of += load_bytes(p, value[i]);
    }
    for (uint32_t i = 0; !s && i < values; i++) {
        uint8_t *is = &holder(p->weights, value[i])->loaded[value[i]];
        if (!*is) s = load_one(p, value[i], &src, e);
        if (!s && !*is) vk_count(p->d, &p->d->stats.bytes_up, load_bytes(p, value[i]));
        *is |= !s;
        done += load_bytes(p, value[i]);
        if (!s && host->progress && host->progress(host->self, "loading", done, of) < 0)
            s = vk_fail(e, FAK_E_CANCELLED, FAK_NO_INDEX,
                        "cancelled after %" PRIu64 " of %" PRIu64 " bytes", done, of);
    }
    return s ? s : vk_flush(p, e);
}

int32_t vk_unload(fak_program *p, const uint32_t *value, uint32_t values, fak_error *e)
{
    int32_t s = vk_lost(p->d, e);
    for (uint32_t i = 0; !s && i < values; i++) {
        weight_set *w = holder(p->weights, value[i]);
        if (w) w->loaded[value[i]] = 0;
    }
    return s;
}
