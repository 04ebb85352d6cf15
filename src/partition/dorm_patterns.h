/* SPDX-License-Identifier: Apache-2.0 */
/* A division that is built from patterns (dorm_patterns.c). Private to the policy `dorm`. */
#ifndef TONY_PARTITION_DORM_PATTERNS_H
#define TONY_PARTITION_DORM_PATTERNS_H

#include "partition/dorm_rooms.h"
#include "partition/dorm_simplex.h"

/* What can be done with a container of a demand that must leave its node: its job may not need it,
 * or it fits on another node. */
struct spare {
    uint32_t n;    /* containers beyond the minima of the jobs with this demand */
    uint32_t fit;  /* that fit on free room of one node, */
    uint32_t node; /* which is this one */
};

struct dorm_patterns {
    struct dorm_search *s;
    struct dorm_problem *p;
    struct dorm_rooms *rooms;
    bool has_rooms; /* false: demands are too different for a table */
    struct dorm_simplex lp;
    bool *changes;      /* [job] */
    uint32_t *low;      /* [job]: min in the program */
    bool *reserved;     /* [job]: its min has the places of the best division so far */
    bool *wanted;       /* [demand]: by a job that changes */
    bool *raise;        /* [demand]: see set_minima() */
    bool *lacks;        /* [demand]: is a container of a min missing after rounding? */
    uint32_t *group_of; /* [node] */
    int64_t *room;      /* [group][m] */
    uint32_t *by_cell;  /* [cell of a room]: the group + 1; 0: none */
    double *sold;       /* [demand]: containers */
    uint32_t turn;      /* of the demands, for add_filled() */
    double mu;          /* the price of a unit of loss; those of containers: rooms.pi */
    /* upper: the utilization that no division with these changes exceeds. best_pi, best_mu: the
     * prices that prove it. */
    double *best_pi, best_mu, upper;
    double value;         /* of the solution */
    uint64_t force_end;   /* of the steps to place containers by force */
    double enough;        /* the search ends when upper is below this */
    uint64_t end_if_poor; /* of the steps while no good division is known */
    struct spare *spare;  /* [demand] */
};

/* ---- dorm_round.c */

/* Make the state the division of the present solution, first the minima of the jobs x->reserved.
 * Containers of a min can be missing. */
void dorm_place_patterns(struct dorm_patterns *x);

/* ---- dorm_force.c */

/* Give each job its min: on free room, else in the place of other containers. Gives up if far too
 * many are missing, or one of them has no place: the division is not possible then. */
void dorm_force_minima(struct dorm_patterns *x);

#endif
