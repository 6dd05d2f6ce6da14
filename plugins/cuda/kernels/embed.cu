/* EMBED: y[row] = w[token[row]], decoded exactly; an id >= vocab gives NaNs.
 * grid (columns / THREADS, rows) */
#include "format.h"

template <class F> DEV void embed(const embed_args &a)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, r = blockIdx.y;
    if (r >= rows_of(a.step, SCOPE_ROWS) || i >= a.cols) return;
    uint32_t id = row_of(a.step, r).token;
    float v = quiet_nan();
    if (id < a.vocab) v = F::weight(a.w, a.scales, static_cast<uint64_t>(id) * a.cols + i);
    at<float>(a.y)[static_cast<uint64_t>(r) * a.cols + i] = v;
}

#define EMBED(f)                                                                                   \
    KERNEL(embed_##f, embed_args)                                                                  \
    {                                                                                              \
        embed<f>(a);                                                                               \
    }
EMBED(f32)
EMBED(f16)
EMBED(bf16)
EMBED(q8_0)
EMBED(q4_0)
EMBED(q4_1)
EMBED(q4_k)
EMBED(q6_k)
