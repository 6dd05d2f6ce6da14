/* memory - of the card and pinned: one mapping an allocation, poisoned, between zones that must stay whole. */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H
#include <stddef.h>
#include <stdint.h>

enum memory_kind { MEMORY_DEVICE, MEMORY_PINNED };
void *memory_take(size_t bytes, memory_kind kind); /* NULL: there is none */
int memory_give(void *p, memory_kind kind);        /* 0: no such allocation */
/* Do all of the bytes lie in one allocation of that kind? */
int memory_holds(const void *p, size_t bytes, memory_kind kind);
const char *memory_torn(void); /* what is wrong with the zones, or NULL */
size_t memory_used(void);      /* bytes of the card */
void memory_set_total(size_t bytes);
size_t memory_total(void);
uint32_t memory_count(void); /* allocations that live */
#endif
