/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of the jobs as they really ran, for comparison with simulations (simulate.h). */
#ifndef TONY_SIMULATE_REAL_H
#define TONY_SIMULATE_REAL_H

#include "simulate/simulate.h"

/* A job of the trace held n containers for a while. Times are those of the trace. */
struct real_bar {
    size_t job;
    double from_s, to_s;
    uint32_t n;
};

struct real {
    struct real_bar *bars; /* those of each job by time */
    size_t n_bars;
    double *completion_s; /* of each job of the trace: from its arrival to its end */
    uint64_t adjustments; /* completed resizes */
};

/*
 * Sets util_5h, util, jct, wait, adjustments and end_s; the other members become 0,
 * because a history does not contain them. Calls `events` (may be NULL) as sim_run() does. 0 or
 * -ENOMEM.
 */
int sim_real(const struct trace *t, const struct real *real, const struct sim_events *events,
             struct sim_result *out);

#endif
