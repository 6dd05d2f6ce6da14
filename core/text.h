/* text - UTF-8, one part at a time, as Unicode's "substitution of maximal subparts" (and WHATWG)
 * cuts it: overlong forms, surrogates and what lies above U+10FFFF are no UTF-8. */
#ifndef TEXT_H
#define TEXT_H
#include <stddef.h>
#include <stdint.h>

enum text_kind {
    TEXT_WHOLE,   /* one code point */
    TEXT_INVALID, /* a maximal invalid part: replaced, it is one U+FFFD */
    TEXT_CUT      /* the beginning of a code point, as far as the bytes go */
};

/* The first part of in[bytes], bytes > 0: its length, 1..4, and what it is. */
size_t text_part(const char *in, size_t bytes, enum text_kind *kind);

/* Joins bytes that come in any portions, as those of tokens, into text that never splits a UTF-8
 * sequence. */
typedef struct text_stream { /* zero-initialise */
    unsigned char held[4];   /* a sequence not yet complete */
    uint32_t held_bytes;
} text_stream;
/* Adds in[bytes]; writes what is complete to out (room for 3*(bytes + 4)), returns its bytes.
 * Bytes that can be no UTF-8 become U+FFFD, once for each maximal invalid part. */
size_t text_stream_push(text_stream *s, const char *in, size_t bytes, char *out);
/* The end: what is still held becomes one U+FFFD (out: room for 3).  Returns its bytes. */
size_t text_stream_finish(text_stream *s, char *out);

/* The beginning of in[bytes] for a sentence: UTF-8, no control characters, terminated. */
enum { TEXT_SHOWN = 40 /* bytes of in at most */, TEXT_SHOW_ROOM = 3 * (TEXT_SHOWN + 4) + 1 };
const char *text_show(char out[TEXT_SHOW_ROOM], const char *in, uint64_t bytes); /* out */
#endif
