/* opcheck - the conformance rungs in their order; needs no file but the backend. */
#ifndef OPCHECK_H
#define OPCHECK_H
#include "check.h"

/* Runs all rungs, telling each check to c->on_row.  Leaves the device closed and the backend shut down:
 * nothing of it may be called again.  0 when no check failed, else how many did. */
uint32_t opcheck_run(check *c);
#endif
