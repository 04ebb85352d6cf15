/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of the policy `dorm` share. Private to these files. docs/partition.md
 * explains the algorithm.
 *
 * dorm.c           the parts of the search in their order, and the answer
 * dorm_admit.c     how many jobs of the queue are admitted
 * dorm_problem.c   types, limits of the jobs, the bounds, the count of work
 * dorm_class.c     classes of nodes
 * dorm_order.c     the order of types and nodes, which does not depend on their numbers
 * dorm_bound.c     prices, and the upper bound of the utilization that follows from them
 * dorm_reach.c     the room on nodes that no container can use, which lowers that bound
 * dorm_rooms.c     what rooms on nodes are worth in whole containers (dorm_rooms.h)
 * dorm_whole.c     the upper bound from whole containers
 * dorm_partners.c  another bound for all sets of running jobs that change (dorm_partners.h)
 * dorm_choose.c    which running jobs should change (dorm_choose.h)
 * dorm_pairs.c     the same, with an upper bound, if at most two may (dorm_pairs.h)
 * dorm_state.c     an allocation that can be changed and undone
 * dorm_build.c     a first good allocation
 * dorm_patterns.c  in large problems, a better one: which nodes get which set of containers
 * dorm_round.c     makes a division of the solution of dorm_patterns.c
 * dorm_force.c     places the containers of a min for which no room is left (dorm_patterns.h)
 * dorm_simplex.c   the linear program of dorm_patterns.c (dorm_simplex.h)
 * dorm_search.c    local search
 * dorm_refill.c    fills one node after the other as well as possible
 * dorm_exact.c     branch and bound, for few jobs on few nodes
 * dorm_pack.c      do these counts fit on the nodes? For the branch and bound (dorm_pack.h)
 * dorm_solve.c     the problem as integer programs, for an external solver (solver.h)
 * dorm_why.c       the reason of each job's number: `because` and `other` of the decision
 *
 * The symbols of docs/partition.md, and their names here (job: a struct dorm_job, p: the struct
 * dorm_problem, s: a struct dorm_state, which is one division):
 *   c_jk, 1 / C_k, m                  p->cap[j * m + k], p->inv[k], p->m
 *   d_ik, d_ik / C_k                  job->d[k], job->dn[k]
 *   u_i, D_i, ideal_i                 job->u, job->D, job->ideal
 *   min, max                          job->lo, job->hi (hi: not above what fits into the cluster)
 *   p_ij, sum over j of p_ij          job->at[] and entry->was, job->now
 *   x_ij, n_i                         entry->n of a struct dorm_entry, s->n[i]
 *   r_i                               s->moved[i] > 0
 *   U, F, R, M                        s->util, s->loss, s->adjusted, s->changed
 *   B, Q                              p->loss_bound, p->adjust_bound
 *   mu, price_gk (g: a class)         prices->loss, prices->node[g * m + k]
 *
 * Words. A job is `pinned`: x_ij = p_ij. It is `counted` if it runs and a change of it is an
 * adjustment, so that R counts it. Otherwise it is `loose`: it is new, or it lost containers.
 */
#ifndef TONY_PARTITION_DORM_H
#define TONY_PARTITION_DORM_H

#include <math.h>

#include "partition/part_int.h"
#include "partition/solver.h"

enum {
    DORM_CLASSES_MAX = 32,
    DORM_SETS_MAX = 32,
    DORM_NONE = -1,
    DORM_FEW_UNITS = 16, /* a node with more of a type has many units of it */
};

/*
 * All tolerances and thresholds of a search.
 *
 * For rounding errors, and for the tolerance of the solver:
 *   DORM_LOSS_EPS    a loss up to the bound + this is within the bound (dorm_loss_limit())
 *   DORM_UTIL_EPS    utilizations that differ by less are equal
 *   DORM_BOUND_EPS   a utilization that is this near to its upper bound has reached it
 *
 * The distance of a utilization from its upper bound, divided by the bound, in a large problem:
 *   DORM_AT_BOUND    nearer: the search ends
 *   DORM_FAR         farther: the search gets more steps
 *
 * The amount that a division lacks to be allowed, in a large problem (`bad` of its score):
 *   DORM_LACKS_LITTLE   less: a quick try continues with local search
 *   DORM_LACKS_SOME     less: a thorough try does
 *   DORM_LACKS_MUCH     more: a quick try ends with the first division
 */
