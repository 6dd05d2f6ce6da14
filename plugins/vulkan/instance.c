/* instance - the loader and what it finds.  The instance lives while somebody holds it: its end is the
 * end of a driver's threads. */
#define VOLK_IMPLEMENTATION
#include "vk.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#if defined __linux__
#include <dlfcn.h>
#include <link.h>
#endif

enum { PHYSICAL = 16, FAMILIES = 32, EXTENSIONS = 512 };

static VkInstance instance;
static uint32_t holders; /* [load] only */

/* ---- the instance ---- */

static int32_t absent(fak_error *e, VkResult r, const char *sentence)
{
    *e = (fak_error){.code = FAK_E_UNSUPPORTED, .native = r, .index = FAK_NO_INDEX};
    snprintf(e->message, sizeof e->message, "absent: %s", sentence);
    return FAK_E_UNSUPPORTED;
}

/* The loader unmaps drivers with the last instance, and glibc loses memory every time that it does; code
 * that a thread's end might still call would be gone too.  So they stay mapped, once there. */
static void keep_mapped(void)
{
#if defined __linux__
    static int kept;
    struct link_map *all = NULL;
    void *self = kept ? NULL : dlopen(NULL, RTLD_LAZY);
    if (!self || dlinfo(self, RTLD_DI_LINKMAP, &all)) return;
    for (; all; all = all->l_next)
        if (*all->l_name) dlopen(all->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    dlclose(self);
    kept = 1;
#endif
}

int32_t vk_instance_get(fak_error *e)
{
    const VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                   .pApplicationName = "fak",
                                   .apiVersion = VK_API_VERSION_1_2};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                       .pApplicationInfo = &app};
    if (holders++) return FAK_OK;
    VkResult r = volkInitialize();
    if (r) {
        holders = 0;
        return absent(e, r, "no Vulkan loader: libvulkan.so.1 cannot be opened");
    }
    r = vkCreateInstance(&info, NULL, &instance);
    if (!r) {
        keep_mapped();
        volkLoadInstance(instance); /* functions that serve every device, unlike volkLoadDevice's */
        return FAK_OK;
    }
    holders = 0;
    instance = VK_NULL_HANDLE;
    if (r == VK_ERROR_INCOMPATIBLE_DRIVER)
        return absent(e, r,
                      "the Vulkan loader finds no driver that works: its files (icd.d/*.json) "
                      "are not there, are malformed, or name libraries that cannot be opened");
    if (r == VK_ERROR_OUT_OF_HOST_MEMORY)
        return absent(e, r,
                      "the Vulkan loader has no host memory, which it also says of a driver's file "
                      "(icd.d/*.json) that is malformed");
    char sentence[96];
    snprintf(sentence, sizeof sentence, "vkCreateInstance fails with %d", (int)r);
    return absent(e, r, sentence);
}

void vk_instance_put(void)
{
    if (!holders || --holders) return;
    vkDestroyInstance(instance, NULL);
    instance = VK_NULL_HANDLE;
}

/* ---- adapters ---- */

static uint32_t compute_family(VkPhysicalDevice phys)
{
    VkQueueFamilyProperties family[FAMILIES];
    uint32_t n = FAMILIES;
    vkGetPhysicalDeviceQueueFamilyProperties(phys, &n, family);
    for (uint32_t i = 0; i < n; i++)
        if (family[i].queueFlags & VK_QUEUE_COMPUTE_BIT) return i;
    return UINT32_MAX;
}

static int has_extension(VkPhysicalDevice phys, const char *name)
{
    VkExtensionProperties all[EXTENSIONS];
    uint32_t n = EXTENSIONS;
    if (vkEnumerateDeviceExtensionProperties(phys, NULL, &n, all) < 0) return 0;
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(all[i].extensionName, name)) return 1;
    return 0;
}

/* What is optional: subgroups that can add, and products of int8. */
static features look_for(VkPhysicalDevice phys, const VkPhysicalDeviceVulkan11Properties *p)
{
    const VkSubgroupFeatureFlags adds = VK_SUBGROUP_FEATURE_BASIC_BIT |
                                        VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
    VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR};
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &dot};
    features has = {0};
    if (p->subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT &&
        (p->subgroupSupportedOperations & adds) == adds)
        has.subgroup = p->subgroupSize;
    if (!has_extension(phys, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME)) return has;
    vkGetPhysicalDeviceFeatures2(phys, &all);
    has.int8dot = dot.shaderIntegerDotProduct != 0;
    return has;
}

/* Can it be used: Vulkan 1.2, a queue that computes, timeline semaphores? */
static int look_at(VkPhysicalDevice phys, adapter *a)
{
    VkPhysicalDeviceVulkan12Features basic = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &basic};
    VkPhysicalDeviceDriverProperties driver = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
    VkPhysicalDeviceVulkan11Properties more = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &driver};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &more};
    *a = (adapter){.phys = phys, .family = compute_family(phys)};
    vkGetPhysicalDeviceProperties(phys, &a->properties);
    if (a->properties.apiVersion < VK_API_VERSION_1_2 || a->family == UINT32_MAX) return 0;
    vkGetPhysicalDeviceFeatures2(phys, &all);
    vkGetPhysicalDeviceProperties2(phys, &properties);
    vkGetPhysicalDeviceMemoryProperties(phys, &a->memory);
    memcpy(a->uuid, more.deviceUUID, sizeof a->uuid);
    memcpy(a->driver, driver.driverName, sizeof a->driver);
    a->driver_id = driver.driverID;
    a->allocation_max = more.maxMemoryAllocationSize;
    a->has_budget = has_extension(phys, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    a->has = look_for(phys, &more);
    return basic.timelineSemaphore != 0;
}

