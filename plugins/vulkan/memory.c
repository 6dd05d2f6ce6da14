/* memory - device memory: laid out in stores before any is taken, so that a report is exact. */
#include "vk.h"

#include <inttypes.h>
#include <string.h>

/* ---- layout ---- */

place vk_lay(store *s, const fak_device *d, uint64_t bytes)
{
    uint64_t size = (bytes + d->align - 1) / d->align * d->align;
    if (!bytes) return (place){0};
    if (!s->blocks || s->bytes[s->blocks - 1] + size > d->block_max) {
        if (s->blocks == STORE_BLOCKS) {
            s->full = 1;
            return (place){0};
        }
        s->blocks++;
    }
    place p = {s->blocks - 1, s->bytes[s->blocks - 1], bytes};
    s->bytes[s->blocks - 1] += size;
    return p;
}

uint64_t vk_store_bytes(const store *s)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < s->blocks; i++) all += s->bytes[i];
    return all;
}

/* ---- allocation ---- */

/* The first type that has what is needed, or UINT32_MAX; one that has what is wished for comes first. */
static uint32_t find_type(const fak_device *d, uint32_t allowed, VkMemoryPropertyFlags needed,
                          VkMemoryPropertyFlags wished)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = d->adapter.memory.memoryTypeCount; i-- > 0;) {
        VkMemoryPropertyFlags has = d->adapter.memory.memoryTypes[i].propertyFlags;
        if (!(allowed >> i & 1) || (has & needed) != needed) continue;
        if (best == UINT32_MAX || (has & wished) == wished) best = i;
    }
    return best;
}

static int32_t take_block(fak_device *d, block *b, uint64_t bytes, VkMemoryPropertyFlags needed,
                          VkMemoryPropertyFlags wished, const char *what, fak_error *e)
{
    const VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = bytes,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT |
                 VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkMemoryRequirements need;
    int32_t s = vk_result(d, vkCreateBuffer(d->vk, &info, NULL, &b->vk), what, e);
    if (s) return s;
    b->bytes = bytes;
    vkGetBufferMemoryRequirements(d->vk, b->vk, &need);
    VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                   .allocationSize = need.size,
                                   .memoryTypeIndex =
                                       find_type(d, need.memoryTypeBits, needed, wished)};
    VkResult r = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (++d->attempts != d->opt.fail_alloc && memory.memoryTypeIndex != UINT32_MAX)
        r = vkAllocateMemory(d->vk, &memory, NULL, &b->memory);
    if (r)
        return vk_fail(e, FAK_E_MEMORY, FAK_NO_INDEX,
                       "%s: the driver refuses %" PRIu64 " bytes of device memory (%d)", what,
                       bytes, (int)r);
    vk_count(d, &d->stats.allocations, 1);
    return vk_result(d, vkBindBufferMemory(d->vk, b->vk, b->memory, 0), what, e);
}

int32_t vk_take_host(fak_device *d, block *b, uint64_t bytes, const char *what, fak_error *e)
{
    int32_t s = take_block(
        d, b, bytes, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
        VK_MEMORY_PROPERTY_HOST_CACHED_BIT, what, e);
    return s ? s
             : vk_result(d, vkMapMemory(d->vk, b->memory, 0, VK_WHOLE_SIZE, 0, &b->map), what, e);
}

void vk_give_block(fak_device *d, block *b)
{
    vkDestroyBuffer(d->vk, b->vk, NULL); /* no handle is fine */
    vkFreeMemory(d->vk, b->memory, NULL);
    *b = (block){0};
}

int32_t vk_take(fak_device *d, store *s, const char *what, fak_error *e)
{
    int32_t rc = FAK_OK;
    for (uint32_t i = 0; !rc && i < s->blocks; i++) {
        rc = take_block(d, &s->at[i], s->bytes[i], VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                        VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, what, e);
        if (!rc) d->used += s->bytes[i];
    }
    return rc;
}

void vk_give(fak_device *d, store *s)
{
    for (uint32_t i = 0; i < s->blocks; i++) {
        if (s->at[i].memory) d->used -= s->bytes[i];
        vk_give_block(d, &s->at[i]);
    }
    *s = (store){0};
}
