/* move - rows between host memory and the device's, a part of the ring at a time. */
#include "program.h"

#include <string.h>

int32_t vk_upload(fak_program *p, const block *to, uint64_t at, const void *src, uint64_t bytes,
                  fak_error *e)
{
    ring *r = &p->queue.stage;
    for (uint64_t done = 0, n; done < bytes; done += n) {
        ring_part *t;
        n = bytes - done < r->each ? bytes - done : r->each;
        int32_t s = vk_slot_begin(p, r, &t, e);
        if (s) return s;
        memcpy(t->map, (const char *)src + done, n);
        vkCmdCopyBuffer(t->cb, r->mem.vk, to->vk, 1, &(VkBufferCopy){t->at, at + done, n});
        s = vk_slot_end(p, t, 0, 0, e);
        if (s) return s;
    }
    return FAK_OK;
}

void vk_download_record(const fak_program *p, VkCommandBuffer cb, const block *from, uint64_t at,
                        const ring_part *t, uint64_t bytes)
{
    const VkMemoryBarrier seen = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                  .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                  .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    vkCmdCopyBuffer(cb, from->vk, p->queue.stage.mem.vk, 1, &(VkBufferCopy){at, t->at, bytes});
    vkCmdPipelineBarrier(cb, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
                         &seen, 0, NULL, 0, NULL);
}

static int32_t download_part(fak_program *p, const block *from, uint64_t at, uint64_t bytes,
                             void *dst, uint32_t dtype, fak_error *e)
{
    ring_part *t;
    int32_t s = vk_slot_begin(p, &p->queue.stage, &t, e);
    if (s) return s;
    vk_download_record(p, t->cb, from, at, t, bytes);
    vk_slot_deliver(p, t, dst, bytes, dtype);
    return vk_slot_end(p, t, 0, 0, e);
}

int32_t vk_download(fak_program *p, const block *from, uint64_t at, uint64_t bytes, void *dst,
                    uint32_t dtype, fak_error *e)
{
    uint32_t element = vk_element_bytes(dtype);
    for (uint64_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < p->queue.stage.each ? bytes - done : p->queue.stage.each;
        int32_t s = download_part(p, from, at + done, n, (float *)dst + done / element, dtype, e);
        if (s) return s;
    }
    return FAK_OK;
}
