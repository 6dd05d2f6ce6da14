/* wrong - one backend for each row of wrong.h that a host or a user meets; which one, the build
 * says: -DWRONG_KIND=WRONG_x -DWRONG_IS_x -DWRONG_NAME="x".  Each is cpu-ref, linked into it under the
 * name "inner", but for the one thing. */
#include "wrong_known.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#if defined __x86_64__
#include <xmmintrin.h>
#endif

/* ---- what the file claims ---- */

#ifdef WRONG_IS_next_major
#undef FAK_ABI_MAJOR
#define FAK_ABI_MAJOR 2u
#define ENTRY fak_backend_entry_v2
FAK_EXPORT fak_entry_fn ENTRY;
#else
#define ENTRY fak_backend_entry_v1
#endif
#if defined WRONG_IS_note_name
FAK_NOTE("another", FAK_REFERENCE, "");
#elif defined WRONG_IS_note_cpu
FAK_NOTE(WRONG_NAME, FAK_REFERENCE, "x86-64-v9");
#else
FAK_NOTE(WRONG_NAME, FAK_REFERENCE, "");
#endif

/* ---- what goes wrong ---- */

__attribute__((no_sanitize("undefined"))) static void crash(void)
{
    volatile int *volatile nowhere = NULL;
    *nowhere = 1;
}

static void hang(void)
{
    for (;;) pause();
}

static void flush_to_zero(void)
{
#if defined __x86_64__
    _mm_setcsr(_mm_getcsr() | 0x8040u);
#elif defined __aarch64__
    unsigned long mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    __asm__ volatile("msr fpcr, %0" : : "r"(mode | 1ul << 24));
#endif
}

static void say(const char *where)
{
    printf("wrong: a word on stdout in %s\n", where);
    fflush(stdout);
}

__attribute__((constructor)) static void early(void)
{
    if (IS(ctor_sigill)) raise(SIGILL);
    if (IS(ctor_sigsegv)) crash();
    if (IS(ctor_exit_0)) exit(0);
    if (IS(ctor_exit_3)) exit(3);
    if (IS(ctor_hang)) hang();
    if (IS(ftz_ctor)) flush_to_zero();
    if (IS(stdout_ctor)) say("a constructor");
}

static uint32_t counted; /* tls-destructor, at-exit: runs; clash: calls of what is exported */

#ifdef WRONG_IS_clash
FAK_EXPORT int32_t status_set(fak_error *, int32_t, const char *, ...);
FAK_EXPORT int32_t plugin_load(void *, void *, fak_error *);
FAK_EXPORT int32_t device_open(void *, const void *, uint32_t, const void *, uint32_t, fak_error *);
FAK_EXPORT void *weights_add(size_t);

int32_t status_set(fak_error *e, int32_t code, const char *format, ...)
{
    (void)e, (void)format, counted++;
    return code + 1;
}

int32_t plugin_load(void *all, void *p, fak_error *e)
{
    (void)all, (void)p, (void)e, counted++;
    return 1;
}

int32_t device_open(void *d, const void *p, uint32_t index, const void *set, uint32_t n,
                    fak_error *e)
{
    (void)d, (void)p, (void)index, (void)set, (void)n, (void)e, counted++;
    return 1;
}

void *weights_add(size_t bytes) /* a wrapper of malloc by a name that the host has */
{
    counted++;
    return malloc(bytes);
}
#endif

#ifdef WRONG_IS_missing_library
int stub_unused(void); /* of a library that has another name when it is looked for */
#endif
#ifdef WRONG_IS_big_tls
static __thread char big[65536] __attribute__((tls_model("initial-exec")));
#endif

static void count_exit(void)
{
    counted++;
}

static pthread_key_t key;

static void at_thread_exit(void *value)
{
    (void)value;
    counted++;
}

/* ---- programs ---- */

static const fak_backend *in;          /* cpu-ref's table */
static uint32_t op_id = FAK_OP_MATMUL; /* option op */
static char silent_at[16] = "prepare"; /* option at */
static fak_stats stats = {.struct_size = sizeof stats};

