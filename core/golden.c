/* golden - see golden.h. */
#include "golden.h"

#include "lockstep.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { V = 128, PROMPT = 11, GREEDY = 4 };

const toy_shape golden_shape = {.width = 64,
                                .ffn = 96,
                                .heads = 4,
                                .kv_heads = 2,
                                .head_dim = 16,
                                .vocab = V,
                                .layers = 2,
                                .context = 32};

static const toy_shape golden_shape_k = {.width = 256,
                                         .ffn = 512,
                                         .heads = 4,
                                         .kv_heads = 1,
                                         .head_dim = 64,
                                         .vocab = V,
                                         .layers = 1,
                                         .context = 32};

const toy_shape *golden_shape_of(uint32_t dtype)
{
    return dtype_find(dtype)->block == 256 ? &golden_shape_k : &golden_shape;
}

/* ---- one dtype, one act mode ---- */

typedef struct run { /* what a device says */
    float logits[PROMPT][V];
    uint32_t greedy[GREEDY];
} run;

static const uint32_t prompt[PROMPT] = {3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46};

/* Op by op, so that a difference has a name. */
static int32_t by_op(toy *g, device *dev, device *host, uint32_t act, fak_error *e)
{
    static const char *const of[] = {"gives", "", "appends a key of", "appends a value of"};
    lockstep l;
    session_options o = {.act = act, .rows = PROMPT};
    char text[64];
    int32_t s = lockstep_open(&l, &g->m, dev, host, &o, e);
    if (!s) s = lockstep_feed(&l, prompt, PROMPT, FAK_WANT_LOGITS, e);
    for (int i = 0; !s && i < GREEDY; i++) {
        uint32_t id = i ? lockstep_next(&l) : prompt[0];
        s = lockstep_feed(&l, &id, 1, FAK_WANT_ARGMAX, e);
    }
    if (s == STATUS_GATE) {
        const gate_figures *f = &l.part.figures;
        uint32_t op = l.part.op;
        lockstep_op_text(&l.dev.program, op, text);
        if (l.part.where == PART_IDS)
            s = status_set(e, STATUS_REFUSED,
                           "it claims class reference, but op %" PRIu32
                           " (%s) gives another id in row %" PRIu32,
                           op, text, f->row);
        else
            s = status_set(e, STATUS_REFUSED,
                           "it claims class reference, but op %" PRIu32 " (%s) %s %.9g in row "
                           "%" PRIu32 ", column %" PRIu32 " where the reference gives %.9g",
                           op, text, of[l.part.where], (double)f->got, f->row, f->col,
                           (double)f->want);
        e->index = op;
    }
    lockstep_close(&l);
    return s;
}

/* As it would really run. */
static int32_t say(toy *g, device *dev, device *host, uint32_t act, run *out, fak_error *e)
{
    session t;
    session_options o = {.act = act, .rows = PROMPT, .wanted = PROMPT};
    uint32_t slot, id = prompt[PROMPT - 1];
    int32_t s = session_open(&t, &g->m, dev, host, &o, NULL, NULL, e);
    if (!s) s = kv_take(&t.kv, &slot, e);
    if (!s) s = session_feed(&t, slot, prompt, PROMPT, FAK_WANT_LOGITS, 1, out->logits, e);
    if (!s) kv_truncate(&t.kv, slot, PROMPT - 1);
    for (int i = 0; !s && i < GREEDY; i++) {
        s = session_feed(&t, slot, &id, 1, FAK_WANT_ARGMAX, 0, &out->greedy[i], e);
        id = out->greedy[i] < V ? out->greedy[i] : 0;
    }
    session_close(&t);
    return s;
}

static int32_t compare(toy *g, device *dev, device *host, uint32_t act, fak_error *e)
{
    run *want = calloc(2, sizeof *want), *got = want ? want + 1 : NULL;
    gate_figures f = GATE_NONE;
    int32_t s = want ? by_op(g, dev, host, act, e)
                     : status_memory(e, "golden bits", 2 * sizeof *want);
    if (!s) s = say(g, host, host, act, want, e);
    if (!s) s = say(g, dev, host, act, got, e);
    for (uint32_t k = 0; !s && k < PROMPT; k++)
        gate_add_row(&f, k, V, want->logits[k], got->logits[k]);
    if (!s && f.differ)
        s = status_set(e, STATUS_REFUSED,
                       "it claims class reference, but logit %" PRIu32 " of row %" PRIu32
                       " is %.9g where the reference gives %.9g",
                       f.col, f.row, (double)f.got, (double)f.want);
    if (!s && memcmp(want->greedy, got->greedy, sizeof want->greedy))
        s = status_set(e, STATUS_REFUSED, "it claims class reference, but its argmax differs");
    free(want);
    return s;
}

int32_t golden_compare(device *dev, device *host, fak_error *e)
{
    static const uint32_t dtypes[] = {FAK_F32,  FAK_Q8_0, FAK_Q4_0, FAK_Q4_1, FAK_F16, FAK_BF16,
                                      FAK_Q5_0, FAK_Q5_1, FAK_Q4_K, FAK_Q5_K, FAK_Q6_K};
    static const uint32_t acts[] = {FAK_ACT_F32, FAK_ACT_Q8};
    int32_t s = FAK_OK;
    for (size_t i = 0; !s && i < sizeof dtypes / sizeof *dtypes; i++) {
        toy g;
        if (dtypes[i] != FAK_F32 && !(dev->facts.upload_dtypes >> dtypes[i] & 1)) continue;
        s = toy_make(&g, golden_shape_of(dtypes[i]), dtypes[i], TOY_SEED, e);
        for (size_t a = 0; !s && a < 2; a++)
            if (dev->facts.numerics & host->facts.numerics & acts[a])
                s = compare(&g, dev, host, acts[a], e);
        toy_free(&g);
    }
    return s;
}
