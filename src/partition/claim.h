/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Translates between the jobs of a pool or a queue and the jobs of the policies (partition.h).
 *
 * A job of a pool has a fixed part, such as the containers of its other roles, and n equal
 * containers. A job of the policies has equal containers only. part_divide() translates the claims
 * of all jobs, asks the policy, and returns a target and a sentence for each job. No I/O, no clock.
 *
 *   A running job   has the same n containers for the policy. The caller has subtracted its fixed
 *                   part from the nodes. If n is outside of min .. max, the job is pinned at n.
 *   A waiting job   needs its fixed part as well. So each of its containers counts as `each` +
 *                   `fixed` / `min`, rounded up. With min containers or more, the sum is at least
 *                   what the job needs.
 */
#ifndef TONY_PARTITION_CLAIM_H
#define TONY_PARTITION_CLAIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/partition.h"

struct err;

struct part_claim {
    const char *id; /* borrowed */
    bool runs;
    /* If the job runs and must keep n containers: the reason, a clause for the sentence, borrowed.
     * NULL = the policy may resize it. */
    const char *pinned;
    struct part_amount fixed, each;
    uint32_t min, max;           /* 1 <= min <= max */
    uint32_t n;                  /* containers now; of a waiting job: the number in its job file */
    const struct part_place *at; /* of a running job: the nodes of its n containers */
    uint32_t n_at;
    int priority;
    uint64_t arrival; /* a job with a smaller number arrived earlier */
    uint32_t weight;
    /* As in struct part_job: */
    double budget, remaining_s, ends_in_s, attained_s, resize_s, waited_s;
};

/* The decision of the policy about one job. */
struct part_target {
    enum part_verdict verdict;
    enum part_because because;
    uint32_t n;     /* containers; 0 = the job waits */
    uint32_t ideal; /* the number of containers that would be its fair share */
    /* The nodes of its n containers, in the order of the nodes; owned by the division. A waiting
     * job has its fixed part in them, spread over all its containers. */
    const struct part_place *at;
    uint32_t n_at;
    char why[PART_WHY_MAX]; /* a sentence without a full stop */
};

struct part_division {
    struct part_target *jobs; /* in the order of the claims */
    size_t n;
    struct part_place *places; /* those of all jobs */
    struct part_metrics metrics;
};

/*
 * Decide. The claims may be in any order: running jobs come first, then both groups are sorted by
 * priority and arrival.
 *
 * 0, -EINVAL (an amount is out of the range of partition.h) or -ENOMEM. On success the caller ends
 * *out with part_division_done().
 */
int part_divide(const struct part_policy *policy, const struct part_options *o,
                const struct part_cluster *c, const struct part_claim *claims, size_t n,
                struct part_division *out, struct err *e);
void part_division_done(struct part_division *d);

#endif
