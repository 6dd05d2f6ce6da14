/* unfit - one backend for each row of wrong.h of stage UNFIT, which only fakrun opcheck finds;
 * which one, the build says, as in wrong.c.  Each is cpu-ref, linked into it as "inner", but for the
 * one thing. */
#include "wrong_known.h"

#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IS_APPROX = IS(not_invariant) || IS(not_deterministic), SLOTS = 16, LATE = 8 };
FAK_NOTE(WRONG_NAME, IS_APPROX ? FAK_APPROX : FAK_REFERENCE, "");

static const fak_backend *in; /* cpu-ref's table */
static fak_op_entry table[20];
static fak_stats stats = {.struct_size = sizeof stats};

/* ---- the step under way ---- */

static uint32_t rows, steps, context, spans;
static fak_span span[SLOTS];
static const fak_program *begun;

static void note_step(const fak_program *p, const fak_step *s)
{
    rows = s->rows;
    steps++;
    begun = p;
    spans = s->span.count < SLOTS ? s->span.count : SLOTS;
    for (uint32_t i = 0; i < spans; i++) FAK_GET(&span[i], s, span, i);
}

static float *rows_of(fak_program *p, uint32_t value)
{
    const fak_host_view *view = in->get_ext(NULL, "fak.host_view/1");
    return (float *)(uintptr_t)view->view(p, value);
}

/* Rows of keys and of values of a layer in memory of the caller's; NULL without memory. */
static float *kv_rows(const fak_op *append, uint32_t len)
{
    return calloc(2ul * len * append->kv_heads * append->head_dim, sizeof(float));
}

/* ---- prepare, load, release ---- */

static const fak_plan *kept_plan;
static uint32_t kept_bytes;

static int is_unknown(const fak_plan *plan)
{
    for (uint32_t i = 0; i < plan->values.count; i++) {
        fak_value v;
        FAK_GET(&v, plan, values, i);
        if (v.dtype > FAK_Q6_K || v.quant_bits) return 1;
    }
    return 0;
}

/* What weights of Q8_0 would take as F32. */
static uint64_t as_floats(const fak_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->values.count; i++) {
        fak_value v;
        FAK_GET(&v, plan, values, i);
        if (v.kind == FAK_WEIGHT && v.dtype == FAK_Q8_0) bytes += 4ull * v.rows * v.cols;
    }
    return bytes;
}

static void leave(const fak_plan *plan, uint32_t id, uint32_t *verdict)
{
    for (uint32_t i = 0; i < plan->ops.count; i++) {
        fak_op o;
        FAK_GET(&o, plan, ops, i);
        if (o.id == id) verdict[i] = FAK_HOST;
    }
}

/* Memory that a program would need; 0 where it is not there. */
__attribute__((no_sanitize("undefined"))) static int take_memory(void)
{
    volatile char *first = malloc(128);
    if (!first && !IS(crash_malloc)) return 0;
    *first = 1;
    volatile char *own = malloc(256);
    if (own && !IS(leaks_memory)) free((void *)(uintptr_t)own);
    if (own || !IS(loses_memory)) free((void *)(uintptr_t)first);
    return own != NULL;
}

static int32_t prepare(fak_device *d, const fak_plan *plan, const fak_limits *limits,
                       fak_program *weights_of, uint32_t flags, uint32_t *verdict,
                       fak_report *theirs, fak_program **out, fak_error *e)
{
    fak_report r = {.struct_size = sizeof r};
    *out = NULL;
    if (IS(ignores_flags)) flags &= 15u;
    if (IS(takes_unknown) && is_unknown(plan)) return FAK_OK; /* verdicts as they are */
    if (IS(leaves_ffn)) leave(plan, FAK_OP_FFN, verdict);
    int takes = IS(silent_malloc) || IS(crash_malloc) || IS(leaks_memory) || IS(loses_memory);
    if (takes && !take_memory())
        return IS(silent_malloc) ? FAK_E_MEMORY
                                 : fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "unfit: no host memory");
    int32_t s = in->prepare(d, plan, limits, weights_of, flags, verdict, &r, out, e);
    if (IS(dry_differs) && flags & FAK_DRY_RUN) r.scratch_bytes /= 2;
    if (IS(upload_liar)) r.weight_bytes += as_floats(plan);
    fak_put(theirs, &r, sizeof r);
    context = limits->context;
    if (!*out) return s;
    kept_plan = plan;
    kept_bytes = plan->bytes;
    if (remember(*out, plan)) return s;
    in->release(*out);
    *out = NULL;
    return fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "unfit: no host memory for a plan");
}

