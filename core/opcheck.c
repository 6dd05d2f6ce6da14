/* opcheck - see opcheck.h. */
#include "opcheck.h"

uint32_t opcheck_run(check *c)
{
    static void (*const rungs[])(check *) = {check_ops,    check_caps, check_tiny,
                                             check_errors, check_real, check_speed};
    uint32_t failed = 0;
    check_load(c);
    for (size_t i = 0; i < sizeof rungs / sizeof *rungs && !c->stopped; i++) rungs[i](c);
    check_manners(c);
    for (int r = 0; r < CHECK_RUNGS; r++) failed += c->count[r][CHECK_FAIL];
    return failed;
}
