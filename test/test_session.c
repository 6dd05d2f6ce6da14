/* Sessions: ids in, ids out, in any number of steps; and how a generation ends. */
#include "engine.h"

#include "../core/session.h"

#include <inttypes.h>
#include <unistd.h>

enum { CONTEXT = 40, PROMPT = 11, NEW = 12 };

typedef struct opened { /* zero-initialise */
    gguf *file;
    model model;
    tokenizer *tokenizer;
    backend_pair backend;
    session session;
    uint32_t prompt[CONTEXT + 1];
} opened;

static void open_path(opened *o, const char *path, const char *backend, const char *settings)
{
    fak_error e = {0};
    uint64_t random = 12345;
    *o = (opened){0};
    backend_open(&o->backend, backend, settings);
    if (gguf_open(&o->file, path, &e) || model_open(&o->model, o->file, 0, 0, &e) ||
        tokenizer_open(&o->tokenizer, o->file, &e))
        fail_msg("%s: %s", path, e.message);
    for (uint32_t i = 0; i <= CONTEXT; i++) o->prompt[i] = random_below(&random, o->model.vocab);
}

static void open_tiny(opened *o, const char *name, const char *backend, const char *settings)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", TEST_MODELS, name);
    open_path(o, path, backend, settings);
}

static int32_t start(opened *o, const session_options *options, fak_error *e)
{
    *e = (fak_error){0};
    return session_open(&o->session, &o->model, &o->backend.dev, &o->backend.host, options, NULL,
                        NULL, e);
}

static void start_well(opened *o, const session_options *options)
{
    fak_error e;
    if (start(o, options, &e)) fail_msg("%s", e.message);
}

static void close_all(opened *o)
{
    session_close(&o->session);
    tokenizer_close(o->tokenizer);
    model_close(&o->model);
    gguf_close(o->file);
    backend_close(&o->backend);
    *o = (opened){0};
}

static uint32_t take(opened *o)
{
    uint32_t slot;
    fak_error e;
    assert_int_equal(kv_take(&o->session.kv, &slot, &e), FAK_OK);
    return slot;
}

static void give(opened *o, uint32_t slot)
{
    fak_error e;
    assert_int_equal(kv_give(&o->session.kv, slot, &e), FAK_OK);
}

/* ---- open ---- */

static void test_defaults(void **state)
{
    opened o;
    (void)state;
    open_tiny(&o, "tiny-q8_0.gguf", "cpu-ref", NULL);
    start_well(&o, &(session_options){0});
    const fak_limits *l = &o.session.program.limits;
    assert_int_equal(l->context, 128); /* the model's */
    assert_int_equal(l->rows, 128);
    assert_int_equal(l->wanted, 1);
    assert_int_equal(l->slots, 1);
    assert_int_equal(l->kv_tokens, 128);
    assert_int_equal(l->kv_dtype, FAK_F32);
    assert_int_equal(l->numerics, FAK_ACT_Q8);
    session_close(&o.session);
    start_well(&o, &(session_options){.context = 9, .slots = 3, .wanted = 64, .act = FAK_ACT_F32});
    assert_int_equal(l->rows, 9); /* no step is longer than a sequence */
    assert_int_equal(l->wanted, 9);
    assert_int_equal(l->kv_tokens, 27);
    assert_int_equal(l->numerics, FAK_ACT_F32);
    close_all(&o);
}

static void test_refused(void **state)
{
    opened o;
    fak_error e;
    (void)state;
    open_tiny(&o, "tiny-f32.gguf", "cpu-ref", NULL);
    assert_int_equal(start(&o, &(session_options){.context = 129}, &e), STATUS_REFUSED);
    assert_message(&e, "a context of 129");
    assert_message(&e, "128");
    session_close(&o.session);
    assert_int_equal(start(&o, &(session_options){.act = FAK_ACT_F16}, &e), STATUS_REFUSED);
    assert_message(&e, "F16 activations");
    session_close(&o.session);
    start_well(&o, &(session_options){.context = 128});
    close_all(&o);
}

/* ---- feed ---- */

