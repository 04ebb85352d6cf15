/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weighted dominant resource fairness with whole containers and limits (Ghodsi et al., NSDI 2011,
 * for the idea): how many containers of each job would be fair if the cluster were one big node.
 * These counts are a policy of their own, and the ideal shares of all others.
 *
 * The rule. All capacity is one pool. Each job in turn takes its `min` if it can ever run and this
 * still fits. A job whose `min` does not fit gets nothing. Then repeatedly: of the jobs below their
 * cap, the job with the lowest dominant share divided by weight takes one more container (ties: the
 * earlier job). If that container does not fit into the pool, the job gets no more. The cap is
 * `max`, or the number of containers that fit on the nodes one by one, if that is less.
 *
 * With the symbols of docs/partition.md:
 *   C_k = sum over the nodes of c_jk;  D_i = max over k of d_ik / C_k
 *   level of job i = D_i * n_i / w_i, where w_i is its weight
 *   cap_i = min(max_i, sum over the nodes of the containers of i that fit into the empty node)
 * The counts n_i at the end are the `ideal_i` of docs/partition.md.
 *
 * Shares are compared exactly, as fractions. The result does not depend on rounding.
 */
#ifndef TONY_PARTITION_DRF_H
#define TONY_PARTITION_DRF_H

#include "partition/partition.h"

/*
 * Set counts[i] for each job. caps: if not NULL, the caps of the jobs, which are computed otherwise
 * (part_caps()). 0 or -ENOMEM.
 */
int part_drf(const struct part_cluster *c, const struct part_job *jobs, size_t n,
             const uint32_t *caps, uint32_t *counts);

/* caps[i]: the most containers of job i that fit into the empty cluster, at most its max. A job
 * with a cap below its min can never run. */
void part_caps(const struct part_cluster *c, const struct part_job *jobs, size_t n, uint32_t *caps);

#endif
