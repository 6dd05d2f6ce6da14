/* kv - slots and lengths of sequences.  The data lives in the backends; this is who uses which slot and
 * how far.  Truncation is free: the next step simply begins earlier. */
#ifndef KV_H
#define KV_H
#include "program.h"

typedef struct kv { /* zero-initialise */
    program *p;
    uint32_t *length; /* [slots] positions that hold the sequence */
    uint8_t *used;    /* [slots] */
    uint32_t slots, context;
} kv;

int32_t kv_open(kv *k, program *p, fak_error *e); /* after program_prepare */
void kv_close(kv *k);

/* A free slot of length 0; FAK_E_KV_FULL when there is none. */
int32_t kv_take(kv *k, uint32_t *slot, fak_error *e);
/* Gives the slot and its room back. */
int32_t kv_give(kv *k, uint32_t slot, fak_error *e);
/* Positions [length, length + rows) were written by a step. */
void kv_extend(kv *k, uint32_t slot, uint32_t rows);
/* Forgets what lies beyond length and gives its room back; nothing moves. */
void kv_truncate(kv *k, uint32_t slot, uint32_t length);
/* A new slot that begins as the first `length` positions of `from`. */
int32_t kv_clone(kv *k, uint32_t from, uint32_t length, uint32_t *slot, fak_error *e);
/* Drops [first, first + count); survivors move down.  Exact where no survivor had attended to what goes
 * (architecture.md, 8); FAK_E_UNSUPPORTED where a side cannot: truncate and prefill again. */
int32_t kv_evict(kv *k, uint32_t slot, uint32_t first, uint32_t count, fak_error *e);
#endif