static int is_silent(const char *at)
{
    return IS(silent) && !strcmp(at, silent_at);
}

static int32_t prepare(fak_device *d, const fak_plan *plan, const fak_limits *limits,
                       fak_program *weights_of, uint32_t flags, uint32_t *verdict,
                       fak_report *theirs, fak_program **out, fak_error *e)
{
    fak_report r = {.struct_size = sizeof r};
    *out = NULL;
    if (is_silent("prepare")) {
        *out = (fak_program *)(void *)&counted; /* no program: it failed */
        return FAK_E_MEMORY;
    }
    int32_t s = in->prepare(d, plan, limits, weights_of, flags, verdict, &r, out, e);
    if (IS(ftz_prepare)) flush_to_zero();
    if (IS(capacity_liar)) r.flags &= ~(uint32_t)FAK_EXACT;
    if (IS(lying_capacity)) r.scratch_bytes /= 2;
    fak_put(theirs, &r, sizeof r);
    if (!*out || remember(*out, plan)) return s;
    in->release(*out);
    *out = NULL;
    return fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "wrong: no host memory for a plan");
}

static void release(fak_program *p)
{
    forget(p);
    in->release(p);
}

static int32_t load(fak_program *p, const uint32_t *value, uint32_t n, const fak_source *s,
                    fak_error *e)
{
    if (IS(ftz_load)) flush_to_zero();
    return is_silent("load") ? FAK_E_MEMORY : in->load(p, value, n, s, e);
}

/* ---- steps ---- */

static int32_t begin(fak_program *p, const fak_step *step, fak_error *e)
{
    return is_silent("begin") ? FAK_E_KV_FULL : in->begin(p, step, e);
}

static float *rows_of(fak_program *p, uint32_t value)
{
    const fak_host_view *view = in->get_ext(NULL, "fak.host_view/1");
    return (float *)(uintptr_t)view->view(p, value);
}

/* What is done to the op's output in the first row. */
static void spoil(fak_program *p, const program *k, const fak_op *o)
{
    float *y = o->out[0] ? rows_of(p, o->out[0]) : NULL;
    uint32_t bits, at = k->value[o->out[0]].cols / 2;
    if (IS(class_liar) && o->id == FAK_OP_GLU) {
        const float *g = rows_of(p, o->in[0]), *u = rows_of(p, o->in[1]);
        for (uint32_t i = 0; i < k->value[o->out[0]].cols; i++)
            y[i] = g[i] * u[i] / (1 + expf(-g[i]));
    }
    if (!y || o->id != op_id) return;
    if (IS(nan_writer)) y[at] = NAN;
    if (!IS(wrong_bit)) return;
    memcpy(&bits, &y[at], sizeof bits);
    bits ^= 1;
    memcpy(&y[at], &bits, sizeof bits);
}

static int32_t call(fak_program *p, uint32_t op, fak_error *e)
{
    const program *k = find(p);
    const fak_op *o = &k->op[op];
    fak_op_entry entry = {0};
    if (o->id == FAK_OP_MATMUL) {
        if (IS(op_sigsegv)) crash();
        if (IS(op_abort)) abort();
        if (IS(op_hang)) hang();
        if (IS(ftz_op)) flush_to_zero();
        if (IS(stdout_op)) say("an op");
        if (IS(late_unsupported))
            return fail(e, FAK_E_UNSUPPORTED, op, "wrong: it cannot after all");
        if (is_silent("op")) return FAK_E_STEP;
    }
    if (IS(tls_destructor)) pthread_setspecific(key, &counted);
    stats.host_waits += IS(sync_async);
    stats.allocations += IS(step_allocates);
    stats.dispatches++;
    for (uint32_t i = 0; i < in->ops && entry.id != o->id; i++)
        fak_get(&entry, sizeof entry, in->op, in->op_stride, i);
    int32_t s = entry.call(p, op, e);
    if (!s) spoil(p, k, o);
    return s;
}

