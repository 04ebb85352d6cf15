/* SPDX-License-Identifier: Apache-2.0 */
/* Stopping, resizing and settling a job on any cluster: the commands of the client and libtony call
 * these functions, so both take the same steps. */
#include <errno.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "codec/json.h"

static void clean_up(struct cluster *k, const char *id, bool killed)
{
    if (cluster_ops_of(k)->settle)
        cluster_ops_of(k)->settle(k, id, killed);
}

void cluster_settle(struct cluster *k, const char *id, const char *state, bool killed)
{
    clean_up(k, id, killed);
    cluster_remember_end(k, id, state);
}

int cluster_stop(struct cluster *k, const char *id, bool checkpoint, bool no_wait,
                 struct cluster_stopped *out, struct err *e)
{
    struct cluster_report report = { 0 };
    struct follow_result r = { 0 };
    const struct follow_options o = {
        .stop = checkpoint ? "stopped with a checkpoint" : "", /* the master adds who */
        .checkpoint = checkpoint,
        .return_when_stopping = no_wait,
    };
    *out = (struct cluster_stopped){ .finished = false };
    int rc = cluster_ops_of(k)->report(k, id, &report, e);
    out->was_over = rc == 0 && report.phase == CLUSTER_OVER;
    if (out->was_over)
        (void)str_copy(out->state, sizeof out->state, report.state);
    cluster_report_done(&report);
    if (rc < 0)
        return rc == -ENOENT || rc == -EINVAL ? -EXIT_MISUSE : -EXIT_CLUSTER;
    if (!out->was_over) {
        rc = cluster_follow(k, id, &o, &r, e);
        if (rc < 0)
            return rc;
        if (r.finished)
            (void)str_copy(out->state, sizeof out->state, json_str(r.summary, "state", ""));
    }
    out->finished = out->was_over || r.finished;
    follow_result_done(&r);
    /* The master was asked to stop, so it has removed its own files. A state that the cluster
     * reports is its own word and no state of tony, so it is not recorded. */
    if (out->was_over)
        clean_up(k, id, false);
    else if (out->finished)
        cluster_settle(k, id, out->state, false);
    return 0;
}

int cluster_resize_checked(struct cluster *k, const char *id, const struct cluster_resize *w,
                           json_t **out, struct err *e)
{
    json_t *doc = NULL;
    int rc = cluster_ops_of(k)->status(k, id, &doc, e);
    if (rc == 0)
        rc = -resize_check(w, doc, e);
    json_decref(doc);
    return rc < 0 ? rc : cluster_resize(k, id, w, out, e);
}
