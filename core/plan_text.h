/* plan_text - a plan as text, for people and tests; read back it is the same block. */
#ifndef PLAN_TEXT_H
#define PLAN_TEXT_H
#include "plan.h"

#include <stdio.h>

enum plan_print_flags { PLAN_FOLD = 1 }; /* leave out turns of repeats after the first */

/* Writes the plan; name(self, value) names a value for people, or NULL.  Write errors are out's. */
void plan_print(const fak_plan *p, FILE *out, int flags, const char *(*name)(void *self, uint32_t id),
                void *self);
/* Reads what plan_print wrote without PLAN_FOLD, and checks it (plan_check).  FAK_E_ARGUMENT with a
 * sentence naming the line.  weight[] is all FAK_NO_INDEX. */
int32_t plan_read(plan *p, const char *text, size_t bytes, fak_error *e);
#endif
