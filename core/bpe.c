/* bpe - see bpe.h. */
#include "bpe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE 0xffffffffu

/* ---- the pairs ------------------------------------------------------------------------------- */

int bpe_create(bpe *b, size_t merges_max)
{
    size_t places = 16;
    while (places / 2 < merges_max) {
        if (places > SIZE_MAX / 2 / sizeof *b->pair) return -1;
        places *= 2;
    }
    *b = (bpe){.pair = malloc(places * sizeof *b->pair), .mask = places - 1};
    if (!b->pair) return -1;
    memset(b->pair, 0xff, places * sizeof *b->pair);
    return 0;
}

void bpe_destroy(bpe *b)
{
    free(b->pair);
    *b = (bpe){0};
}

/* The pair's place, or the free one where it would be: at least half of the places are free. */
static bpe_pair *find_pair(const bpe *b, uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 32;
    for (size_t i = (size_t)h & b->mask;; i = (i + 1) & b->mask) {
        bpe_pair *p = b->pair + i;
        if (p->rank == NONE || (p->left == left && p->right == right)) return p;
    }
}

void bpe_add(bpe *b, uint32_t left, uint32_t right, uint32_t result)
{
    assert(b->merges <= b->mask / 2);
    bpe_pair *p = find_pair(b, left, right);
    uint32_t rank = b->merges++;
    if (p->rank == NONE) *p = (bpe_pair){left, right, rank, result};
}

/* ---- the heap -------------------------------------------------------------------------------- */

static void heap_push(bpe_work *w, uint64_t key)
{
    size_t i = w->heap_count++;
    while (i > 0 && w->heap[(i - 1) / 2] > key) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = key;
}

static uint64_t heap_pop(bpe_work *w)
{
    uint64_t top = w->heap[0];
    uint64_t key = w->heap[--w->heap_count];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < w->heap_count) {
        child += child + 1 < w->heap_count && w->heap[child + 1] < w->heap[child];
        if (w->heap[child] >= key) break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = key;
    return top;
}

/* ---- the merging ----------------------------------------------------------------------------- */

int bpe_reserve(bpe_work *w, size_t symbols)
{
    if (symbols <= w->room) return 0;
    if (symbols > SIZE_MAX / 64) return -1;
    size_t room = symbols < 2 * w->room ? 2 * w->room : symbols < 64 ? 64 : symbols;
    bpe_work_free(w);
    w->id = malloc(room * sizeof *w->id);
    w->before = malloc(room * sizeof *w->before);
    w->after = malloc(room * sizeof *w->after);
    /* at first one entry for each pair; a merge takes one out and puts in two */
    w->heap = malloc(2 * room * sizeof *w->heap);
    if (!w->id || !w->before || !w->after || !w->heap) {
        bpe_work_free(w);
        return -1;
    }
    w->room = room;
    return 0;
}

void bpe_work_free(bpe_work *w)
{
    free(w->id);
    free(w->before);
    free(w->after);
    free(w->heap);
    *w = (bpe_work){0};
}

static void push_pair(const bpe *b, bpe_work *w, uint32_t at)
{
    if (at == NONE || w->after[at] == NONE) return;
    uint32_t rank = find_pair(b, w->id[at], w->id[w->after[at]])->rank;
    if (rank != NONE) heap_push(w, (uint64_t)rank << 32 | at);
}

size_t bpe_run(const bpe *b, bpe_work *w, size_t count)
{
    assert(count <= w->room && count < NONE);
    if (count < 2) return count;
    for (uint32_t i = 0; i < count; i++) {
        w->before[i] = i - 1; /* NONE for the first */
        w->after[i] = i + 1;
    }
    w->after[count - 1] = NONE;
    w->heap_count = 0;
    for (uint32_t i = 0; i + 1 < count; i++) push_pair(b, w, i);
    while (w->heap_count > 0) {
        uint64_t key = heap_pop(w);
        uint32_t at = (uint32_t)key, right = w->after[at];
        /* stale when its symbols were merged meanwhile; one merged away is NONE */
        if (right == NONE || w->id[at] == NONE) continue;
        const bpe_pair *p = find_pair(b, w->id[at], w->id[right]);
        if (p->rank != key >> 32) continue;
        w->id[at] = p->result;
        w->id[right] = NONE;
        w->after[at] = w->after[right];
        if (w->after[at] != NONE) w->before[w->after[at]] = at;
        push_pair(b, w, w->before[at]);
        push_pair(b, w, at);
    }
    size_t left = 0;
    for (uint32_t at = 0; at != NONE; at = w->after[at]) w->id[left++] = w->id[at];
    return left;
}
