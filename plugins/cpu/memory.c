/* memory - where values, weights and kv lie, what they take, and taking it. */
#include "cpu.h"

#include <stdlib.h>
#include <string.h>
#if !defined __wasi__
#include <sys/mman.h>
#endif

/* ---- pages ---- */

#if defined __wasi__
void *cpu_map(uint64_t bytes, int large)
{
    (void)large;
    return (size_t)bytes == bytes ? calloc(1, (size_t)bytes) : NULL;
}

void cpu_unmap(void *at, uint64_t bytes)
{
    (void)bytes;
    free(at);
}
#else
void *cpu_map(uint64_t bytes, int large)
{
    if ((size_t)bytes != bytes) return NULL;
    void *at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
#if defined MADV_HUGEPAGE
    if (large) madvise(at, (size_t)bytes, MADV_HUGEPAGE); /* a wish */
#endif
    return at;
}

void cpu_unmap(void *at, uint64_t bytes)
{
    if (at) munmap(at, (size_t)bytes);
}
#endif

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* ---- values: those whose lives do not overlap share a piece of the arena ---- */

typedef struct piece {
    uint64_t bytes;
    int busy;
} piece;

typedef struct places {
    uint8_t *touched;   /* [values] by a taken op */
    uint32_t *last;     /* [values] op that reads it last */
    uint32_t *piece_of; /* [values] plus 1; 0 = none */
    piece *piece;       /* [values] at most */
    uint32_t pieces;
} places;

static uint64_t value_bytes(const fak_program *p, uint32_t id)
{
    const fak_value *v = &p->value[id];
    uint32_t rows = v->rows == FAK_WANTED_ROWS ? p->limits.wanted : p->limits.rows;
    return aligned((uint64_t)rows * v->cols * sizeof(float));
}

static void find_lives(const fak_program *p, places *l)
{
    for (uint32_t i = 0; i < p->ops; i++) {
        const fak_op *o = &p->op[i];
        for (int j = 0; j < 3; j++) {
            l->last[o->out[j]] = i;
            l->touched[o->out[j]] |= p->taken[i];
        }
        for (int j = 0; j < INPUTS; j++) {
            l->last[o->in[j]] = i;
            l->touched[o->in[j]] |= p->taken[i];
        }
    }
    for (uint32_t v = 0; v < p->values; v++) {
        if (p->value[v].kind < FAK_ACT) l->touched[v] = 0;
        if (p->flags & FAK_KEEP_ALL || p->value[v].kind == FAK_OUT) l->last[v] = p->ops;
    }
}

static void place(const fak_program *p, places *l, uint32_t id)
{
    uint64_t bytes = value_bytes(p, id);
    uint32_t best = l->pieces;
    for (uint32_t i = 0; i < l->pieces; i++) {
        if (l->piece[i].busy) continue;
        if (best == l->pieces || (l->piece[i].bytes >= bytes && l->piece[best].bytes < bytes))
            best = i;
    }
    if (best == l->pieces) l->piece[l->pieces++] = (piece){0};
    l->piece[best].busy = 1;
    if (l->piece[best].bytes < bytes) l->piece[best].bytes = bytes;
    l->piece_of[id] = best + 1;
}

static void free_after(places *l, uint32_t id, uint32_t op)
{
    if (l->piece_of[id] && l->last[id] == op) l->piece[l->piece_of[id] - 1].busy = 0;
}

/* Bytes of the arena; temps lie behind the values. */
static uint64_t place_values(fak_program *p, places *l)
{
    uint64_t bytes = 0;
    find_lives(p, l);
    for (uint32_t i = 0; i < p->ops; i++) {
        const fak_op *o = &p->op[i];
        for (int j = 0; j < 3; j++)
            if (l->touched[o->out[j]] && !l->piece_of[o->out[j]]) place(p, l, o->out[j]);
        for (int j = 0; j < INPUTS; j++) /* written by an op of the host */
            if (l->touched[o->in[j]] && !l->piece_of[o->in[j]]) place(p, l, o->in[j]);
        for (int j = 0; j < 3; j++) free_after(l, o->out[j], i);
        for (int j = 0; j < INPUTS; j++) free_after(l, o->in[j], i);
    }
    for (uint32_t i = 0; i < l->pieces; i++) {
        uint64_t at = bytes;
        bytes += l->piece[i].bytes;
        l->piece[i].bytes = at; /* where it begins, from now on */
    }
    return bytes;
}

/* ---- temps, panels ---- */

