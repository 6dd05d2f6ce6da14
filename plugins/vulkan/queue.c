/* queue - command buffers collect until something needs them: then one submit takes them all.  Rings of
 * slots carry rows and steps between host memory and the device's. */
#include "program.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUED = 1024, STAGES = 4, EAGER = 64 };

/* ---- making ---- */

int32_t vk_commands(fak_program *p, VkCommandBuffer *cb, uint32_t n, fak_error *e)
{
    const VkCommandBufferAllocateInfo info = {.sType =
                                                  VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                              .commandPool = p->queue.pool,
                                              .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                              .commandBufferCount = n};
    return vk_result(p->d, vkAllocateCommandBuffers(p->d->vk, &info, cb), "command buffers", e);
}

static int32_t make_ring(fak_program *p, ring *r, uint32_t count, uint64_t each, const char *what,
                         fak_error *e)
{
    r->slot = calloc(count, sizeof *r->slot);
    if (!r->slot) return vk_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for %s", what);
    r->count = count;
    r->each = each;
    int32_t s = each ? vk_take_host(p->d, &r->mem, count * each, what, e) : FAK_OK;
    for (uint32_t i = 0; !s && i < count; i++) {
        r->slot[i].at = i * each;
        r->slot[i].map = each ? (char *)r->mem.map + i * each : NULL;
        s = vk_commands(p, &r->slot[i].cb, 1, e);
    }
    return s;
}

/* Steps that may be begun and not yet done, and one that is being written. */
static uint32_t steps_of(const fak_program *p)
{
    return (p->limits.steps ? p->limits.steps : 1) + 1;
}

uint64_t vk_queue_bytes(const fak_program *p)
{
    return STAGES * p->d->opt.stage + steps_of(p) * 4ull * p->words.state +
           (STAGES + EAGER + steps_of(p)) * (uint64_t)(sizeof(ring_part) + sizeof(ring_part *)) +
           QUEUED * (uint64_t)(sizeof(VkCommandBuffer) + sizeof(uint64_t));
}

int32_t vk_queue_make(fak_program *p, fak_error *e)
{
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                          .queueFamilyIndex = p->d->adapter.family};
    cb_queue *q = &p->queue;
    int32_t s =
        vk_result(p->d, vkCreateCommandPool(p->d->vk, &pool, NULL, &q->pool), "a command pool", e);
    q->most = QUEUED;
    q->cb = calloc(QUEUED, sizeof *q->cb);
    q->work = calloc(QUEUED, sizeof *q->work);
    q->open = calloc(STAGES + EAGER + steps_of(p), sizeof(ring_part *));
    if (!s && (!q->cb || !q->work || !q->open))
        s = vk_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for a queue");
    if (!s) s = make_ring(p, &q->stage, STAGES, p->d->opt.stage, "the ring for rows", e);
    if (!s) s = make_ring(p, &q->step, steps_of(p), 4ull * p->words.state, "the ring for steps", e);
    return s ? s : make_ring(p, &q->eager, EAGER, 0, "command buffers", e);
}

void vk_queue_free(fak_program *p)
{
    ring *all[] = {&p->queue.stage, &p->queue.step, &p->queue.eager};
    for (int i = 0; i < 3; i++) {
        vk_give_block(p->d, &all[i]->mem);
        free(all[i]->slot);
    }
    vkDestroyCommandPool(p->d->vk, p->queue.pool, NULL);
    free(p->queue.cb);
    free(p->queue.work);
    free(p->queue.open);
}

/* ---- recording ---- */

void vk_barrier(VkCommandBuffer cb)
{
    const VkAccessFlags shader = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;
    const VkAccessFlags transfer = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
    const VkPipelineStageFlags stages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT |
                                        VK_PIPELINE_STAGE_TRANSFER_BIT |
                                        VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT;
    const VkMemoryBarrier all = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                 .srcAccessMask = shader | transfer,
                                 .dstAccessMask = shader | transfer | VK_ACCESS_UNIFORM_READ_BIT |
                                                  VK_ACCESS_INDIRECT_COMMAND_READ_BIT};
    vkCmdPipelineBarrier(cb, stages, stages, 0, 1, &all, 0, NULL, 0, NULL);
}

