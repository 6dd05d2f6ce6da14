/* Malformed files, made by rule from a good one: every number in it at 0, 1, its ends and beyond the
 * file's; every key and tensor missing, doubled, of another type; cut at every byte.  Each is refused
 * with one sentence, after little memory; which sentence is a row of test/data/gguf_faults.golden.
 *
 * usage: test_gguf_faults [--write] TABLE
 * Compares with the table, fails where a row differs.  --write makes the table anew: read the
 * difference before it is committed. */
#include "image.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../core/model.h"
#include "../core/tokenizer.h"

/* ---- memory: what the core asks for while a file is tried (the linker's --wrap) ---- */

static uint64_t asked_bytes;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    asked_bytes += bytes;
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    asked_bytes += count * bytes;
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    asked_bytes += bytes;
    return __real_realloc(old, bytes);
}

/* ---- the good file ---- */

enum { WIDTH = 4, FFN = 3, HEADS = 2, KV = 2, PRINTABLE = '~' - ' ' + 1, TOKENS = PRINTABLE + 5 };

static const struct {
    const char *key;
    uint32_t type, n; /* n: bits of the value */
} scalars[] = {
    {"llama.block_count", GGUF_U32, 1},
    {"llama.context_length", GGUF_U32, 16},
    {"llama.embedding_length", GGUF_U32, WIDTH},
    {"llama.feed_forward_length", GGUF_U32, FFN},
    {"llama.attention.head_count", GGUF_U32, HEADS},
    {"llama.attention.head_count_kv", GGUF_U32, 1},
    {"llama.attention.key_length", GGUF_U32, WIDTH / HEADS},
    {"llama.attention.layer_norm_rms_epsilon", GGUF_F32, 0x3727c5ac /* 1e-5 */},
    {"llama.rope.freq_base", GGUF_F32, 0x461c4000 /* 10000 */},
    {"llama.rope.dimension_count", GGUF_U32, WIDTH / HEADS},
    {"general.alignment", GGUF_U32, 32},
    {"tokenizer.ggml.bos_token_id", GGUF_U32, 1},
    {"tokenizer.ggml.eos_token_id", GGUF_U32, 2},
    {"tokenizer.ggml.add_bos_token", GGUF_BOOL, 1},
};
static const struct {
    const char *key, *text;
} strings[] = {
    {"general.architecture", "llama"},
    {"general.name", "faults"},
    {"tokenizer.ggml.model", "gpt2"},
    {"tokenizer.ggml.pre", "smollm"},
};
static const char *const arrays[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
                                     "tokenizer.ggml.merges"};
static const uint32_t array_types[] = {GGUF_STRING, GGUF_I32, GGUF_STRING};
static const struct {
    const char *name;
    uint32_t dims, dim[2];
} tensors[] = {
    {"token_embd.weight", 2, {WIDTH, TOKENS}},  {"blk.0.attn_norm.weight", 1, {WIDTH}},
    {"blk.0.attn_q.weight", 2, {WIDTH, WIDTH}}, {"blk.0.attn_k.weight", 2, {WIDTH, KV}},
    {"blk.0.attn_v.weight", 2, {WIDTH, KV}},    {"blk.0.attn_output.weight", 2, {WIDTH, WIDTH}},
    {"blk.0.ffn_norm.weight", 1, {WIDTH}},      {"blk.0.ffn_gate.weight", 2, {WIDTH, FFN}},
    {"blk.0.ffn_up.weight", 2, {WIDTH, FFN}},   {"blk.0.ffn_down.weight", 2, {FFN, WIDTH}},
    {"output_norm.weight", 1, {WIDTH}},         {"output.weight", 2, {WIDTH, TOKENS}},
};

#define COUNT(a) ((uint32_t)(sizeof(a) / sizeof *(a)))

enum { KEYS = COUNT(scalars) + COUNT(strings) + COUNT(arrays) };