static void test_feed_limits(void **state)
{
    opened o;
    fak_error e;
    uint32_t id, again, bad[3] = {5, 6, 7};
    (void)state;
    open_tiny(&o, "tiny-f32.gguf", "cpu-ref", NULL);
    start_well(&o, &(session_options){.context = CONTEXT, .rows = 7});
    session *s = &o.session;
    uint32_t slot = take(&o), ops;
    assert_int_equal(session_feed(s, slot, o.prompt, CONTEXT + 1, FAK_WANT_ARGMAX, 0, &id, &e),
                     FAK_E_KV_FULL);
    assert_message(&e, "41 tokens after 0; context is 40");
    assert_int_equal(session_feed(s, slot, o.prompt, 32, FAK_WANT_ARGMAX, 0, &id, &e), FAK_OK);
    ops = (uint32_t)s->exec.ops[SIDE_DEVICE];
    assert_int_equal(session_feed(s, slot, o.prompt, 9, FAK_WANT_ARGMAX, 0, &id, &e),
                     FAK_E_KV_FULL);
    assert_message(&e, "9 tokens after 32; context is 40");
    for (uint32_t at = 0; at < 3; at++) { /* wherever it stands, before any work */
        bad[at] = o.model.vocab;
        assert_int_equal(session_feed(s, slot, bad, 3, FAK_WANT_ARGMAX, 0, &id, &e),
                         FAK_E_ARGUMENT);
        char sentence[80];
        snprintf(sentence, sizeof sentence, "token id %" PRIu32 "; the vocabulary has %" PRIu32,
                 o.model.vocab, o.model.vocab);
        assert_message(&e, sentence);
        bad[at] = o.model.vocab - 1;
    }
    assert_int_equal(s->exec.ops[SIDE_DEVICE], ops);
    assert_int_equal(s->kv.length[slot], 32);
    assert_int_equal(session_feed(s, slot, bad, 3, FAK_WANT_ARGMAX, 0, &id, &e), FAK_OK);
    assert_int_equal(session_feed(s, slot, o.prompt, 5, FAK_WANT_ARGMAX, 0, &id, &e), FAK_OK);
    assert_int_equal(s->kv.length[slot], CONTEXT); /* to the brim */
    assert_int_equal(session_feed(s, slot, o.prompt, 1, FAK_WANT_ARGMAX, 0, &id, &e),
                     FAK_E_KV_FULL);
    kv_truncate(&s->kv, slot, 35);
    assert_int_equal(session_feed(s, slot, o.prompt, 5, FAK_WANT_ARGMAX, 0, &again, &e), FAK_OK);
    assert_int_equal(again, id);
    close_all(&o);
}

/* A step fails in the midst: what came before it stays, and the rest can be fed again. */
static void test_feed_goes_on(void **state)
{
    enum {
        COUNT = 20,
        ROWS = 7,
        STEP = 1 + 31
    }; /* begin and ops of a step; the last has a tail of 4 */
    (void)state;
    uint32_t id = 0, again = 0;
    for (uint32_t at = 0; at <= 3 * STEP + 4; at++) { /* 0: none fails */
        char options[64];
        opened o;
        fak_error e;
        snprintf(options, sizeof options, "fail-step=%" PRIu32, at);
        open_tiny(&o, "tiny-q4_0.gguf", "refuser", options);
        start_well(&o, &(session_options){.context = CONTEXT, .rows = ROWS});
        session *s = &o.session;
        uint32_t slot = take(&o);
        int32_t rc =
            session_feed(s, slot, o.prompt, COUNT, FAK_WANT_ARGMAX, 0, at ? &again : &id, &e);
        assert_int_equal(rc, at ? FAK_E_STEP : FAK_OK);
        if (rc) {
            uint32_t done = s->kv.length[slot];
            assert_int_equal(done, at > 2 * STEP ? 2 * ROWS : at > STEP ? ROWS : 0);
            assert_message(&e, "refuser: ");
            assert_int_equal(session_feed(s, slot, o.prompt + done, COUNT - done, FAK_WANT_ARGMAX,
                                          0, &again, &e),
                             FAK_OK);
            assert_int_equal(again, id);
        }
        assert_int_equal(s->kv.length[slot], COUNT);
        close_all(&o);
    }
}

