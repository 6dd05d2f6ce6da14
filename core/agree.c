/* agree - see agree.h. */
#include "agree.h"

#include "port.h"
#include "ref.h"
#include "session.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AGREE_ROWS = 32 }; /* of a step of the prompt */

typedef struct agreement {
    const agree_options *o;
    session session;
    uint32_t slot, V, positions;
    uint64_t done;    /* positions of both sides */
    uint32_t *greedy; /* [o->greedy] the reference's ids */
    float *rows;      /* [positions, V] the reference's logits */
    float *chunk;     /* [AGREE_ROWS, V] the device's */
} agreement;

/* ---- bounds ---- */

static double looser(double a, double b)
{
    return a > b ? a : b;
}

gate_bound agree_bound(const model *m, const device *dev, uint32_t act, uint32_t kv_dtype)
{
    static const enum model_role matrix[] = {MODEL_HEAD, MODEL_Q,    MODEL_K,  MODEL_V,
                                             MODEL_O,    MODEL_GATE, MODEL_UP, MODEL_DOWN};
    gate_bound all = {0};
    if (!act) act = program_default_act(m, dev);
    for (size_t i = 0; i < sizeof matrix / sizeof *matrix; i++)
        for (uint32_t l = 0; l < m->layers; l++) {
            uint32_t dtype = m->weights.at[model_weight(m, matrix[i], l)].dtype;
            gate_bound b = gate_bound_of(dev, act, dtype, kv_dtype ? kv_dtype : FAK_F32);
            if (!all.mode || b.max_abs > all.max_abs) all.mode = b.mode;
            all.exact = b.exact;
            all.cosine = all.cosine > 0 && all.cosine < b.cosine ? all.cosine : b.cosine;
            all.norm_ratio = looser(all.norm_ratio, b.norm_ratio);
            all.rel_l2 = looser(all.rel_l2, b.rel_l2);
            all.max_abs = looser(all.max_abs, b.max_abs);
            all.op_l2 = looser(all.op_l2, b.op_l2);
        }
    return all;
}

/* ---- one side ---- */

static int32_t tell(agreement *a, uint32_t positions, fak_error *e)
{
    a->done += positions;
    if (!a->o->progress || !a->o->progress(a->o->self, a->done, 2 * (uint64_t)a->positions))
        return FAK_OK;
    return status_set(e, FAK_E_CANCELLED, "stopped after %" PRIu64 " of %" PRIu64 " positions",
                      a->done, 2 * (uint64_t)a->positions);
}

static int32_t on_load(void *self, uint64_t bytes)
{
    fak_error e;
    (void)bytes;
    return tell(self, 0, &e);
}

static int32_t open_side(agreement *a, const model *m, device *dev, device *host, uint32_t act,
                         fak_error *e)
{
    session_options o = {.context = a->o->context,
                         .rows = AGREE_ROWS,
                         .wanted = AGREE_ROWS,
                         .kv_dtype = a->o->kv_dtype,
                         .act = act};
    int32_t s = session_open(&a->session, m, dev, host, &o, on_load, a, e);
    return s ? s : kv_take(&a->session.kv, &a->slot, e);
}

/* Ids at positions [at, at + count) of the slot, logits of each. */
static int32_t feed(agreement *a, const uint32_t *id, uint32_t count, float *rows, fak_error *e)
{
    int32_t s = session_feed(&a->session, a->slot, id, count, FAK_WANT_LOGITS, 1, rows, e);
    return s ? s : tell(a, count, e);
}

/* The next ids from position `at`: some of the prompt, or one that the reference picked. */
static uint32_t next_ids(const agreement *a, uint32_t at, const uint32_t **id)
{
    uint32_t prompt = a->o->prompt_count, left = at < prompt ? prompt - at : 1;
    *id = at < prompt ? a->o->prompt + at : a->greedy + (at - prompt);
    return left < AGREE_ROWS ? left : AGREE_ROWS;
}

static int32_t run_reference(agreement *a, fak_error *e)
{
    int32_t s = FAK_OK;
    const uint32_t *id;
    for (uint32_t at = 0, n; !s && at < a->positions; at += n) {
        if (at >= a->o->prompt_count) {
            uint32_t best = ref_argmax(a->V, a->rows + (size_t)(at - 1) * a->V);
            if (best >= a->V)
                return status_set(e, STATUS_NAN,
                                  "the reference's own logits hold a NaN at position %" PRIu32,
                                  at - 1);
            a->greedy[at - a->o->prompt_count] = best;
        }
        n = next_ids(a, at, &id);
        s = feed(a, id, n, a->rows + (size_t)at * a->V, e);
    }
    return s;
}

static int32_t run_device(agreement *a, const gate_bound *b, gate_tally *tally, fak_error *e)
{
    int32_t s = FAK_OK;
    const uint32_t *id;
    for (uint32_t at = 0, n; !s && at < a->positions; at += n) {
        n = next_ids(a, at, &id);
        s = feed(a, id, n, a->chunk, e);
        for (uint32_t i = 0; !s && i < n; i++)
            gate_add_position(tally, b, a->V, a->rows + (size_t)(at + i) * a->V,
                              a->chunk + (size_t)i * a->V);
    }
    return s;
}

/* ---- both ---- */

static int32_t make_room(agreement *a, fak_error *e)
{
    uint64_t bytes = (uint64_t)a->positions * a->V * sizeof *a->rows;
    a->rows = port_alloc(bytes);
    a->chunk = port_alloc((uint64_t)AGREE_ROWS * a->V * sizeof *a->chunk);
    a->greedy = calloc(a->o->greedy + 1ul, sizeof *a->greedy);
    if (a->rows && a->chunk && a->greedy) return FAK_OK;
    return status_memory(e, "the logits to compare", bytes);
}

int32_t agree_run(const model *m, device *dev, device *host, const agree_options *o,
                  gate_tally *tally, uint64_t by_id[SIDES][EXEC_IDS], uint32_t *ids, fak_error *e)
{
    uint32_t act = o->act ? o->act : program_default_act(m, dev);
    uint32_t theirs = act == FAK_ACT_F16 ? FAK_ACT_F32 : act; /* the reference has no F16 */
    const gate_bound bound = agree_bound(m, dev, act, o->kv_dtype);
    agreement a = {.o = o, .V = m->vocab, .positions = o->prompt_count + o->greedy};
    *tally = (gate_tally){.logits = GATE_NONE};
    memset(by_id, 0, sizeof *by_id * SIDES);
    if (!o->prompt_count || a.positions > o->context)
        return status_set(e, STATUS_REFUSED,
                          "a prompt of %" PRIu32 " ids and %" PRIu32
                          " steps are to be compared; the context is %" PRIu32,
                          o->prompt_count, o->greedy, o->context);
    int32_t s = make_room(&a, e);
    if (!s) s = open_side(&a, m, host, host, theirs, e);
    if (!s) s = run_reference(&a, e);
    session_close(&a.session);
    if (!s && ids) memcpy(ids, a.greedy, o->greedy * sizeof *ids);
    if (!s) s = open_side(&a, m, dev, host, act, e);
    if (!s) s = run_device(&a, &bound, tally, e);
    if (!s) memcpy(by_id, a.session.exec.by_id, sizeof a.session.exec.by_id);
    session_close(&a.session);
    free(a.rows);
    free(a.chunk);
    free(a.greedy);
    return s;
}
