/* trace - where a NaN came from: the same ids once more through the reference, op by op. */
#ifndef TRACE_H
#define TRACE_H
#include "session.h"

/* After session_generate answered STATUS_NAN: runs g's ids on *host with every value kept, and sets *e
 * to the first op, layer and element that hold a NaN, or says that the reference has none and the
 * backend is at fault, or why it cannot be traced.  Returns STATUS_NAN, or FAK_E_CANCELLED: s->stop. */
int32_t trace_nan(const session *s, device *host, const generation *g, fak_error *e);
#endif
