/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Estimates when waiting jobs will start. Pure: no clock, no I/O.
 *
 * The run times are known only as ranges. So the policy is run forward in simulated time three
 * times: each job takes its shortest time, its likely time, and its longest time. After each end of
 * a job the policy decides, as the pool would. A job's start is early, likely and late in the three
 * runs; `early` is the smallest of the three times, and `late` the largest.
 *
 * - An unknown run time has low = 0 and high = INFINITY: the job may end at any moment, or never.
 *   So a job that must wait for its end has an early start ("not before") and no late one.
 * - No job is expected to arrive. With `static`, a later job overtakes only by its priority. With
 *   all other policies, later jobs may also take free resources. So there a job that does not start
 *   at once gets, as its late start, at least the one that `static` would give it.
 * - n containers do n times the work of one. While a job is resized, it does nothing for
 *   `resize_s`.
 * - The policy knows only the members of part_job, not the range of the run time: `ends_in_s` and
 *   `remaining_s` count down with the simulated time.
 * - With a policy by attained service, it also decides when a job reaches the next level.
 * - A run ends after `decisions` decisions. Jobs that have not started then start no earlier than
 *   the time that was reached, and their likely and late starts are unknown.
 *
 * Costs: four times `decisions` decisions.
 */
#ifndef TONY_PARTITION_ESTIMATE_H
#define TONY_PARTITION_ESTIMATE_H

#include <stddef.h>
#include <stdint.h>

#include "partition/partition.h"

struct err;

/* Seconds; 0 <= low <= high. likely is between the two, or INFINITY: unknown. high = INFINITY:
 * unknown. */
struct part_range {
    double low, likely, high;
};

/* The start of a job. For a running job all members are 0. */
struct part_start {
    struct part_range in_s; /* seconds from now */
    /* Containers at the likely start. If that is unknown: at the late one, else at the early one. 0:
     * all three are unknown. */
    uint32_t n;
    bool never;             /* the job does not fit even into the empty cluster */
};

/* The limits of a run. */
struct part_horizon {
    uint32_t decisions;
    uint32_t only;     /* stop when this job has started; PART_NOBODY: all jobs */
    double interval_s; /* least time between two decisions */
    double first_s;    /* the time until the first decision */
};

/*
 * left  of each job the run time from now on: of a running job with the containers that it has, of
 *       a waiting one from its start on, with its `fixed` number
 * out   n entries
 *
 * 0, or the errors of part_decide().
 */
int part_estimate(const struct part_policy *policy, const struct part_cluster *c,
                  const struct part_job *jobs, const struct part_range *left, size_t n,
                  const struct part_options *o, const struct part_horizon *until,
                  struct part_start *out, struct err *e);

#endif