#define DORM_LOSS_EPS 1e-9
#define DORM_UTIL_EPS 1e-10
#define DORM_BOUND_EPS 1e-9
#define DORM_AT_BOUND 2e-4
#define DORM_FAR 0.015
#define DORM_LACKS_LITTLE 0.003
#define DORM_LACKS_SOME 0.02
#define DORM_LACKS_MUCH 0.05

/* Counts elementary steps. One step is about the time to read the entry of one job on one node
 * or class of nodes. */
struct dorm_work {
    uint64_t steps, end, ask_at;
    bool (*stop)(void *ctx);
    void *ctx;
    bool over;
};

enum dorm_kind { DORM_PINNED, DORM_COUNTED, DORM_LOOSE };

struct dorm_job {
    uint32_t index; /* index of the job in the caller's list */
    enum dorm_kind kind;
    int64_t d[PART_TYPES_MAX]; /* of one container, in amounts */
    double dn[PART_TYPES_MAX]; /* the same, divided by the capacity of the cluster */
    double u, D;
    /* limits of the count; hi: at most the number that fits into the empty cluster */
    uint32_t lo, hi;
    uint32_t now; /* containers that the job has now */
    uint32_t ideal;
    bool runs;
    const struct part_place *at;
    uint32_t n_at;
};

/* A class: nodes of equal capacity. If the cluster has more than DORM_CLASSES_MAX capacities, nodes
 * that offer their types in about the same proportions (dorm_class.c). */
struct dorm_class {
    uint32_t size;
    double share[PART_TYPES_MAX]; /* capacity of the class divided by that of the cluster */
};

/* Nodes of equal capacity in the same class. */
struct dorm_kind_of_node {
    uint32_t node; /* one with this capacity */
    uint32_t n, class;
};

/* The room that no container can use while the running jobs on a node do not change
 * (dorm_reach.c). */
struct dorm_waste {
    bool any;      /* false: there is none, or it was not searched for */
    double *lost;  /* [class][m]: in parts of the cluster */
    double *freed; /* [running job][class][m]: what it no longer excludes if the job changes */
    double *part;  /* [node]: the part of its waste that is subtracted, t_j of docs/partition.md */

    /* internal */
    uint32_t *order; /* the jobs by their demands */
    const int64_t **demands, **scratch;
    int64_t *rest;      /* [node][m]: amounts */
    double *waste;      /* [node][m] */
    uint32_t *n_change; /* [node]: running jobs there that change */
};

struct dorm_problem {
    struct part_decision *out; /* lends its memory (dorm_alloc()) */
    const struct part_cluster *cluster;
    uint32_t m;                    /* types of which the cluster has something */
    uint32_t type[PART_TYPES_MAX]; /* their indexes in the cluster */
    double inv[PART_TYPES_MAX];    /* 1 / capacity of the cluster */
    bool scarce[PART_TYPES_MAX];   /* no node has more than 16 units: GPUs and the like */
    /* Here and in the search, a node is its place in the order of dorm_order.c. */
    uint32_t *node_of;  /* the number that the caller has given to this node */
    uint32_t *place_of; /* by that number: the node */
    uint32_t n_nodes, n_classes;
    int64_t *cap; /* [node][m] */
    uint32_t *class_of;
    struct dorm_class *classes;
    struct dorm_kind_of_node *kinds;
    uint32_t n_kinds;

