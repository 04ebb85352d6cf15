/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the implementations of clusters: what is the same for every cluster whose masters run on
 * other machines. These functions use only the table of the cluster.
 */
#ifndef TONY_CLUSTER_REMOTE_H
#define TONY_CLUSTER_REMOTE_H

#include <jansson.h>

#include "cluster/cluster.h"

/* Ask only the master for the status document. 0, or -errno if no master answers. */
int master_status(struct cluster *k, const char *id, json_t **out);

/* struct cluster_ops, status: from the master, the history, or the report. */
int remote_status(struct cluster *k, const char *id, json_t **out, struct err *e);
/* struct cluster_ops, logs: from the executors by way of the master; of ended tasks by kept_log().
 */
int remote_logs(struct cluster *k, const char *id, const struct cluster_log_wish *w,
                cluster_log_fn *fn, void *arg, struct err *e);
/* The state and the run time, as documents have them. */
const char *report_state(const struct cluster_report *r);
json_t *report_ran(const struct cluster_report *r);
/* The status document of a job of which only the cluster knows something. */
json_t *report_json(const struct cluster_ops *ops, const struct cluster_report *r);

/* The last n lines; the whole text if n < 0. */
struct span text_tail(struct span text, int64_t n);

/* The head of a cluster's state. */
static inline const struct cluster_head *cluster_head(const struct cluster *k)
{
    return (const struct cluster_head *)(const void *)k;
}

#endif
