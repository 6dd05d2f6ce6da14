/* record - dispatches into command buffers: once for each shape of a step, or at each call. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

enum { TOUCHED = 256, HEAD_BYTES = 32 };

enum shape vk_shape(uint32_t rows)
{
    return rows <= 1 ? SHAPE_ONE : rows <= FEW_ROWS ? SHAPE_FEW : SHAPE_MANY;
}

static uint32_t shapes_of(uint32_t rows_most)
{
    return (uint32_t)vk_shape(rows_most) + 1;
}

/* ---- pipelines and descriptor sets ---- */

static VkDescriptorBufferInfo buffer_of(const bind *b)
{
    return (VkDescriptorBufferInfo){b->in->at[b->place.block].vk, b->place.at, b->place.bytes};
}

static void write_set(const fak_program *p, const job *j)
{
    VkDescriptorBufferInfo at[BINDINGS + 1];
    VkWriteDescriptorSet w[BINDINGS + 1];
    bind head = {&p->store, j->side ? p->side : p->step};
    uint32_t n = 0;
    head.place.bytes = HEAD_BYTES;
    for (uint32_t i = 0; i <= BINDINGS; i++) {
        const bind *b = i ? &j->bind[i - 1] : &head;
        if (!b->in) continue;
        at[n] = buffer_of(b);
        w[n] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                      .dstSet = j->set,
                                      .dstBinding = i,
                                      .descriptorCount = 1,
                                      .descriptorType = i ? VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
                                                          : VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER,
                                      .pBufferInfo = &at[n]};
        n++;
    }
    vkUpdateDescriptorSets(p->d->vk, n, w, 0, NULL);
}

static int32_t make_pool(fak_program *p, fak_error *e)
{
    const VkDescriptorPoolSize size[] = {
        {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, p->job_count * BINDINGS},
        {VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER, p->job_count}};
    const VkDescriptorPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                             .maxSets = p->job_count,
                                             .poolSizeCount = 2,
                                             .pPoolSizes = size};
    if (!p->job_count) return FAK_OK;
    return vk_result(p->d, vkCreateDescriptorPool(p->d->vk, &info, NULL, &p->sets),
                     "a descriptor pool", e);
}

int32_t vk_bind(fak_program *p, fak_error *e)
{
    int32_t s = make_pool(p, e);
    for (uint32_t i = 0; !s && i < p->job_count; i++) {
        job *j = &p->jobs[i];
        uint32_t n = j->side ? 1 : shapes_of(j->c.which ? p->limits.wanted : p->limits.rows);
        uint32_t of = j->side ? ALL_SHAPES : j->shapes;
        const VkDescriptorSetAllocateInfo info = {
            .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
            .descriptorPool = p->sets,
            .descriptorSetCount = 1,
            .pSetLayouts = &p->d->set};
        for (uint32_t k = 0; !s && k < n; k++)
            if (of >> k & 1) s = vk_pipeline(p->d, &j->kernel[k], &j->pipeline[k], e);
        if (!s) s = vk_result(p->d, vkAllocateDescriptorSets(p->d->vk, &info, &j->set), "sets", e);
        if (!s) write_set(p, j);
    }
    return s;
}

/* ---- hazards: what was touched since the last barrier ---- */

typedef struct touched {
    uint64_t from, to;
    uint32_t block;
    int written;
} touched;
typedef struct hazards {
    touched at[TOUCHED];
    uint32_t n;
} hazards;

static uint32_t touches(const fak_program *p, const job *j, touched out[BINDINGS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < BINDINGS; i++) {
        const bind *b = &j->bind[i];
        if (b->in != &p->store) continue; /* weights are only read */
        out[n++] = (touched){b->place.at, b->place.at + b->place.bytes, b->place.block,
                             (int)(j->writes >> i & 1)};
    }
    return n;
}

static int conflict(const hazards *h, const touched *t, uint32_t n)
{
    for (uint32_t i = 0; i < h->n; i++)
        for (uint32_t k = 0; k < n; k++) {
            const touched *a = &h->at[i], *b = &t[k];
            if ((a->written || b->written) && a->block == b->block && a->from < b->to &&
                b->from < a->to)
                return 1;
        }
    return h->n + n > TOUCHED;
}

