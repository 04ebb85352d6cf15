/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides a cluster among jobs: which job gets how many containers, and on which nodes.
 *
 * A policy is a pure function. Its inputs are the nodes, the jobs with their present containers,
 * and the options. It has no clock, does no I/O, and draws random numbers only from a seed in the
 * options. The same inputs give the same decision, unless `stop` in the options ends a search
 * earlier.
 *
 * The model, for all policies:
 * - An amount is one integer for each type of resource (cores, memory, GPUs, ...). A type of which
 *   the cluster has nothing does not count anywhere.
 * - All containers of a job are equal: `demand` is the need of one of them.
 * - A node is never given more than its capacity, in any type.
 * - A job that runs has between `min` and `max` containers. A job whose `min` cannot fit even into
 *   the empty cluster never runs. It is skipped, and no sum includes it.
 * - The share of a job in a type is the amount that it holds divided by the capacity of the
 *   cluster. Its dominant share is the largest of these. Its ideal share is the dominant share that
 *   weighted dominant resource fairness would give it (drf.h).
 *
 * The order of the jobs is their order of arrival. Where a policy prefers running jobs, it sorts
 * them before the others itself.
 *
 * The order of the nodes: `dorm` gives each job the same number of containers for any order. All
 * other policies fill the first nodes first, as traces demand it (docs/simulate.md). So the caller
 * chooses an order that does not change between two decisions: the arbiter sorts them by name. The
 * order of the types of resources has no influence on any policy.
 */
#ifndef TONY_PARTITION_PARTITION_H
#define TONY_PARTITION_PARTITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

enum {
    PART_TYPES_MAX = 8,
    PART_WEIGHT_MAX = 10000,
    PART_CONTAINERS_MAX = 1000000, /* of one job */
    PART_NODES_MAX = 100000,
    PART_JOBS_MAX = 200000,
    PART_WHY_MAX = 256, /* bytes of a sentence of part_why(), with its NUL */
};

#define PART_AMOUNT_MAX (INT64_C(1) << 40) /* of one type, on one node or in one container */
#define PART_TOTAL_MAX (INT64_C(1) << 53)  /* of one type, in the whole cluster */

struct part_amount {
    int64_t v[PART_TYPES_MAX]; /* types from n_types on are 0 */
};

struct part_cluster {
    uint32_t n_types;
    const char *const *types; /* their names, for sentences */
    uint32_t n_nodes;
    const struct part_amount *nodes; /* the capacity of each */
};

/* Containers of one job on one node. */
struct part_place {
    uint32_t node;
    uint32_t n; /* > 0 */
};

struct part_job {
    const char *id;            /* for sentences */
    struct part_amount demand; /* of one container; at least one type > 0 */
    uint32_t weight;           /* 1 .. PART_WEIGHT_MAX */
    uint32_t min, max;         /* containers; 1 <= min <= max */
    uint32_t fixed; /* containers, for policies that do not resize: min .. max, or 0: min */
    int priority;   /* static, fifo and backfill: higher first */

    /* The places of its containers now: each node once, in the order of the nodes. A job that runs
     * has n_at > 0, and then min <= containers <= max. */
    const struct part_place *at;
    uint32_t n_at;
    bool pinned; /* the job runs, and must not be changed */
    bool lost;   /* it runs, and lost containers with a node: it restarts anyway, so a change of it
                  * does not count as an adjustment */

    double remaining_s; /* run time left with `fixed` containers; INFINITY: unknown */
    double ends_in_s;   /* of a running job: when it ends if nothing changes; INFINITY: unknown */
    double attained_s;  /* las, las-elastic: the integral of its dominant share over time */
    double budget;      /* market: > 0; 0: its weight */

    /* For payback_s of the options. */
    /* Of a running job: if it is adjusted, its containers do nothing for this time. */
    double resize_s;
    double waited_s; /* of a waiting job: how long it has waited */
};

/* The limits of the search of `dorm`; the first one that is reached ends it. */
struct part_limit {
    uint64_t steps; /* elementary steps; 0: as many as the policy finds useful */
    /* called about every few microseconds of work; true ends the search; may be NULL */
    bool (*stop)(void *ctx);
    void *ctx;
};