/* What is done otherwise than in the good file; name is that of a key or tensor, or a text. */
typedef struct edit {
    enum edit_kind {
        NOTHING,
        MISSING,
        TWICE,
        RETYPE,  /* a key: type n, of an array element m */
        COUNTED, /* an array: n elements */
        ONE_TOKEN,
        TOKEN,   /* number n is the text */
        TYPE_OF, /* token n is of type m */
        MERGE,   /* the first is the text */
        SHAPE,   /* a tensor: n x m, a vector when m is 0 */
        NO_TENSORS,
        EXTRA /* one tensor more, of that name */
    } kind;
    const char *name;
    uint64_t n, m;
} edit;

static edit now;

static int is(enum edit_kind kind, const char *name)
{
    return now.kind == kind && !strcmp(now.name, name);
}

/* ---- numbers of the good file, where they lie ---- */

typedef struct field {
    char label[80];
    size_t at;
    uint32_t bytes;
    int set, real; /* try all values there, not only cuts; an f32 */
} field;

static field fields[400];
static uint32_t field_count;

static void number(image *m, uint64_t n, uint32_t bytes, int set, const char *what,
                   const char *part)
{
    field *f = &fields[field_count];
    if (now.kind == NOTHING) {
        assert_true(field_count++ < COUNT(fields));
        *f = (field){
            .at = m->bytes, .bytes = bytes, .set = set, .real = strstr(part, "f32") != NULL};
        snprintf(f->label, sizeof f->label, "%s, %s", what, part);
    }
    put(m, n, bytes);
}

static void text(image *m, const char *s, int set, const char *what, const char *part)
{
    number(m, strlen(s), 8, set, what, part);
    put_raw(m, s, strlen(s));
}

/* ---- keys ---- */

static void put_retyped(image *m, const char *key, uint32_t type, uint32_t element)
{
    put_key(m, key, type);
    if (type == GGUF_ARRAY) {
        put_u32(m, element);
        put_u64(m, 1);
        type = element;
    }
    if (type == GGUF_STRING)
        put_string(m, "1");
    else
        put(m, 1, gguf_type_bytes(type));
}

/* Writes the key's head; 0 when the edit leaves it out or writes all of it. */
static int key_head(image *m, const char *key, uint32_t type)
{
    int set = !strcmp(key, "llama.block_count") || !strcmp(key, "general.architecture") ||
              !strcmp(key, "tokenizer.ggml.tokens");
    if (is(MISSING, key)) return 0;
    if (is(RETYPE, key)) {
        put_retyped(m, key, (uint32_t)now.n, (uint32_t)now.m);
        return 0;
    }
    text(m, key, set, key, "bytes of the name");
    number(m, type, 4, set, key, "type");
    return 1;
}

static void put_token(image *m, uint32_t id)
{
    static const char *const special[] = {"<|end|>", "<s>", "</s>"};
    char one[8] = {0};
    if (id < 3)
        snprintf(one, sizeof one, "%s", special[id]);
    else if (id == 3) /* a space, a line's end: stand-ins of GPT-2's alphabet */
        memcpy(one, "\xc4\xa0", 2);
    else if (id < 3 + PRINTABLE)
        one[0] = (char)(' ' + id - 3);
    else
        memcpy(one, id == 3 + PRINTABLE ? "\xc4\x8a" : "ab", 2);
    text(m, now.kind == TOKEN && now.n == id ? now.name : one, id == 0, "tokenizer.ggml.tokens",
         id == 0 ? "bytes of the first" : "bytes of another");
}

static void put_arrays(image *m)
{
    static const uint64_t good[] = {TOKENS, TOKENS, 1};
    for (uint32_t i = 0; i < COUNT(arrays); i++) {
        uint64_t count = now.kind == ONE_TOKEN ? i < 2 : is(COUNTED, arrays[i]) ? now.n : good[i];
        if (!key_head(m, arrays[i], GGUF_ARRAY)) continue;
        number(m, array_types[i], 4, 1, arrays[i], "type of elements");
        number(m, count, 8, 1, arrays[i], "count");
        for (uint32_t k = 0; k < count; k++) {
            uint64_t type = k < 3 ? 3 : 1;
            if (now.kind == TYPE_OF && now.n == k) type = now.m;
            if (i == 0) put_token(m, k);
            if (i == 1) put_u32(m, (uint32_t)type);
            if (i == 2)
                text(m, now.kind == MERGE ? now.name : "a b", 1, arrays[i], "bytes of the first");
        }
    }
}

