/* The tokenizer with a vocabulary that the test writes itself: merges, special tokens, bytes that
 * are no UTF-8, broken files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../core/tokenizer.h"

/* ---- a GGUF file ----------------------------------------------------------------------------- */

typedef struct image {
    unsigned char byte[1 << 16];
    size_t bytes;
    uint32_t values;
} image;

static void put(image *m, const void *from, size_t bytes)
{
    assert_true(bytes <= sizeof m->byte - m->bytes);
    memcpy(m->byte + m->bytes, from, bytes);
    m->bytes += bytes;
}

static void put_number(image *m, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++, value >>= 8) put(m, &(unsigned char){value & 0xff}, 1);
}

static void put_string(image *m, const char *text)
{
    put_number(m, strlen(text), 8);
    put(m, text, strlen(text));
}

static void put_key(image *m, const char *name, uint32_t type)
{
    char key[64];
    snprintf(key, sizeof key, "tokenizer.ggml.%s", name);
    put_string(m, key);
    put_number(m, type, 4);
    m->values++;
}

static void put_array(image *m, const char *name, uint32_t element, uint64_t count)
{
    put_key(m, name, GGUF_ARRAY);
    put_number(m, element, 4);
    put_number(m, count, 8);
}

static const char *file_path(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/test_tokenizer_%ld.gguf", (long)getpid());
    return path;
}

/* The file of m's values; NULL with a sentence when it is refused. */
static gguf *open_image(const image *m, fak_error *e)
{
    static image head;
    gguf *g = NULL;
    head.bytes = 0;
    put(&head, "GGUF", 4);
    put_number(&head, 3, 4);
    put_number(&head, 0, 8); /* tensors */
    put_number(&head, m->values, 8);
    FILE *f = fopen(file_path(), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(head.byte, 1, head.bytes, f), head.bytes);
    assert_int_equal(fwrite(m->byte, 1, m->bytes, f), m->bytes);
    assert_int_equal(fclose(f), 0);
    int32_t rc = gguf_open(&g, file_path(), e);
    unlink(file_path());
    return rc == FAK_OK ? g : NULL;
}

/* ---- a small vocabulary ---------------------------------------------------------------------- */

/* Ids: the byte tokens, ordinary ones, types 3 (START to END) and 4 (USER_*), two of type 1. */
enum { HE = 256, LL, LLO, SPACE_T, SPACES_2, AA, BYTES_F0_9F, DOT_2, DOT_3 };
enum { START = DOT_3 + 1, START_LONG, END, USER_B, USER_A, ODD, NORMAL_END, SIZE };

static const char *const texts[] = {
    [HE - 256] = "he",
    [LL - 256] = "ll",
    [LLO - 256] = "llo",
    [SPACE_T - 256] = "\xc4\xa0t",
    [SPACES_2 - 256] = "\xc4\xa0\xc4\xa0",
    [AA - 256] = "aa",
    [BYTES_F0_9F - 256] = "\xc3\xb0\xc5\x81",
    [DOT_2 - 256] = "..",
    [DOT_3 - 256] = "...",
    [START - 256] = "<s>",
    [START_LONG - 256] = "<s><long>",
    [END - 256] = "<|end|>",
    [USER_B - 256] = "\xc4\xa0<",
    [USER_A - 256] = "a\xc4\xa0",
    [ODD - 256] = "\xe6\x97\xa5",
    [NORMAL_END - 256] = "</s>",
};

static const char *const merges[] = {
    "h e",  "l l", "ll o", "\xc4\xa0 t", "\xc4\xa0 \xc4\xa0", "a a", ". .", "\xc3\xb0 \xc5\x81",
    ".. .", "a a"};

/* What a file has, so that each fault is one change; counts of 0 leave a key out. */
typedef struct parts {
    const char *model, *pre, *extra_token, *extra_merge;
    uint32_t tokens, types, first_type, types_element, merges_element;
    int64_t bos, eos, eot, add_bos;
    int drop_byte, odd_byte; /* a byte without a token; with a token of another text */
} parts;

static const parts good = {.model = "gpt2",
                           .pre = "smollm",
                           .tokens = SIZE,
                           .types = SIZE,
                           .first_type = 1,
                           .types_element = GGUF_I32,
                           .merges_element = GGUF_STRING,
                           .bos = START,
                           .eos = END,
                           .eot = -1,
                           .add_bos = -1,
                           .drop_byte = -1,
                           .odd_byte = -1};

