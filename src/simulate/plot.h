/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Charts of simulations as one SVG page: utilization over time and the distribution of completion
 * times with one line for each policy, and for each policy when the first PLOT_JOBS jobs of the
 * trace held containers (the darker, the more of their largest number).
 *
 *     struct plot *p = plot_new(&trace);
 *     plot_policy(p, "fifo");        then sim_run() with plot_events(p) as events; for each policy
 *     plot_write(p, &out);
 *     plot_free(p);
 */
#ifndef TONY_SIMULATE_PLOT_H
#define TONY_SIMULATE_PLOT_H

#include "base/buf.h"
#include "simulate/simulate.h"

enum { PLOT_JOBS = 60, PLOT_POLICIES_MAX = 16 };

struct plot;

struct plot *plot_new(const struct trace *t); /* borrows t; NULL: ENOMEM */
void plot_free(struct plot *p);

/* The next simulation is of this policy. The name is borrowed. */
void plot_policy(struct plot *p, const char *name);
const struct sim_events *plot_events(struct plot *p);

/* Append the page. 0 or -ENOMEM, also if there was no memory for an event. */
int plot_write(struct plot *p, struct buf *out);

#endif