struct part_options {
    /* dorm. The bound B on the loss of fairness is loss_max if that is >= 0, else
     * ceil(theta1 * 2 * number of types). The bound Q on the number of adjusted jobs is adjust_max
     * if that is >= 0, else ceil(theta2 * number of running jobs that are not lost). The letters
     * here and in struct part_metrics are those of docs/partition.md. */
    double theta1, theta2; /* 0 .. 1 */
    double loss_max;
    int64_t adjust_max;
    struct part_limit limit;
    uint64_t seed;
    const struct part_solver *solver; /* improves the answer of the search; NULL: none (solver.h) */

    const double *levels; /* las, las-elastic: thresholds of attained_s, rising */
    uint32_t n_levels;

    double reserve; /* market: the reserve price, >= 0 */

    /* Policies that resize: make no resize that costs more than it gains within this time
     * (worth.h). 0: ignore the costs. */
    double payback_s;
    /* A job that has to leave nodes so that another job can start is resized twice: it gives the
     * containers there back, and gets others when the other job runs (the arbiter). false: one
     * resize moves it. */
    bool move_in_two;

    /* drf, market, srtf-elastic, las-elastic: if the places of running jobs leave no node with room
     * for a container of a job that should start, move containers (repack.c). If that does not
     * help, drf divides the resources as if this job did not exist. false: the job waits until
     * other jobs end or shrink, and no job gets its share. */
    bool repack;

    /* For simulations, where the caller knows that its inputs are right and needs only `verdict`,
     * `n` and `at`. The inputs are not checked; `ideal`, `other` of PART_BECAUSE_FULL, and the
     * metrics are not computed, except those that only the policy knows. With a queue of thousands
     * of jobs these computations take longer than a decision by static or fifo. */
    bool quick;
};

/* theta1 = theta2 = 0.1, no absolute bounds, no limit, no levels, no payback_s. */
extern const struct part_options part_defaults;

/* The decision about a job. */
enum part_verdict {
    PART_WAITS,   /* it has no containers, and gets none */
    PART_NEVER,   /* its min does not fit into the empty cluster */
    PART_STARTS,  /* it had no containers */
    PART_KEEPS,   /* nothing changes */
    PART_CHANGES, /* it gets another number of containers, or other nodes */
    PART_STOPS,   /* it loses all its containers, and waits again */
};

/* The reason for the decision about a job. part_why() makes a sentence of it. */
enum part_because {
    PART_BECAUSE_ROOM, /* its containers fit */
    /* its least number does not fit: `other` holds most of the missing resource */
    PART_BECAUSE_FULL,
    PART_BECAUSE_BEHIND,   /* it waits behind `other`, and must not overtake it */
    PART_BECAUSE_RESERVED, /* it would take what `other` needs at its start */
    PART_BECAUSE_FAIR,     /* its fair share is this many containers */
    PART_BECAUSE_USE,      /* this use of the cluster is the best that was found */
    PART_BECAUSE_LOSS,     /* more would be too unfair: the bound on the loss of fairness */
    PART_BECAUSE_ADJUSTED, /* a change would adjust too many jobs: the bound on adjustments */
    PART_BECAUSE_PINNED,   /* it must not be changed */
    PART_BECAUSE_AT_MAX,   /* it has its largest number */
    PART_BECAUSE_LEVEL,    /* las, srtf and their elastic forms: `other` comes first */
    PART_BECAUSE_BID,      /* market: this is what its budget buys */
    PART_BECAUSE_TOO_BIG,  /* see PART_NEVER */
    PART_BECAUSE_FIXED,    /* this policy never resizes a job that runs */
    PART_BECAUSE_COST,     /* a resize would cost more than it gains */
    PART_BECAUSE_N
};

