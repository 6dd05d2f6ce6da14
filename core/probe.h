/* probe - tries a plugin in a child process, so that what would end or hang us ends or hangs the child.
 * The child is this executable as "fakrun probe-backend FILE [--unproven]"; it tells each stage. */
#ifndef PROBE_H
#define PROBE_H
#include "status.h"

/* FAK_OK when the child loaded it, opened each of its devices and, for a Reference claim, found golden bits
 * equal.  STATUS_REFUSED with a sentence (no path in it) that says what happened and while doing
 * what; FAK_E_UNSUPPORTED where this very program cannot be started: under an emulator.  seconds:
 * the time limit.  program: the executable.  unproven: it computes, but wrong bits are no refusal. */
int32_t probe_run(const char *program, const char *file, double seconds, int unproven,
                  fak_error *e);
extern const char probe_unproven[]; /* the word that tells the child so */

/* The child's side of the protocol: lines on descriptor `out`. */
void probe_stage(int out, const char *stage);
void probe_verdict(int out, const char *sentence); /* NULL: clean */
#endif
