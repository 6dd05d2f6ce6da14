/* json_out - see json_out.h. */
#include "json_out.h"

#include "text.h"

#include <stdio.h>
#include <stdlib.h>

json_t *json_out_text(const char *bytes, size_t count)
{
    text_stream stream = {0};
    char *text = malloc(3 * (count + 5));
    if (!text) return NULL;
    size_t n = text_stream_push(&stream, bytes, count, text);
    n += text_stream_finish(&stream, text + n);
    json_t *value = json_stringn(text, n);
    free(text);
    return value;
}

int json_out_print(json_t *value)
{
    int rc = value ? json_dumpf(value, stdout, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : -1;
    if (!rc && putchar('\n') == EOF) rc = -1;
    if (!rc && fflush(stdout)) rc = -1;
    json_decref(value);
    return rc;
}
