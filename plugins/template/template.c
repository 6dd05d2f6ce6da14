/* template - a backend to begin with: one device that takes MATMUL, in F32.  The host does every
 * other op, counts it and says so.  It is all host memory; YOURS marks where a driver comes in. */
#include "fak_backend.h"

#include <stdlib.h>
#include <string.h>

#ifdef LANE_GRAPH
#define NAME "template-graph"
#else
#define NAME "template"
#endif
FAK_NOTE(NAME, FAK_APPROX, ""); /* what the file claims; "x86-64-v3" for "": it needs such a CPU */

struct fak_device {
    int unused; /* YOURS: the driver's context, queue, kernels */
};
typedef struct place { /* of a value that a taken op touches; else all zero */
    uint64_t bytes;
    float *at; /* YOURS: a handle of device memory */
} place;
struct fak_program {
    fak_plan *plan;        /* a copy: a plan is one block, here after the places */
    uint32_t rows, wanted; /* of the step */
    place place[];         /* [values] */
};

static int32_t fail(fak_error *e, int32_t code, uint32_t index, const char *sentence)
{
    *e = (fak_error){.code = code, .index = index};
    strncpy(e->message, sentence, sizeof e->message - 1);
    return code;
}

static fak_op op_of(const fak_program *p, uint32_t i)
{
    fak_op op;
    FAK_GET(&op, p->plan, ops, i);
    return op;
}

static fak_value value_of(const fak_program *p, uint32_t i)
{
    fak_value value;
    FAK_GET(&value, p->plan, values, i);
    return value;
}

static uint32_t rows_of(const fak_value *v, uint32_t rows, uint32_t wanted)
{
    return v->rows == FAK_STEP_ROWS ? rows : v->rows == FAK_WANTED_ROWS ? wanted : v->rows;
}

/* ---- a program: once for a model and its limits ---- */

static void release(fak_program *p)
{
    for (uint32_t i = 0; p && i < p->plan->values.count; i++)
        free(p->place[i].at); /* YOURS: free device memory */
    free(p);
}

enum { /* dtypes of weights that the host gives as F32 */
       READ = 1 << FAK_F32 | 1 << FAK_F16 | 1 << FAK_BF16 | 1 << FAK_Q8_0 | 1 << FAK_Q4_0 |
              1 << FAK_Q4_1 | 1 << FAK_Q5_0 | 1 << FAK_Q5_1 | 1 << FAK_Q4_K | 1 << FAK_Q5_K |
              1 << FAK_Q6_K
};

/* Ops of the table come in as FAK_TAKEN.  YOURS: FAK_HOST gives back one of a shape or dtype that
 * the device cannot do; here one by weights of another kind, or that are more than their dtype says. */
static void choose(fak_program *p, const fak_limits *l, uint32_t *verdict)
{
    for (uint32_t i = 0; i < p->plan->ops.count; i++) {
        fak_op o = op_of(p, i);
        fak_value w = value_of(p, o.in[1]);
        if (o.in[1] && (w.quant_bits || !(READ >> w.dtype & 1))) verdict[i] = FAK_HOST;
        for (uint32_t j = 0; verdict[i] == FAK_TAKEN && j < 11; j++) {
            uint32_t id = j < 8 ? o.in[j] : o.out[j - 8]; /* 0: absent, of no columns */
            fak_value v = value_of(p, id);
            p->place[id].bytes = 4ull * rows_of(&v, l->rows, l->wanted) * v.cols;
        }
    }
}

static int32_t prepare(fak_device *d, const fak_plan *plan, const fak_limits *theirs,
                       fak_program *weights_of, uint32_t flags, uint32_t *verdict,
                       fak_report *report, fak_program **out, fak_error *e)
{
    fak_report r = {0};
    fak_limits l;
    int32_t s = FAK_OK;
    (void)d, (void)weights_of; /* weights are loaded again, not shared */
    *out = NULL;
    fak_take(&l, sizeof l, theirs);
    if (flags & ~(uint32_t)(FAK_DRY_RUN | FAK_KEEP_ALL | FAK_EVICTABLE | FAK_COMPILE_ALL))
        return fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, NAME ": an unknown flag of prepare");
    fak_program *p = calloc(1, sizeof *p + plan->values.count * sizeof(place) + plan->bytes);
    if (!p) return fail(e, FAK_E_MEMORY, FAK_NO_INDEX, NAME ": no host memory for the plan");
    p->plan = memcpy(&p->place[plan->values.count], plan, plan->bytes);
    choose(p, &l, verdict);
    for (uint32_t i = 0; i < plan->values.count; i++) {
        place *at = &p->place[i];
        *(value_of(p, i).kind == FAK_WEIGHT ? &r.weight_bytes : &r.scratch_bytes) += at->bytes;
        if (s || flags & FAK_DRY_RUN || !at->bytes) continue;
        at->at = malloc((size_t)at->bytes); /* YOURS: allocate device memory */
        if (!at->at) s = fail(e, FAK_E_MEMORY, i, NAME ": no device memory for a value");
    }
    r.load_peak_bytes = r.weight_bytes;
    fak_put(report, &r, sizeof r); /* also when it does not fit */
    if (s || flags & FAK_DRY_RUN)
        release(p);
    else
        *out = p; /* YOURS: compile here, or in load */
    return s;
}

