/* SPDX-License-Identifier: Apache-2.0 */
/*
 * programs/ of TONY_HOME: copies of tony's programs, for the nodes of a cluster that see TONY_HOME
 * but have tony not installed (Slurm).
 *
 *   programs/<version>-<sizes and times>/   tony-master, tony-executor
 *
 * A directory never changes, since running jobs use it; another build of tony has another name. Its
 * modification time is that of the last submission that used it.
 */
#ifndef TONY_STORAGE_PROGRAMS_H
#define TONY_STORAGE_PROGRAMS_H

#include <stdint.h>

struct err;
struct paths;

/* Copy the programs of this installation to programs/, unless they are there. *out: their
 * directory, which the caller frees. -ENOENT: tony is not completely installed. */
int programs_put(const struct paths *p, const char *version, char **out, struct err *e);

/*
 * Remove directories that no submission has used for max_age_ms (at least 1 hour), and incomplete
 * ones of crashed clients. A directory that jobs/<id>/script names stays, however old: its job may
 * start again.
 *
 * now_ms   wall time
 * Returns the number of removed directories, or -errno.
 */
int programs_gc(const struct paths *p, int64_t max_age_ms, int64_t now_ms, struct err *e);

#endif
