/* program - a plan made ready on a device, with the reference beside it for what the device leaves.
 * Verdicts and capacity come before any weight is touched. */
#ifndef PROGRAM_H
#define PROGRAM_H
#include "device.h"
#include "fuse.h"

enum program_side { SIDE_DEVICE, SIDE_HOST, SIDES }; /* host: cpu-ref, opened as a second device */

typedef struct program {           /* zero-initialise */
    device *side[SIDES];
    fak_program *handle[SIDES];    /* NULL: nothing runs there, or only a dry run was asked */
    const model *m;
    plan base, fused;              /* as built; as the device gets it */
    fak_op *op;                    /* [ops of fused] */
    fak_value *value;              /* [values] */
    uint32_t *verdict[SIDES];      /* [ops] enum fak_verdict */
    fuse_mask *refused;            /* [ops of base] fusions undone */
    uint8_t *withheld;             /* [ops of base] not offered: load found that it cannot be */
    fak_limits limits;
    uint32_t flags;                /* enum fak_prepare_flags */
    fak_report report[SIDES];
    uint32_t ops, values, holes;   /* holes: ops of the host */
    uint32_t unfused;              /* fusions that the device refused */
    uint8_t holds_kv[SIDES];       /* does the side hold the kv of some layer? */
} program;

/* Builds and fuses the plan, settles verdicts, prepares both sides (flags: enum fak_prepare_flags).  With
 * FAK_DRY_RUN nothing is allocated on devices: see capacity.h, then program_commit.  host: completes
 * what dev leaves; may be dev itself where it takes all.  program_close in any case. */
int32_t program_prepare(program *p, device *dev, device *host, const model *m,
                        const fak_limits *limits, uint32_t flags, fak_error *e);
/* After a dry run: the same for real. */
int32_t program_commit(program *p, fak_error *e);
/* Loads all weights of both sides from the model; progress may be NULL. */
int32_t program_load(program *p, weights_progress *progress, void *self, fak_error *e);
void program_close(program *p); /* a zero or half-built program is fine */

/* The side that runs an op. */
enum program_side program_side_of(const program *p, uint32_t op);
/* Bytes that the sides ask for together, from their reports. */
uint64_t program_bytes(const program *p);
/* The act mode that fits: Q8 where some matrix is of a block format and dev offers it, else F32. */
uint32_t program_default_act(const model *m, const device *dev);
#endif