struct part_share {
    enum part_verdict verdict;
    enum part_because because;
    uint32_t other; /* index of a job; PART_NOBODY: none */
    uint32_t type;  /* with PART_BECAUSE_FULL: the type of resource of which it lacks most */
    uint32_t n;     /* containers */
    const struct part_place *at; /* n_at places in the order of the nodes; owned by the decision */
    uint32_t n_at;
    uint32_t ideal; /* containers by weighted dominant resource fairness (drf.h) */
    /* With PART_BECAUSE_COST: the cost and the gain of the change, in seconds of the work of all
     * containers that this job has, or would start with. */
    double cost_s, gain_s;
    bool gives; /* with PART_BECAUSE_COST: the change would have taken containers from it */
};

#define PART_NOBODY UINT32_MAX

struct part_metrics {
    double used[PART_TYPES_MAX]; /* amounts */
    double utilization; /* U: sum over the types of used / capacity: 0 .. number of types */
    double loss;        /* F, of fairness: sum over the jobs that run of |share - ideal share|, both
                         * dominant */
    uint32_t adjusted;  /* R: running jobs, not lost, whose places change */
    uint64_t changed;   /* M: containers that appear or vanish on a node, of running jobs */
    uint32_t admitted;  /* jobs that start */
    bool relaxed;       /* dorm: even without any change, the loss is above the bound; so the bound
                         * is that loss */
    double loss_bound;  /* dorm; else INFINITY */
    int64_t adjust_bound; /* dorm; else -1 */
    /* dorm: no allocation that admits as many has more utilization. NAN: another policy, or
     * payback_s lets a job wait that would have started, or the loss is above loss_bound because of
     * payback_s. */
    double upper_bound;
    bool proved; /* dorm: no allowed division is better: admits more, or with equal admitted
                  * jobs has more utilization, then fewer adjusted, then fewer changed */
    /* The time after which the same jobs should be decided on again, unless the input changes
     * before: jobs that wait because of payback_s may start then, or with las-elastic a job reaches
     * a threshold. Else INFINITY. */
    double again_s;
};

/* The caller zeroes it once and ends it with part_decision_done(). In between it may be used for
 * many decisions, which reuse its memory. */
struct part_decision {
    struct part_share *jobs; /* one for each job, in the order of the jobs */
    size_t n;
    struct part_metrics metrics;
    struct part_memory *memory; /* internal */
};

struct part_policy {
    const char *name;
    const char *text; /* one sentence for the help */
    bool resizes;     /* the policy may give running jobs another number of containers */
    /* The policy may take all containers from running jobs, in any order of the list. `drf` does so
     * too, but only if a waiting job is before a running one in the list: the waiting job may get
     * its min, so that no room is left for that of the running job. */
    bool preempts;
    bool by_service; /* attained_s counts */
    /* Fill in verdict, because, other, n, at and n_at. The metrics are computed from these, except
     * those that only the policy knows. 0 or -ENOMEM. */
    int (*decide)(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                  const struct part_options *o, struct part_decision *out);
};

/* static, fifo, backfill, drf, dorm, market, las, srtf, srtf-elastic, las-elastic; then one with
 * the name NULL. */
extern const struct part_policy part_policies[];

/* NULL: there is none of that name. */
const struct part_policy *part_policy_find(const char *name);

/*
 * Decide. 0; -EINVAL: an input is outside of the ranges above, or running jobs hold more than a
 * node has; -ENOMEM. `e` says which. On an error *out is empty, but must still be ended.
 */
int part_decide(const struct part_policy *policy, const struct part_cluster *c,
                const struct part_job *jobs, size_t n, const struct part_options *o,
                struct part_decision *out, struct err *e);

/* Write a sentence, without a full stop, about the decision for job i and its reason. jobs: the
 * same as in part_decide(). */
void part_why(const struct part_decision *d, const struct part_cluster *c,
              const struct part_job *jobs, size_t i, char out[PART_WHY_MAX]);

/* How far the utilization may be below the best possible one: 0 .. 1, a part of upper_bound; 0 also
 * if upper_bound is below the utilization. NAN: the policy has no upper bound. */
double part_gap(const struct part_metrics *m);

void part_decision_done(struct part_decision *d);

#endif
