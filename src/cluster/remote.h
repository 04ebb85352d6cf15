/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions for the implementations of clusters whose masters run on other machines. They use the
 * cluster only through its table (struct cluster_ops), so they are the same for each of them.
 */
#ifndef TONY_CLUSTER_REMOTE_H
#define TONY_CLUSTER_REMOTE_H

#include <jansson.h>

#include "cluster/cluster.h"

/* Ask only the master for the status document. 0, or -errno if no master answers. */
int master_status(struct cluster *k, const char *id, json_t **out);

/* Implements status() of struct cluster_ops: the document comes from the master, else from the
 * history, else from the report. */
int remote_status(struct cluster *k, const char *id, json_t **out, struct err *e);
/* Implements logs() of struct cluster_ops: the master passes requests on to the executors; logs of
 * ended tasks are read by kept_log().
 */
int remote_logs(struct cluster *k, const char *id, const struct cluster_log_wish *w,
                cluster_log_fn *fn, void *arg, struct err *e);
/* For commands that follow a job: does the cluster not answer for now? Then the user is told once,
 * and the caller asks again. *since_ms: since when; 0 at first, and again after an answer. */
bool cluster_is_silent(struct cluster *k, struct err *e, int64_t *since_ms);
/* The members "state" and "ran_ms" of a document, made from the report. */
const char *report_state(const struct cluster_report *r);
json_t *report_ran(const struct cluster_report *r);
/* Make a status document from the report alone, for a job with neither a master nor a history. */
json_t *report_json(const struct cluster_ops *ops, const struct cluster_report *r);

/* The last n lines; the whole text if n < 0. */
struct span text_tail(struct span text, int64_t n);

/* Every struct cluster begins with a struct cluster_head. */
static inline const struct cluster_head *cluster_head(const struct cluster *k)
{
    return (const struct cluster_head *)(const void *)k;
}

#endif
