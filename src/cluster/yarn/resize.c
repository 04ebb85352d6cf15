/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tony resize on YARN. The client asks the job's master; the ResourceManager knows where it is. If
 * the job waits for its first master, the client leaves the request in HDFS for it
 * (queued.c).
 */
#include <errno.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/show/resize.h"
#include "cluster/follow.h"
#include "cluster/link.h"
#include "cluster/local/status.h"
#include "cluster/yarn/yarn.h"
#include "hadoop/yarn.h"
#include "loop/loop.h"

enum {
    MASTER_MS = 60000, /* time for an accepted job to get a master */
    ASK_MS = 30000,    /* time for the next master to start */
    PAUSE_MS = 200,
};

struct asked {
    struct yarn *y;
    char id[APP_ID_MAX];
};

static int follow_there(void *arg, const struct follow_options *o, struct follow_result *out,
                        struct err *e)
{
    const struct asked *k = arg;
    return yarn_follow(k->y, k->id, NULL, o, out, e);
}

static int no_master(const char *id, const struct yarn_report *r, struct err *e)
{
    char line[200];
    yarn_waiting_text(r->diagnostics, line, sizeof line);
    (void)err_set(e, EAGAIN, "job %s has no master yet, and only its master can resize it (%s%s%s)",
                  id, yarn_app_state_name(r->state), line[0] ? ": " : "", line);
    err_hint(e, "ask again when it runs: tony status %s", id);
    return -EXIT_CLUSTER;
}

static bool has_master(const struct yarn_report *r)
{
    return r->state == HADOOP__YARN_APPLICATION_STATE__RUNNING && r->host[0] && r->rpc_port > 0;
}

/* Wait until the job has a master, or until `until`. On success the caller ends *out. */
static int await_master(struct asked *k, int64_t until, struct yarn_report *out, struct err *e)
{
    for (bool said = false;; said = true) {
        struct yarn_report r = { 0 };
        if (yarn_report(k->y, k->id, &r, e) < 0)
            return e->num == ENOENT || e->num == EINVAL ? -EXIT_MISUSE : -EXIT_CLUSTER;
        int rc = 1;
        if (yarn_app_state_is_final(r.state)) {
            (void)err_set(e, EINVAL, "job %s is over: %s", k->id, yarn_app_state_name(r.state));
            rc = -EXIT_JOB_FAILED;
        } else if (has_master(&r)) {
            *out = r;
            return 0;
        } else if (clock_mono_ms() > until) {
            rc = no_master(k->id, &r, e);
        } else if (!said) {
            client_note("job %s has no master yet; waiting for it", k->id);
        }
        yarn_report_done(&r);
        if (rc < 0)
            return rc;
        yarn_pause(k->y, PAUSE_MS);
    }
}

static const struct conn_ops no_ops = { 0 };

/* Ask once. 0 or -errno; out->refused: the master has refused. */
static int ask_once(struct asked *k, const struct yarn_report *r, const struct resize_wish *w,
                    struct answer *out, struct err *e)
{
    struct conn *conn = NULL;
    int rc = yarn_dial_master(k->y, r, &no_ops, NULL, &conn, e);
    if (rc == 0)
        rc = resize_ask(k->y->c, &conn, k->id, w, out, e);
    conn_close(conn);
    return rc;
}

/* Ask the master, and ask again while no master answers, as ask_job() in client/show/resize.c does.
 * maybe_accepted: a master may have accepted the request already. */
