/* SPDX-License-Identifier: Apache-2.0 */
/* Submits a job to the pool. */
#ifndef TONY_CLUSTER_LOCAL_SUBMIT_H
#define TONY_CLUSTER_LOCAL_SUBMIT_H

#include "cluster/cluster.h"

struct conn;

/* owned: INT, TERM and HUP are blocked before the pool can have the job (signals_hold()).
 * *out_pool: the connection, which the caller closes; may be NULL. 0, or minus the exit code. */
int local_submit_text(struct cluster_host *h, const struct cluster_job *j, bool owned,
                      char out_id[APP_ID_MAX], struct conn **out_pool, struct err *e);

#endif
