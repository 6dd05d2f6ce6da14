/* progress - a bar on a terminal for work that takes over a second; nothing in a pipe. */
#ifndef PROGRESS_H
#define PROGRESS_H
#include <stdint.h>

typedef struct progress { /* zero-initialise */
    const char *what;     /* "loading" */
    uint64_t total;
    double start, shown;  /* seconds; shown 0: nothing was drawn */
    int on;               /* standard error is a terminal */
} progress;

void progress_start(progress *p, const char *what, uint64_t total, int quiet);
void progress_show(progress *p, uint64_t done);
/* Instead of a share: what is being done. */
void progress_say(progress *p, const char *what);
void progress_end(progress *p); /* wipes the bar */
#endif
