/* minimal - the smallest backend that is of use: one device, MATMUL by weights that it takes as F32;
 * the host does all the rest.  As a vendor would begin, from fak_backend.h alone; without FAK_NOTE: it
 * claims nothing, and is loaded when it is named. */
#include "fak_backend.h"

#include <stdlib.h>
#include <string.h>

struct fak_device {
    int unused;
};
struct fak_program {
    uint32_t values, rows, wanted; /* rows, wanted: of the step */
    fak_value *value;              /* [values] */
    fak_op *op;
    float **at; /* [values] what its ops touch */
};
static fak_device device;

static int32_t fail(fak_error *e, int32_t code, const char *sentence)
{
    memset(e, 0, sizeof *e);
    e->code = code;
    e->index = FAK_NO_INDEX;
    strncpy(e->message, sentence, sizeof e->message - 1);
    return code;
}

static void release(fak_program *p)
{
    if (!p) return;
    for (uint32_t i = 0; p->at && i < p->values; i++) free(p->at[i]);
    free(p->value);
    free(p->op);
    free(p->at);
    free(p);
}

static uint64_t bytes_of(const fak_value *v, const fak_limits *l)
{
    uint32_t rows = v->rows == FAK_STEP_ROWS     ? l->rows
                    : v->rows == FAK_WANTED_ROWS ? l->wanted
                                                 : v->rows;
    return (uint64_t)rows * v->cols * 4;
}

/* Takes MATMULs; memory for what they touch unless it is a dry run. */
static int32_t take(fak_program *p, uint32_t ops, const fak_limits *l, uint32_t flags,
                    uint32_t *verdict, fak_report *r)
{
    for (uint32_t i = 0; i < ops; i++) {
        const fak_op *o = &p->op[i];
        const uint32_t used[3] = {o->in[0], o->in[1], o->out[0]};
        if (o->id != FAK_OP_MATMUL) verdict[i] = FAK_HOST;
        for (int j = 0; verdict[i] == FAK_TAKEN && j < 3; j++) {
            uint64_t bytes = bytes_of(&p->value[used[j]], l);
            float **at = &p->at[used[j]];
            *(j == 1 ? &r->weight_bytes : &r->scratch_bytes) += bytes;
            if (flags & FAK_DRY_RUN || *at) continue;
            if (!(*at = malloc(bytes))) return FAK_E_MEMORY;
        }
    }
    return FAK_OK;
}

static int32_t prepare(fak_device *d, const fak_plan *plan, const fak_limits *theirs,
                       fak_program *weights_of, uint32_t flags, uint32_t *verdict,
                       fak_report *report, fak_program **out, fak_error *e)
{
    fak_report r = {0};
    fak_limits l;
    fak_program *p = calloc(1, sizeof *p);
    int32_t s = FAK_E_MEMORY;
    (void)d, (void)weights_of;
    *out = NULL;
    fak_take(&l, sizeof l, theirs);
    if (p) {
        p->values = plan->values.count;
        p->value = calloc(p->values, sizeof *p->value);
        p->op = calloc(plan->ops.count, sizeof *p->op);
        p->at = calloc(p->values, sizeof *p->at);
    }
    if (p && p->value && p->op && p->at) {
        for (uint32_t i = 0; i < p->values; i++) FAK_GET(&p->value[i], plan, values, i);
        for (uint32_t i = 0; i < plan->ops.count; i++) FAK_GET(&p->op[i], plan, ops, i);
        s = take(p, plan->ops.count, &l, flags, verdict, &r);
    }
    r.load_peak_bytes = r.weight_bytes;
    fak_put(report, &r, sizeof r);
    if (s || flags & FAK_DRY_RUN)
        release(p);
    else
        *out = p;
    return s ? fail(e, s, "minimal: the plan does not fit into host memory") : FAK_OK;
}