static void put_byte_token(image *m, unsigned b)
{
    unsigned c = b, n = 0;
    for (unsigned i = 0; i <= b; i++) {
        int printable = (i > 0x20 && i < 0x7f) || (i > 0xa0 && i != 0xad);
        c = printable ? i : 0x100 + n++;
    }
    char text[3] = {(char)c, 0, 0};
    if (c >= 0x80) {
        text[0] = (char)(0xc0 | c >> 6);
        text[1] = (char)(0x80 | (c & 0x3f));
    }
    put_string(m, text);
}

static void put_tokens(image *m, const parts *p)
{
    put_array(m, "tokens", GGUF_STRING, p->tokens + (p->extra_token ? 1u : 0u));
    for (unsigned i = 0; i < p->tokens; i++) {
        if ((int)i == p->drop_byte)
            put_string(m, "<unused>");
        else if ((int)i == p->odd_byte)
            put_string(m, " ");
        else if (i < 256)
            put_byte_token(m, i);
        else
            put_string(m, texts[i - 256]);
    }
    if (p->extra_token) put_string(m, p->extra_token);
    if (p->types == 0) return;
    put_array(m, "token_type", p->types_element, p->types);
    for (uint32_t i = 0; i < p->types; i++) {
        uint32_t type = i == 0 ? p->first_type : i < START || i >= ODD ? 1 : i < USER_B ? 3 : 4;
        put_number(m, type, p->types_element == GGUF_I32 || p->types_element == GGUF_F32 ? 4 : 8);
    }
}

static void put_merges(image *m, const parts *p)
{
    size_t count = p->tokens < SIZE ? 0 : sizeof merges / sizeof *merges;
    if (p->merges_element != GGUF_STRING) {
        put_array(m, "merges", p->merges_element, 1);
        put_number(m, 0, 4);
        return;
    }
    put_array(m, "merges", GGUF_STRING, count + (p->extra_merge ? 1u : 0u));
    for (size_t i = 0; i < count; i++) put_string(m, merges[i]);
    if (p->extra_merge) put_string(m, p->extra_merge);
}

static void put_id(image *m, const char *name, int64_t id)
{
    if (id < 0) return;
    put_key(m, name, GGUF_U32);
    put_number(m, (uint64_t)id, 4);
}

static const image *make_image(const parts *p)
{
    static image m;
    m.bytes = m.values = 0;
    if (p->model) {
        put_key(&m, "model", GGUF_STRING);
        put_string(&m, p->model);
    }
    if (p->pre) {
        put_key(&m, "pre", GGUF_STRING);
        put_string(&m, p->pre);
    }
    put_id(&m, "bos_token_id", p->bos);
    put_id(&m, "eos_token_id", p->eos);
    put_id(&m, "eot_token_id", p->eot);
    if (p->add_bos >= 0) {
        put_key(&m, "add_bos_token", GGUF_BOOL);
        put_number(&m, (uint64_t)p->add_bos, 1);
    }
    if (p->tokens > 0 || p->types > 0) put_tokens(&m, p);
    if (p->merges_element != GGUF_ARRAY) put_merges(&m, p);
    return &m;
}

static int32_t open_parts(const parts *p, tokenizer **t, fak_error *e)
{
    gguf *g = open_image(make_image(p), e);
    if (!g) fail_msg("%s", e->message);
    int32_t rc = tokenizer_open(t, g, e);
    gguf_close(g);
    return rc;
}

static tokenizer *open_good(const char *pre)
{
    parts p = good;
    tokenizer *t;
    fak_error e;
    p.pre = pre;
    if (open_parts(&p, &t, &e) != FAK_OK) fail_msg("%s", e.message);
    return t;
}

/* ---- encoding -------------------------------------------------------------------------------- */

#define IDS(...) (const uint32_t[]){__VA_ARGS__}, sizeof(uint32_t[]){__VA_ARGS__} / 4

static void assert_encodes(const tokenizer *t, const char *text, size_t bytes, const uint32_t *id,
                           size_t count)
{
    fak_error e;
    token_ids ids = {0};
    assert_int_equal(tokenizer_encode(t, text, bytes, &ids, &e), FAK_OK);
    if (ids.count != count || (count > 0 && memcmp(ids.id, id, count * sizeof *id) != 0)) {
        for (size_t i = 0; i < ids.count; i++) print_error("%u ", (unsigned)ids.id[i]);
        fail_msg("are the ids of \"%.*s\"", (int)bytes, text);
    }
    token_ids_free(&ids);
}

