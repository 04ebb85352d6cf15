/* SPDX-License-Identifier: Apache-2.0 */
/* The best pairs of jobs that change, if no more than two may. Private to the policy `dorm`. */
#ifndef TONY_PARTITION_DORM_PAIRS_H
#define TONY_PARTITION_DORM_PAIRS_H

#include "partition/dorm.h"

struct dorm_pair {
    uint32_t a, b; /* jobs */
    double bound;  /* if only these change, no division has more utilization */
};

/* May two running jobs change at most, and no other job? And are there few enough pairs? */
bool dorm_pairs_possible(const struct dorm_problem *p);
/* The pairs whose bound is above `least`, by falling bound. No division has more utilization than
 * the largest bound and `least`. NULL: out of memory or time. */
struct dorm_pair *dorm_pairs(struct dorm_problem *p, double least, uint32_t *n);

#endif