static int32_t load(fak_program *p, const uint32_t *id, uint32_t n, const fak_source *theirs,
                    fak_error *e)
{
    fak_source s;
    int32_t rc = FAK_OK;
    fak_take(&s, sizeof s, theirs);
    for (uint32_t i = 0; !rc && i < n; i++) {
        const fak_value *v = &p->value[id[i]];
        rc = s.read(s.self, id[i], FAK_AS_F32, 0, v->rows, p->at[id[i]],
                    (uint64_t)v->rows * v->cols * 4, e);
    }
    return rc;
}

static int32_t begin(fak_program *p, const fak_step *step, fak_error *e)
{
    (void)e;
    p->rows = step->rows;
    p->wanted = step->wanted.count;
    return FAK_OK;
}

static int32_t matmul(fak_program *p, uint32_t op, fak_error *e)
{
    const fak_op *o = &p->op[op];
    const fak_value *x = &p->value[o->in[0]], *w = &p->value[o->in[1]];
    uint32_t rows = x->rows == FAK_STEP_ROWS ? p->rows : p->wanted;
    float *y = p->at[o->out[0]];
    (void)e;
    for (uint32_t t = 0; t < rows; t++)
        for (uint32_t r = 0; r < w->rows; r++) {
            const float *a = p->at[o->in[0]] + (size_t)t * w->cols;
            const float *b = p->at[o->in[1]] + (size_t)r * w->cols;
            float s[8] = {0};
            for (uint32_t i = 0; i < w->cols; i++) s[i & 7] = s[i & 7] + a[i] * b[i];
            *y++ = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
        }
    return FAK_OK;
}

static int32_t read_rows(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                         uint64_t *ticket, fak_error *e)
{
    size_t n = p->value[value].cols;
    (void)e;
    memcpy(dst, p->at[value] + first * n, rows * n * 4);
    *ticket = 0;
    return FAK_OK;
}

static int32_t write_rows(fak_program *p, uint32_t value, uint32_t first, uint32_t rows,
                          const void *src, fak_error *e)
{
    size_t n = p->value[value].cols;
    (void)e;
    memcpy(p->at[value] + first * n, src, rows * n * 4);
    return FAK_OK;
}

static const fak_op_entry table[] = {{FAK_OP_MATMUL, 1, matmul}};
static const fak_opened opened = {.struct_size = sizeof opened,
                                  .numerics = FAK_ACT_F32,
                                  .ops = 1,
                                  .op_stride = sizeof *table,
                                  .op = table};

static int32_t device_info(uint32_t index, const fak_setting *set, uint32_t n, fak_device_info *out,
                           fak_error *e)
{
    fak_device_info info = {.kind = FAK_CPU, .id = "uuid:minimal-0", .name = "minimal"};
    (void)set, (void)n, (void)index, (void)e;
    fak_put(out, &info, sizeof info);
    return FAK_OK;
}

static int32_t open_device(uint32_t index, const fak_setting *set, uint32_t n, fak_device **out,
                           const fak_opened **facts, fak_error *e)
{
    (void)index, (void)set;
    if (n) return fail(e, FAK_E_ARGUMENT, "minimal: it has no options");
    *out = &device;
    *facts = &opened;
    return FAK_OK;
}

static const fak_backend backend = {.struct_size = sizeof backend,
                                    .numerics = FAK_ACT_F32,
                                    .ops = 1,
                                    .op_stride = sizeof *table,
                                    .name = "minimal",
                                    .version = "1",
                                    .vendor = "you",
                                    .op = table,
                                    .device_info = device_info,
                                    .open = open_device,
                                    .prepare = prepare,
                                    .release = release,
                                    .load = load,
                                    .begin = begin,
                                    .read = read_rows,
                                    .write = write_rows};

int32_t FAK_ENTRY(const fak_host *host, const fak_backend **out, fak_error *e)
{
    (void)host, (void)e;
    *out = &backend;
    return FAK_OK;
}
