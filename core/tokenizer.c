/* tokenizer - see tokenizer.h: vocabulary, merges and special tokens together, and encoding.
 *
 *   text > special tokens, and what lies between (match)
 *        > UTF-8, and what is none (text)
 *        > pieces (PCRE2)
 *        > bytes' tokens, merged (bpe) */
#include "tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bpe.h"
#include "match.h"
#include "text.h"
#include "vocab.h"

/* Of all special tokens together: a state of 20 bytes for each, and real ones have some kilobytes. */
enum { SPECIAL_BYTES_MAX = 1 << 18 };

struct tokenizer {
    vocab vocab;
    bpe bpe;
    match_set special; /* values are ids */
    pcre2_code *piece; /* anchored; matches at least one code point wherever it is tried */
    uint32_t bos, eos;
    int adds_bos;
};

/* ---- reading the file ------------------------------------------------------------------------ */

/* Unicode's White_Space, spelt out: \s is another set here and there. */
#define SPACES                                                                                     \
    "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}"                \
    "\\x{205F}\\x{3000}"
#define WORDS "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+"
#define OTHERS "| ?[^" SPACES "\\p{L}\\p{N}]+"

/* smollm cuts at each digit first and lets GPT-2's pattern loose on what is between: there a digit
 * is the end of the text, so the look-ahead does not see it as something that follows. */
static const struct {
    const char *name, *pattern;
} pieces[] = {
    {"smollm", "\\p{N}|" WORDS OTHERS "|[" SPACES "]+(?![^" SPACES "\\p{N}])|[" SPACES "]+"},
    {"gpt-2", WORDS "| ?\\p{N}+" OTHERS "|[" SPACES "]+(?![^" SPACES "])|[" SPACES "]+"},
    {"gpt2", NULL},    /* as the one before */
    {"default", NULL}, /* as the one before */
};

static int32_t compile_pieces(tokenizer *t, const gguf *g, fak_error *e)
{
    char shown[TEXT_SHOW_ROOM];
    gguf_string name = {.data = "default", .bytes = 7};
    const char *pattern = NULL;
    int32_t rc = gguf_get_string(g, "tokenizer.ggml.pre", &name, e);
    if (rc < 0) return rc;
    size_t i = 0, count = sizeof pieces / sizeof *pieces;
    for (; i < count; i++) {
        if (pieces[i].pattern) pattern = pieces[i].pattern;
        if (gguf_string_is(name, pieces[i].name)) break;
    }
    if (i == count)
        return gguf_fault(g, e, "pre-tokeniser \"%s\" is not supported; smollm and gpt-2 are",
                          text_show(shown, name.data, name.bytes));
    int code;
    PCRE2_SIZE offset;
    t->piece = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_ANCHORED,
                             &code, &offset, NULL);
    if (!t->piece) {
        char why[96] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return status_set(e, FAK_E_UNSUPPORTED, "PCRE2 refuses pre-tokeniser \"%s\": %s",
                          pieces[i].name, why);
    }
    pcre2_jit_compile(t->piece, PCRE2_JIT_COMPLETE); /* without it all works, more slowly */
    return FAK_OK;
}

static int32_t check_model(const gguf *g, fak_error *e)
{
    char shown[TEXT_SHOW_ROOM];
    gguf_string model;
    int32_t rc = gguf_get_string(g, "tokenizer.ggml.model", &model, e);
    if (rc < 0) return rc;
    if (rc == 1) return gguf_fault(g, e, "there is no tokenizer.ggml.model");
    if (gguf_string_is(model, "gpt2")) return FAK_OK;
    return gguf_fault(g, e, "tokenizer model \"%s\" is not supported; gpt2 (byte-level BPE) is",
                      text_show(shown, model.data, model.bytes));
}

/* The token that a part of a merge names; part is in GPT-2's alphabet. */
static uint32_t merge_part(const vocab *v, gguf_string part, char *scratch)
{
    size_t count = vocab_unmap(part, scratch);
    if (count == SIZE_MAX) return FAK_NO_INDEX;
    uint32_t id = vocab_find(v, scratch, count);
    return id != FAK_NO_INDEX && (v->flags[id] & VOCAB_LITERAL) ? FAK_NO_INDEX : id;
}

