/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects to masters, and makes the status document of a job whose master is on another machine.
 */
#include "cluster/remote.h"

#include <errno.h>

#include "base/base.h"
#include "cluster/link.h"
#include "codec/json.h"
#include "codec/tls.h"
#include "job/job.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "storage/jobkey.h"

enum {
    DIAL_MS = 10000, /* for the connection to the master */
    /* if no master answers, retry for this time: the history or the next master may appear soon */
    GONE_MS = 2000,
    CLUSTER_SILENT_MS = 300000, /* then cluster_is_silent() gives up */
    GONE_PAUSE_MS = 100,        /* between two tries */
    /* time limit for the answer of a connected master; after it, the cluster's report is used */
    SILENT_MS = 3000,
};

struct pause {
    struct loop *loop;
    bool over;
};

static void on_pause_over(void *arg)
{
    struct pause *p = arg;
    p->over = true;
    loop_stop(p->loop);
}

void host_pause(struct cluster_host *h, int64_t ms)
{
    struct pause p = { .loop = h->loop };
    struct loop_timer *t = loop_timer_new(h->loop, on_pause_over, &p);
    if (!t)
        return;
    loop_timer_set(t, clock_mono_ms() + ms);
    while (!p.over)
        (void)loop_run(h->loop);
    loop_timer_free(t);
}

/* ---- connecting to a master ---- */

int cluster_dial(struct cluster *k, const struct cluster_report *r, const struct conn_ops *ops,
                 void *arg, struct conn **out, struct err *e)
{
    const struct cluster_head *head = cluster_head(k);
    struct tls_key key = { .len = 0 };
    struct conn *conn = NULL;
    if (head->ops->dial) {
        int rc = head->ops->dial(k, r->id, out, e);
        if (rc == 0)
            conn_set_arg(*out, ops, arg);
        return rc;
    }
    if (!r->at.host || !r->at.host[0] || !r->at.port)
        return err_set(e, ENOENT, "job '%s' has no master now", r->id);
    if (head->ops->key(k, r->id, &key, e) < 0)
        return -ENOKEY;
    const struct conn_target to = { .host = r->at.host,
                                    .port = r->at.port,
                                    .identity = JOB_KEY_CLIENT,
                                    .key = &key,
                                    .deadline_ms = clock_mono_ms() + DIAL_MS };
    int rc = conn_dial_tls(host_loop(head->cfg.host, e), &to, ops, arg, &conn, e);
    job_key_wipe(&key, sizeof key);
    if (rc == 0 && (rc = link_hello(head->cfg.host, conn)) < 0) {
        conn_close(conn);
        return err_set(e, -rc, "cannot send a request to the master of job '%s': %m", r->id);
    }
    if (rc == 0)
        *out = conn;
    return rc;
}

/* ---- the status document ---- */

/* A JSON string, or null if there is no text or it is not UTF-8: one bad text must not make the
 * whole document fail. */
static json_t *text_or_null(const char *s)
{
    json_t *text = s && *s ? json_string(s) : NULL;
    return text ? text : json_null();
}

const char *report_state(const struct cluster_report *r)
{
    if (r->phase != CLUSTER_OVER)
        return r->phase == CLUSTER_WAITING ? "WAITING" : "STARTING";
    return r->exit_code == EXIT_DONE      ? "SUCCEEDED"
           : r->exit_code == EXIT_STOPPED ? "KILLED"
                                          : "FAILED";
}

/* The time since the start of the job, as the cluster knows it; null before the start. */
json_t *report_ran(const struct cluster_report *r)
{
    int64_t until = r->phase == CLUSTER_OVER ? r->ended_ms : clock_wall_ms();
    return r->started_ms && until >= r->started_ms ? json_integer(until - r->started_ms)
                                                   : json_null();
}

/* "yarn_state": the cluster's own word for the state of the application. */
static int set_own_state(const struct cluster_ops *ops, const struct cluster_report *r, json_t *doc)
{
    AUTO(free_p) char *key = str_printf("%s_state", ops->name);
    return key ? json_object_set_new(doc, key, text_or_null(r->state)) : -1;
}