/* Answers for every id, whatever the steps they come in; for the last; for none. */
static void test_all_answers(void **state)
{
    static float one[CONTEXT * ENGINE_VOCAB], many[CONTEXT * ENGINE_VOCAB], last[ENGINE_VOCAB];
    static const session_options how[] = {{.rows = 7, .wanted = 3},
                                          {.rows = 7, .wanted = 7},
                                          {.rows = 128, .wanted = 5},
                                          {.rows = 1},
                                          {.rows = 128, .wanted = 128}};
    (void)state;
    for (uint32_t h = 0; h < 5; h++) {
        session_options options = how[h];
        uint32_t ids[CONTEXT];
        opened o;
        fak_error e;
        options.context = CONTEXT;
        options.slots = 4;
        open_tiny(&o, "tiny-bf16.gguf", "cpu-ref", NULL);
        start_well(&o, &options);
        session *s = &o.session;
        uint32_t slot[4] = {take(&o), take(&o), take(&o), take(&o)}, V = o.model.vocab, n = CONTEXT;
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(session_feed(s, slot[0], o.prompt + i, 1, FAK_WANT_LOGITS, i % 2,
                                          one + (size_t)i * V, &e),
                             FAK_OK);
        assert_int_equal(session_feed(s, slot[1], o.prompt, n, FAK_WANT_LOGITS, 1, many, &e),
                         FAK_OK);
        assert_rows(many, one, (size_t)n * V);
        assert_int_equal(session_feed(s, slot[2], o.prompt, n, FAK_WANT_ARGMAX, 1, ids, &e),
                         FAK_OK);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < V; j++) assert_true(one[i * V + j] <= one[i * V + ids[i]]);
        assert_int_equal(session_feed(s, slot[3], o.prompt, n - 1, FAK_WANT_NONE, 1, NULL, &e),
                         FAK_OK);
        kv_truncate(&s->kv, slot[3], n - 9);
        assert_int_equal(
            session_feed(s, slot[3], o.prompt + n - 9, 9, FAK_WANT_LOGITS, 0, last, &e), FAK_OK);
        assert_rows(last, one + (n - 1) * (size_t)V, V);
        close_all(&o);
    }
}

/* ---- generation ---- */

typedef struct heard {
    uint32_t id[CONTEXT + 2], count, stop_after;
} heard;

static int hear(void *self, uint32_t id)
{
    heard *h = self;
    assert_true(h->count < CONTEXT + 2);
    h->id[h->count++] = id;
    return h->count == h->stop_after;
}

/* Generates in a slot of its own; the caller frees g->ids. */
static int32_t generate(opened *o, generation *g, uint32_t prompt, uint32_t max_new, heard *h,
                        fak_error *e)
{
    uint32_t slot = take(o);
    g->prompt = o->prompt;
    g->prompt_count = prompt;
    g->max_new = max_new;
    g->on_token = h ? hear : NULL;
    g->self = h;
    *e = (fak_error){0};
    int32_t rc = session_generate(&o->session, slot, g, e);
    give(o, slot);
    return rc;
}

static void generate_well(opened *o, generation *g, uint32_t prompt, uint32_t max_new, heard *h)
{
    fak_error e;
    if (generate(o, g, prompt, max_new, h, &e)) fail_msg("%s", e.message);
}

static void assert_ids(const token_ids *ids, const token_ids *expected, size_t count)
{
    assert_int_equal(ids->count, count);
    assert_memory_equal(ids->id, expected->id, count * sizeof *ids->id);
}

/* Ids do not depend on how many rows a step has, nor on who runs what. */
static void test_same_ids(void **state)
{
    static const uint32_t rows[] = {128, 1, 7};
    static const char *const ways[] = {"", "fused=1", "refuse=rope+argmax async=1",
                                       "graph=1 refuse=kv-layer0"};
    (void)state;
    for (uint32_t m = 0; m < TINY_MODELS; m++) {
        generation first = {0};
        for (uint32_t i = 0; i < 3 + 4; i++) {
            opened o;
            generation g = {0};
            open_tiny(&o, tiny_names[m], i < 3 ? "cpu-ref" : "refuser", i < 3 ? NULL : ways[i - 3]);
            start_well(&o, &(session_options){.context = CONTEXT, .rows = rows[i % 3]});
            generate_well(&o, i ? &g : &first, PROMPT, NEW, NULL);
            if (i) assert_ids(&g.ids, &first.ids, NEW);
            token_ids_free(&g.ids);
            close_all(&o);
        }
        token_ids_free(&first.ids);
    }
}

