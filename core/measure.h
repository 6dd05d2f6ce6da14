/* measure - how long a session takes: one timed run of prefill, of decoding, of a batch; and the median of
 * several.  Greedy, the ids that the device picks are fed back.  s->stop is asked between steps. */
#ifndef MEASURE_H
#define MEASURE_H
#include "session.h"

enum { MEASURE_PROMPT = 8 }; /* ids before what is timed in measure_decode and measure_batch */

typedef struct measure { double median, low, high; } measure;
/* Of count >= 1 samples, which are put in order. */
measure measure_of(double *sample, uint32_t count);

/* Each in new sequences that are given back, ids from id[], which has at least as many as are fed first;
 * *seconds: of the steps alone.  STATUS_NAN where the device answers no id, FAK_E_CANCELLED. */
/* count ids to the first answer */
int32_t measure_prefill(session *s, const uint32_t *id, uint32_t count, double *seconds, fak_error *e);
/* tokens >= 1 steps of one row, after MEASURE_PROMPT ids */
int32_t measure_decode(session *s, const uint32_t *id, uint32_t tokens, double *seconds, fak_error *e);
/* steps of one row in each of `batch` sequences, which begin with MEASURE_PROMPT ids each */
int32_t measure_batch(session *s, const uint32_t *id, uint32_t batch, uint32_t steps, double *seconds,
                      fak_error *e);
/* The ops that one step of decoding runs, [SIDES][EXEC_IDS]. */
int32_t measure_ops(session *s, const uint32_t *id, uint64_t by_id[SIDES][EXEC_IDS], fak_error *e);
#endif
