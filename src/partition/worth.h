/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No resize that costs more than it gains. Private to src/partition: part_decide() applies this
 * rule to the decision of any policy that resizes. docs/partition.md explains it for users.
 *
 * Costs and gains are in shares times seconds. u_i, the share of one container of job i, is the sum
 * over the types of its demand divided by the capacity of the cluster. A job has n_i containers,
 * and n'_i by the decision. c_i is its resize_s; 0 if the job is new or lost containers.
 *
 *   cost of job i    u_i * min(n_i, n'_i) * c_i, if it runs and its places change: the containers
 *                    that it keeps do nothing for c_i seconds.
 *   horizon H_i      The least of payback_s, the run time that the job has left, and, in a group
 *                    where jobs give containers back, the time until the last of these jobs ends
 *                    anyway. If the job is new, the time for which it has waited is added.
 *   gain of job i    u_i * (n'_i - n_i) * (H_i - c_i), if n'_i > n_i and H_i > c_i; else 0.
 *
 * What a job loses by becoming smaller does not count: the policy has decided that these containers
 * are used better elsewhere. This rule only asks if handing them over pays.
 *
 * 1. A running job that only gains containers is judged alone. If its cost is larger than its gain,
 *    it keeps what it has.
 * 2. The other changes are judged in groups. On a node where the decision adds more than is free
 *    now, additions need what other jobs give back: all jobs that change on that node are in one
 *    group.
 * 3. If the costs of a group are larger than its gains, it loses those that gain, from the last
 *    one: first running jobs, then new ones, and in steps of 1, 2, 4, ... A job that gives
 *    containers back keeps them if nobody in the group needs them. This ends when the group is
 *    worth its costs, or when all of its jobs keep what they have.
 * 4. If a new job is held back, those behind it are, too: nobody overtakes it. Since the time for
 *    which it has waited is part of its gain, no job is held back for ever.
 * 5. Jobs that still shrink keep what nobody takes any more. They are adjusted anyway, and these
 *    containers would be idle.
 *
 * Each node still holds what it is given, since what is added without need of others fits into what
 * is free, and a group is kept or given up with all that it needs. A job keeps at least its min.
 * The bounds on adjustments hold, since there are fewer of them. The loss of fairness may be larger
 * than the bound of `dorm`.
 */
#ifndef TONY_PARTITION_WORTH_H
#define TONY_PARTITION_WORTH_H

#include "partition/part_int.h"

/* Change the decision *out by this rule. 0 or -ENOMEM. */
int part_worth(const struct part_cluster *c, const struct part_job *jobs, size_t n,
               const struct part_options *o, struct part_decision *out);

#endif