int32_t vk_commands_begin(fak_device *d, VkCommandBuffer cb, int once, fak_error *e)
{
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                           .flags =
                                               once ? VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT
                                                    : VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
    int32_t s = vk_result(d, vkBeginCommandBuffer(cb, &info), "recording", e);
    if (!s) vk_barrier(cb);
    return s;
}

int32_t vk_commands_end(fak_device *d, VkCommandBuffer cb, fak_error *e)
{
    return vk_result(d, vkEndCommandBuffer(cb), "recording", e);
}

/* ---- submitting ---- */

/* What tests ask for: the driver's answer in place of a submit. */
static VkResult planted(const fak_device *d, uint64_t number)
{
    if (number >= d->opt.lose) return VK_ERROR_DEVICE_LOST;
    return number == d->opt.fail_submit ? VK_ERROR_OUT_OF_DEVICE_MEMORY : VK_SUCCESS;
}

/* The first n of what is queued. */
static int32_t submit(fak_device *d, const cb_queue *q, uint32_t n, fak_error *e)
{
    const uint64_t value = d->submitted + 1;
    const VkTimelineSemaphoreSubmitInfo timeline = {
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .signalSemaphoreValueCount = 1,
        .pSignalSemaphoreValues = &value};
    const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .pNext = &timeline,
                               .commandBufferCount = n,
                               .pCommandBuffers = q->cb,
                               .signalSemaphoreCount = 1,
                               .pSignalSemaphores = &d->timeline};
    pthread_mutex_lock(&d->lock);
    uint64_t number = ++d->stats.submits;
    pthread_mutex_unlock(&d->lock);
    VkResult r = planted(d, number);
    if (!r) r = vkQueueSubmit(d->queue, 1, &info, VK_NULL_HANDLE);
    if (!r) d->submitted = value;
    return vk_result(d, r, "a submit", e);
}

/* How many of what is queued one submit takes: a watchdog ends what works too long. */
static uint32_t batch(const cb_queue *q, uint64_t most)
{
    uint64_t work = q->work[0];
    uint32_t n = 1;
    while (n < q->count && work + q->work[n] <= most) work += q->work[n++];
    return n;
}

int32_t vk_flush(fak_program *p, fak_error *e)
{
    cb_queue *q = &p->queue;
    int32_t s = vk_lost(p->d, e);
    if (s || !q->count) return s;
    while (q->count) {
        uint32_t n = batch(q, p->d->opt.work);
        s = submit(p->d, q, n, e);
        if (s) return s; /* what was queued stays queued: it may be submitted yet */
        q->count -= n;
        memmove(q->cb, q->cb + n, q->count * sizeof *q->cb);
        memmove(q->work, q->work + n, q->count * sizeof *q->work);
    }
    pthread_mutex_lock(&p->d->lock);
    while (q->opens) q->open[--q->opens]->busy = p->d->submitted;
    pthread_mutex_unlock(&p->d->lock);
    return FAK_OK;
}

int32_t vk_enqueue(fak_program *p, VkCommandBuffer cb, uint32_t dispatches, uint64_t work,
                   fak_error *e)
{
    cb_queue *q = &p->queue;
    int32_t s = q->count == q->most ? vk_flush(p, e) : vk_lost(p->d, e);
    if (s) return s;
    q->work[q->count] = work;
    q->cb[q->count++] = cb;
    vk_count(p->d, &p->d->stats.dispatches, dispatches);
    return FAK_OK;
}

/* ---- waiting ---- */

/* Under the lock. */
static void deliver(ring_part *t)
{
    if (t->dst) vk_widen(t->dtype, t->bytes / vk_element_bytes(t->dtype), t->map, t->dst);
    t->dst = NULL;
}

