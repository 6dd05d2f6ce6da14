/* main - the environment, signals, and which subcommand. */
#include "cmd.h"
#include "port.h"

#include <stdlib.h>
#include <string.h>

static void interrupt(int number)
{
    if (!cmd_heeds_interrupts) _Exit(EXIT_INTERRUPTED);
    cmd_interrupted = 1;
    signal(number, SIG_DFL); /* a second Ctrl-C ends at once */
}

/* XDG_CACHE_HOME, else .cache in HOME; NULL without either. */
static const char *cache_folder(char *path, size_t bytes)
{
    const char *xdg = port_environment("XDG_CACHE_HOME"), *home = port_environment("HOME");
    if (xdg && xdg[0] == '/') return xdg;
    if (!home || home[0] != '/') return NULL;
    return snprintf(path, bytes, "%s/.cache", home) < (int)bytes ? path : NULL;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int, char **, const environment *);
    } command[] = {{"run", cmd_run},
                   {"backends", cmd_backends},
                   {"bisect", cmd_bisect},
                   {"inspect", cmd_inspect},
                   {"tokenize", cmd_tokenize},
                   {"bench", cmd_bench},
                   {"opcheck", cmd_opcheck},
                   {"opcheck-rungs", cmd_opcheck_rungs},
                   {"probe-backend", cmd_probe}};
    char cache[4096];
    environment env = {port_environment("FAK_PLUGIN_PATH"), port_environment("FAK_BACKEND"),
                       cache_folder(cache, sizeof cache)};
    if (signal(SIGINT, interrupt) == SIG_IGN) signal(SIGINT, SIG_IGN); /* in the background */
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write error: exit 1 */
    for (size_t i = 0; argc > 1 && i < sizeof command / sizeof *command; i++)
        if (!strcmp(argv[1], command[i].name)) return command[i].run(argc - 1, argv + 1, &env);
    if (argc < 2 || argv[1][0] == '-') return cmd_run(argc, argv, &env);
    fak_error e;
    status_set(
        &e, STATUS_REFUSED,
        "unknown command \"%.60s\"; there are: backends, bench, bisect, inspect, opcheck, tokenize",
        argv[1]);
    return cmd_fail(&e);
}