static void assert_round_trip(const tokenizer *t, const char *text, size_t bytes)
{
    fak_error e;
    token_ids ids = {0};
    size_t at = 0;
    assert_int_equal(tokenizer_encode(t, text, bytes, &ids, &e), FAK_OK);
    for (size_t i = 0; i < ids.count; i++) {
        size_t count;
        const char *token = tokenizer_token(t, ids.id[i], &count);
        assert_non_null(token);
        assert_true(count <= bytes - at);
        assert_memory_equal(token, text + at, count);
        at += count;
    }
    assert_int_equal(at, bytes);
    token_ids_free(&ids);
}

#define TEXT(s) s, sizeof s - 1

static void merges_by_rank_then_from_the_left(void **state)
{
    (void)state;
    tokenizer *t = open_good("smollm");
    assert_encodes(t, "", 0, NULL, 0);
    assert_encodes(t, TEXT("hello"), IDS(HE, LLO));
    assert_encodes(t, TEXT("lllo"), IDS(LL, 'l', 'o'));
    assert_encodes(t, TEXT("aaaaa"), IDS(AA, AA, 'a'));
    assert_encodes(t, TEXT("....."), IDS(DOT_2, DOT_3));
    assert_encodes(t, TEXT("\xf0\x9f\x98\x80"), IDS(BYTES_F0_9F, 0x98, 0x80));
    tokenizer_close(t);
}

static void cuts_as_the_pretokeniser_says(void **state)
{
    (void)state;
    tokenizer *t = open_good("smollm"), *u = open_good("gpt-2");
    /* the last space before a letter goes with the letter, before a digit only with gpt-2 */
    assert_encodes(t, TEXT("   t"), IDS(SPACES_2, SPACE_T));
    assert_encodes(t, TEXT("    1"), IDS(SPACES_2, SPACES_2, '1'));
    assert_encodes(u, TEXT("    1"), IDS(SPACES_2, ' ', ' ', '1'));
    /* a piece ends at a digit, a letter, an apostrophe's ending, a space of any script */
    assert_encodes(t, TEXT("..1."), IDS(DOT_2, '1', '.'));
    assert_encodes(t, TEXT("l'll"), IDS('l', '\'', LL));
    assert_encodes(t, TEXT("a\xe3\x80\x80z"), IDS('a', 0xe3, 0x80, 0x80, 'z'));
    assert_encodes(t, TEXT("a\xc2\x85z"), IDS('a', 0xc2, 0x85, 'z'));
    tokenizer_close(t);
    tokenizer_close(u);
}

static void takes_the_longest_special_first(void **state)
{
    (void)state;
    tokenizer *t = open_good("smollm");
    assert_encodes(t, TEXT("<s>he<s>"), IDS(START, HE, START));
    assert_encodes(t, TEXT("<s><long>"), IDS(START_LONG));
    assert_encodes(t, TEXT("<s><lon"), IDS(START, '<', 'l', 'o', 'n'));
    assert_encodes(t, TEXT("<s><s><long><s>"), IDS(START, START_LONG, START));
    assert_encodes(t, TEXT("<<s>>"), IDS('<', START, '>'));
    assert_encodes(t, TEXT("\xc4\xa0<s>"), IDS(USER_B, 's', '>'));
    assert_encodes(t, TEXT("a\xc4\xa0<s>"), IDS(USER_A, START));
    /* the text of type 4 is literal: not "a " in the alphabet; and "</s>" of type 1 is no mark */
    assert_encodes(t, TEXT("a\xc4\xa0"), IDS(USER_A));
    assert_encodes(t, TEXT("a </s>"), IDS('a', ' ', '<', '/', 's', '>'));
    /* a special token cuts the text in two */
    assert_encodes(t, TEXT("  <s>he"), IDS(SPACES_2, START, HE));
    /* a text outside the alphabet, of an ordinary type: known, but never made */
    assert_encodes(t, TEXT("\xe6\x97\xa5"), IDS(0xe6, 0x97, 0xa5));
    assert_int_equal(tokenizer_find(t, TEXT("\xe6\x97\xa5")), ODD);
    tokenizer_close(t);
}

