/* check_ops - R1: every op by every dtype and awkward shape against the reference; R2: fused ops, which
 * are held to their literal sequence.  One op at a time on a rig; the first case that fails is told. */
#include "check.h"
#include "rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 19, SLOTS = 3, CONTEXT = 40 };

typedef struct shape { /* what an op does not read is not looked at */
    uint32_t in, out;  /* columns; outputs, or the vocabulary */
    uint32_t group;    /* of RMSNORM */
    uint32_t matrices; /* of NORM_MATMUL */
    uint32_t act;
    uint32_t heads, kv_heads, head_dim, rot_dim, window;
    float softcap;
    uint32_t context;
} shape;

/* Matrices: columns that blocks of 32 have, that K blocks have too, and that only plain dtypes can. */
static const shape matrices[] = {
    {.in = 32, .out = 1, .matrices = 1},
    {.in = 64, .out = 5, .matrices = 3, .act = FAK_GELU_TANH},
    {.in = 160, .out = 33, .matrices = 2},
    {.in = 544, .out = 67, .matrices = 3},
    {.in = 256, .out = 16, .matrices = 1},
    {.in = 512, .out = 33, .matrices = 3},
    {.in = 256, .out = 259, .matrices = 2, .act = FAK_GELU_TANH}, /* FFN comes down from 512 in K */
    {.in = 1, .out = 3, .matrices = 1},
    {.in = 7, .out = 1, .matrices = 2, .act = FAK_GELU_TANH},
    {.in = 129, .out = 17, .matrices = 3},
};
static const shape vectors[] = {
    {.in = 1, .softcap = 30}, {.in = 7, .softcap = 1},     {.in = 64, .group = 16, .softcap = 50},
    {.in = 129, .group = 43}, {.in = 1030, .softcap = 30},
};
static const shape attentions[] = {
    {.heads = 1, .kv_heads = 1, .head_dim = 2, .rot_dim = 2, .context = CONTEXT},
    {.heads = 4, .kv_heads = 2, .head_dim = 16, .rot_dim = 8, .window = 5, .context = CONTEXT},
    {.heads = 9, .kv_heads = 3, .head_dim = 64, .rot_dim = 64, .context = CONTEXT},
    {.heads = 6, .kv_heads = 1, .head_dim = 24, .rot_dim = 24, .softcap = 30, .context = CONTEXT},
    {.heads = 2, .kv_heads = 2, .head_dim = 80, .rot_dim = 2, .window = 1, .context = CONTEXT},
    {.heads = 4, .kv_heads = 1, .head_dim = 32, .rot_dim = 32, .window = 70, .context = 200},
};

typedef struct cases {
    const shape *at;
    uint32_t count;
} cases;
#define CASES(table)                                                                               \
    {                                                                                              \
        table, sizeof table / sizeof *table                                                        \
    }

static int has_kv(uint32_t id)
{
    return id == FAK_OP_ATTENTION || id == FAK_OP_KV_APPEND || id == FAK_OP_ROPE_APPEND;
}

/* Does the op have a matrix, whose dtype matters? */
static int has_matrix(uint32_t id)
{
    return id == FAK_OP_EMBED || (strstr(ops_find(id)->operands, "w") && id != FAK_OP_RMSNORM);
}

static cases cases_of(uint32_t id)
{
    if (has_kv(id) || id == FAK_OP_ROPE) return (cases)CASES(attentions);
    if (has_matrix(id)) return (cases)CASES(matrices);
    return (cases)CASES(vectors);
}

static void describe(const shape *s, char text[96])
{
    if (s->heads)
        snprintf(text, 96,
                 "%" PRIu32 " heads of %" PRIu32 ", %" PRIu32 " of kv, %" PRIu32 " rotate",
                 s->heads, s->head_dim, s->kv_heads, s->rot_dim);
    else if (s->out)
        snprintf(text, 96, "matrix [%" PRIu32 ", %" PRIu32 "]", s->out, s->in);
    else
        snprintf(text, 96, "rows of %" PRIu32 " columns", s->in);
}

/* ---- building ---- */

static uint32_t norm_weight(rig *r, uint32_t cols)
{
    return rig_weight(r, FAK_F32, 1, cols, 1, 0.25f);
}

static uint32_t matrix(rig *r, uint32_t dtype, uint32_t rows, uint32_t cols)
{
    return rig_weight(r, dtype, rows, cols, 0, 0.5f);
}

