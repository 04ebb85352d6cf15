/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces: a cluster, and the jobs that arrive at it, as text. docs/simulate.md has the format.
 *
 *   # resources vcores memory_mib gpus
 *   # nodes 15 12 131072 0
 *   # resize_s 180
 *   id,arrival_s,vcores,memory_mib,gpus,weight,min,max,static,duration_s,exponent
 *   j0000,0.000,2,8192,0,1,1,32,8,21600.000,1
 */
#ifndef TONY_SIMULATE_TRACE_H
#define TONY_SIMULATE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "codec/arena.h"
#include "partition/partition.h"

struct err;

enum { TRACE_JOBS_MAX = 1000000, TRACE_LEVELS_MAX = 16 };

struct trace_job {
    const char *id;
    double arrival_s; /* no earlier than that of the job before */
    struct part_amount demand;
    uint32_t weight, min, max, fixed;
    double duration_s; /* run time with `fixed` containers; > 0 */
    double exponent;   /* n containers do n^exponent of work in a second */
};

struct trace {
    struct part_cluster cluster;
    double resize_s;   /* a job that is changed makes no progress for this time */
    double interval_s; /* between two decisions */
    double repack;     /* not 0: drf and market move containers if a job does not fit otherwise */
    double payback_s;  /* a resize must gain its cost within this time; 0: costs do not count */
    double horizon_s;  /* the metrics over time end here */
    double theta1, theta2;
    double levels[TRACE_LEVELS_MAX]; /* of las */
    uint32_t n_levels;
    struct trace_job *jobs;
    size_t n_jobs;
    struct arena arena; /* owns all of the above */
};

/* Read a trace. `what` names the text in errors: "<what>:<line>: ...". The caller zeroes *out, and
 * ends it with trace_done(), after a failure too. 0, -EINVAL, -ENOMEM. */
int trace_parse(const char *what, struct span text, struct trace *out, struct err *e);

/* Replace the nodes by those of a list like "15x12,131072,0 5x12,131072,1": for each group the
 * count, and the capacity in each type. Errors name the list "--nodes". 0, -EINVAL, -ENOMEM. */
int trace_set_nodes(struct trace *t, struct span list, struct err *e);

/* Append the trace as text. The result of the last append. */
int trace_write(const struct trace *t, struct buf *out);

void trace_done(struct trace *t);

#endif
