/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cancels resizes that cost more than they gain. Private to src/partition: part_decide() applies
 * this rule to the decision of any policy that resizes. docs/partition.md explains it for users.
 *
 * Costs and gains are in shares times seconds. u_i, the share of one container of job i, is the sum
 * over the types of its demand divided by the capacity of the cluster. A job has n_i containers,
 * and n'_i by the decision. c_i is its resize_s; 0 if the job is new or lost containers. If the
 * caller moves a job by two resizes (move_in_two of the options), c_i is twice that for a job whose
 * containers must leave a node so that another job can start, and come back on other nodes:
 *   sum over the nodes j of min(x_ij, x'_ij) < min(n_i, n'_i)
 *
 *   cost of job i    u_i * min(n_i, n'_i) * c_i, if it runs and its places change: the containers
 *                    that it keeps do nothing for c_i seconds.
 *   horizon H_i      The least of payback_s, the run time that the job has left, and, in a group
 *                    where jobs give containers back, the time until the last of these jobs ends
 *                    anyway. If the job is new, the time for which it has waited is added.
 *   gain of job i    u_i * (n'_i - n_i) * (H_i - c_i), if n'_i > n_i and H_i > c_i; else 0.
 *
 * If a job shrinks, the containers that it loses do not count as a cost: the policy has decided
 * that other jobs use them better. This rule only checks whether the transfer gains more than it
 * costs.
 *
 * 1. A running job that only gains containers is judged alone. If its cost is larger than its gain,
 *    it keeps what it has.
 * 2. The other changes are judged in groups. If the decision adds more to a node than is free there
 *    now, the jobs that grow need containers that other jobs give back. So all jobs that change on
 *    that node are in one group.
 * 3. If the costs of a group are larger than its gains, jobs that gain leave the group, from the
 *    last one: first running jobs, then new jobs, and in steps of 1, 2, 4, ... jobs. If no other
 *    job of the group needs the containers that a job gives back, that job keeps them. This ends
 *    when the gains cover the costs, or when all jobs of the group keep what they have.
 * 4. If a new job must wait, all new jobs behind it wait, too: no job overtakes it. No job waits
 *    for ever, because the time for which it has waited is part of its gain.
 * 5. If a job still shrinks, it keeps those containers that no other job takes any more. The job is
 *    adjusted anyway, and these containers would be idle.
 *
 * After these steps, the containers on each node still fit:
 *   - What a job adds without the help of other jobs fits into the free room.
 *   - A group is kept or cancelled together with the containers that it gives back.
 * Each job keeps at least its min. There are fewer adjustments than before, so the bounds on them
 * hold. The loss of fairness may be larger than the bound of `dorm`.
 */
#ifndef TONY_PARTITION_WORTH_H
#define TONY_PARTITION_WORTH_H

#include "partition/part_int.h"

/* Change the decision *out by this rule. 0 or -ENOMEM. */
int part_worth(const struct part_cluster *c, const struct part_job *jobs,
               const struct part_options *o, struct part_decision *out);

#endif
