/* rows - what crosses: up through a ring of pinned slots, down through one piece of pinned memory; copies
 * are in the stream's order, and nobody waits for them but a full ring and wait. */
#include "cuda.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

/* ---- up ---- */

/* The next slot, when the copy that had it is over. */
int32_t cuda_up_slot(fak_program *p, char **slot, fak_error *e)
{
    up_ring *r = &p->up;
    uint32_t i = (uint32_t)(r->next % r->slots);
    int32_t s = r->next < r->slots ? FAK_OK : gpu_event_query(p->d->g, r->event[i], e);
    if (s == FAK_PENDING) s = gpu_event_wait(p->d->g, r->event[i], e);
    *slot = r->base + i * r->slot_bytes;
    return s;
}

int32_t cuda_up_send(fak_program *p, gpu_ptr to, uint64_t bytes, fak_error *e)
{
    up_ring *r = &p->up;
    uint32_t i = (uint32_t)(r->next % r->slots);
    int32_t s = gpu_up(p->d->g, to, r->base + i * r->slot_bytes, bytes, e);
    if (!s) s = gpu_event_record(p->d->g, r->event[i], e);
    r->next += !s;
    gpu_count_bytes(p->d->g, bytes, 0);
    return s;
}

int32_t cuda_up(fak_program *p, gpu_ptr to, const void *from, uint64_t bytes, fak_error *e)
{
    int32_t s = FAK_OK;
    for (uint64_t at = 0, n; !s && at < bytes; at += n) {
        char *slot;
        n = bytes - at < p->up.slot_bytes ? bytes - at : p->up.slot_bytes;
        s = cuda_up_slot(p, &slot, e);
        if (!s) memcpy(slot, (const char *)from + at, n);
        if (!s) s = cuda_up_send(p, to + at, n, e);
    }
    return s;
}

/* ---- down ---- */

/* Under the lock: hands over what has arrived, up to a ticket. */
static void hand_over(fak_program *p, uint64_t ticket, int lost)
{
    while (p->told < ticket) {
        const reading *r = &p->ring[++p->told % READS];
        if (!lost) memcpy(r->dst, p->down + r->at, r->bytes);
    }
}

static int32_t settle(fak_program *p, uint64_t ticket, int32_t s)
{
    if (s == FAK_PENDING) return s;
    pthread_mutex_lock(&p->lock);
    hand_over(p, ticket, s != FAK_OK);
    pthread_mutex_unlock(&p->lock);
    return s;
}

static int is_told(fak_program *p, uint64_t ticket)
{
    pthread_mutex_lock(&p->lock);
    int told = ticket <= p->told;
    pthread_mutex_unlock(&p->lock);
    return told;
}

static int32_t poll(fak_program *p, uint64_t ticket, fak_error *e)
{
    if (is_told(p, ticket)) return gpu_lost(p->d->g, e);
    return settle(p, ticket, gpu_event_query(p->d->g, p->event[ticket % READS], e));
}

static int64_t milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int32_t cuda_wait(fak_program *p, uint64_t ticket, uint32_t timeout_ms, fak_error *e)
{
    const struct timespec nap = {0, 50000};
    int64_t end = milliseconds() + timeout_ms;
    int32_t s = poll(p, ticket, e);
    if (s != FAK_PENDING || !timeout_ms) return s;
    if (timeout_ms == FAK_FOREVER)
        return settle(p, ticket, gpu_event_wait(p->d->g, p->event[ticket % READS], e));
    while ((s = poll(p, ticket, e)) == FAK_PENDING && milliseconds() < end)
        nanosleep(&nap, NULL); /* an event has no wait with a limit */
    return s;
}

/* A piece that fits into the ring; the oldest are handed over early where it is full: dst is lent. */
static int32_t down_piece(fak_program *p, gpu_ptr from, char *dst, uint64_t bytes, fak_error *e)
{
    uint64_t ticket = p->tickets + 1;
    int busy = ticket > READS - 1 && !is_told(p, ticket - (READS - 1));
    int full = busy || p->staged + bytes > p->down_bytes;
    int32_t s = full ? cuda_wait(p, p->tickets, FAK_FOREVER, e) : gpu_lost(p->d->g, e);
    if (s) return s;
    if (full) p->staged = 0;
    s = gpu_down(p->d->g, p->down + p->staged, from, bytes, e);
    if (!s) s = gpu_event_record(p->d->g, p->event[ticket % READS], e);
    if (s) return s;
    pthread_mutex_lock(&p->lock);
    p->ring[ticket % READS] = (reading){dst, p->staged, bytes};
    p->tickets = ticket;
    pthread_mutex_unlock(&p->lock);
    p->staged += (bytes + 255) & ~255ull;
    return FAK_OK;
}

int32_t cuda_down(fak_program *p, gpu_ptr from, void *dst, uint64_t bytes, fak_error *e)
{
    int32_t s = FAK_OK;
    for (uint64_t at = 0, n; !s && at < bytes; at += n) {
        n = bytes - at < p->down_bytes / 2 ? bytes - at : p->down_bytes / 2;
        s = down_piece(p, from + at, (char *)dst + at, n, e);
    }
    gpu_count_bytes(p->d->g, 0, bytes);
    return s;
}

/* ---- values ---- */

static int32_t find_value(const fak_program *p, uint32_t value, fak_error *e)
{
    if (value < p->values && p->place_of[value]) return FAK_OK;
    return cuda_fail(e, FAK_E_ARGUMENT, value, "value %" PRIu32 " has no rows here", value);
}

int32_t cuda_read(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                  uint64_t *ticket, fak_error *e)
{
    int32_t s = find_value(p, value, e);
    uint64_t row = s ? 0 : p->value[value].cols * 4ull;
    if (!s) s = cuda_down(p, p->at[value] + first * row, dst, rows * row, e);
    *ticket = p->tickets;
    return s;
}

int32_t cuda_write(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, const void *src,
                   fak_error *e)
{
    int32_t s = find_value(p, value, e);
    uint64_t row = s ? 0 : p->value[value].cols * 4ull;
    return s ? s : cuda_up(p, p->at[value] + first * row, src, rows * row, e);
}
