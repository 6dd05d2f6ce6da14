/* step - writes step blocks: what changes from one run of a plan to the next. */
#ifndef STEP_H
#define STEP_H
#include "../abi/fak_backend.h"

typedef struct step_spec {
    uint32_t want, flags;       /* enum fak_want, enum fak_step_flags */
    uint32_t rows, wanted, spans;
    const uint32_t *token;      /* [rows]; NULL with FAK_TOKENS_FROM_ARGMAX */
    const uint32_t *wanted_row; /* [wanted], rising */
    const fak_span *span;       /* [spans], tiling the rows in order */
} step_spec;

/* Bytes of a block for at most so many of each. */
uint32_t step_bytes(uint32_t rows, uint32_t wanted, uint32_t spans);
/* Writes the block (step_bytes of its counts); returns it as a step. */
const fak_step *step_write(void *block, const step_spec *spec);
#endif