static int32_t read_rows(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                         uint64_t *ticket, fak_error *e)
{
    if (is_silent("read")) return FAK_E_STEP;
    int32_t s = in->read(p, value, first, rows, dst, ticket, e);
    size_t bytes = find(p)->value[value].cols * 4ul;
    stats.bytes_down += rows * bytes;
    if (!s && IS(rows_beyond)) memset((char *)dst + rows * bytes, 0x77, bytes);
    if (IS(sync_async) || is_silent("wait")) *ticket = 1;
    return s;
}

static int32_t write_rows(fak_program *p, uint32_t value, uint32_t first, uint32_t rows,
                          const void *src, fak_error *e)
{
    return is_silent("write") ? FAK_E_STEP : in->write(p, value, first, rows, src, e);
}

static int32_t wait_for(fak_program *p, uint64_t ticket, uint32_t timeout_ms, fak_error *e)
{
    (void)p, (void)ticket, (void)timeout_ms, (void)e;
    return is_silent("wait") ? FAK_E_STEP : FAK_OK;
}

static int32_t kv_clone(fak_program *p, uint32_t to, uint32_t from, uint32_t len, fak_error *e)
{
    return is_silent("clone") ? FAK_E_KV_FULL : in->kv_clone(p, to, from, len, e);
}

/* ---- devices ---- */

enum { CAP_WAIT = IS(sync_async) || IS(silent), OPS = 20 };

typedef struct grown { /* elements and tables of a later minor */
    union {
        fak_op_entry op;
        fak_option option;
    };
    uint64_t later;
} grown;
typedef struct grown_table {
    fak_backend known;
    uint64_t later[8];
} grown_table;
typedef struct grown_facts {
    fak_opened known;
    uint64_t later[8];
} grown_facts;

static unsigned char table[OPS * sizeof(grown)];
static grown_facts facts;

static uint32_t stride_of(uint32_t mine)
{
    return IS(minor_99) ? (uint32_t)sizeof(grown) : mine;
}

static int32_t open_device(uint32_t index, const fak_setting *set, uint32_t n, fak_device **out,
                           const fak_opened **its_facts, fak_error *e)
{
    const fak_setting fused = {"fused", IS(ffn_silent) ? "1" : "0"};
    const fak_opened *theirs;
    if (IS(open_sigsegv)) crash();
    if (IS(open_slow)) sleep(30);
    if (IS(ftz_open)) flush_to_zero();
    if (IS(stdout_open)) say("open");
    if (IS(at_exit)) atexit(count_exit);
    for (uint32_t i = 0; i < n; i++) {
        if (!strcmp(set[i].name, "op"))
            op_id = (uint32_t)strtoul(set[i].value, NULL, 10);
        else if (!strcmp(set[i].name, "at"))
            snprintf(silent_at, sizeof silent_at, "%s", set[i].value);
        else
            return fail(e, FAK_E_ARGUMENT, i, "unknown option; it has: op, at");
    }
    int32_t s = in->open(index, &fused, 1, out, &theirs, e);
    if (s) return s;
    fak_take(&facts.known, sizeof facts.known, theirs);
    memset(facts.later, 0xff, sizeof facts.later);
    fak_opened *f = &facts.known;
    f->struct_size = IS(huge_sizes)    ? 1u << 31
                     : IS(short_facts) ? 16
                     : IS(minor_99)    ? (uint32_t)sizeof facts
                                       : (uint32_t)sizeof *f;
    f->op = (const fak_op_entry *)(const void *)table;
    f->op_stride = stride_of(sizeof *f->op);
    if (CAP_WAIT) f->caps |= FAK_CAP_ASYNC;
    if (IS(ffn_silent)) f->caps &= ~(uint32_t)FAK_CAP_FUSED_FFN;
    if (IS(capacity_silent)) f->caps &= ~(uint32_t)FAK_CAP_CAPACITY_PROBE;
    if (IS(note_class)) f->klass = FAK_APPROX;
    if (IS(f32_only)) f->numerics &= ~(uint32_t)FAK_ACT_Q8;
    *its_facts = f;
    return FAK_OK;
}

static void close_device(fak_device *d)
{
    if (d && IS(close_sigsegv)) crash();
    in->close(d);
}

