/* vocab - see vocab.h. */
#include "vocab.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

enum token_type { TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_USER = 4, TYPES = 7 }; /* the file's */

/* Special tokens that end a generation in some family of models: ends of turns and of texts, and
 * padding, repository and file marks of fill-in-the-middle models (llama.cpp ends on these too). */
static const char *const end_names[] = {
    "<|endoftext|>", "<|im_end|>",    "<|eot_id|>",    "<|eom_id|>",
    "<|end|>",       "<end_of_turn>", "</s>",          "<|return|>",
    "<|call|>",      "<EOT>",         "_<EOT>",        "<end_of_utterance>",
    "<|fim_pad|>",   "<fim-pad>",     "<fim_pad>",     "<|end_of_text|>",
    "<|fim_repo|>",  "<fim-repo>",    "<|repo_name|>", "<reponame>",
    "<|file_sep|>",
};

/* ---- GPT-2's alphabet ------------------------------------------------------------------------ */

/* The byte that a character of the alphabet stands for, or -1.  Printable characters of Latin-1
 * stand for themselves; the other 68 bytes, in order, are U+0100 and up. */
static int unmap_character(uint32_t c)
{
    if ((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff))
        return (int)c;
    if (c < 0x100 || c >= 0x100 + 68) return -1;
    c -= 0x100;
    if (c <= 0x20) return (int)c;
    c += 0x7f - 0x21;
    return c <= 0xa0 ? (int)c : 0xad;
}

size_t vocab_unmap(gguf_string s, char *out)
{
    size_t written = 0;
    for (uint64_t i = 0; i < s.bytes; i++) {
        uint32_t c = (unsigned char)s.data[i];
        if (c >= 0x80) { /* two bytes hold U+0080..U+07FF, all that can be in the alphabet */
            if (c < 0xc2 || c > 0xdf || ++i == s.bytes || (s.data[i] & 0xc0) != 0x80)
                return SIZE_MAX;
            c = (c & 0x1f) << 6 | ((unsigned char)s.data[i] & 0x3f);
        }
        int byte = unmap_character(c);
        if (byte < 0) return SIZE_MAX;
        out[written++] = (char)byte;
    }
    return written;
}

/* ---- from bytes to ids ----------------------------------------------------------------------- */

/* The slot of a token with these bytes, or the free one where it would be. */
static uint32_t *find_slot(const vocab *v, const char *bytes, size_t count)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a, its high half folded in */
    for (size_t i = 0; i < count; i++) h = (h ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    h ^= h >> 32;
    for (size_t i = (size_t)h & v->mask;; i = (i + 1) & v->mask) {
        uint32_t id = v->slot[i];
        if (id == FAK_NO_INDEX) return v->slot + i;
        if (v->start[id + 1] - v->start[id] == count &&
            memcmp(v->text + v->start[id], bytes, count) == 0)
            return v->slot + i;
    }
}

uint32_t vocab_find(const vocab *v, const char *bytes, size_t count)
{
    return *find_slot(v, bytes, count);
}

static int32_t fill_slots(vocab *v, fak_error *e)
{
    static const uint8_t pass[] = {0, VOCAB_SPECIAL, VOCAB_LITERAL}; /* earlier ones win */
    size_t slots = 1024;
    while (slots / 2 < v->size) slots *= 2;
    v->mask = slots - 1;
    v->slot = malloc(slots * sizeof *v->slot);
    if (!v->slot) return status_memory(e, "the vocabulary", slots * sizeof *v->slot);
    memset(v->slot, 0xff, slots * sizeof *v->slot);
    for (size_t p = 0; p < sizeof pass; p++)
        for (uint32_t id = 0; id < v->size; id++) {
            if ((v->flags[id] & (VOCAB_SPECIAL | VOCAB_LITERAL)) != pass[p]) continue;
            size_t count = v->start[id + 1] - v->start[id];
            uint32_t *slot = find_slot(v, v->text + v->start[id], count);
            if (*slot == FAK_NO_INDEX) *slot = id;
        }
    return FAK_OK;
}

static int32_t find_bytes(vocab *v, const gguf *g, fak_error *e)
{
    for (unsigned b = 0; b < 256; b++) {
        char c = (char)b;
        uint32_t id = vocab_find(v, &c, 1);
        if (id != FAK_NO_INDEX && (v->flags[id] & VOCAB_LITERAL)) id = FAK_NO_INDEX;
        v->byte[b] = id;
        if (id == FAK_NO_INDEX && ((b >= ' ' && b <= '~') || b == '\n'))
            return gguf_fault(g, e,
                              "none of the %" PRIu32 " tokens is byte 0x%02x, "
                              "which byte-level BPE needs",
                              v->size, b);
    }
    return FAK_OK;
}