/* Ids are those that feeding by hand gives. */
static void test_ids_by_hand(void **state)
{
    opened o;
    fak_error e;
    generation g = {0};
    heard h = {0};
    uint32_t id;
    (void)state;
    open_tiny(&o, "tiny-q4_1.gguf", "cpu-ref", NULL);
    start_well(&o, &(session_options){.context = CONTEXT, .slots = 2});
    generate_well(&o, &g, PROMPT, NEW, &h);
    uint32_t slot = take(&o);
    const uint32_t *next = o.prompt;
    for (uint32_t i = 0, n = PROMPT; i < NEW; i++, n = 1, next = &id) {
        assert_int_equal(session_feed(&o.session, slot, next, n, FAK_WANT_ARGMAX, 0, &id, &e),
                         FAK_OK);
        assert_int_equal(g.ids.id[i], id);
        assert_int_equal(h.id[i], id);
    }
    assert_int_equal(h.count, NEW);
    assert_true(g.prefill_s >= 0 && g.decode_s >= 0);
    token_ids_free(&g.ids);
    close_all(&o);
}

static void test_finish_length(void **state)
{
    opened o;
    (void)state;
    open_tiny(&o, "tiny-f32.gguf", "cpu-ref", NULL);
    start_well(&o, &(session_options){.context = CONTEXT});
    for (uint32_t n = 1; n <= 3; n++) {
        generation g = {0};
        heard h = {0};
        generate_well(&o, &g, PROMPT, n, &h);
        assert_int_equal(g.finish, FINISH_LENGTH);
        assert_string_equal(session_finish_name(g.finish), "length");
        assert_int_equal(g.ids.count, n);
        assert_int_equal(h.count, n);
        token_ids_free(&g.ids);
    }
    close_all(&o);
}

/* The last id needs no position of its own. */
static void test_finish_context(void **state)
{
    static const uint32_t prompts[] = {1, PROMPT, CONTEXT - 1, CONTEXT};
    opened o;
    fak_error e;
    (void)state;
    open_tiny(&o, "tiny-f32.gguf", "cpu-ref", NULL);
    start_well(&o, &(session_options){.context = CONTEXT, .rows = 9});
    for (uint32_t i = 0; i < 4; i++) {
        generation g = {0};
        heard h = {0};
        uint32_t room = CONTEXT - prompts[i] + 1;
        generate_well(&o, &g, prompts[i], 1000, &h);
        assert_int_equal(g.finish, FINISH_CONTEXT);
        assert_string_equal(session_finish_name(g.finish), "context");
        assert_int_equal(g.ids.count, room);
        assert_int_equal(h.count, room);
        token_ids_free(&g.ids);
        g = (generation){0};
        generate_well(&o, &g, prompts[i], room, NULL); /* both at once: all that was asked for */
        assert_int_equal(g.finish, FINISH_LENGTH);
        assert_int_equal(g.ids.count, room);
        token_ids_free(&g.ids);
    }
    generation g = {0};
    assert_int_equal(generate(&o, &g, CONTEXT + 1, 5, NULL, &e), FAK_E_KV_FULL);
    assert_message(&e, "41 tokens after 0; context is 40");
    assert_int_equal(g.ids.count, 0);
    token_ids_free(&g.ids);
    close_all(&o);
}

static void test_finish_stopped(void **state)
{
    opened o;
    (void)state;
    open_tiny(&o, "tiny-f32.gguf", "cpu-ref", NULL);
    start_well(&o, &(session_options){.context = CONTEXT});
    for (uint32_t n = 1; n < 6; n++) {
        generation g = {0};
        heard h = {.stop_after = n};
        generate_well(&o, &g, PROMPT, 5, &h);
        assert_int_equal(g.finish, FINISH_STOPPED); /* also at the very last */
        assert_string_equal(session_finish_name(g.finish), "stopped");
        assert_int_equal(g.ids.count, n);
        assert_memory_equal(h.id, g.ids.id, n * sizeof *h.id);
        token_ids_free(&g.ids);
    }
    close_all(&o);
}

/* ---- files with a byte changed ---- */

typedef struct patched {
    char path[64];
    uint8_t *data;
    size_t bytes;
} patched;

static void patch_begin(patched *p, const char *name)
{
    snprintf(p->path, sizeof p->path, "%s/fak-test-XXXXXX", P_tmpdir);
    p->data = tiny_bytes(name, &p->bytes);
}

static void patch_write(patched *p)
{
    int fd = mkstemp(p->path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, p->data, p->bytes), p->bytes);
    close(fd);
    free(p->data);
}

