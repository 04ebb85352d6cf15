/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to the pool of this machine, which is started if necessary. */
#ifndef TONY_CLUSTER_LOCAL_POOL_H
#define TONY_CLUSTER_LOCAL_POOL_H

#include <stdbool.h>

#include "cluster/cluster.h"
#include "cluster/link.h"

/* Connect to the master of a job of this home. If the system has removed the job's sockets, ask the
 * keeper to make them again and wait for them. */
int link_dial_master(struct cluster_host *h, const char *application_id, struct conn **out,
                     struct err *e);

enum { POOL_START_MS = 10000 }; /* for a pool to start, until its ready byte */

/* A hint for an answer of the pool that cannot be used. */
#define LINK_OTHER_VERSION                                                                         \
    "the pool may be of another version of tony; when no job runs, end it: tony pool stop"

/* Connect to the pool, and send the hello. If no pool runs: with start, start one and connect;
 * otherwise -ENOENT or -ECONNREFUSED. *out has no ops yet: call conn_set_arg(). */
int link_dial_pool(struct cluster_host *h, bool start, struct conn **out, struct err *e);
/* Ask the pool. If the pool dies, ask the next one. Use this function only for requests that may be
 * repeated. start: start a pool if none runs; otherwise -ENOENT or -ECONNREFUSED. */
int link_ask_pool(struct cluster_host *h, bool start, int what, const char *application_id,
                  bool force, struct answer *out, struct err *e);

/* struct cluster_ops, ask_pool */
int local_ask_pool(struct cluster_host *h, const struct cluster_question *q, json_t **out,
                   bool *out_refused, struct err *e);

#endif