/* "left right": adds it; scratch holds as many bytes as line.  0, or what it lacks. */
static const char *add_merge(tokenizer *t, gguf_string line, char *scratch, char *joined)
{
    const char *space = line.bytes > 0 ? memchr(line.data, ' ', (size_t)line.bytes) : NULL;
    if (!space || space == line.data || space + 1 == line.data + line.bytes)
        return "is not two tokens and a space between them";
    gguf_string left = {.data = line.data, .bytes = (uint64_t)(space - line.data)};
    gguf_string right = {.data = space + 1, .bytes = line.bytes - left.bytes - 1};
    uint32_t left_id = merge_part(&t->vocab, left, scratch);
    if (left_id == FAK_NO_INDEX) return "has a left part that is no token";
    uint32_t right_id = merge_part(&t->vocab, right, scratch);
    if (right_id == FAK_NO_INDEX) return "has a right part that is no token";
    memcpy(joined, left.data, (size_t)left.bytes);
    memcpy(joined + left.bytes, right.data, (size_t)right.bytes);
    gguf_string both = {.data = joined, .bytes = line.bytes - 1};
    uint32_t result = merge_part(&t->vocab, both, scratch);
    if (result == FAK_NO_INDEX) return "has a result that is no token";
    bpe_add(&t->bpe, left_id, right_id, result);
    return NULL;
}

static int32_t read_merges(tokenizer *t, const gguf *g, fak_error *e)
{
    char shown[TEXT_SHOW_ROOM];
    const gguf_value *merges;
    int32_t rc = gguf_get_array(g, "tokenizer.ggml.merges", GGUF_STRING, &merges, e);
    if (rc < 0) return rc;
    if (rc == 1) return gguf_fault(g, e, "there is no tokenizer.ggml.merges");
    if (merges->count > INT32_MAX)
        return gguf_fault(g, e, "tokenizer.ggml.merges has %" PRIu64 " elements, at most %d fit",
                          merges->count, INT32_MAX);
    uint64_t longest = 0;
    const uint8_t *at = merges->data;
    for (uint64_t i = 0; i < merges->count; i++) {
        uint64_t bytes = gguf_next_string(merges, &at).bytes;
        if (bytes > longest) longest = bytes;
    }
    char *scratch = malloc(2 * (size_t)longest + 1);
    if (!scratch || bpe_create(&t->bpe, (size_t)merges->count) != 0) {
        free(scratch);
        return status_memory(e, "the merges", 2 * longest + 32 * merges->count);
    }
    at = merges->data;
    for (uint64_t i = 0; i < merges->count && rc == FAK_OK; i++) {
        gguf_string line = gguf_next_string(merges, &at);
        const char *fault = add_merge(t, line, scratch, scratch + longest);
        if (fault)
            rc = gguf_fault(g, e, "merge %" PRIu64 " \"%s\" %s", i,
                            text_show(shown, line.data, line.bytes), fault);
    }
    free(scratch);
    return rc;
}

static int32_t link_special(tokenizer *t, const gguf *g, fak_error *e)
{
    const vocab *v = &t->vocab;
    size_t bytes = 0;
    int bad = 0;
    for (uint32_t id = 0; id < v->size; id++)
        if (v->flags[id] & VOCAB_SPECIAL) bytes += v->start[id + 1] - v->start[id];
    if (bytes > SPECIAL_BYTES_MAX)
        return gguf_fault(g, e,
                          "tokenizer.ggml.tokens has special tokens of %zu bytes in all; "
                          "at most %d are supported",
                          bytes, SPECIAL_BYTES_MAX);
    if (bytes) bad = match_reserve(&t->special, bytes);
    for (uint32_t id = 0; id < v->size && !bad; id++)
        if (v->flags[id] & VOCAB_SPECIAL)
            bad =
                match_add(&t->special, v->text + v->start[id], v->start[id + 1] - v->start[id], id);
    if (bad || match_link(&t->special) != 0)
        return status_memory(e, "the special tokens", t->special.states * sizeof(match_state));
    return FAK_OK;
}

static int32_t read_id(const tokenizer *t, const gguf *g, const char *key, uint32_t *id,
                       fak_error *e)
{
    *id = FAK_NO_INDEX;
    int32_t rc = gguf_get_u32(g, key, id, e);
    if (rc < 0) return rc;
    if (rc == FAK_OK && *id >= t->vocab.size)
        return gguf_fault(g, e, "%s is %" PRIu32 ", but there are %" PRIu32 " tokens", key, *id,
                          t->vocab.size);
    return FAK_OK;
}