static void dispatch(const fak_program *p, VkCommandBuffer cb, const job *j, enum shape shape)
{
    VkPipelineLayout layout = p->d->layout;
    const place *step = j->side ? &p->side : &p->step;
    uint64_t grid_at = step->at + 4 * (GRID_WORD + 4 * j->grid[shape]);
    vkCmdBindPipeline(cb, VK_PIPELINE_BIND_POINT_COMPUTE, p->d->pipelines[j->pipeline[shape]].vk);
    vkCmdBindDescriptorSets(cb, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, &j->set, 0, NULL);
    vkCmdPushConstants(cb, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof j->c, &j->c);
    vkCmdDispatchIndirect(cb, p->store.at[step->block].vk, grid_at);
}

uint32_t vk_record(fak_program *p, VkCommandBuffer cb, uint32_t first, uint32_t end,
                   enum shape shape)
{
    hazards h = {.n = 0};
    uint32_t count = 0;
    for (uint32_t i = first; i < end; i++) {
        if (!(p->jobs[i].shapes >> shape & 1)) continue;
        touched t[BINDINGS];
        uint32_t n = touches(p, &p->jobs[i], t);
        if (p->d->opt.barriers && conflict(&h, t, n)) {
            vk_barrier(cb);
            h.n = 0;
        }
        if (h.n + n > TOUCHED) h.n = 0;
        memcpy(h.at + h.n, t, n * sizeof *t);
        h.n += n;
        dispatch(p, cb, &p->jobs[i], shape);
        count++;
    }
    return count;
}

/* ---- ranges ---- */

static int32_t record_range(fak_program *p, uint32_t first, uint32_t ops, uint32_t shapes,
                            fak_error *e)
{
    recording *r = &p->range[first];
    int32_t s = vk_commands(p, r->cb, shapes, e);
    for (uint32_t k = 0; !s && k < shapes; k++) {
        s = vk_commands_begin(p->d, r->cb[k], 0, e);
        if (s) break;
        r->dispatches[k] =
            vk_record(p, r->cb[k], p->first_job[first], p->first_job[first + ops], (enum shape)k);
        s = vk_commands_end(p->d, r->cb[k], e);
    }
    if (!s) r->ops = ops;
    r->work = vk_work(p, first, ops);
    return s;
}

/* As long as can be, in the body and in each tail: what run will name. */
int32_t vk_record_ranges(fak_program *p, fak_error *e)
{
    int32_t s = FAK_OK;
    if (!p->d->opt.recorded || p->flags & FAK_KEEP_ALL) return FAK_OK;
    for (uint32_t b = 0; b <= p->tails; b++) {
        uint32_t i = b ? p->tail[b - 1].first : 0, end = b ? i + p->tail[b - 1].ops : p->body_ops;
        uint32_t shapes = shapes_of(b ? p->limits.wanted : p->limits.rows);
        while (!s && i < end) {
            uint32_t n = 0;
            while (i + n < end && p->taken[i + n]) n++;
            if (n) n = vk_part(p, i, n);
            if (n && !p->range[i].ops) s = record_range(p, i, n, shapes, e);
            i += n ? n : 1;
        }
    }
    return s;
}

/* ---- what each token moves: a step of one row, an id ---- */

static int32_t begin_ready(fak_program *p, ring_part *t, fak_error *e)
{
    int32_t s = vk_commands(p, &t->ready, 1, e);
    return s ? s : vk_commands_begin(p->d, t->ready, 0, e);
}

int32_t vk_record_ready(fak_program *p, fak_error *e)
{
    ring *step = &p->queue.step, *stage = &p->queue.stage;
    const place *id = &p->at[p->argmax];
    int32_t s = FAK_OK;
    if (!p->d->opt.recorded) return FAK_OK;
    for (uint32_t i = 0; !s && i < step->count; i++) {
        ring_part *t = &step->slot[i];
        s = begin_ready(p, t, e);
        if (!s) t->ready_words = vk_send_one(p, t);
        if (!s) s = vk_commands_end(p->d, t->ready, e);
    }
    for (uint32_t i = 0; !s && p->argmax && id->bytes && i < stage->count; i++) {
        ring_part *t = &stage->slot[i];
        s = begin_ready(p, t, e);
        if (!s) vk_download_record(p, t->ready, &p->store.at[id->block], id->at, t, 4);
        if (!s) s = vk_commands_end(p->d, t->ready, e);
    }
    return s;
}
