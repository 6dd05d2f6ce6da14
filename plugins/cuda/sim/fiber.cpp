/* fiber - see fiber.h.  Every pass over a block's threads has an order of its own, so that a barrier that
 * is missing shows; what a real card cannot promise is not promised here: a barrier that some threads
 * have left, a mask that a thread is not in, or lanes that have gone end the process. */
#include "fiber.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#define LEAVE(save, bottom, size) __sanitizer_start_switch_fiber(save, bottom, size)
#define ARRIVE(save, bottom, size) __sanitizer_finish_switch_fiber(save, bottom, size)
#else
#define LEAVE(save, bottom, size) (void)(save), (void)(bottom), (void)(size)
#define ARRIVE(save, bottom, size) (void)(save), (void)(bottom), (void)(size)
#endif

/* ---- kernels ---- */

#define K(name, args) extern "C" void name(const args &);
#include "kernels.def"
#undef K
#define K(name, args)                                                                              \
    static void call_##name(const void *a)                                                         \
    {                                                                                              \
        name(*static_cast<const args *>(a));                                                       \
    }
#include "kernels.def"
#undef K
#define K(name, args) {#name, call_##name, sizeof(args)},
const kernel_row kernel_table[] = {
#include "kernels.def"
};
#undef K
const int kernel_count = sizeof kernel_table / sizeof *kernel_table;

namespace sim
{

enum {
    THREADS_MAX = 1024,
    STACK = (256 << 10) + 320, /* so that the tops of stacks lie in different lines of the cache */
    CANARY = 64
};
fiber *current;
dim block_at, block_size, grid_size;
uint64_t slot[WARPS_MAX][2][32];

static fiber fibers[THREADS_MAX];
static char *stacks; /* of all; never given back */
alignas(16) static unsigned char shared[SHARED_BYTES + CANARY];
static uint32_t shared_static; /* bytes of the kernel's static variable, once it was met */
static const launch *running;
static void *scheduler, *scheduler_fake;
static const void *scheduler_bottom;
static size_t scheduler_size;
static uint64_t seed;

/* ---- switching ---- */

extern "C" __attribute__((visibility("hidden"))) void sim_switch(void **from, void *to);
#if defined __x86_64__
__asm__(".text\n.globl sim_switch\n.hidden sim_switch\n.type sim_switch,@function\nsim_switch:\n"
        " push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
        " mov %rsp,(%rdi)\n mov %rsi,%rsp\n"
        " pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\n ret\n"
        ".size sim_switch, .-sim_switch\n.section .note.GNU-stack,\"\",@progbits\n.text\n");
enum { SAVED = 6 };
#elif defined __aarch64__
__asm__(".text\n.globl sim_switch\n.hidden sim_switch\n.type sim_switch,@function\nsim_switch:\n"
        " sub sp,sp,#160\n stp x29,x30,[sp]\n stp x19,x20,[sp,#16]\n stp x21,x22,[sp,#32]\n"
        " stp x23,x24,[sp,#48]\n stp x25,x26,[sp,#64]\n stp x27,x28,[sp,#80]\n"
        " stp d8,d9,[sp,#96]\n stp d10,d11,[sp,#112]\n stp d12,d13,[sp,#128]\n"
        " stp d14,d15,[sp,#144]\n mov x2,sp\n str x2,[x0]\n mov sp,x1\n"
        " ldp x29,x30,[sp]\n ldp x19,x20,[sp,#16]\n ldp x21,x22,[sp,#32]\n"
        " ldp x23,x24,[sp,#48]\n ldp x25,x26,[sp,#64]\n ldp x27,x28,[sp,#80]\n"
        " ldp d8,d9,[sp,#96]\n ldp d10,d11,[sp,#112]\n ldp d12,d13,[sp,#128]\n"
        " ldp d14,d15,[sp,#144]\n add sp,sp,#160\n ret\n"
        ".size sim_switch, .-sim_switch\n");
#else
#error "sim_switch is written for x86-64 and 64-bit Arm"
#endif

void meet(int state, uint32_t mask)
{
    fiber *f = current;
    void *fake = nullptr;
    f->state = state;
    f->mask = mask;
    LEAVE(state == DONE ? nullptr : &fake, scheduler_bottom, scheduler_size);
    sim_switch(&f->sp, scheduler);
    ARRIVE(fake, nullptr, nullptr);
}

static void enter()
{
    ARRIVE(nullptr, &scheduler_bottom, &scheduler_size);
    kernel_table[running->kernel].call(running->args);
    meet(DONE, 0);
}

/* A stack from which sim_switch returns into enter. */
static void *fresh_stack(char *stack)
{
    uintptr_t *p = reinterpret_cast<uintptr_t *>(stack + STACK);
#if defined __x86_64__
    *--p = 0;
    *--p = reinterpret_cast<uintptr_t>(enter);
    for (int i = 0; i < SAVED; i++) *--p = 0;
#else
    p -= 20;
    for (int i = 0; i < 20; i++) p[i] = 0;
    p[1] = reinterpret_cast<uintptr_t>(enter);
#endif
    return p;
}

static void resume(fiber *f)
{
    current = f;
    LEAVE(&scheduler_fake, f->stack, STACK);
    sim_switch(&scheduler, f->sp);
    ARRIVE(scheduler_fake, nullptr, nullptr);
}

/* ---- shared memory ---- */

void *shared_memory(uint32_t bytes)
{
    if (bytes > SHARED_BYTES - running->dynamic) fiber_die("more shared memory than there is");
    shared_static = (bytes + 15) & ~15u;
    return shared;
}

void *dynamic_memory()
{
    return shared + SHARED_BYTES - ((running->dynamic + 15) & ~15u);
}

/* NaNs, or ids far out of range.  The whole at first; then what the kernel uses. */
static void poison(int first)
{
    uint32_t dynamic = (running->dynamic + 15) & ~15u;
    memset(shared, 0xff, first ? static_cast<uint32_t>(SHARED_BYTES) : shared_static);
    memset(shared + SHARED_BYTES - dynamic, 0xff, dynamic + CANARY);
}

/* What lies behind the static variable and behind the dynamic one is still poison. */
static void check_canary()
{
    uint32_t dynamic = (running->dynamic + 15) & ~15u;
    bool room = shared_static + CANARY + dynamic <= SHARED_BYTES;
    for (uint32_t i = 0; i < CANARY; i++)
        if (shared[SHARED_BYTES + i] != 0xff || (room && shared[shared_static + i] != 0xff))
            fiber_die("a write beyond its shared memory");
}

/* ---- a block ---- */

/* Lets the lanes go on that all of a mask's lanes have come to. */
static bool release_warps(uint32_t n)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        fiber &f = fibers[i];
        if (f.state != AT_WARP) continue;
        current = &f;
        if (!(f.mask >> f.lane & 1)) fiber_die("a thread that is not in its own mask");
        bool all = true;
        for (uint32_t l = 0; l < 32; l++) {
            uint32_t other = f.warp * 32 + l;
            if (!(f.mask >> l & 1)) continue;
            if (other >= n || fibers[other].state == DONE)
                fiber_die("waits for a lane that has left");
            all = all && fibers[other].state == AT_WARP && fibers[other].mask == f.mask;
        }
        for (uint32_t l = 0; all && l < 32; l++)
            if (f.mask >> l & 1) fibers[f.warp * 32 + l].state = RUN;
        any = any || all;
    }
    return any;
}

