/* Fusion: what is fused and what is not, that it can be undone to the letter, and refusals. */
#include "support.h"

#include "../core/fuse.h"
#include "../core/plan_check.h"

enum { OPS_MAX = 64, LAYER_OPS = 15 };

static fuse_mask row_of(uint32_t id) /* its bit */
{
    for (uint32_t r = 0; ops_row(r); r++)
        if (ops_row(r)->id == id) return 1u << r;
    fail_msg("op %u is not in the table", (unsigned)id);
    return 0;
}

static fuse_mask everything(void)
{
    fuse_mask mask = 0;
    for (uint32_t r = 0; ops_row(r); r++)
        if (ops_row(r)->parts) mask |= 1u << r;
    return mask;
}

/* ---- what holds for every fused plan ---- */

/* The literal sequence of a fused op with the ids that its parts had; the number of its ops. */
static uint32_t expand(const fak_plan *from, const fak_op *o, uint32_t origin, fak_op *out)
{
    const op_info *info = ops_find(o->id);
    uint32_t temp[OP_PARTS] = {0}, n = 0;
    if (!info->parts) {
        *out = *o;
        return 1;
    }
    for (uint32_t k = 0; k < info->parts; k++) {
        int absent = 0;
        for (int j = 0; j < 4; j++)
            absent |= info->part[k].in[j] < OP_TEMP && !o->in[info->part[k].in[j]];
        if (!absent) temp[k] = plan_op(from, origin + n++).out[0];
    }
    assert_int_equal(ops_expand(o, temp, out), n);
    return n;
}

/* Expanded, *to is *from, op for op; origins say where; what no op writes any more is gone, other
 * values are as they were; body and tails begin and end at the same ops. */
static void assert_same_work(const plan *to, const plan *from)
{
    const fak_plan *a = from->block, *b = to->block;
    uint32_t at = 0, start[OPS_MAX + 1];
    uint8_t written[256] = {0}, still[256] = {0};
    assert_true(b->ops.count < OPS_MAX && b->values.count < sizeof written);
    for (uint32_t i = 0; i < b->ops.count; i++) {
        fak_op o = plan_op(b, i), part[OP_PARTS];
        assert_int_equal(to->origin[i], at);
        start[i] = at;
        uint32_t n = expand(a, &o, at, part);
        for (uint32_t k = 0; k < n; k++, at++) {
            fak_op was = plan_op(a, at);
            assert_memory_equal(&part[k], &was, sizeof was);
            for (int j = 0; j < OP_OUTPUTS; j++) written[was.out[j]] = 1;
        }
        for (int j = 0; j < OP_OUTPUTS; j++) still[o.out[j]] = 1;
    }
    start[b->ops.count] = at;
    assert_int_equal(at, a->ops.count);
    assert_int_equal(b->values.count, a->values.count);
    for (uint32_t i = 0; i < a->values.count; i++) {
        static const fak_value unused;
        fak_value was = plan_value(a, i), now = plan_value(b, i);
        assert_memory_equal(&now, written[i] && !still[i] ? &unused : &was, sizeof now);
        assert_int_equal(to->weight[i], from->weight[i]);
    }
    assert_int_equal(start[b->body_ops], a->body_ops);
    assert_int_equal(b->layers, a->layers);
    assert_int_equal(b->tails.count, a->tails.count);
    for (uint32_t i = 0; i < a->tails.count; i++) {
        fak_tail was = plan_tail(a, i), now = plan_tail(b, i);
        assert_int_equal(start[now.first], was.first);
        assert_int_equal(start[now.first + now.ops], was.first + was.ops);
        assert_int_equal(now.want, was.want);
        assert_int_equal(now.out, was.out);
    }
}

