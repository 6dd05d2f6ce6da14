/* probe - see probe.h. */
#include "probe.h"

#include "port.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char probe_unproven[] = "--unproven";
static const char stage_word[] = "stage ", clean_word[] = "clean", refused_word[] = "refused ";

void probe_stage(int out, const char *stage)
{
    dprintf(out, "%s%s\n", stage_word, stage);
}

void probe_verdict(int out, const char *sentence)
{
    if (sentence)
        dprintf(out, "%s%s\n", refused_word, sentence);
    else
        dprintf(out, "%s\n", clean_word);
}

/* The verdict, or the last stage that was reached, of what the child wrote. */
static int read_answer(char *text, const char **stage, const char **refusal)
{
    int clean = 0;
    *stage = "starting";
    *refusal = NULL;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        if (!strncmp(line, stage_word, sizeof stage_word - 1))
            *stage = line + sizeof stage_word - 1;
        if (!strncmp(line, refused_word, sizeof refused_word - 1))
            *refusal = line + sizeof refused_word - 1;
        clean |= !strcmp(line, clean_word);
    }
    return clean;
}

int32_t probe_run(const char *program, const char *file, double seconds, int unproven, fak_error *e)
{
    char *argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t) "probe-backend",
                    (char *)(uintptr_t)file, unproven ? (char *)(uintptr_t)probe_unproven : NULL,
                    NULL};
    char text[4096], name[32];
    const char *stage, *refusal;
    port_result r = port_run(argv, seconds, text, sizeof text - 1);
    text[r.end == PORT_NOT_STARTED ? 0 : r.bytes] = 0;
    int clean = read_answer(text, &stage, &refusal);
    switch (r.end) {
    case PORT_NOT_STARTED:
        return status_set(e, r.number == ENOEXEC ? FAK_E_UNSUPPORTED : STATUS_REFUSED,
                          "it could not be tried: %s", strerror(r.number));
    case PORT_TIMEOUT:
        return status_set(e, STATUS_REFUSED, "it did not answer within %g s while %s", seconds,
                          stage);
    case PORT_SIGNAL:
        return status_set(e, STATUS_REFUSED, "it crashed (%s) while %s",
                          port_signal_name(r.number, name, sizeof name), stage);
    case PORT_EXIT:
        break;
    }
    if (refusal) return status_set(e, STATUS_REFUSED, "%s", refusal);
    if (clean && r.number == 0) return FAK_OK;
    return status_set(e, STATUS_REFUSED, "it ended the process with status %d while %s", r.number,
                      stage);
}
