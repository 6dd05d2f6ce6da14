/* kernels_neon - see kernels_tier.h. */
#include "vec_neon.h"

#define KERNEL_SET cpu_kernels_neon
#include "kernels_tier.h"
