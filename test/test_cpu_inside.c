/* test_cpu_inside - plugins/cpu from inside: its pool, its layouts, its small floats. */
#include "../core/dtype.h"
#include "../core/port.h"
#include "../plugins/cpu/layout.h"
#include "../plugins/cpu/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- pool ---- */

enum { PHASES = 40, CHUNKS = 64 };
typedef struct book { /* what was done */
    atomic_uint done[PHASES][CHUNKS];
    atomic_uint ended[PHASES]; /* chunks of the phase that are done */
    atomic_uint early;         /* chunks that began before the phase before had ended */
    uint32_t chunks[PHASES], threads;
    int slow; /* a helper sleeps in a chunk of this phase; -1: none does */
    unsigned nap_us;
    double busy_s; /* that each chunk takes: time for helpers to come */
} book;

static uint32_t chunks_of(void *self, uint32_t phase)
{
    return ((book *)self)->chunks[phase];
}

static void work(void *self, uint32_t phase, uint32_t chunk, uint32_t thread)
{
    book *b = self;
    for (uint32_t p = 0; p < phase; p++)
        if (atomic_load(&b->ended[p]) != b->chunks[p]) atomic_fetch_add(&b->early, 1);
    assert_true(thread < b->threads);
    for (double end = port_seconds() + b->busy_s; port_seconds() < end;) continue;
    if ((int)phase == b->slow && thread) usleep(b->nap_us);
    atomic_fetch_add(&b->done[phase][chunk], 1);
    atomic_fetch_add(&b->ended[phase], 1);
}

static void run_book(pool *p, book *b, uint32_t first, uint32_t end)
{
    memset(b->done, 0, sizeof b->done);
    memset(b->ended, 0, sizeof b->ended);
    for (uint32_t i = 0; i < first; i++) atomic_store(&b->ended[i], b->chunks[i]);
    pool_run(p, &(pool_job){b, first, end, chunks_of, work});
    assert_int_equal(atomic_load(&b->early), 0);
    for (uint32_t i = first; i < end; i++)
        for (uint32_t c = 0; c < CHUNKS; c++)
            assert_int_equal(atomic_load(&b->done[i][c]), c < b->chunks[i] ? 1 : 0);
}

/* Each chunk once, phases in order, whatever the threads; phases of no chunk and of one between them. */
static void test_every_chunk_once(void **state)
{
    static book b;
    (void)state;
    b.slow = -1;
    for (uint32_t i = 0; i < PHASES; i++)
        b.chunks[i] = i % 5 == 0 ? 0 : i % 3 == 0 ? 1 : 1 + i * 37 % CHUNKS;
    for (uint32_t threads = 1; threads <= 5; threads++) {
        pool *p = pool_open(threads);
        assert_non_null(p);
        b.threads = pool_threads(p);
        assert_int_equal(b.threads, threads);
        for (int job = 0; job < 300; job++)
            run_book(p, &b, (uint32_t)job % 7, PHASES - (uint32_t)job % 3);
        pool_close(p);
    }
}

/* Workers that have gone to sleep come back. */
static void test_sleepers_wake(void **state)
{
    static book b;
    (void)state;
    b.slow = -1;
    for (uint32_t i = 0; i < PHASES; i++) b.chunks[i] = 8;
    pool *p = pool_open(3);
    b.threads = 3;
    for (int job = 0; job < 5; job++) {
        usleep(20000);
        run_book(p, &b, 0, PHASES);
    }
    pool_close(p);
}

/* A helper that is away for long makes the caller go on alone, and all is done nevertheless. */
static void test_long_waits_are_noticed(void **state)
{
    static book b;
    (void)state;
    for (uint32_t i = 0; i < PHASES; i++) b.chunks[i] = 8;
    b.slow = 3;
    b.nap_us = 30000;
    b.busy_s = 100e-6;
    pool *p = pool_open(2);
    b.threads = 2;
    for (int job = 0; job < 50 && !pool_waits(p); job++) run_book(p, &b, 0, PHASES);
    assert_true(pool_waits(p) > 0);
    uint64_t waits = pool_waits(p);
    b.slow = -1;
    for (int job = 0; job < 20; job++) run_book(p, &b, 0, PHASES);
    assert_true(pool_waits(p) >= waits);
    pool_close(p);
}

static void test_threads(void **state)
{
    (void)state;
    assert_in_range(pool_default_threads(), 1, 4096);
    pool_close(NULL);
}

/* ---- layouts ---- */

