/* tokenizer - text <-> ids.  Byte-level BPE as GGUF describes it ("gpt2" model; pre-tokenisers
 * "smollm" and "gpt-2", PCRE2).  Any bytes encode, and decode back to themselves, but for bytes
 * that the vocabulary has no token for: they are left out (tokenizer_has_byte; in SmolLM2 six
 * control characters, F1, F2 and what is never found in UTF-8).  A run of bytes that are not UTF-8
 * is a piece of its own.  Time is n log n at worst in any input.
 * Read-only after tokenizer_open: any thread may encode and decode; a text_stream is one thread's.
 */
#ifndef TOKENIZER_H
#define TOKENIZER_H
#include "gguf.h"
#include "text.h" /* text_stream joins the bytes of tokens into text */

typedef struct tokenizer tokenizer;

/* Reads tokenizer.ggml.* of g; copies what it needs, g may be closed afterwards.  STATUS_BAD_FILE,
 * or FAK_E_MEMORY, with a sentence; then *out is NULL. */
int32_t tokenizer_open(tokenizer **out, const gguf *g, fak_error *e);
void tokenizer_close(tokenizer *t); /* NULL is fine */

uint32_t tokenizer_size(const tokenizer *t); /* ids are below it */
uint32_t tokenizer_bos(const tokenizer *t);  /* FAK_NO_INDEX when there is none; eos likewise */
uint32_t tokenizer_eos(const tokenizer *t);
int tokenizer_adds_bos(const tokenizer *t);                     /* the model asks for it */
int tokenizer_is_end(const tokenizer *t, uint32_t id);          /* ends a generation */
int tokenizer_is_special(const tokenizer *t, uint32_t id);      /* a control token */
int tokenizer_has_byte(const tokenizer *t, unsigned char byte); /* it survives encoding */
/* The token of exactly these bytes, a special one before others; or FAK_NO_INDEX. */
uint32_t tokenizer_find(const tokenizer *t, const char *text, size_t bytes);

typedef struct token_ids { uint32_t *id; size_t count, room; } token_ids; /* zero-initialise */
void token_ids_free(token_ids *ids);
/* Appends id[count], which lies outside ids; 0, or -1 without memory: then ids is as it was. */
int token_ids_add(token_ids *ids, const uint32_t *id, size_t count);

/* Appends the ids of text[bytes], which hold no BOS unless the text does.  Special tokens (types 3
 * and 4 in the file) are recognised first: the leftmost, there the longest.
 * FAK_E_MEMORY, and FAK_E_ARGUMENT for 4 GiB or more, leave *ids as it was. */
int32_t tokenizer_encode(const tokenizer *t, const char *text, size_t bytes, token_ids *ids,
                         fak_error *e);
/* The bytes of one id: owned by t, not terminated; NULL and 0 bytes for an id out of range.
 * Special tokens give their text. */
const char *tokenizer_token(const tokenizer *t, uint32_t id, size_t *bytes);
#endif
