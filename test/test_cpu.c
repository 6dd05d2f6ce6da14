/* test_cpu - what a plugin may need of the CPU: made-up states, and the one we are on. */
#include "../core/cpu.h"
#include "../core/float_mode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void expect(const cpu_state *s, const char *need, const char *reason)
{
    char why[128] = "";
    int lacks = cpu_lacks(s, need, why, sizeof why);
    assert_int_equal(lacks, reason != NULL);
    if (reason) assert_string_equal(why, reason);
}

static void test_nothing(void **state)
{
    const cpu_state bare = {0};
    (void)state;
    expect(&bare, "", NULL);
    expect(&bare, " , ", NULL);
    expect(&bare, "x86-64", NULL);
    expect(&bare, "sse4.2", "it needs sse4.2, which this CPU lacks");
    expect(&bare, "x86-64-v3", "it needs cx16, which this CPU lacks");
    expect(&bare, "warp-drive", "it needs \"warp-drive\" of the CPU, which fak does not know");
    expect(&bare, "avx", "it needs avx, which this CPU lacks");
    expect(&bare, "av", "it needs \"av\" of the CPU, which fak does not know"); /* whole words */
}

static void test_operating_system(void **state)
{
    cpu_state all;
    (void)state;
    memset(&all, 0xff, sizeof all);
    expect(&all, "x86-64-v4 avx512vnni amx-int8", NULL);
    all.xcr0 = 0; /* XGETBV is off */
    expect(&all, "sse4.2 popcnt", NULL);
    expect(&all, "fma", "it needs fma, which the operating system has not enabled");
    all.xcr0 = 0x6;
    expect(&all, "x86-64-v3", NULL);
    expect(&all, "avx512f", "it needs avx512f, which the operating system has not enabled");
    all.xcr0 = 0x26; /* not all three parts of the wide registers */
    expect(&all, "x86-64-v4", "it needs avx512f, which the operating system has not enabled");
    all.xcr0 = 0xe6;
    expect(&all, "x86-64-v4", NULL);
    expect(&all, "amx-tile", "it needs amx-tile, which the operating system has not enabled");
    all.leaf[1][1] &= ~(1u << 5);
    expect(&all, "x86-64-v3", "it needs avx2, which this CPU lacks");
    expect(&all, "popcnt,avx2", "it needs avx2, which this CPU lacks");
}

static void test_this_machine(void **state)
{
    cpu_state s;
    char text[64], why[128];
    (void)state;
    cpu_look(&s);
    cpu_text(&s, text, sizeof text);
    print_message("%s\n", text);
#if defined __x86_64__
    assert_false(cpu_lacks(&s, "sse3", why, sizeof why));
    __builtin_cpu_init();
    assert_int_equal(!cpu_lacks(&s, "avx2", why, sizeof why), __builtin_cpu_supports("avx2") != 0);
    assert_int_equal(!cpu_lacks(&s, "avx512f", why, sizeof why),
                     __builtin_cpu_supports("avx512f") != 0);
#else
    assert_false(cpu_lacks(&s, "", why, sizeof why));
#endif
}

static void test_float_mode(void **state)
{
    float_mode mode, wrong;
    (void)state;
    float_mode_save(&mode);
    assert_true(float_mode_ok());
    static const int rounding[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fesetround(rounding[i]), 0);
        assert_false(float_mode_ok());
        float_mode_save(&wrong);
        assert_int_equal(fesetround(rounding[(i + 1) % 3]), 0);
        assert_false(float_mode_restore(&wrong)); /* it was not right before */
        assert_int_equal(fegetround(), rounding[i]);
        assert_true(float_mode_restore(&mode));
        assert_true(float_mode_ok());
        assert_false(float_mode_restore(&mode));
    }
#if defined __x86_64__
    for (unsigned bit = 6; bit <= 15; bit += 9) { /* subnormals are zero; flush to zero */
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 1u << bit);
        assert_false(float_mode_ok());
        float_mode_restore(&mode);
        assert_true(float_mode_ok());
    }
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_operating_system),
        cmocka_unit_test(test_this_machine),
        cmocka_unit_test(test_float_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
