/* sim - the part of CUDA that kernels see, on the CPU: a fiber a thread, a block at a time (fiber.cpp).
 * Shared memory is poisoned for every block; a lane that is outside a mask gives poison. */
#ifndef SIM_H
#define SIM_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __forceinline__ inline

struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
struct float4 { float x, y, z, w; };

namespace sim {
struct dim { uint32_t x, y, z; };
struct fiber {
    void *sp;
    char *stack;
    dim tid;
    int state;
    uint32_t lane, warp, mask, turn;
};
enum { RUN, AT_BLOCK, AT_WARP, DONE };
enum { SHARED_BYTES = 48 << 10, WARPS_MAX = 32 };
extern fiber *current;
extern dim block_at, block_size, grid_size;
extern uint64_t slot[WARPS_MAX][2][32]; /* what lanes exchange, by turns */

void meet(int state, uint32_t mask);
void *shared_memory(uint32_t bytes);  /* the kernel's one static variable */
void *dynamic_memory();               /* behind it, of the size that the launch said */

/* The value of lane `from`. */
template <class T> static inline T exchange(uint32_t mask, T v, uint32_t from)
{
    static_assert(sizeof(T) <= 8, "a register or two");
    uint32_t w = current->warp, turn = current->turn++ & 1;
    uint64_t u = 0;
    memcpy(&u, &v, sizeof v);
    slot[w][turn][current->lane] = u;
    meet(AT_WARP, mask);
    u = mask >> (from & 31) & 1 ? slot[w][turn][from & 31] : ~uint64_t(0);
    memcpy(&v, &u, sizeof v);
    return v;
}

float f32_of_f16(uint16_t h);
uint16_t f16_of_f32(float f); /* to nearest even */
}

#define threadIdx (sim::current->tid)
#define blockIdx (sim::block_at)
#define SHARED(T, name) T &name = *static_cast<T *>(sim::shared_memory(sizeof(T)))
#define DYNAMIC(T, name) T *name = static_cast<T *>(sim::dynamic_memory())

static inline void __syncthreads()
{
    sim::meet(sim::AT_BLOCK, 0);
}

template <class T> static inline T __shfl_xor_sync(uint32_t mask, T v, int x)
{
    return sim::exchange(mask, v, sim::current->lane ^ static_cast<uint32_t>(x));
}

template <class T> static inline T __shfl_sync(uint32_t mask, T v, int lane)
{
    return sim::exchange(mask, v, static_cast<uint32_t>(lane));
}

static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 32; i += 8)
        c += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
    return c;
}

/* Each nibble of s picks a byte of y:x. */
static inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t s)
{
    uint64_t both = static_cast<uint64_t>(y) << 32 | x;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) out |= static_cast<uint32_t>(both >> (s >> (4 * i) & 7) * 8 & 255) << (8 * i);
    return out;
}

static inline int __float_as_int(float f)
{
    int i;
    memcpy(&i, &f, 4);
    return i;
}

static inline float __int_as_float(int i)
{
    float f;
    memcpy(&f, &i, 4);
    return f;
}
#endif
