/* step - see step.h. */
#include "step.h"

#include <string.h>

uint32_t step_bytes(uint32_t rows, uint32_t wanted, uint32_t spans)
{
    return (uint32_t)sizeof(fak_step) + (rows + wanted) * 4 + spans * (uint32_t)sizeof(fak_span);
}

const fak_step *step_write(void *block, const step_spec *s)
{
    uint32_t tokens = s->flags & FAK_TOKENS_FROM_ARGMAX ? 0 : s->rows;
    fak_step step = {
        .struct_size = sizeof step, .rows = s->rows, .want = s->want, .flags = s->flags};
    step.token = (fak_array){sizeof step, tokens, 4};
    step.wanted = (fak_array){step.token.offset + tokens * 4, s->wanted, 4};
    step.span = (fak_array){step.wanted.offset + s->wanted * 4, s->spans, sizeof *s->span};
    step.bytes = step.span.offset + s->spans * (uint32_t)sizeof *s->span;
    memcpy(block, &step, sizeof step);
    if (tokens) memcpy((char *)block + step.token.offset, s->token, tokens * 4ul);
    if (s->wanted) memcpy((char *)block + step.wanted.offset, s->wanted_row, s->wanted * 4ul);
    memcpy((char *)block + step.span.offset, s->span, s->spans * sizeof *s->span);
    return block;
}