static void put_keys(image *m)
{
    for (uint32_t i = 0; i < COUNT(strings); i++)
        if (key_head(m, strings[i].key, GGUF_STRING))
            text(m, strings[i].text, 1, strings[i].key, "bytes of the string");
    for (uint32_t i = 0; i < COUNT(scalars); i++)
        if (key_head(m, scalars[i].key, scalars[i].type))
            number(m, scalars[i].n, gguf_type_bytes(scalars[i].type), 1, scalars[i].key,
                   scalars[i].type == GGUF_F32 ? "f32" : "value");
    put_arrays(m);
}

/* ---- tensors ---- */

/* At byte *data of the data section, which it moves on. */
static void put_one_tensor(image *m, uint32_t i, const char *name, uint64_t *data)
{
    int set = i == 0 || i == 2 || i + 1 == COUNT(tensors);
    uint64_t dim[2] = {tensors[i].dim[0], tensors[i].dim[1]};
    uint32_t dims = tensors[i].dims;
    if (is(SHAPE, name)) {
        dim[0] = now.n;
        dim[1] = now.m;
        dims = now.m ? 2 : 1;
    }
    text(m, name, set, name, "bytes of the name");
    number(m, dims, 4, set, name, "dimensions");
    number(m, dim[0], 8, set, name, "dimension 1");
    if (dims > 1) number(m, dim[1], 8, set, name, "dimension 2");
    number(m, 0, 4, set, name, "type");
    number(m, *data, 8, set, name, "offset");
    *data += (dim[0] * (dims > 1 ? dim[1] : 1) * 4 + 31) / 32 * 32;
}

static void make(image *m, edit e)
{
    uint64_t data = 0, keys = KEYS, all;
    int is_tensor = 0;
    now = e;
    for (uint32_t i = 0; e.name && i < COUNT(tensors); i++)
        is_tensor |= !strcmp(e.name, tensors[i].name);
    all = e.kind == NO_TENSORS ? 0 : COUNT(tensors);
    if (e.kind == MISSING || e.kind == TWICE) {
        uint64_t more = e.kind == TWICE ? 1 : UINT64_MAX;
        *(is_tensor ? &all : &keys) += more;
    }
    all += e.kind == EXTRA;
    m->bytes = 0;
    put_raw(m, "GGUF", 4);
    number(m, 3, 4, 1, "header", "version");
    number(m, all, 8, 1, "header", "tensors");
    number(m, keys, 8, 1, "header", "keys");
    put_keys(m);
    if (e.kind == TWICE && !is_tensor) put_retyped(m, e.name, GGUF_U8, 0);
    for (uint32_t i = 0; e.kind != NO_TENSORS && i < COUNT(tensors); i++)
        if (!is(MISSING, tensors[i].name)) put_one_tensor(m, i, tensors[i].name, &data);
    if ((e.kind == TWICE && is_tensor) || e.kind == EXTRA) put_one_tensor(m, 1, e.name, &data);
    put_data(m, 32, 0);
    for (uint64_t i = 0; i < data; i++) put(m, 0, 1);
}

/* ---- trying a file ---- */

static char path[] = "/tmp/test_gguf_faults_XXXXXX/m.gguf";
static FILE *table;
static int broken; /* rules that a fault broke, whatever its sentence */

static void complain(const char *what, const char *label, const char *message)
{
    printf("%s: %s: \"%s\"\n", label, what, message);
    broken++;
}

static int32_t open_rest(gguf *g, fak_error *e)
{
    model m = {0};
    tokenizer *t = NULL;
    int32_t s = tokenizer_open(&t, g, e);
    if (!s) s = model_open(&m, g, 0, 0, e);
    tokenizer_close(t);
    model_close(&m);
    gguf_close(g);
    return s;
}

