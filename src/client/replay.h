/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a trace for `tony simulate` from the finished jobs of this TONY_HOME. */
#ifndef TONY_CLIENT_REPLAY_H
#define TONY_CLIENT_REPLAY_H

#include "simulate/real.h"
#include "simulate/trace.h"

struct err;
struct paths;

struct replayed {
    struct real real; /* its arrays are owned by the trace */
    size_t left_out;  /* jobs that never ran, and jobs whose files cannot be read */
};

/*
 * The types are memory_mib and gpus, as the pool divides them. The cluster is one node: what
 * the pool gives to jobs by the site's settings, or what trace_set_nodes() makes of it afterwards. An elastic job (job_spec_elastic())
 * has a container for each instance of its elastic role, with its part of the other roles, rounded
 * up. Every other job has one container with all it needs, and keeps its size.
 *
 * The journal of an elastic job says how many containers it held. From this follows the work that
 * the job did, and from the work its run time with the fixed number of containers. If the journal
 * does not have the beginning of the job any more, the job counts as never resized.
 *
 * The caller zeroes *out, and ends it with trace_done(), after a failure too. 0, -ENOENT: there is
 * no finished job; another -errno.
 */
int replay_load(const struct paths *p, struct trace *out, struct replayed *r, struct err *e);

#endif
