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
    memcpy(id, answer, sizeof *id);
    if (*id != 0xffffffffu) return FAK_OK;
    return status_set(e, STATUS_NAN, "the logits hold a NaN: the model or the backend is broken");
}