static void answers_questions(void **state)
{
    (void)state;
    size_t bytes;
    tokenizer *t = open_good("gpt2");
    assert_int_equal(tokenizer_size(t), SIZE);
    assert_int_equal(tokenizer_bos(t), START);
    assert_int_equal(tokenizer_eos(t), END);
    assert_false(tokenizer_adds_bos(t));
    for (uint32_t id = 0; id < SIZE + 2; id++) {
        assert_int_equal(tokenizer_is_special(t, id), id >= START && id <= END);
        assert_int_equal(tokenizer_is_end(t, id), id == END);
    }
    assert_false(tokenizer_is_end(t, FAK_NO_INDEX));
    assert_null(tokenizer_token(t, SIZE, &bytes));
    assert_int_equal(bytes, 0);
    assert_null(tokenizer_token(t, FAK_NO_INDEX, &bytes));
    assert_memory_equal(tokenizer_token(t, SPACE_T, &bytes), " t", 2);
    assert_int_equal(bytes, 2);
    assert_int_equal(tokenizer_find(t, TEXT(" t")), SPACE_T);
    assert_int_equal(tokenizer_find(t, TEXT("<s>")), START);
    assert_int_equal(tokenizer_find(t, TEXT("<s><s>")), FAK_NO_INDEX);
    assert_int_equal(tokenizer_find(t, TEXT("")), FAK_NO_INDEX);
    for (unsigned b = 0; b < 256; b++) {
        char c = (char)b;
        assert_true(tokenizer_has_byte(t, (unsigned char)b));
        assert_int_equal(tokenizer_find(t, &c, 1), b);
    }
    tokenizer_close(t);
    tokenizer_close(NULL);
}

static void takes_the_ids_of_the_file(void **state)
{
    (void)state;
    fak_error e;
    tokenizer *t;
    parts p = good;
    p.eot = LLO;
    p.add_bos = 1;
    p.types = 0; /* all are normal then */
    p.pre = NULL;
    assert_int_equal(open_parts(&p, &t, &e), FAK_OK);
    assert_true(tokenizer_adds_bos(t));
    assert_true(tokenizer_is_end(t, LLO) && tokenizer_is_end(t, END));
    assert_false(tokenizer_is_special(t, START));
    assert_encodes(t, TEXT("<s>he"), IDS('<', 's', '>', HE));
    tokenizer_close(t);
    p.bos = p.eos = p.eot = p.add_bos = -1;
    assert_int_equal(open_parts(&p, &t, &e), FAK_OK);
    assert_int_equal(tokenizer_bos(t), FAK_NO_INDEX);
    assert_int_equal(tokenizer_eos(t), FAK_NO_INDEX);
    tokenizer_close(t);
}

/* A byte without a token goes, and what stood beside it may merge. */
static void leaves_out_bytes_without_a_token(void **state)
{
    (void)state;
    fak_error e;
    tokenizer *t;
    parts p = good;
    p.drop_byte = 0xff;
    assert_int_equal(open_parts(&p, &t, &e), FAK_OK);
    assert_false(tokenizer_has_byte(t, 0xff));
    assert_encodes(t, TEXT("\xff"), NULL, 0);
    assert_encodes(t, TEXT("he\xffhe"), IDS(HE, HE));
    tokenizer_close(t);
}

static void appends_to_ids(void **state)
{
    (void)state;
    fak_error e;
    token_ids ids = {0};
    tokenizer *t = open_good("smollm");
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(tokenizer_encode(t, "hello", 5, &ids, &e), FAK_OK);
        assert_int_equal(ids.count, 2 * (i + 1));
        assert_true(ids.id[2 * i] == HE && ids.id[2 * i + 1] == LLO && ids.id[0] == HE);
    }
    token_ids_free(&ids);
    token_ids_free(&ids);
    tokenizer_close(t);
}

/* ---- what is not UTF-8 ----------------------------------------------------------------------- */

static const char *const valid[] = {
    "\xf0\x9f\x98\x80", "a",  " ", "7", "hello  t", "\xc3\xa9", "\xe6\x97\xa5", "\xf4\x8f\xbf\xbf",
    "\xed\x9f\xbf",     "<s>"};
static const char *const invalid[] = {
    "\x80",         "\xc0\xaf", "\xc2",         "\xe0\x80\xaf",     "\xe6\x97", "\xed\xa0\x80",
    "\xf0\x80\x80", "\xf0\x9f", "\xf0\x9f\x98", "\xf4\x90\x80\x80", "\xf5",     "\xff\xfe"};

