/* opcheck - see opcheck.h. */
#include "opcheck.h"

uint32_t opcheck_run(check *c)
{
    static const struct {
        void (*run)(check *);
        uint32_t of; /* mask of the rungs that it tells checks of */
    } rungs[] = {{check_ops, 1 << R1 | 1 << R2}, {check_caps, 1 << R2}, {check_tiny, 1 << R3},
                 {check_errors, 1 << R4},        {check_real, 1 << R5}, {check_speed, 1 << R6}};
    uint32_t failed = 0;
    check_load(c);
    for (size_t i = 0; i < sizeof rungs / sizeof *rungs && !c->stopped; i++)
        if (!c->only || c->only & rungs[i].of) rungs[i].run(c);
    check_manners(c);
    for (int r = 0; r < CHECK_RUNGS; r++) failed += c->count[r][CHECK_FAIL];
    return failed;
}
