/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of what really ran, to put beside those of simulations (simulate.h). */
#ifndef TONY_SIMULATE_REAL_H
#define TONY_SIMULATE_REAL_H

#include "simulate/simulate.h"

/*
 * Each job of the trace waited for waits_s[i] after its arrival, and then ran for its duration_s
 * with its fixed number of containers. Sets util_5h, util, jct_mean_s, jct_p95_s and end_s; the
 * other members become 0: a history does not tell them. 0 or -ENOMEM.
 */
int sim_real(const struct trace *t, const double *waits_s, struct sim_result *out);

#endif