/* The timeline was seen at `value`; or is that known already? */
static void see(fak_device *d, uint64_t value)
{
    pthread_mutex_lock(&d->lock);
    if (value > d->done) d->done = value;
    pthread_mutex_unlock(&d->lock);
}

static int seen(fak_device *d, uint64_t value)
{
    pthread_mutex_lock(&d->lock);
    int is = value <= d->done;
    pthread_mutex_unlock(&d->lock);
    return is;
}

static int32_t wait_for(fak_device *d, uint64_t value, uint64_t ns, fak_error *e)
{
    const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &d->timeline,
                                      .pValues = &value};
    uint64_t now = 0;
    int32_t s = vk_lost(d, e);
    if (s || seen(d, value)) return s;
    s = vk_result(d, vkGetSemaphoreCounterValue(d->vk, d->timeline, &now), "a wait", e);
    if (!s && now < value && !ns) return FAK_PENDING;
    if (!s && now < value) {
        vk_count(d, &d->stats.host_waits, 1);
        VkResult r = vkWaitSemaphores(d->vk, &info, ns);
        if (r == VK_TIMEOUT) return FAK_PENDING;
        s = vk_result(d, r, "a wait", e);
    }
    if (!s) see(d, value);
    return s;
}

int32_t vk_wait(fak_program *p, uint64_t ticket, uint32_t timeout_ms, fak_error *e)
{
    uint64_t ns = timeout_ms == FAK_FOREVER ? UINT64_MAX : timeout_ms * 1000000ull;
    ring *r = &p->queue.stage;
    int32_t s = wait_for(p->d, ticket, ns, e);
    if (s) return s;
    pthread_mutex_lock(&p->d->lock);
    for (uint32_t i = 0; i < r->count; i++)
        if (r->slot[i].busy <= ticket) deliver(&r->slot[i]);
    pthread_mutex_unlock(&p->d->lock);
    return FAK_OK;
}

/* ---- slots ---- */

int32_t vk_slot_next(fak_program *p, ring *r, ring_part **out, fak_error *e)
{
    ring_part *t = &r->slot[r->next];
    int32_t s = t->busy == UNSUBMITTED ? vk_flush(p, e) : vk_lost(p->d, e);
    if (!s && t->busy != UNSUBMITTED) s = wait_for(p->d, t->busy, UINT64_MAX, e);
    if (s) return s;
    pthread_mutex_lock(&p->d->lock);
    deliver(t);
    if (t->busy != UNSUBMITTED) p->queue.open[p->queue.opens++] = t;
    t->busy = UNSUBMITTED;
    pthread_mutex_unlock(&p->d->lock);
    r->next = (r->next + 1) % r->count;
    *out = t;
    return FAK_OK;
}

int32_t vk_slot_begin(fak_program *p, ring *r, ring_part **out, fak_error *e)
{
    int32_t s = vk_slot_next(p, r, out, e);
    return s ? s : vk_commands_begin(p->d, (*out)->cb, 1, e);
}

int32_t vk_slot_end(fak_program *p, ring_part *t, uint32_t dispatches, uint64_t work, fak_error *e)
{
    int32_t s = vk_commands_end(p->d, t->cb, e);
    return s ? s : vk_enqueue(p, t->cb, dispatches, work, e);
}

void vk_slot_deliver(fak_program *p, ring_part *t, void *dst, uint64_t bytes, uint32_t dtype)
{
    pthread_mutex_lock(&p->d->lock);
    t->dst = dst;
    t->bytes = bytes;
    t->dtype = dtype;
    pthread_mutex_unlock(&p->d->lock);
}

void vk_slot_forget(fak_program *p, const void *dst, uint64_t bytes)
{
    const char *from = dst;
    pthread_mutex_lock(&p->d->lock);
    for (uint32_t i = 0; i < p->queue.stage.count; i++) {
        ring_part *t = &p->queue.stage.slot[i];
        const char *to = t->dst;
        if (to && to >= from && to < from + bytes) t->dst = NULL;
    }
    pthread_mutex_unlock(&p->d->lock);
}