static void release(fak_program *p)
{
    if (begun == p) begun = NULL;
    forget(p);
    in->release(p);
}

static int32_t load(fak_program *p, const uint32_t *value, uint32_t n, const fak_source *source,
                    fak_error *e)
{
    fak_source mine;
    fak_take(&mine, sizeof mine, source);
    if (IS(borrow_stale)) mine.flags |= FAK_STABLE;
    int32_t s = in->load(p, value, n, &mine, e);
    return IS(drops_error) ? FAK_OK : s;
}

/* ---- begin ---- */

static const fak_step *kept_step;
static uint32_t shared[SLOTS]; /* the slot that it is an alias of, + 1 */
static uint32_t begins, lose;  /* option lose-device */

/* Keys and values of the last position of the step before are zeros. */
static void lose_last(fak_program *p, const program *k)
{
    fak_error e;
    for (uint32_t i = 0; begun == p && i < k->ops; i++) {
        const fak_op *o = &k->op[i];
        float *zeros = o->id == FAK_OP_KV_APPEND ? kv_rows(o, 1) : NULL;
        for (uint32_t n = 0; zeros && n < spans; n++)
            in->kv_write(p, span[n].slot, o->layer, span[n].first + span[n].rows - 1, 1, zeros,
                         zeros, &e);
        free(zeros);
    }
}

/* The step with aliases in place of slots. */
static int32_t begin_shared(fak_program *p, const fak_step *step, fak_error *e)
{
    fak_step *mine = malloc(step->bytes);
    if (!mine) return fail(e, FAK_E_MEMORY, FAK_NO_INDEX, "unfit: no host memory for a step");
    memcpy(mine, step, step->bytes);
    for (uint32_t i = 0; i < mine->span.count; i++) {
        fak_span *at = (fak_span *)(void *)((char *)mine + mine->span.offset) + i;
        if (at->first == 0) shared[at->slot] = 0;
        if (shared[at->slot]) at->slot = shared[at->slot] - 1;
    }
    int32_t s = in->begin(p, mine, e);
    free(mine);
    return s;
}

static int32_t begin(fak_program *p, const fak_step *step, fak_error *e)
{
    if (IS(last_position)) lose_last(p, find(p));
    if (IS(lost_again) && lose && ++begins == lose)
        return fail(e, FAK_E_LOST, FAK_NO_INDEX, "unfit: the device is lost");
    kept_step = step;
    note_step(p, step);
    return IS(clone_shares) ? begin_shared(p, step, e) : in->begin(p, step, e);
}

/* ---- ops ---- */

typedef struct late { /* a write that is done when an op needs it */
    uint32_t value, first, rows;
    const void *src;
} late;
static late put_off[LATE];
static uint32_t writes;

static int32_t write_late(fak_program *p, fak_error *e)
{
    int32_t s = FAK_OK;
    for (uint32_t i = 0; !s && i < writes; i++)
        s = in->write(p, put_off[i].value, put_off[i].first, put_off[i].rows, put_off[i].src, e);
    writes = 0;
    return s;
}

static void flip(float *x)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    bits ^= 1;
    memcpy(x, &bits, sizeof bits);
}

/* Rows whose slot holds a NaN beyond them, left by others, are NaNs: a weight of 0 times NaN. */
static void leak_nans(fak_program *p, const program *k, const fak_op *o)
{
    uint32_t cols = o->kv_heads * o->head_dim, width = k->value[o->out[0]].cols;
    float *y = rows_of(p, o->out[0]);
    fak_error e;
    uint64_t ticket;
    for (uint32_t n = 0; n < spans; n++) {
        uint32_t from = span[n].first + span[n].rows, len = context - from;
        float *kv = kv_rows(o, len);
        size_t each = (size_t)len * cols, found = 0;
        if (kv &&
            in->kv_read(p, span[n].slot, o->layer, from, len, kv, kv + each, &ticket, &e) == 0)
            for (size_t i = 0; i < 2 * each; i++) found += isnan(kv[i]) != 0;
        for (size_t i = 0; found && i < (size_t)span[n].rows * width; i++)
            y[(size_t)span[n].row * width + i] = NAN;
        free(kv);
    }
}

