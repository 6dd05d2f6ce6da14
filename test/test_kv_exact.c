/* test_kv_exact - a sequence that was cloned, cut or had something taken out goes on with the very bits
 * of one that never was: max|difference| = 0 over all logits.  The controls must differ.
 * usage: test_kv_exact [long | short]: without, the tiny models, of every dtype and with every kv
 * dtype; else the model that FAK_TEST_MODEL names, in its file's dtype (without it: 77). */
#include "support.h"

#include "../core/plugin.h"
#include "../core/ref.h"
#include "../core/rope.h"
#include "../core/session.h"

#include <inttypes.h>
#include <math.h>

enum { N = 32, JUNK = 7, CONTEXT = 64 };

typedef struct bench {
    const char *name;
    gguf *file;
    model m;
    plugins all;
    device dev, host;
    session s;
    uint32_t n, cut, kv_dtype; /* ids of the sequence; where it is cut */
    uint32_t token[N], junk[JUNK];
    float *want, *got;    /* [n, V] */
    float *raw_k, *raw_v; /* [layers, CONTEXT, width] as they came to the kv, before rotation */
    float *kv_k, *kv_v;   /* [CONTEXT, width] */
    uint32_t width;
} bench;

/* ---- open ---- */

static void read_ids(bench *b, const char *text, uint32_t *id, uint32_t count)
{
    tokenizer *t;
    token_ids ids = {0};
    fak_error e = {0};
    if (tokenizer_open(&t, b->file, &e) || tokenizer_encode(t, text, strlen(text), &ids, &e))
        fail_msg("%s: %s", b->name, e.message);
    assert_true(ids.count >= count);
    memcpy(id, ids.id, count * sizeof *id);
    token_ids_free(&ids);
    tokenizer_close(t);
}

static void *room(size_t count)
{
    void *at = malloc(count * sizeof(float));
    assert_non_null(at);
    return at;
}

static void bench_open(bench *b, const char *path, uint32_t kv_dtype, uint32_t n)
{
    const session_options o = {.slots = 3,
                               .rows = n,
                               .wanted = n,
                               .kv_dtype = kv_dtype,
                               .flags = FAK_EVICTABLE | FAK_KEEP_ALL};
    fak_error e = {0};
    *b = (bench){.name = path, .n = n, .cut = n / 3, .kv_dtype = kv_dtype};
    if (gguf_open(&b->file, path, &e) || model_open(&b->m, b->file, 0, CONTEXT, &e) ||
        plugins_open(&b->all, &(plugin_search){0}, &(plugin_host){0}, &e))
        fail_msg("%s", e.message);
    plugin *ref = plugins_linked_in(&b->all, "cpu-ref");
    if (plugin_load(&b->all, ref, &e) || device_open(&b->dev, ref, 0, NULL, 0, &e) ||
        device_open(&b->host, ref, 0, NULL, 0, &e) ||
        session_open(&b->s, &b->m, &b->dev, &b->host, &o, NULL, NULL, &e))
        fail_msg("%s: %s", path, e.message);
    read_ids(b,
             "Once upon a time there was a river that ran past an old mill, and in the mill lived "
             "a cat who counted the boats: twelve of them, on most days, and one more on Sundays.",
             b->token, n);
    read_ids(b, "printf(\"%d\\n\", 42); // something else altogether", b->junk, JUNK);
    b->width = b->m.kv_heads * b->m.head_dim;
    b->want = room((size_t)n * b->m.vocab);
    b->got = room((size_t)n * b->m.vocab);
    b->raw_k = room((size_t)b->m.layers * CONTEXT * b->width);
    b->raw_v = room((size_t)b->m.layers * CONTEXT * b->width);
    b->kv_k = room((size_t)CONTEXT * b->width);
    b->kv_v = room((size_t)CONTEXT * b->width);
}

static void bench_close(bench *b)
{
    session_close(&b->s);
    device_close(&b->dev);
    device_close(&b->host);
    plugins_close(&b->all);
    model_close(&b->m);
    gguf_close(b->file);
    free(b->want);
    free(b->got);
    free(b->raw_k);
    free(b->raw_v);
    free(b->kv_k);
    free(b->kv_v);
}

/* ---- sequences ---- */

static uint32_t take(bench *b)
{
    uint32_t slot;
    fak_error e;
    assert_int_equal(kv_take(&b->s.kv, &slot, &e), FAK_OK);
    return slot;
}

static void give(bench *b, uint32_t slot)
{
    fak_error e;
    assert_int_equal(kv_give(&b->s.kv, slot, &e), FAK_OK);
}

/* Goes on with ids; all logits to out, or none. */
static void feed(bench *b, uint32_t slot, const uint32_t *id, uint32_t count, float *out)
{
    fak_error e = {0};
    if (session_feed(&b->s, slot, id, count, out ? FAK_WANT_LOGITS : FAK_WANT_NONE, 1, out, &e))
        fail_msg("%s: %s", b->name, e.message);
}

static void evict(bench *b, uint32_t slot, uint32_t first, uint32_t count)
{
    fak_error e = {0};
    if (kv_evict(&b->s.kv, slot, first, count, &e)) fail_msg("%s: %s", b->name, e.message);
}

