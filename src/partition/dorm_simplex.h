/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A linear program: how many nodes of each group get which pattern. Private to the policy `dorm`;
 * dorm_patterns.c makes the groups and the patterns.
 *
 * A group is a number of nodes with equal free room. A pattern q belongs to one group. It is a set
 * of containers that fits on one of its nodes: x_vq containers of demand v. y_q nodes get it:
 *
 *   maximize   sum over v of u_v * (below_v + above_v - PENALTY * lacking_v)
 *   demand v   sum over q of x_vq * y_q + lacking_v = minima_v + below_v + above_v + surplus_v
 *   group g    sum over the patterns q of g of y_q = nodes of g
 *   loss       sum over v of D_v * (above_v - below_v) <= loss_left
 *
 *   below_v    containers of the jobs with demand v beyond their minima, up to their ideal counts;
 *              above_v: those beyond that, up to their max
 *   loss_left  the bound B less the loss that there is if each of these jobs has its min
 *
 * How to use it: dorm_simplex_init(), then for each program: dorm_simplex_clear(), add all demands,
 * groups and jobs, add at least one pattern to each group, dorm_simplex_begin(). From then on,
 * dorm_simplex_pivot() improves the solution, and further patterns may be added between two pivots.
 *
 * Units: containers, nodes, and for u, D and the loss parts of the cluster, as in struct dorm_job.
 * Memory: all arrays are memory of the decision (dorm_alloc()). Nobody frees them one by one.
 */
#ifndef TONY_PARTITION_DORM_SIMPLEX_H
#define TONY_PARTITION_DORM_SIMPLEX_H

#include "partition/dorm.h"

/* n containers of the demand with this row; n > 0. */
struct dorm_item {
    uint32_t row, n;
};

struct dorm_pattern {
    uint32_t first, n; /* its items: items[first] .. items[first + n - 1] */
    uint32_t group;
    uint32_t next; /* of the group; DORM_END: none */
    bool basic;    /* it is in the basis, or a key */
};

struct dorm_pattern_group {
    uint32_t size; /* nodes; the caller counts them */
    uint32_t head; /* the pattern that was added last; DORM_END: none */
    uint32_t key;  /* a pattern: it gets the nodes that the other patterns leave */
    double y;      /* of the key */
    double rate;   /* by which y grows when the entering variable grows; 0 if it is not touched */
    bool touched;
};

struct dorm_simplex {
    struct dorm_problem *p; /* lends memory, and counts the steps */
    uint32_t n_demands, n_groups, n_patterns, n_items;
    uint32_t *demand_of;               /* [row]: the demand, as the caller numbers it */
    struct dorm_pattern_group *groups; /* room for one for each node of the problem */
    struct dorm_pattern *patterns;
    struct dorm_item *items;

    /* internal */
    uint32_t most_demands;     /* that can be added */
    uint32_t *row_of;          /* [demand]; DORM_END: it was not added */
    uint32_t rows;             /* first the demands, then the loss */
    uint32_t stride;           /* the rows, and some that stay 0 */
    double *u, *D;             /* [row of a demand]: of one container */
    double *rows_of_doubles;   /* the memory of the arrays of doubles with an entry for each row, */
    bool *rows_of_flags;       /* and of those of flags */
    double *minima, *limit[2]; /* [row of a demand]; limit: of below and above */
    bool *full[2], *basic[4];  /* [row]: at the limit; in the basis */
    struct dorm_variable *basis;  /* [row] */
    double *x;                    /* [row]: the value of the basic variable */
    double *inverse;              /* of the basis; [column][stride], so a column is in one piece */
    double *alpha, *dual;         /* [row]: the entering column; the prices */
    uint32_t *touched, n_touched; /* the groups whose keys change with the entering variable */
    double containers, amount;    /* of all jobs at their max: their number, and their u */
    double unit;                  /* of gains */
    double *scale;                /* [row of a demand]: unit / u */
    double *sold;                 /* [row of a demand] */
    double *low, *high;           /* [row]: the limits of the prices */
    double penalty;               /* the highest price if there is no other limit, in u */
    uint32_t scanned;
    uint32_t *candidates, n_candidates; /* patterns that may enter the basis */
    double candidates_gain;             /* of the best one when they were listed */
};

/* False: out of memory, or there are too many demands for this method. n_demands > 0: no demand has
 * a higher number. */
bool dorm_simplex_init(struct dorm_simplex *lp, struct dorm_problem *p, uint32_t n_demands);
/* Remove all demands, groups, jobs and patterns. */
void dorm_simplex_clear(struct dorm_simplex *lp);
/* Add a demand, before jobs and patterns have it. A step takes the less time the fewer demands
 * there are, so add only those that jobs have. */
void dorm_simplex_add_demand(struct dorm_simplex *lp, uint32_t demand, double u, double D);
/* Add a group without nodes. Returns its index. */
uint32_t dorm_simplex_add_group(struct dorm_simplex *lp);
/* Add a job that gets min to max containers of the demand. min <= ideal <= max. */
void dorm_simplex_add_job(struct dorm_simplex *lp, uint32_t demand, uint32_t min, uint32_t ideal,
                          uint32_t max);
/* Is there no room for a further pattern? */
bool dorm_simplex_full(const struct dorm_simplex *lp);
/* Add the pattern of sold[demand] containers, which are whole numbers, to the group. It needs
 * !dorm_simplex_full(). False: the group has this pattern already. */
bool dorm_simplex_add(struct dorm_simplex *lp, uint32_t group, const double *sold);
/* Set the first solution: each node has the first pattern of its group. False: a group has none. */
bool dorm_simplex_begin(struct dorm_simplex *lp, double loss_left);
/* Until the next call, keep the prices near pi[demand] and mu: up to part * u_v away, and part for
 * mu. That is, what lacks is bought at the highest price, and a surplus is sold at the lowest one.
 * pi == NULL: no longer; as in the program above. */
void dorm_simplex_limit_prices(struct dorm_simplex *lp, const double *pi, double mu, double part);
/* Does the solution lack containers for the minima, or exceed the bound on the loss? Then a call
 * makes both ten times as dear, until dorm_simplex_clear(). Call it while the prices are not kept
 * near others. False: nothing lacks, or it is as dear as possible. */
bool dorm_simplex_forbid_lacking(struct dorm_simplex *lp);
/* One step of the simplex method. False: no solution with these patterns is better. */
bool dorm_simplex_pivot(struct dorm_simplex *lp);
/* The sum that is maximized, for the present solution. */
double dorm_simplex_value(const struct dorm_simplex *lp);
/* The prices of the present solution: of one container of the demand (0: it was not added), and of
 * a unit of loss. Both are at least 0. */
double dorm_simplex_price(const struct dorm_simplex *lp, uint32_t demand);
double dorm_simplex_loss_price(const struct dorm_simplex *lp);
/* Set y[pattern]: the nodes with this pattern in the present solution, a fraction of at least 0. */
void dorm_simplex_nodes(const struct dorm_simplex *lp, double *y);

#endif
