/* cpu - see cpu.h.  Bits are those of Intel's and AMD's manuals. */
#include "cpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { EAX, EBX, ECX, EDX };
enum { L1, L7, L71, LX };                                  /* rows of cpu_state.leaf */
enum { NONE = 0, YMM = 0x6, ZMM = 0xe6, TILES = 0x60000 }; /* bits of XCR0 */

/* clang-format off */
static const struct feature { const char *name; uint8_t leaf, reg, bit; uint32_t os; } features[] = {
    {"sse3", L1, ECX, 0, NONE},          {"ssse3", L1, ECX, 9, NONE},
    {"sse4.1", L1, ECX, 19, NONE},       {"sse4.2", L1, ECX, 20, NONE},
    {"popcnt", L1, ECX, 23, NONE},       {"cx16", L1, ECX, 13, NONE},
    {"movbe", L1, ECX, 22, NONE},        {"lahf", LX, ECX, 0, NONE},
    {"lzcnt", LX, ECX, 5, NONE},         {"bmi1", L7, EBX, 3, NONE},
    {"bmi2", L7, EBX, 8, NONE},          {"avx", L1, ECX, 28, YMM},
    {"f16c", L1, ECX, 29, YMM},          {"fma", L1, ECX, 12, YMM},
    {"avx2", L7, EBX, 5, YMM},           {"avxvnni", L71, EAX, 4, YMM},
    {"avx512f", L7, EBX, 16, ZMM},       {"avx512dq", L7, EBX, 17, ZMM},
    {"avx512cd", L7, EBX, 28, ZMM},      {"avx512bw", L7, EBX, 30, ZMM},
    {"avx512vl", L7, EBX, 31, ZMM},      {"avx512vbmi", L7, ECX, 1, ZMM},
    {"avx512vnni", L7, ECX, 11, ZMM},    {"avx512bf16", L71, EAX, 5, ZMM},
    {"amx-bf16", L7, EDX, 22, TILES},    {"amx-tile", L7, EDX, 24, TILES},
    {"amx-int8", L7, EDX, 25, TILES},
};
static const struct { const char *name, *features; } levels[] = {
    {"x86-64", ""},
    {"x86-64-v2", "cx16 lahf popcnt sse3 sse4.1 sse4.2 ssse3"},
    {"x86-64-v3", "cx16 lahf popcnt sse3 sse4.1 sse4.2 ssse3 avx avx2 bmi1 bmi2 f16c fma lzcnt movbe"},
    {"x86-64-v4", "cx16 lahf popcnt sse3 sse4.1 sse4.2 ssse3 avx avx2 bmi1 bmi2 f16c fma lzcnt movbe "
                  "avx512f avx512bw avx512cd avx512dq avx512vl"},
};
/* clang-format on */

#if defined __x86_64__ || defined __i386__
#include <cpuid.h>

void cpu_look(cpu_state *s)
{
    *s = (cpu_state){0};
    uint32_t(*l)[4] = s->leaf, top = (uint32_t)__get_cpuid_max(0, NULL);
    if (top >= 1) __cpuid(1, l[L1][EAX], l[L1][EBX], l[L1][ECX], l[L1][EDX]);
    if (top >= 7) __cpuid_count(7, 0, l[L7][EAX], l[L7][EBX], l[L7][ECX], l[L7][EDX]);
    if (top >= 7 && l[L7][EAX] >= 1)
        __cpuid_count(7, 1, l[L71][EAX], l[L71][EBX], l[L71][ECX], l[L71][EDX]);
    if ((uint32_t)__get_cpuid_max(0x80000000u, NULL) >= 0x80000001u)
        __cpuid(0x80000001u, l[LX][EAX], l[LX][EBX], l[LX][ECX], l[LX][EDX]);
    if (l[L1][ECX] >> 27 & 1) { /* OSXSAVE: XGETBV may be used */
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        s->xcr0 = (uint64_t)high << 32 | low;
    }
}
#else
void cpu_look(cpu_state *s)
{
    *s = (cpu_state){0};
}
#endif

/* Is the next word of need there? */
static int lacks_word(const cpu_state *s, const char *word, size_t n, char *why, size_t why_bytes)
{
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        const struct feature *f = &features[i];
        if (strlen(f->name) != n || strncmp(f->name, word, n)) continue;
        if (!(s->leaf[f->leaf][f->reg] >> f->bit & 1)) {
            snprintf(why, why_bytes, "it needs %s, which this CPU lacks", f->name);
            return 1;
        }
        if ((s->xcr0 & f->os) != f->os) {
            snprintf(why, why_bytes, "it needs %s, which the operating system has not enabled",
                     f->name);
            return 1;
        }
        return 0;
    }
    snprintf(why, why_bytes, "it needs \"%.*s\" of the CPU, which fak does not know", (int)n, word);
    return 1;
}

int cpu_lacks(const cpu_state *s, const char *need, char *why, size_t why_bytes)
{
    for (const char *word = need; *(word += strspn(word, " ,")); word += strcspn(word, " ,")) {
        size_t n = strcspn(word, " ,");
        const char *level = NULL;
        for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
            if (strlen(levels[i].name) == n && !strncmp(levels[i].name, word, n))
                level = levels[i].features;
        if (level ? cpu_lacks(s, level, why, why_bytes) : lacks_word(s, word, n, why, why_bytes))
            return 1;
    }
    return 0;
}

void cpu_text(const cpu_state *s, char *text, size_t bytes)
{
    snprintf(text, bytes, "%08" PRIx32 ".%08" PRIx32 ".%08" PRIx32 ".%08" PRIx32 ".%" PRIx64,
             s->leaf[L1][ECX], s->leaf[L7][EBX], s->leaf[L7][ECX], s->leaf[L71][EAX], s->xcr0);
}