static void fuse(plan *to, const plan *from, fuse_mask offered, const fuse_mask *refused)
{
    static const fuse_mask none[OPS_MAX];
    fak_error e = {0};
    assert_true(from->block->ops.count <= OPS_MAX);
    if (fuse_plan(to, from, offered, refused ? refused : none, &e)) fail_msg("%s", e.message);
    if (plan_check(to->block, to->block->bytes, &e)) fail_msg("%s", e.message);
    assert_same_work(to, from);
}

static uint32_t count(const plan *p, uint32_t id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->block->ops.count; i++) n += plan_op(p->block, i).id == id;
    return n;
}

static void assert_repeat(const plan *p, uint32_t first, uint32_t ops, uint32_t times)
{
    assert_int_equal(p->block->repeats.count, 1);
    fak_repeat r = plan_repeat(p->block, 0);
    assert_int_equal(r.first, first);
    assert_int_equal(r.ops, ops);
    assert_int_equal(r.times, times);
    assert_int_equal(r.stride, 23);
}

/* ---- one fused op alone ---- */

static const struct {
    uint32_t id, a_layer, in_tails, gone_a_layer, gone_in_tails; /* fused ops; ops fewer */
} alone[] = {
    /* clang-format off */
    {FAK_OP_NORM_MATMUL,     2, 2, 3 + 2, 2},
    {FAK_OP_NORM_MATMUL_GLU, 1, 0, 3,     0},
    {FAK_OP_GLU_MATMUL_ADD,  1, 0, 2,     0},
    {FAK_OP_MATMUL_ADD,      2, 0, 2,     0},
    {FAK_OP_FFN,             1, 0, 5,     0},
    {FAK_OP_ROPE_APPEND,     1, 0, 1,     0},
    {FAK_OP_MATMUL_ARGMAX,   0, 1, 0,     1},
    /* clang-format on */
};

static void test_alone(void **state)
{
    (void)state;
    assert_int_equal(__builtin_popcount(everything()), sizeof alone / sizeof *alone);
    for (int m = 0; m < TINY_MODELS; m++)
        for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
            tiny t;
            plan p;
            tiny_open(&t, tiny_names[m]);
            uint32_t L = t.model.layers;
            fuse(&p, &t.plan, row_of(alone[i].id), NULL);
            assert_int_equal(count(&p, alone[i].id), alone[i].a_layer * L + alone[i].in_tails);
            assert_int_equal(p.block->ops.count, t.plan.block->ops.count -
                                                     alone[i].gone_a_layer * L -
                                                     alone[i].gone_in_tails);
            assert_repeat(&p, 1, LAYER_OPS - alone[i].gone_a_layer, L);
            plan_free(&p);
            tiny_close(&t);
        }
}

static void test_nothing_offered(void **state)
{
    tiny t;
    plan p;
    (void)state;
    tiny_open(&t, "tiny-f32.gguf");
    fuse(&p, &t.plan, 0, NULL);
    assert_int_equal(p.block->bytes, t.plan.block->bytes);
    assert_memory_equal(p.block, t.plan.block, p.block->bytes);
    plan_free(&p);
    tiny_close(&t);
}

/* Every set of offers gives a good plan that does the same work. */
static void test_every_set(void **state)
{
    tiny t;
    uint32_t bits[16], n = 0;
    (void)state;
    tiny_open(&t, "tiny-untied.gguf");
    for (uint32_t r = 0; ops_row(r); r++)
        if (ops_row(r)->parts) bits[n++] = 1u << r;
    for (uint32_t set = 0; set < 1u << n; set++) {
        fuse_mask offered = 0;
        plan p;
        for (uint32_t i = 0; i < n; i++) offered |= set >> i & 1 ? bits[i] : 0;
        fuse(&p, &t.plan, offered, NULL);
        assert_int_equal(p.block->repeats.count, 1);
        for (uint32_t i = 0; i < p.block->ops.count; i++) {
            uint32_t id = plan_op(p.block, i).id;
            if (ops_find(id)->parts) assert_true(row_of(id) & offered);
        }
        plan_free(&p);
    }
    tiny_close(&t);
}

/* ---- everything ---- */

