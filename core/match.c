/* match - see match.h. */
#include "match.h"

#include <stdlib.h>

static int grow(match_set *m, size_t room)
{
    if (room > MATCH_NONE / 2) return -1;
    match_state *grown = realloc(m->state, room * sizeof *grown);
    if (!grown) return -1;
    m->state = grown;
    m->room = room;
    return 0;
}

int match_reserve(match_set *m, size_t bytes)
{
    return bytes < m->room ? 0 : grow(m, bytes + 1); /* the root too */
}

/* A child of `parent`, or the root when there is none yet; 0 without memory (or for the root). */
static uint32_t new_state(match_set *m, uint32_t parent, unsigned char byte)
{
    if (m->states == m->room && grow(m, m->room ? 2 * m->room : 256)) return 0;
    uint32_t s = (uint32_t)m->states++;
    m->state[s] = (match_state){.longest = MATCH_NONE, .byte = byte};
    if (s == 0) return 0;
    m->state[s].sibling = m->state[parent].child;
    m->state[parent].child = s;
    if (parent == 0) m->first[byte] = s;
    return s;
}

static uint32_t child_of(const match_set *m, uint32_t state, unsigned char byte)
{
    if (state == 0) return m->first[byte];
    uint32_t c = m->state[state].child;
    while (c != 0 && m->state[c].byte != byte) c = m->state[c].sibling;
    return c;
}

int match_add(match_set *m, const char *text, size_t bytes, uint32_t value)
{
    uint32_t state = 0;
    if (bytes == 0) return 0;
    if (m->states == 0) new_state(m, 0, 0);
    if (m->states == 0) return -1;
    for (size_t i = bytes; i-- > 0;) {
        unsigned char byte = (unsigned char)text[i];
        uint32_t next = child_of(m, state, byte);
        if (next == 0 && (next = new_state(m, state, byte)) == 0) return -1;
        state = next;
    }
    if (m->state[state].longest == MATCH_NONE) m->state[state].longest = value;
    return 0;
}

uint32_t match_step(const match_set *m, uint32_t state, char byte)
{
    uint32_t next;
    while ((next = child_of(m, state, (unsigned char)byte)) == 0 && state != 0)
        state = m->state[state].shorter;
    return next;
}

int match_link(match_set *m)
{
    if (m->states == 0) return 0;
    uint32_t *queue = malloc(m->states * sizeof *queue);
    if (!queue) return -1;
    size_t tail = 0;
    queue[tail++] = 0;
    for (size_t head = 0; head < tail; head++) { /* a suffix is linked before what it is one of */
        const match_state *parent = m->state + queue[head];
        for (uint32_t c = parent->child; c != 0; c = m->state[c].sibling) {
            match_state *s = m->state + c;
            if (queue[head] != 0) s->shorter = match_step(m, parent->shorter, (char)s->byte);
            if (s->longest == MATCH_NONE) s->longest = m->state[s->shorter].longest;
            queue[tail++] = c;
        }
    }
    free(queue);
    return 0;
}

void match_destroy(match_set *m)
{
    free(m->state);
    *m = (match_set){0};
}
