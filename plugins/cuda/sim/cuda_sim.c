/* cuda-sim - the plugin cuda, its driver a simulation: the kernels run on the CPU.  For tests. */
#include "host/cuda.h"
#include "host/driver.h"

#include <string.h>

FAK_NOTE("cuda-sim", FAK_APPROX, "");

#define DECLARE(name, parameters) extern cu_result name parameters;
DRIVER_CALLS(DECLARE)
#undef DECLARE
typedef void function(void);
#define ROW(name, parameters) {#name, (function *)name},
static const struct call {
    const char *name;
    function *at;
} calls[] = {DRIVER_CALLS(ROW)};
#undef ROW

static void *open_driver(char why[200])
{
    (void)why;
    return (void *)(uintptr_t)calls;
}

static void *find_symbol(void *library, const char *name)
{
    void *symbol = NULL;
    (void)library;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(calls[i].name, name)) memcpy(&symbol, &calls[i].at, sizeof symbol);
    return symbol;
}

static const uint32_t image[2] = {0xba55ed50u,
                                  0}; /* as a fatbin begins; the kernels are linked in */

static const cuda_port port = {.name = "cuda-sim",
                               .kind = FAK_SOFTWARE,
                               .open = open_driver,
                               .symbol = find_symbol,
                               .image = image};

int32_t FAK_ENTRY(const fak_host *host, const fak_backend **out, fak_error *e)
{
    return cuda_enter(&port, host, out, e);
}