static const uint32_t best_layer[] = {FAK_OP_NORM_MATMUL, FAK_OP_ROPE_APPEND, FAK_OP_ATTENTION,
                                      FAK_OP_MATMUL_ADD, FAK_OP_FFN};
static const uint32_t best_tails[] = {FAK_OP_TAKE_ROWS, FAK_OP_NORM_MATMUL, FAK_OP_TAKE_ROWS,
                                      FAK_OP_RMSNORM, FAK_OP_MATMUL_ARGMAX};
enum { BEST = sizeof best_layer / sizeof *best_layer };

static void test_everything(void **state)
{
    (void)state;
    for (int m = 0; m < TINY_MODELS; m++) {
        tiny t;
        plan p;
        tiny_open(&t, tiny_names[m]);
        fuse(&p, &t.plan, everything(), NULL);
        uint32_t i = 0, L = t.model.layers;
        assert_int_equal(p.block->ops.count, 1 + BEST * L + 5);
        assert_int_equal(plan_op(p.block, i++).id, FAK_OP_EMBED);
        for (uint32_t l = 0; l < L; l++)
            for (uint32_t k = 0; k < BEST; k++, i++) {
                assert_int_equal(plan_op(p.block, i).id, best_layer[k]);
                assert_int_equal(plan_op(p.block, i).layer, l);
            }
        for (uint32_t k = 0; k < 5; k++) assert_int_equal(plan_op(p.block, i++).id, best_tails[k]);
        fak_op three = plan_op(p.block, 1), one = plan_op(p.block, 1 + BEST * L + 1);
        assert_true(three.in[4] && three.out[2]);
        assert_true(!one.in[3] && !one.out[1]);
        assert_repeat(&p, 1, BEST, L);
        plan_free(&p);
        tiny_close(&t);
    }
}

/* Parameters of all parts come together in the fused op. */
static void test_parameters(void **state)
{
    tiny t;
    plan p;
    (void)state;
    tiny_open(&t, "tiny-f32.gguf");
    fuse(&p, &t.plan, everything(), NULL);
    fak_op rope = plan_op(p.block, 2), ffn = plan_op(p.block, 5);
    assert_int_equal(rope.heads, 4);
    assert_int_equal(rope.kv_heads, 2);
    assert_int_equal(rope.head_dim, 16);
    assert_int_equal(rope.rot_dim, 16);
    assert_true(ffn.eps == 1e-5f);
    plan_free(&p);
    tiny_close(&t);
}

/* ---- refusals ---- */

/* Each fusion of a kind, refused, comes apart; all others of the kind stay. */
static void test_refuse_one(void **state)
{
    tiny t;
    (void)state;
    tiny_open(&t, "tiny-untied.gguf");
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        plan all;
        fuse(&all, &t.plan, row_of(alone[i].id), NULL);
        for (uint32_t k = 0; k < all.block->ops.count; k++) {
            fak_op o = plan_op(all.block, k), part[OP_PARTS];
            fuse_mask refused[OPS_MAX] = {0};
            uint32_t at = all.origin[k], n = expand(t.plan.block, &o, at, part);
            plan p;
            if (o.id != alone[i].id) continue;
            refused[at] = row_of(o.id);
            fuse(&p, &t.plan, row_of(o.id), refused);
            assert_int_equal(p.block->ops.count, all.block->ops.count + n - 1);
            for (uint32_t j = 0; j < p.block->ops.count; j++) {
                uint32_t old = j < k ? j : j < k + n ? k : j - n + 1;
                fak_op now = plan_op(p.block, j), was = plan_op(all.block, old);
                if (j >= k && j < k + n) was = plan_op(t.plan.block, at + j - k);
                assert_memory_equal(&now, &was, sizeof now);
            }
            assert_int_equal(p.block->repeats.count, o.layer == FAK_NO_INDEX);
            plan_free(&p);
        }
        plan_free(&all);
    }
    tiny_close(&t);
}