/* max|got - want| from position `first` on; got begins there.  0 means the same bits. */
static double difference(const bench *b, uint32_t first)
{
    size_t count = (size_t)(b->n - first) * b->m.vocab;
    const float *want = b->want + (size_t)first * b->m.vocab;
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        double d = fabs((double)b->got[i] - (double)want[i]);
        if (memcmp(&b->got[i], &want[i], sizeof *want) && !(d > 0)) d = INFINITY; /* NaN, -0 */
        if (d > most) most = d;
    }
    return most;
}

/* The rest of the sequence from `first` on gives what it always gave. */
static void assert_goes_on(bench *b, uint32_t slot, uint32_t first, const char *after)
{
    assert_int_equal(b->s.kv.length[slot], first);
    feed(b, slot, b->token + first, b->n - first, b->got);
    double d = difference(b, first);
    if (d > 0) fail_msg("%s: after %s: max|difference| = %g", b->name, after, d);
}

/* ---- the list ---- */

static void check_clone(bench *b)
{
    uint32_t from = take(b), to;
    fak_error e;
    feed(b, from, b->token, b->n, NULL);
    assert_int_equal(kv_clone(&b->s.kv, from, b->cut, &to, &e), FAK_OK);
    assert_goes_on(b, to, b->cut, "a clone");
    kv_truncate(&b->s.kv, to, b->cut); /* what the clone does next is nothing to the other */
    feed(b, to, b->junk, JUNK, NULL);
    kv_truncate(&b->s.kv, from, b->n - 1);
    assert_goes_on(b, from, b->n - 1, "being cloned");
    give(b, from);
    give(b, to);
}

static void check_truncate(bench *b)
{
    uint32_t slot = take(b);
    feed(b, slot, b->token, b->cut, NULL);
    feed(b, slot, b->junk, JUNK, NULL);
    kv_truncate(&b->s.kv, slot, b->cut);
    assert_goes_on(b, slot, b->cut, "a truncation");
    give(b, slot);
}

static void check_evict_tail(bench *b)
{
    uint32_t slot = take(b);
    feed(b, slot, b->token, b->cut, NULL);
    feed(b, slot, b->junk, JUNK, NULL);
    evict(b, slot, b->cut, JUNK);
    assert_goes_on(b, slot, b->cut, "evicting the tail");
    give(b, slot);
}

/* In the middle the survivors had attended to what goes: they are prefilled again.  Control: not. */
static void check_evict_middle(bench *b)
{
    uint32_t slot = take(b), last = b->n - 1;
    feed(b, slot, b->token, b->cut, NULL);
    feed(b, slot, b->junk, JUNK, NULL);
    feed(b, slot, b->token + b->cut, last - b->cut, NULL);
    evict(b, slot, b->cut, JUNK);
    assert_int_equal(b->s.kv.length[slot], last);
    feed(b, slot, b->token + last, 1, b->got);
    double without = difference(b, last);
    if (!(without > 0)) fail_msg("%s: evicting from the middle changed nothing", b->name);
    kv_truncate(&b->s.kv, slot, b->cut);
    assert_goes_on(b, slot, b->cut, "evicting and prefilling the survivors");
    print_message("  control: without the prefill max|difference| = %.3g\n", without);
    give(b, slot);
}

static void read_kv(bench *b, uint32_t slot, uint32_t layer, uint32_t count)
{
    uint64_t ticket;
    fak_error e = {0};
    if (b->dev.api.kv_read(b->s.program.handle[SIDE_DEVICE], slot, layer, 0, count, b->kv_k,
                           b->kv_v, &ticket, &e))
        fail_msg("%s: %s", b->name, e.message);
}

/* What is read and written back is what was there.  Control: one key that is not. */
static void check_poison(bench *b)
{
    uint32_t slot = take(b), last = b->n - 1, layer = b->m.layers / 2;
    fak_program *p = b->s.program.handle[SIDE_DEVICE];
    fak_error e = {0};
    feed(b, slot, b->token, last, NULL);
    for (int poison = 0; poison < 2; poison++) {
        read_kv(b, slot, layer, last);
        if (poison) b->kv_k[(size_t)b->cut * b->width + 3] += 2;
        assert_int_equal(b->dev.api.kv_write(p, slot, layer, 0, last, b->kv_k, b->kv_v, &e), 0);
        feed(b, slot, b->token + last, 1, b->got);
        if ((difference(b, last) > 0) != poison)
            fail_msg("%s: a key was %s: max|difference| = %g", b->name,
                     poison ? "poisoned" : "read and written", difference(b, last));
        kv_truncate(&b->s.kv, slot, last);
    }
    give(b, slot);
}

/* ---- keys after an eviction ---- */