static int32_t read_ids(tokenizer *t, const gguf *g, fak_error *e)
{
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int32_t rc = read_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos, e);
    for (size_t i = 0; i < sizeof ends / sizeof *ends && rc == FAK_OK; i++) {
        uint32_t id;
        rc = read_id(t, g, ends[i], &id, e);
        if (i == 0) t->eos = id;
        if (rc == FAK_OK && id != FAK_NO_INDEX) t->vocab.flags[id] |= VOCAB_END;
    }
    if (rc == FAK_OK) rc = gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->adds_bos, e);
    if (rc < 0) return rc;
    if (t->adds_bos && t->bos == FAK_NO_INDEX)
        return gguf_fault(g, e,
                          "tokenizer.ggml.add_bos_token is set, but there "
                          "is no tokenizer.ggml.bos_token_id");
    return FAK_OK;
}

int32_t tokenizer_open(tokenizer **out, const gguf *g, fak_error *e)
{
    tokenizer *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return status_memory(e, "the tokenizer", sizeof *t);
    int32_t rc = check_model(g, e);
    if (rc == FAK_OK) rc = compile_pieces(t, g, e);
    if (rc == FAK_OK) rc = vocab_open(&t->vocab, g, e);
    if (rc == FAK_OK) rc = read_merges(t, g, e);
    if (rc == FAK_OK) rc = link_special(t, g, e);
    if (rc == FAK_OK) rc = read_ids(t, g, e);
    if (rc != FAK_OK) {
        tokenizer_close(t);
        return rc;
    }
    *out = t;
    return FAK_OK;
}

void tokenizer_close(tokenizer *t)
{
    if (!t) return;
    pcre2_code_free(t->piece);
    match_destroy(&t->special);
    bpe_destroy(&t->bpe);
    vocab_close(&t->vocab);
    free(t);
}

/* ---- questions ------------------------------------------------------------------------------- */

uint32_t tokenizer_size(const tokenizer *t)
{
    return t->vocab.size;
}

uint32_t tokenizer_bos(const tokenizer *t)
{
    return t->bos;
}

uint32_t tokenizer_eos(const tokenizer *t)
{
    return t->eos;
}

int tokenizer_adds_bos(const tokenizer *t)
{
    return t->adds_bos;
}

int tokenizer_is_end(const tokenizer *t, uint32_t id)
{
    return id < t->vocab.size && (t->vocab.flags[id] & VOCAB_END) != 0;
}

int tokenizer_is_special(const tokenizer *t, uint32_t id)
{
    return id < t->vocab.size && (t->vocab.flags[id] & VOCAB_CONTROL) != 0;
}

int tokenizer_has_byte(const tokenizer *t, unsigned char byte)
{
    return t->vocab.byte[byte] != FAK_NO_INDEX;
}

const char *tokenizer_token(const tokenizer *t, uint32_t id, size_t *bytes)
{
    *bytes = 0;
    if (id >= t->vocab.size) return NULL;
    *bytes = t->vocab.start[id + 1] - t->vocab.start[id];
    return t->vocab.text + t->vocab.start[id];
}

uint32_t tokenizer_find(const tokenizer *t, const char *text, size_t bytes)
{
    if (bytes == 0) return FAK_NO_INDEX;
    if (t->special.states > 0) { /* the longest one that begins at 0 is all of the text, or none */
        uint32_t state = 0;
        for (size_t i = bytes; i-- > 0;) state = match_step(&t->special, state, text[i]);
        uint32_t id = t->special.state[state].longest;
        if (id != MATCH_NONE && t->vocab.start[id + 1] - t->vocab.start[id] == bytes) return id;
    }
    return vocab_find(&t->vocab, text, bytes);
}

/* ---- ids ------------------------------------------------------------------------------------- */

void token_ids_free(token_ids *ids)
{
    free(ids->id);
    *ids = (token_ids){0};
}

int token_ids_add(token_ids *ids, const uint32_t *id, size_t count)
{
    if (count == 0) return 0;
    if (count > ids->room - ids->count) {
        size_t room = 2 * ids->room > ids->count + count ? 2 * ids->room : ids->count + count + 64;
        if (room > SIZE_MAX / 2 / sizeof *id) return -1;
        uint32_t *grown = realloc(ids->id, room * sizeof *grown);
        if (!grown) return -1;
        ids->id = grown;
        ids->room = room;
    }
    memcpy(ids->id + ids->count, id, count * sizeof *id);
    ids->count += count;
    return 0;
}

/* ---- encoding -------------------------------------------------------------------------------- */

typedef struct found { /* a special token in the text */
    size_t at;
    uint32_t id;
} found;

