/* drift - a device of class approx that is cpu-ref, linked into it under the name "inner", but for its
 * answers: option fault says what is done to each row of logits that the host reads, or what is
 * promised.  It takes every op: only the numbers are wrong. */
#include "fak_backend.h"

#include <math.h>
#include <string.h>

extern fak_entry_fn fak_backend_entry_v1_inner;

FAK_NOTE("drift", FAK_APPROX, "");

static const fak_backend *inner;
static const fak_option option = {"fault", "none|scale|argmax|nan|bound", "none", "what is wrong"};
static const fak_bound poor = {.cosine = 0.9f};
static char fault[8];
static fak_opened facts;

static uint32_t device_count(const fak_setting *set, uint32_t n, fak_error *e)
{
    (void)set, (void)n;
    return inner->device_count ? inner->device_count(NULL, 0, e) : 1;
}

static int32_t device_info(uint32_t index, const fak_setting *set, uint32_t n, fak_device_info *out,
                           fak_error *e)
{
    (void)set, (void)n;
    return inner->device_info(index, NULL, 0, out, e);
}

static int32_t open_device(uint32_t index, const fak_setting *set, uint32_t n, fak_device **out,
                           const fak_opened **out_facts, fak_error *e)
{
    const fak_opened *theirs;
    strncpy(fault, n ? set[n - 1].value : "none", sizeof fault - 1);
    int32_t s = inner->open(index, NULL, 0, out, &theirs, e);
    if (s) return s;
    fak_take(&facts, sizeof facts, theirs);
    facts.klass = FAK_APPROX;
    if (!strcmp(fault, "bound")) {
        facts.bounds = 1;
        facts.bound = &poor;
        facts.bound_stride = sizeof poor;
    }
    *out_facts = &facts;
    return FAK_OK;
}

/* Columns of the values that are logits, in the plan that was prepared last; 0 for the others. */
enum { VALUES = 512 };
static uint32_t logit_cols[VALUES];

static int32_t prepare(fak_device *d, const fak_plan *plan, const fak_limits *limits,
                       fak_program *weights_of, uint32_t flags, uint32_t *verdict,
                       fak_report *report, fak_program **out, fak_error *e)
{
    for (uint32_t i = 0; i < plan->values.count && i < VALUES; i++) {
        fak_value v;
        FAK_GET(&v, plan, values, i);
        logit_cols[i] = v.kind == FAK_OUT && v.dtype == FAK_F32 ? v.cols : 0;
    }
    return inner->prepare(d, plan, limits, weights_of, flags, verdict, report, out, e);
}

static void spoil(float *row, uint32_t cols)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < cols; i++)
        if (row[i] > row[best]) best = i;
    if (!strcmp(fault, "scale"))
        for (uint32_t i = 0; i < cols; i++) row[i] *= 1.02f;
    if (!strcmp(fault, "argmax")) row[(best + 1) % cols] = row[best] + 0.01f;
    if (!strcmp(fault, "nan")) row[3] = NAN;
}

static int32_t read_rows(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                         uint64_t *ticket, fak_error *e)
{
    int32_t s = inner->read(p, value, first, rows, dst, ticket, e);
    uint32_t cols = value < VALUES ? logit_cols[value] : 0;
    for (uint32_t i = 0; !s && cols && i < rows; i++) spoil((float *)dst + (size_t)i * cols, cols);
    return s;
}

int32_t FAK_ENTRY(const fak_host *host, const fak_backend **out, fak_error *e)
{
    static fak_backend mine;
    int32_t s = fak_backend_entry_v1_inner(host, &inner, e);
    if (s) return s;
    fak_take(&mine, sizeof mine, inner);
    mine.name = "drift";
    mine.options = 1;
    mine.option_stride = sizeof option;
    mine.option = &option;
    mine.device_count = device_count;
    mine.device_info = device_info;
    mine.open = open_device;
    mine.prepare = prepare;
    mine.read = read_rows;
    *out = &mine;
    return FAK_OK;
}
