/* gate - see gate.h. */
#include "gate.h"

#include "ref.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- bounds ---- */

enum mode { MODE_F32, MODE_F16, MODE_Q8, MODE_COARSE, MODES };
static const gate_bound floors[MODES] = {
    [MODE_F32] = {"F32 activations", 0, 0.9999, 0.002, 0.01, 0.1, 0.001},
    [MODE_F16] = {"F16 arithmetic", 0, 0.999, 0.01, 0.05, 0.5, 0.01},
    [MODE_Q8] = {"Q8 activations", 0, 0.999, 0.01, 0.05, 0.5, 0.01},
    [MODE_COARSE] = {"8- or 4-bit arithmetic", 0, 0.995, 0.03, 0.1, 1.5, 0.05},
};

static enum mode mode_of(uint32_t act, uint32_t weight_dtype)
{
    int coarse = weight_dtype == FAK_F8E4M3 || weight_dtype == FAK_F8E5M2 ||
                 weight_dtype == FAK_I8 || weight_dtype == FAK_I4;
    if (act & FAK_ACT_F32 || weight_dtype == FAK_F32) return MODE_F32;
    if (coarse) return MODE_COARSE;
    if (act & FAK_ACT_F16) return MODE_F16;
    return weight_dtype < FAK_Q8_0 ? MODE_F32 : MODE_Q8; /* plain weights take activations as F32 */
}

static double lower(double floor, float promised)
{
    return promised > 0 && (double)promised < floor ? (double)promised : floor;
}

static int applies(const fak_bound *b, uint32_t weight_dtype, uint32_t kv_dtype)
{
    return (!b->weight_dtype || b->weight_dtype == weight_dtype) &&
           (!b->kv_dtype || b->kv_dtype == kv_dtype);
}

gate_bound gate_bound_of(const device *d, uint32_t act, uint32_t weight_dtype, uint32_t kv_dtype)
{
    gate_bound b = floors[mode_of(act, weight_dtype)];
    b.exact = d->facts.klass == FAK_REFERENCE;
    for (uint32_t i = 0; i < d->facts.bounds; i++) {
        fak_bound theirs;
        fak_get(&theirs, sizeof theirs, d->facts.bound, d->facts.bound_stride, i);
        if (!applies(&theirs, weight_dtype, kv_dtype)) continue;
        if ((double)theirs.cosine > b.cosine) b.cosine = (double)theirs.cosine;
        b.norm_ratio = lower(b.norm_ratio, theirs.norm_ratio);
        b.rel_l2 = lower(b.rel_l2, theirs.rel_l2);
        b.max_abs = lower(b.max_abs, theirs.max_abs);
    }
    return b;
}

/* The widest floors that an entry could be about: those of the coarsest mode that the device offers. */
static const gate_bound *widest(const device *d, uint32_t weight_dtype)
{
    enum mode most = MODE_F32;
    for (uint32_t act = FAK_ACT_F32; act <= FAK_ACT_F16; act <<= 1) {
        enum mode m = mode_of(act, weight_dtype ? weight_dtype : FAK_Q8_0);
        if (d->facts.numerics & act && m > most) most = m;
    }
    return &floors[most];
}

/* Says nothing (0), or at least as much as the floor; no NaN does. */
static int keeps(float promised, double most)
{
    return promised >= 0 && promised <= (float)most;
}

int32_t gate_promises(const device *d, fak_error *e)
{
    for (uint32_t i = 0; i < d->facts.bounds; i++) {
        fak_bound b;
        fak_get(&b, sizeof b, d->facts.bound, d->facts.bound_stride, i);
        const gate_bound *f = widest(d, b.weight_dtype);
        int cosine = b.cosine == 0 || (b.cosine >= (float)f->cosine && b.cosine <= 1);
        if (!cosine || !keeps(b.norm_ratio, f->norm_ratio) || !keeps(b.rel_l2, f->rel_l2) ||
            !keeps(b.max_abs, f->max_abs))
            return status_set(e, STATUS_GATE,
                              "bound %" PRIu32 " (cosine %g, norm ratio 1 +- %g, relative L2 %g, "
                              "difference %g) promises less than the floor of %s (%g, 1 +- %g, %g, "
                              "%g)",
                              i, (double)b.cosine, (double)b.norm_ratio, (double)b.rel_l2,
                              (double)b.max_abs, f->mode, f->cosine, f->norm_ratio, f->rel_l2,
                              f->max_abs);
    }
    return FAK_OK;
}

/* ---- figures ---- */

static int same_bits(float a, float b)
{
    return !memcmp(&a, &b, sizeof a) || (a != a && b != b);
}

