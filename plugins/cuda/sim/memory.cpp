/* memory - see memory.h. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, ZONE = 256, POISON = 0xff };

struct piece {
    unsigned char *map, *at; /* at: what was handed out, from ZONE bytes on at least */
    size_t mapped, bytes;
    memory_kind kind;
};
static piece *pieces; /* sorted by address */
static uint32_t count, room;
static size_t used, total;

/* The first piece that begins behind p. */
static uint32_t behind(const void *p)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (pieces[mid].at <= static_cast<const unsigned char *>(p))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static int grow(void)
{
    if (count < room) return 1;
    uint32_t wider = room ? 2 * room : 64;
    piece *p = static_cast<piece *>(realloc(pieces, wider * sizeof *p));
    if (!p) return 0;
    pieces = p;
    room = wider;
    return 1;
}

/* The end of what is handed out lies close to the end of the mapping: 256 bytes are what a card aligns to. */
void *memory_take(size_t bytes, memory_kind kind)
{
    size_t aligned = (bytes + 255) & ~static_cast<size_t>(255);
    size_t mapped = (ZONE + aligned + ZONE + PAGE - 1) / PAGE * PAGE;
    if (!bytes || !grow() || (kind == MEMORY_DEVICE && bytes > total - used)) return nullptr;
    void *map = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return nullptr;
    piece n = {static_cast<unsigned char *>(map), nullptr, mapped, bytes, kind};
    n.at = n.map + (mapped - ZONE - aligned);
    memset(n.map, POISON, mapped);
    uint32_t i = behind(n.at);
    memmove(pieces + i + 1, pieces + i, (count - i) * sizeof n);
    pieces[i] = n;
    count++;
    if (kind == MEMORY_DEVICE) used += bytes;
    return n.at;
}

int memory_give(void *p, memory_kind kind)
{
    uint32_t i = behind(p);
    if (!i || pieces[i - 1].at != p || pieces[i - 1].kind != kind) return 0;
    piece gone = pieces[i - 1];
    memmove(pieces + i - 1, pieces + i, (count - i) * sizeof gone);
    count--;
    if (kind == MEMORY_DEVICE) used -= gone.bytes;
    munmap(gone.map, gone.mapped);
    if (count) return 1;
    free(pieces);
    pieces = nullptr;
    room = 0;
    return 1;
}

int memory_holds(const void *p, size_t bytes, memory_kind kind)
{
    uint32_t i = behind(p);
    if (!i || pieces[i - 1].kind != kind) return 0;
    size_t from = static_cast<size_t>(static_cast<const unsigned char *>(p) - pieces[i - 1].at);
    return from <= pieces[i - 1].bytes && bytes <= pieces[i - 1].bytes - from;
}

const char *memory_torn(void)
{
    for (uint32_t i = 0; i < count; i++) {
        const piece *n = &pieces[i];
        for (int b = 1; b <= ZONE; b++)
            if (n->at[-b] != POISON) return "a write before what was allocated";
        for (int b = 0; b < ZONE; b++)
            if (n->at[n->bytes + static_cast<size_t>(b)] != POISON)
                return "a write beyond what was allocated";
    }
    return nullptr;
}

size_t memory_used(void)
{
    return used;
}

void memory_set_total(size_t bytes)
{
    total = bytes;
}

size_t memory_total(void)
{
    return total;
}

uint32_t memory_count(void)
{
    return count;
}
