/* progress - see progress.h. */
#include "progress.h"

#include "port.h"

#include <stdio.h>
#include <unistd.h>

void progress_start(progress *p, const char *what, uint64_t total, int quiet)
{
    *p = (progress){.what = what,
                    .total = total ? total : 1,
                    .start = port_seconds(),
                    .on = !quiet && isatty(STDERR_FILENO)};
}

void progress_show(progress *p, uint64_t done)
{
    enum { WIDTH = 30 };
    double now = port_seconds();
    if (!p->on || now - p->start < 0.5 || now - p->shown < 0.1) return;
    p->shown = now;
    double share = done >= p->total ? 1.0 : (double)done / (double)p->total;
    int full = (int)(share * WIDTH);
    fprintf(stderr, "\r%s [%.*s%*s] %3d %%", p->what, full, "##############################",
            WIDTH - full, "", (int)(share * 100));
    fflush(stderr);
}

void progress_say(progress *p, const char *what)
{
    double now = port_seconds();
    if (!p->on || now - p->start < 0.5 || now - p->shown < 0.1) return;
    p->shown = now;
    fprintf(stderr, "\r%-78.78s", what);
    fflush(stderr);
}

void progress_end(progress *p)
{
    if (p->shown > 0) fprintf(stderr, "\r%*s\r", 78, "");
    p->shown = 0;
}
