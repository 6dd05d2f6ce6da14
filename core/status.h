/* status - an error is a code and one sentence, recorded where it happened and passed up unchanged.
 * The core uses the ABI's fak_error and its codes, and adds these. */
#ifndef STATUS_H
#define STATUS_H
#include "../abi/fak_backend.h"

enum status_code { /* beside enum fak_status */
    STATUS_BAD_FILE = -100, /* a file is not what it should be: exit 1 */
    STATUS_REFUSED = -101,  /* refused before work: usage, unknown name, cannot fit: exit 2 */
    STATUS_NAN = -102,      /* a row of logits holds a NaN: no id can be trusted */
    STATUS_GATE = -103      /* measured, and past its bound: exit 1 */
};

#if defined __GNUC__
#define STATUS_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define STATUS_PRINTF(f, a)
#endif

/* Fills *e with the code and the sentence (cut to fit); returns the code. */
int32_t status_set(fak_error *e, int32_t code, const char *format, ...) STATUS_PRINTF(3, 4);
/* FAK_E_MEMORY: "not enough memory for <what>: <bytes> bytes". */
int32_t status_memory(fak_error *e, const char *what, uint64_t bytes);
#endif
