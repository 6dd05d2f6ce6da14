/* device - a logical device: one queue, one timeline. */
#include "vk.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ADAPTERS = 16 };

/* ---- errors and counts ---- */

int32_t vk_fail(fak_error *e, int32_t code, uint32_t index, const char *format, ...)
{
    va_list arguments;
    *e = (fak_error){.code = code, .index = index};
    int n = snprintf(e->message, sizeof e->message, "vulkan: ");
    va_start(arguments, format);
    vsnprintf(e->message + n, sizeof e->message - (size_t)n, format, arguments);
    va_end(arguments);
    return code;
}

int32_t vk_result(fak_device *d, VkResult r, const char *what, fak_error *e)
{
    if (r == VK_SUCCESS) return FAK_OK;
    if (r == VK_ERROR_OUT_OF_DEVICE_MEMORY || r == VK_ERROR_OUT_OF_HOST_MEMORY) {
        vk_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "%s: out of %s memory", what,
                r == VK_ERROR_OUT_OF_HOST_MEMORY ? "host" : "device");
    } else {
        vk_fail(e, FAK_E_LOST, FAK_NO_INDEX, "%s fails with %d%s", what, (int)r,
                r == VK_ERROR_DEVICE_LOST ? ": the device is lost" : "");
        pthread_mutex_lock(&d->lock);
        if (!d->lost.code) d->lost = *e;
        pthread_mutex_unlock(&d->lock);
    }
    e->native = r;
    return e->code;
}

int32_t vk_lost(fak_device *d, fak_error *e)
{
    pthread_mutex_lock(&d->lock);
    int32_t s = d->lost.code;
    if (s) *e = d->lost;
    pthread_mutex_unlock(&d->lock);
    return s;
}

void vk_count(fak_device *d, uint64_t *which, uint64_t n)
{
    pthread_mutex_lock(&d->lock);
    *which += n;
    pthread_mutex_unlock(&d->lock);
}

/* ---- open and close ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

features vk_use(const features *has, const options *o)
{
    features use = *has;
    int none = o->features == USE_NONE;
    if (none || o->features == USE_INT8DOT) use.subgroup = 0;
    if (none || o->features == USE_SUBGROUP) use.int8dot = 0;
    if (o->rows) use.subgroup = 0; /* their kernels sum nothing together */
    /* Groups sum in another order; where a code in Q8 then flips, large models part too far. */
    if (!o->rows && o->features != USE_INT8DOT) use.int8dot = 0;
    return use;
}

static int32_t make_device(fak_device *d, fak_error *e)
{
    const float one = 1;
    const char *extension[2];
    uint32_t extensions = 0;
    const VkDeviceQueueCreateInfo queues = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                            .queueFamilyIndex = d->adapter.family,
                                            .queueCount = 1,
                                            .pQueuePriorities = &one};
    VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR,
        .shaderIntegerDotProduct = 1};
    const VkPhysicalDeviceVulkan12Features use = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .pNext = d->use.int8dot ? &dot : NULL,
        .timelineSemaphore = 1};
    if (d->adapter.has_budget) extension[extensions++] = VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
    if (d->use.int8dot) extension[extensions++] = VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME;
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &use,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queues,
                                     .enabledExtensionCount = extensions,
                                     .ppEnabledExtensionNames = extension};
    const VkPhysicalDeviceLimits *l = &d->adapter.properties.limits;
    d->align = l->minStorageBufferOffsetAlignment;
    if (l->minUniformBufferOffsetAlignment > d->align)
        d->align = l->minUniformBufferOffsetAlignment;
    if (d->align < 16) d->align = 16;
    d->block_max = least(d->adapter.allocation_max, 2ull << 30) / d->align * d->align;
    d->piece_max = least(l->maxStorageBufferRange, d->block_max);
    int32_t s = vk_result(d, vkCreateDevice(d->adapter.phys, &info, NULL, &d->vk), "the device", e);
    if (s) return s;
    vkGetDeviceQueue(d->vk, d->adapter.family, 0, &d->queue);
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                             .pNext = &type};
    s = vk_result(d, vkCreateSemaphore(d->vk, &semaphore, NULL, &d->timeline), "a timeline", e);
    return s ? s : vk_pipelines_make(d, e);
}

int32_t vk_open(uint32_t index, const fak_setting *set, uint32_t n, const fak_host *host,
                fak_device **out, fak_error *e)
{
    adapter all[ADAPTERS];
    int32_t s = vk_instance_get(e);
    if (s) return s;
    uint32_t found = vk_adapters(all, ADAPTERS, e);
    fak_device *d = calloc(1, sizeof *d);
    if (!d) {
        vk_instance_put();
        return vk_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for a device");
    }
    d->host = host;
    pthread_mutex_init(&d->lock, NULL);
    if (index < found) {
        d->adapter = all[index];
        s = vk_read_options(&d->opt, set, n, &d->adapter, e);
    } else if (found) {
        s = vk_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX, "device %" PRIu32 " of %" PRIu32, index,
                    found);
    } else {
        s = FAK_E_UNSUPPORTED;
    }
    d->use = vk_use(&d->adapter.has, &d->opt);
    if (!s) s = make_device(d, e);
    if (s == FAK_E_LOST) s = e->code = FAK_E_UNSUPPORTED; /* it was never there */
    if (s) {
        vk_close(d);
        return s;
    }
    *out = d;
    return FAK_OK;
}

void vk_close(fak_device *d)
{
    if (!d) return;
    if (d->vk) {
        vkDeviceWaitIdle(d->vk);
        vk_pipelines_free(d);
        vkDestroySemaphore(d->vk, d->timeline, NULL);
        vkDestroyDevice(d->vk, NULL);
    }
    pthread_mutex_destroy(&d->lock);
    free(d);
    vk_instance_put();
}
