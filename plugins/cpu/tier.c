/* tier - which kernels this processor can run: what it says of itself, and what the operating system has
 * enabled.  The compiler's own probe asks both (cpuid and xgetbv; the auxiliary vector on Arm). */
#include "cpu.h"

#include <string.h>

static int always(void)
{
    return 1;
}

#if defined __x86_64__
#include <cpuid.h>

const char tier_names[] = "auto|scalar|avx2|avx512|avx512-vnni";

static int has_avx2(void)
{
    unsigned a, b, c, d;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static int has_vnni(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}

static const tier tiers[] = {{"scalar", &cpu_kernels_scalar, always},
                             {"avx2", &cpu_kernels_avx2, has_avx2},
                             {"avx512", &cpu_kernels_avx512, has_avx512},
                             {"avx512-vnni", &cpu_kernels_vnni, has_vnni}};
#elif defined __aarch64__
#include <sys/auxv.h>

const char tier_names[] = "auto|scalar|neon|neon-dot";

static int has_dot(void)
{
    enum { ASIMDDP = 1 << 20 }; /* HWCAP */
    return (getauxval(AT_HWCAP) & ASIMDDP) != 0;
}

static const tier tiers[] = {{"scalar", &cpu_kernels_scalar, always},
                             {"neon", &cpu_kernels_neon, always},
                             {"neon-dot", &cpu_kernels_dot, has_dot}};
#else
const char tier_names[] = "auto|scalar";

static const tier tiers[] = {{"scalar", &cpu_kernels_scalar, always}};
#endif
enum { TIERS = sizeof tiers / sizeof *tiers };

const tier *tier_at(uint32_t i)
{
    return i < TIERS ? &tiers[i] : NULL;
}

const tier *tier_best(void)
{
    uint32_t i = TIERS - 1;
    while (!tiers[i].there()) i--;
    return &tiers[i];
}

const tier *tier_by_name(const char *name)
{
    for (uint32_t i = 0; i < TIERS; i++)
        if (!strcmp(tiers[i].name, name) && tiers[i].there()) return &tiers[i];
    return NULL;
}

/* ---- the table of a set ---- */

kernel_fn *kernel_find(const kernel_set *set, uint32_t op, uint32_t dtype, uint32_t tokens)
{
    for (uint32_t i = 0; i < set->rows; i++)
        if (set->row[i].op == op && set->row[i].dtype == dtype && set->row[i].tokens == tokens)
            return set->row[i].fn;
    return NULL;
}

uint32_t kernel_tile(const kernel_set *set, uint32_t rows)
{
    if (rows <= 1) return 1;
    if (rows <= 4) return 4;
    return rows <= 8 && set->tile > 8 ? 8 : set->tile;
}
