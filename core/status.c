/* status - see status.h. */
#include "status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* text[bytes] was cut: takes away the UTF-8 sequence at its end that is not whole. */
static void drop_half_character(char *text, size_t bytes)
{
    size_t at = bytes, held = 0;
    while (at && held < 3 && ((unsigned char)text[at - 1] & 0xc0) == 0x80) at--, held++;
    unsigned char lead = at ? (unsigned char)text[at - 1] : 0;
    size_t needs = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : 0;
    if (held < needs)
        for (at--; at < bytes; at++) text[at] = 0;
}

int32_t status_set(fak_error *e, int32_t code, const char *format, ...)
{
    va_list args;
    *e = (fak_error){.code = code, .index = FAK_NO_INDEX};
    va_start(args, format);
    int n = vsnprintf(e->message, sizeof e->message, format, args);
    va_end(args);
    if (n >= (int)sizeof e->message) drop_half_character(e->message, sizeof e->message - 1);
    return code;
}

int32_t status_memory(fak_error *e, const char *what, uint64_t bytes)
{
    return status_set(e, FAK_E_MEMORY, "not enough memory for %s: %" PRIu64 " bytes", what, bytes);
}
