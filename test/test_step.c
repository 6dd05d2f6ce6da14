/* Step blocks: what is written is read back through the ABI's accessors. */
#include "support.h"

#include "../core/step.h"

enum { ROWS_MAX = 9 };

/* A step of `rows` rows in `spans` spans, of which every second row is wanted. */
typedef struct made {
    uint32_t token[ROWS_MAX], wanted[ROWS_MAX];
    fak_span span[ROWS_MAX];
    step_spec spec;
} made;

static void make(made *m, uint32_t rows, uint32_t spans, uint32_t wanted)
{
    *m = (made){.spec = {.want = FAK_WANT_LOGITS, .rows = rows, .wanted = wanted, .spans = spans}};
    for (uint32_t i = 0; i < rows; i++) m->token[i] = 1000 + 7 * i;
    for (uint32_t i = 0; i < wanted; i++) m->wanted[i] = 2 * i;
    for (uint32_t i = 0; i < spans; i++) {
        uint32_t n = i + 1 < spans ? 1 : rows - i;
        m->span[i] = (fak_span){.slot = 40 - i, .row = i, .rows = n, .first = 100 * i};
    }
    m->spec.token = m->token;
    m->spec.wanted_row = m->wanted;
    m->spec.span = m->span;
}

/* Writes into exactly the bytes that step_bytes asks for. */
static const fak_step *write_exact(const step_spec *s, uint32_t bytes)
{
    uint8_t *block = malloc(bytes);
    assert_non_null(block);
    memset(block, 0xa5, bytes);
    const fak_step *step = step_write(block, s);
    assert_ptr_equal(step, block);
    assert_int_equal(step->bytes, bytes);
    return step;
}

static void assert_inside(const fak_step *step, const fak_array *a, uint32_t size)
{
    assert_int_equal(a->stride, size);
    assert_int_equal(a->offset % 4, 0);
    assert_true(a->offset >= step->struct_size);
    assert_true(a->offset + a->count * a->stride <= step->bytes);
}

static void assert_block(const fak_step *step, const made *m, uint32_t tokens)
{
    assert_int_equal(step->struct_size, sizeof *step);
    assert_int_equal(step->rows, m->spec.rows);
    assert_int_equal(step->want, m->spec.want);
    assert_int_equal(step->flags, m->spec.flags);
    assert_int_equal(step->reserved, 0);
    assert_int_equal(step->token.count, tokens);
    assert_int_equal(step->wanted.count, m->spec.wanted);
    assert_int_equal(step->span.count, m->spec.spans);
    assert_inside(step, &step->token, 4);
    assert_inside(step, &step->wanted, 4);
    assert_inside(step, &step->span, sizeof(fak_span));
    for (uint32_t i = 0; i < tokens; i++) {
        uint32_t token = 0;
        FAK_GET(&token, step, token, i);
        assert_int_equal(token, 1000 + 7 * i);
    }
    for (uint32_t i = 0; i < m->spec.wanted; i++) {
        uint32_t row = 0;
        FAK_GET(&row, step, wanted, i);
        assert_int_equal(row, 2 * i);
    }
    for (uint32_t i = 0; i < m->spec.spans; i++) {
        fak_span span = {0};
        FAK_GET(&span, step, span, i);
        assert_int_equal(span.slot, 40 - i);
        assert_int_equal(span.row, i);
        assert_int_equal(span.rows, i + 1 < m->spec.spans ? 1 : m->spec.rows - i);
        assert_int_equal(span.first, 100 * i);
    }
}

static void test_read_back(void **state)
{
    (void)state;
    for (uint32_t rows = 1; rows <= ROWS_MAX; rows++)
        for (uint32_t spans = 1; spans <= rows; spans++)
            for (uint32_t wanted = 0; wanted <= (rows + 1) / 2; wanted++) {
                made m;
                make(&m, rows, spans, wanted);
                const fak_step *step = write_exact(&m.spec, step_bytes(rows, wanted, spans));
                assert_block(step, &m, rows);
                free((void *)(uintptr_t)step);
            }
}

static void test_bytes(void **state)
{
    (void)state;
    assert_int_equal(step_bytes(1, 1, 1), 60 + 4 + 4 + 16);
    assert_int_equal(step_bytes(512, 3, 7), 60 + 4 * 512 + 4 * 3 + 16 * 7);
}

static void test_no_wanted(void **state)
{
    made m;
    (void)state;
    make(&m, 3, 1, 0);
    m.spec.want = FAK_WANT_NONE;
    m.spec.wanted_row = NULL;
    const fak_step *step = write_exact(&m.spec, step_bytes(3, 0, 1));
    assert_block(step, &m, 3);
    free((void *)(uintptr_t)step);
}

static void test_tokens_from_argmax(void **state)
{
    made m;
    (void)state;
    make(&m, 4, 4, 2);
    m.spec.want = FAK_WANT_ARGMAX;
    m.spec.flags = FAK_TOKENS_FROM_ARGMAX;
    m.spec.token = NULL;
    const fak_step *step = write_exact(&m.spec, step_bytes(0, 2, 4));
    assert_int_equal(step->rows, 4);
    assert_true(step->bytes < step_bytes(4, 2, 4));
    assert_block(step, &m, 0);
    free((void *)(uintptr_t)step);
}

/* Equal steps are equal bytes, whatever lay in the memory: blocks are compared and stored. */
static void test_no_holes(void **state)
{
    made m;
    (void)state;
    make(&m, 5, 2, 2);
    uint32_t bytes = step_bytes(5, 2, 2);
    uint8_t *a = malloc(bytes), *b = malloc(bytes);
    assert_true(a && b);
    memset(a, 0, bytes);
    memset(b, 0xff, bytes);
    step_write(a, &m.spec);
    step_write(b, &m.spec);
    assert_memory_equal(a, b, bytes);
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_back), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_no_wanted), cmocka_unit_test(test_tokens_from_argmax),
        cmocka_unit_test(test_no_holes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