static void build_attention(rig *r, uint32_t id, const shape *s)
{
    uint32_t q = rig_input(r, s->heads * s->head_dim, 0), kv = s->kv_heads * s->head_dim;
    uint32_t k = rig_input(r, kv, 0), v = rig_input(r, kv, 0), tab = rig_table(r, s->rot_dim);
    fak_op append = {.id = FAK_OP_KV_APPEND,
                     .in = {k, v, tab},
                     .kv_heads = s->kv_heads,
                     .head_dim = s->head_dim,
                     .rot_dim = s->rot_dim};
    if (id == FAK_OP_ROPE_APPEND) {
        append = (fak_op){.id = id,
                          .in = {q, k, v, tab},
                          .heads = s->heads,
                          .kv_heads = s->kv_heads,
                          .head_dim = s->head_dim,
                          .rot_dim = s->rot_dim};
        q = rig_op(r, append);
    } else {
        rig_op(r, append);
    }
    rig_op(r, (fak_op){.id = FAK_OP_ATTENTION,
                       .in = {q},
                       .heads = s->heads,
                       .window = s->window,
                       .kv_heads = s->kv_heads,
                       .head_dim = s->head_dim,
                       .softcap = s->softcap,
                       .scale = 0.35f});
}

/* Operands of the fused ops, in the order of the op table. */
static void build_fused(rig *r, uint32_t id, uint32_t dtype, const shape *s)
{
    uint32_t I = s->in, O = s->out, block = dtype_find(dtype)->block;
    uint32_t F = (O + block - 1) / block * block; /* columns of what comes down again */
    fak_op o = {.id = id, .act = s->act, .eps = 1e-5f};
    uint32_t x = rig_input(r, I, id == FAK_OP_MATMUL_ARGMAX);
    if (id == FAK_OP_MATMUL_ARGMAX || id == FAK_OP_MATMUL_ADD) o.eps = 0, o.act = 0;
    if (id == FAK_OP_GLU_MATMUL_ADD) o.eps = 0;
    if (id == FAK_OP_NORM_MATMUL) o.act = 0;
    o.in[0] = x;
    switch (id) {
    case FAK_OP_NORM_MATMUL:
        o.in[1] = norm_weight(r, I);
        for (uint32_t i = 0; i < s->matrices; i++) o.in[2 + i] = matrix(r, dtype, O + i, I);
        break;
    case FAK_OP_NORM_MATMUL_GLU:
    case FAK_OP_FFN:
        o.in[1] = norm_weight(r, I);
        o.in[2] = matrix(r, dtype, F, I);
        o.in[3] = matrix(r, dtype, F, I);
        if (id == FAK_OP_FFN) o.in[4] = matrix(r, dtype, I, F);
        break;
    case FAK_OP_GLU_MATMUL_ADD:
        o.in[1] = rig_input(r, I, 0);
        o.in[2] = matrix(r, dtype, O, I);
        o.in[3] = rig_input(r, O, 0);
        break;
    case FAK_OP_MATMUL_ADD:
        o.in[1] = matrix(r, dtype, O, I);
        o.in[2] = rig_input(r, O, 0);
        break;
    default:
        o.in[1] = matrix(r, dtype, O, I);
    }
    rig_op(r, o);
}

static void build(rig *r, uint32_t id, uint32_t dtype, const shape *s)
{
    uint32_t cols = s->in;
    if (has_kv(id)) {
        build_attention(r, id, s);
    } else if (ops_find(id)->parts) {
        build_fused(r, id, dtype, s);
    } else if (id == FAK_OP_EMBED) {
        rig_op(r, (fak_op){.id = id, .in = {matrix(r, dtype, s->out, s->in)}});
    } else if (id == FAK_OP_ROPE) {
        uint32_t x = rig_input(r, s->heads * s->head_dim, 0), tab = rig_table(r, s->rot_dim);
        rig_op(r, (fak_op){.id = id,
                           .in = {x, tab},
                           .heads = s->heads,
                           .head_dim = s->head_dim,
                           .rot_dim = s->rot_dim});
    } else {
        fak_op o = {.id = id, .in = {rig_input(r, cols, id == FAK_OP_ARGMAX)}};
        if (id == FAK_OP_RMSNORM) o.in[1] = norm_weight(r, s->group ? s->group : cols);
        if (id == FAK_OP_MATMUL) o.in[1] = matrix(r, dtype, s->out, cols);
        if (id == FAK_OP_ADD_BIAS) o.in[1] = rig_weight(r, FAK_F32, 1, cols, 0, 1);
        if (id == FAK_OP_GLU || id == FAK_OP_ADD) o.in[1] = rig_input(r, cols, 0);
        if (id == FAK_OP_RMSNORM) o.eps = 1e-5f, o.group = s->group;
        if (id == FAK_OP_GLU) o.act = s->group ? FAK_GELU_TANH : FAK_SILU;
        if (id == FAK_OP_SCALE) o.scale = 0.7f;
        if (id == FAK_OP_SOFTCAP) o.softcap = s->softcap != 0 ? s->softcap : 15;
        rig_op(r, o);
    }
}

