/* watch_code - see watch.h: code that runs when it may not, and allocations that fail, of the one object
 * that holds an address. */
#include "watch.h"

#if defined __linux__
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- the object that holds an address ---- */

enum { PARTS = 8 };
typedef struct part {
    uintptr_t at;
    size_t bytes;
} part;
typedef struct object {
    uintptr_t holds, base;
    part code[PARTS]; /* executable, in whole pages */
    int parts;
    const ElfW(Dyn) * dynamic;
} object;

static int look_at(struct dl_phdr_info *info, size_t bytes, void *self)
{
    object *o = self, found = {.holds = o->holds, .base = info->dlpi_addr};
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    int here = 0;
    (void)bytes;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + p->p_vaddr, end = at + p->p_memsz;
        if (p->p_type == PT_DYNAMIC) found.dynamic = (const ElfW(Dyn) *)at;
        if (p->p_type != PT_LOAD) continue;
        here |= o->holds >= at && o->holds < end;
        if (!(p->p_flags & PF_X) || found.parts == PARTS) continue;
        uintptr_t first = at / page * page;
        found.code[found.parts++] = (part){first, (end - first + page - 1) / page * page};
    }
    if (here) *o = found;
    return here;
}

static int find_object(const void *address, object *o)
{
    *o = (object){.holds = (uintptr_t)address};
    return dl_iterate_phdr(look_at, o) ? 0 : -1;
}

/* ---- sealing ---- */

static object sealed;
static volatile sig_atomic_t is_sealed, ran;
static struct sigaction before;

static void protect(int how)
{
    for (int i = 0; i < sealed.parts; i++)
        mprotect((void *)sealed.code[i].at, sealed.code[i].bytes, how);
}

static int in_code(uintptr_t at)
{
    for (int i = 0; i < sealed.parts; i++)
        if (at - sealed.code[i].at < sealed.code[i].bytes) return 1;
    return 0;
}

static void trapped(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (is_sealed && in_code((uintptr_t)info->si_addr)) {
        is_sealed = 0;
        ran++;
        protect(PROT_READ | PROT_EXEC); /* and it goes on */
        return;
    }
    sigaction(number, &before, NULL); /* it comes again, to whom it may concern */
}

int watch_seal(const void *address)
{
    struct sigaction mine = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
    sigemptyset(&mine.sa_mask);
    if (find_object(address, &sealed) || !sealed.parts || sigaction(SIGSEGV, &mine, &before))
        return -1;
    ran = 0;
    is_sealed = 1;
    protect(PROT_READ);
    return 0;
}

void watch_unseal(void)
{
    if (!sealed.parts) return;
    is_sealed = 0;
    protect(PROT_READ | PROT_EXEC);
    sigaction(SIGSEGV, &before, NULL);
    sealed.parts = 0;
}

int watch_ran(void)
{
    return ran;
}

/* ---- allocations ---- */

static uint64_t calls, fail_at, failures;

static int fails(void)
{
    if (!fail_at || __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) != fail_at) return 0;
    failures++;
    errno = ENOMEM;
    return 1;
}

static void *failing_malloc(size_t bytes)
{
    return fails() ? NULL : malloc(bytes);
}

static void *failing_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : calloc(count, bytes);
}

static void *failing_realloc(void *p, size_t bytes)
{
    return fails() ? NULL : realloc(p, bytes);
}

static void *failing_aligned_alloc(size_t align, size_t bytes)
{
    return fails() ? NULL : aligned_alloc(align, bytes);
}

static int failing_posix_memalign(void **p, size_t align, size_t bytes)
{
    return fails() ? ENOMEM : posix_memalign(p, align, bytes);
}

#if defined __x86_64__
enum { SLOT = R_X86_64_JUMP_SLOT, DATA = R_X86_64_GLOB_DAT };
#elif defined __aarch64__
enum { SLOT = R_AARCH64_JUMP_SLOT, DATA = R_AARCH64_GLOB_DAT };
#elif defined __riscv
enum { SLOT = R_RISCV_JUMP_SLOT, DATA = R_RISCV_64 };
#elif defined __s390x__
enum { SLOT = R_390_JMP_SLOT, DATA = R_390_GLOB_DAT };
#else
enum { SLOT = -1, DATA = -1 };
#endif

