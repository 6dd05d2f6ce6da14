/* kernels_dot - NEON with SDOT; see kernels_tier.h. */
#define CPU_DOT
#include "vec_neon.h"

#define KERNEL_SET cpu_kernels_dot
#include "kernels_tier.h"
