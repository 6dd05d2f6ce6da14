/* agree - do a device and the reference agree on a model?  The same ids through both: a prompt with
 * logits at every position, then the reference's greedy ids, which the device is given whatever it
 * would have picked.  One after the other, so that never more than one copy of the weights is held. */
#ifndef AGREE_H
#define AGREE_H
#include "gate.h"
#include "model.h"

typedef struct agree_options {
    uint32_t act, kv_dtype;   /* the device's; 0 = what fits (program_default_act); F32 */
    uint32_t context, greedy; /* positions to reserve, at least prompt_count + greedy; steps after the prompt */
    const uint32_t *prompt;
    uint32_t prompt_count;    /* at least 1 */
    /* NULL, or told what of both sides is done; not 0: stop, with FAK_E_CANCELLED */
    int (*progress)(void *self, uint64_t done, uint64_t of);
    void *self;
} agree_options;

/* The loosest of the bounds for the dtypes of the model's matrices; act 0 as above. */
gate_bound agree_bound(const model *m, const device *dev, uint32_t act, uint32_t kv_dtype);

/* Fills *tally (gate_positions judges it) and by_id, the ops that the device's program ran, [SIDES][EXEC_IDS].
 * ids: NULL, or [greedy] for the reference's.  host: cpu-ref.  Rows of the reference are kept meanwhile:
 * (prompt_count + greedy) * V floats.  STATUS_NAN where the reference has no argmax. */
int32_t agree_run(const model *m, device *dev, device *host, const agree_options *o,
                  gate_tally *tally, uint64_t by_id[SIDES][EXEC_IDS], uint32_t *ids, fak_error *e);
#endif
