/* The next id: greedy is the first maximum, and a NaN is nobody's maximum. */
#include "support.h"

#include "../core/ref.h"
#include "../core/sample.h"

#include <math.h>

static void test_want(void **state)
{
    sampler greedy = {0};
    (void)state;
    assert_int_equal(sampler_want(&greedy), FAK_WANT_ARGMAX);
}

/* What a device answers for a row of logits, then the id. */
static int32_t pick(const float *logits, uint32_t n, uint32_t *id, fak_error *e)
{
    sampler greedy = {0};
    uint32_t answer = ref_argmax(n, logits);
    *e = (fak_error){0};
    return sampler_pick(&greedy, &answer, id, e);
}

static void test_first_maximum(void **state)
{
    static const struct {
        float logits[5];
        uint32_t id;
    } row[] = {
        {{1, 2, 3, 4, 5}, 4},
        {{-1, -2, -3, -4, -5}, 0},
        {{0, 7, 7, 7, 0}, 1},
        {{-0.0f, 0, 0, 0, 0}, 0},
        {{-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY}, 0},
        {{1, INFINITY, 2, INFINITY, 3}, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        uint32_t id = 99;
        fak_error e;
        assert_int_equal(pick(row[i].logits, 5, &id, &e), FAK_OK);
        assert_int_equal(id, row[i].id);
    }
}

static void test_nan(void **state)
{
    (void)state;
    for (uint32_t at = 0; at < 5; at++)
        for (int negative = 0; negative < 2; negative++) {
            float logits[5] = {1, INFINITY, 3, -INFINITY, 2};
            uint32_t id = 99;
            fak_error e;
            logits[at] = negative ? -NAN : NAN;
            assert_int_equal(pick(logits, 5, &id, &e), STATUS_NAN);
            assert_int_equal(e.code, STATUS_NAN);
            assert_message(&e, "NaN");
        }
}

/* Any number but the one that means NaN is an id; the answer need not be aligned. */
static void test_answers(void **state)
{
    static const uint32_t answers[] = {0, 1, 255, 256, 65536, 0x7fffffff, 0x80000000, 0xfffffffe};
    sampler greedy = {0};
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        unsigned char bytes[8];
        uint32_t id = 99;
        fak_error e;
        memcpy(bytes + 1, &answers[i], 4);
        assert_int_equal(sampler_pick(&greedy, bytes + 1, &id, &e), FAK_OK);
        assert_int_equal(id, answers[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_want),
        cmocka_unit_test(test_first_maximum),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
