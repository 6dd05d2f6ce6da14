/* bpe - the merge engine of byte-pair encoding: numbers in, numbers out; knows no text.
 * A bpe is read-only after its last bpe_add: any thread.  A bpe_work is one thread's. */
#ifndef BPE_H
#define BPE_H
#include <stddef.h>
#include <stdint.h>

typedef struct bpe_pair { uint32_t left, right, rank, result; } bpe_pair;

typedef struct bpe { /* zero-initialise */
    bpe_pair *pair;  /* open addressing; rank 0xffffffff is a free place */
    size_t mask;     /* places - 1 */
    uint32_t merges; /* added so far: the next one's rank */
} bpe;

typedef struct bpe_work { /* buffers, kept from piece to piece; zero-initialise */
    uint32_t *id, *before, *after; /* symbols, a linked list */
    uint64_t *heap;                /* rank << 32 | position: the smallest goes first */
    size_t room, heap_count;
} bpe_work;

int bpe_create(bpe *b, size_t merges_max); /* 0, or -1 without memory */
/* Joins left and right to result, after all merges added before.  A pair's first merge counts. */
void bpe_add(bpe *b, uint32_t left, uint32_t right, uint32_t result);
void bpe_destroy(bpe *b); /* a zero bpe is fine */

int bpe_reserve(bpe_work *w, size_t symbols); /* id[symbols] may be written; 0, or -1 */
/* Merges w->id[0..count) in place, count below 2^32 - 1: always the pair of the lowest rank, the
 * leftmost of equals.  Returns how many are left.  Time n log n, whatever the symbols are. */
size_t bpe_run(const bpe *b, bpe_work *w, size_t count);
void bpe_work_free(bpe_work *w); /* a zero bpe_work is fine */
#endif
