/* driver - the library is opened when somebody first asks for devices; nothing happens before. */
#include "driver_calls.h"
#include "gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NEEDED = 13000 }; /* what the kernels were compiled for, as cuDriverGetVersion tells it */

driver cu;
const cuda_port *cuda_port_now;

int32_t cuda_fail(fak_error *e, int32_t code, uint32_t index, const char *format, ...)
{
    va_list arguments;
    *e = (fak_error){.code = code, .index = index};
    int n = snprintf(e->message, sizeof e->message, "%s: ", cuda_port_now->name);
    va_start(arguments, format);
    vsnprintf(e->message + n, sizeof e->message - (size_t)n, format, arguments);
    va_end(arguments);
    return code;
}

static void set_symbol(void *slot, void *symbol)
{
    memcpy(slot, &symbol, sizeof symbol);
}

/* The driver's functions, or why there are none, in said. */
static int resolve(char said[200])
{
    void *library = cuda_port_now->open(said);
    int version = 0;
    cu_result r;
    if (!library) return -1;
#define RESOLVE(name, parameters)                                                                  \
    set_symbol(&cu.name, cuda_port_now->symbol(library, #name));                                   \
    if (!cu.name) {                                                                                \
        snprintf(said, 200, "absent: the CUDA driver is too old: it has no %s", #name);            \
        return -1;                                                                                 \
    }
    DRIVER_CALLS(RESOLVE)
#undef RESOLVE
    if ((r = cu.cuInit(0))) {
        const char *text = NULL;
        cu.cuGetErrorString(r, &text);
        snprintf(said, 200, "absent: the CUDA driver does not start: error %u, %s", r,
                 text ? text : "which it does not explain");
        return -1;
    }
    cu.cuDriverGetVersion(&version);
    if (version >= NEEDED) return 0;
    snprintf(said, 200,
             "absent: the CUDA driver is of version %d.%d; the kernels need %d.%d or newer (driver "
             "580)",
             version / 1000, version % 1000 / 10, NEEDED / 1000, NEEDED % 1000 / 10);
    return -1;
}

/* [load]: nothing else runs. */
static int is_there(fak_error *e)
{
    static int state; /* 1: there, -1: not */
    static char said[200];
    if (!state) state = resolve(said) ? -1 : 1;
    if (state < 0) {
        *e = (fak_error){.code = FAK_E_UNSUPPORTED, .index = FAK_NO_INDEX};
        memcpy(e->message, said, sizeof said);
    }
    return state > 0;
}

uint32_t gpu_count(fak_error *e)
{
    int n = 0;
    if (!is_there(e)) return 0;
    cu_result r = cu.cuDeviceGetCount(&n);
    if (!r && n > 0) return (uint32_t)n;
    *e = (fak_error){.code = FAK_E_UNSUPPORTED, .index = FAK_NO_INDEX};
    snprintf(e->message, sizeof e->message,
             "absent: the CUDA driver is there, but no card is (cuDeviceGetCount: error %u, %d)", r,
             n);
    return 0;
}

int32_t gpu_describe(uint32_t index, fak_device_info *info, fak_error *e)
{
    cu_device d;
    cu_uuid id;
    size_t total = 0;
    int major = 0, minor = 0, integrated = 0;
    char name[64] = "";
    uint32_t count = gpu_count(e);
    if (index >= count)
        return cuda_fail(e, FAK_E_ARGUMENT, FAK_NO_INDEX, "there are %u cards, and no number %u",
                         count, index);
    cu_result r = cu.cuDeviceGet(&d, (int)index);
    if (!r) r = cu.cuDeviceGetUuid_v2(&id, d);
    if (!r) r = cu.cuDeviceGetName(name, sizeof name - 1, d);
    if (!r) r = cu.cuDeviceTotalMem_v2(&total, d);
    if (!r) r = cu.cuDeviceGetAttribute(&major, CU_MAJOR, d);
    if (!r) r = cu.cuDeviceGetAttribute(&minor, CU_MINOR, d);
    if (!r) r = cu.cuDeviceGetAttribute(&integrated, CU_INTEGRATED, d);
    if (r)
        return cuda_fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX,
                         "the driver does not describe card %u: error %u", index, r);
    *info = (fak_device_info){.kind = integrated ? FAK_INTEGRATED : FAK_DISCRETE,
                              .memory_total = total,
                              .allocation_max = total};
    if (cuda_port_now->kind) info->kind = cuda_port_now->kind;
    memcpy(info->name, name, sizeof name);
    snprintf(info->tier, sizeof info->tier, "sm_%d%d", major, minor);
    int n = snprintf(info->id, sizeof info->id, "uuid:");
    for (int i = 0; i < 16; i++)
        n += snprintf(info->id + n, sizeof info->id - (size_t)n, "%02x",
                      (unsigned)(unsigned char)id.bytes[i]);
    return FAK_OK;
}
