/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to the pool, for `tony pool` and for what only the pool can tell of jobs. */
#ifndef TONY_CLIENT_POOL_ASK_H
#define TONY_CLIENT_POOL_ASK_H

#include "cluster/cluster.h"

struct client;

/* As ask_pool() of struct cluster_ops. out_refused and e may be NULL. */
int pool_ask(struct client *c, const struct cluster_question *q, json_t **out, bool *out_refused,
             struct err *e);

#endif
