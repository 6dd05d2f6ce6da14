/* kernels_vnni - AVX-512 with VNNI; see kernels_tier.h. */
#define CPU_VNNI
#include "vec_avx512.h"

#define KERNEL_SET cpu_kernels_vnni
#include "kernels_tier.h"