typedef struct sums {
    double want, got, both, off; /* of squares, products and squared differences */
} sums;

/* The difference of two elements: infinite where only one of them is a number, or an infinity parts. */
static double difference(float want, float got)
{
    if (same_bits(want, got)) return 0;
    double d = fabs((double)got - (double)want);
    return isfinite(d) ? d : INFINITY;
}

static void add(sums *s, float want, float got, double off)
{
    if (!isfinite(want) && off == 0) return; /* equal NaNs and infinities say no more */
    s->want += (double)want * (double)want;
    s->got += (double)got * (double)got;
    s->both += (double)want * (double)got;
    s->off += off * off;
}

/* The figures of one row; a row of zeros is met by zeros only. */
static void finish(gate_figures *f, const sums *s)
{
    if (s->off == 0) return;
    int broken = !isfinite(s->off) || s->want == 0;
    f->rel_l2 = broken ? INFINITY : sqrt(s->off / s->want);
    f->norm_ratio = broken ? INFINITY : sqrt(s->got / s->want);
    f->cosine = broken || s->got == 0 ? 0 : s->both / sqrt(s->want * s->got);
}

void gate_merge(gate_figures *into, const gate_figures *f)
{
    int worse = f->element > into->element || (f->differ && !into->differ);
    if (worse) {
        into->row = f->row;
        into->col = f->col;
        into->want = f->want;
        into->got = f->got;
    }
    if (f->cosine < into->cosine) into->cosine = f->cosine;
    if (fabs(f->norm_ratio - 1) > fabs(into->norm_ratio - 1)) into->norm_ratio = f->norm_ratio;
    if (f->rel_l2 > into->rel_l2) into->rel_l2 = f->rel_l2;
    if (f->max_abs > into->max_abs) into->max_abs = f->max_abs;
    if (f->element > into->element) into->element = f->element;
    into->values += f->values;
    into->differ += f->differ;
}

void gate_add_row(gate_figures *f, uint32_t row, uint32_t cols, const float *want, const float *got)
{
    gate_figures mine = GATE_NONE;
    sums s = {0};
    mine.values = cols;
    mine.row = row;
    for (uint32_t i = 0; i < cols; i++) {
        double off = difference(want[i], got[i]);
        int parts = !same_bits(want[i], got[i]);
        add(&s, want[i], got[i], off);
        mine.differ += (uint64_t)parts;
        if (off > mine.max_abs || (parts && mine.differ == 1)) {
            mine.max_abs = off > mine.max_abs ? off : mine.max_abs;
            mine.col = i;
            mine.want = want[i];
            mine.got = got[i];
        }
    }
    finish(&mine, &s);
    if (mine.max_abs > 0) /* infinite too where the row's own sum is no number */
        mine.element = isfinite(mine.max_abs) && s.want > 0 ? mine.max_abs / sqrt(s.want / cols)
                                                            : (double)INFINITY;
    gate_merge(f, &mine);
}

/* ---- verdicts ---- */

static int32_t parts(const gate_figures *f, const char *figure, double is, const char *side,
                     double bound, const char *mode, fak_error *e)
{
    return status_set(e, STATUS_GATE,
                      "%s %.6g is %s %.6g (%s): row %" PRIu32 ", column %" PRIu32
                      " is %.9g where the reference gives %.9g",
                      figure, is, side, bound, mode, f->row, f->col, (double)f->got,
                      (double)f->want);
}

static int32_t exact(const gate_figures *f, fak_error *e)
{
    if (!f->differ) return FAK_OK;
    return status_set(e, STATUS_GATE,
                      "%" PRIu64 " of %" PRIu64 " values differ from the reference's (class "
                      "reference: none may): row %" PRIu32 ", column %" PRIu32
                      " is %.9g where the reference gives %.9g",
                      f->differ, f->values, f->row, f->col, (double)f->got, (double)f->want);
}

int32_t gate_op(const gate_bound *b, const gate_figures *f, fak_error *e)
{
    double most = GATE_ELEMENT * b->op_l2;
    if (b->exact) return exact(f, e);
    if (!(f->rel_l2 <= b->op_l2))
        return parts(f, "relative L2", f->rel_l2, "above", b->op_l2, b->mode, e);
    if (!(f->element <= most))
        return parts(f, "an element's difference over the row's RMS", f->element, "above", most,
                     b->mode, e);
    return FAK_OK;
}