static int ask(struct asked *k, const struct resize_wish *w, bool maybe_accepted, json_t **out,
               struct err *e)
{
    int64_t until = clock_mono_ms() + ASK_MS;
    for (;;) {
        AUTO(answer_done) struct answer a = { 0 };
        struct yarn_report r = { 0 };
        int rc = await_master(k, until, &r, e);
        if (rc < 0)
            return rc;
        rc = ask_once(k, &r, w, &a, e);
        yarn_report_done(&r);
        if (rc == 0)
            return status_parse(buf_span(&a.json), out, e) < 0 ? -EXIT_CLUSTER : 0;
        if (a.refused && rc == -EALREADY && maybe_accepted)
            return yarn_status(k->y, k->id, out, e);
        if (a.refused && rc != -EAGAIN)
            return -EXIT_JOB_FAILED;
        /* ESHUTDOWN: a TLS connection whose other side was killed. */
        maybe_accepted = maybe_accepted || (!a.refused && (link_broke(rc) || rc == -ESHUTDOWN));
        /* Do not ask a master again that is connected but silent, or that has another key. */
        if (rc == -ETIMEDOUT || rc == -EACCES || rc == -ENOMEM || clock_mono_ms() > until)
            return -EXIT_CLUSTER;
        yarn_pause(k->y, PAUSE_MS);
    }
}

/* If the job waits for its first master, leave the request for it. Then check again: if the job has
 * a master now, ask the master as well. It usually has the request already, and asking twice has no
 * effect.
 *
 * 1: *out is the answer; 0: ask the master; or minus the exit code. */
static int resize_queued(struct asked *k, const struct resize_wish *w, json_t **out, struct err *e)
{
    struct yarn_report r = { 0 };
    struct err unread = { 0 };
    if (yarn_report(k->y, k->id, &r, e) < 0)
        return e->num == ENOENT || e->num == EINVAL ? -EXIT_MISUSE : -EXIT_CLUSTER;
    bool queued = yarn_is_queued(&r) && str_eq(r.user, k->y->user);
    yarn_report_done(&r);
    int rc = queued ? yarn_queued_resize(k->y, k->id, w, e) : 0;
    if (rc <= 0)
        return rc;
    /* Without a report the answer is the same: the request is in HDFS, and the master reads it
     * there. */
    bool has_report = yarn_report(k->y, k->id, &r, &unread) == 0;
    if (has_report && yarn_app_state_is_final(r.state)) {
        (void)err_set(e, EINVAL, "job %s is over: %s", k->id, yarn_app_state_name(r.state));
        rc = -EXIT_JOB_FAILED;
    } else if (has_report && has_master(&r)) {
        rc = ask(k, w, true, out, e);
        rc = rc == 0 ? 1 : rc;
    } else {
        *out = json_pack("{s:s, s:b}", "application_id", k->id, "resized", 1);
    }
    yarn_report_done(&r);
    if (rc == 1 && !*out) {
        (void)err_set(e, ENOMEM, "cannot show the answer: %m");
        rc = -EXIT_CLUSTER;
    }
    return rc;
}

/* Ask the master of the job. */
static int resize_running(struct asked *k, const struct resize_wish *w, json_t **out, struct err *e)
{
    struct yarn_report r = { 0 };
    json_t *doc = NULL;
    int64_t patience = w->within_ms ? w->within_ms : (int64_t)MASTER_MS;
    int rc = await_master(k, clock_mono_ms() + patience, &r, e);
    yarn_report_done(&r);
    if (rc == 0)
        rc = yarn_status(k->y, k->id, &doc, e);
    if (rc == 0)
        rc = -resize_wish_check(w, doc, e);
    json_decref(doc);
    return rc == 0 ? ask(k, w, false, out, e) : rc;
}

static int run(struct asked *k, const char *word, const struct resize_wish *w, json_t **out,
               struct err *e)
{
    int rc = yarn_find(k->y, word, k->id, e);
    if (rc == 0)
        rc = resize_queued(k, w, out, e);
    if (rc == 0)
        rc = resize_running(k, w, out, e);
    return MIN(rc, 0);
}

int yarn_cmd_resize(struct client *c, const char *word, const struct resize_wish *w)
{
    struct err e = { 0 };
    AUTO(yarn_freep) struct yarn *y = NULL;
    struct asked k = { .id = "" };
    json_t *doc = NULL;
    int rc = yarn_open(c, NULL, &y, &e);
    k.y = y;
    if (rc == 0)
        rc = run(&k, word, w, &doc, &e);
    return rc < 0 ? client_fail(-rc, &e) : resize_answered(c, k.id, doc, follow_there, &k);
}