/* ---- running ---- */

#define STEP(r, all, poisoned, ...)                                                                \
    step(r, all, poisoned, (const fak_span[]){__VA_ARGS__},                                        \
         sizeof((const fak_span[]){__VA_ARGS__}) / sizeof(fak_span), e)

/* all: every row is wanted; else every third. */
static int32_t step(rig *r, int all, int poison, const fak_span *span, uint32_t spans, fak_error *e)
{
    uint32_t rows = 0, wanted[ROWS], n = 0;
    for (uint32_t i = 0; i < spans; i++) rows += span[i].rows;
    for (uint32_t i = 0; i < rows; i++)
        if (all || i % 3 == 1) wanted[n++] = i;
    return rig_step(r, &(rig_spec){rows, spans, span, wanted, n, poison}, e);
}

/* Prefill of two, a mix of prefill and decode, a rollback, a batch; then all that was kept. */
static int32_t run_attention(rig *r, fak_error *e)
{
    int32_t s = STEP(r, 1, 1, {0, 0, 6, 0}, {1, 6, 6, 0}, {2, 12, 7, 0});
    for (uint32_t first = 0; !s && r->limits.context > CONTEXT && first + ROWS < 180; first += ROWS)
        s = STEP(r, 1, 0, {2, 0, ROWS, first});
    if (!s) s = STEP(r, 1, 0, {0, 0, 5, 0}, {1, 5, 9, 0});
    if (!s) s = STEP(r, 1, 0, {1, 0, 3, 9}, {0, 3, 1, 5});
    if (!s) s = STEP(r, 1, 0, {0, 0, 4, 2}, {2, 4, 1, 0});
    if (!s) s = STEP(r, 1, 0, {0, 0, 1, 6}, {1, 1, 1, 12}, {2, 2, 1, 1});
    for (uint32_t slot = 0; !s && r->dev->api.kv_read && slot < SLOTS; slot++)
        s = rig_kv(r, slot, (const uint32_t[]){7, 13, 2}[slot], e);
    return s;
}

static int32_t run_rows(rig *r, fak_error *e)
{
    int32_t s = STEP(r, 1, 1, {0, 0, ROWS, 0}); /* leaves NaNs wherever it can */
    if (!s) s = STEP(r, 1, 0, {0, 0, ROWS, 3});
    if (!s) s = STEP(r, 1, 0, {1, 0, 1, 11});
    if (!s) s = STEP(r, 0, 0, {2, 0, 4, 7}, {0, 4, 3, 1});
    return s;
}

typedef struct tally {
    uint32_t left; /* cases that the device left to the host */
    int unsupported;
} tally;

/* Rows of a few columns may cancel to next to nothing, of which no relative error says anything. */
static int is_narrow(const shape *s)
{
    if (s->heads) return s->heads * s->head_dim < 16;
    return s->in < 16 || (s->out && s->out < 16);
}

/* One op, dtype and shape: FAK_OK also where the device left it. */
static int32_t run_case(check *c, uint32_t id, uint32_t dtype, uint32_t act, uint32_t kv_dtype,
                        const shape *s, tally *t, fak_error *e)
{
    rig r;
    char text[96], why[sizeof e->message];
    describe(s, text);
    check_goes_on(c, text);
    uint64_t seed = check_seed(c, id * 65537ull + dtype * 257 + (uint64_t)s->in * 3 + s->head_dim);
    uint32_t context = s->context ? s->context : CONTEXT;
    int32_t rc = rig_open(&r, &c->dev, act, ROWS, SLOTS, context, seed, e);
    r.limits.kv_dtype = kv_dtype;
    r.special = 1;
    r.positive = c->dev.facts.klass != FAK_REFERENCE && is_narrow(s);
    r.lend = (s->in + s->head_dim) % 3 != 0;
    if (!rc) build(&r, id, dtype, s);
    if (!rc) rc = rig_ready(&r, e);
    if (rc == FAK_E_UNSUPPORTED && !r.handle && kv_dtype != FAK_F32) {
        t->unsupported = 1;
        rc = FAK_OK;
    } else if (!rc && !r.taken) {
        t->left++;
    } else if (!rc) {
        rc = has_kv(id) ? run_attention(&r, e) : run_rows(&r, e);
        check_add(c, &r.figures);
        for (uint32_t i = 0; !rc && i < r.ops; i++) c->taken[r.op[i].id] = 1;
    }
    if (rc) {
        snprintf(why, sizeof why, "%s", e->message);
        status_set(e, rc, "%s: %s", text, why);
    }
    if (r.touched) c->stopped = "it writes into memory that is not its own";
    rig_close(&r);
    return rc;
}

