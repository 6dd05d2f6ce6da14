/* lockstep - a device and the reference step through one model op by op, every op on the reference's own
 * inputs, so that the first that is past its bound is the one at fault and not one that follows it. */
#ifndef LOCKSTEP_H
#define LOCKSTEP_H
#include "gate.h"
#include "session.h"

enum lockstep_where { PART_OUTPUT, PART_IDS, PART_KEYS, PART_VALUES };
typedef struct lockstep_part { /* what parted */
    enum lockstep_where where;
    uint64_t step;             /* counted from 0 */
    uint32_t op, value, slot;  /* in the device's plan; the output, 0 where kv parted */
    uint32_t first, rows;      /* positions of the step's only span */
    gate_figures figures;      /* the row is of the step; its element is the worst */
    uint32_t want_id, got_id;  /* PART_IDS: of that row */
    gate_bound bound;
} lockstep_part;

typedef struct lockstep {      /* zero-initialise */
    session dev, ref;          /* both KEEP_ALL */
    float *rows;               /* the reference's values of one step, one after another */
    size_t *at;                /* [values] where in rows, plus 1; 0 = not written in this step */
    size_t used, room;
    float *theirs;             /* rows of one value of the device's */
    uint64_t steps, ops;       /* whole ones; compared */
    uint64_t unseen;           /* ops whose kv could not be: the device has no kv_read */
    gate_figures worst;        /* of all that was compared */
    int pure;                  /* the device goes on with its own values, not the reference's */
    int failed;                /* part says where */
    lockstep_part part;
} lockstep;

/* options: rows is of a step, 0 = 16; wanted is ignored. */
int32_t lockstep_open(lockstep *l, const model *m, device *dev, device *host,
                      const session_options *options, fak_error *e);
void lockstep_close(lockstep *l); /* a zero or half-open one is fine */

/* Appends ids to slot 0 on both, in as many steps as they take, every row answered.  STATUS_GATE with
 * l->part filled and a sentence that names op, layer and the worst element; or what else failed. */
int32_t lockstep_feed(lockstep *l, const uint32_t *id, uint32_t count, uint32_t want, fak_error *e);
/* The id after the last one that was fed with FAK_WANT_ARGMAX, of the reference. */
uint32_t lockstep_next(const lockstep *l);

/* "attention, layer 3" or "matmul, outside layers". */
const char *lockstep_op_text(const program *p, uint32_t op, char text[64]);
/* "x [7, 64] w [192, 64] q8_0 > y [7, 192]" for `rows` rows. */
const char *lockstep_shapes_text(const program *p, uint32_t op, uint32_t rows, char text[200]);
#endif