/* Other bits, and bits at ops where nothing begins, refuse nothing. */
static void test_refuse_elsewhere(void **state)
{
    tiny t;
    plan all, p;
    fuse_mask refused[OPS_MAX];
    (void)state;
    tiny_open(&t, "tiny-f32.gguf");
    fuse(&all, &t.plan, everything(), NULL);
    for (int i = 0; i < OPS_MAX; i++) refused[i] = ~0u;
    for (uint32_t k = 0; k < all.block->ops.count; k++) {
        fuse_mask bit = row_of(plan_op(all.block, k).id);
        refused[all.origin[k]] = ~0u ^ bit;
    }
    fuse(&p, &t.plan, everything(), refused);
    assert_int_equal(p.block->bytes, all.block->bytes);
    assert_memory_equal(p.block, all.block, p.block->bytes);
    plan_free(&p);
    plan_free(&all);
    tiny_close(&t);
}

enum { FFN_AT = 1 + 9 }; /* where the first layer's FFN begins in the unfused plan */

/* A refused FFN is tried as its parts; alike in all layers it stays a repeat. */
static void test_refuse_in_layers(void **state)
{
    static const uint32_t in_parts[] = {FAK_OP_NORM_MATMUL_GLU, FAK_OP_MATMUL_ADD};
    tiny t;
    (void)state;
    tiny_open(&t, "tiny-untied.gguf");
    for (uint32_t layers = 0; layers < 8; layers++) {
        fuse_mask refused[OPS_MAX] = {0};
        plan p;
        for (uint32_t l = 0; l < 3; l++)
            if (layers >> l & 1) refused[FFN_AT + l * LAYER_OPS] = row_of(FAK_OP_FFN);
        fuse(&p, &t.plan, everything(), refused);
        for (uint32_t l = 0, i = 1; l < 3; l++) {
            for (uint32_t k = 0; k < BEST - 1; k++)
                assert_int_equal(plan_op(p.block, i++).id, best_layer[k]);
            if (layers >> l & 1)
                for (int k = 0; k < 2; k++) assert_int_equal(plan_op(p.block, i++).id, in_parts[k]);
            else
                assert_int_equal(plan_op(p.block, i++).id, FAK_OP_FFN);
        }
        if (layers == 0)
            assert_repeat(&p, 1, BEST, 3);
        else if (layers == 7)
            assert_repeat(&p, 1, BEST + 1, 3);
        else
            assert_int_equal(p.block->repeats.count, 0);
        plan_free(&p);
    }
    tiny_close(&t);
}

/* Whatever is refused, the work is the same. */
static void test_refuse_at_random(void **state)
{
    uint64_t random = random_begin();
    tiny t;
    (void)state;
    tiny_open(&t, "tiny-untied.gguf");
    for (int n = 0; n < 500; n++) {
        fuse_mask refused[OPS_MAX] = {0}, offered = random_next(&random) & everything();
        plan p;
        for (int i = 0; i < OPS_MAX; i++)
            if (random_below(&random, 4) == 0) refused[i] = random_next(&random);
        fuse(&p, &t.plan, n % 2 ? offered : everything(), refused);
        for (uint32_t i = 0; i < p.block->ops.count; i++)
            if (ops_find(plan_op(p.block, i).id)->parts)
                assert_false(refused[p.origin[i]] & row_of(plan_op(p.block, i).id));
        plan_free(&p);
    }
    tiny_close(&t);
}

/* ---- what must not be fused ---- */

enum { D = 32 };

/* A plan of core ops that is left as it is when everything is offered. */
static void assert_untouched(plan_draft *d)
{
    plan from, to;
    fak_error e = {0};
    draft_pack(&from, d);
    if (plan_check(from.block, from.block->bytes, &e)) fail_msg("%s", e.message);
    fuse(&to, &from, everything(), NULL);
    assert_int_equal(to.block->bytes, from.block->bytes);
    assert_memory_equal(to.block, from.block, to.block->bytes);
    plan_free(&from);
    plan_free(&to);
}