static int32_t load(fak_program *p, const uint32_t *id, uint32_t n, const fak_source *theirs,
                    fak_error *e)
{
    fak_source s;
    int32_t rc = FAK_OK;
    fak_take(&s, sizeof s, theirs);
    for (uint32_t i = 0; !rc && i < n; i++) /* YOURS: some rows at a time, and upload them */
        rc = s.read(s.self, id[i], FAK_AS_F32, 0, value_of(p, id[i]).rows, p->place[id[i]].at,
                    p->place[id[i]].bytes, e);
    return rc;
}

/* ---- a step ---- */

static int32_t begin(fak_program *p, const fak_step *step, fak_error *e)
{
    if (step->flags) return fail(e, FAK_E_UNSUPPORTED, FAK_NO_INDEX, NAME ": a flag of the step");
    p->rows = step->rows;
    p->wanted = step->wanted.count;
    return FAK_OK;
}

/* y[rows,out] = x[rows,in] w[out,in]^T.  YOURS: enqueue a kernel, with any order of the sum.  This
 * one is the contract's, so the bits are the reference's. */
static int32_t matmul(fak_program *p, uint32_t op, fak_error *e)
{
    fak_op o = op_of(p, op);
    fak_value in = value_of(p, o.in[0]), out = value_of(p, o.out[0]);
    const float *x = p->place[o.in[0]].at, *w = p->place[o.in[1]].at;
    float *y = p->place[o.out[0]].at;
    uint32_t rows = rows_of(&in, p->rows, p->wanted);
    (void)e;
    for (size_t k = 0; k < (size_t)rows * out.cols; k++) {
        const float *a = x + k / out.cols * in.cols, *b = w + k % out.cols * in.cols;
        float s[8] = {0};
        for (uint32_t i = 0; i < in.cols; i++) s[i & 7] = s[i & 7] + a[i] * b[i];
        y[k] = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    }
    return FAK_OK;
}

static int32_t read_rows(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                         uint64_t *ticket, fak_error *e)
{
    size_t row = value_of(p, value).cols;
    if (!p->place[value].at) return fail(e, FAK_E_ARGUMENT, value, NAME ": the value is not kept");
    memcpy(dst, p->place[value].at + first * row, rows * row * 4); /* YOURS: download */
    *ticket = 0;                                                   /* done: no wait is needed */
    return FAK_OK;
}

static int32_t write_rows(fak_program *p, uint32_t value, uint32_t first, uint32_t rows,
                          const void *src, fak_error *e)
{
    size_t row = value_of(p, value).cols;
    if (!p->place[value].at) return fail(e, FAK_E_ARGUMENT, value, NAME ": the value is not kept");
    memcpy(p->place[value].at + first * row, src, rows * row * 4); /* YOURS: upload */
    return FAK_OK;
}

/* ---- what it is and offers ---- */

#ifdef LANE_GRAPH
/* Ops [first, first + ops), all of them taken.  YOURS: submit them as one compiled graph. */
static int32_t run(fak_program *p, uint32_t first, uint32_t ops, fak_error *e)
{
    int32_t s = FAK_OK;
    for (uint32_t i = first; !s && i < first + ops; i++)
        if (op_of(p, i).id == FAK_OP_MATMUL) s = matmul(p, i, e);
    return s;
}

enum { CAPS = FAK_CAP_GRAPH_COMPILE, NUMERICS = FAK_ACT_F32 };
static const fak_op_entry table[] = {{FAK_OP_MATMUL, 1, NULL}}; /* a row more, an op more */
#else
enum { CAPS = 0, NUMERICS = FAK_ACT_F32 };
static const fak_op_entry table[] = {{FAK_OP_MATMUL, 1, matmul}}; /* a row more, an op more */
#endif
/* clang-format off */
#define OFFERS                                                                                     \
    .caps = CAPS, .numerics = NUMERICS, .ops = sizeof table / sizeof *table,                       \
    .op_stride = sizeof *table, .op = table
static const fak_opened opened = {.struct_size = sizeof opened, .klass = FAK_APPROX, OFFERS};
/* clang-format on */

static int32_t device_info(uint32_t index, const fak_setting *set, uint32_t n, fak_device_info *out,
                           fak_error *e)
{
    fak_device_info info = {.kind = FAK_CPU, .id = "uuid:" NAME "-0", .name = NAME};
    (void)index, (void)set, (void)n, (void)e;
    fak_put(out, &info, sizeof info);
    return FAK_OK;
}

static int32_t open_device(uint32_t index, const fak_setting *set, uint32_t n, fak_device **out,
                           const fak_opened **facts, fak_error *e)
{
    static fak_device device; /* YOURS: open the driver */
    (void)index, (void)set;
    if (n) return fail(e, FAK_E_ARGUMENT, 0, "it has no options");
    *out = &device;
    *facts = &opened;
    return FAK_OK;
}

/* clang-format off */
static const fak_backend backend = {
    .struct_size = sizeof backend, .abi_minor = FAK_ABI_MINOR, OFFERS,
    .name = NAME, .version = "0.1", .vendor = "you",
    .device_info = device_info, .open = open_device, .prepare = prepare, .release = release,
#ifdef LANE_GRAPH
    .run = run,
#endif
    .load = load, .begin = begin, .read = read_rows, .write = write_rows,
};
/* clang-format on */

int32_t FAK_ENTRY(const fak_host *host, const fak_backend **out, fak_error *e)
{
    (void)host, (void)e;
    *out = &backend;
    return FAK_OK;
}
