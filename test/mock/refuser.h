/* refuser - a test backend over the linked-in cpu-ref that takes less than it could, answers late,
 * or fails once, and holds the core to the contract: a call that breaks it is FAK_E_ARGUMENT with a
 * sentence that begins with "refuser: ".  Options (all have a default):
 *
 *   refuse=A+B      ops left to the host: names of the ABI in lower case ("rope", "take_rows"),
 *                   "kv" or "att" (KV_APPEND, ATTENTION, ROPE_APPEND), "fusion" (all fused ops)
 *                   or "all"; each with "-layerN": there only
 *   keep=A+B        likewise: these are taken whatever refuse says
 *   fused=0|1       the op table has the fused ops
 *   async=0|1       reads have tickets; rows arrive in wait alone; a first wait(0) answers PENDING
 *   graph=0|1       no op table, but run: every range must be maximal
 *   late=OP         the first load answers UNSUPPORTED, naming the first such op
 *   fail-step=N     begin or op number N (from 1, run is one) fails with FAK_E_STEP, once
 *   partial-kv=0|1  refuses ATTENTION of layer 1 and keeps KV_APPEND of it: against the rules */
#ifndef REFUSER_H
#define REFUSER_H
#include "../../abi/fak_backend.h"

extern fak_entry_fn fak_backend_entry_v1_refuser;

enum { REFUSER_IDS = 512 };
typedef struct refuser_counts {            /* of all devices; a test may clear it */
    uint32_t prepares, dry_runs, loads;    /* calls; prepares: those that were not dry */
    uint32_t programs;                     /* not yet released */
    uint32_t begins, calls, reads, writes; /* calls: of ops or of run */
    uint32_t polls;                        /* waits that answered PENDING */
    uint32_t id[REFUSER_IDS], ids;         /* values of the last load, in order */
} refuser_counts;
extern refuser_counts refuser_seen;
#endif
