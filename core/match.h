/* match - finds a set of strings in text in one pass: at each place the longest that begins there.
 * An Aho-Corasick automaton over the reversed strings, so the text is read from its end:
 *
 *   state = 0;
 *   for (i = bytes; i-- > 0;) {
 *       state = match_step(m, state, text[i]);
 *       if (m->state[state].longest != MATCH_NONE) ... the string of that value begins at text[i]
 *   }
 *
 * Time is linear in the text, whatever the strings are.  Read-only after match_link: any thread. */
#ifndef MATCH_H
#define MATCH_H
#include <stddef.h>
#include <stdint.h>

#define MATCH_NONE 0xffffffffu

typedef struct match_state {
    uint32_t child, sibling; /* its first child, the next child of its parent; 0 is none */
    uint32_t shorter;        /* the state of its longest proper suffix that is one */
    uint32_t longest;        /* value of the longest string that ends here, or MATCH_NONE */
    unsigned char byte;      /* by which its parent reaches it */
} match_state;

typedef struct match_set { /* zero-initialise */
    match_state *state;    /* [0] is the root */
    size_t states, room;   /* 0 states for an empty set */
    uint32_t first[256];   /* the root's children */
} match_set;

/* Room for strings of so many bytes in all: exact, where match_add alone grows by doubling. */
int match_reserve(match_set *m, size_t bytes); /* 0, or -1 without memory */
/* 0, or -1 without memory.  Of equal strings the first counts; an empty one is never found. */
int match_add(match_set *m, const char *text, size_t bytes, uint32_t value);
int match_link(match_set *m);     /* once, after the last match_add; 0, or -1 */
void match_destroy(match_set *m); /* a zero match_set is fine */
uint32_t match_step(const match_set *m, uint32_t state, char byte); /* for a set with states */
#endif
