/* kernels_avx512 - see kernels_tier.h. */
#include "vec_avx512.h"

#define KERNEL_SET cpu_kernels_avx512
#include "kernels_tier.h"