    uint32_t n_running, n_all; /* first the running jobs, then the queue in its order */
    uint32_t n;                /* the first n jobs take part now */
    struct dorm_job *jobs;
    uint32_t *fit_class;       /* [job][class]: containers that fit into the empty class */
    uint32_t *at_class;        /* [job][class]: containers that the job has there now */
    uint32_t *big_first;       /* the jobs by falling D */
    struct part_job *drf_jobs; /* the jobs in our order, for part_drf() */
    uint32_t *drf_caps, *drf_counts;

    struct dorm_waste waste;
    double loss_bound;
    uint32_t adjust_bound;
    uint64_t seed;
    struct dorm_work work;
    bool failed; /* out of memory */
};

/* ---- dorm_problem.c */

/* The jobs that can ever run, with their limits. -ENOMEM, or 0. */
int dorm_problem_init(struct dorm_problem *p, const struct part_cluster *c,
                      const struct part_job *jobs, size_t n, const struct part_options *o,
                      struct part_decision *out);
/* The running jobs and `queued` others take part: set n and the ideal counts. 0 or -ENOMEM. */
int dorm_problem_admit(struct dorm_problem *p, uint32_t queued);
/* The loss if all running jobs keep their containers, and the others get none. */
double dorm_loss_now(const struct dorm_problem *p);
/* Memory of the decision. NULL sets failed. */
void *dorm_alloc(struct dorm_problem *p, size_t n, size_t size);

void dorm_work_ask(struct dorm_work *w);
static inline bool dorm_work(struct dorm_work *w, uint64_t steps)
{
    w->steps += steps;
    if (w->steps >= w->ask_at)
        dorm_work_ask(w);
    return !w->over;
}

/* A small problem is searched until its bound is reached. */
static inline bool dorm_is_small(const struct dorm_problem *p)
{
    return (size_t)p->n * p->n_nodes <= 4096;
}

/* A large problem has limits of steps of its own. They are in steps for 1,000 nodes. */
static inline bool dorm_is_large(const struct dorm_problem *p)
{
    return (size_t)p->n_all * p->n_nodes >= 5000;
}

/* The factor of the steps for 1,000 nodes. */
static inline uint64_t dorm_times_of(const struct dorm_problem *p)
{
    return MIN(MAX(p->n_nodes / 1000, 1u), 10u);
}

/* In a large problem: the steps up to this number of them in all, less those that are used. */
static inline uint64_t dorm_steps_until(const struct dorm_problem *p, uint64_t end)
{
    return end * dorm_times_of(p) - MIN(end * dorm_times_of(p), p->work.steps);
}

/* May any running job be adjusted? */
static inline bool dorm_counted_may_change(const struct dorm_problem *p)
{
    for (uint32_t i = 0; i < p->n_running && p->adjust_bound > 0; i++)
        if (p->jobs[i].kind == DORM_COUNTED)
            return true;
    return false;
}

/* The largest loss that is allowed. All comparisons with B, and all upper bounds of the
 * utilization, use it: with B itself, a bound could be below an allowed division whose loss has a
 * rounding error.
 */
static inline double dorm_loss_limit(const struct dorm_problem *p)
{
    return p->loss_bound + DORM_LOSS_EPS;
}

/* The loss of fairness of a job with n containers. */
static inline double dorm_loss_of(const struct dorm_job *job, double n)
{
    return job->D * fabs(n - job->ideal);
}

/* What that loss costs at the price mu. */
static inline double dorm_loss_cost(const struct dorm_job *job, double n, double mu)
{
    return mu * job->D * fabs(n - job->ideal);
}

