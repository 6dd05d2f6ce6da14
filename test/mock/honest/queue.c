/* queue - what calls record, a worker thread executes; and how failures are told. */
#include "honest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the worker ---- */

/* Ids that the last step left become this step's; then nothing of that step is left. */
static void run_begin(fak_program *p, uint32_t slot)
{
    char *block = p->d->block, *at = block + p->steps + slot * p->size.step;
    fak_step *step = (fak_step *)(void *)at;
    uint32_t tokens = (uint32_t)honest_align(step->bytes); /* behind the copy: ids, then pages */
    if (step->flags & FAK_TOKENS_FROM_ARGMAX && p->embeds) {
        memcpy(at + tokens, block + p->at[p->argmax], step->rows * 4ul);
        step->token = (fak_array){tokens, step->rows, 4};
    }
    if (p->acts) memset(block + p->acts, POISON, p->size.acts + p->size.temp + p->size.scratch);
    p->step = step;
    p->step_pages = (const uint32_t *)(const void *)(at + tokens + p->limits.rows * 4ul);
}

static void run_rows(const job *j)
{
    const fak_program *p = j->p;
    uint64_t row = p->value[j->a].cols * 4ull;
    char *at = p->d->block + p->at[j->a] + j->b * row;
    if (j->kind == JOB_READ)
        memcpy(j->host, at, j->c * row);
    else
        memcpy(at, j->host, j->c * row);
}

static void run_job(const job *j)
{
    switch (j->kind) {
    case JOB_BEGIN:
        run_begin(j->p, j->a);
        break;
    case JOB_OPS:
        honest_ops(j->p, j->a, j->b);
        break;
    case JOB_READ:
    case JOB_WRITE:
        run_rows(j);
        break;
    case JOB_COPY:
        honest_copy_page(j->p, j->a, j->b);
        break;
    case JOB_EVICT:
        honest_evict(j->p, j->kv);
        break;
    case JOB_KV_READ:
    case JOB_KV_WRITE:
        honest_move_rows(j->p, j->kv, j->kind == JOB_KV_WRITE);
        break;
    case JOB_QUIT:
        break;
    }
}

static void free_job(const job *j)
{
    if (j->kind == JOB_WRITE) free(j->host);
    if (j->kind == JOB_KV_WRITE) free(j->kv->k); /* v lies behind it */
    free(j->kv);
}

static failure *open_failure(fak_program *p)
{
    failure *f = p->failures ? &p->failed[(p->failures - 1) % FAILURES] : NULL;
    return f && f->to == UINT64_MAX ? f : NULL;
}

/* Under the lock: is this job not to be executed?  It is number d->done + 1. */
static int skipped(fak_device *d, const job *j)
{
    uint64_t number = d->done + 1;
    if (j->submit >= d->lose && !d->lost.code && j->kind != JOB_QUIT) {
        honest_fail(&d->lost, FAK_E_LOST, FAK_NO_INDEX, "the device was lost at submit %" PRIu64,
                    j->submit);
        d->lost_at = number;
    }
    if (d->lost.code) return 1;
    if (j->submit == d->fail_submit) {
        d->failing = 1;
        d->fail_submit = 0;
    }
    failure *f = j->p ? open_failure(j->p) : NULL;
    if (f && j->kind == JOB_BEGIN && j->b) { /* b: the caller has been told */
        f->to = number - 1;
        f = NULL;
    }
    return f && j->kind < JOB_COPY;
}

/* The first half of the ops, then nothing more: what they have written is there. */
static void fail_half_way(fak_device *d, const job *j)
{
    pthread_mutex_unlock(&d->lock);
    honest_ops(j->p, j->a, j->b / 2);
    pthread_mutex_lock(&d->lock);
    failure *f = &j->p->failed[j->p->failures++ % FAILURES];
    *f = (failure){.from = d->done + 1, .to = UINT64_MAX};
    honest_fail(&f->why, FAK_E_STEP, j->a + j->b / 2, "submit %" PRIu64 " failed at op %" PRIu32,
                j->submit, j->a + j->b / 2);
    d->failing = 0;
}

