/* common - what every kernel includes: CUDA or its simulator, the step, the contract's scalar parts.
 * Products and sums are never fused (-fmad=false, -ffp-contract=off): what may be says fmaf. */
#ifndef COMMON_H
#define COMMON_H
#include "args.h"
#ifdef __CUDACC__
#define KERNEL(name, args)                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS, 4) name(const __grid_constant__ args a)
#define SHARED(T, name) __shared__ T name
#define DYNAMIC(T, name)                                                                           \
    extern __shared__ __align__(16) unsigned char dynamic_memory[];                                \
    T *name = reinterpret_cast<T *>(dynamic_memory)
#define UNROLL _Pragma("unroll")
/* Or loads would look where a pointer points, and wait for stores. */
#define ON_CARD(p) __builtin_assume(__isGlobal(p))
#define LOAD_FIXED(p) __ldg(p)
#else
#include "sim/sim.h"
#define KERNEL(name, args) extern "C" void name(const args &a)
#define UNROLL
#define ON_CARD(p)
#define LOAD_FIXED(p) (*(p))
#endif
#define DEV static __device__ __forceinline__
#define FULL 0xffffffffu /* all lanes of a warp */

template <class T> DEV T *at(gpu_ptr p)
{
    T *there = reinterpret_cast<T *>(static_cast<uintptr_t>(p));
    ON_CARD(there);
    return there;
}

/* What nobody writes while the kernel runs: in a wide load where T is wide and p is aligned. */
template <class T> DEV T fixed(gpu_ptr p)
{
    return LOAD_FIXED(at<const T>(p));
}

DEV float float_of(uint32_t bits)
{
    return __int_as_float(static_cast<int>(bits));
}

DEV uint32_t bits_of(float x)
{
    return static_cast<uint32_t>(__float_as_int(x));
}

DEV float quiet_nan()
{
    return float_of(0x7fc00000u);
}

DEV float infinity()
{
    return float_of(0x7f800000u);
}

DEV uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- the step ---- */

DEV const step_head *head_of(gpu_ptr step)
{
    return at<const step_head>(step);
}

DEV step_row row_of(gpu_ptr step, uint32_t r)
{
    return at<const step_row>(step + head_of(step)->row_at)[r];
}

DEV step_span span_of(gpu_ptr step, uint32_t i)
{
    return at<const step_span>(step + head_of(step)->span_at)[i];
}

/* The page of a span's sequence that holds position `pos`. */
DEV uint32_t page_of(gpu_ptr step, uint32_t span, uint32_t pos)
{
    const step_head *h = head_of(step);
    return at<const uint32_t>(step + h->page_at)[span * h->slot_pages + pos / KV_PAGE];
}

/* Rows that this step has.  Grids are as high as a bucket: a block beyond them leaves as a whole. */
DEV uint32_t rows_of(gpu_ptr step, uint32_t scope)
{
    return scope == SCOPE_WANTED ? head_of(step)->wanted : head_of(step)->rows;
}

/* ---- a warp and a block ---- */

DEV float warp_sum(float v)
{
    for (int d = 16; d; d /= 2) v = v + __shfl_xor_sync(FULL, v, d);
    return v;
}

DEV float warp_max(float v) /* of what is no NaN */
{
    for (int d = 16; d; d /= 2) {
        float other = __shfl_xor_sync(FULL, v, d);
        v = other > v || v != v ? other : v;
    }
    return v;
}

/* ---- numbers ---- */

/* The contract's exp: no other may be used. */
DEV float exp_(float x)
{
    float c = x > 88.3f ? 88.3f : x;
    float k = c * 0x1.715476p+0f + 12582912.0f;
    float n = k - 12582912.0f;
    float r = c - n * 0x1.62e4p-1f;
    r = r - n * 0x1.7f7d1cp-20f;
    float p = 0x1.6db4eap-10f;
    p = p * r + 0x1.123bdep-7f;
    p = p * r + 0x1.55545ep-5f;
    p = p * r + 0x1.55548ep-3f;
    p = p * r + 0.5f;
    float y = 1.0f + (r + (r * r) * p);
    y = float_of(bits_of(y) + (bits_of(k) << 23));
    y = x < -87.33654f ? 0.0f : y;
    return x == x ? y : x;
}

DEV float tanh_(float x)
{
    return 1.0f - 2.0f / (exp_(2.0f * x) + 1.0f);
}

enum { ACT_SILU = 0, ACT_GELU_TANH = 1 }; /* fak_act */

DEV float glu(uint32_t act, float g, float u)
{
    if (act == ACT_SILU) return (g / (1.0f + exp_(-g))) * u;
    float z = 0.7978845608f * (g + ((0.044715f * g) * g) * g);
    return ((0.5f * g) * (1.0f + tanh_(z))) * u;
}

#ifdef __CUDACC__
DEV float f32_of_f16(uint16_t h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

DEV uint16_t f16_of_f32(float f)
{
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
#else
static inline float f32_of_f16(uint16_t h)
{
    return sim::f32_of_f16(h);
}

static inline uint16_t f16_of_f32(float f)
{
    return sim::f16_of_f32(f);
}
#endif

DEV float f32_of_bf16(uint16_t h)
{
    return float_of(static_cast<uint32_t>(h) << 16);
}

DEV uint16_t bf16_of_f32(float f) /* to nearest even */
{
    uint32_t u = bits_of(f);
    if (f != f) return 0x7fc0;
    return static_cast<uint16_t>((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* ---- activations to Q8: a lane an element, a warp a block ---- */

DEV void quantise_block(float x, const q8_rows &q, uint64_t block)
{
    uint32_t lane = threadIdx.x % 32, most = bits_of(x) & 0x7fffffffu;
    for (int d = 16; d; d /= 2) {
        uint32_t other = __shfl_xor_sync(FULL, most, d);
        most = other > most ? other : most;
    }
    float m = float_of(most), scale = most >= 0x7f800000u ? quiet_nan() : 0.0f;
    int code = 0;
    if (most < 0x7f800000u && m > 0x1p-100f) {
        code = static_cast<int>(rintf(x * (127.0f / m)));
        scale = m / 127.0f;
    }
    int sum = code;
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(FULL, sum, d);
    at<int8_t>(q.codes)[block * 32 + lane] = static_cast<int8_t>(code);
    if (lane == 0) at<float>(q.d)[block] = scale;
    if (lane == 0) at<int>(q.sum)[block] = sum;
}
#endif
