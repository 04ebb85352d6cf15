/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulates what a policy would do with the jobs of a trace: a simulation of events, without a
 * clock and without processes.
 *
 * The events are the end of a job, the arrival of a job, a postponed decision, and (las) a level of
 * attained service that a job reaches. At one instant jobs end first, then others arrive, then the
 * policy decides once. Two decisions are at least interval_s apart: a decision that would come
 * earlier is postponed.
 *
 * A start takes no time. A job whose places change, or that starts again after it was stopped,
 * makes no progress for resize_s, while it holds its containers. The policy does not know that time
 * in advance: with payback_s it uses the time from the first adjustment on.
 */
#ifndef TONY_SIMULATE_SIMULATE_H
#define TONY_SIMULATE_SIMULATE_H

#include "partition/partition.h"
#include "simulate/estimates.h"
#include "simulate/trace.h"

struct err;

/* Of one time of each job. */
struct sim_times {
    double mean_s, median_s;
    double p95_s; /* the 95th percentile, by the nearest rank, as the median */
};

struct sim_result {
    double util_5h;       /* mean utilization in the first 5 hours: 0 .. number of types */
    double util;          /* ... until horizon_s */
    struct sim_times jct; /* job completion time: from arrival to end */
    /* the time in which a job has no containers, from its arrival to its end */
    struct sim_times wait;
    double loss;          /* of fairness, over all jobs present: mean of samples every 10 minutes */
    uint64_t adjustments; /* changes of running jobs; stopping one counts, too */
    double overhead_percent; /* part of the held container-seconds that were without progress */
    double lost_s;           /* these container-seconds */
    uint64_t decisions;
    double decide_s;  /* time of all decisions, if a clock was given */
    double longest_s; /* time of the longest decision */
    /* For a policy with an upper bound (dorm): the mean and the largest part of this bound by which
     * the utilization after a decision is below it. NAN: no decision had a bound. */
    double gap, gap_worst;
    /* jobs that can never run; the other members do not count them */
    size_t never;
    double end_s;                      /* end of the last job */
    struct estimates_result estimates; /* all 0 unless they were asked for */
};

/* Callbacks for charts. Each may be NULL. `job` is an index into the trace. */
struct sim_events {
    void (*used)(void *ctx, double at_s, double utilization);
    void (*held)(void *ctx, size_t job, double from_s, double to_s, uint32_t containers);
    void (*ended)(void *ctx, size_t job, double completion_s);
    void *ctx;
};

struct sim_options {
    struct part_limit limit;   /* of each decision */
    int64_t (*clock_us)(void); /* NULL: decisions are not timed */
    bool estimates;            /* compare estimated and true starts (estimates.h) */
    uint64_t estimates_seed;
    const struct sim_events *events; /* NULL: none */
    /* NULL: none. Else it improves each decision of `dorm` (partition/solver.h). */
    const struct part_solver *solver;
};

/* The mean, median and 95th percentile of n times. Sorts them. */
struct sim_times sim_times_of(double *times, size_t n);

/* Run all jobs to their end. 0; -EINVAL: the policy cannot run this trace; -ENOMEM. */
int sim_run(const struct trace *t, const struct part_policy *policy, const struct sim_options *o,
            struct sim_result *out, struct err *e);

#endif
