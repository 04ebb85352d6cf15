/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides one queue of a cluster among its jobs: claims_decide() says how many containers the
 * elastic role of each job should have. No I/O, no clock. The policies and their model are those of
 * partition/partition.h.
 *
 * The cluster owns every container and starts every job. claims_decide() decides only sizes. So a
 * waiting job needs no permission: it starts when other jobs have given back enough.
 *
 * The policies divide the capacity of each node without
 *   - the containers of other applications, and
 *   - the containers of running jobs that do not belong to their elastic roles.
 * If the queue may have less than all nodes together, the free part of each node counts only in
 * proportion.
 *
 * A job waits until all its containers run. Containers that it holds already count as taken
 * (partition/claim.h).
 */
#ifndef TONY_ARBITER_CLAIMS_H
#define TONY_ARBITER_CLAIMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/claim.h"
#include "partition/partition.h"

struct err;

/* The types of resource. The scheduler of YARN counts cores only if it is configured to, so on YARN
 * no node has cores, no job needs any, and no decision depends on them. */
enum { CLAIM_MEMORY_MIB, CLAIM_GPUS, CLAIM_VCORES, CLAIM_TYPES };

struct claims_node {
    const char *name;            /* as masters name it; borrowed */
    struct part_amount capacity; /* of the whole node */
    struct part_amount taken;    /* amounts that no decision can free: see above */
};

/*
 * Decide. claims: their amounts are of the types above. claim.fixed is used only for waiting jobs;
 * the fixed part of a running job is in `taken`. limit: the most that all containers of the claims
 * may hold; NULL = the capacity of the nodes.
 *
 * A running job that has more containers than its max, or fewer than its min, is pinned. If a node
 * is fuller than its capacity, nothing is free there.
 *
 * 0, -EINVAL (an amount is out of the range of partition.h, a job is on a node that is not in the
 * list, or the policy is las-elastic; e says which of these) or -ENOMEM. On success the caller ends
 * *out with part_division_done().
 */
int claims_decide(const struct part_policy *policy, const struct part_options *o,
                  const struct claims_node *nodes, size_t n_nodes, const struct part_amount *limit,
                  const struct part_claim *claims, size_t n, struct part_division *out,
                  struct err *e);

#endif
