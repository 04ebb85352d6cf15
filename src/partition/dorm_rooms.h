/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worth of free room on a node, counted in whole containers. Private to the policy `dorm`.
 *
 * Each kind of container has a price: pi_v for one of demand v. (Jobs with equal demands have equal
 * prices.) The worth of a room is the most that whole containers within it cost:
 *
 *   f(room) = the largest sum over v of pi_v * x_v with sum over v of x_v * d_v <= room
 *
 * A table holds f for all rooms that fit into a node, so the worth of a node is one look at it.
 */
#ifndef TONY_PARTITION_DORM_ROOMS_H
#define TONY_PARTITION_DORM_ROOMS_H

#include "partition/dorm.h"

/* f is computed with floats: the prices are added one by one, and each sum is rounded. The part
 * `slack` of f is more than all these errors: at least DORM_ROOMS_SLACK, and
 * DORM_ROOMS_SLACK_OF_ONE, which is 2^-24 and a little more, for each container that fits into a
 * node. */
#define DORM_ROOMS_SLACK 1e-5
#define DORM_ROOMS_SLACK_OF_ONE 6e-8

/* The containers of a counted job on a node. */
struct dorm_held {
    uint32_t job, n;
};

/* A source of a row of the table: one container of a demand, beside what fits into the cells of an
 * earlier row: rows_back rows and `back` cells before. */
struct dorm_source {
    size_t rows_back, back;
    float price;
    uint32_t least; /* the smallest room of the inner type that the container fits into */
};

struct dorm_rooms {
    struct dorm_problem *p;
    uint32_t m, n_demands;
    uint32_t *demand_of; /* [job]; not set for jobs that are pinned */
    uint32_t *example;   /* [demand]: a job with this demand */
    double *pi;          /* [demand] */
    double *filled;      /* [demand]: the prices for which the table is filled */
    bool is_filled;      /* false: for none */

    /* Amounts are counted in units, the common divisors of the demands. A room's cell in the table
     * is found by its units >> shift: if the table would be too large, demands are rounded down. */
    int64_t unit[PART_TYPES_MAX]; /* 0: no job needs this type */
    unsigned shift[PART_TYPES_MAX];
    double slack;
    bool rounded; /* some demand is rounded down: a set that is worth f(room) may need more */
    uint32_t size[PART_TYPES_MAX]; /* 1 + the units of the largest node >> shift */
    /* A row has the rooms with equal amounts of all types but the inner one, which has the largest
     * size. order: the types; first the inner one, then the others by rising stride, in rows. */
    uint32_t order[PART_TYPES_MAX];
    size_t stride[PART_TYPES_MAX]; /* of the inner type: 0 */
    size_t n_rows, *start;         /* [row]: its first cell */
    size_t cells;                  /* of the rows into which a node reaches */
    float *f;                      /* [cell] */
    uint32_t *extent;              /* [row]: the cells that are filled */
    uint64_t extents;              /* the sum of it */
    int64_t *need;                 /* [demand][m]: in units */
    uint32_t *d;                   /* [demand][m]: in cells */
    size_t *rows_back;  /* [demand]: the rows that these cells are, without the inner ones */
    uint32_t most_next; /* the most of these cells of the type order[1], of any demand */
    /* The demands from which the table was filled. Those from n_across on use only the inner type.
     */
    uint32_t *active, n_active, n_across;
    uint32_t *by_least;          /* the first n_across of them, by their need of the inner type */
    struct dorm_source *sources; /* of a row */

    int64_t *rest;   /* [node][m]: the units that running jobs leave free */
    uint32_t *first; /* [node + 1]: the counted jobs on a node are held[first[node]] and so on */
    struct dorm_held *held;
    int64_t *largest; /* [node][m]: the room if all counted jobs leave */
};

/* False: out of memory, or no table of a good size can be made. Sets no prices. times: the table
 * may be this many times as large as usually, so that demands are rounded less. */
bool dorm_rooms_init(struct dorm_rooms *r, struct dorm_problem *p, uint32_t times);
/* Set the prices to those that follow from the prices of the classes: prices->least. dear: a price
 * may be so high that the jobs buy only their minima. */
void dorm_rooms_start(struct dorm_rooms *r, const struct dorm_prices *prices, bool dear);
/* From now on, fill the table only for rooms that fit into one of these n. _to_nodes: into a node
 * without its counted jobs, as after dorm_rooms_init(). */
void dorm_rooms_limit(struct dorm_rooms *r, const int64_t *rooms, uint32_t n);
void dorm_rooms_limit_to_nodes(struct dorm_rooms *r);
/* Fill the table for the present prices, unless it is filled for them. */
void dorm_rooms_fill(struct dorm_rooms *r);
/* Set `room` to the units of node j that are free if exactly the jobs of the set change. set: bit c
 * is the c-th job of the node; bit 31 is also all further ones. */
void dorm_rooms_room(const struct dorm_rooms *r, uint32_t j, uint32_t set, int64_t *room);
size_t dorm_rooms_cell(const struct dorm_rooms *r, const int64_t *room);
/* Set `more` to the room with what n containers of job i need; n < 0: without it. */
void dorm_rooms_more(const struct dorm_rooms *r, uint32_t i, int64_t n, const int64_t *room,
                     int64_t *more);
/* f(room), or a little more. _at: of the room with this cell. */
double dorm_rooms_worth(const struct dorm_rooms *r, const int64_t *room);
double dorm_rooms_at(const struct dorm_rooms *r, size_t cell);
/* The number of containers of demand v that fit into the room, and the room less n of them. */
uint32_t dorm_rooms_fit(const struct dorm_rooms *r, uint32_t v, const int64_t *room);
void dorm_rooms_less(const struct dorm_rooms *r, uint32_t v, uint32_t n, const int64_t *room,
                     int64_t *rest);
/* Add n times a set of containers that is worth f(room) to sold[demand]. cell: of the room. */
void dorm_rooms_sell(const struct dorm_rooms *r, size_t cell, double n, double *sold);
/* The best value of a job that changes: the largest (u - pi) * n - mu * D * |n - ideal|. */
double dorm_rooms_buy(const struct dorm_job *job, double pi, double mu, double *n);

#endif
