/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions and types that the policies share. Private to src/partition.
 *
 * decide.c      the table of policies; checks the inputs; computes the metrics; the sentences
 * place.c       memory of a decision, free amounts, first fit
 * counts.c      finds places for wanted numbers of containers
 * repack.c      moves containers if a job would have to wait because of their places
 * drf.c         weighted dominant resource fairness: the ideal counts, and the policy `drf`
 * queue.c       the policies static, fifo and backfill
 * priority.c    the policies las and srtf
 * elastic.c     the policies srtf-elastic and las-elastic
 * market.c      the fixed-budget market, and the policy `market`
 * dorm*.c       the policy `dorm` (dorm.h)
 * worth.c       drops resizes that cost more than they gain
 * estimate.c    estimates when the waiting jobs will start (estimate.h)
 * instance.c    reads an instance and writes the answer, both as JSON (instance.h)
 * claim.c       translates between jobs of a pool or a queue and jobs of the policies (claim.h)
 * solver_wire.c an integer program as bytes, for a solver in another process (solver_wire.h)
 */
#ifndef TONY_PARTITION_PART_INT_H
#define TONY_PARTITION_PART_INT_H

#include "base/util.h"
#include "partition/partition.h"

typedef int part_decide_fn(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                           const struct part_options *o, struct part_decision *out);

part_decide_fn static_decide, fifo_decide, drf_decide, dorm_decide, market_decide, las_decide,
    srtf_decide, srtf_elastic_decide, las_elastic_decide;

/* ---- memory ---- */

/* Start a decision: out->jobs gets n_jobs entries, not set. The memory of the earlier decision is
 * reused. Only part_decide() calls it. 0 or -ENOMEM. */
int part_begin(struct part_decision *out, size_t n_jobs);

/* Memory that lives until the next decision with *out, not zeroed; NULL: ENOMEM. */
void *part_alloc(struct part_decision *out, size_t size);

/* ---- amounts; the shortest are inline, since all policies spend most of their time there ---- */

/* The containers that fit on a node with these free amounts; <= PART_CONTAINERS_MAX. */
static inline uint32_t part_fit(const struct part_amount *free, const struct part_amount *demand,
                                uint32_t n_types)
{
    int64_t fit = PART_CONTAINERS_MAX;
    /* Nodes with too little are the usual case: they are recognized without a division. */
    for (uint32_t k = 0; k < n_types; k++)
        if (demand->v[k] > free->v[k] && demand->v[k] > 0)
            return 0;
    for (uint32_t k = 0; k < n_types; k++)
        if (demand->v[k] > 0)
            fit = MIN(fit, free->v[k] / demand->v[k]);
    return (uint32_t)fit;
}

static inline bool part_equal(const struct part_amount *a, const struct part_amount *b,
                              uint32_t n_types)
{
    for (uint32_t k = 0; k < n_types; k++)
        if (a->v[k] != b->v[k])
            return false;
    return true;
}

/* sign = -1: n containers are taken from *free; sign = 1: they are given back. */
static inline void part_take(struct part_amount *free, const struct part_amount *demand,
                             uint32_t n_types, int64_t n, int sign)
{
    for (uint32_t k = 0; k < n_types; k++)
        free->v[k] += sign * n * demand->v[k];
}

/* The free amounts of all nodes: the capacity less what the running jobs hold. From part_alloc().
 */
struct part_amount *part_free_now(const struct part_cluster *c, const struct part_job *jobs,
                                  size_t n, struct part_decision *out);

/* The capacity of the whole cluster. */
void part_total(const struct part_cluster *c, struct part_amount *total);

/* The dominant share of one container. total: part_total(). */
double part_share_of_one(const struct part_amount *demand, const struct part_amount *total,
                         uint32_t n_types);

/* For qsort(): struct part_place by rising node. */
int part_by_node(const void *a, const void *b);
/* The containers that a job has now. */
uint32_t part_count(const struct part_job *job);
/* las, las-elastic: the number of thresholds that the job's attained service has reached. */
uint32_t part_level(const struct part_job *job, const struct part_options *o);

/* The jobs 0 .. n - 1 by rising key; among equal keys the earlier job first. From part_alloc();
 * NULL: ENOMEM. keys[i]: of job i, not a NaN. */
uint32_t *part_order(const double *keys, size_t n, struct part_decision *out);

/* The number of containers that policies without resizes give to the job. */
uint32_t part_fixed(const struct part_job *job);

/* ---- classes of nodes: what fits into the empty cluster ---- */

enum { PART_CLASSES_MAX = 32 };

struct part_classes {
    const struct part_cluster *c;
    const struct part_amount *capacity[PART_CLASSES_MAX];
    uint32_t count[PART_CLASSES_MAX]; /* nodes of this capacity */
    uint32_t n;
    uint32_t rest; /* from this node on, nodes are in no class: there are too many capacities */
};

void part_classes(const struct part_cluster *c, struct part_classes *out);