int32_t gate_logits(const gate_bound *b, const gate_figures *f, fak_error *e)
{
    if (b->exact) return exact(f, e);
    if (!(f->cosine >= b->cosine))
        return parts(f, "cosine", f->cosine, "below", b->cosine, b->mode, e);
    if (!(fabs(f->norm_ratio - 1) <= b->norm_ratio))
        return parts(f, "norm ratio", f->norm_ratio, "farther from 1 than", b->norm_ratio, b->mode,
                     e);
    if (!(f->rel_l2 <= b->rel_l2))
        return parts(f, "relative L2", f->rel_l2, "above", b->rel_l2, b->mode, e);
    if (!(f->max_abs <= b->max_abs))
        return parts(f, "the largest difference", f->max_abs, "above", b->max_abs, b->mode, e);
    return FAK_OK;
}

int gate_add_position(gate_tally *t, const gate_bound *b, uint32_t V, const float *want,
                      const float *got)
{
    uint32_t best = ref_argmax(V, want), theirs = ref_argmax(V, got);
    uint64_t position = t->positions++;
    gate_add_row(&t->logits, (uint32_t)position, V, want, got);
    if (best == theirs) return 0;
    float gap = best < V && theirs < V ? want[best] - want[theirs] : INFINITY;
    if (!b->exact && (double)gap < 2 * b->max_abs) {
        if (t->ties < GATE_TIES) {
            t->tie[t->ties].position = position;
            t->tie[t->ties].want = best;
            t->tie[t->ties].got = theirs;
            t->tie[t->ties].gap = gap;
        }
        t->ties++;
    } else if (!t->wrongs++) {
        t->wrong.position = position;
        t->wrong.want = best;
        t->wrong.got = theirs;
        t->wrong.gap = gap;
    }
    return 1;
}

int32_t gate_positions(const gate_tally *t, const gate_bound *b, fak_error *e)
{
    if (!t->positions) return status_set(e, STATUS_GATE, "no position was compared");
    if (t->wrongs)
        return status_set(e, STATUS_GATE,
                          "%" PRIu64 " of %" PRIu64 " positions have another argmax: position "
                          "%" PRIu64 " has id %" PRIu32 " where the reference has %" PRIu32
                          ", whose logit is higher by %g",
                          t->wrongs, t->positions, t->wrong.position, t->wrong.got, t->wrong.want,
                          (double)t->wrong.gap);
    if (t->ties * 100 > t->positions)
        return status_set(e, STATUS_GATE,
                          "%" PRIu64 " of %" PRIu64 " positions part at a tie; at most 1 %% may",
                          t->ties, t->positions);
    return gate_logits(b, &t->logits, e);
}

/* ---- requirements ---- */

int32_t gate_require_reference(const device *d, fak_error *e)
{
    if (d->facts.klass == FAK_REFERENCE) return FAK_OK;
    return status_set(e, STATUS_REFUSED,
                      "backend %s is of class %s; class reference is required here", d->from->name,
                      device_class_name(d->facts.klass));
}

int32_t gate_require_non_reference(const device *d, fak_error *e)
{
    if (d->facts.klass != FAK_REFERENCE) return FAK_OK;
    return status_set(e, STATUS_REFUSED,
                      "backend %s is of class reference, and another is required "
                      "(--require-non-reference)",
                      d->from->name);
}

/* Is the op such a part, or does it hold one? */
static int holds(uint32_t id, uint32_t part)
{
    const op_info *info = ops_find(id);
    int found = id == part;
    for (uint32_t k = 0; info && k < info->parts; k++) found |= info->part[k].id == part;
    return found;
}

uint64_t gate_count(const uint64_t by_id[EXEC_IDS], uint32_t part)
{
    uint64_t n = 0;
    for (uint32_t r = 0; ops_row(r); r++)
        if (holds(ops_row(r)->id, part)) n += by_id[ops_row(r)->id];
    return n;
}

int32_t gate_native_counts(const device *d, const uint64_t *by_id, fak_error *e)
{
    const uint64_t *native = by_id + SIDE_DEVICE * EXEC_IDS, *host = by_id + SIDE_HOST * EXEC_IDS;
    uint64_t matmuls = gate_count(host, FAK_OP_MATMUL),
             attentions = gate_count(host, FAK_OP_ATTENTION);
    if (matmuls || attentions)
        return status_set(e, STATUS_GATE,
                          "backend %s left %" PRIu64 " matmuls and %" PRIu64
                          " attentions to the host's reference",
                          d->from->name, matmuls, attentions);
    if (!gate_count(native, FAK_OP_MATMUL) || !gate_count(native, FAK_OP_ATTENTION))
        return status_set(e, STATUS_GATE,
                          "backend %s ran no matmul or no attention: nothing shows "
                          "that it can",
                          d->from->name);
    return FAK_OK;
}

int32_t gate_native(const exec *x, fak_error *e)
{
    return gate_native_counts(x->p->side[SIDE_DEVICE], x->by_id[0], e);
}