static void encodes_any_bytes(void **state)
{
    (void)state;
    static const char *const pre[] = {"smollm", "gpt-2"};
    size_t n = sizeof valid / sizeof *valid, bad = sizeof invalid / sizeof *invalid;
    for (size_t p = 0; p < 2; p++) {
        tokenizer *t = open_good(pre[p]);
        for (size_t i = 0; i < n * bad * n; i++) {
            char text[64];
            const char *a = valid[i / bad / n], *b = invalid[i / n % bad], *c = valid[i % n];
            int bytes = snprintf(text, sizeof text, "%s%s%s%s", a, b, c, b);
            for (size_t from = 0; from < (size_t)bytes; from++)
                for (size_t to = from; to <= (size_t)bytes; to++)
                    assert_round_trip(t, text + from, to - from);
        }
        assert_encodes(t, TEXT("\xf0\x9fz"), IDS(BYTES_F0_9F, 'z'));
        assert_encodes(t, TEXT("  \xff"), IDS(SPACES_2, 0xff));
        assert_encodes(t, TEXT("a\0a"), IDS('a', 0, 'a'));
        tokenizer_close(t);
    }
}

static void set_seed(void)
{
    const char *set = getenv("FAK_TEST_SEED");
    unsigned seed = set ? (unsigned)strtoul(set, NULL, 10) : (unsigned)time(NULL);
    print_message("FAK_TEST_SEED=%u\n", seed);
    srand(seed);
}

static void round_trips_random_bytes(void **state)
{
    (void)state;
    set_seed();
    tokenizer *t = open_good("smollm");
    for (int i = 0; i < 3000; i++) {
        char text[400];
        size_t bytes = 0, end = (size_t)rand() % 300;
        while (bytes < end) {
            const char *from = NULL;
            int kind = rand() % 4;
            if (kind == 0) from = valid[(size_t)rand() % (sizeof valid / sizeof *valid)];
            if (kind == 1) from = invalid[(size_t)rand() % (sizeof invalid / sizeof *invalid)];
            if (from) {
                memcpy(text + bytes, from, strlen(from));
                bytes += strlen(from);
            } else {
                text[bytes++] = (char)(kind == 2 ? rand() : "ahel. <s>\n"[rand() % 10]);
            }
        }
        assert_round_trip(t, text, bytes);
    }
    tokenizer_close(t);
}

/* A megabyte of each: far beyond any stack, and minutes if the time were quadratic. */
static void encodes_long_runs(void **state)
{
    (void)state;
    static const char *const runs[] = {"a",    " ",   "7",       "\xe6\x97\xa5",
                                       "\xff", "<s>", "<s><lon", "he"};
    size_t bytes = 1 << 20;
    char *text = malloc(bytes);
    tokenizer *t = open_good("smollm");
    assert_non_null(text);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        size_t length = strlen(runs[i]);
        for (size_t j = 0; j < bytes; j++) text[j] = runs[i][j % length];
        assert_round_trip(t, text, bytes / length * length);
    }
    tokenizer_close(t);
    free(text);
}

/* ---- broken files ---------------------------------------------------------------------------- */

static void expect_fault(const parts *p, const char *part)
{
    fak_error e = {0};
    tokenizer *t = (tokenizer *)&e;
    int32_t rc = open_parts(p, &t, &e);
    if (rc != STATUS_BAD_FILE || t || !strstr(e.message, part))
        fail_msg("%d \"%s\", not \"%s\"", (int)rc, e.message, part);
}

