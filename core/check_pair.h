/* check_pair - a small model on the device that is checked and on the reference, told the same. */
#ifndef CHECK_PAIR_H
#define CHECK_PAIR_H
#include "check.h"
#include "session.h"
#include "toy.h"

enum { PAIR_V = 259, PAIR_CONTEXT = 64, PAIR_ROWS = 32, PAIR_SLOTS = 4 };

typedef struct pair {
    check *c;
    session s[2];     /* the device's, the reference's */
    gate_bound bound;
    gate_tally *all;  /* of all scripts of one mode */
    gate_tally tally; /* of this one */
    float *row[2];    /* [PAIR_ROWS, PAIR_V] */
    uint32_t id[PAIR_CONTEXT];
} pair;

/* dtype: of the model's matrices.  p->all is the caller's to set.  pair_close in any case. */
int32_t pair_open(pair *p, check *c, toy *g, const session_options *options, uint32_t dtype, fak_error *e);
void pair_close(pair *p);

int32_t pair_take(pair *p, uint32_t *slot, fak_error *e);
/* Appends n ids to a slot of both and compares the logits of each. */
int32_t pair_feed(pair *p, uint32_t slot, const uint32_t *id, uint32_t n, fak_error *e);
void pair_truncate(pair *p, uint32_t slot, uint32_t length);
int32_t pair_clone(pair *p, uint32_t from, uint32_t length, uint32_t *slot, fak_error *e);
int32_t pair_evict(pair *p, uint32_t slot, uint32_t first, uint32_t count, fak_error *e);
/* p->id in several slots at once, compared. */
int32_t pair_batch(pair *p, const fak_span *span, uint32_t spans, fak_error *e);
/* One step of several slots of one side, all rows answered: as one step where the device takes it. */
int32_t pair_batch_step(session *s, const fak_span *span, uint32_t spans, const uint32_t *id,
                        uint32_t rows, float *out, fak_error *e);
#endif
