/* device - a logical device: one queue, one timeline, pipelines that are made when first asked for. */
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

/* ---- pipelines ---- */

static int32_t make_pipeline(fak_device *d, const kernel *k, VkPipeline *out, fak_error *e)
{
    const spirv *code = &vk_spirv[k->shader];
    const VkShaderModuleCreateInfo module = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                             .codeSize = code->bytes,
                                             .pCode = code->code};
    VkSpecializationMapEntry entry[SPECS];
    VkShaderModule m;
    for (uint32_t i = 0; i < SPECS; i++) entry[i] = (VkSpecializationMapEntry){i, i * 4, 4};
    const VkSpecializationInfo spec = {SPECS, entry, sizeof k->spec, k->spec};
    int32_t s = vk_result(d, vkCreateShaderModule(d->vk, &module, NULL, &m), "a shader", e);
    if (s) return s;
    const VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = m,
                  .pName = "main",
                  .pSpecializationInfo = &spec},
        .layout = d->layout};
    s = vk_result(d, vkCreateComputePipelines(d->vk, VK_NULL_HANDLE, 1, &info, NULL, out),
                  "a pipeline", e);
    vkDestroyShaderModule(d->vk, m, NULL);
    return s;
}

int32_t vk_pipeline(fak_device *d, const kernel *k, uint32_t *index, fak_error *e)
{
    for (*index = 0; *index < d->pipeline_count; ++*index)
        if (!memcmp(&d->pipelines[*index].key, k, sizeof *k)) return FAK_OK;
    pipeline *more = realloc(d->pipelines, (d->pipeline_count + 1) * sizeof *more);
    if (!more) return vk_fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "no host memory for a pipeline");
    d->pipelines = more;
    more[d->pipeline_count].key = *k;
    int32_t s = make_pipeline(d, k, &more[d->pipeline_count].vk, e);
    d->pipeline_count += !s;
    return s;
}

static int32_t make_layouts(fak_device *d, fak_error *e)
{
    VkDescriptorSetLayoutBinding b[BINDINGS + 1];
    for (uint32_t i = 0; i <= BINDINGS; i++)
        b[i] = (VkDescriptorSetLayoutBinding){
            i, i ? VK_DESCRIPTOR_TYPE_STORAGE_BUFFER : VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER, 1,
            VK_SHADER_STAGE_COMPUTE_BIT, NULL};
    const VkDescriptorSetLayoutCreateInfo set = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .bindingCount = BINDINGS + 1,
        .pBindings = b};
    int32_t s = vk_result(d, vkCreateDescriptorSetLayout(d->vk, &set, NULL, &d->set),
                          "a descriptor set layout", e);
    if (s) return s;
    const VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(constants)};
    const VkPipelineLayoutCreateInfo layout = {.sType =
                                                   VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                               .setLayoutCount = 1,
                                               .pSetLayouts = &d->set,
                                               .pushConstantRangeCount = 1,
                                               .pPushConstantRanges = &push};
    return vk_result(d, vkCreatePipelineLayout(d->vk, &layout, NULL, &d->layout),
                     "a pipeline layout", e);
}

/* ---- open and close ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static int32_t make_device(fak_device *d, fak_error *e)
{
    const float one = 1;
    const char *budget = VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
    const VkDeviceQueueCreateInfo queues = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                            .queueFamilyIndex = d->adapter.family,
                                            .queueCount = 1,
                                            .pQueuePriorities = &one};
    VkPhysicalDeviceVulkan12Features use = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .timelineSemaphore = 1};
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &use,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queues,
                                     .enabledExtensionCount = d->adapter.has_budget ? 1 : 0,
                                     .ppEnabledExtensionNames = &budget};
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
    return s ? s : make_layouts(d, e);
}

int32_t vk_open(uint32_t index, const fak_setting *set, uint32_t n, fak_device **out, fak_error *e)
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
    pthread_mutex_init(&d->lock, NULL);
    if (index < found) {
        d->adapter = all[index];
        s = vk_read_options(&d->opt, set, n,
                            d->adapter.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU, e);
    } else if (found) {
        s = vk_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX, "device %" PRIu32 " of %" PRIu32, index,
                    found);
    } else {
        s = FAK_E_UNSUPPORTED;
    }
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
        for (uint32_t i = 0; i < d->pipeline_count; i++)
            vkDestroyPipeline(d->vk, d->pipelines[i].vk, NULL);
        vkDestroyPipelineLayout(d->vk, d->layout, NULL);
        vkDestroyDescriptorSetLayout(d->vk, d->set, NULL);
        vkDestroySemaphore(d->vk, d->timeline, NULL);
        vkDestroyDevice(d->vk, NULL);
    }
    free(d->pipelines);
    pthread_mutex_destroy(&d->lock);
    free(d);
    vk_instance_put();
}