/* The largest number that divides both, which are at least 0. If one is 0, the other. */
static inline int64_t dorm_common_divisor(int64_t a, int64_t b)
{
    while (b > 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Loops over floats and doubles run faster with vectors of 32 bytes. The results are the same. */
#ifdef __x86_64__
#define DORM_WIDE __attribute__((target("avx2")))
static inline bool dorm_is_wide(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
#define DORM_WIDE
static inline bool dorm_is_wide(void)
{
    return false;
}
#endif

static inline uint32_t dorm_fit(const int64_t *have, const int64_t *d, uint32_t m)
{
    int64_t n = PART_CONTAINERS_MAX;
    for (uint32_t k = 0; k < m; k++) {
        if (d[k] <= 0 || have[k] >= d[k] * n)
            continue;
        if (have[k] < d[k])
            return 0;
        /* A division of 32 bits is several times as fast. */
        bool narrow = (have[k] | d[k]) >> 32 == 0;
        n = narrow ? (int64_t)((uint32_t)have[k] / (uint32_t)d[k]) : have[k] / d[k];
    }
    return (uint32_t)n;
}

static inline bool dorm_fits(const int64_t *have, const int64_t *d, uint32_t m)
{
    for (uint32_t k = 0; k < m; k++)
        if (have[k] < d[k])
            return false;
    return true;
}

static inline uint64_t dorm_random(uint64_t *seed)
{
    uint64_t x = *seed += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline uint32_t dorm_below(uint64_t *seed, uint32_t n)
{
    return (uint32_t)((dorm_random(seed) >> 32) * n >> 32);
}

static inline double dorm_uniform(uint64_t *seed)
{
    return (double)(dorm_random(seed) >> 11) * 0x1p-53;
}

/* ---- dorm_class.c */

/* Set class_of, classes and kinds. Needs the nodes and the bounds. 0 or -ENOMEM. */
int dorm_classify(struct dorm_problem *p, const struct part_job *jobs, size_t n);

/* ---- dorm_order.c */

/* Set m and type. 0 or -ENOMEM. */
int dorm_order_types(struct dorm_problem *p, const struct part_job *jobs, size_t n);
/* Set node_of and place_of. Needs the types. 0 or -ENOMEM. */
int dorm_order_nodes(struct dorm_problem *p, const struct part_job *jobs, size_t n);
/* The places of the job's containers, by our numbers of the nodes. NULL sets failed. */
const struct part_place *dorm_order_places(struct dorm_problem *p, const struct part_job *job);

/* ---- dorm_reach.c */

/* Set reach[k]: no set of containers with these demands that fits into the room uses more of type
 * k. scratch: memory for n pointers. */
void dorm_reach(const int64_t *const *demands, uint32_t n, const int64_t **scratch,
                const int64_t *room, uint32_t m, int64_t *reach);
int dorm_waste_init(struct dorm_problem *p); /* 0 or -ENOMEM */
/* Find the waste of each node for the jobs that take part now. All of it is subtracted at first. */
void dorm_waste_find(struct dorm_problem *p);
/* Set lost and freed for the part of the waste that is subtracted now. */
void dorm_waste_sum(struct dorm_problem *p);
/* Change the part of each node's waste that is subtracted, by at most `step` times the jobs there:
 * up where no job changes, down where several change. Then as dorm_waste_sum(). changes: of each
 * job.
 */
void dorm_waste_step(struct dorm_problem *p, const bool *changes, double step);

/* ---- dorm_bound.c */

struct dorm_prices {
    /* [class][m]: the price of the cluster's whole capacity of a type, at the prices of the
     * class */
    double *node;
    double loss;
    double enough; /* input: stop when the bound is below this */
    /* Input: NULL, or the jobs that change beside the loose ones. The bound then holds for
     * allocations that change only these. */
    const bool *picked;
    const struct dorm_prices *from; /* input: the prices to start with; NULL: standard prices */
    bool waste; /* input: lower the capacity by the waste of the nodes (dorm_reach.c) */
    bool quick; /* input: leave dorm_prices_lower() out */
    /* Input: NULL, or [job][class]: the containers that fit beside the jobs that do not change. */
    const uint32_t *fit;
    /* The prices of containers (by demand) and of loss from dorm_whole_prices(). NULL: none. */
    const double *pi;
    double pi_loss;
    double rounding;           /* at least the rounding error of the bound for node and loss */
    double *least, least_loss; /* the prices (as node and loss) that gave the bound */
    double upper;              /* no feasible allocation has more utilization */
    bool impossible;           /* proved: there is no feasible allocation at all */
    double *want;              /* [job][class]: containers in the mean of the rounds */
    double *gain;              /* of each job: the value of changing it, in the same mean */
    double *freed;             /* the part of it that is waste of the job's nodes (dorm_reach.c) */
    struct dorm_bound_memory *memory;
    struct whole *whole; /* internal to dorm_whole.c */
};

int dorm_prices_init(struct dorm_problem *p, struct dorm_prices *prices);
void dorm_prices_find(struct dorm_problem *p, struct dorm_prices *prices, unsigned rounds);
/* In a large problem: lower `upper` further, for the same jobs. */
void dorm_prices_lower(struct dorm_problem *p, struct dorm_prices *prices, unsigned rounds);
/* The bound for the best prices if no counted job changes; gain: of each job, how much the bound
 * grows at most if it changes. */
double dorm_prices_values(struct dorm_problem *p, struct dorm_prices *prices, double *gain);

/* The q-th largest of v[0..n), 1 <= q <= n; the order of v changes. */
double dorm_select_largest(double *v, size_t n, size_t q);

/* ---- dorm_state.c */

struct dorm_entry {
    uint32_t job, node;
    uint32_t n, was;
    uint32_t of_node, back_node; /* the next and the previous entry of the node */
    uint32_t of_pair;            /* the next entry with this hash of job and node */
    uint32_t of_job, back_job;   /* the next and the previous entry of the job */
};

struct dorm_group {
    int64_t free[PART_TYPES_MAX];
    uint32_t class;
    uint32_t head, size; /* the nodes */
    uint32_t pos;        /* in the list of its class */
    uint32_t chain;      /* the next with this hash */
};

struct dorm_change {
    uint32_t job, node;
    int32_t n;
};

/* One allocation, and its metrics. */
struct dorm_state {
    struct dorm_problem *p;
    struct dorm_entry *entries;
    uint32_t n_entries, room_entries, unused; /* unused: list of free ones by of_job */
    uint32_t *node_head, *job_head;
    uint32_t *pair_head, pair_mask; /* by hash of job and node */

    bool grouped; /* nodes with equal free amounts are one group; else each node is one */
    struct dorm_group *groups;
    uint32_t *group_of, *next_node, *prev_node;
    uint32_t unused_group, *hash, hash_mask;
    uint32_t *listed; /* [class]: a list of its groups, from listed_at[class] */
    uint32_t *listed_at, *n_listed;

    uint32_t *n;        /* of each job: containers */
    uint32_t *moved;    /* of each job: containers that appeared or vanished on a node */
    uint32_t *in_class; /* [job][class] */
    uint64_t lacking;   /* containers */
    double lack;        /* the same weighted by D */
    double loss, util;
    uint32_t adjusted;
    uint64_t changed;

    struct dorm_change *log;
    uint32_t n_log, room_log;
    uint64_t version; /* changes with each dorm_put() */
};

#define DORM_END UINT32_MAX

int dorm_state_init(struct dorm_problem *p, struct dorm_state *s);
/* Set the allocation in which all jobs keep their present containers. */
void dorm_state_keep(struct dorm_state *s);
/* Add n containers of the job on the node; n < 0 removes -n. The free amounts must suffice. */
void dorm_put(struct dorm_state *s, uint32_t job, uint32_t node, int32_t n);
/* Undo all changes since the log had n_log entries. */
void dorm_undo(struct dorm_state *s, uint32_t n_log);
static inline void dorm_forget(struct dorm_state *s)
{
    s->n_log = 0;
}
static inline const int64_t *dorm_free(const struct dorm_state *s, uint32_t node)
{
    return s->groups[s->group_of[node]].free;
}
uint32_t dorm_on(const struct dorm_state *s, uint32_t job, uint32_t node);
void dorm_take_all(struct dorm_state *s, uint32_t job);

/* The quality of an allocation. Smaller is better in each member except util. The first member that
 * differs decides. */
struct dorm_score {
    double bad; /* 0: all bounds are kept, and no job lacks a container for its min */
    double util;
    uint32_t adjusted;
    uint64_t changed;
};

struct dorm_score dorm_score(const struct dorm_state *s);
/* Returns a positive number if a is better. */
int dorm_compare(const struct dorm_score *a, const struct dorm_score *b);

/* A copy of the places of the jobs that changed. */
struct dorm_plan {
    struct dorm_score score;
    bool any;
    struct dorm_change *places;
    uint32_t n, room;
    uint64_t version; /* of the state that was copied */
};

void dorm_plan_save(struct dorm_plan *plan, const struct dorm_state *s);
void dorm_plan_load(const struct dorm_plan *plan, struct dorm_state *s);

/* ---- dorm_build.c */

/* How the next node for a container is chosen. */
struct dorm_style {
    bool home;     /* first the nodes on which the job has containers now */
    bool tight;    /* the node with the fewest free units of scarce types */
    bool worst;    /* the node whose free amounts are least like the demand, not most */
    bool anywhere; /* ignore the prices */
    double jitter; /* 0: none; 1: much */
    uint64_t salt;
};

/* A node with free resources, and their value. */
struct dorm_free_node {
    uint32_t node;
    double worth;
};

struct dorm_search {
    struct dorm_problem *p;
    struct dorm_prices prices;
    struct dorm_prices local; /* the prices if only the jobs that dorm_build() picked change */
    const struct dorm_prices *guide; /* of the two, the one by which containers are placed */
    uint32_t *fit_now;               /* [job][class]: for local */
    struct dorm_state state;
    struct dorm_plan best;
    struct dorm_style style;
    uint64_t seed;
    struct dorm_candidate *candidates; /* [node] */
    struct dorm_free_node *free_nodes; /* [node] */
    bool *picked;                      /* of each job: may it change? */
    bool *was_picked;                  /* the same before the last pick */
    double
        *cost; /* [job][class]: of one container at these prices, in hundredths of its u, rounded */
    uint32_t *order;
    double *key;
    /* Sets of counted jobs (bit i: job i) that could be adjusted, best bound first. dorm_exact()
     * fills them in if it cannot search all sets completely. */
    uint32_t sets[DORM_SETS_MAX];
    double set_bounds[DORM_SETS_MAX];
    uint32_t n_sets;
    uint64_t steps_left; /* for all steps after the first allocations */
    /* Only find out whether there is a feasible allocation: find prices in fewer rounds, from the
     * last ones, and build less. */
    bool quick;
};

/* Is s->best an allowed division: are all bounds and minima kept? */
static inline bool dorm_has_division(const struct dorm_search *s)
{
    return s->best.any && !(s->best.score.bad > 0);
}

int dorm_search_init(struct dorm_problem *p, struct dorm_search *s);
/* Place containers by these prices (s->prices or s->local) from now on. Call it again after a
 * change of the prices. */
void dorm_price_places(struct dorm_search *s, const struct dorm_prices *guide);
/* Place up to n more containers of the job. Returns how many were placed. */
uint32_t dorm_place(struct dorm_search *s, uint32_t job, uint32_t n);
/* The number of further containers that the bound on the loss and the job's max allow. */
uint32_t dorm_can_grow(const struct dorm_search *s, uint32_t job);
/* May the job change? Yes if it is loose or already adjusted, or if the bound allows one more
 * adjustment. */
bool dorm_may_change(const struct dorm_search *s, uint32_t job);
/* Bring the loss under its bound: shrink jobs above their ideal count, grow jobs below it. */
void dorm_repair(struct dorm_search *s);
/* Grow the jobs in this order as far as the bounds allow. */
void dorm_fill(struct dorm_search *s, const uint32_t *order, uint32_t n);
/* Build a new allocation in which only the picked jobs and the loose jobs change. */
void dorm_build(struct dorm_search *s);
/* Order s->order[0..n) by s->key[job], largest first. */
void dorm_sort(struct dorm_search *s, uint32_t n);

/* The end of dorm_build(): place missing minima, bring the loss under its bound, fill the room. */
void dorm_finish_build(struct dorm_search *s);

/* ---- dorm_patterns.c */

/* Build allocations from patterns, in which different running jobs change, and keep the best one.
 * prices.upper falls, too, if the programs prove a lower bound. more: steps for one set of
 * jobs, even if `steps` are over, while the best division so far is poor. */
void dorm_from_patterns(struct dorm_search *s, uint64_t steps, uint64_t more);

/* ---- dorm_whole.c */

/* Set prices->pi and pi_loss so that the bound from whole containers is low. */
void dorm_whole_prices(struct dorm_problem *p, struct dorm_prices *prices, uint64_t steps);
/* The table of rooms that the functions of dorm_whole.c have made for these jobs. NULL: none. */
struct dorm_rooms;
struct dorm_rooms *dorm_whole_rooms(const struct dorm_problem *p, const struct dorm_prices *prices);
/* Lower prices->upper to the bound for these prices of containers (by demand) and of loss.
 * The search ends when the bound is at most `enough`, or after about `steps` steps. */
void dorm_whole_bound(struct dorm_problem *p, struct dorm_prices *prices, const double *pi,
                      double mu, double enough, uint64_t steps);

/* ---- dorm_search.c */

/* Find prices for the jobs that take part. */
void dorm_search_prices(struct dorm_search *s);
/* After a quick search, which is the only one so far: the bound that it left out. */
void dorm_search_bound(struct dorm_search *s);
/* Find prices, and first allocations for the jobs that take part; the best one is s->best. False:
 * none of them is feasible. */
bool dorm_search_start(struct dorm_search *s);
/* Improve s->best. */
void dorm_search_more(struct dorm_search *s, uint64_t steps, bool until_feasible);
/* Reduce the numbers of adjusted jobs and moved containers at equal utilization, where that is
 * easy. */
void dorm_polish(struct dorm_search *s, uint64_t steps);

/* ---- dorm_refill.c */

/* Improve s->state node by node. If only the bound on the loss is broken, bring the loss down. */
void dorm_refill(struct dorm_search *s, uint64_t steps);

/* ---- dorm_exact.c */

enum dorm_proof {
    DORM_UNKNOWN,   /* the problem is too large, or there were too few steps */
    DORM_BEST_USE,  /* no allocation has more utilization than s->best */
    DORM_BEST,      /* no allocation is better than s->best */
    DORM_IMPOSSIBLE /* there is no feasible allocation */
};

/* Improve s->best until no allocation is better. */
enum dorm_proof dorm_exact(struct dorm_search *s, uint64_t steps);

/* ---- dorm_admit.c */

struct dorm_admitted {
    uint32_t n;       /* jobs of the queue */
    uint32_t longest; /* a longer prefix of the queue needs more adjustments than the bound allows,
                       * or does not fit at all */
    bool possible;    /* false: no allocation was found even for the running jobs alone */
    bool proved;      /* no longer prefix is possible; if not possible: no prefix at all */
};

/* Find the longest prefix of the queue that can be admitted. These jobs take part then, s->best is
 * an allocation for them, and s->prices are their prices. */
struct dorm_admitted dorm_admit(struct dorm_search *s, const struct part_solver *solver);

/* ---- dorm_solve.c */

/* Let a solver improve s->best until no allocation is better. Also lowers prices.upper. */
enum dorm_proof dorm_solve(struct dorm_search *s, const struct part_solver *solver);

/* ---- dorm_why.c */

/* Set because and other of all jobs that take part, and of the queue behind them. longest: a longer
 * prefix of the queue needs more adjustments than the bound allows, or does not fit at all. */
void dorm_why(struct dorm_search *s, uint32_t admitted, uint32_t longest,
              const struct part_job *jobs, struct part_decision *out);

#endif