typedef struct encoding {
    const tokenizer *t;
    token_ids *ids;
    bpe_work work;
    pcre2_match_data *match;
    found *found; /* from the end of the text to its beginning */
    size_t found_count, found_room;
} encoding;

static int encode_piece(encoding *c, const char *text, size_t bytes)
{
    size_t count = 0;
    if (bpe_reserve(&c->work, bytes) != 0) return -1;
    for (size_t i = 0; i < bytes; i++) {
        uint32_t id = c->t->vocab.byte[(unsigned char)text[i]];
        if (id != FAK_NO_INDEX) c->work.id[count++] = id;
    }
    return token_ids_add(c->ids, c->work.id, bpe_run(&c->t->bpe, &c->work, count));
}

/* Bytes of the first piece of valid UTF-8, text[bytes > 0]; 0 without memory. */
static size_t piece_bytes(const encoding *c, const char *text, size_t bytes)
{
    PCRE2_SPTR s = (PCRE2_SPTR)text;
    int rc = pcre2_match(c->t->piece, s, bytes, 0, PCRE2_NO_UTF_CHECK, c->match, NULL);
    if (rc < 0) /* the compiled form has a small stack of its own */
        rc = pcre2_match(c->t->piece, s, bytes, 0, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, c->match,
                         NULL);
    return rc < 0 ? 0 : pcre2_get_ovector_pointer(c->match)[1];
}

/* Without special tokens.  Runs of what is not UTF-8 are pieces of their own. */
static int encode_text(encoding *c, const char *text, size_t bytes)
{
    enum text_kind kind;
    for (size_t i = 0; i < bytes;) {
        size_t end = i + text_part(text + i, bytes - i, &kind), part = 0;
        int whole = kind == TEXT_WHOLE;
        for (; end < bytes; end += part) {
            part = text_part(text + end, bytes - end, &kind);
            if ((kind == TEXT_WHOLE) != whole) break;
        }
        for (; i < end; i += part) {
            part = whole ? piece_bytes(c, text + i, end - i) : end - i;
            if (part == 0 || encode_piece(c, text + i, part) != 0) return -1;
        }
    }
    return 0;
}

static int find_special(encoding *c, const char *text, size_t bytes)
{
    const match_set *m = &c->t->special;
    uint32_t state = 0;
    if (m->states == 0) return 0;
    for (size_t i = bytes; i-- > 0;) {
        state = match_step(m, state, text[i]);
        if (m->state[state].longest == MATCH_NONE) continue;
        if (c->found_count == c->found_room) {
            size_t room = c->found_room ? 2 * c->found_room : 64;
            if (room > SIZE_MAX / 2 / sizeof *c->found) return -1;
            found *grown = realloc(c->found, room * sizeof *grown);
            if (!grown) return -1;
            c->found = grown;
            c->found_room = room;
        }
        c->found[c->found_count++] = (found){i, m->state[state].longest};
    }
    return 0;
}

static int encode_all(encoding *c, const char *text, size_t bytes)
{
    size_t done = 0;
    if (find_special(c, text, bytes) != 0) return -1;
    for (size_t i = c->found_count; i-- > 0;) {
        const found *f = c->found + i;
        if (f->at < done) continue; /* begins within the one before */
        if (encode_text(c, text + done, f->at - done) != 0) return -1;
        if (token_ids_add(c->ids, &f->id, 1) != 0) return -1;
        done = f->at + c->t->vocab.start[f->id + 1] - c->t->vocab.start[f->id];
    }
    return encode_text(c, text + done, bytes - done);
}

int32_t tokenizer_encode(const tokenizer *t, const char *text, size_t bytes, token_ids *ids,
                         fak_error *e)
{
    size_t count = ids->count;
    if (bytes == 0) return FAK_OK;
    if (bytes >= UINT32_MAX)
        return status_set(e, FAK_E_ARGUMENT,
                          "a text of %zu bytes: at most %" PRIu32 " are encoded at once", bytes,
                          UINT32_MAX - 1);
    encoding c = {.t = t, .ids = ids};
    c.match = pcre2_match_data_create_from_pattern(t->piece, NULL);
    int bad = !c.match || encode_all(&c, text, bytes) != 0;
    pcre2_match_data_free(c.match);
    bpe_work_free(&c.work);
    free(c.found);
    if (!bad) return FAK_OK;
    ids->count = count;
    return status_memory(e, "the ids of a text", bytes);
}
