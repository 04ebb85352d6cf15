/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a checked job of the command line: the layers of configuration, the job spec, and the files
 * to ship. */
#ifndef TONY_CLIENT_JOB_JOBCONF_H
#define TONY_CLIENT_JOB_JOBCONF_H

#include "cluster/cluster.h"

struct client;
struct err;

/* Load and check the job, without writing anything. All errors except -ENOMEM are faults of the
 * user (EXIT_MISUSE). */
int client_job_load(struct client *c, struct cluster_job *out, struct err *e);
void client_job_done(struct cluster_job *j);

/* run.c */
/* Stage and submit a job. *out_k belongs to c, and uses the configuration of the job. 0, or minus
 * the exit code. */
int client_submit(struct client *c, struct cluster_job *j, bool owned, struct cluster **out_k,
                  struct cluster_submitted *out, struct err *e);
/* Wait for the end of a job, and print its result. Returns an exit code. */
int client_wait_one(struct client *c, struct cluster *k, const char *id);
/* wait.c: `tony wait` with several jobs, --any or --all. Returns an exit code. */
int client_wait_several(struct client *c);
/* `tony kill`: prints what happens. Returns an exit code. */
int client_kill(struct client *c, struct cluster *k, const char *id);

/* ship.c */
/* Fill items from the spec, and check that each source exists. */
int ship_collect(struct cluster_job *j, struct err *e);
void ship_remote_done(struct ship_remote *r);

#endif