json_t *report_json(const struct cluster_ops *ops, const struct cluster_report *r)
{
    bool over = r->phase == CLUSTER_OVER;
    json_t *doc =
        json_pack("{s:s, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:s, s:o, s:{s:I}}", "application_id",
                  r->id, "name", text_or_null(r->name), "user", text_or_null(r->user), "state",
                  report_state(r), "exit_code", over ? json_integer(r->exit_code) : json_null(),
                  "message", text_or_null(r->message), "ran_ms", report_ran(r), "queue",
                  text_or_null(r->queue), "cluster", ops->name, "tracking_url",
                  text_or_null(r->url), "times", "submitted_wall_ms", (json_int_t)r->submitted_ms);
    /* On failure, members are missing. */
    (void)set_own_state(ops, r, doc);
    if (doc && r->master_stderr)
        (void)json_object_set_new(doc, "master_stderr", json_string(r->master_stderr));
    return doc;
}

/* ---- lists ---- */

static int newest_first(const void *a, const void *b)
{
    json_t *const *x = a, *const *y = b;
    int64_t p = json_int(*x, "submitted_ms", 0), q = json_int(*y, "submitted_ms", 0);
    return p < q ? 1 : p > q ? -1 : 0;
}

bool list_newest(json_t *all, size_t max, json_t *rows)
{
    size_t total = json_array_size(all);
    AUTO(free_p) json_t **v = calloc(total + 1, sizeof *v);
    for (size_t i = 0; v && i < total; i++)
        v[i] = json_array_get(all, i);
    if (v)
        qsort(v, total, sizeof *v, newest_first);
    for (size_t i = 0; v && i < total && (!max || i < max); i++)
        (void)json_array_append(rows, v[i]); /* without memory, a row is missing */
    return max && total > max;
}

/* ---- a cluster that does not answer ---- */

bool cluster_is_silent(struct cluster *k, struct err *e, int64_t *since_ms)
{
    int64_t now = clock_mono_ms();
    bool later = e && (e->num == EIO || e->num == ETIMEDOUT || e->num == EAGAIN);
    if (!later || (*since_ms && now - *since_ms > CLUSTER_SILENT_MS))
        return false;
    if (!*since_ms)
        host_note(cluster_head(k)->cfg.host, "%s; this is tried again", e->msg);
    *since_ms = *since_ms ? *since_ms : now;
    err_clear(e);
    return true;
}

/* ---- the whole document ---- */

static const struct conn_ops no_ops = { 0 };

/* Why there is no answer from the master. */
struct no_answer {
    bool silent; /* it is connected, but does not answer */
    struct err why;
};

static int from_master(struct cluster *k, const struct cluster_report *r, json_t **out,
                       struct no_answer *no)
{
    struct cluster_host *h = cluster_head(k)->cfg.host;
    struct answer a = { .wait_ms = SILENT_MS };
    struct conn *conn = NULL;
    int rc =
        r->phase == CLUSTER_RUNNING ? cluster_dial(k, r, &no_ops, NULL, &conn, &no->why) : -ENOENT;
    if (rc == 0) {
        rc = link_ask_what(h, &conn, TONY__CLIENT_ASK__WHAT__STATUS, r->id, false, &a, &no->why);
        no->silent = rc == -ETIMEDOUT;
    }
    conn_close(conn);
    if (rc == 0)
        rc = status_parse(buf_span(&a.json), out, &no->why);
    answer_done(&a);
    return rc;
}

int master_status(struct cluster *k, const char *id, json_t **out)
{
    struct cluster_report r = { 0 };
    struct err unread = { 0 };
    struct no_answer unused = { 0 };
    int rc = cluster_head(k)->ops->report(k, id, &r, &unread);
    if (rc == 0)
        rc = from_master(k, &r, out, &unused);
    cluster_report_done(&r);
    return rc;
}

/* Add the members that only the client knows. */
static void complete(struct cluster *k, const struct cluster_report *r, bool over, json_t *doc)
{
    const struct cluster_ops *ops = cluster_head(k)->ops;
    AUTO(free_p) char *dir = ops->place(k, r->id, over);
    /* If this fails, the document lacks a member. */
    (void)json_object_set_new(doc, "cluster", json_string(ops->name));
    (void)json_object_set_new(doc, "queue", text_or_null(r->queue));
    (void)set_own_state(ops, r, doc);
    (void)json_object_set_new(doc, "live", json_boolean(!over));
    (void)json_object_set_new(doc, "directory", text_or_null(dir));
}

