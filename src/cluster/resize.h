/* SPDX-License-Identifier: Apache-2.0 */
/* For the implementations of clusters: the request for another size of a job. */
#ifndef TONY_CLUSTER_RESIZE_H
#define TONY_CLUSTER_RESIZE_H

#include "cluster/cluster.h"

struct answer;
struct conn;

/* Send the request to the pool or the master at the other end of conn. As link_ask(). */
int resize_ask(struct cluster_host *h, struct conn **conn, const char *id,
               const struct cluster_resize *w, struct answer *out, struct err *e);

#endif
