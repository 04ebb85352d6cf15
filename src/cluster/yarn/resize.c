/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resizes a job that waits for its first master: the client leaves the request in HDFS for it
 * (queued.c).
 */
#include <errno.h>

#include "base/base.h"
#include "cluster/yarn/yarn.h"
#include "hadoop/yarn.h"

static bool has_master(const struct yarn_report *r)
{
    return r->state == HADOOP__YARN_APPLICATION_STATE__RUNNING && r->host[0] && r->rpc_port > 0;
}

/* The request is in HDFS. If the job has a master now, that master should be asked as well. It
 * usually has the request already, and asking twice has no effect. */
static int after_leaving(struct yarn *y, const char *id, json_t **out, struct err *e)
{
    struct yarn_report r = { 0 };
    struct err unread = { 0 };
    int rc = CLUSTER_RESIZED;
    /* Without a report the answer is the same: the master reads the request in HDFS. */
    bool has_report = yarn_report(y, id, &r, &unread) == 0;
    if (has_report && yarn_app_state_is_final(r.state)) {
        (void)err_set(e, EINVAL, "job %s is over: %s", id, yarn_app_state_name(r.state));
        rc = -EXIT_JOB_FAILED;
    } else if (has_report && has_master(&r)) {
        rc = CLUSTER_LEFT;
    } else if (!(*out = json_pack("{s:s, s:b}", "application_id", id, "resized", 1))) {
        (void)err_set(e, ENOMEM, "cannot show the answer: %m");
        rc = -EXIT_CLUSTER;
    }
    yarn_report_done(&r);
    return rc;
}

int yarn_resize_waiting(struct cluster *k, const char *id, const struct cluster_resize *w,
                        json_t **out, struct err *e)
{
    struct yarn *y = yarn_of(k);
    struct yarn_report r = { 0 };
    if (yarn_report(y, id, &r, e) < 0)
        return e->num == ENOENT || e->num == EINVAL ? -EXIT_MISUSE : -EXIT_CLUSTER;
    bool queued = yarn_is_queued(&r) && str_eq(r.user, y->user);
    yarn_report_done(&r);
    int rc = queued ? yarn_queued_resize(y, id, w, e) : 0;
    return rc <= 0 ? rc : after_leaving(y, id, out, e);
}