/* As fakrun opens it, from memory that ends where the file does. */
static int32_t try_memory(const uint8_t *data, size_t bytes, fak_error *e)
{
    gguf *g = NULL;
    uint8_t *exact = __real_malloc(bytes ? bytes : 1);
    assert_non_null(exact);
    memcpy(exact, data, bytes);
    *e = (fak_error){0};
    int32_t s = gguf_open_memory(&g, exact, bytes, path, e);
    if (!s) s = open_rest(g, e);
    free(exact);
    return s;
}

static int32_t try_mapped(const uint8_t *data, size_t bytes, fak_error *e)
{
    gguf *g = NULL;
    unlink(path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
    *e = (fak_error){0};
    int32_t s = gguf_open(&g, path, e);
    return s ? s : open_rest(g, e);
}

static int32_t try_file(const char *label, const uint8_t *data, size_t bytes, fak_error *e)
{
    fak_error again;
    asked_bytes = 0;
    int32_t s = try_memory(data, bytes, e);
    if (asked_bytes > (4u << 20) + 16 * bytes) {
        printf("asked for %" PRIu64 " bytes\n", asked_bytes);
        complain("too much memory", label, e->message);
    }
    if (try_mapped(data, bytes, &again) != s || strcmp(again.message, e->message))
        complain("another answer for the file than for its bytes", label, again.message);
    if (!s) return s;
    if (s != STATUS_BAD_FILE || e->code != s) complain("not STATUS_BAD_FILE", label, e->message);
    if (strncmp(e->message, "m.gguf: ", 8)) complain("does not name the file", label, e->message);
    if (strlen(e->message) + 1 >= sizeof e->message) complain("cut", label, e->message);
    for (const char *c = e->message; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) complain("not printable", label, e->message);
    return s;
}

/* Tries it and writes its row. */
static void row(const char *kind, const char *label, const image *m)
{
    fak_error e;
    int32_t s = try_file(label, m->data, m->bytes, &e);
    fprintf(table, "%s\t%s\t%s\n", kind, label, s ? e.message + 8 : "(opens)");
}

/* ---- the kinds of faults ---- */

static void set_field(const image *good, const field *f, uint64_t n)
{
    static image m;
    char kind[40];
    m = *good;
    m.bytes = f->at;
    put(&m, n, f->bytes);
    if (!memcmp(m.data, good->data, m.bytes)) return;
    m.bytes = good->bytes;
    snprintf(kind, sizeof kind, f->real ? "set to bits %08" PRIx64 : "set to %" PRIu64, n);
    row(kind, f->label, &m);
}

/* Each number at 0, 1, its ends, beside what it was, past the file's end, where products wrap. */
static void all_fields(const image *good)
{
    for (uint32_t i = 0; i < field_count; i++) {
        const field *f = &fields[i];
        uint64_t was, max = f->bytes < 8 ? (UINT64_C(1) << 8 * f->bytes) - 1 : UINT64_MAX;
        was = gguf_read_number(good->data + f->at, f->bytes, 0);
        const uint64_t values[] = {0, 1, was - 1, was + 1, max / 2 + 1, max};
        const uint64_t wide[] = {was - 32, was + 32, good->bytes, UINT64_C(1) << 32,
                                 (UINT64_C(1) << 61) + 1};
        const uint64_t reals[] = {0, 0x80000000, 0xbf800000, 0x7f800000, 0x7fc00000, 0x7f7fffff};
        if (!f->set) continue;
        for (uint32_t k = 0; f->real && k < COUNT(reals); k++) set_field(good, f, reals[k]);
        for (uint32_t k = 0; !f->real && k < COUNT(values); k++) {
            uint32_t before = 0;
            while ((values[before] & max) != (values[k] & max)) before++;
            if (before == k) set_field(good, f, values[k] & max);
        }
        for (uint32_t k = 0; f->bytes == 8 && k < COUNT(wide); k++)
            if (k > 1 || strstr(f->label, "offset")) set_field(good, f, wide[k]);
    }
}

/* Every length is refused; those that end where a number begins have rows. */
static void all_cuts(const image *good)
{
    fak_error e;
    for (size_t bytes = 0; bytes < good->bytes; bytes++)
        if (!try_file("cut", good->data, bytes, &e)) complain("taken though cut", "", "");
    for (uint32_t i = 0; i < field_count; i++) {
        static image m;
        if (!fields[i].set) continue;
        m = *good;
        m.bytes = fields[i].at;
        row("cut before", fields[i].label, &m);
    }
}

static void edited(const char *kind, const char *label, edit e)
{
    static image m;
    make(&m, e);
    row(kind, label, &m);
}

static void edit_keys(const char *key, uint32_t type)
{
    edited("missing", key, (edit){MISSING, key, 0, 0});
    edited("twice", key, (edit){TWICE, key, 0, 0});
    for (uint32_t other = 0; other < GGUF_TYPES; other++) {
        char kind[32];
        if (other == type && other != GGUF_ARRAY) continue;
        snprintf(kind, sizeof kind, "of type %s", gguf_type_name(other));
        if (other != GGUF_ARRAY) edited(kind, key, (edit){RETYPE, key, other, 0});
    }
    for (uint32_t element = 0; element < GGUF_TYPES; element++) {
        char kind[32];
        if (element == GGUF_ARRAY || (type != GGUF_ARRAY && element != type)) continue;
        snprintf(kind, sizeof kind, "array of %s", gguf_type_name(element));
        edited(kind, key, (edit){RETYPE, key, GGUF_ARRAY, element});
    }
}

static void edit_vocabulary(void)
{
    static const uint32_t types[] = {0, 6, 7, 255, 0x7fffffff, 0x80000000, 0xffffffff};
    static const char *const merges[] = {
        "", " ", "ab", "a ", " b", "a b c", "a ba", "ba a", "b a", "a \xc4\xa0\xff", "\x1b[31m x"};
    edited("one token", "tokenizer.ggml.tokens", (edit){ONE_TOKEN, "", 0, 0});
    for (uint32_t i = 0; i < COUNT(arrays); i++)
        for (uint64_t n = 0; n <= 2 * TOKENS; n += n == 2                     ? TOKENS - 3
                                                   : n < 2 || n == TOKENS - 1 ? 1
                                                                              : TOKENS) {
            char kind[32];
            snprintf(kind, sizeof kind, "%" PRIu64 " elements", n);
            edited(kind, arrays[i], (edit){COUNTED, arrays[i], n, 0});
        }
    for (uint32_t i = 0; i < COUNT(types); i++) {
        char kind[32];
        snprintf(kind, sizeof kind, "type %" PRId32, (int32_t)types[i]);
        edited(kind, "token 9", (edit){TYPE_OF, "", 9, types[i]});
    }
    for (uint32_t i = 0; i < COUNT(merges); i++) {
        char label[32];
        gguf_show(label, sizeof label, (gguf_string){merges[i], strlen(merges[i])});
        edited("merge", label, (edit){MERGE, merges[i], 0, 0});
    }
    static char most[(1 << 18) - 11 + 2]; /* "<|end|>" and "</s>" have 11 bytes */
    memset(most, 'x', sizeof most - 1);
    edited("token 1 is", "longer than special tokens may be", (edit){TOKEN, most, 1, 0});
    most[sizeof most - 2] = 0;
    edited("token 1 is", "as long as special tokens may be", (edit){TOKEN, most, 1, 0});
    edited("token 9 is", "", (edit){TOKEN, "", 9, 0});
    edited("token 9 is", "the text of token 10", (edit){TOKEN, "'", 9, 0});
    edited("token 99 is", "outside the alphabet", (edit){TOKEN, "\x01\xff", TOKENS - 1, 0});
}

static void edit_tensors(const image *good)
{
    for (uint32_t i = 0; i < COUNT(tensors); i++) {
        const char *name = tensors[i].name;
        uint64_t a = tensors[i].dim[0], b = tensors[i].dim[1];
        edited("missing", name, (edit){MISSING, name, 0, 0});
        edited("twice", name, (edit){TWICE, name, 0, 0});
        edited("a longer row", name, (edit){SHAPE, name, a + 1, b});
        edited("a vector", name, (edit){SHAPE, name, a * (b ? b : 2), 0});
        if (b) edited("a row more", name, (edit){SHAPE, name, a, b + 1});
        if (a != b && b) edited("turned", name, (edit){SHAPE, name, b, a});
    }
    edited("none", "tensors", (edit){NO_TENSORS, "", 0, 0});
    edited("one more", "blk.1.attn_norm.weight", (edit){EXTRA, "blk.1.attn_norm.weight", 0, 0});
    edited("one more", "blk.0.attn_q.bias", (edit){EXTRA, "blk.0.attn_q.bias", 0, 0});
    edited("one more", "rope_freqs.weight", (edit){EXTRA, "rope_freqs.weight", 0, 0});
    edited("one more", "of a strange name", (edit){EXTRA, "\x1b[31m\xff", 0, 0});
    for (uint32_t i = 0; i < field_count; i++)
        for (uint32_t type = 2; type <= 41 && !strcmp(fields[i].label, "blk.0.attn_q.weight, type");
             type++)
            set_field(good, &fields[i], type);
}

static void make_table(void)
{
    static image good;
    make(&good, (edit){NOTHING, "", 0, 0});
    uint32_t marked = field_count;
    row("none", "the good file", &good);
    all_fields(&good);
    all_cuts(&good);
    for (uint32_t i = 0; i < COUNT(strings); i++) edit_keys(strings[i].key, GGUF_STRING);
    for (uint32_t i = 0; i < COUNT(scalars); i++) edit_keys(scalars[i].key, scalars[i].type);
    for (uint32_t i = 0; i < COUNT(arrays); i++) edit_keys(arrays[i], GGUF_ARRAY);
    edit_vocabulary();
    edit_tensors(&good);
    assert_int_equal(field_count, marked);
}

/* ---- the table ---- */

static char *read_table(const char *name)
{
    FILE *f = fopen(name, "rb");
    char *text = calloc(1, 1 << 20);
    if (!f || !text || fread(text, 1, (1 << 20) - 1, f) == 0) text = NULL;
    if (f) fclose(f);
    return text;
}

/* Prints the rows that differ; how many. */
static uint32_t compare(char *wanted, char *made)
{
    uint32_t differ = 0;
    char *a = wanted, *b = made;
    while (*a || *b) {
        size_t n = strcspn(a, "\n"), k = strcspn(b, "\n");
        if (n != k || memcmp(a, b, n)) {
            if (differ++ < 20) printf("- %.*s\n+ %.*s\n", (int)n, a, (int)k, b);
        }
        a += n + (a[n] == '\n');
        b += k + (b[k] == '\n');
    }
    return differ;
}

int main(int argc, char **argv)
{
    int write = argc == 3 && !strcmp(argv[1], "--write");
    char *made = NULL, *slash = strrchr(path, '/');
    size_t bytes = 0;
    if (argc != 2 + write) {
        fprintf(stderr, "usage: test_gguf_faults [--write] TABLE\n");
        return 2;
    }
    *slash = 0;
    assert_non_null(mkdtemp(path));
    *slash = '/';
    table = open_memstream(&made, &bytes);
    assert_non_null(table);
    make_table();
    assert_int_equal(fclose(table), 0);
    unlink(path);
    *slash = 0;
    rmdir(path);
    uint32_t differ = 0;
    if (write) {
        FILE *f = fopen(argv[2], "wb");
        if (!f || fwrite(made, 1, bytes, f) != bytes || fclose(f)) return 1;
    } else {
        char *wanted = read_table(argv[1]);
        differ = wanted ? compare(wanted, made) : 1;
        free(wanted);
    }
    free(made);
    printf("%" PRIu32 " rows differ, %d rules are broken\n", differ, broken);
    return differ || broken;
}
