/* support - see support.h. */
#include "support.h"

#include <inttypes.h>
#include <time.h>

/* ---- tiny models ---- */

const char *const tiny_names[TINY_MODELS] = {
    "tiny-f32.gguf",  "tiny-f16.gguf",  "tiny-bf16.gguf", "tiny-q8_0.gguf",   "tiny-q4_0.gguf",
    "tiny-q4_1.gguf", "tiny-q5_0.gguf", "tiny-q5_1.gguf", "tiny-untied.gguf",
};

void tiny_open(tiny *t, const char *file_name)
{
    char path[1024];
    fak_error e = {0};
    snprintf(path, sizeof path, "%s/%s", TEST_MODELS, file_name);
    *t = (tiny){0};
    if (gguf_open(&t->file, path, &e) || model_open(&t->model, t->file, 0, 0, &e) ||
        plan_build(&t->plan, &t->model, &e))
        fail_msg("%s: %s", file_name, e.message);
}

void tiny_close(tiny *t)
{
    plan_free(&t->plan);
    model_close(&t->model);
    gguf_close(t->file);
    *t = (tiny){0};
}

uint8_t *tiny_bytes(const char *file_name, size_t *bytes)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", TEST_MODELS, file_name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*bytes);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *bytes, f), *bytes);
    fclose(f);
    return data;
}

/* ---- plans made by hand ---- */

uint32_t draft_value(plan_draft *d, uint32_t kind, uint32_t rows, uint32_t cols)
{
    fak_value v = {.kind = kind, .dtype = FAK_F32, .rows = rows, .cols = cols};
    return plan_add_value(d, &v, FAK_NO_INDEX);
}

uint32_t draft_op(plan_draft *d, uint32_t layer, fak_op o)
{
    o.revision = 1;
    o.layer = layer;
    for (uint32_t j = 0; j < ops_find(o.id)->outputs; j++) {
        fak_op shape = o;
        if (o.id == FAK_OP_NORM_MATMUL) shape.in[2] = o.in[2 + j];
        if (o.id == FAK_OP_NORM_MATMUL && !o.in[2 + j]) break;
        o.out[j] =
            draft_value(d, FAK_ACT, ops_out_rows(&shape, d->value), ops_out_cols(&shape, d->value));
    }
    plan_add_op(d, &o, d->ops);
    return o.out[0];
}

void draft_begin(plan_draft *d)
{
    *d = (plan_draft){0};
    plan_add_value(d, &(fak_value){.kind = FAK_UNUSED}, FAK_NO_INDEX);
}

void draft_tail(plan_draft *d, uint32_t want, uint32_t first, uint32_t out)
{
    d->tail[d->tails++] = (fak_tail){want, first, d->ops - first, out};
    d->value[out].kind = FAK_OUT;
    if (want == FAK_WANT_ARGMAX) d->value[out].dtype = FAK_I32;
}

void draft_pack(plan *p, plan_draft *d)
{
    fak_error e = {0};
    if (plan_pack(p, d, &e)) fail_msg("%s", e.message);
    plan_draft_free(d);
}

enum { D = 64, F = 96, V = 50, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 16, ROT = 8, KV = 32 };

/* Layer 0: core ops. */
static uint32_t full_core(plan_draft *d, uint32_t x, uint32_t table, uint32_t group_norm)
{
    uint32_t n = DRAFT(d, 0, .id = FAK_OP_RMSNORM, .in = {x, group_norm}, .group = 16, .eps = 0.1f);
    uint32_t q = DRAFT(d, 0, .id = FAK_OP_MATMUL, .in = {n, draft_value(d, FAK_WEIGHT, D, D)});
    uint32_t k = DRAFT(d, 0, .id = FAK_OP_MATMUL, .in = {n, draft_value(d, FAK_WEIGHT, KV, D)});
    uint32_t v = DRAFT(d, 0, .id = FAK_OP_MATMUL, .in = {n, draft_value(d, FAK_WEIGHT, KV, D)});
    q = DRAFT(d, 0, .id = FAK_OP_ROPE, .in = {q, table}, .heads = HEADS, .head_dim = HEAD_DIM,
              .rot_dim = ROT);
    DRAFT(d, 0, .id = FAK_OP_KV_APPEND, .in = {k, v, table}, .kv_heads = KV_HEADS,
          .head_dim = HEAD_DIM, .rot_dim = ROT);
    uint32_t y = DRAFT(d, 0, .id = FAK_OP_ATTENTION, .in = {q}, .heads = HEADS,
                       .kv_heads = KV_HEADS, .head_dim = HEAD_DIM, .window = 7, .scale = 0.3f,
                       .softcap = 50.5f);
    y = DRAFT(d, 0, .id = FAK_OP_GLU, .in = {y, n}, .act = FAK_GELU_TANH);
    return DRAFT(d, 0, .id = FAK_OP_ADD, .in = {x, y});
}

