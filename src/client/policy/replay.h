/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a trace for `tony simulate` from finished jobs: those of this TONY_HOME, or those of the
 * user on a cluster. */
#ifndef TONY_CLIENT_POLICY_REPLAY_H
#define TONY_CLIENT_POLICY_REPLAY_H

#include "simulate/real.h"
#include "simulate/trace.h"

struct buf;
struct client;
struct err;
struct history_rows;

/* Where the finished jobs are. Each function returns 0 or -errno. */
struct replay_source {
    /* Append the jobs; live ones may be among them. */
    int (*list)(void *ctx, struct history_rows *out, struct err *e);
    /* Read a file of a finished job (docs/json.md, "The files of a finished job"). */
    int (*read)(void *ctx, const char *id, const char *name, struct buf *out, struct err *e);
    /* Set the nodes of the cluster, whose types are memory_mib and gpus. They belong to t->arena.
     */
    int (*nodes)(void *ctx, struct trace *t, struct err *e);
    void *ctx;
};

struct replayed {
    struct real real; /* its arrays are owned by the trace */
    size_t left_out;  /* jobs that never ran, and jobs whose files cannot be read */
};

/*
 * The types are memory_mib and gpus, as the pool divides them. The nodes are those of the source,
 * unless trace_set_nodes() replaces them afterwards. An elastic job (job_spec_elastic()) has a
 * container for each instance of its elastic role, with its part of the other roles, rounded up.
 * Every other job has one container with all it needs, and keeps its size.
 *
 * The journal of an elastic job says how many containers it held. tony computes the work of the job
 * from these numbers, and from the work the run time with a fixed number of containers. If the
 * journal has lost the beginning of the job, the job counts as never resized.
 *
 * The caller zeroes *out, and ends it with trace_done(), after a failure too. -ENOENT: there is no
 * finished job; -EIO: the cluster cannot be reached; another -errno.
 */
int replay_load(const struct replay_source *from, struct trace *out, struct replayed *r,
                struct err *e);
/* The same for the jobs of the wanted cluster, with the nodes that it has now. The pool of this
 * machine is one node, with the memory and GPUs that it gives to jobs. */
int replay_cluster(struct client *c, struct trace *out, struct replayed *r, struct err *e);

#endif
