/* options - what can be set, mostly for tests. */
#include "vk.h"

#include <stdlib.h>
#include <string.h>

/* clang-format off */
const fak_option vk_options[] = {
    {"kernels", "auto|row|group|exact", "auto",
     "row: no shared memory, for devices that are a CPU; exact: so, in the contract's order"},
    {"features", "all|none|subgroup|int8dot", "all",
     "of what is optional and there, use this"},
    {"recorded", "0|1", "1", "record ranges once; 0: each op at its call"},
    {"fused", "0|1", "1", "offer fused ops"},
    {"barriers", "0|1", "1", "0: none between dispatches, which is wrong: what validation must see"},
    {"work", "1..1000000000", "131072",
     "million multiplications of a submit, at most: watchdogs bite"},
    {"stage", "256..1073741824", "1048576", "bytes of a part of the ring that rows go through"},
    {"piece", "4096..4294967295", "4294967295", "bytes of a weight or of a layer's kv that lie together, at most"},
    {"memory", "0..1099511627776", "0", "bytes of device memory; 0: what there is"},
    {"fail-alloc", "0..1000000", "0", "fail an allocation of device memory"},
    {"fail-submit", "0..1000000", "0", "fail a submit"},
    {"lose-device", "0..1000000", "0", "lose the device at a submit"},
};
/* clang-format on */
enum {
    KERNELS,
    FEATURES,
    RECORDED,
    FUSED,
    BARRIERS,
    WORK,
    STAGE,
    PIECE,
    MEMORY,
    FAIL_ALLOC,
    FAIL_SUBMIT,
    LOSE,
    COUNT
};
const uint32_t vk_option_count = COUNT;

static int32_t refuse(fak_error *e, uint32_t index, const char *before, const char *values)
{
    *e = (fak_error){.code = FAK_E_ARGUMENT, .index = index}; /* the host names the option */
    strncat(e->message, before, sizeof e->message - 1);
    strncat(e->message, values, sizeof e->message - 1 - strlen(e->message));
    return FAK_E_ARGUMENT;
}

/* The position of a word among "a|b|c", -1 for another one. */
static int find_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (int i = 0;; i++) {
        size_t length = strcspn(words, "|");
        if (length == n && !strncmp(words, word, n)) return i;
        if (!words[length]) return -1;
        words += length + 1;
    }
}

static int read_value(const fak_option *o, const char *text, uint64_t *number)
{
    char *rest;
    uint64_t least = strtoull(o->values, &rest, 10);
    if (strncmp(rest, "..", 2)) {
        int at = find_word(o->values, text);
        *number = (uint64_t)at;
        return at < 0;
    }
    size_t digits = strspn(text, "0123456789");
    *number = strtoull(text, NULL, 10);
    return !digits || digits > 15 || text[digits] || *number < least ||
           *number > strtoull(rest + 2, NULL, 10);
}

static uint64_t or_never(uint64_t n)
{
    return n ? n : UINT64_MAX;
}

int32_t vk_read_options(options *o, const fak_setting *set, uint32_t n, const adapter *a,
                        fak_error *e)
{
    uint64_t value[COUNT];
    const int is_cpu = a->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    for (int i = 0; i < COUNT; i++) read_value(&vk_options[i], vk_options[i].initial, &value[i]);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = 0;
        while (at < COUNT && strcmp(vk_options[at].name, set[i].name)) at++;
        if (at == COUNT) return refuse(e, i, "unknown option; see fakrun backends -v", "");
        if (read_value(&vk_options[at], set[i].value, &value[at]))
            return refuse(e, i, "it is ", vk_options[at].values);
    }
    *o = (options){.rows = value[KERNELS] ? value[KERNELS] != 2 : is_cpu,
                   .exact = value[KERNELS] == 3,
                   .features = (uint32_t)value[FEATURES],
                   .work = value[WORK] * 1000000,
                   .recorded = (uint32_t)value[RECORDED],
                   .fused = (uint32_t)value[FUSED],
                   .barriers = (uint32_t)value[BARRIERS],
                   .stage = value[STAGE] / 4 * 4,
                   .piece = value[PIECE],
                   .memory = value[MEMORY],
                   .fail_alloc = or_never(value[FAIL_ALLOC]),
                   .fail_submit = or_never(value[FAIL_SUBMIT]),
                   .lose = or_never(value[LOSE])};
    return FAK_OK;
}
