/* plugin - backends by name: found, opened, and shaken hands with.
 * One registry for a process; not thread-safe (the ABI's [load]). */
#ifndef PLUGIN_H
#define PLUGIN_H
#include "elfnote.h"
#include "search.h"

typedef struct plugin_static { const char *name; fak_entry_fn *entry; } plugin_static;
/* Linked in; a table that the build generates, ended by a NULL name. */
extern const plugin_static plugin_statics[];

enum plugin_state { PLUGIN_FOUND, PLUGIN_SHADOWED, PLUGIN_LOADED, PLUGIN_REFUSED };

typedef struct plugin {
    char name[SEARCH_NAME_MAX + 1];
    char *path;              /* NULL for one that is linked in */
    fak_entry_fn *entry;     /* of a linked-in one */
    enum plugin_state state;
    elfnote note;            /* of a file: what it claims; read by plugin_check */
    int checked, probed;     /* plugin_check, plugin_probe have passed */
    int unproven;            /* set before plugin_probe: a Reference claim need not be true */
    char why[244];           /* SHADOWED, REFUSED: one sentence */
    void *library;
    fak_backend api;         /* LOADED: a copy of the backend's table, ours to read */
} plugin;

typedef struct plugins {     /* zero-initialise */
    search found;
    plugin *at;              /* the one file that was asked for; linked-in ones; found files */
    uint32_t count;
    fak_host host;           /* what backends get; lives as long as they do */
    struct plugin_host *given; /* a copy: host.self */
} plugins;

typedef struct plugin_host { /* the services that the embedder gives; any may be NULL */
    void *self;
    const char *cache;       /* the user's cache folder, for compiled artefacts (artefact.h) */
    void (*log)(void *self, uint32_t level, const char *sentence);
    int32_t (*progress)(void *self, const char *what, uint64_t done, uint64_t of);
} plugin_host;

typedef struct plugin_search { /* where to look */
    const char *only_file;     /* that file and the linked-in ones, nothing else; or NULL */
    const char *path;          /* the value of FAK_PLUGIN_PATH, or NULL */
    int trusted;               /* do not ask who owns or may write files and folders */
} plugin_search;

/* Lists what there is without opening it.  STATUS_REFUSED when only_file cannot be a backend. */
int32_t plugins_open(plugins *all, const plugin_search *where, const plugin_host *host, fak_error *e);
void plugins_close(plugins *all); /* shuts every loaded backend down */

/* The plugin of that name that would be used, or NULL. */
plugin *plugins_find(plugins *all, const char *name);
plugin *plugins_linked_in(plugins *all, const char *name);
/* Reads what a file says of itself: its machine, ABI, class and what it needs of the CPU.  Loads nothing.
 * REFUSED with the sentence in p->why and *e when it cannot run here; linked-in ones pass. */
int32_t plugin_check(plugin *p, fak_error *e);
/* Checks, then tries a file in a child process (probe.h) for at most so many seconds, 0 =
 * PLUGIN_PROBE_SECONDS; again is free.  FAK_OK and p->probed still 0 where no child can be had. */
int32_t plugin_probe(plugin *p, uint32_t seconds, fak_error *e);
enum { PLUGIN_PROBE_SECONDS = 20 };
/* Checks, opens and shakes hands, in this process: call plugin_probe first.  LOADED, or REFUSED with the sentence in p->why and *e.  Again is fine. */
int32_t plugin_load(plugins *all, plugin *p, fak_error *e);

/* Lowest minor of a backend that this host takes, and the other way round. */
enum { PLUGIN_BACKEND_MINOR_MIN = 0 };
#endif
