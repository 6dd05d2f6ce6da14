/* kernels - see kernels.def.  Where a fault is to be seen, nothing but that fault is there. */
#include "kernels/common.h"

struct word { uint32_t of[4]; };

KERNEL(count_up, probe_args)
{
    if (threadIdx.x == 0) at<uint32_t>(a.to)[0] += a.value;
}

/* What a block finds in shared memory, into the word of its number; it leaves something behind. */
KERNEL(read_static, probe_args)
{
    SHARED(word, s);
    if (threadIdx.x) return;
    at<uint32_t>(a.to)[blockIdx.x] = s.of[3];
    s.of[3] = 7;
}

KERNEL(read_dynamic, probe_args)
{
    DYNAMIC(uint32_t, s);
    if (threadIdx.x) return;
    at<uint32_t>(a.to)[blockIdx.x] = s[3];
    s[3] = 7;
}

KERNEL(beyond_static, probe_args)
{
    SHARED(word, s);
    if (threadIdx.x == 0) (s.of + a.at)[0] = 7;
}

KERNEL(beyond_dynamic, probe_args)
{
    DYNAMIC(uint32_t, s);
    if (threadIdx.x == 0) s[a.at] = 7;
}

KERNEL(too_much_static, probe_args)
{
    struct large { unsigned char of[48 << 10]; };
    SHARED(large, s);
    s.of[0] = static_cast<unsigned char>(a.value);
}

/* Word 0 counts; which thread, or block, comes first, second ... is in the others. */
KERNEL(turns, probe_args)
{
    uint32_t *to = at<uint32_t>(a.to);
    to[1 + to[0]++] = threadIdx.x;
}

KERNEL(block_turns, probe_args)
{
    uint32_t *to = at<uint32_t>(a.to);
    if (threadIdx.x == 0) to[1 + to[0]++] = blockIdx.x;
}

KERNEL(outside_of_mask, probe_args)
{
    if (threadIdx.x >= 16) return;
    uint32_t inside = __shfl_sync(0x0000ffffu, threadIdx.x, 5);
    uint32_t outside = __shfl_sync(0x0000ffffu, threadIdx.x, 20);
    if (threadIdx.x == 0) at<uint32_t>(a.to)[0] = inside, at<uint32_t>(a.to)[1] = outside;
}

KERNEL(not_in_its_mask, probe_args)
{
    at<uint32_t>(a.to)[0] = __shfl_sync(0x7fffffffu, a.value, 0);
}

KERNEL(lane_that_left, probe_args)
{
    if (threadIdx.x % 32 == 9) return;
    at<uint32_t>(a.to)[0] = __shfl_sync(FULL, a.value, 0);
}

KERNEL(masks_that_differ, probe_args)
{
    uint32_t lane = threadIdx.x % 32;
    at<uint32_t>(a.to)[0] = __shfl_sync(lane < 16 ? FULL : 0xffff8000u, a.value, 16);
}

KERNEL(left_a_barrier, probe_args)
{
    if (threadIdx.x == a.value) return;
    __syncthreads();
}

KERNEL(write_word, probe_args)
{
    if (threadIdx.x == 0) at<uint32_t>(a.to)[a.at] = a.value;
}
