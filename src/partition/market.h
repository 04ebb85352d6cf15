/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fixed-budget market (Feldman, Lai, Zhang, EC'05): users divide their budgets into bids on
 * divisible machines, and each machine is shared in proportion to the bids on it. Each user in turn
 * answers the others' bids with the best bids of its own, until the bids no longer change.
 *
 * User i bids x[i][j] >= 0 on machine j; all bids of a user add up to its budget.
 *
 *   price of a machine    Y[j] = reserve + sum of x[i][j] over all users i
 *   share of a user       r[i][j] = x[i][j] / Y[j]
 *   utility of a user     U[i] = sum of weight[i][j] * r[i][j] over the machines j; with `parallel`
 *                         only over that many machines, those of the largest products
 *
 * In the equilibrium no user gains by other bids. Then weight[i][j] * (Y[j] - x[i][j]) / Y[j]^2,
 * the gain by a little more money, is the same for all machines on which user i bids, and not
 * larger for the others.
 *
 * The best answers can repeat in a cycle. So from round 21 on, a user takes the mean of its old and
 * its new bids. After MARKET_ROUNDS_MAX rounds the last bids are the result.
 */
#ifndef TONY_PARTITION_MARKET_H
#define TONY_PARTITION_MARKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MARKET_ROUNDS_MAX = 1000 };

struct market {
    size_t n_users, n_machines;
    const double *weights; /* [user][machine], >= 0: the worth of a whole machine to a user */
    const double *budgets; /* > 0, one for each user */
    double reserve;        /* part of the price that no user pays, >= 0 */
    const uint32_t
        *parallel; /* the number of machines that each user can use at the same time; NULL = all */
};

/* The quality of an equilibrium. A number is NAN if computing it would take more than about 10^9
 * steps. */
struct market_result {
    double efficiency; /* the users' utility divided by the largest possible utility */
    double uniformity; /* the least utility divided by the largest */
    double envy;       /* the least ratio of a user's utility to what it would get from another
                        * user's shares; 1 or more: there is no envy */
    unsigned rounds;
    bool converged; /* in the last round no bid moved by more than 1e-12 of the largest budget */
};

/* Set bids[user][machine]; result may be NULL. A user to whom all machines are worth nothing bids
 * nothing. 0 or -ENOMEM. */
int market_equilibrium(const struct market *m, double *bids, struct market_result *result);

#endif
