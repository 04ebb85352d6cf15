/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The finished jobs of the user on YARN, for `tony simulate --from-history`. The master of each job
 * has left its history in HDFS. The nodes are those that the ResourceManager has now.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/yarn/yarn.h"
#include "hadoop/yarn.h"
#include "history/history.h"

enum { SUMMARY_MAX = 64 << 10 };

/* yarn_history_list() waits for the names of the histories of this user. */
struct names {
    struct yarn *y;
    struct yarn_join join;
    struct strv v;
    bool failed;
};

static void on_histories(const struct files_result *r, const struct err *e, void *arg)
{
    struct names *n = arg;
    for (size_t i = 0; r && i < r->n_stats; i++) {
        const struct files_stat *st = &r->stats[i];
        struct yarn_app app;
        if (st->is_dir && str_eq(st->owner, n->y->user) &&
            yarn_app_parse(span_of(st->name), &app, NULL) == 0)
            n->failed |= strv_push(&n->v, st->name) < 0;
    }
    yarn_join_end(&n->join, e);
}

int yarn_history_file(struct cluster *k, const char *id, const char *name, struct buf *out,
                      struct err *e)
{
    struct yarn *y = yarn_of(k);
    if (yarn_home(y, e) < 0)
        return -EIO;
    AUTO(free_p) char *path = str_printf("%s/%s/%s", y->history, id, name);
    return path ? yarn_read(y, path, out->max, out, e)
                : err_set(e, ENOMEM, "cannot read the history: %m");
}

/* Append the row of one job. A job without a summary is left out: its master has died before it
 * wrote the history, or is writing it now. */
static int add_row(struct cluster *k, const char *id, struct history_rows *out)
{
    AUTO(buf_done) struct buf text = { .max = SUMMARY_MAX };
    struct history_row row = { 0 };
    if (yarn_history_file(k, id, "summary", &text, NULL) < 0 ||
        history_row_parse(buf_span(&text), &row) < 0)
        return 0;
    row.application_id = str_dup(id);
    if (row.application_id && vec_push(out, row) == 0)
        return 0;
    free(row.application_id);
    free(row.name);
    free(row.user);
    free(row.state);
    return -ENOMEM;
}

int yarn_history_list(struct cluster *k, struct history_rows *out, struct err *e)
{
    struct yarn *y = yarn_of(k);
    if (yarn_home(y, e) < 0)
        return -EIO;
    struct names n = { .y = y, .join = { .loop = y->loop, .n = 1 } };
    int rc = webhdfs_list(y->fs, y->history, on_histories, &n, NULL, e);
    if (rc < 0)
        return rc;
    yarn_join_wait(&n.join);
    rc = n.failed ? -ENOMEM : 0;
    if (n.join.e.num && n.join.e.num != ENOENT) { /* ENOENT: no job has ended yet */
        *e = n.join.e;
        rc = -EIO;
    }
    for (size_t i = 0; i < n.v.n && rc == 0; i++)
        rc = add_row(k, n.v.v[i], out);
    strv_done(&n.v);
    return rc == -ENOMEM ? err_set(e, ENOMEM, "cannot read the history: %m") : rc;
}

struct nodes {
    struct yarn_join join;
    struct cluster_nodes *out;
    bool failed;
};

static void on_nodes(const Hadoop__GetClusterNodesResponse *r, const struct rpc_error *e, void *arg)
{
    struct nodes *n = arg;
    for (size_t i = 0; r && i < r->n_node_reports; i++) {
        const Hadoop__Resource *has = r->node_reports[i]->capability;
        struct cluster_node node = { yarn_resource_value(has, "memory-mb"),
                                     yarn_resource_value(has, "yarn.io/gpu") };
        n->failed |= vec_push(n->out, node) < 0;
    }
    yarn_join_end(&n->join, e ? &e->err : NULL);
}

int yarn_nodes(struct cluster *k, struct cluster_nodes *out, struct err *e)
{
    struct yarn *y = yarn_of(k);
    struct nodes n = { .join = { .loop = y->loop, .n = 1 }, .out = out };
    Hadoop__GetClusterNodesRequest rq = HADOOP__GET_CLUSTER_NODES_REQUEST__INIT;
    Hadoop__NodeState running = HADOOP__NODE_STATE__NS_RUNNING;
    rq.node_states = &running;
    rq.n_node_states = 1;
    if (!yarn_get_cluster_nodes(y->rpc, &rq, yarn_deadline(y), on_nodes, &n))
        return err_set(e, ENOMEM, "cannot ask the ResourceManager: %m");
    yarn_join_wait(&n.join);
    if (n.join.e.num) {
        *e = n.join.e;
        return -EIO;
    }
    if (n.failed)
        return err_set(e, ENOMEM, "cannot read the history: %m");
    if (out->n)
        return 0;
    (void)err_set(e, EIO, "the cluster has no running node");
    return err_hint(e, "yarn node -list -all shows the nodes and their states");
}
