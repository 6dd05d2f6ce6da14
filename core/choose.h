/* choose - which backend and device a command runs on, and why.  Shared by the commands. */
#ifndef CHOOSE_H
#define CHOOSE_H
#include "args.h"
#include "device.h"

typedef struct environment { /* read in main only; NULL where unset */
    const char *plugin_path; /* FAK_PLUGIN_PATH */
    const char *backend;     /* FAK_BACKEND */
    const char *cache;       /* the user's cache folder: XDG_CACHE_HOME, or HOME's .cache */
} environment;

typedef struct choose_options {
    const char *backend;      /* NAME[:DEVICE], DEVICE a number or a stable id; or NULL */
    const char *backend_path; /* one file; or NULL */
    arg_list settings;        /* name=value */
    int trusted;              /* --trust: do not ask who owns plugin files and folders */
    uint32_t probe_seconds;   /* how long a plugin may take when it is tried; 0 = 20 */
    int unproven;             /* a named one that claims class Reference need not have its bits */
    int verbose, quiet;
} choose_options;

typedef struct choice {       /* zero-initialise */
    plugins all;
    device device, host;      /* host: the linked-in reference, opened beside it */
    int not_found;            /* no backend of the name: where was looked is worth telling */
    const char *how;          /* why this one, for people */
    char (*passed_over)[128]; /* [all.count] why each other was not taken, or "" */
} choice;

/* Opens the named backend, which never falls back, or picks one of class Reference: files that claim it in
 * their note are probed (clean verdicts are remembered), the fastest known kind of device wins, and
 * software imitations are never taken.  STATUS_REFUSED with one sentence. */
int32_t choose_open(choice *c, const choose_options *o, const environment *env, fak_error *e);
void choose_close(choice *c); /* a zero or half-open choice is fine */

/* One line: which, of what class, why, and why the others were not taken. */
void choose_print(const choice *c, FILE *out);
/* The folders looked at and what became of each; for people who miss a backend. */
void choose_print_folders(const choice *c, FILE *out);

/* "name=value" into settings that point into text[] (room for the list); STATUS_REFUSED otherwise. */
int32_t choose_settings(const arg_list *list, char text[32][256], fak_setting *set, fak_error *e);

/* Rows of a command's table: what of choose_options *b is given on the line. */
#define CHOOSE_ARGS(b)                                                                             \
    {0, "backend", ARG_TEXT, "NAME[:DEV]", "this backend, and no other; DEV is a number or an id", \
     &(b)->backend, 0, 0, NULL},                                                                   \
    {0, "backend-path", ARG_TEXT, "FILE", "the backend in this file, and no other",                \
     &(b)->backend_path, 0, 0, NULL},                                                              \
    {0, "probe-seconds", ARG_NUMBER, "N",                                                          \
     "how long a plugin may take when it is tried (default 20)", &(b)->probe_seconds, 1, 600,      \
     NULL},                                                                                        \
    {0, "trust", ARG_FLAG, NULL, "take plugin files and folders whoever owns or may write them",   \
     &(b)->trusted, 0, 0, NULL},                                                                   \
    {'o', "option", ARG_LIST, "NAME=VALUE", "an option of the backend; see fakrun backends -v",    \
     &(b)->settings, 0, 0, NULL},                                                                  \
    {'q', "quiet", ARG_FLAG, NULL, "no line about the backend, no progress bar", &(b)->quiet, 0,   \
     0, NULL},                                                                                     \
    {'v', "verbose", ARG_FLAG, NULL, "say more on standard error", &(b)->verbose, 0, 0, NULL}
#endif
