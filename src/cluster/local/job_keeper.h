/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts the pool for orphaned jobs.
 *
 * A live job needs its keeper. While it has no keeper, it needs the pool, which starts one. If both
 * were killed, the job does not continue until a pool runs. So each command that finds such a job
 * starts the pool.
 */
#ifndef TONY_CLUSTER_LOCAL_JOB_KEEPER_H
#define TONY_CLUSTER_LOCAL_JOB_KEEPER_H

#include <stdbool.h>

struct cluster_host;

/* id: a job in jobs/. If neither its keeper nor a pool runs, start the pool. An error is ignored:
 * the next command tries again. false: the keeper runs. */
bool start_pool_if_orphaned(struct cluster_host *h, const char *id);
/* The job has a verdict: wait a short time until its directory is in history/. If its keeper dies
 * before, start the pool as above. */
void await_job_in_history(struct cluster_host *h, const char *id);

#endif
