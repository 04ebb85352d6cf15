/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fixed-budget market (Feldman, Lai, Zhang, EC'05): users divide their budgets into bids on
 * divisible machines, and each machine is shared in proportion to the bids on it. Each user in turn
 * answers the others' bids with the best bids of its own, until nobody gains.
 *
 * The best answers can go in circles. After 20 rounds the mean of the old and the new bid is taken.
 */
#ifndef TONY_PARTITION_MARKET_H
#define TONY_PARTITION_MARKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct market {
    size_t n_users, n_machines;
    const double *weights; /* [user][machine], >= 0: the worth of a whole machine to a user */
    const double *budgets; /* > 0, one for each user */
    double reserve;        /* part of the price that nobody pays, >= 0 */
    const uint32_t
        *parallel; /* NULL, or of each user: on how many machines it can work at a time */
};

struct market_result {
    double efficiency; /* the users' utility divided by the most that is possible */
    double uniformity; /* the least utility divided by the largest */
    double envy; /* the least ratio of a user's utility to that of another's shares; 1: no envy */
    unsigned rounds;
    bool converged; /* nobody gains more than 1e-9 of its utility */
};

/* Set bids[user][machine]; result may be NULL. 0 or -ENOMEM. */
int market_equilibrium(const struct market *m, double *bids, struct market_result *result);

#endif