static uint8_t *patch_find(patched *p, const void *what, size_t bytes)
{
    uint8_t *at = memmem(p->data, p->bytes, what, bytes);
    assert_non_null(at);
    return at;
}

static void patch_u32(uint8_t *at, uint32_t value) /* as files have it */
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> 8 * i);
}

/* Generates until the id that the file says ends a text. */
static void test_finish_eos(void **state)
{
    static const char key[] = "tokenizer.ggml.eos_token_id";
    generation free_run = {0}, g = {0};
    heard h = {0};
    patched p;
    opened o;
    uint32_t end = 0;
    (void)state;
    open_tiny(&o, "tiny-f32.gguf", "cpu-ref", NULL);
    start_well(&o, &(session_options){.context = CONTEXT});
    generate_well(&o, &free_run, PROMPT, NEW, NULL);
    close_all(&o);
    for (uint32_t i = 1; i < NEW && !end; i++) /* the first that has not come before */
        if (free_run.ids.id[i] != free_run.ids.id[0]) end = i;
    assert_true(end > 0);
    uint32_t eos = free_run.ids.id[end];

    patch_begin(&p, "tiny-f32.gguf");
    patch_u32(patch_find(&p, key, sizeof key - 1) + sizeof key - 1 + 4, eos);
    patch_write(&p);
    open_path(&o, p.path, "cpu-ref", NULL);
    unlink(p.path);
    assert_int_equal(tokenizer_eos(o.tokenizer), eos);
    start_well(&o, &(session_options){.context = CONTEXT});
    g.tokenizer = o.tokenizer;
    generate_well(&o, &g, PROMPT, NEW, &h);
    assert_int_equal(g.finish, FINISH_EOS);
    assert_string_equal(session_finish_name(g.finish), "eos");
    assert_ids(&g.ids, &free_run.ids, end + 1); /* the end included */
    assert_int_equal(h.count, end);             /* but not told */
    token_ids_free(&g.ids);
    g = (generation){0};
    generate_well(&o, &g, PROMPT, NEW, NULL); /* no tokenizer: no end */
    assert_int_equal(g.finish, FINISH_LENGTH);
    assert_ids(&g.ids, &free_run.ids, NEW);
    token_ids_free(&g.ids);
    token_ids_free(&free_run.ids);
    close_all(&o);
}

/* Puts a NaN into an F32 vector of the file. */
static void poison(patched *p, const char *name, const char *tensor)
{
    static const char key[] = "general.architecture";
    opened o;
    patch_begin(p, name);
    open_tiny(&o, name, "cpu-ref", NULL);
    const gguf_value *v = gguf_find(o.file, key);
    const gguf_tensor *t = gguf_find_tensor(o.file, tensor);
    assert_true(v && t && t->dtype == FAK_F32);
    uint8_t *at = patch_find(p, key, sizeof key - 1) + (t->data - (const uint8_t *)v->key.data);
    assert_memory_equal(at, t->data, t->bytes);
    patch_u32(at + 4 * 5, 0x7fc00000);
    close_all(&o);
    patch_write(p);
}

static void test_nan(void **state)
{
    static const char *const tensor[] = {"output_norm.weight", "blk.1.ffn_norm.weight",
                                         "blk.0.attn_norm.weight"};
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        patched p;
        opened o;
        fak_error e;
        generation g = {0};
        heard h = {0};
        poison(&p, "tiny-f32.gguf", tensor[i / 2]);
        open_path(&o, p.path, i % 2 ? "refuser" : "cpu-ref", i % 2 ? "fused=1 refuse=att" : NULL);
        unlink(p.path);
        start_well(&o, &(session_options){.context = CONTEXT});
        assert_int_equal(generate(&o, &g, PROMPT, NEW, &h, &e), STATUS_NAN);
        assert_int_equal(e.code, STATUS_NAN);
        assert_message(&e, "NaN");
        assert_int_equal(g.ids.count, 0);
        assert_int_equal(h.count, 0);
        token_ids_free(&g.ids);
        close_all(&o);
    }
}

/* ---- several sequences in a step ---- */

enum { BATCH = 3, BATCH_STEPS = 4 };

