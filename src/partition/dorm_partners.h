/* SPDX-License-Identifier: Apache-2.0 */
/* A bound from how few others can change beside a job. Private to the policy `dorm`. */
#ifndef TONY_PARTITION_DORM_PARTNERS_H
#define TONY_PARTITION_DORM_PARTNERS_H

#include "partition/dorm_rooms.h"

enum {
    /* More counted jobs of a node than this are not told apart: the further ones are taken as if
     * they changed in any case. */
    DORM_SHARED_MAX = 7,
};

struct dorm_partners {
    const struct dorm_rooms *rooms; /* input */
    double mu;                      /* input: the price of a unit of loss; the others: rooms->pi */
    /* Input, [first_set[node] + T]: the cell of the node's room if its jobs T change. */
    const size_t *cell;
    const uint32_t *first_set;

    /* internal; by place of a counted job: the index in rooms->held */
    double *weight, *start, *power, *best_power, *mean;
    double *gain, *by_gain, least; /* [job]; the least gain of the Q largest ones */
    double *with, *by_with;        /* [job]: beside the present job */
    uint32_t *beside, n_beside;    /* the jobs of which `with` is set */
    uint8_t *counts_on;            /* [job][job]: is the second one counted beside the first? */
};

/* False: out of memory. */
bool dorm_partners_init(struct dorm_partners *c, const struct dorm_rooms *rooms);
/* The number of counted jobs of node j that are told apart. */
static inline uint32_t dorm_shared(const struct dorm_rooms *r, uint32_t j)
{
    return MIN(r->first[j + 1] - r->first[j], (uint32_t)DORM_SHARED_MAX);
}
/* An upper bound of the utilization for the present prices, whose table is filled. Infinite if too
 * many jobs run. The search for a lower bound ends when it is at most `enough`, or so far above the
 * `known` utilization that it will hardly fall below that, or when the steps reach `end`. */
double dorm_partners_bound(struct dorm_partners *c, double enough, double known, uint64_t end);

#endif