static void *work(void *self)
{
    fak_device *d = self;
    pthread_mutex_lock(&d->lock);
    for (int quit = 0; !quit;) {
        while (d->done == d->submitted || (d->hold && d->done >= d->allowed))
            pthread_cond_wait(&d->moved, &d->lock);
        job j = d->queue[d->done % QUEUE];
        int skip = skipped(d, &j);
        if (!skip && j.kind == JOB_OPS && d->failing) {
            fail_half_way(d, &j);
        } else if (!skip) {
            pthread_mutex_unlock(&d->lock);
            run_job(&j);
            pthread_mutex_lock(&d->lock);
        }
        free_job(&j);
        quit = j.kind == JOB_QUIT;
        d->done++;
        pthread_cond_broadcast(&d->moved);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* ---- the caller ---- */

/* Under the lock: blocks until job `ticket` is done. */
static void block(fak_device *d, uint64_t ticket)
{
    if (d->done >= ticket) return;
    d->stats.host_waits++;
    if (d->allowed < ticket) d->allowed = ticket;
    pthread_cond_broadcast(&d->moved);
    while (d->done < ticket) pthread_cond_wait(&d->moved, &d->lock);
}

void honest_submit(fak_device *d)
{
    pthread_mutex_lock(&d->lock);
    if (d->submitted < d->recorded) {
        for (uint64_t i = d->submitted; i < d->recorded; i++)
            if (d->queue[i % QUEUE].kind == JOB_OPS) d->stats.dispatches += d->queue[i % QUEUE].b;
        d->submitted = d->recorded;
        d->stats.submits++;
        pthread_cond_broadcast(&d->moved);
    }
    pthread_mutex_unlock(&d->lock);
}

void honest_fence(fak_device *d, uint64_t ticket)
{
    honest_submit(d);
    pthread_mutex_lock(&d->lock);
    block(d, ticket);
    pthread_mutex_unlock(&d->lock);
}

uint64_t honest_record(fak_device *d, const job *j)
{
    if (d->recorded >= QUEUE) {
        pthread_mutex_lock(&d->lock);
        int full = d->recorded - d->done == QUEUE;
        pthread_mutex_unlock(&d->lock);
        if (full) honest_fence(d, d->recorded - QUEUE + 1);
    }
    pthread_mutex_lock(&d->lock);
    uint64_t submit = d->stats.submits + 1;
    pthread_mutex_unlock(&d->lock);
    d->queue[d->recorded % QUEUE] = *j;
    d->queue[d->recorded % QUEUE].submit = submit;
    return ++d->recorded;
}

int32_t honest_lost(fak_device *d, fak_error *e)
{
    pthread_mutex_lock(&d->lock);
    int32_t s = d->lost.code;
    if (s) *e = d->lost;
    pthread_mutex_unlock(&d->lock);
    return s;
}

/* Under the lock: how a job that is done ended. */
static int32_t outcome(fak_program *p, uint64_t ticket, fak_error *e)
{
    fak_device *d = p->d;
    uint32_t kept = p->failures < FAILURES ? p->failures : FAILURES;
    if (d->lost.code && ticket >= d->lost_at) {
        *e = d->lost;
        return FAK_E_LOST;
    }
    for (uint32_t i = p->failures - kept; i < p->failures; i++) {
        const failure *f = &p->failed[i % FAILURES];
        if (ticket < f->from || ticket > f->to) continue;
        if (f->to == UINT64_MAX) p->told = 1;
        *e = f->why;
        return FAK_E_STEP;
    }
    return FAK_OK;
}

int32_t honest_wait(fak_program *p, uint64_t ticket, uint32_t timeout_ms, fak_error *e)
{
    fak_device *d = p->d;
    struct timespec until;
    pthread_mutex_lock(&d->lock);
    if (d->done < ticket && timeout_ms == FAK_FOREVER) block(d, ticket);
    if (d->done < ticket && timeout_ms) {
        d->stats.host_waits++;
        if (d->allowed < ticket) d->allowed = ticket;
        pthread_cond_broadcast(&d->moved);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += (time_t)(timeout_ms / 1000);
        until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        for (int rc = 0; d->done < ticket && !rc;)
            rc = pthread_cond_timedwait(&d->moved, &d->lock, &until);
    }
    int32_t s = d->done < ticket ? FAK_PENDING : outcome(p, ticket, e);
    pthread_mutex_unlock(&d->lock);
    return s;
}

/* ---- start and stop ---- */

int32_t honest_start(fak_device *d, fak_error *e)
{
    pthread_condattr_t attributes;
    int rc = pthread_mutex_init(&d->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (!rc) rc = pthread_cond_init(&d->moved, &attributes);
    if (!rc) rc = pthread_create(&d->worker, NULL, work, d);
    pthread_condattr_destroy(&attributes);
    if (!rc) return FAK_OK;
    pthread_cond_destroy(&d->moved);
    pthread_mutex_destroy(&d->lock);
    return honest_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no thread for the device: %s", strerror(rc));
}

void honest_stop(fak_device *d)
{
    honest_fence(d, honest_record(d, &(job){.kind = JOB_QUIT}));
    pthread_join(d->worker, NULL);
    pthread_cond_destroy(&d->moved);
    pthread_mutex_destroy(&d->lock);
}
