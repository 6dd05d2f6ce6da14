/* json_out - what commands share to print JSON: text that may be any bytes, and one object a line. */
#ifndef JSON_OUT_H
#define JSON_OUT_H
#include <jansson.h>
#include <stddef.h>

/* A string; bytes that are not UTF-8 become U+FFFD. */
json_t *json_out_text(const char *bytes, size_t count);
/* Prints the value and a line end to standard output and frees it; 0, or -1 when it was NULL or could
 * not be written. */
int json_out_print(json_t *value);
#endif