typedef struct parts { /* a draft that has begun: x is embedded, w and n are a matrix and a norm */
    plan_draft d;
    uint32_t x, w, n;
} parts;

static void begin(parts *p)
{
    draft_begin(&p->d);
    p->w = draft_value(&p->d, FAK_WEIGHT, D, D);
    p->n = draft_value(&p->d, FAK_WEIGHT, 1, D);
    p->x = DRAFT(&p->d, FAK_NO_INDEX, .id = FAK_OP_EMBED, .in = {p->w});
    p->d.layers = 1;
}

#define PART(p, ...) DRAFT(&(p)->d, FAK_NO_INDEX, __VA_ARGS__)

/* Ends the body here and the plan with a tail of what `from` on was appended. */
static void finish(parts *p, uint32_t from, uint32_t out)
{
    p->d.body_ops = from;
    if (p->d.ops > from) draft_tail(&p->d, FAK_WANT_LOGITS, from, out);
}

static void test_border(void **state)
{
    parts p;
    uint32_t y, z;
    (void)state;
    begin(&p); /* norm | matmul */
    y = PART(&p, .id = FAK_OP_RMSNORM, .in = {p.x, p.n});
    z = PART(&p, .id = FAK_OP_MATMUL, .in = {y, p.w});
    finish(&p, p.d.ops - 1, z);
    assert_untouched(&p.d);

    begin(&p); /* matmul | add */
    y = PART(&p, .id = FAK_OP_MATMUL, .in = {p.x, p.w});
    z = PART(&p, .id = FAK_OP_ADD, .in = {p.x, y});
    finish(&p, p.d.ops - 1, z);
    assert_untouched(&p.d);

    begin(&p); /* matmul | argmax */
    y = PART(&p, .id = FAK_OP_MATMUL, .in = {p.x, p.w});
    z = PART(&p, .id = FAK_OP_ARGMAX, .in = {y});
    finish(&p, p.d.ops - 1, z);
    p.d.value[z].dtype = FAK_I32;
    assert_untouched(&p.d);
}

/* The same ops within the tail are fused: the plans above fail for the border only. */
static void test_no_border(void **state)
{
    parts p;
    plan from, to;
    (void)state;
    begin(&p);
    uint32_t y = PART(&p, .id = FAK_OP_MATMUL, .in = {p.x, p.w});
    uint32_t z = PART(&p, .id = FAK_OP_ADD, .in = {p.x, y});
    finish(&p, p.d.ops - 2, z);
    draft_pack(&from, &p.d);
    fuse(&to, &from, everything(), NULL);
    assert_int_equal(count(&to, FAK_OP_MATMUL_ADD), 1);
    plan_free(&from);
    plan_free(&to);
}

static void test_read_elsewhere(void **state)
{
    parts p;
    uint32_t y, z;
    (void)state;
    begin(&p); /* a matmul's result that is added and read later again */
    y = PART(&p, .id = FAK_OP_MATMUL, .in = {p.x, p.w});
    z = PART(&p, .id = FAK_OP_ADD, .in = {p.x, y});
    PART(&p, .id = FAK_OP_ADD, .in = {z, y});
    finish(&p, p.d.ops, 0);
    assert_untouched(&p.d);

    begin(&p); /* read in a tail */
    y = PART(&p, .id = FAK_OP_MATMUL, .in = {p.x, p.w});
    z = PART(&p, .id = FAK_OP_ADD, .in = {p.x, y});
    y = PART(&p, .id = FAK_OP_TAKE_ROWS, .in = {y});
    finish(&p, p.d.ops - 1, y);
    assert_untouched(&p.d);

    begin(&p); /* a norm that somebody else reads */
    y = PART(&p, .id = FAK_OP_RMSNORM, .in = {p.x, p.n});
    z = PART(&p, .id = FAK_OP_MATMUL, .in = {y, p.w});
    PART(&p, .id = FAK_OP_GLU, .in = {y, z});
    finish(&p, p.d.ops, 0);
    assert_untouched(&p.d);

    begin(&p); /* a norm with more matmuls than fit */
    y = PART(&p, .id = FAK_OP_RMSNORM, .in = {p.x, p.n});
    for (int i = 0; i < 4; i++) PART(&p, .id = FAK_OP_MATMUL, .in = {y, p.w});
    finish(&p, p.d.ops, 0);
    assert_untouched(&p.d);

    begin(&p); /* logits that the host reads, and their argmax */
    y = PART(&p, .id = FAK_OP_MATMUL, .in = {p.x, p.w});
    z = PART(&p, .id = FAK_OP_ARGMAX, .in = {y});
    finish(&p, p.d.ops - 2, y);
    p.d.value[z].kind = FAK_OUT;
    p.d.value[z].dtype = FAK_I32;
    assert_untouched(&p.d);
}