/* The cluster knows of a master, but this machine has no answer from it: it is suspended, its node
 * or its port cannot be reached, or it has just died. `tony list` shows the same state. */
static void add_no_answer(const struct cluster_report *r, const struct no_answer *no, json_t *doc)
{
    static const char end[] = "; this is what the cluster knows of it";
    unsigned port = (unsigned)r->at.port;
    bool suspended = str_eq(r->state, "SUSPENDED");
    AUTO(free_p)
    char *text = suspended ? str_dup(r->message)
                 : no->silent
                     ? str_printf("its master at %s:%u does not answer%s", r->at.host, port, end)
                     : str_printf("its master at %s:%u cannot be reached from here: %s%s",
                                  r->at.host, port, no->why.msg, end);
    (void)json_object_set_new(doc, "state", json_string(suspended ? "SUSPENDED" : "RUNNING"));
    (void)json_object_set_new(doc, "message", text_or_null(text));
}

/* The document from the master, from the history, or, with a negative result, from neither. */
static int whole_document(struct cluster *k, const struct cluster_report *r, json_t **out,
                          struct no_answer *no, struct err *e)
{
    bool over = r->phase == CLUSTER_OVER;
    int rc = over ? -ENOENT : from_master(k, r, out, no);
    /* The master writes the history before it reports its end, so there may be one already. */
    return rc < 0 && r->phase >= CLUSTER_STARTING ? cluster_head(k)->ops->history(k, r->id, out, e)
                                                  : rc;
}

static int no_report(struct cluster *k, const char *id, json_t **out, struct err *e)
{
    struct err unread = { 0 };
    /* The cluster has forgotten the job, but its history exists. */
    if (e->num == ENOENT && cluster_head(k)->ops->history(k, id, out, &unread) == 0)
        return 0;
    if (e->num == ENOENT && unread.num == EINVAL) { /* a newer tony wrote it */
        *e = unread;
        return -EXIT_CLUSTER;
    }
    return e->num == ENOENT || e->num == EINVAL ? -EXIT_MISUSE : -EXIT_CLUSTER;
}

/* Try once. *out_gone: there is or was a master, but it does not answer, and the job has no
 * history. */
static int try_status(struct cluster *k, const char *id, json_t **out, bool *out_gone,
                      struct err *e)
{
    const struct cluster_ops *ops = cluster_head(k)->ops;
    struct cluster_report r = { 0 };
    struct err unread = { 0 };
    json_t *doc = NULL;
    struct no_answer no = { 0 };
    if (ops->report(k, id, &r, e) < 0)
        return no_report(k, id, out, e);
    int got = whole_document(k, &r, &doc, &no, &unread);
    if (r.phase == CLUSTER_OVER && got == -EINVAL) { /* a newer tony wrote it */
        cluster_report_done(&r);
        *e = unread;
        return -EXIT_CLUSTER;
    }
    *out_gone = got < 0 && !no.silent && r.phase == CLUSTER_RUNNING && r.own;
    if (got < 0) {
        doc = report_json(ops, &r);
        if (doc && ops->add_waiting && r.phase != CLUSTER_OVER && r.own)
            ops->add_waiting(k, &r, doc);
        if (doc && r.phase == CLUSTER_RUNNING && r.own && r.at.host)
            add_no_answer(&r, &no, doc);
    }
    bool over = r.phase == CLUSTER_OVER || json_is_integer(json_object_get(doc, "exit_code"));
    if (doc)
        complete(k, &r, over, doc);
    cluster_report_done(&r);
    if (!doc) {
        (void)err_set(e, ENOMEM, "cannot show the status of job '%s': %m", id);
        return -EXIT_CLUSTER;
    }
    *out = doc;
    return 0;
}

int remote_status(struct cluster *k, const char *id, json_t **out, struct err *e)
{
    int64_t until = clock_mono_ms() + GONE_MS;
    json_t *doc = NULL;
    for (;;) {
        bool master_is_gone = false;
        int rc = try_status(k, id, &doc, &master_is_gone, e);
        if (rc < 0)
            return rc;
        if (!master_is_gone || clock_mono_ms() > until)
            break;
        json_decref(TAKE(doc));
        host_pause(cluster_head(k)->cfg.host, GONE_PAUSE_MS);
    }
    *out = doc;
    return 0;
}
