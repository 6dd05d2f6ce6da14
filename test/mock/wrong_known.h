/* wrong_known - what the files of wrong backends share: the programs that they have prepared, remembered
 * for what is done to their ops, and a way to fail. */
#ifndef WRONG_KNOWN_H
#define WRONG_KNOWN_H
#include "fak_backend.h"
#include "wrong.h"

#include <stdio.h>
#include <stdlib.h>

#define IS(x) (WRONG_KIND == WRONG_##x)
extern fak_entry_fn fak_backend_entry_v1_inner; /* cpu-ref, linked in */

typedef struct program {
    fak_program *of;
    fak_op *op;
    fak_value *value;
    uint32_t ops;
} program;
enum { PROGRAMS = 16 };
static program known[PROGRAMS];

static int32_t fail(fak_error *e, int32_t code, uint32_t index, const char *sentence)
{
    *e = (fak_error){.code = code, .index = index};
    snprintf(e->message, sizeof e->message, "%s", sentence);
    return code;
}

static program *find(const fak_program *p)
{
    for (uint32_t i = 0; i < PROGRAMS; i++)
        if (known[i].of == p) return &known[i];
    return NULL;
}

static int remember(fak_program *p, const fak_plan *plan)
{
    program *k = find(NULL);
    if (!k) return 0;
    k->op = calloc(plan->ops.count, sizeof *k->op);
    k->value = calloc(plan->values.count, sizeof *k->value);
    if (!k->op || !k->value) {
        free(k->op);
        free(k->value);
        *k = (program){0};
        return 0;
    }
    for (uint32_t i = 0; i < plan->ops.count; i++) FAK_GET(&k->op[i], plan, ops, i);
    for (uint32_t i = 0; i < plan->values.count; i++) FAK_GET(&k->value[i], plan, values, i);
    k->ops = plan->ops.count;
    k->of = p;
    return 1;
}

static void forget(const fak_program *p)
{
    program *k = p ? find(p) : NULL;
    if (!k) return;
    free(k->op);
    free(k->value);
    *k = (program){0};
}
#endif