/* The containers that fit into the empty cluster, at most `most`. */
uint32_t part_classes_fit(const struct part_classes *cl, const struct part_amount *demand,
                          uint32_t most);

/* ---- first fit: by node index, as many on each node as fit ---- */

/* The free amounts of the nodes, with bounds that reject most demands, or most nodes, at once: the
 * largest free amounts of all nodes, and of each block of nodes. They may be larger than the exact
 * amounts, and become exact after a search without a result. */
enum { PART_ROOM_BLOCK = 32 };

struct part_room {
    const struct part_cluster *c;
    struct part_decision *out;
    struct part_amount *free; /* of each node; change it only by take and return */
    struct part_amount total; /* the sum of free */
    struct part_amount largest;
    struct part_amount *blocks;
    uint32_t n_blocks;
    struct part_place *got; /* the result of part_room_find() */
    uint32_t n_got;
};

/* 0 or -ENOMEM. free: borrowed. */
int part_room_init(struct part_room *r, const struct part_cluster *c, struct part_amount *free,
                   struct part_decision *out);

/* false: n containers certainly do not fit. Takes the time of a few comparisons. */
bool part_room_for(const struct part_room *r, const struct part_amount *demand, uint32_t n);

/* Look for places for n containers. They are in r->got, and nothing is taken. Returns how many
 * containers they hold: n, or less when no more fit. */
uint32_t part_room_find(struct part_room *r, const struct part_amount *demand, uint32_t n);

void part_room_take(struct part_room *r, const struct part_amount *demand,
                    const struct part_place *at, uint32_t n_at);
void part_room_return(struct part_room *r, const struct part_amount *demand,
                      const struct part_place *at, uint32_t n_at);

/* Do the containers at these places fit? */
bool part_room_has(const struct part_room *r, const struct part_amount *demand,
                   const struct part_place *at, uint32_t n_at);

/* The places `at` and r->got together, in the order of the nodes. From part_alloc(); NULL: ENOMEM.
 */
const struct part_place *part_room_places(struct part_room *r, const struct part_place *at,
                                          uint32_t n_at, uint32_t *n_out);

/* ---- the result ---- */

/* A policy may set `ideal` of jobs itself. For jobs that it leaves at this value, part_decide()
 * computes them: over the jobs that have containers after the decision, those that ran before it
 * first; 0 for the others. */
#define PART_IDEAL_UNSET UINT32_MAX

/* Give job i these places, which must be in the order of the nodes and live as long as the decision
 * (part_alloc(), or the job's own `at`). Sets n, at, n_at and, by comparison with what the job has,
 * verdict; the caller sets because and other. */
void part_give(struct part_decision *out, const struct part_job *jobs, size_t i,
               const struct part_place *at, uint32_t n_at);

/* Let job i keep its containers, if it has any. */
void part_keep(struct part_decision *out, const struct part_job *jobs, size_t i,
               enum part_because because);

/* Set because and other. For PART_BECAUSE_FULL, `other` may be PART_NOBODY: part_decide() then
 * looks for the job itself. */
void part_say(struct part_decision *out, size_t i, enum part_because because, uint32_t other);

/* Give each job the wanted count: jobs shrink first, from their highest node down; then, in the
 * order of the jobs, they grow or start by first fit. A job that does not get even its min gives
 * back all containers. Sets all of out->jobs; `because` is the reason for jobs that get the wanted
 * count. 0 or -ENOMEM. */
int part_apply(const struct part_cluster *c, const struct part_job *jobs, size_t n,
               const uint32_t *caps, const uint32_t *want, enum part_because because,
               struct part_decision *out);

/* After part_apply() with the same counts: if a job has got no containers although it should run,
 * look for other places of all containers (repack.c). Jobs that have containers keep at least their
 * min. 0 or -ENOMEM. */
int part_repack(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                const uint32_t *caps, const uint32_t *want, struct part_decision *out);
/* Is a job still without containers although it should run? Sets possible to 0 for each such job,
 * and to its cap for the others. */
bool part_leaves_out(const struct part_job *jobs, size_t n, const uint32_t *caps,
                     const uint32_t *want, struct part_decision *out, uint32_t *possible);

/* Set want: a number of containers for each job, at most its cap. 0: the cap is below its min. 0 or
 * -ENOMEM. */
typedef int part_count_fn(void *ctx, const uint32_t *caps, uint32_t *want);

/* Give each job the number that `count` says, as part_apply() does. If a job has got no containers
 * although it should run:
 * 1. with `repack`, look for other places of all containers (part_repack());
 * 2. with `divide_again`, let `count` divide the cluster as if that job did not exist, so that the
 *    others do not shrink for it. But if fewer jobs run then, because larger numbers are harder to
 *    place, the division of before stays.
 * 0 or -ENOMEM. */
int part_give_counts(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                     const uint32_t *caps, part_count_fn *count, void *ctx,
                     enum part_because because, bool repack, bool divide_again,
                     struct part_decision *out);

/* Set the answer for job i, which can never run. */
void part_never(struct part_decision *out, const struct part_job *jobs, size_t i);

#endif
