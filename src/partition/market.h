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
 * The best answers can repeat in a cycle. So after 20 rounds, a user goes only a part of the way
 * from its old bids to its best ones: first half of it. While the bids do not settle, the part
 * becomes smaller. The number of rounds depends on the size of the market, but is at most
 * MARKET_ROUNDS_MAX. In a small market without `parallel`, half of them are left for another way:
 * from the start again, all users multiply their bids by a power of the gain by a little more
 * money, and then scale them to their budgets. If this does not settle either, the bids with the
 * smaller residual are the result.
 *
 * Without `parallel`, an equilibrium exists if there is a reserve, or if at least two users want
 * each machine. Otherwise a user that alone wants a machine, and also wants another one, would gain
 * by each smaller bid there. In that case the bids are an equilibrium with a least price of 1e-12.
 * With `parallel` there may be none.
 */
#ifndef TONY_PARTITION_MARKET_H
#define TONY_PARTITION_MARKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MARKET_ROUNDS_MIN = 200,     /* also in a large market */
    MARKET_ROUNDS_FINITE = 1000, /* with `parallel` */
    MARKET_ROUNDS_MAX = 10000
};

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
    double residual; /* the largest part of its utility that a user could still gain by its best
                      * bids; in an equilibrium about 0 */
    bool converged;  /* in the last round no bid moved by more than 1e-12 of the largest budget, or
                      * the residual is at most 1e-12 */
};

/* Set bids[user][machine]; result may be NULL. A user to whom all machines are worth nothing bids
 * nothing. 0 or -ENOMEM. */
int market_equilibrium(const struct market *m, double *bids, struct market_result *result);

#endif
