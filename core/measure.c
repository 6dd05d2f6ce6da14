/* measure - see measure.h. */
#include "measure.h"

#include "port.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

measure measure_of(double *sample, uint32_t count)
{
    qsort(sample, count, sizeof *sample, order);
    return (measure){.median = (sample[(count - 1) / 2] + sample[count / 2]) / 2,
                     .low = sample[0],
                     .high = sample[count - 1]};
}

/* The device's answers are ids that can be fed, and nobody wants to stop. */
static int32_t go_on(const session *s, const uint32_t *id, uint32_t count, fak_error *e)
{
    for (uint32_t i = 0; i < count; i++)
        if (id[i] >= s->m->vocab)
            return status_set(e, STATUS_NAN,
                              "backend %s answers id %" PRIu32 " of a vocabulary of %" PRIu32
                              ": its logits hold a NaN",
                              s->program.side[SIDE_DEVICE]->from->name, id[i], s->m->vocab);
    if (!s->stop || !s->stop(s->stop_self)) return FAK_OK;
    return status_set(e, FAK_E_CANCELLED, "stopped while measuring");
}

int32_t measure_prefill(session *s, const uint32_t *id, uint32_t count, double *seconds,
                        fak_error *e)
{
    uint32_t slot, answer;
    fak_error later;
    int32_t rc = kv_take(&s->kv, &slot, e);
    if (rc) return rc;
    double start = port_seconds();
    rc = session_feed(s, slot, id, count, FAK_WANT_ARGMAX, 0, &answer, e);
    *seconds = port_seconds() - start;
    if (!rc) rc = go_on(s, &answer, 1, e);
    int32_t given = kv_give(&s->kv, slot, rc ? &later : e);
    return rc ? rc : given;
}

int32_t decoding_begin(decoding *d, session *s, const uint32_t *id, uint32_t batch, uint32_t depth,
                       fak_error *e)
{
    uint32_t *ids = calloc(3ul * batch, sizeof *ids);
    *d = (decoding){.s = s, .slot = ids, .depth = depth};
    if (!ids) return status_memory(e, "a batch", 12ull * batch);
    d->first = ids + batch;
    d->next = d->first + batch;
    int32_t rc = FAK_OK;
    for (uint32_t b = 0; !rc && b < batch; b++) {
        rc = kv_take(&s->kv, d->slot + b, e);
        if (rc) break;
        d->batch++;
        d->first[b] = id[b];
        if (depth) rc = session_feed(s, d->slot[b], id, depth, FAK_WANT_ARGMAX, 0, d->first + b, e);
        if (!rc) rc = go_on(s, d->first + b, 1, e);
    }
    return rc;
}

int32_t decoding_run(decoding *d, uint32_t steps, double *seconds, fak_error *e)
{
    int32_t rc = FAK_OK;
    for (uint32_t b = 0; b < d->batch; b++) kv_truncate(&d->s->kv, d->slot[b], d->depth);
    memcpy(d->next, d->first, d->batch * sizeof *d->next);
    double start = port_seconds();
    for (uint32_t i = 0; !rc && i < steps; i++) {
        rc = session_step_batch(d->s, d->slot, d->next, d->batch, FAK_WANT_ARGMAX, d->next, e);
        if (!rc) rc = go_on(d->s, d->next, d->batch, e);
    }
    *seconds = port_seconds() - start;
    return rc;
}

int32_t decoding_end(decoding *d, fak_error *e)
{
    int32_t rc = FAK_OK;
    fak_error later;
    for (uint32_t b = 0; b < d->batch; b++) {
        int32_t given = kv_give(&d->s->kv, d->slot[b], rc ? &later : e);
        if (!rc) rc = given;
    }
    free(d->slot);
    *d = (decoding){0};
    return rc;
}

int32_t measure_ops(session *s, const uint32_t *id, uint64_t by_id[SIDES][EXEC_IDS], fak_error *e)
{
    uint32_t slot, answer;
    fak_error later;
    int32_t rc = kv_take(&s->kv, &slot, e);
    if (rc) return rc;
    rc = session_feed(s, slot, id, MEASURE_PROMPT, FAK_WANT_ARGMAX, 0, &answer, e);
    memcpy(by_id, s->exec.by_id, sizeof s->exec.by_id);
    if (!rc) rc = session_feed(s, slot, id, 1, FAK_WANT_ARGMAX, 0, &answer, e);
    for (uint32_t i = 0; i < SIDES * EXEC_IDS; i++)
        by_id[i / EXEC_IDS][i % EXEC_IDS] =
            s->exec.by_id[i / EXEC_IDS][i % EXEC_IDS] - by_id[i / EXEC_IDS][i % EXEC_IDS];
    int32_t given = kv_give(&s->kv, slot, rc ? &later : e);
    return rc ? rc : given;
}