/* What the parts write cannot be an operand of the fused op: it is not there before it. */
static void test_read_inside(void **state)
{
    parts p;
    uint32_t y, z;
    (void)state;
    begin(&p); /* y + y is no residual */
    y = PART(&p, .id = FAK_OP_MATMUL, .in = {p.x, p.w});
    PART(&p, .id = FAK_OP_ADD, .in = {y, y});
    finish(&p, p.d.ops, 0);
    assert_untouched(&p.d);

    begin(&p); /* nor is the product that went into the matmul */
    y = PART(&p, .id = FAK_OP_GLU, .in = {p.x, p.x});
    z = PART(&p, .id = FAK_OP_MATMUL, .in = {y, p.w});
    PART(&p, .id = FAK_OP_ADD, .in = {y, z});
    finish(&p, p.d.ops, 0);
    plan from, to;
    draft_pack(&from, &p.d);
    fuse(&to, &from, row_of(FAK_OP_GLU_MATMUL_ADD), NULL);
    assert_int_equal(count(&to, FAK_OP_GLU_MATMUL_ADD), 0);
    plan_free(&to);
    fuse(&to, &from, row_of(FAK_OP_MATMUL_ADD), NULL); /* for this one it is an operand */
    assert_int_equal(count(&to, FAK_OP_MATMUL_ADD), 1);
    plan_free(&to);
    plan_free(&from);

    begin(&p); /* keys that are the rotated queries */
    uint32_t table = draft_value(&p.d, FAK_CONST, 8, 16);
    y = DRAFT(&p.d, 0, .id = FAK_OP_ROPE, .in = {p.x, table}, .heads = 2, .head_dim = 16,
              .rot_dim = 16);
    DRAFT(&p.d, 0, .id = FAK_OP_KV_APPEND, .in = {y, p.x, table}, .kv_heads = 2, .head_dim = 16,
          .rot_dim = 16);
    finish(&p, p.d.ops, 0);
    assert_untouched(&p.d);
}