uint32_t vk_adapters(adapter *out, uint32_t most, fak_error *e)
{
    VkPhysicalDevice phys[PHYSICAL];
    uint32_t n = PHYSICAL, found = 0;
    char sentence[160];
    VkResult r = vkEnumeratePhysicalDevices(instance, &n, phys);
    if (r < 0) n = 0;
    for (uint32_t i = 0; i < n && found < most; i++)
        found += (uint32_t)look_at(phys[i], &out[found]);
    if (found) return found;
    if (n)
        snprintf(sentence, sizeof sentence,
                 "%" PRIu32 " Vulkan device%s, none with Vulkan 1.2, a queue for compute and "
                 "timeline semaphores",
                 n, n == 1 ? "" : "s");
    else
        snprintf(sentence, sizeof sentence,
                 "the Vulkan drivers that are installed find no device (%d)", (int)r);
    absent(e, r, sentence);
    return 0;
}

/* The largest heap of the device's own memory. */
static uint32_t device_heap(const adapter *a)
{
    uint32_t best = 0;
    VkDeviceSize most = 0;
    for (uint32_t i = 0; i < a->memory.memoryHeapCount; i++) {
        const VkMemoryHeap *h = &a->memory.memoryHeaps[i];
        if (!(h->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) || h->size <= most) continue;
        most = h->size;
        best = i;
    }
    return best;
}

uint64_t vk_memory_total(const adapter *a)
{
    return a->memory.memoryHeaps[device_heap(a)].size;
}

uint64_t vk_memory_free(const adapter *a)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 memory = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &budget};
    uint32_t heap = device_heap(a);
    if (!a->has_budget) return vk_memory_total(a);
    vkGetPhysicalDeviceMemoryProperties2(a->phys, &memory);
    VkDeviceSize all = budget.heapBudget[heap], used = budget.heapUsage[heap];
    return all > used ? all - used : 0;
}

/* ---- what the host asks ---- */

uint32_t vk_device_count(const fak_setting *set, uint32_t n, fak_error *e)
{
    adapter all[PHYSICAL];
    (void)set, (void)n;
    if (vk_instance_get(e)) return 0;
    uint32_t found = vk_adapters(all, PHYSICAL, e);
    vk_instance_put();
    return found;
}

static uint32_t kind_of(VkPhysicalDeviceType type)
{
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return FAK_INTEGRATED;
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
        return FAK_DISCRETE;
    default:
        return FAK_SOFTWARE;
    }
}

/* "vulkan 1.3, llvmpipe; subgroups of 8, int8 dot": of what is optional, what is used. */
static void name_tier(const adapter *a, const options *o, char *out, size_t bytes)
{
    const uint32_t version = a->properties.apiVersion;
    features use = vk_use(&a->has, o);
    int n = snprintf(out, bytes, "vulkan %u.%u, %.20s", VK_API_VERSION_MAJOR(version) & 127u,
                     VK_API_VERSION_MINOR(version) & 1023u, a->driver);
    if (use.subgroup)
        n += snprintf(out + n, bytes - (size_t)n, "; subgroups of %" PRIu32, use.subgroup);
    if (use.int8dot) snprintf(out + n, bytes - (size_t)n, "; int8 dot");
}

int32_t vk_device_info(uint32_t index, const fak_setting *set, uint32_t n, fak_device_info *out,
                       fak_error *e)
{
    adapter all[PHYSICAL];
    options o = {0};
    fak_error unread;
    int32_t s = vk_instance_get(e);
    if (s) return s;
    uint32_t found = vk_adapters(all, PHYSICAL, e);
    if (index < found) {
        const adapter *a = &all[index];
        const VkPhysicalDeviceProperties *p = &a->properties;
        fak_device_info info = {.kind = kind_of(p->deviceType),
                                .memory_total = vk_memory_total(a),
                                .memory_free = vk_memory_free(a),
                                .allocation_max = a->allocation_max,
                                .id = "uuid:"};
        for (uint32_t i = 0; i < VK_UUID_SIZE; i++)
            snprintf(info.id + 5 + 2 * i, 3, "%02x", a->uuid[i]);
        snprintf(info.name, sizeof info.name, "%.63s", p->deviceName);
        if (vk_read_options(&o, set, n, a, &unread)) o.features = USE_NONE; /* open says it */
        name_tier(a, &o, info.tier, sizeof info.tier);
        fak_put(out, &info, sizeof info);
    } else {
        s = vk_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX, "device %" PRIu32 " of %" PRIu32, index,
                    found);
    }
    vk_instance_put();
    return s;
}
