/* sample - picks the next id.  Greedy: the first maximum, computed on the device. */
#ifndef SAMPLE_H
#define SAMPLE_H
#include "status.h"

typedef struct sampler { float temperature; } sampler; /* 0 = greedy, the only one so far */

/* What a step must answer for this sampler: enum fak_want. */
uint32_t sampler_want(const sampler *s);
/* The id from that answer.  STATUS_NAN when the row had a NaN. */
int32_t sampler_pick(const sampler *s, const void *answer, uint32_t *id, fak_error *e);
#endif
