/* pipelines - kernels with their constants, made when first asked for; what a driver compiles is kept in
 * the host's store from run to run. */
#include "vk.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the host's store ---- */

/* Drivers check their own header of a cache, not all that follows: so a sum of ours goes before it. */
typedef struct kept {
    uint64_t bytes, sum; /* of what follows */
} kept;

static uint64_t sum_of(const unsigned char *at, uint64_t bytes)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (uint64_t i = 0; i < bytes; i++) h = (h ^ at[i]) * 0x100000001b3u;
    return h;
}

enum { KEY_BYTES = 64 };

static void name_key(const fak_device *d, char key[KEY_BYTES])
{
    const VkPhysicalDeviceProperties *p = &d->adapter.properties;
    int n = snprintf(key, KEY_BYTES, "vulkan-%" PRIx32 "-%" PRIx32 "-%" PRIx32 "-", p->vendorID,
                     p->deviceID, p->driverVersion);
    for (uint32_t i = 0; i < 8; i++)
        n += snprintf(key + n, KEY_BYTES - (size_t)n, "%02x", p->pipelineCacheUUID[i]);
}

/* What was kept, without what is before it, or NULL; *whole is to be freed. */
static void *find_kept(const fak_device *d, void **whole, size_t *bytes)
{
    const fak_host *h = d->host;
    char key[KEY_BYTES];
    kept k;
    name_key(d, key);
    uint64_t n = h->cache_get ? h->cache_get(h->self, key, NULL, 0) : 0;
    *whole = n > sizeof k ? malloc(n) : NULL;
    if (!*whole || h->cache_get(h->self, key, *whole, n) != n) return NULL;
    memcpy(&k, *whole, sizeof k);
    unsigned char *after = (unsigned char *)*whole + sizeof k;
    if (k.bytes != n - sizeof k || k.sum != sum_of(after, k.bytes)) return NULL;
    *bytes = k.bytes;
    return after;
}

static int32_t make_cache(fak_device *d, fak_error *e)
{
    void *whole;
    VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    info.pInitialData = find_kept(d, &whole, &info.initialDataSize);
    VkResult r = vkCreatePipelineCache(d->vk, &info, NULL, &d->cache);
    if (!r && info.pInitialData) vkGetPipelineCacheData(d->vk, d->cache, &d->kept, NULL);
    free(whole);
    return vk_result(d, r, "a pipeline cache", e);
}

/* What has grown is put; bytes alone do not tell, some drivers never give the same. */
void vk_pipelines_keep(fak_device *d)
{
    const fak_host *h = d->host;
    char key[KEY_BYTES];
    size_t bytes = 0;
    if (!h->cache_put || vkGetPipelineCacheData(d->vk, d->cache, &bytes, NULL)) return;
    kept *k = bytes > d->kept ? malloc(sizeof *k + bytes) : NULL;
    if (k && !vkGetPipelineCacheData(d->vk, d->cache, &bytes, k + 1)) {
        *k = (kept){bytes, sum_of((const unsigned char *)(k + 1), bytes)};
        name_key(d, key);
        h->cache_put(h->self, key, k, sizeof *k + bytes);
        d->kept = bytes;
    }
    free(k);
}

/* ---- pipelines ---- */

static int32_t make_pipeline(fak_device *d, const kernel *k, VkPipeline *out, fak_error *e)
{
    const spirv *code = &vk_spirv[k->shader][d->use.subgroup ? SUBGROUPS : PLAIN];
    if (!code->code) code = &vk_spirv[k->shader][PLAIN];
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
    s = vk_result(d, vkCreateComputePipelines(d->vk, d->cache, 1, &info, NULL, out), "a pipeline",
                  e);
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

int32_t vk_pipelines_make(fak_device *d, fak_error *e)
{
    int32_t s = make_layouts(d, e);
    return s ? s : make_cache(d, e);
}

void vk_pipelines_free(fak_device *d)
{
    for (uint32_t i = 0; i < d->pipeline_count; i++)
        vkDestroyPipeline(d->vk, d->pipelines[i].vk, NULL);
    free(d->pipelines);
    vkDestroyPipelineCache(d->vk, d->cache, NULL);
    vkDestroyPipelineLayout(d->vk, d->layout, NULL);
    vkDestroyDescriptorSetLayout(d->vk, d->set, NULL);
}
