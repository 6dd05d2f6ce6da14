/* sample - see sample.h. */
#include "sample.h"

#include <string.h>

uint32_t sampler_want(const sampler *s)
{
    (void)s;
    return FAK_WANT_ARGMAX;
}

int32_t sampler_pick(const sampler *s, const void *answer, uint32_t *id, fak_error *e)
{
    (void)s;
    uint32_t best;
    memcpy(&best, answer, sizeof best);
    if (best == 0xffffffffu)
        return status_set(e, STATUS_NAN,
                          "the logits hold a NaN: the model or the backend is broken");
    *id = best;
    return FAK_OK;
}
