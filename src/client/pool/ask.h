/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the pool: for `tony pool`, and for facts about jobs that only the pool knows. */
#ifndef TONY_CLIENT_POOL_ASK_H
#define TONY_CLIENT_POOL_ASK_H

#include "cluster/cluster.h"

struct client;

/* As ask_pool() of struct cluster_ops. out_refused and e may be NULL. */
int pool_ask(struct client *c, const struct cluster_question *q, json_t **out, bool *out_refused,
             struct err *e);

#endif
