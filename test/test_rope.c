/* rope: its own double functions against libm in long double, and the tables made of them. */
#include "../core/rope.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static uint64_t state;

static double draw_unit(void) /* splitmix64; within [-1, 1) */
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((int64_t)((z ^ z >> 31) >> 11) - ((int64_t)1 << 52)) * 0x1p-52;
}

static void set_seed(void)
{
    const char *set = getenv("FAK_TEST_SEED");
    state = set ? strtoul(set, NULL, 10) : (unsigned long)time(NULL);
    print_message("FAK_TEST_SEED=%lu\n", (unsigned long)state);
}

static void assert_near(double got, long double expected, long double bound, double of)
{
    long double off = fabsl((long double)got - expected);
    if (!(off <= bound)) fail_msg("at %a: %a, off by %Lg", of, got, off);
}

static void assert_sincos(double x)
{
    double s, c;
    rope_sincos(x, &s, &c);
    assert_near(s, sinl((long double)x), 0x1p-50L, x);
    assert_near(c, cosl((long double)x), 0x1p-50L, x);
}

static void test_sincos(void **unused)
{
    (void)unused;
    set_seed();
    double s, c;
    rope_sincos(0, &s, &c);
    assert_true(s == 0 && c == 1);
    for (int i = 0; i < 500000; i++) {
        assert_sincos(draw_unit() * 0x1p20);
        assert_sincos(draw_unit() * 8);
        assert_sincos(ldexp(draw_unit(), -i % 60));
    }
    for (int i = 0; i < 667000; i += 1 + i / 100) { /* where a sine or a cosine nearly vanishes */
        double x = i * 1.57079632679489661923;
        assert_sincos(x);
        assert_sincos(-x);
        assert_sincos(nextafter(x, INFINITY));
    }
    for (int i = 0; i < 4000; i++) assert_sincos(1048575 - i * 0.25);
}

static void test_exp2(void **unused)
{
    (void)unused;
    set_seed();
    for (int i = -999; i < 1000; i++) assert_true(rope_exp2(i) == ldexp(1, i));
    for (int i = 0; i < 500000; i++) {
        double x = draw_unit() * (i & 1 ? 999.5 : 1);
        assert_near(rope_exp2(x), exp2l((long double)x), 0x1p-50L * exp2l((long double)x), x);
    }
}

static void test_log2(void **unused)
{
    (void)unused;
    set_seed();
    for (int i = -1022; i < 1024; i++) assert_true(rope_log2(ldexp(1, i)) == i);
    for (int i = 0; i < 500000; i++) {
        double x = exp2(draw_unit() * (i & 1 ? 1020 : 1));
        long double expected = log2l((long double)x);
        assert_near(rope_log2(x), expected, 0x1p-51L * fmaxl(fabsl(expected), 1), x);
    }
}

/* Half a place of the float, and what the frequency's error makes of the angle. */
static void assert_entry(float got, long double expected, long double angle, long double steps)
{
    long double place = expected != 0 ? ldexpl(1, ilogbl(expected) - 24) : 0;
    long double bound = place * 1.0001L + 0x1p-50L + angle * 0x1p-51L * (steps + 3);
    assert_near((double)got, expected, bound, (double)angle);
}

static void check_table(uint32_t positions, uint32_t rot, double theta)
{
    float *out = malloc((size_t)positions * rot * 4);
    assert_non_null(out);
    rope_table(positions, rot, theta, out);
    for (uint32_t p = 0; p < positions; p++)
        for (uint32_t i = 0; i < rot / 2; i++) {
            long double steps = 2.0L * i / rot * log2l((long double)theta);
            long double angle = p * powl((long double)theta, -2.0L * i / rot);
            assert_entry(out[p * rot + i], cosl(angle), angle, fabsl(steps));
            assert_entry(out[p * rot + rot / 2 + i], sinl(angle), angle, fabsl(steps));
        }
    for (uint32_t i = 0; i < rot / 2; i++)
        assert_true(out[i] == 1 && out[rot / 2 + i] == 0); /* position 0 turns nothing */
    free(out);
}

static void test_table(void **unused)
{
    (void)unused;
    check_table(2048, 64, 10000);
    check_table(4096, 128, 500000);
    check_table(300, 20, 1000000);
    check_table(100, 2, 10000);
    check_table(100, 6, 1); /* every frequency 1 */
    check_table(50, 8, 0.5);
    check_table(1, 64, 10000);
    check_table(70000, 4, 1000000);
}

/* The last positions of the widest context, where the angle is at its largest. */
static void test_table_end(void **unused)
{
    (void)unused;
    enum { POSITIONS = (1 << 20) - 1 };
    float *out = malloc((size_t)POSITIONS * 2 * 4);
    assert_non_null(out);
    rope_table(POSITIONS, 2, 10000, out);
    for (uint32_t p = POSITIONS - 1000; p < POSITIONS; p++) {
        assert_entry(out[p * 2], cosl(p), p, 0);
        assert_entry(out[p * 2 + 1], sinl(p), p, 0);
    }
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sincos),    cmocka_unit_test(test_exp2),
        cmocka_unit_test(test_log2),      cmocka_unit_test(test_table),
        cmocka_unit_test(test_table_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
