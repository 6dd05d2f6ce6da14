/* vocab - the tokens of a byte-level vocabulary: their bytes, what they are, and the way back.
 * Read-only after vocab_open: any thread. */
#ifndef VOCAB_H
#define VOCAB_H
#include "gguf.h"

enum vocab_flags {
    VOCAB_CONTROL = 1, /* the file's type 3: not text */
    VOCAB_SPECIAL = 2, /* types 3 and 4: its text is literal and recognised before all else */
    VOCAB_LITERAL = 4, /* another type, yet not in GPT-2's alphabet: no text is encoded to it */
    VOCAB_END = 8      /* ends a generation */
};

typedef struct vocab { /* zero-initialise */
    uint32_t size;
    char *text;         /* the bytes of token i: text[start[i]] .. text[start[i + 1]] */
    uint32_t *start;    /* size + 1 */
    uint8_t *flags;     /* enum vocab_flags */
    uint32_t *slot;     /* ids by the hash of their bytes, open addressing; FAK_NO_INDEX is free */
    size_t mask;        /* slots - 1 */
    uint32_t byte[256]; /* the token of each byte, or FAK_NO_INDEX */
} vocab;

/* Reads tokenizer.ggml.tokens and token_type.  All of printable ASCII and "\n" must have tokens;
 * other bytes may lack one, as 21 do in SmolLM2.  Close v in any case. */
int32_t vocab_open(vocab *v, const gguf *g, fak_error *e);
void vocab_close(vocab *v); /* a zero vocab is fine */

/* The token of exactly these bytes, or FAK_NO_INDEX: one in GPT-2's alphabet before a special one
 * before a VOCAB_LITERAL one, then the lowest id. */
uint32_t vocab_find(const vocab *v, const char *bytes, size_t count);

/* From GPT-2's alphabet, in which each byte is a printable character, to bytes: out[s.bytes].
 * Returns their number, or SIZE_MAX for a character outside the alphabet. */
size_t vocab_unmap(gguf_string s, char *out);
#endif