static int32_t call(fak_program *p, uint32_t op, fak_error *e)
{
    const program *k = find(p);
    const fak_op *o = &k->op[op];
    fak_op_entry entry = {0};
    int32_t s = write_late(p, e);
    if (IS(keeps_step) && kept_step->rows != rows) return FAK_OK; /* as many rows as that one has */
    if (IS(keeps_plan) && kept_plan->bytes != kept_bytes) return FAK_OK; /* an op of that one */
    if (IS(stderr_op) && o->id == FAK_OP_MATMUL) fprintf(stderr, "unfit: a word in an op\n");
    for (uint32_t i = 0; i < in->ops && entry.id != o->id; i++)
        fak_get(&entry, sizeof entry, in->op, in->op_stride, i);
    if (!s) s = entry.call(p, op, e);
    if (s) return s;
    if (IS(nan_leak) && o->id == FAK_OP_ATTENTION) leak_nans(p, k, o);
    if (o->id == FAK_OP_MATMUL &&
        ((IS(not_invariant) && rows > 1) || (IS(not_deterministic) && steps % 2)))
        flip(rows_of(p, o->out[0]));
    return FAK_OK;
}

static int32_t read_rows(fak_program *p, uint32_t value, uint32_t first, uint32_t n, void *dst,
                         uint64_t *ticket, fak_error *e)
{
    const program *k = find(p);
    uint32_t cols = k->value[value].cols;
    int32_t s = write_late(p, e);
    for (uint32_t i = 0; IS(fat_argmax) && i < k->ops; i++) /* the logits are read with the ids */
        if (k->op[i].id == FAK_OP_ARGMAX && k->op[i].out[0] == value)
            cols += k->value[k->op[i].in[0]].cols;
    stats.bytes_down += 4ull * n * cols;
    return s ? s : in->read(p, value, first, n, dst, ticket, e);
}

static int32_t write_rows(fak_program *p, uint32_t value, uint32_t first, uint32_t n,
                          const void *src, fak_error *e)
{
    if (!IS(stale_src) || writes == LATE) return in->write(p, value, first, n, src, e);
    put_off[writes++] = (late){value, first, n, src};
    return FAK_OK;
}

/* ---- kv ---- */

static int32_t kv_clone(fak_program *p, uint32_t to, uint32_t from, uint32_t len, fak_error *e)
{
    int32_t s = in->kv_clone(p, to, from, len, e);
    if (!s && IS(clone_shares) && to < SLOTS) shared[to] = from + 1;
    return s;
}

/* Survivors keep the rotation of where they were. */
static int32_t evict_unrotated(fak_program *p, uint32_t slot, uint32_t first, uint32_t len,
                               fak_error *e)
{
    const program *k = find(p);
    uint32_t left = context - first - len;
    float *kept[64] = {NULL};
    uint64_t ticket;
    int32_t s = FAK_OK;
    for (uint32_t i = 0; !s && i < k->ops && i < 64; i++) {
        const fak_op *o = &k->op[i];
        if (o->id != FAK_OP_KV_APPEND || !(kept[i] = kv_rows(o, left))) continue;
        float *v = kept[i] + (size_t)left * o->kv_heads * o->head_dim;
        s = in->kv_read(p, slot, o->layer, first + len, left, kept[i], v, &ticket, e);
    }
    if (!s) s = in->kv_evict(p, slot, first, len, e);
    for (uint32_t i = 0; i < 64; i++) {
        const fak_op *o = &k->op[i < k->ops ? i : 0];
        if (!s && kept[i])
            s = in->kv_write(p, slot, o->layer, first, left, kept[i],
                             kept[i] + (size_t)left * o->kv_heads * o->head_dim, e);
        free(kept[i]);
    }
    return s;
}

static int32_t kv_evict(fak_program *p, uint32_t slot, uint32_t first, uint32_t len, fak_error *e)
{
    return IS(evict_off) ? evict_unrotated(p, slot, first, len, e)
                         : in->kv_evict(p, slot, first, len, e);
}

