/* kernels_avx2 - see kernels_tier.h. */
#include "vec_avx2.h"

#define KERNEL_SET cpu_kernels_avx2
#include "kernels_tier.h"
