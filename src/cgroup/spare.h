/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups that a job leaves for the next one. The kernel needs 40 µs to make a group, and 10
 * µs to set its limit. Only v1 can do this: there a directory of groups can be renamed, and with it
 * the groups of all containers have the paths of the next job.
 *
 *   <base>/tony-<uid>/<job>/<container>                while the job lives
 *   <base>/tony-<uid>/spare-<n>-<limit>/<container>    between two jobs
 *   <base>/tony-<uid>/gone-<...>/<container>           while they are removed
 *
 * n and limit: as in struct spare_groups. A rename is atomic, so at most one job gets them. A job
 * that ends while there are spare groups removes its own. The pool removes them when it ends.
 */
#ifndef TONY_CGROUP_SPARE_H
#define TONY_CGROUP_SPARE_H

#include <stdbool.h>
#include <stdint.h>

/* Groups of containers with higher numbers than SPARE_GROUPS_MAX are not kept. The kernel needs 22
 * KiB for each. A job that has not used all groups of an earlier one leaves SPARE_GROUPS_FEW of
 * them, or SPARE_GROUPS_TIMES as many as it has used if that is more (decision 0046). */
enum { SPARE_GROUPS_MAX = 8192, SPARE_GROUPS_FEW = 1024, SPARE_GROUPS_TIMES = 4 };

/* The groups of the containers 1 to n of a job's first keeper exist and have this limit. Others may
 * exist. */
struct spare_groups {
    uint32_t n;
    uint64_t limit; /* bytes */
};

/* Give the job's directory the spare groups. user: <base>/tony-<uid>; dir: that of the job, which
 * must not exist yet. false: there are none. */
bool spare_groups_take(const char *user, const char *dir, struct spare_groups *out);

/* The job is over: keep the groups of the containers 1 to used.n of its first keeper, as far as
 * they still exist and their number is at most SPARE_GROUPS_MAX. used.limit: the limit that all of
 * these groups have; 0 = they have different limits. A group is kept only if the next task cannot
 * notice that there was one before: it has its limit, no process, no group below it, and hardly any
 * memory, and no process was killed in it for want of memory. Of the groups that the job got
 * (ready) and did not use, keep those without a process, up to the number above. Remove all others.
 * false: the caller has to remove what is left. */
bool spare_groups_keep(const char *dir, struct spare_groups used, struct spare_groups ready);

/* Remove all spare groups, because the pool ends. base: the group in which this process may make
 * groups. */
void spare_groups_remove(const char *base);

#endif
