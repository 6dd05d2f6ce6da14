/* dtype: what PyPI's gguf makes of the same bytes and floats, to the bit.  data/gguf_rows.txt has it
 * (gguf_rows.py wrote it, and says how both draw). */
#include "../core/dtype.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FORMATS = 8, ENCODED = 5, WEIGHTS = 256, BYTES = 210 };

static uint64_t state;

static uint64_t draw(void) /* splitmix64 */
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void hash_byte(uint64_t *h, uint32_t byte)
{
    *h = (*h ^ (byte & 255)) * UINT64_C(0x100000001b3);
}

static uint32_t bits_of(float x) /* every NaN alike */
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : u;
}

/* ggml's number of the format: what seeds the draws. */
static uint64_t seed_of(uint32_t id)
{
    static const uint8_t number[] = {8, 2, 3, 6, 7, 12, 13, 14};
    return number[id - FAK_Q8_0];
}

static uint64_t decoded(const dtype_info *info, uint32_t blocks)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325), word = 0;
    uint8_t block[BYTES];
    float x[WEIGHTS];
    state = seed_of(info->id);
    for (uint32_t b = 0, at = 0; b < blocks; b++) {
        for (uint32_t i = 0; i < info->block_bytes; i++, at++) {
            if (at % 8 == 0) word = draw();
            block[i] = (uint8_t)(word >> at % 8 * 8);
        }
        dtype_decode_row(info->id, info->block, block, x);
        for (uint32_t i = 0; i < info->block; i++)
            for (int k = 0; k < 4; k++) hash_byte(&h, bits_of(x[i]) >> 8 * k);
    }
    return h;
}

static uint64_t encoded(const dtype_info *info, uint32_t blocks)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    uint8_t block[BYTES];
    float x[WEIGHTS];
    state = 100 + seed_of(info->id);
    for (uint32_t b = 0; b < blocks; b++) {
        for (uint32_t i = 0; i < info->block; i++)
            x[i] = (float)((int32_t)(draw() >> 40) - (1 << 23)) * 0x1p-23f;
        dtype_encode_row(info->id, info->block, x, block);
        for (uint32_t i = 0; i < info->block_bytes; i++) hash_byte(&h, block[i]);
    }
    return h;
}

/* A block and its first 32 weights, which show where a difference lies. */
static void compare_block(const dtype_info *info, const char *hex, const char *weights)
{
    uint8_t block[BYTES] = {0};
    float x[WEIGHTS];
    assert_int_equal(strlen(hex), 2 * info->block_bytes);
    assert_int_equal(strlen(weights), 8 * 32);
    for (uint32_t i = 0; i < info->block_bytes; i++) {
        unsigned byte = 0;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        block[i] = (uint8_t)byte;
    }
    dtype_decode_row(info->id, info->block, block, x);
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t bits = 0;
        assert_int_equal(sscanf(weights + 8 * i, "%8" SCNx32, &bits), 1);
        if (bits_of(x[i]) != bits)
            fail_msg("%s: weight %u is %08x, gguf has %08x", info->name, i, bits_of(x[i]), bits);
    }
}

static void test_gguf_rows(void **unused)
{
    char line[1024], what[8], name[8], first[512], second[512];
    int seen[3] = {0};
    FILE *f = fopen(TEST_DATA "/gguf_rows.txt", "r");
    (void)unused;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        assert_int_equal(sscanf(line, "%7s %7s %511s %511s", what, name, first, second), 4);
        const dtype_info *info = dtype_by_name(name);
        assert_non_null(info);
        if (!strcmp(what, "block")) {
            compare_block(info, first, second);
            seen[0]++;
            continue;
        }
        int encodes = !strcmp(what, "encode");
        uint32_t blocks = (uint32_t)strtoul(first, NULL, 10);
        uint64_t hash = encodes ? encoded(info, blocks) : decoded(info, blocks);
        assert_true(blocks > 0);
        if (hash != strtoull(second, NULL, 16))
            fail_msg("%s %s: %016" PRIx64 ", gguf has %s", what, name, hash, second);
        seen[1 + encodes]++;
    }
    fclose(f);
    assert_int_equal(seen[0], FORMATS);
    assert_int_equal(seen[1], FORMATS);
    assert_int_equal(seen[2], ENCODED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gguf_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
