/* SPDX-License-Identifier: Apache-2.0 */
/* What `tony arbiter` needs of YARN: struct queue_ops of cluster/queue.h. */
#ifndef TONY_CLUSTER_YARN_ARBITER_ARBITER_H
#define TONY_CLUSTER_YARN_ARBITER_ARBITER_H

#include "cluster/queue.h"

extern const struct queue_ops queue_yarn; /* app.c */

/* ---- look.c: what the ResourceManager says ---- */

int yarn_queue_look(struct cluster *k, const char *queue, const struct queue_keys *keys,
                    struct queue *out, struct err *e);
int yarn_queue_needs(struct cluster *k, const struct queue_job *j, const struct queue_keys *keys,
                     struct queue_needs *out, struct tls_key *out_key, struct err *e);

#endif
