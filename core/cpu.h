/* cpu - what a plugin may need of the CPU, and whether it is there: the instructions and the operating
 * system's leave to use their registers. */
#ifndef CPU_H
#define CPU_H
#include <stddef.h>
#include <stdint.h>

typedef struct cpu_state {      /* x86: CPUID leaves 1, 7.0, 7.1, 0x80000001 as {eax, ebx, ecx, edx} */
    uint32_t leaf[4][4];
    uint64_t xcr0;              /* register states that the operating system saves; 0 = XGETBV is off */
} cpu_state;

void cpu_look(cpu_state *s);    /* all zero on other machines */

/* need: words of feature names ("avx2 fma") or a level ("x86-64-v3"), "" = nothing.  Returns 1 and the
 * reason ("needs avx512f, which the operating system has not enabled"), or 0 when all is there. */
int cpu_lacks(const cpu_state *s, const char *need, char *why, size_t why_bytes);

/* A line that differs where verdicts may: the CPU's features, in hex. */
void cpu_text(const cpu_state *s, char *text, size_t bytes);
#endif
