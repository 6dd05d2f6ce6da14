/* stream - see stream.h. */
#include "stream.h"

#include "host/driver.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

int list_add(list *l, const command *c)
{
    if (l->count == l->room) {
        uint32_t wider = l->room ? 2 * l->room : 16;
        command *at = static_cast<command *>(realloc(l->at, wider * sizeof *at));
        if (!at) return 0;
        l->at = at;
        l->room = wider;
    }
    l->at[l->count++] = *c;
    return 1;
}

static void free_command(const command *c)
{
    free(c->l);
    if (c->own) free(const_cast<void *>(c->src));
}

void list_free(list *l)
{
    for (uint32_t i = 0; i < l->count; i++) free_command(&l->at[i]);
    free(l->at);
    *l = {};
}

/* Of a captured list: launches only. */
int list_copy(list *to, const list *from)
{
    *to = {};
    for (uint32_t i = 0; i < from->count; i++) {
        command c = from->at[i];
        c.l = static_cast<launch *>(malloc(sizeof *c.l));
        if (c.l) *c.l = *from->at[i].l;
        if (c.l && list_add(to, &c)) continue;
        free(c.l);
        list_free(to);
        return 0;
    }
    return 1;
}

int stream_add(stream *s, const command *c)
{
    return list_add(s->capture ? s->capture : &s->queue, c);
}

static void run_launch(stream *s, const launch *l)
{
    const char *torn;
    if (++s->launches == s->fail_launch) {
        s->sticky = CU_ILLEGAL_ADDRESS;
        return;
    }
    fiber_run(l, s->order);
    if ((torn = memory_torn())) fiber_die(torn);
}

static void run(stream *s, const command *c)
{
    if (c->kind == command::EVENT) c->event->passed++; /* also when lost: who waits must go on */
    if (s->sticky) return;
    if (c->kind == command::LAUNCH) run_launch(s, c->l);
    if (c->kind == command::COPY) memcpy(c->dst, c->src, c->bytes);
    for (uint32_t i = 0; c->kind == command::REPLAY && i < c->graph->count && !s->sticky; i++)
        run(s, &c->graph->at[i]);
}

int stream_step(stream *s)
{
    if (s->next == s->queue.count) return 0;
    command c = s->queue.at[s->next++];
    run(s, &c);
    free_command(&c);
    if (s->next == s->queue.count) {
        free(s->queue.at);
        s->queue = {};
        s->next = 0;
    }
    return 1;
}

void stream_drop(stream *s)
{
    for (; s->next < s->queue.count; s->next++) free_command(&s->queue.at[s->next]);
    free(s->queue.at);
    s->queue = {};
    s->next = 0;
}
