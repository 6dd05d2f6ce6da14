/* text - see text.h. */
#include "text.h"

#include <string.h>

static const char replacement[3] = {'\xef', '\xbf', '\xbd'}; /* U+FFFD */

/* Bytes of the sequence that `lead` begins, 0 for none; its second byte lies in *low..*high.  Only
 * the second byte is ever restricted further than 80..BF (Unicode, table 3-7). */
static size_t lead_bytes(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    *high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (lead < 0x80) return 1;
    if (lead < 0xc2 || lead > 0xf4) return 0;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

size_t text_part(const char *in, size_t bytes, enum text_kind *kind)
{
    unsigned char low, high;
    size_t length = lead_bytes((unsigned char)in[0], &low, &high);
    *kind = length == 0 ? TEXT_INVALID : TEXT_WHOLE;
    if (length <= 1) return 1;
    for (size_t i = 1; i < length; i++, low = 0x80, high = 0xbf) {
        if (i == bytes) {
            *kind = TEXT_CUT;
            return i;
        }
        unsigned char c = (unsigned char)in[i];
        if (c < low || c > high) {
            *kind = TEXT_INVALID;
            return i;
        }
    }
    return length;
}

size_t text_stream_push(text_stream *s, const char *in, size_t bytes, char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < bytes;) {
        enum text_kind kind;
        s->held[s->held_bytes] = (unsigned char)in[i];
        size_t part = text_part((const char *)s->held, s->held_bytes + 1, &kind);
        if (kind == TEXT_CUT) {
            s->held_bytes++;
            i++;
            continue;
        }
        const char *from = kind == TEXT_WHOLE ? (const char *)s->held : replacement;
        size_t length = kind == TEXT_WHOLE ? part : sizeof replacement;
        memcpy(out + written, from, length);
        written += length;
        i += part > s->held_bytes; /* what ends an invalid part is looked at again on its own */
        s->held_bytes = 0;
    }
    return written;
}

size_t text_stream_finish(text_stream *s, char *out)
{
    if (s->held_bytes == 0) return 0;
    s->held_bytes = 0;
    memcpy(out, replacement, sizeof replacement);
    return sizeof replacement;
}

const char *text_show(char out[TEXT_SHOW_ROOM], const char *in, uint64_t bytes)
{
    text_stream s = {0};
    size_t shown = bytes < TEXT_SHOWN ? (size_t)bytes : TEXT_SHOWN;
    size_t length = text_stream_push(&s, in, shown, out);
    if (shown == bytes) length += text_stream_finish(&s, out + length);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)out[i] < ' ' || out[i] == 0x7f) out[i] = '?';
    out[length] = 0;
    return out;
}
