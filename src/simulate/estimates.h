/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How good are the estimates of starts (partition/estimate.h)? At the arrival of a job that has to
 * wait, its start is estimated; later the simulation tells the true start.
 *
 * The estimate does not get the true run times. Each job has a factor, drawn from a log-normal
 * distribution with median 1 and sigma ESTIMATE_SIGMA: its likely time is the true one times this
 * factor, the shortest is half of that, and the longest is twice that.
 */
#ifndef TONY_SIMULATE_ESTIMATES_H
#define TONY_SIMULATE_ESTIMATES_H

#include <stddef.h>
#include <stdint.h>

#include "partition/partition.h"

enum {
    ESTIMATES_MAX = 200, /* samples of one simulation */
    /* Decisions of one run of the policy; fewer for a policy that resizes, since they take longer.
     */
    ESTIMATE_DECISIONS = 3000,
    ESTIMATE_DECISIONS_RESIZING = 60,
};

#define ESTIMATE_SIGMA 0.3

struct estimate_sample {
    uint32_t job;
    double at_s;              /* of the arrival */
    double low, likely, high; /* from then on, in seconds; INFINITY = unknown */
};

struct estimates {
    uint64_t seed;
    struct estimate_sample v[ESTIMATES_MAX];
    size_t n;
};

struct estimates_result {
    size_t n;              /* samples */
    size_t n_open;         /* of these, without a likely start: the decisions did not suffice */
    double error_s;        /* median of the difference between likely and true start */
    double wait_s;         /* median of the true waits, for comparison */
    double within_percent; /* of all samples, how often the truth was within the range */
};

/* The factor of a job. */
double estimate_factor(uint64_t seed, uint32_t job);

/* Estimate the start of jobs[which], the job number job_of[which] of the trace, and keep it.
 * left_s: the true run time from now on of each job. interval_s: as in struct part_horizon. 0, or
 * the errors of part_estimate(). */
int estimates_take(struct estimates *x, const struct part_policy *policy,
                   const struct part_cluster *c, const struct part_job *jobs,
                   const uint32_t *job_of, const double *left_s, size_t n,
                   const struct part_options *o, uint32_t which, double interval_s, double now_s);

/* began_s: the true start of each job of the trace. */
void estimates_conclude(const struct estimates *x, const double *began_s,
                        struct estimates_result *out);

#endif
