/* A tensor of more than 4 GiB, and one behind it: rows on both sides of 2 and of 4 GiB are read where
 * they lie, by the row source and by EMBED.  The file is all holes but for those rows. */
#include "image.h"

#include "../core/ref.h"
#include "../core/step.h"
#include "../core/weights.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COLS = 2048, ROWS = 600000, ROW_BYTES = 4 * COLS, AFTER = 8 };
static const uint32_t row[] = {0, 262143, 262144, 524287, 524288, ROWS - 1};
enum { MARKED = sizeof row / sizeof *row };
static char path[] = "/tmp/fak-test-large-XXXXXX";
static gguf *file;

/* What stands in column c of a marked row: that of no other row. */
static float mark(uint32_t r, uint32_t c)
{
    return (float)(8 * r + c % 8);
}

static int put_at(int fd, uint64_t at, const void *data, size_t bytes)
{
    return pwrite(fd, data, bytes, (off_t)at) == (ssize_t)bytes ? 0 : -1;
}

static int make(void **state)
{
    static image m;
    static float data[COLS];
    uint64_t wide_bytes = (uint64_t)ROWS * ROW_BYTES;
    int fd = mkstemp(path), rc = fd < 0;
    (void)state;
    m.big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    put_header(&m, 3, 2, 0);
    put_tensor(&m, "wide", 2, (const uint64_t[]){COLS, ROWS}, 0, 0);
    put_tensor(&m, "after", 1, (const uint64_t[]){AFTER}, 0, wide_bytes);
    put_data(&m, 32, 0);
    rc = rc || ftruncate(fd, (off_t)(m.bytes + wide_bytes + 4 * AFTER)) ||
         put_at(fd, 0, m.data, m.bytes);
    for (uint32_t i = 0; !rc && i < MARKED; i++) {
        for (uint32_t c = 0; c < COLS; c++) data[c] = mark(row[i], c);
        rc = put_at(fd, m.bytes + (uint64_t)row[i] * ROW_BYTES, data, sizeof data);
    }
    for (uint32_t c = 0; c < AFTER; c++) data[c] = mark(7, c);
    rc = rc || put_at(fd, m.bytes + wide_bytes, data, 4 * AFTER);
    if (fd >= 0) close(fd);
    return rc ? -1 : 0;
}

static int clear(void **state)
{
    (void)state;
    gguf_close(file);
    return unlink(path);
}

static void assert_marks(const float *x, uint32_t r, uint32_t cols)
{
    for (uint32_t c = 0; c < cols; c++)
        if (x[c] != mark(r, c)) fail_msg("row %u, column %u is %g", r, c, (double)x[c]);
}

static void test_file(void **state)
{
    fak_error e;
    (void)state;
    if (gguf_open(&file, path, &e)) fail_msg("%s", e.message);
    const gguf_tensor *wide = gguf_find_tensor(file, "wide"),
                      *after = gguf_find_tensor(file, "after");
    assert_true(wide->bytes == (uint64_t)ROWS * ROW_BYTES && wide->bytes > UINT32_MAX);
    assert_ptr_equal(after->data, wide->data + wide->bytes);
    assert_marks((const float *)(const void *)after->data, 7, AFTER);
}

static void test_row_source(void **state)
{
    static float got[2 * COLS];
    const gguf_tensor *t = gguf_find_tensor(file, "wide");
    const uint32_t index[2] = {FAK_NO_INDEX, 0};
    const weight w = {.name = "wide", .dtype = FAK_F32, .rows = ROWS, .cols = COLS, .tensor = t};
    weights table = {0};
    fak_source api;
    fak_error e;
    (void)state;
    assert_int_equal(weights_add(&table, &w, &e), FAK_OK);
    weights_source s = {.table = &table, .index = index, .values = 2};
    assert_int_equal(weights_source_open(&s, &api, &e), FAK_OK);
    assert_true(weights_bytes(&table.at[0]) == t->bytes);
    for (uint32_t i = 0; i < MARKED; i++) {
        if (api.read(&s, 1, FAK_NATIVE, row[i], 1, got, ROW_BYTES, &e)) fail_msg("%s", e.message);
        assert_marks(got, row[i], COLS);
    }
    for (uint32_t i = 1; i + 1 < MARKED; i += 2) { /* across the borders */
        if (api.read(&s, 1, FAK_AS_F32, row[i], 2, got, sizeof got, &e)) fail_msg("%s", e.message);
        assert_marks(got, row[i], COLS);
        assert_marks(got + COLS, row[i + 1], COLS);
    }
    assert_int_equal(api.read(&s, 1, FAK_NATIVE, ROWS, 1, got, ROW_BYTES, &e), FAK_E_ARGUMENT);
    assert_ptr_equal(api.borrow(&s, 1), t->data);
    weights_source_close(&s);
    weights_free(&table);
}

static void test_embed(void **state)
{
    static float y[MARKED * COLS];
    static char block[1 << 12];
    const fak_span span = {.rows = MARKED};
    const step_spec spec = {.rows = MARKED, .spans = 1, .token = row, .span = &span};
    fak_value value[3 + OP_PARTS] = {
        {0},
        {.kind = FAK_WEIGHT, .dtype = FAK_F32, .rows = ROWS, .cols = COLS},
        {.kind = FAK_ACT, .dtype = FAK_F32, .rows = FAK_STEP_ROWS, .cols = COLS}};
    void *at[3 + OP_PARTS] = {NULL, (void *)(uintptr_t)gguf_find_tensor(file, "wide")->data, y};
    const fak_op op = {.id = FAK_OP_EMBED, .revision = 1, .in = {1}, .out = {2}};
    (void)state;
    ref_memory m = {.value = value, .at = at, .values = 3, .step = step_write(block, &spec)};
    assert_int_equal(ref_op(&m, &op), FAK_OK);
    for (uint32_t i = 0; i < MARKED; i++) assert_marks(y + (size_t)i * COLS, row[i], COLS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_row_source),
        cmocka_unit_test(test_embed),
    };
    return cmocka_run_group_tests(tests, make, clear);
}
