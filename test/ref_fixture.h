/* What the tests of ref share: exact buffers, random weights, rows and kv. */
#ifndef REF_FIXTURE_H
#define REF_FIXTURE_H
#include "../core/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static uint64_t state;

static inline uint32_t draw(void) /* splitmix64 */
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 32);
}

static inline void set_seed(void)
{
    const char *set = getenv("FAK_TEST_SEED");
    state = set ? strtoul(set, NULL, 10) : (unsigned long)time(NULL);
    print_message("FAK_TEST_SEED=%lu\n", (unsigned long)state);
}

static inline float draw_unit(void) /* within [-1, 1) */
{
    return (float)((int32_t)(draw() >> 8) - 0x800000) * 0x1p-23f;
}

static inline void *need(size_t bytes) /* of exactly that size */
{
    void *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    return p;
}

static inline float *draw_row(uint32_t n, float scale)
{
    float *x = need(n * 4ul);
    for (uint32_t i = 0; i < n; i++) x[i] = draw_unit() * scale;
    return x;
}

static inline uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static inline float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static inline void assert_bits(const float *a, const float *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (bits_of(a[i]) != bits_of(b[i]) && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("element %u of %u: %a is not %a", i, n, (double)a[i], (double)b[i]);
}

static const uint32_t dtypes[] = {FAK_F32,  FAK_F16,  FAK_BF16, FAK_Q8_0, FAK_Q4_0, FAK_Q4_1,
                                  FAK_Q5_0, FAK_Q5_1, FAK_Q4_K, FAK_Q5_K, FAK_Q6_K};
enum { DTYPES = 11 };

static inline void *draw_weights(uint32_t dtype, uint32_t rows, uint32_t cols)
{
    size_t bytes = (size_t)dtype_row_bytes(dtype, cols);
    char *w = need(bytes * rows);
    for (uint32_t o = 0; o < rows; o++) {
        float *x = draw_row(cols, 1);
        dtype_encode_row(dtype, cols, x, w + o * bytes);
        free(x);
    }
    return w;
}

enum { LAYERS = 2, SLOTS = 3, CONTEXT = 40 };

static inline ref_kv kv_open(uint32_t dtype, uint32_t width, int evictable)
{
    ref_kv kv = {.dtype = dtype, .slots = SLOTS, .context = CONTEXT, .width = width};
    size_t bytes = (size_t)ref_kv_bytes(&kv, LAYERS),
           cells = (size_t)LAYERS * SLOTS * CONTEXT * width;
    assert_int_equal(bytes, cells * (dtype == FAK_F32 ? 4 : 2));
    kv.k = need(bytes);
    kv.v = need(bytes);
    kv.raw = evictable ? need(cells * 4) : NULL;
    memset(kv.k, 0xff, bytes); /* NaN in every dtype */
    memset(kv.v, 0xff, bytes);
    if (evictable) memset(kv.raw, 0xff, cells * 4);
    return kv;
}

static inline void kv_close(ref_kv *kv)
{
    free(kv->k), free(kv->v), free(kv->raw);
}
#endif
