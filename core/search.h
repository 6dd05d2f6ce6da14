/* search - where backends are looked for, in which order, and which files are there.  Opens nothing. */
#ifndef SEARCH_H
#define SEARCH_H
#include "status.h"

typedef struct search_folder {
    char *path;     /* absolute */
    char why[128];  /* why nothing, or not all, is taken from it, or "" */
} search_folder;

typedef struct search_file {
    char *path;     /* absolute */
    char name[64];  /* NAME of fak-backend-NAME.so */
    char why[128];  /* why it is not to be opened, or "" */
} search_file;

typedef struct search { /* zero-initialise */
    search_folder *folder;
    search_file *file;      /* sorted by (folder, name); the first of a name wins */
    uint32_t folders, files;
} search;

enum { SEARCH_NAME_MAX = 63 };

/* path: the value of FAK_PLUGIN_PATH or NULL.  Then the compiled-in folder, then ../LIBDIR/fak/backends
 * and ../lib/fak/backends beside the real path of the executable.  Not recursive; never the working
 * directory; a file that is not named fak-backend-[a-z0-9-]+.so is not looked at, and the folder says so
 * of a .so.  Unless trusted, files and folders must belong to root or to this user and not be writable by
 * all. */
int32_t search_run(search *s, const char *path, int trusted, fak_error *e);
void search_free(search *s);

/* Why a file or folder may not be trusted, or NULL: owner, mode, or that it is not there. */
const char *search_distrust(const char *path, char why[128]);

/* NAME of ".../fak-backend-NAME.so" into name; 0, or -1 for another file name. */
int search_name_of(const char *path, char name[SEARCH_NAME_MAX + 1]);
#endif