static const uint32_t blocks[] = {FAK_F32,  FAK_F16,  FAK_BF16, FAK_Q8_0, FAK_Q4_0, FAK_Q4_1,
                                  FAK_Q5_0, FAK_Q5_1, FAK_Q4_K, FAK_Q5_K, FAK_Q6_K};

static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Bytes that any file might hold, but for scales that are no numbers. */
static void fill(uint32_t dtype, uint32_t rows, uint32_t cols, uint8_t *data, uint64_t *state)
{
    uint64_t row = dtype_row_bytes(dtype, cols);
    uint16_t bits;
    for (uint32_t r = 0; r < rows; r++) do
            for (uint64_t i = 0; i < row; i++) data[r * row + i] = (uint8_t)draw(state);
        while (dtype_bad_block(dtype, cols, data + r * row, &bits) != FAK_NO_INDEX);
}

/* Packed and decoded again: the floats that the core decodes from the file's bytes, bit for bit. */
static void test_packed_rows_decode(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++)
        for (uint32_t rows = 1; rows <= GROUP; rows += 5) {
            uint32_t dtype = blocks[k], cols = layout_find(dtype)->cols * 2;
            if (cols == 16) cols = 19; /* plain: any number of columns */
            uint64_t row = dtype_row_bytes(dtype, cols), bytes = layout_bytes(dtype, rows, cols),
                     seed = k + rows;
            uint8_t *src = malloc(rows * row), *group = malloc(bytes);
            float want[512], got[512];
            assert_non_null(src);
            assert_non_null(group);
            assert_int_equal(bytes, cols == 19 ? GROUP * row / 19 * 24 : GROUP * row);
            memset(group, 0xff, bytes);
            fill(dtype, rows, cols, src, &seed);
            layout_pack(layout_find(dtype), cols, rows, src, group);
            for (uint32_t r = 0; r < rows; r++) {
                dtype_decode_row(dtype, cols, src + r * row, want);
                layout_decode(layout_find(dtype), cols, group, r, got);
                for (uint32_t c = 0; c < cols; c++)
                    if (memcmp(&want[c], &got[c], sizeof *want))
                        fail_msg("%s row %u column %u: %a, not %a", dtype_name(dtype), r, c,
                                 (double)got[c], (double)want[c]);
            }
            for (uint32_t r = rows; r < GROUP; r++) { /* padding is worth nothing */
                layout_decode(layout_find(dtype), cols, group, r, got);
                for (uint32_t c = 0; c < cols; c++) assert_true(got[c] == 0);
            }
            free(src);
            free(group);
        }
}

static void test_layout_bytes(void **state)
{
    (void)state;
    assert_null(layout_find(99));
    assert_int_equal(layout_bytes(99, 16, 32), 0);
    assert_int_equal(layout_bytes(FAK_F32, 17, 33), 32 * 40 * 4);
    assert_int_equal(layout_bytes(FAK_BF16, 1, 8), 16 * 8 * 2);
    assert_int_equal(layout_bytes(FAK_Q8_0, 16, 33), 0);
    assert_int_equal(layout_bytes(FAK_Q8_0, 17, 64), 32 * 68);
    assert_int_equal(layout_bytes(FAK_Q6_K, 16, 128), 0);
    assert_int_equal(layout_bytes(FAK_Q6_K, 16, 256), 16 * 210);
}

/* All 65536 halves up, and floats around every boundary down, as the core does. */
static void test_small_floats(void **state)
{
    uint64_t seed = 5;
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float a = half_to_float((uint16_t)h), b = dtype_from_f16((uint16_t)h);
        assert_true(!memcmp(&a, &b, sizeof a) || (a != a && b != b));
        a = bfloat_to_float((uint16_t)h);
        b = dtype_from_bf16((uint16_t)h);
        assert_true(!memcmp(&a, &b, sizeof a) || (a != a && b != b));
    }
    for (uint32_t i = 0; i < 4000000; i++) {
        uint32_t bits = draw(&seed) ^ draw(&seed) << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        if (x != x) continue;
        assert_int_equal(float_to_half(x), dtype_to_f16(x));
        assert_int_equal(float_to_bfloat(x), dtype_to_bf16(x));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_chunk_once),       cmocka_unit_test(test_sleepers_wake),
        cmocka_unit_test(test_long_waits_are_noticed), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_packed_rows_decode),     cmocka_unit_test(test_layout_bytes),
        cmocka_unit_test(test_small_floats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
