/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/local/status.h"

#include <errno.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/local/job_keeper.h"
#include "cluster/local/pool.h"
#include "codec/json.h"
#include "history/history.h"
#include "job/job.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

/* Takes conn. */
static int from_conn(struct cluster_host *h, struct conn *conn, const char *id, json_t **out,
                     struct err *e)
{
    struct answer a = { 0 };
    int rc = link_ask_what(h, &conn, TONY__CLIENT_ASK__WHAT__STATUS, id, false, &a, e);
    if (rc == 0)
        rc = status_parse(buf_span(&a.json), out, e);
    answer_done(&a);
    conn_close(conn);
    return rc;
}

/* The status of a job without a master. The pool knows whether the job waits; if it does not wait,
 * its journal has the status. */
static int without_master(struct cluster_host *h, const char *id, const char *dir, json_t **out,
                          struct err *e)
{
    int rc = history_status(dir, out, e);
    (void)start_pool_if_orphaned(h, id);
    if (rc < 0 || json_int(*out, "epoch", 0) > 0 ||
        json_is_integer(json_object_get(*out, "exit_code")))
        return rc;
    struct answer a = { 0 };
    json_t *waiting = NULL;
    if (link_ask_pool(h, true, TONY__CLIENT_ASK__WHAT__STATUS, id, false, &a, NULL) == 0 &&
        status_parse(buf_span(&a.json), &waiting, NULL) == 0) {
        if (json_is_object(json_object_get(waiting, "waiting"))) {
            json_decref(*out);
            *out = TAKE(waiting);
        } else { /* The pool has admitted the job and knows nothing more about it. */
            rc = json_object_set_new(*out, "state", json_string("STARTING")) == 0 ? 0 : -ENOMEM;
        }
    }
    json_decref(waiting);
    answer_done(&a);
    return rc < 0 ? err_set(e, -rc, "cannot show the status of job '%s': %m", id) : 0;
}

int status_of_master(struct cluster_host *h, const char *id, json_t **out)
{
    struct err unread = { 0 };
    struct conn *conn = NULL;
    int rc = link_dial_master(h, id, &conn, &unread);
    return rc < 0 ? rc : from_conn(h, conn, id, out, &unread);
}

static int from_live(struct cluster_host *h, const char *id, const char *dir, json_t **out,
                     struct err *e)
{
    struct conn *conn = NULL;
    int rc = link_dial_master(h, id, &conn, NULL);
    if (rc == -ENOMEM)
        return err_set(e, ENOMEM, "cannot ask for job '%s': %m", id);
    if (rc == 0 && from_conn(h, conn, id, out, NULL) == 0)
        return 0;
    return without_master(h, id, dir, out, e);
}

/* Add the log directory of each task's last attempt. */
static int add_log_dirs(json_t *doc, const char *dir)
{
    size_t i;
    json_t *task;
    json_array_foreach(json_object_get(doc, "tasks"), i, task)
    {
        int64_t attempt = json_int(task, "attempt", 0);
        if (attempt > 0 &&
            json_object_set_new(
                task, "log_dir",
                json_sprintf("%s/logs/%s-%lld/%lld", dir, json_str(task, "role", ""),
                             (long long)json_int(task, "index", 0), (long long)attempt)) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Add what only the client knows. A job with an exit code counts as finished: its keeper is about
 * to move it to the history. */
static int complete(struct cluster_host *h, const char *id, const char *dir, bool live, json_t *doc)
{
    bool over = json_is_integer(json_object_get(doc, "exit_code"));
    AUTO(free_p) char *later = live && over ? paths_history(&h->paths, id) : NULL;
    int rc = json_object_set_new(doc, "directory", json_string(later ? later : dir));
    if (rc == 0)
        rc = add_log_dirs(doc, later ? later : dir);
    return rc == 0 ? json_object_set_new(doc, "live", json_boolean(live && !over)) : rc;
}

int status_load(struct cluster_host *h, const char *id, json_t **out, struct err *e)
{
    int rc = host_look_paths(h, e);
    for (int tries = 0; rc == 0; tries++) {
        AUTO(free_p) char *dir = NULL;
        bool live = false;
        json_t *doc = NULL;
        rc = paths_find_job(&h->paths, id, &dir, &live, e);
        if (rc < 0)
            return rc;
        rc = live ? from_live(h, id, dir, &doc, e) : history_status(dir, &doc, e);
        if (rc == -ENOENT && live && tries < 3) {
            rc = 0; /* the job has moved to the history in the meantime */
            continue;
        }
        if (rc == 0 && complete(h, id, dir, live, doc) < 0)
            rc = err_set(e, ENOMEM, "cannot read the status of job '%s': %m", id);
        if (rc < 0) {
            json_decref(doc);
            return rc;
        }
        *out = doc;
        return 0;
    }
    return rc;
}