/* All shapes of an op, a dtype and modes: one check. */
static void check_op(check *c, uint32_t id, uint32_t dtype, uint32_t act, uint32_t kv_dtype)
{
    const op_info *info = ops_find(id);
    const dtype_info *kind = dtype_find(dtype);
    cases all = cases_of(id);
    tally t = {0};
    fak_error e;
    int32_t s = FAK_OK;
    uint32_t n = 0;
    check_begin(c, info->parts ? R2 : R1,
                id == FAK_OP_ATTENTION ? "attention, kv_append" : info->name, "%s%s%s",
                has_matrix(id) ? kind->name
                : has_kv(id)   ? dtype_name(kv_dtype)
                               : "",
                has_kv(id) ? " kv" : "",
                !has_matrix(id) || kind->block == 1 || id == FAK_OP_EMBED ? ""
                : act & FAK_ACT_Q8                                        ? ", Q8 activations"
                : act & FAK_ACT_F16                                       ? ", F16 activations"
                                                                          : ", F32 activations");
    if (c->stopped) {
        check_end(c, CHECK_ABSTAIN, c->stopped);
        return;
    }
    for (uint32_t i = 0; !s && i < all.count; i++) {
        if (has_matrix(id) && all.at[i].in % kind->block) continue;
        s = run_case(c, id, dtype, act, kv_dtype, &all.at[i], &t, &e);
        n++;
    }
    if (s) {
        c->failed[id] = 1;
        check_end(c, CHECK_FAIL, e.message);
        if (s != STATUS_GATE && check_open(c, NULL, NULL, &e))
            c->stopped = "it does not open again";
    } else if (!c->row.cases) {
        check_end(c, CHECK_ABSTAIN, t.unsupported ? "it does not keep kv so" : "left to the host");
    } else if (t.left) {
        status_set(&e, 0, "%" PRIu32 " of %" PRIu32 " shapes are left to the host", t.left, n);
        check_end(c, CHECK_PASS, e.message);
    } else {
        check_end(c, CHECK_PASS, NULL);
    }
}

static void check_dtypes(check *c, uint32_t id)
{
    for (uint32_t dtype = 1; dtype < 32; dtype++) {
        const dtype_info *kind = dtype_find(dtype);
        if (!kind || !dtype_form_bytes(dtype, FAK_AS_F32, kind->block) || dtype == FAK_I32)
            continue;
        for (uint32_t act = check_next_act(c, 0); act; act = check_next_act(c, act)) {
            check_op(c, id, dtype, act, FAK_F32);
            if (kind->block == 1 || id == FAK_OP_EMBED) break; /* the act mode says nothing */
        }
    }
}

/* Some op must be taken.  One that is listed and never is may be a mistake in the backend's verdicts, which
 * its other checks do not show: that is told. */
static void check_taken(check *c)
{
    char left[160] = "";
    fak_error e;
    check_begin(c, R1, "taken", "%s", c->dev.facts.ops ? "what it lists" : "some op");
    for (uint32_t id = 0; id < EXEC_IDS; id++) c->row.cases += c->taken[id];
    for (uint32_t i = 0; i < c->dev.facts.ops; i++) {
        fak_op_entry entry;
        fak_get(&entry, sizeof entry, c->dev.facts.op, c->dev.facts.op_stride, i);
        size_t used = strlen(left);
        if (ops_find(entry.id) && !c->taken[entry.id] && !c->failed[entry.id])
            snprintf(left + used, sizeof left - used, "%s%s", used ? ", " : "", ops_name(entry.id));
    }
    status_set(&e, 0, "it lists %s, and leaves every case of it to the host", left);
    if (!c->row.cases)
        check_end(c, CHECK_FAIL, "it leaves every op to the host");
    else
        check_end(c, left[0] ? CHECK_ABSTAIN : CHECK_PASS, left[0] ? e.message : NULL);
}

void check_ops(check *c)
{
    static const uint32_t kv_dtypes[] = {FAK_F32, FAK_F16, FAK_BF16};
    uint32_t act = check_next_act(c, 0);
    for (uint32_t i = 0; ops_row(i); i++) {
        uint32_t id = ops_row(i)->id;
        if (id == FAK_OP_KV_APPEND) continue; /* goes with ATTENTION */
        if (has_kv(id))
            for (int k = 0; k < 3; k++) check_op(c, id, FAK_F32, act, kv_dtypes[k]);
        else if (has_matrix(id))
            check_dtypes(c, id);
        else
            check_op(c, id, FAK_F32, act, FAK_F32);
    }
    if (!c->stopped) check_taken(c);
}
