/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the errors of estimated starts (partition/estimate.h). When a job arrives and has to
 * wait, its start is estimated; later the simulation gives the true start.
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
    double at_s;              /* time of the arrival */
    double low, likely, high; /* seconds from the arrival to the start; INFINITY = unknown */
};

struct estimates {
    uint64_t seed;
    struct estimate_sample v[ESTIMATES_MAX];
    size_t n;
};

struct estimates_result {
    size_t n; /* samples */
    /* samples without a likely start: it was not reached within ESTIMATE_DECISIONS */
    size_t n_open;
    double error_s;        /* median of the difference between likely and true start */
    double wait_s;         /* median of the true waits, for comparison */
    double within_percent; /* how many of all samples had the true start within their range */
};

/* The factor between the likely and the true run time of a job. */
double estimate_factor(uint64_t seed, uint32_t job);

/* Estimate the start of jobs[which], which is job job_of[which] of the trace, and store the
 * estimate as a sample. left_s: the true run time from now on of each job. interval_s: as in struct
 * part_horizon. 0, or the errors of part_estimate(). */
int estimates_take(struct estimates *x, const struct part_policy *policy,
                   const struct part_cluster *c, const struct part_job *jobs,
                   const uint32_t *job_of, const double *left_s, size_t n,
                   const struct part_options *o, uint32_t which, double interval_s, double now_s);

/* began_s: the true start of each job of the trace. */
void estimates_conclude(const struct estimates *x, const double *began_s,
                        struct estimates_result *out);

#endif
