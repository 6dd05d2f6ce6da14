/* status - see status.h. */
#include "status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

int32_t status_set(fak_error *e, int32_t code, const char *format, ...)
{
    va_list args;
    *e = (fak_error){.code = code, .index = FAK_NO_INDEX};
    va_start(args, format);
    vsnprintf(e->message, sizeof e->message, format, args);
    va_end(args);
    return code;
}

int32_t status_memory(fak_error *e, const char *what, uint64_t bytes)
{
    return status_set(e, FAK_E_MEMORY, "not enough memory for %s: %" PRIu64 " bytes", what, bytes);
}
