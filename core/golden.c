/* golden - see golden.h. */
#include "golden.h"

#include "lockstep.h"
#include "rope.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    D = 64,
    F = 96,
    H = 4,
    K = 2,
    d = 16,
    V = 128,
    L = 2,
    CONTEXT = 32,
    PROMPT = 11,
    GREEDY = 4
};

/* ---- the model ---- */

/* In [-1, 1), from integers; xorshift (Marsaglia 2003). */
static float noise(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (float)((int32_t)(*state >> 40) - (1 << 23)) * 0x1p-23f;
}

/* A matrix [rows, cols] of the dtype in g->data at *at, or a norm near 1 (rows 1, F32). */
static int32_t add(golden *g, uint32_t role, uint32_t layer, uint32_t rows, uint32_t cols,
                   uint32_t dtype, size_t *at, uint64_t *state, fak_error *e)
{
    float row[F];
    uint32_t kind = rows == 1 ? FAK_F32 : dtype, index = g->m.weights.count;
    gguf_tensor *t = &g->tensor[index];
    *t = (gguf_tensor){.dtype = kind, .dims = 2, .dim = {cols, rows, 1, 1}, .data = g->data + *at};
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < cols; c++)
            row[c] = rows == 1 ? 1.0f + 0.25f * noise(state) : 0.25f * noise(state);
        dtype_encode_row(kind, cols, row, g->data + *at);
        *at += (size_t)dtype_row_bytes(kind, cols);
    }
    *at = (*at + 63) / 64 * 64;
    weight w = {.dtype = kind, .rows = rows, .cols = cols, .tensor = t};
    snprintf(w.name, sizeof w.name, "golden.%" PRIu32 ".%" PRIu32, role, layer);
    uint32_t per_layer = MODEL_ROLES - MODEL_ATTN_NORM;
    g->m.index[role < MODEL_ATTN_NORM ? role : role + layer * per_layer] = index;
    return weights_add(&g->m.weights, &w, e);
}

static int32_t add_rope(golden *g, fak_error *e)
{
    float *table = malloc(CONTEXT * d * sizeof *table);
    if (!table) return status_memory(e, "the rope table", CONTEXT * d * 4);
    rope_table(CONTEXT, d, 10000, table);
    g->m.index[MODEL_ROPE] = g->m.weights.count;
    g->tensor[g->m.weights.count] = (gguf_tensor){0};
    return weights_add(
        &g->m.weights,
        &(weight){.name = "rope", .dtype = FAK_F32, .rows = CONTEXT, .cols = d, .made = table}, e);
}

static int32_t fill(golden *g, uint32_t dtype, fak_error *e)
{
    static const struct {
        uint32_t role, rows, cols;
    } part[] = {
        {MODEL_ATTN_NORM, 1, D}, {MODEL_Q, H * d, D}, {MODEL_K, K * d, D},
        {MODEL_V, K * d, D},     {MODEL_O, D, H * d}, {MODEL_FFN_NORM, 1, D},
        {MODEL_GATE, F, D},      {MODEL_UP, F, D},    {MODEL_DOWN, D, F},
    };
    size_t at = 0;
    uint64_t state = 88172645463325252u;
    int32_t s = add(g, MODEL_EMBED, 0, V, D, dtype, &at, &state, e);
    if (!s) s = add_rope(g, e);
    for (uint32_t l = 0; l < L; l++)
        for (size_t i = 0; !s && i < sizeof part / sizeof *part; i++)
            s = add(g, part[i].role, l, part[i].rows, part[i].cols, dtype, &at, &state, e);
    if (!s) s = add(g, MODEL_OUT_NORM, 0, 1, D, dtype, &at, &state, e);
    if (!s) s = add(g, MODEL_HEAD, 0, V, D, dtype, &at, &state, e);
    return s;
}

int32_t golden_make(golden *g, uint32_t dtype, fak_error *e)
{
    enum { WEIGHTS = 4 + L * (MODEL_ROLES - MODEL_ATTN_NORM), BYTES = 1 << 19 };
    *g = (golden){.m = {.architecture = "llama",
                        .name = "golden",
                        .width = D,
                        .ffn = F,
                        .heads = H,
                        .kv_heads = K,
                        .head_dim = d,
                        .rot_dim = d,
                        .vocab = V,
                        .layers = L,
                        .context_max = CONTEXT,
                        .context = CONTEXT,
                        .eps = 1e-5f,
                        .rope_theta = 10000,
                        .blocks = dtype_find(dtype)->block > 1}};
    g->m.index = calloc(WEIGHTS, sizeof *g->m.index);
    g->tensor = calloc(WEIGHTS, sizeof *g->tensor);
    g->data = calloc(BYTES, 1);
    int32_t s = g->m.index && g->tensor && g->data ? fill(g, dtype, e)
                                                   : status_memory(e, "the golden model", BYTES);
    if (s) golden_free(g);
    return s;
}

void golden_free(golden *g)
{
    model_close(&g->m);
    free(g->tensor);
    free(g->data);
    *g = (golden){0};
}

/* ---- one dtype, one act mode ---- */

typedef struct run { /* what a device says */
    float logits[PROMPT][V];
    uint32_t greedy[GREEDY];
} run;

static const uint32_t prompt[PROMPT] = {3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46};

/* Op by op, so that a difference has a name. */
static int32_t by_op(golden *g, device *dev, device *host, uint32_t act, fak_error *e)
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
static int32_t say(golden *g, device *dev, device *host, uint32_t act, run *out, fak_error *e)
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

static int32_t compare(golden *g, device *dev, device *host, uint32_t act, fak_error *e)
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
    static const uint32_t dtypes[] = {FAK_F32, FAK_Q8_0, FAK_Q4_0, FAK_Q4_1, FAK_F16, FAK_BF16};
    static const uint32_t acts[] = {FAK_ACT_F32, FAK_ACT_Q8};
    int32_t s = FAK_OK;
    for (size_t i = 0; !s && i < sizeof dtypes / sizeof *dtypes; i++) {
        golden g;
        if (dtypes[i] != FAK_F32 && !(dev->facts.upload_dtypes >> dtypes[i] & 1)) continue;
        s = golden_make(&g, dtypes[i], e);
        for (size_t a = 0; !s && a < 2; a++)
            if (dev->facts.numerics & host->facts.numerics & acts[a])
                s = compare(&g, dev, host, acts[a], e);
        golden_free(&g);
    }
    return s;
}