static uint32_t draw(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>((seed >> 33) * below >> 31);
}

/* Runs every fiber that can go on, in an order of its own; how many have ended. */
static uint32_t pass(uint32_t n, uint32_t *order, bool *ran)
{
    uint32_t ended = 0;
    for (uint32_t i = n - 1; seed && i > 0; i--) {
        uint32_t j = draw(i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (uint32_t k = 0; k < n; k++) {
        fiber &f = fibers[order[k]];
        if (f.state != RUN) continue;
        resume(&f);
        *ran = true;
        ended += f.state == DONE;
    }
    return ended;
}

static void run_block(uint32_t n, int first)
{
    static uint32_t order[THREADS_MAX];
    poison(first);
    for (uint32_t i = 0; i < n; i++) {
        fiber &f = fibers[i];
        f.stack = stacks + static_cast<size_t>(i) * STACK;
        f.tid = {i, 0, 0};
        f.lane = i % 32, f.warp = i / 32, f.state = RUN, f.turn = 0;
        f.sp = fresh_stack(f.stack);
        order[i] = i;
    }
    for (uint32_t left = n; left;) {
        uint32_t waiting = 0;
        bool ran = false;
        left -= pass(n, order, &ran);
        ran |= release_warps(n);
        for (uint32_t i = 0; i < n; i++) waiting += fibers[i].state == AT_BLOCK;
        if (waiting && waiting == left && left < n)
            fiber_die("a barrier that some threads have left");
        for (uint32_t i = 0; waiting == n && i < n; i++) fibers[i].state = RUN, ran = true;
        if (left && !ran) fiber_die("threads that wait for each other");
    }
    check_canary();
}
} // namespace sim

void fiber_die(const char *what)
{
    fprintf(stderr, "cuda-sim: kernel %s, block (%u, %u, %u), thread %u: %s\n",
            kernel_table[sim::running->kernel].name, sim::block_at.x, sim::block_at.y,
            sim::block_at.z, sim::current ? sim::current->tid.x : 0, what);
    abort();
}

int fiber_ready(void)
{
    size_t bytes = static_cast<size_t>(sim::THREADS_MAX) * sim::STACK;
    if (sim::stacks) return 1;
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return 0;
    sim::stacks = static_cast<char *>(p);
    return 1;
}

void fiber_run(const launch *l, uint64_t order)
{
    uint64_t blocks = static_cast<uint64_t>(l->grid[0]) * l->grid[1] * l->grid[2];
    sim::running = l;
    sim::seed = order;
    sim::shared_static = 0;
    sim::grid_size = {l->grid[0], l->grid[1], l->grid[2]};
    sim::block_size = {l->threads, 1, 1};
    for (uint64_t i = 0; i < blocks; i++) { /* nobody may count on an order of blocks */
        uint64_t b = order & 1 ? blocks - 1 - i : i, row = b / l->grid[0];
        sim::block_at = {static_cast<uint32_t>(b % l->grid[0]),
                         static_cast<uint32_t>(row % l->grid[1]),
                         static_cast<uint32_t>(row / l->grid[1])};
        sim::run_block(l->threads, i == 0);
    }
}
