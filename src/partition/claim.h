/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job as a pool or a queue knows it: a fixed part, and n containers that are all alike. The
 * policies know only containers that are alike; this translates, and returns a target and a
 * sentence for each job. No I/O, no clock.
 *
 *   It runs    Its n containers are those of the policies. The caller has subtracted the fixed part
 *              from the nodes. A job whose n is outside of min .. max is pinned at n.
 *   It waits   Each container counts as `each` and its part of the fixed part, rounded up: fixed /
 *              min. With min containers or more, that is never less than what the job needs.
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
    bool pinned; /* it runs, and must keep n containers */
    struct part_amount fixed, each;
    uint32_t min, max; /* 1 <= min <= max */
    uint32_t n; /* containers now; of a job that waits: the number that its job file asks for */
    const struct part_place *at; /* of a job that runs: where they are; n in all */
    uint32_t n_at;
    int priority;
    uint64_t arrival; /* a smaller number came earlier */
    uint32_t weight;
    /* As in struct part_job: */
    double budget, remaining_s, ends_in_s, attained_s, resize_s, waited_s;
};

/* What the policy has decided for one job. */
struct part_target {
    enum part_verdict verdict;
    enum part_because because;
    uint32_t n;             /* containers; 0 = it waits */
    uint32_t ideal;         /* its fair number of containers */
    char why[PART_WHY_MAX]; /* a sentence without a full stop */
};

struct part_division {
    struct part_target *jobs; /* in the order of the claims */
    size_t n;
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