enum { KINDS = 5, SLOTS = 16 };
static const struct kind {
    const char *name;
    void (*with)(void);
} kinds[KINDS] = {{"malloc", (void (*)(void))failing_malloc},
                  {"calloc", (void (*)(void))failing_calloc},
                  {"realloc", (void (*)(void))failing_realloc},
                  {"aligned_alloc", (void (*)(void))failing_aligned_alloc},
                  {"posix_memalign", (void (*)(void))failing_posix_memalign}};

static struct patched {
    void **slot;
    void *was;
} patched[SLOTS];
static int patches;

/* The linker's slot is often read-only by now. */
static int put(void **slot, const void *value)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)slot / page * page;
    if (mprotect((void *)at, page, PROT_READ | PROT_WRITE)) return -1;
    memcpy(slot, &value, sizeof value);
    return 0;
}

static int is_patched(void *const *slot)
{
    for (int i = 0; i < patches; i++)
        if (patched[i].slot == slot) return 1;
    return 0;
}

/* A table of relocations: slots of the functions above get ours, once: some linkers (riscv64's) count the
 * table of calls as a part of the table of data too. */
static void patch(const object *o, const ElfW(Rela) * table, size_t bytes, const ElfW(Sym) * symbol,
                  const char *text)
{
    for (size_t i = 0; i < bytes / sizeof *table; i++) {
        int type = (int)ELF64_R_TYPE(table[i].r_info);
        const char *name = text + symbol[ELF64_R_SYM(table[i].r_info)].st_name;
        void **slot = (void **)(o->base + table[i].r_offset), *with;
        for (int k = 0; (type == SLOT || type == DATA) && k < KINDS; k++) {
            if (strcmp(name, kinds[k].name) || patches == SLOTS || is_patched(slot)) continue;
            memcpy(&with, &kinds[k].with, sizeof with);
            patched[patches] = (struct patched){slot, *slot};
            if (!put(slot, with)) patches++;
        }
    }
}

/* Most machines' loaders leave addresses in the dynamic section, some only offsets. */
static const void *located(const object *o, ElfW(Addr) at)
{
    return (const void *)(at < o->base ? o->base + at : at);
}

int watch_allocations(const void *address)
{
    object o;
    const ElfW(Sym) *symbol = NULL;
    const char *text = NULL;
    const ElfW(Rela) *slots = NULL, *data = NULL;
    size_t slot_bytes = 0, data_bytes = 0;
    if (find_object(address, &o) || !o.dynamic) return -1;
    for (const ElfW(Dyn) *d = o.dynamic; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB) symbol = located(&o, d->d_un.d_ptr);
        if (d->d_tag == DT_STRTAB) text = located(&o, d->d_un.d_ptr);
        if (d->d_tag == DT_JMPREL) slots = located(&o, d->d_un.d_ptr);
        if (d->d_tag == DT_PLTRELSZ) slot_bytes = d->d_un.d_val;
        if (d->d_tag == DT_RELA) data = located(&o, d->d_un.d_ptr);
        if (d->d_tag == DT_RELASZ) data_bytes = d->d_un.d_val;
        if (d->d_tag == DT_PLTREL && d->d_un.d_val != DT_RELA) return -1;
    }
    if (!symbol || !text) return -1;
    watch_allocations_end();
    if (slots) patch(&o, slots, slot_bytes, symbol, text);
    if (data) patch(&o, data, data_bytes, symbol, text);
    return patches;
}

void watch_fail(uint64_t k)
{
    calls = failures = 0;
    fail_at = k;
}

uint64_t watch_failed(void)
{
    return failures;
}

void watch_allocations_end(void)
{
    while (patches) {
        patches--;
        put(patched[patches].slot, patched[patches].was);
    }
    watch_fail(0);
}

#else /* nothing can be seen */

int watch_seal(const void *address)
{
    (void)address;
    return -1;
}

void watch_unseal(void)
{
}

int watch_ran(void)
{
    return 0;
}

int watch_allocations(const void *address)
{
    (void)address;
    return -1;
}

void watch_fail(uint64_t k)
{
    (void)k;
}

uint64_t watch_failed(void)
{
    return 0;
}

void watch_allocations_end(void)
{
}
#endif