/* Columns of the widest of each temp, and bytes of the largest panels. */
static uint64_t survey(const fak_program *p, uint32_t temp[TEMPS])
{
    uint64_t most = 0, rows = p->limits.rows > p->limits.wanted ? p->limits.rows : p->limits.wanted;
    rows += TILE_MAX;
    for (uint32_t i = 0; i < p->job_count; i++) {
        const job *j = &p->jobs[i];
        uint64_t bytes = rows * (j->blocks
                                     ? (uint64_t)j->cols / BLOCK * PANEL_BLOCK_BYTES
                                     : (j->cols + 7ull) / 8 * 8 * sizeof(float) * p->d->set->pair);
        if (j->kind == JOB_PANELS && bytes > most) most = bytes;
        for (uint32_t k = 0; k < TEMPS; k++) {
            if (j->kind == JOB_PANELS && j->row && j->y == p->values + k && j->cols > temp[k])
                temp[k] = j->cols;
            if (j->kind == JOB_MATMUL && j->ys[0] == p->values + k && j->out_cols > temp[k])
                temp[k] = j->out_cols;
        }
    }
    return most;
}

/* ---- weights ---- */

static uint64_t place_weights(const fak_program *p, matrix *at)
{
    uint64_t bytes = 0;
    uint8_t *seen = calloc(p->values, 1);
    for (uint32_t i = 0; seen && i < p->ops; i++)
        for (uint32_t j = 0; p->taken[i] && j < INPUTS; j++) {
            uint32_t id = p->op[i].in[j], first, matrices = fak_matrices(&p->op[i], &first);
            const fak_value *v = &p->value[id];
            if ((v->kind != FAK_WEIGHT && v->kind != FAK_CONST) || seen[id]) continue;
            const layout *packed = j - first < matrices ? layout_find(v->dtype) : NULL;
            matrix m = {.at = bytes, .packed = packed};
            m.bytes = packed ? layout_bytes(v->dtype, v->rows, v->cols)
                             : (uint64_t)v->rows * v->cols * plain_bytes(v->dtype);
            bytes += aligned(m.bytes + 64); /* a vector may be read beyond the end */
            if (at) at[id] = m;
            seen[id] = 1;
        }
    free(seen);
    return bytes;
}

static int32_t take_weights(fak_program *p, fak_program *of)
{
    if (of && of->values == p->values) {
        p->weights = of->weights;
        p->weights->refs++;
        return FAK_OK;
    }
    weight_set *w = calloc(1, sizeof *w);
    if (!w) return FAK_E_MEMORY;
    p->weights = w;
    *w = (weight_set){.refs = 1, .count = p->values, .at = calloc(p->values, sizeof *w->at)};
    if (!w->at) return FAK_E_MEMORY;
    w->bytes = place_weights(p, w->at);
    w->base = w->bytes ? cpu_map(w->bytes, 1) : NULL;
    return w->base || !w->bytes ? FAK_OK : FAK_E_MEMORY;
}

/* ---- kv ---- */

/* Layers whose kv is here, and where it lies; p->kv.bytes. */
static int32_t place_kv(fak_program *p)
{
    kv_store *kv = &p->kv;
    uint64_t at = 0;
    *kv = (kv_store){.dtype = p->limits.kv_dtype,
                     .element = p->limits.kv_dtype == FAK_F32 ? 4 : 2,
                     .slots = p->limits.slots,
                     .context = p->limits.context,
                     .padded = (p->limits.context + 31) / 32 * 32,
                     .raw = (p->flags & FAK_EVICTABLE) != 0};
    kv->layer = calloc(p->layers + 1ul, sizeof *kv->layer);
    if (!kv->layer) return FAK_E_MEMORY;
    for (uint32_t i = 0; i < p->ops; i++) {
        uint32_t operand[3];
        const fak_op *o = &p->op[i];
        if (!p->taken[i] || !fak_appends(o, operand)) continue;
        uint64_t cells = (uint64_t)kv->slots * kv->padded * o->kv_heads;
        kv_layer l = {o->layer,   o->kv_heads, o->head_dim,
                      o->rot_dim, operand[2],  at,
                      0,          0,           (o->head_dim + 15) / 16 * 16};
        at += aligned(cells * l.head_dim * kv->element);
        l.values = at;
        at += aligned(cells * l.value_stride * kv->element);
        l.raw = at;
        if (kv->raw) at += aligned(cells * l.head_dim * sizeof(float));
        kv->layer[kv->layers++] = l;
    }
    kv->bytes = kv->layers ? at + 64 : 0;
    return FAK_OK;
}

