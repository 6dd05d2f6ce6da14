/* stream - what was asked and is not done yet: nothing is executed before somebody waits, and a query
 * executes one command, so that polling ends.  Graphs are lists that are replayed. */
#ifndef STREAM_H
#define STREAM_H
#include "fiber.h"

#include <stddef.h>

struct CUevent_st { uint64_t recorded, passed; }; /* cu_event */

typedef struct command {
    enum { LAUNCH, COPY, EVENT, REPLAY } kind;
    launch *l;           /* LAUNCH: its own */
    void *dst;
    const void *src;     /* COPY: own says that it is a copy of what the caller had */
    size_t bytes;
    int own;
    CUevent_st *event;
    struct list *graph;
} command;

struct list {
    command *at;
    uint32_t count, room;
};

int list_add(list *l, const command *c); /* 0: no memory; what the command owns stays the caller's */
int list_copy(list *to, const list *from);
void list_free(list *l);

typedef struct stream {
    list queue, *capture; /* capture: where commands go instead */
    uint32_t next;
    uint64_t order, fail_launch, launches; /* fail_launch: that kernel fails, 0 = none */
    int sticky;                            /* the failure that has lost the context */
} stream;

int stream_add(stream *s, const command *c); /* 0: no memory */
int stream_step(stream *s);                  /* executes one command; 0: there is none */
void stream_drop(stream *s);
#endif