/* Prompts of different lengths in slots of another order, then steps of one id each. */
static void batch_of(opened *o, const uint32_t slot[BATCH], int together, float *out)
{
    fak_error e;
    size_t V = o->model.vocab;
    for (uint32_t b = 0; b < BATCH; b++)
        assert_int_equal(session_feed(&o->session, slot[b], o->prompt + b, 3 + 2 * b, FAK_WANT_NONE,
                                      0, NULL, &e),
                         FAK_OK);
    for (uint32_t step = 0; step < BATCH_STEPS; step++) {
        const uint32_t *id = o->prompt + 12 + BATCH * step;
        float *rows = out + step * BATCH * V;
        if (together && session_step_batch(&o->session, slot, id, BATCH, FAK_WANT_LOGITS, rows, &e))
            fail_msg("%s", e.message);
        for (uint32_t b = 0; !together && b < BATCH; b++)
            assert_int_equal(
                session_feed(&o->session, slot[b], id + b, 1, FAK_WANT_LOGITS, 0, rows + b * V, &e),
                FAK_OK);
    }
    for (uint32_t b = 0; b < BATCH; b++)
        assert_int_equal(o->session.kv.length[slot[b]], 3 + 2 * b + BATCH_STEPS);
}

/* The same bits as each alone; in one step, or in as many as its `wanted` allows. */
static void test_batch(void **state)
{
    static float alone[BATCH_STEPS * BATCH * ENGINE_VOCAB],
        together[BATCH_STEPS * BATCH * ENGINE_VOCAB];
    (void)state;
    for (uint32_t wanted = 1; wanted <= BATCH; wanted++) {
        opened o;
        session_options options = {.context = 20, .slots = 2 * BATCH, .wanted = wanted};
        uint32_t slot[2 * BATCH];
        open_tiny(&o, "tiny-q4_1.gguf", "cpu-ref", NULL);
        start_well(&o, &options);
        for (uint32_t i = 0; i < 2 * BATCH; i++) slot[i] = take(&o);
        batch_of(&o, (uint32_t[BATCH]){slot[4], slot[0], slot[2]}, 0, alone);
        uint64_t before = o.session.exec.by_id[SIDE_DEVICE][FAK_OP_EMBED];
        batch_of(&o, (uint32_t[BATCH]){slot[5], slot[3], slot[1]}, 1, together);
        assert_int_equal(o.session.exec.by_id[SIDE_DEVICE][FAK_OP_EMBED] - before,
                         BATCH + BATCH_STEPS * ((BATCH + wanted - 1) / wanted));
        assert_memory_not_equal(alone, alone + o.model.vocab, o.model.vocab * sizeof *alone);
        assert_rows(together, alone, BATCH_STEPS * BATCH * (size_t)o.model.vocab);
        close_all(&o);
    }
}

/* Before any work: no length has changed. */
static void test_batch_refusals(void **state)
{
    (void)state;
    opened o;
    fak_error e;
    session_options options = {.context = 8, .slots = 2, .wanted = 2};
    uint32_t answer[2];
    open_tiny(&o, "tiny-f32.gguf", "cpu-ref", NULL);
    start_well(&o, &options);
    uint32_t slot[2] = {take(&o), take(&o)}, bad[2] = {1, o.model.vocab};
    assert_int_equal(session_feed(&o.session, slot[1], o.prompt, 8, FAK_WANT_NONE, 0, NULL, &e),
                     FAK_OK);
    assert_int_equal(session_step_batch(&o.session, slot, o.prompt, 2, FAK_WANT_ARGMAX, answer, &e),
                     FAK_E_KV_FULL);
    assert_message(&e, "sequence 1 of 2 is full; context is 8");
    assert_int_equal(session_step_batch(&o.session, slot, bad, 2, FAK_WANT_ARGMAX, answer, &e),
                     FAK_E_ARGUMENT);
    assert_message(&e, "the vocabulary has");
    assert_int_equal(o.session.kv.length[slot[0]], 0);
    close_all(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_feed_limits),    cmocka_unit_test(test_feed_goes_on),
        cmocka_unit_test(test_all_answers),    cmocka_unit_test(test_same_ids),
        cmocka_unit_test(test_ids_by_hand),    cmocka_unit_test(test_finish_length),
        cmocka_unit_test(test_finish_context), cmocka_unit_test(test_finish_stopped),
        cmocka_unit_test(test_finish_eos),     cmocka_unit_test(test_nan),
        cmocka_unit_test(test_batch),          cmocka_unit_test(test_batch_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
