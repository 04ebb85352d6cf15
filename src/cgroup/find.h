/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the mount point of a control group hierarchy, and the group of this process in it. */
#ifndef TONY_CGROUP_FIND_H
#define TONY_CGROUP_FIND_H

#include <stdbool.h>

#include "base/buf.h"

struct err;

enum { CGROUP_PATH_MAX = 512 }; /* bytes of the path of a group */

/* What /proc says of this process. The kernel makes the list of mounts anew for each reader, which
 * takes about 0.1 ms: so read it once for several hierarchies. */
struct cgroup_texts {
    struct buf own;    /* /proc/self/cgroup */
    struct buf mounts; /* /proc/self/mountinfo */
};
/* A file that cannot be read is empty: then cgroup_find_in() finds nothing. */
void cgroup_texts_read(struct cgroup_texts *out);
void cgroup_texts_done(struct cgroup_texts *t);
/* The directory of this process's group in the hierarchy of a v1 controller, or of v2 for "". The
 * caller frees it, and the mount point in *out_top (may be NULL). NULL with e set: this process is
 * in no such group. */
char *cgroup_find_in(const struct cgroup_texts *t, const char *controller, char **out_top,
                     struct err *e);
/* Are the mounted groups of v2 those above this process only? That is so in a container into which
 * somebody has mounted the /sys/fs/cgroup of the machine. cgroup_find_in() does not use them. */
bool cgroup_only_outside(const struct cgroup_texts *t);
/* The same as cgroup_find_in(), but it reads the files itself. */
char *cgroup_find(const char *controller, char **out_top, struct err *e);
/* The path of a process's group within its hierarchy, from the text of /proc/<pid>/cgroup. */
bool cgroup_path_in(struct span text, const char *controller, struct span *out);
bool cgroup_machine_swaps(void);

#endif
