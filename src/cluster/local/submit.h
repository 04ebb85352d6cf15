/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the files of a checked job into the store, and submits the job to the pool. */
#ifndef TONY_CLUSTER_LOCAL_SUBMIT_H
#define TONY_CLUSTER_LOCAL_SUBMIT_H

#include <stdbool.h>

#include "storage/paths.h"

struct buf;
struct client;
struct client_job;
struct conn;
struct err;

/* The text of job.conf. */
int submit_encode(struct client *c, struct client_job *j, struct buf *out, struct err *e);
/* Block INT, TERM and HUP until follow_job() or yarn_follow() handles them. */
void submit_hold_signals(void);

/* owned: the caller will follow the job as its owner. Then INT, TERM and HUP are blocked before the
 * pool can have the job, so that follow_job() handles each of them. *out_pool: the connection,
 * which the caller closes. Returns 0, or minus the exit code. */
int submit_job(struct client *c, struct client_job *j, bool owned, char out_id[APP_ID_MAX],
               struct conn **out_pool, struct err *e);

#endif
