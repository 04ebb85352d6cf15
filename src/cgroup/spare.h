/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups that a job leaves for the next one. The kernel needs 40 µs to make a group, and 3
 * µs to say that it exists. Only v1 can do this: there a directory of groups can be renamed, and
 * with it the groups of all containers have the paths of the next job.
 *
 *   <base>/tony-<uid>/<job>/<container>    while the job lives
 *   <base>/tony-<uid>/spare/<container>    between two jobs
 *
 * A rename is atomic, so at most one job gets them. There is at most one directory `spare`: a job
 * that ends while it exists removes its groups. The pool removes it when it ends.
 */
#ifndef TONY_CGROUP_SPARE_H
#define TONY_CGROUP_SPARE_H

#include <stdbool.h>
#include <stdint.h>

/* Give the job's directory the spare groups. user: <base>/tony-<uid>; dir: that of the job, which
 * must not exist yet. false: there are none. */
bool spare_groups_take(const char *user, const char *dir);

/* The job is over: keep the groups of the containers 1 to n of its first keeper, and remove all
 * others. A group is kept only if the next task does not notice that there was one before: it has
 * no process, no group below it, and hardly any memory, and no process was killed in it for want of
 * memory. If nothing can be kept, the caller has to remove what is left. */
bool spare_groups_keep(const char *dir, uint32_t n);

/* The pool ends: remove them. base: the group in which this process may make groups. */
void spare_groups_remove(const char *base);

#endif
