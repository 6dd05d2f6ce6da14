/* verdict - clean verdicts, kept among the artefacts, so that the automatic choice need not probe a file
 * each time.  Only clean ones are kept: a driver that is installed later is found.  A store that cannot
 * be written is as good as none. */
#ifndef VERDICT_H
#define VERDICT_H

/* Was this very file (path, inode, size, time), with this ABI, this program and this CPU, found clean?
 * how: what else it depends on, one line, "" = nothing.  cache: the user's cache folder, NULL = none. */
int verdict_is_clean(const char *cache, const char *file, const char *how);
void verdict_keep(const char *cache, const char *file, const char *how);
#endif
