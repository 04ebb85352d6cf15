/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Charts of simulations as one SVG page. Two charts have one line for each policy: utilization over
 * time, and the distribution of completion times. Two more exist for each policy, of the first
 * PLOT_JOBS jobs of the trace: the partitions of the cluster over time, stacked, one colour for
 * each job; and when each job held containers (the darker, the more of its largest number).
 *
 *     struct plot *p = plot_new(&trace);
 *     plot_policy(p, "fifo");        then sim_run() with plot_events(p) as events; for each policy
 *     plot_write(p, PLOT_ALL, &out);
 *     plot_free(p);
 */
#ifndef TONY_SIMULATE_PLOT_H
#define TONY_SIMULATE_PLOT_H

#include "base/buf.h"
#include "simulate/simulate.h"

struct err;

enum { PLOT_JOBS = 60, PLOT_POLICIES_MAX = 32 };

/* The charts of a page, in its order. */
enum plot_chart {
    PLOT_UTILIZATION = 1,
    PLOT_COMPLETION = 2,
    PLOT_PARTITIONS = 4,
    PLOT_HELD = 8,
    PLOT_ALL = 15,
};

struct plot;

struct plot *plot_new(const struct trace *t); /* borrows t; NULL: ENOMEM */
void plot_free(struct plot *p);

/* Begin the lines of a policy: the events that follow are of its simulation. The name is
 * borrowed. */
void plot_policy(struct plot *p, const char *name);
const struct sim_events *plot_events(struct plot *p);

/* Read a list of charts like "utilization,partitions". -EINVAL: there is no chart of that name. */
int plot_charts(const char *list, unsigned *out, struct err *e);

/* Append the page with these charts. 0 or -ENOMEM, also if there was no memory for an event. */
int plot_write(struct plot *p, unsigned charts, struct buf *out);

#endif
