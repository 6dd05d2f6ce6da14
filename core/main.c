/* main - the environment, signals, and which subcommand. */
#include "cmd.h"
#include "port.h"

#include <string.h>

static void interrupt(int number)
{
    cmd_interrupted = 1;
    signal(number, SIG_DFL); /* a second Ctrl-C ends at once */
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int, char **, const environment *);
    } command[] = {{"run", cmd_run},
                   {"backends", cmd_backends},
                   {"inspect", cmd_inspect},
                   {"tokenize", cmd_tokenize}};
    environment env = {port_environment("FAK_PLUGIN_PATH"), port_environment("FAK_BACKEND")};
    if (signal(SIGINT, interrupt) == SIG_IGN) signal(SIGINT, SIG_IGN); /* in the background */
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write error: exit 1 */
    for (size_t i = 0; argc > 1 && i < sizeof command / sizeof *command; i++)
        if (!strcmp(argv[1], command[i].name)) return command[i].run(argc - 1, argv + 1, &env);
    if (argc < 2 || argv[1][0] == '-') return cmd_run(argc, argv, &env);
    fak_error e;
    status_set(&e, STATUS_REFUSED,
               "unknown command \"%.60s\"; there are: backends, inspect, tokenize", argv[1]);
    return cmd_fail(&e);
}