static void get_stats(fak_device *d, fak_stats *out)
{
    (void)d;
    fak_put(out, &stats, sizeof stats);
}

static const void *get_ext(fak_device *d, const char *name)
{
    static const fak_stats_ext ext = {.struct_size = sizeof ext, .get = get_stats};
    if (!strcmp(name, "fak-test.counted/1")) return &counted;
    if (!strcmp(name, "fak.stats/1")) return &ext;
#ifdef WRONG_IS_big_tls
    if (!strcmp(name, "fak-test.big/1")) return big; /* so that it is not left out */
#endif
    return IS(memory_silent) ? NULL : in->get_ext(d, name);
}

static uint32_t device_count(const fak_setting *set, uint32_t n, fak_error *e)
{
    if (IS(ftz_count)) flush_to_zero();
    return in->device_count ? in->device_count(set, n, e) : 1;
}

/* A device of a kind that is never picked by itself: those that can be lived with would be. */
static int32_t device_info(uint32_t index, const fak_setting *set, uint32_t n, fak_device_info *out,
                           fak_error *e)
{
    fak_device_info mine = {.struct_size = sizeof mine};
    int32_t s = in->device_info(index, set, n, &mine, e);
    if (IS(ftz_info)) flush_to_zero();
    if (IS(any_id)) snprintf(mine.id, sizeof mine.id, "any:\xff\xfe");
    mine.kind = IS(f32_only) ? FAK_DISCRETE : FAK_SOFTWARE;
    if (!s) fak_put(out, &mine, sizeof mine);
    return s;
}

/* ---- the entry ---- */

static void fill(fak_backend *b)
{
    static const fak_option options[] = {{"op", "0..131", "3", "the op that goes wrong"},
                                         {"at", "text", "prepare", "the call that is silent"}};
    static grown later[2];
    for (uint32_t i = 0; i < 2; i++) later[i] = (grown){.option = options[i], .later = ~0ull};
    for (uint32_t i = 0; i < OPS && i < in->ops; i++) {
        grown entry = {.later = ~0ull};
        fak_get(&entry.op, sizeof entry.op, in->op, in->op_stride, i);
        entry.op.call = call;
        memcpy(table + i * stride_of(sizeof entry.op), &entry, stride_of(sizeof entry.op));
    }
    *b = *in; /* built together */
    b->name = WRONG_NAME;
    b->vendor = "fak tests";
    b->options = 2;
    b->option = IS(minor_99) ? &later->option : options;
    b->option_stride = stride_of(sizeof *options);
    b->op = (const fak_op_entry *)(const void *)table;
    b->op_stride = stride_of(sizeof *b->op);
    b->device_count = device_count;
    b->device_info = device_info;
    b->open = open_device;
    b->close = close_device;
    b->prepare = prepare;
    b->release = release;
    b->load = load;
    b->begin = begin;
    b->read = read_rows;
    b->write = write_rows;
    b->wait = CAP_WAIT ? wait_for : NULL;
    b->caps |= CAP_WAIT ? FAK_CAP_ASYNC : 0u;
    b->kv_clone = kv_clone;
    b->get_ext = get_ext;
}

int32_t ENTRY(const fak_host *host, const fak_backend **out, fak_error *e)
{
    static grown_table b;
    if (IS(entry_sigsegv)) crash();
    if (IS(entry_exit_0)) exit(0);
    if (IS(entry_hang)) hang();
    int32_t s = fak_backend_entry_v1_inner(host, &in, e);
    if (s) return s;
#ifdef WRONG_IS_missing_library
    counted += (uint32_t)stub_unused();
#endif
    if (IS(tls_destructor) && pthread_key_create(&key, at_thread_exit)) return FAK_E_MEMORY;
    fill(&b.known);
    memset(b.later, 0xff, sizeof b.later);
    b.known.struct_size = IS(huge_sizes) ? 1u << 31
                          : IS(minor_99) ? (uint32_t)sizeof b
                                         : (uint32_t)sizeof b.known;
    b.known.abi_minor = IS(minor_99) ? 99 : 0;
    *out = &b.known;
    return FAK_OK;
}
