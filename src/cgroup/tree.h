/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A control group together with the groups below it. tony makes no groups below that of a
 * container, but the task may do so: it is root, or the groups belong to its user.
 */
#ifndef TONY_CGROUP_TREE_H
#define TONY_CGROUP_TREE_H

struct pids;

/* Append the processes in the group and below it. Without memory the list is shorter. */
void cgroup_tree_list(const char *dir, struct pids *out);
/* Send SIGKILL to all processes in the group and below it, except to this process. Returns their
 * number. */
unsigned cgroup_tree_kill(const char *dir);
/* Remove the group and those below it, as far as they have no processes. Does not wait. Returns 0
 * if the group has gone, or -errno. */
int cgroup_tree_rmdir(const char *dir);
/* Kill the processes in the group and below it, wait until they are dead, and remove the groups.
 * Then remove the parent of the group, too, if that is empty. */
void cgroup_tree_remove(const char *dir);

#endif