/* ---- devices ---- */

static void *wait_for_ever(void *self)
{
    for (;;) pause();
    return self;
}

static void leave_traces(void)
{
    static int child;
    pthread_t thread;
    if (IS(leaks_thread) && !pthread_create(&thread, NULL, wait_for_ever, NULL))
        pthread_detach(thread);
    if (IS(leaks_file)) stats.allocations += (uint64_t)open("/dev/null", O_RDONLY);
    if (IS(sets_locale)) setlocale(LC_ALL, "C.UTF-8");
    if (IS(sets_env)) setenv("FAK_UNFIT", "1", 1);
    if (IS(sets_folder)) stats.allocations += (uint64_t)chdir("/");
    if (IS(sets_signal)) signal(SIGUSR2, SIG_IGN);
    if (IS(sets_umask)) umask(0123);
    if (IS(leaves_child) && !child && !(child = fork())) _exit(0);
}

static int32_t open_device(uint32_t index, const fak_setting *set, uint32_t n, fak_device **out,
                           const fak_opened **its_facts, fak_error *e)
{
    static fak_opened facts;
    const fak_setting fused = {"fused", IS(leaves_ffn) ? "1" : "0"};
    const fak_opened *theirs;
    begins = lose = 0;
    for (uint32_t i = 0; i < n; i++) {
        int idle = IS(idle_fault) && !strcmp(set[i].name, "fail-submit");
        int loses = IS(lost_again) && !strcmp(set[i].name, "lose-device");
        if (loses) lose = (uint32_t)strtoul(set[i].value, NULL, 10);
        if (!idle && !loses && !IS(takes_option))
            return fail(e, FAK_E_ARGUMENT, i, "unknown option");
    }
    int32_t s = in->open(index, &fused, 1, out, &theirs, e);
    if (s) return s;
    leave_traces();
    fak_take(&facts, sizeof facts, theirs);
    facts.op = table; /* as many of them as the device has */
    if (IS_APPROX) facts.klass = FAK_APPROX;
    *its_facts = &facts;
    return FAK_OK;
}

static void get_stats(fak_device *d, fak_stats *out)
{
    (void)d;
    fak_put(out, &stats, sizeof stats);
}

static const void *get_ext(fak_device *d, const char *name)
{
    static const fak_stats_ext ext = {.struct_size = sizeof ext, .get = get_stats};
    if (IS(fat_argmax) && !strcmp(name, "fak.stats/1")) return &ext;
    return in->get_ext(d, name);
}

/* A device that is never picked by itself. */
static int32_t device_info(uint32_t index, const fak_setting *set, uint32_t n, fak_device_info *out,
                           fak_error *e)
{
    fak_device_info mine = {.struct_size = sizeof mine};
    int32_t s = in->device_info(index, set, n, &mine, e);
    mine.kind = FAK_SOFTWARE;
    if (IS(no_id)) mine.id[0] = 0;
    if (!s) fak_put(out, &mine, sizeof mine);
    return s;
}

int32_t fak_backend_entry_v1(const fak_host *host, const fak_backend **out, fak_error *e)
{
    static fak_backend b;
    static const fak_option options[] = {{"fail-submit", "0..9", "0", "does nothing"},
                                         {"lose-device", "0..1000", "0", "for one step only"}};
    int32_t s = fak_backend_entry_v1_inner(host, &in, e);
    if (s) return s;
    b = *in; /* built together */
    for (uint32_t i = 0; i < in->ops && i < 20; i++) {
        fak_get(&table[i], sizeof *table, in->op, in->op_stride, i);
        table[i].call = call;
    }
    b.name = WRONG_NAME;
    b.vendor = "fak tests";
    b.op = table;
    b.options = IS(idle_fault) || IS(lost_again);
    b.option = &options[IS(lost_again)];
    b.option_stride = sizeof *options;
    b.device_info = device_info;
    b.open = open_device;
    b.prepare = prepare;
    b.release = release;
    b.load = load;
    b.begin = begin;
    b.read = read_rows;
    b.write = write_rows;
    b.kv_clone = kv_clone;
    b.kv_evict = kv_evict;
    b.get_ext = get_ext;
    *out = &b;
    return FAK_OK;
}
