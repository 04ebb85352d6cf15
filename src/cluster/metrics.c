/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics file of a job, from its master or from its history. */
#include <errno.h>

#include "base/buf.h"
#include "cluster/cluster.h"
#include "cluster/link.h"
#include "cluster/remote.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "storage/metrics_file.h"

enum {
    WAIT_MS = 20000, /* limit for the answer of the master */
    /* Bytes. Masters that were killed may have left more than the limit of the file. */
    FILE_MAX = 4 * METRICS_FILE_MAX,
    TRIES = 3, /* a job that ends moves to the history meanwhile */
};

static int from_master(struct cluster *k, const struct cluster_report *r, struct buf *out,
                       struct err *e)
{
    static const struct conn_ops no_ops = { 0 };
    struct conn *conn = NULL;
    struct answer a = { .wait_ms = WAIT_MS, .max = FILE_MAX };
    int rc = cluster_dial(k, r, &no_ops, NULL, &conn, e);
    if (rc == 0)
        rc = link_ask_what(cluster_head(k)->cfg.host, &conn, TONY__CLIENT_ASK__WHAT__METRICS, r->id,
                           false, &a, e);
    conn_close(conn);
    if (rc == 0) {
        buf_done(out);
        *out = a.json;
        a.json = (struct buf){ 0 };
    }
    answer_done(&a);
    return rc;
}

int cluster_metrics(struct cluster *k, const char *id, struct buf *out, struct err *e)
{
    int rc = -ENOENT;
    for (int i = 0; i < TRIES && rc < 0; i++) {
        struct cluster_report r = { 0 };
        struct err unread = { 0 };
        int known = cluster_ops_of(k)->report(k, id, &r, e);
        rc = known == 0 && r.phase == CLUSTER_RUNNING ? from_master(k, &r, out, e) : -ENOENT;
        cluster_report_done(&r);
        if (rc == 0)
            break;
        buf_clear(out);
        out->max = FILE_MAX;
        rc = cluster_ops_of(k)->history_file(k, id, "metrics", out, &unread);
        if (rc < 0 && (known < 0 || unread.num != ENOENT))
            *e = unread;
        if (rc == -ENOENT)
            host_pause(cluster_head(k)->cfg.host, 100);
    }
    if (rc == -ENOENT) {
        (void)err_set(e, ENOENT, "job '%s' has no metrics", id);
        err_hint(e, "it has not started a task yet, or an older version of tony ran it");
    }
    return rc;
}
