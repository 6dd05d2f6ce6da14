/* float_mode - the rounding and subnormal mode of this thread: what foreign code may change behind our
 * back, and the contract of the arithmetic forbids. */
#ifndef FLOAT_MODE_H
#define FLOAT_MODE_H
#include <fenv.h>

typedef struct float_mode {
    fenv_t env;
    int ok;
} float_mode;

void float_mode_save(float_mode *mode);
/* Puts it back; not 0 where it was right and is not any more: what ran since has changed it. */
int float_mode_restore(const float_mode *mode);
/* Nearest even, subnormals kept and read as they are?  Found by computing, on any machine. */
int float_mode_ok(void);
#endif
