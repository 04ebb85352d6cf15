/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses which running jobs change. Private to the policy `dorm`. */
#ifndef TONY_PARTITION_DORM_CHOOSE_H
#define TONY_PARTITION_DORM_CHOOSE_H

#include "partition/dorm_rooms.h"

enum { DORM_CUTS_MAX = 16 };

/* A bound of the utilization by the set of the counted jobs that change, for some prices. */
struct dorm_cut {
    float *f;      /* the table of rooms */
    double *gain;  /* [job]: changes_i - stays_i */
    double rest;   /* the part of the bound that does not depend on the set */
    double raised; /* the bound is lower by this if the raised minima must be met */
};

struct dorm_choice {
    struct dorm_rooms *rooms;
    struct dorm_cut cuts[DORM_CUTS_MAX];
    uint32_t n;

    /* internal */
    uint32_t *counted, n_counted;
    int64_t *room; /* [node][m]: units that are free if the jobs of the set hold nothing */
    size_t *cell;  /* [node]: of that room */
};

/* No cuts yet. False: out of memory. */
bool dorm_choice_init(struct dorm_choice *c, struct dorm_rooms *rooms);
/* Add the bound for the prices of the rooms, whose table is filled for them, and mu. raise: the
 * demands of which one container more than the minima is needed; NULL: none. */
void dorm_choice_add(struct dorm_choice *c, double mu, const bool *raise);
/* Improve the set of counted jobs that change, which the bound on adjusted jobs allows: make the
 * least of the cuts large, and return it. sweeps: over the jobs of the set. There must be a cut. */
double dorm_choose(struct dorm_choice *c, bool *changes, unsigned sweeps);
/* An upper bound for all sets, if they have at most two jobs: the least of the cuts for the best of
 * them. Else infinite. */
double dorm_choose_bound(struct dorm_choice *c);

#endif
