/* measure - how long a session takes: one timed run of prefill, or of decoding in one sequence or several;
 * and the median of several runs.  Greedy, the ids that the device picks are fed back.  s->stop is asked
 * between steps.  STATUS_NAN where the device answers no id, FAK_E_CANCELLED. */
#ifndef MEASURE_H
#define MEASURE_H
#include "session.h"

enum { MEASURE_PROMPT = 8 }; /* ids of the prompt of measure_ops */

typedef struct measure { double median, low, high; } measure;
/* Of count >= 1 samples, which are put in order. */
measure measure_of(double *sample, uint32_t count);

/* count ids from id[] to the first answer, in a new sequence that is given back */
int32_t measure_prefill(session *s, const uint32_t *id, uint32_t count, double *seconds, fak_error *e);

/* Sequences that are decoded from the same context again and again: that is fed once. */
typedef struct decoding {        /* zero-initialise */
    session *s;
    uint32_t *slot, *first, *next; /* [batch]; first: the ids that a run begins with */
    uint32_t batch, depth;
} decoding;
/* Takes `batch` new sequences, each with the first `depth` of id[], which has at least max(depth, batch).
 * A run begins with the answers, or after no context with id[0], id[1] ... */
int32_t decoding_begin(decoding *d, session *s, const uint32_t *id, uint32_t batch, uint32_t depth,
                       fak_error *e);
/* steps >= 1 of one row in each sequence, after depth ids; *seconds: of these steps alone */
int32_t decoding_run(decoding *d, uint32_t steps, double *seconds, fak_error *e);
/* Gives the sequences back; of a half-begun one too. */
int32_t decoding_end(decoding *d, fak_error *e);

/* The ops that one step of decoding runs, [SIDES][EXEC_IDS]. */
int32_t measure_ops(session *s, const uint32_t *id, uint64_t by_id[SIDES][EXEC_IDS], fak_error *e);
#endif
