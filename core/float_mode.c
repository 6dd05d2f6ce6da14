/* float_mode - see float_mode.h. */
#include "float_mode.h"

void float_mode_save(float_mode *mode)
{
    mode->ok = float_mode_ok();
    fegetenv(&mode->env);
}

int float_mode_restore(const float_mode *mode)
{
    int changed = mode->ok && !float_mode_ok();
    fesetenv(&mode->env);
    return changed;
}

int float_mode_ok(void)
{
    volatile float smallest = 0x1p-126f, half = 0.5f, tiny = 0x1p-149f, big = 0x1p126f;
    volatile float one = 1.0f, tie = 0x1p-24f, more = 0x1.8p-24f;
    volatile float made = smallest * half; /* a subnormal result: 0 when they are flushed */
    volatile float read = tiny * big;      /* a subnormal operand: 0 when it is taken for 0 */
    volatile float even = one + tie, up = one + more, down = -one - more;
    return made == 0x1p-127f && read == 0x1p-23f && even == 1.0f && up == 0x1.000002p0f &&
           down == -0x1.000002p0f;
}
