/* probe - tries a plugin in a child process, so that what would end or hang us ends or hangs the child.
 * The child is this executable as "fakrun probe-backend FILE"; it reports the stages it reaches. */
#ifndef PROBE_H
#define PROBE_H
#include "status.h"

/* FAK_OK when the child loaded it, opened each of its devices and, for a Reference claim, found golden bits
 * equal.  STATUS_REFUSED with a sentence (no path in it) that says what happened and while doing what;
 * FAK_E_UNSUPPORTED where this very program cannot be started: under an emulator.  seconds: the time limit.  program: the executable; trusted: passed on. */
int32_t probe_run(const char *program, const char *file, double seconds, fak_error *e);

/* The child's side of the protocol: lines on descriptor `out`. */
void probe_stage(int out, const char *stage);
void probe_verdict(int out, const char *sentence); /* NULL: clean */
#endif