/* Layer 1: fused ops. */
static uint32_t full_fused(plan_draft *d, uint32_t x, uint32_t table, uint32_t norm)
{
    uint32_t w[3] = {draft_value(d, FAK_WEIGHT, D, D), draft_value(d, FAK_WEIGHT, KV, D),
                     draft_value(d, FAK_WEIGHT, KV, D)};
    uint32_t wg = draft_value(d, FAK_WEIGHT, F, D), wu = draft_value(d, FAK_WEIGHT, F, D);
    uint32_t wd = draft_value(d, FAK_WEIGHT, D, F);
    uint32_t q =
        DRAFT(d, 1, .id = FAK_OP_NORM_MATMUL, .in = {x, norm, w[0], w[1], w[2]}, .eps = 1e-5f);
    q = DRAFT(d, 1, .id = FAK_OP_ROPE_APPEND, .in = {q, q + 1, q + 2, table}, .heads = HEADS,
              .kv_heads = KV_HEADS, .head_dim = HEAD_DIM, .rot_dim = ROT);
    uint32_t y = DRAFT(d, 1, .id = FAK_OP_ATTENTION, .in = {q}, .heads = HEADS,
                       .kv_heads = KV_HEADS, .head_dim = HEAD_DIM, .scale = 1e30f);
    y = DRAFT(d, 1, .id = FAK_OP_MATMUL_ADD, .in = {y, w[0], x});
    uint32_t g = DRAFT(d, 1, .id = FAK_OP_NORM_MATMUL, .in = {y, norm, wg, wu}, .eps = 1e-6f);
    y = DRAFT(d, 1, .id = FAK_OP_GLU_MATMUL_ADD, .in = {g, g + 1, wd, y}, .act = FAK_GELU_TANH);
    y = DRAFT(d, 1, .id = FAK_OP_FFN, .in = {y, norm, wg, wu, wd}, .eps = 1e-7f,
              .act = FAK_GELU_TANH);
    return DRAFT(d, 1, .id = FAK_OP_NORM_MATMUL_GLU, .in = {y, norm, w[0], w[0]}, .eps = 1e-40f);
}

static uint32_t full_repeat(plan_draft *d, uint32_t x)
{
    uint32_t bias = draft_value(d, FAK_WEIGHT, 1, D);
    draft_value(d, FAK_WEIGHT, 1, D);
    draft_value(d, FAK_WEIGHT, 1, D);
    d->repeat[d->repeats++] = (fak_repeat){.first = d->ops, .ops = 2, .times = 3, .stride = 1};
    for (uint32_t t = 0; t < 3; t++) {
        x = DRAFT(d, FAK_NO_INDEX, .id = FAK_OP_ADD_BIAS, .in = {x, bias + t});
        x = DRAFT(d, FAK_NO_INDEX, .id = FAK_OP_SCALE, .in = {x}, .scale = -1.1f);
    }
    return x;
}

void full_plan(plan *p)
{
    plan_draft d;
    draft_begin(&d);
    d.layers = 2;
    uint32_t table = draft_value(&d, FAK_CONST, 32, ROT);
    fak_value codes = {.kind = FAK_WEIGHT,
                       .dtype = FAK_I8,
                       .rows = V,
                       .cols = D,
                       .quant_axis = 1,
                       .quant_group = 32,
                       .quant_bits = 7,
                       .quant_signed = 1,
                       .quant_zero = FAK_F32,
                       .quant_scale_dtype = FAK_F16,
                       .quant_act_scale = 0.1f};
    uint32_t embed = plan_add_value(&d, &codes, FAK_NO_INDEX);
    uint32_t norm = draft_value(&d, FAK_WEIGHT, 1, D), group = draft_value(&d, FAK_WEIGHT, 1, 16);
    uint32_t x = DRAFT(&d, FAK_NO_INDEX, .id = FAK_OP_EMBED, .in = {embed});
    x = full_core(&d, x, table, group);
    x = full_fused(&d, x, table, norm);
    x = full_repeat(&d, x);
    x = DRAFT(&d, FAK_NO_INDEX, .id = FAK_OP_SOFTCAP, .in = {x}, .softcap = 30);
    d.body_ops = d.ops;

    uint32_t y = DRAFT(&d, FAK_NO_INDEX, .id = FAK_OP_TAKE_ROWS, .in = {x});
    y = DRAFT(&d, FAK_NO_INDEX, .id = FAK_OP_MATMUL, .in = {y, embed});
    uint32_t best = DRAFT(&d, FAK_NO_INDEX, .id = FAK_OP_ARGMAX, .in = {y});
    d.value[best].kind = FAK_OUT;
    d.value[best].dtype = FAK_I32;
    draft_tail(&d, FAK_WANT_LOGITS, d.body_ops, y);
    uint32_t first = d.ops;
    y = DRAFT(&d, FAK_NO_INDEX, .id = FAK_OP_TAKE_ROWS, .in = {x});
    y = DRAFT(&d, FAK_NO_INDEX, .id = FAK_OP_MATMUL_ARGMAX, .in = {y, embed});
    draft_tail(&d, FAK_WANT_ARGMAX, first, y);
    draft_pack(p, &d);
}

/* ---- random numbers ---- */

uint64_t random_begin(void)
{
    const char *set = getenv("FAK_TEST_SEED");
    uint64_t seed = set ? strtoull(set, NULL, 10) : (uint64_t)time(NULL);
    print_message("FAK_TEST_SEED=%" PRIu64 "\n", seed);
    return seed * 2862933555777941757u + 3037000493u;
}

uint32_t random_next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

uint32_t random_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)((uint64_t)random_next(state) * n >> 32);
}
