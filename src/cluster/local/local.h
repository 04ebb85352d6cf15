/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster `local`: the pool of this machine. */
#ifndef TONY_CLUSTER_LOCAL_LOCAL_H
#define TONY_CLUSTER_LOCAL_LOCAL_H

#include "cluster/cluster.h"

struct conn;
struct history_row;

extern const struct cluster_ops cluster_local;

struct local {
    struct cluster_head head;
    struct conn *pool; /* the connection on which `submitted` was submitted; may be NULL */
};

/* ---- find.c ---- */
/* "application_..._0012", "12" or "last" -> the whole id. -ENOENT, -EINVAL or another -errno. */
int local_find_app(struct cluster_host *h, const char *word, char out[APP_ID_MAX], struct err *e);

/* ---- history.c ---- */
/* The verdict of a job from its directory. 0 or -errno; -EBUSY: there is none yet; -ENOENT: no such
 * job. */
int local_verdict(struct cluster_host *h, const char *id, json_t **out, struct err *e);
/* Is this a job on Slurm? Such jobs are in the same directories (decision 0019). */
bool local_is_of_slurm(const struct paths *p, const char *id);
/* The newest jobs of the pool, or those on Slurm, which are in the same directories. */
int local_rows(struct cluster_host *h, size_t max, bool slurm, json_t *rows, bool *out_more,
               struct err *e);
int local_list(struct cluster *k, size_t max, json_t *rows, bool *out_more, struct err *e);

/* Members of struct cluster_ops. The cluster `slurm` uses them as well: its jobs have their files
 * in the same directories. */
int local_history(struct cluster *k, const char *id, json_t **out, struct err *e);
char *local_place(struct cluster *k, const char *id, bool over);
int local_verdict_or_report(struct cluster *k, const struct cluster_report *r, json_t **out,
                            int *out_code, struct err *e);
int local_history_list(struct cluster *k, struct history_rows *out, struct err *e);
int local_history_file(struct cluster *k, const char *id, const char *name, struct buf *out,
                       struct err *e);

/* ---- watch.c ---- */
int local_watch(struct cluster *k, const struct cluster_watch_config *cfg,
                struct cluster_watch **out, struct err *e);
void local_attend(struct cluster_watch *w, bool connected);
void local_stop(struct cluster_watch *w, enum cluster_stop how, const char *reason,
                bool checkpoint);
void local_unwatch(struct cluster_watch *w);

/* ---- logs.c ---- */
int local_logs(struct cluster *k, const char *id, const struct cluster_log_wish *w,
               cluster_log_fn *fn, void *arg, struct err *e);

#endif
