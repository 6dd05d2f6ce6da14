/* kernels_scalar - see kernels_tier.h. */
#include "vec_scalar.h"

#define KERNEL_SET cpu_kernels_scalar
#include "kernels_tier.h"