/* ---- reading the file ------------------------------------------------------------------------ */

/* tokenizer.ggml.tokens and token_type (NULL when absent), their types and counts checked. */
static int32_t read_arrays(const gguf *g, const gguf_value **tokens, const gguf_value **types,
                           fak_error *e)
{
    int32_t rc = gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRING, tokens, e);
    if (rc < 0) return rc;
    if (rc == 1) return gguf_fault(g, e, "there is no tokenizer.ggml.tokens");
    uint64_t count = (*tokens)->count;
    if (count == 0 || count > INT32_MAX)
        return gguf_fault(g, e, "tokenizer.ggml.tokens has %" PRIu64 " elements, not 1 to %d",
                          count, INT32_MAX);
    *types = NULL;
    rc = gguf_get_array(g, "tokenizer.ggml.token_type", GGUF_I32, types, e);
    if (rc < 0) return rc;
    if (*types && (*types)->count != count)
        return gguf_fault(g, e,
                          "tokenizer.ggml.token_type has %" PRIu64
                          " elements, tokenizer.ggml.tokens has %" PRIu64,
                          (*types)->count, count);
    return FAK_OK;
}

/* Room for the tokens, at most as many bytes as the file has for them. */
static int32_t make_room(vocab *v, const gguf *g, const gguf_value *tokens, fak_error *e)
{
    const uint8_t *at = tokens->data;
    uint64_t bytes = 1;
    for (uint64_t i = 0; i < tokens->count; i++) bytes += gguf_next_string(tokens, &at).bytes;
    if (bytes > UINT32_MAX)
        return gguf_fault(
            g, e, "tokenizer.ggml.tokens has %" PRIu64 " bytes, at most %" PRIu32 " are supported",
            bytes, UINT32_MAX);
    v->size = (uint32_t)tokens->count;
    v->text = malloc((size_t)bytes);
    v->start = malloc(((size_t)v->size + 1) * sizeof *v->start);
    v->flags = calloc(v->size, 1);
    if (!v->text || !v->start || !v->flags)
        return status_memory(e, "the vocabulary", bytes + 5 * (uint64_t)v->size);
    return FAK_OK;
}

static uint8_t special_flags(int64_t type, gguf_string s)
{
    if (type != TYPE_CONTROL && type != TYPE_USER) return 0;
    uint8_t flags = type == TYPE_CONTROL ? VOCAB_SPECIAL | VOCAB_CONTROL : VOCAB_SPECIAL;
    for (size_t i = 0; i < sizeof end_names / sizeof *end_names; i++)
        if (gguf_string_is(s, end_names[i])) flags |= VOCAB_END;
    return flags;
}

int32_t vocab_open(vocab *v, const gguf *g, fak_error *e)
{
    const gguf_value *tokens, *types;
    int32_t rc = read_arrays(g, &tokens, &types, e);
    if (rc == FAK_OK) rc = make_room(v, g, tokens, e);
    if (rc != FAK_OK) return rc;
    const uint8_t *at = tokens->data;
    size_t end = 0;
    for (uint32_t id = 0; id < v->size; id++) {
        gguf_string s = gguf_next_string(tokens, &at);
        int64_t type = types ? gguf_integer(types, id) : TYPE_NORMAL;
        if (type < 0 || type >= TYPES)
            return gguf_fault(g, e,
                              "tokenizer.ggml.token_type has %" PRId64 " for token %" PRIu32
                              "; 0 to %d are known",
                              type, id, TYPES - 1);
        v->flags[id] = special_flags(type, s);
        size_t count = v->flags[id] ? SIZE_MAX : vocab_unmap(s, v->text + end);
        if (count == SIZE_MAX) {
            if (!v->flags[id]) v->flags[id] = VOCAB_LITERAL;
            count = (size_t)s.bytes;
            if (count > 0) memcpy(v->text + end, s.data, count);
        }
        v->start[id] = (uint32_t)end;
        end += count;
    }
    v->start[v->size] = (uint32_t)end;
    rc = fill_slots(v, e);
    return rc == FAK_OK ? find_bytes(v, g, e) : rc;
}

void vocab_close(vocab *v)
{
    free(v->text);
    free(v->start);
    free(v->flags);
    free(v->slot);
    *v = (vocab){0};
}