/* Parts that do not agree: in a shared parameter or operand, in the layer, in the order. */
static void test_disagreement(void **state)
{
    parts p;
    (void)state;
    begin(&p);
    uint32_t table = draft_value(&p.d, FAK_CONST, 8, 16), short_table = table;
    DRAFT(&p.d, 0, .id = FAK_OP_ROPE, .in = {p.x, table}, .heads = 1, .head_dim = 32,
          .rot_dim = 16);
    DRAFT(&p.d, 0, .id = FAK_OP_KV_APPEND, .in = {p.x, p.x, short_table}, .kv_heads = 2,
          .head_dim = 16, .rot_dim = 16);
    finish(&p, p.d.ops, 0);
    assert_untouched(&p.d);

    begin(&p);
    table = draft_value(&p.d, FAK_CONST, 8, 16);
    short_table = draft_value(&p.d, FAK_CONST, 8, 16);
    DRAFT(&p.d, 0, .id = FAK_OP_ROPE, .in = {p.x, table}, .heads = 2, .head_dim = 16,
          .rot_dim = 16);
    DRAFT(&p.d, 0, .id = FAK_OP_KV_APPEND, .in = {p.x, p.x, short_table}, .kv_heads = 2,
          .head_dim = 16, .rot_dim = 16);
    finish(&p, p.d.ops, 0);
    assert_untouched(&p.d);

    begin(&p);
    uint32_t y = DRAFT(&p.d, 0, .id = FAK_OP_MATMUL, .in = {p.x, p.w});
    DRAFT(&p.d, FAK_NO_INDEX, .id = FAK_OP_ADD, .in = {p.x, y});
    finish(&p, p.d.ops, 0);
    assert_untouched(&p.d);

    begin(&p);
    y = PART(&p, .id = FAK_OP_MATMUL, .in = {p.x, p.w});
    PART(&p, .id = FAK_OP_ADD, .in = {y, p.x}); /* a residual stands first */
    finish(&p, p.d.ops, 0);
    assert_untouched(&p.d);

    begin(&p);
    y = PART(&p, .id = FAK_OP_MATMUL, .in = {p.x, p.w});
    PART(&p, .id = FAK_OP_SCALE, .in = {p.x}, .scale = 2); /* something between */
    PART(&p, .id = FAK_OP_ADD, .in = {p.x, y});
    finish(&p, p.d.ops, 0);
    assert_untouched(&p.d);
}

/* A plan that holds fused ops is left alone, and fused further where core ops remain. */
static void test_fuse_again(void **state)
{
    tiny t;
    plan once, twice;
    static const fuse_mask none[OPS_MAX];
    fak_error e = {0};
    (void)state;
    tiny_open(&t, "tiny-f32.gguf");
    fuse(&once, &t.plan, row_of(FAK_OP_ROPE_APPEND), NULL);
    assert_int_equal(fuse_plan(&twice, &once, everything(), none, &e), FAK_OK);
    assert_int_equal(plan_check(twice.block, twice.block->bytes, &e), FAK_OK);
    assert_same_work(&twice, &t.plan);
    assert_int_equal(count(&twice, FAK_OP_FFN), 2);
    assert_int_equal(count(&twice, FAK_OP_ROPE_APPEND), 2);
    plan_free(&once);
    plan_free(&twice);
    tiny_close(&t);
}

/* ---- offers ---- */

static void test_offered(void **state)
{
    struct {
        fak_op_entry entry;
        uint64_t later; /* what a newer minor may have appended */
    } table[] = {{{FAK_OP_MATMUL, 1, NULL}, 0},
                 {{FAK_OP_FFN, 1, NULL}, 7},
                 {{FAK_OP_ROPE_APPEND, 3, NULL}, 7},
                 {{FAK_OP_MATMUL_ADD, 0, NULL}, 7},
                 {{9999, 1, NULL}, 7}};
    (void)state;
    assert_int_equal(fuse_offered(&table[0].entry, 5, sizeof *table),
                     row_of(FAK_OP_FFN) | row_of(FAK_OP_ROPE_APPEND));
    assert_int_equal(fuse_offered(&table[0].entry, 1, sizeof *table), 0);
    assert_int_equal(fuse_offered(NULL, 0, sizeof *table), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_nothing_offered),
        cmocka_unit_test(test_every_set),
        cmocka_unit_test(test_everything),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_refuse_one),
        cmocka_unit_test(test_refuse_elsewhere),
        cmocka_unit_test(test_refuse_in_layers),
        cmocka_unit_test(test_refuse_at_random),
        cmocka_unit_test(test_border),
        cmocka_unit_test(test_no_border),
        cmocka_unit_test(test_read_elsewhere),
        cmocka_unit_test(test_read_inside),
        cmocka_unit_test(test_disagreement),
        cmocka_unit_test(test_fuse_again),
        cmocka_unit_test(test_offered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