/* ---- all of it ---- */

static int32_t take(fak_program *p, const places *l, const uint32_t temp[TEMPS])
{
    uint64_t rows = p->limits.rows > p->limits.wanted ? p->limits.rows : p->limits.wanted, at = 0;
    for (uint32_t k = 0; k < TEMPS; k++) p->arena_bytes += aligned(rows * temp[k] * sizeof(float));
    p->arena = cpu_map(p->arena_bytes + 64, 0);
    p->panels = cpu_map(p->panel_bytes + 64, 0);
    p->scratch = cpu_map(p->scratch_bytes * p->d->threads + 64, 0);
    p->kv.base = p->kv.bytes ? cpu_map(p->kv.bytes, 0) : NULL;
    p->kv.length = calloc(p->limits.slots + 1ul, sizeof *p->kv.length);
    p->step = malloc(p->limits.step_bytes + p->limits.rows * 4ul);
    p->position = malloc(p->limits.rows * 8ul + 8);
    p->strip = malloc((p->limits.rows + 1ul) * sizeof *p->strip);
    if (!p->arena || !p->panels || !p->scratch || (p->kv.bytes && !p->kv.base) || !p->kv.length ||
        !p->step || !p->position || !p->strip)
        return FAK_E_MEMORY;
    p->slot = p->position + p->limits.rows;
    for (uint32_t v = 0; v < p->values; v++)
        if (l->piece_of[v])
            p->at[v] = (float *)(void *)(p->arena + l->piece[l->piece_of[v] - 1].bytes);
    at = p->arena_bytes;
    for (uint32_t k = TEMPS; k-- > 0;) {
        at -= aligned(rows * temp[k] * sizeof(float));
        p->at[p->values + k] = (float *)(void *)(p->arena + at);
    }
    return FAK_OK;
}

static fak_report report_of(const fak_program *p, const uint32_t temp[TEMPS])
{
    fak_report r = {.flags = FAK_EXACT, .shapes = FAK_ANY_SPANS};
    uint64_t rows = p->limits.rows > p->limits.wanted ? p->limits.rows : p->limits.wanted;
    uint64_t cells = (uint64_t)p->kv.slots * p->kv.padded;
    r.weight_bytes = place_weights(p, NULL);
    r.load_peak_bytes = r.weight_bytes;
    r.kv_bytes = p->kv.bytes;
    r.kv_token_bytes = cells ? p->kv.bytes / cells : 0;
    r.scratch_bytes = p->arena_bytes + p->panel_bytes + p->scratch_bytes * p->d->threads;
    for (uint32_t k = 0; k < TEMPS; k++) r.scratch_bytes += aligned(rows * temp[k] * sizeof(float));
    r.host_bytes = p->limits.step_bytes + p->limits.rows * 12ull;
    return r;
}

int32_t cpu_lay_out(fak_program *p, fak_program *weights_of, fak_report *theirs, int dry)
{
    uint32_t temp[TEMPS] = {0};
    places l = {calloc(p->values, 1), calloc(p->values, 4), calloc(p->values, 4),
                calloc(p->values, sizeof(piece)), 0};
    int32_t s = l.touched && l.last && l.piece_of && l.piece ? place_kv(p) : FAK_E_MEMORY;
    if (!s) {
        p->arena_bytes = place_values(p, &l);
        p->panel_bytes = survey(p, temp);
        p->scratch_bytes = cpu_scratch_bytes(p);
        fak_report mine = report_of(p, temp);
        fak_put(theirs, &mine, sizeof mine);
        if (!dry) s = take_weights(p, weights_of);
        if (!dry && !s) s = take(p, &l, temp);
    }
    free(l.touched);
    free(l.last);
    free(l.piece_of);
    free(l.piece);
    return s;
}

static void release_weights(weight_set *w)
{
    if (!w || --w->refs) return;
    cpu_unmap(w->base, w->bytes);
    free(w->at);
    free(w);
}

void cpu_free(fak_program *p)
{
    release_weights(p->weights);
    cpu_unmap(p->arena, p->arena_bytes + 64);
    cpu_unmap(p->panels, p->panel_bytes + 64);
    cpu_unmap(p->scratch, p->scratch_bytes * p->d->threads + 64);
    cpu_unmap(p->kv.base, p->kv.bytes);
    void *own[] = {p->op,       p->value,     p->taken, p->first_job, p->jobs, p->at,
                   p->kv.layer, p->kv.length, p->step,  p->position,  p->strip};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) free(own[i]);
    free(p);
}
