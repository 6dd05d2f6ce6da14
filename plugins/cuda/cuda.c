/* cuda - NVIDIA's cards through the CUDA driver's API.  The library is opened when devices are asked for;
 * the runtime library is not used: it registers exit handlers while it is loaded. */
#include "host/cuda.h"

#include <dlfcn.h>
#include <stdio.h>

FAK_NOTE("cuda", FAK_APPROX, "");

extern const unsigned char cuda_image[]; /* image.S */

static void *open_driver(char why[200])
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) snprintf(why, 200, "absent: CUDA driver: %s", dlerror());
    return library;
}

static const cuda_port port = {
    .name = "cuda", .open = open_driver, .symbol = dlsym, .image = cuda_image};

int32_t FAK_ENTRY(const fak_host *host, const fak_backend **out, fak_error *e)
{
    return cuda_enter(&port, host, out, e);
}