static void refuses_broken_files(void **state)
{
    (void)state;
    parts p;
#define FAULT(change, part) (p = good, change, expect_fault(&p, part))
    FAULT(p.model = "llama", "tokenizer model \"llama\" is not supported; gpt2");
    FAULT(p.model = "\x01\xff", "tokenizer model \"?\xef\xbf\xbd\" is not supported");
    FAULT(p.model = NULL, "there is no tokenizer.ggml.model");
    FAULT(p.pre = "qwen2", "pre-tokeniser \"qwen2\" is not supported; smollm and gpt-2 are");
    FAULT(p.pre = "", "pre-tokeniser \"\"");
    FAULT((p.tokens = 0, p.types = 0), "there is no tokenizer.ggml.tokens");
    FAULT((p.tokens = 0, p.types = 1), "tokenizer.ggml.tokens has 0 elements");
    FAULT((p.tokens = 1, p.types = 1), "none of the 1 tokens is byte 0x0a");
    FAULT(p.drop_byte = 'A', "tokens is byte 0x41");
    FAULT(p.odd_byte = ' ', "tokens is byte 0x20");
    FAULT(p.types = SIZE - 1, "token_type has 271 elements, tokenizer.ggml.tokens has 272");
    FAULT(p.extra_token = "x", "token_type has 272 elements, tokenizer.ggml.tokens has 273");
    FAULT(p.types_element = GGUF_F32, "tokenizer.ggml.token_type");
    FAULT(p.types_element = GGUF_U64, "tokenizer.ggml.token_type");
    FAULT(p.merges_element = GGUF_U32, "tokenizer.ggml.merges");
    FAULT(p.merges_element = GGUF_ARRAY, "there is no tokenizer.ggml.merges");
    FAULT(p.extra_merge = "x", "merge 10 \"x\" is not two tokens");
    FAULT(p.extra_merge = "", "merge 10 \"\" is not two tokens");
    FAULT(p.extra_merge = " x", "is not two tokens");
    FAULT(p.extra_merge = "x ", "is not two tokens");
    FAULT(p.extra_merge = "xy l", "merge 10 \"xy l\" has a left part that is no token");
    FAULT(p.extra_merge = "l xy", "merge 10 \"l xy\" has a right part that is no token");
    FAULT(p.extra_merge = "l a", "merge 10 \"l a\" has a result that is no token");
    FAULT(p.extra_merge = "\xe6\x97\xa5 a", "a\" has a left part that is no token");
    FAULT(p.extra_merge = "l l l", "has a right part that is no token");
    FAULT(p.bos = SIZE, "bos_token_id is 272, but there are 272 tokens");
    FAULT(p.eos = 0xffffffff, "eos_token_id is 4294967295, but there are 272 tokens");
    FAULT(p.eot = 9999, "eot_token_id is 9999");
    FAULT((p.bos = -1, p.add_bos = 1), "there is no tokenizer.ggml.bos_token_id");
#undef FAULT
    /* these are fine: texts that occur twice, types that are known and mean nothing here */
    fak_error e;
    tokenizer *t;
    p = good;
    p.extra_token = "he";
    p.types = SIZE + 1;
    p.first_type = 5;
    assert_int_equal(open_parts(&p, &t, &e), FAK_OK);
    assert_encodes(t, TEXT("he"), IDS(HE));
    tokenizer_close(t);
}

/* Any damage is refused, or leaves something that works: ids in range for any text. */
static void survives_random_damage(void **state)
{
    (void)state;
    static image m;
    int opened = 0, refused = 0;
    set_seed();
    for (int i = 0; i < 4000; i++) {
        fak_error e = {0};
        tokenizer *t = NULL;
        m = *make_image(&good);
        for (int n = rand() % 3; n >= 0; n--)
            m.byte[(size_t)rand() % m.bytes] = (unsigned char)(rand() % 2 ? rand() : rand() % 10);
        gguf *g = open_image(&m, &e);
        if (!g || tokenizer_open(&t, g, &e) != FAK_OK) {
            assert_string_not_equal(e.message, "");
            refused++;
        }
        gguf_close(g);
        if (!t) continue;
        token_ids ids = {0};
        assert_int_equal(tokenizer_encode(t, TEXT("hello  <s>... \xff<|end|>"), &ids, &e), FAK_OK);
        for (size_t j = 0; j < ids.count; j++) assert_true(ids.id[j] < tokenizer_size(t));
        token_ids_free(&ids);
        tokenizer_close(t);
        opened++;
    }
    assert_true(opened > 0 && refused > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_by_rank_then_from_the_left),
        cmocka_unit_test(cuts_as_the_pretokeniser_says),
        cmocka_unit_test(takes_the_longest_special_first),
        cmocka_unit_test(answers_questions),
        cmocka_unit_test(takes_the_ids_of_the_file),
        cmocka_unit_test(leaves_out_bytes_without_a_token),
        cmocka_unit_test(appends_to_ids),
        cmocka_unit_test(encodes_any_bytes),
        cmocka_unit_test(round_trips_random_bytes),
        cmocka_unit_test(encodes_long_runs),
        cmocka_unit_test(refuses_broken_files),
        cmocka_unit_test(survives_random_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