/* A watch: keeps what comes to the kv of each layer. */
static int32_t keep_raw(void *self, exec *x, uint32_t op, const fak_step *step, fak_error *e)
{
    bench *b = self;
    const fak_op *o = &x->p->op[op];
    fak_span span;
    if (o->id != FAK_OP_KV_APPEND) return FAK_OK;
    FAK_GET(&span, step, span, 0);
    size_t at = ((size_t)o->layer * CONTEXT + span.first) * b->width;
    int32_t s = exec_read(x, op, o->in[0], step, b->raw_k + at, e);
    return s ? s : exec_read(x, op, o->in[1], step, b->raw_v + at, e);
}

/* As it is kept: rounded to the kv dtype. */
static void round_row(const bench *b, float *row)
{
    uint8_t stored[4096];
    assert_true(dtype_row_bytes(b->kv_dtype, b->width) <= sizeof stored);
    dtype_encode_row(b->kv_dtype, b->width, row, stored);
    dtype_decode_row(b->kv_dtype, b->width, stored, row);
}

/* Rows [0, count) of a slot's layer are RoPE(raw, position) and the values that came, position i being
 * the came[i]th that was fed. */
static void assert_keys(bench *b, uint32_t slot, uint32_t layer, const uint32_t *came,
                        uint32_t count, const float *table)
{
    float key[1024], value[1024];
    size_t bytes = b->width * sizeof(float);
    assert_true(bytes <= sizeof key);
    read_kv(b, slot, layer, count);
    for (uint32_t i = 0; i < count; i++) {
        size_t at = ((size_t)layer * CONTEXT + came[i]) * b->width;
        ref_rope(b->m.kv_heads, b->m.head_dim, b->m.rot_dim, b->raw_k + at,
                 table + (size_t)i * b->m.rot_dim, key);
        memcpy(value, b->raw_v + at, bytes);
        round_row(b, key);
        round_row(b, value);
        if (memcmp(key, b->kv_k + (size_t)i * b->width, bytes) ||
            memcmp(value, b->kv_v + (size_t)i * b->width, bytes))
            fail_msg("%s: layer %u, position %u is not the row that came as %u, rotated", b->name,
                     layer, i, came[i]);
    }
}

/* A clone of all of it, instead of it. */
static uint32_t move(bench *b, uint32_t from)
{
    uint32_t to;
    fak_error e;
    assert_int_equal(kv_clone(&b->s.kv, from, b->s.kv.length[from], &to, &e), FAK_OK);
    give(b, from);
    return to;
}

static void check_keys(bench *b)
{
    static float table[CONTEXT * 256];
    static const uint32_t gone[][2] = {{5, 3}, {0, 1}, {2, 2}}; /* one after another */
    uint32_t slot = take(b), came[N], count = b->n;
    assert_true(b->m.rot_dim <= 256);
    rope_table(CONTEXT, b->m.rot_dim, b->m.rope_theta, table);
    for (uint32_t i = 0; i < count; i++) came[i] = i;
    b->s.exec.watch = keep_raw;
    b->s.exec.watch_self = b;
    feed(b, slot, b->token, count, NULL);
    b->s.exec.watch = NULL;
    for (uint32_t r = 0; r <= sizeof gone / sizeof *gone; r++) {
        for (uint32_t l = 0; l < b->m.layers; l++) assert_keys(b, slot, l, came, count, table);
        if (r == sizeof gone / sizeof *gone) break;
        if (r == 1) slot = move(b, slot); /* a clone can be evicted from as well */
        evict(b, slot, gone[r][0], gone[r][1]);
        count -= gone[r][1];
        memmove(came + gone[r][0], came + gone[r][0] + gone[r][1],
                (count - gone[r][0]) * sizeof *came);
    }
    give(b, slot);
}

/* ---- models ---- */

static void check_all(const char *path, uint32_t kv_dtype, uint32_t n)
{
    bench b;
    bench_open(&b, path, kv_dtype, n);
    uint32_t slot = take(&b);
    feed(&b, slot, b.token, n, b.want); /* never cloned, never cut */
    give(&b, slot);
    check_clone(&b);
    check_truncate(&b);
    check_evict_tail(&b);
    check_evict_middle(&b);
    check_poison(&b);
    check_keys(&b);
    print_message("%s, kv %s, %" PRIu32 " ids: max|difference| = 0\n", path,
                  dtype_find(kv_dtype)->name, n);
    bench_close(&b);
}

static const uint32_t kvs[] = {FAK_F32, FAK_F16, FAK_BF16};
static uint32_t real_ids;

static void test_tiny(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < TINY_MODELS * 3; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", TEST_MODELS, tiny_names[i / 3]);
        check_all(path, kvs[i % 3], N);
    }
}

static void test_real(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) check_all(getenv("FAK_TEST_MODEL"), kvs[i], real_ids);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tinies[] = {cmocka_unit_test(test_tiny)};
    const struct CMUnitTest real[] = {cmocka_unit_test(test_real)};
    if (argc < 2) return cmocka_run_group_tests(tinies, NULL, NULL);
    if (!getenv("FAK_TEST_MODEL")) {
        printf("skipped: FAK_TEST_MODEL does not name the model (scripts/fetch-model)\n");
        return 77;
    }
    real_ids = strcmp(argv[1], "short") ? N : 14;
    return cmocka_run_group_tests(real, NULL, NULL);
}
