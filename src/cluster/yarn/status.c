/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status of a job on YARN: from its master, its history in HDFS, or the ResourceManager's
 * report.
 */
#include <errno.h>

#include "base/base.h"
#include "client/client_int.h"
#include "cluster/link.h"
#include "cluster/local/status.h"
#include "cluster/yarn/yarn.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"
#include "history/history.h"
#include "job/job.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "storage/jobkey.h"

enum {
    LIST_MAX = 10000,
    GONE_MS = 2000, /* retry for this time: the history may follow soon, or the next master */
    GONE_PAUSE_MS = 100,
    SILENT_MS = 3000, /* timeout for a connected master; then use the report */
};

/* The master writes this file before it ends. */
int yarn_history(struct yarn *y, const char *id, json_t **out, struct err *e)
{
    if (yarn_home(y, e) < 0)
        return -e->num;
    AUTO(free_p) char *path = str_printf("%s/%s/status.json", y->history, id);
    AUTO(buf_done) struct buf text = { .max = JOB_STATUS_MAX };
    if (!path)
        return err_set(e, ENOMEM, "cannot read the history of job '%s': %m", id);
    int rc = yarn_read(y, path, JOB_STATUS_MAX, &text, e);
    return rc < 0 ? rc : history_status_parse(buf_span(&text), out, e);
}

/* The exit code of `tony run`. */
static int yarn_exit_code_of(const struct yarn_report *r)
{
    if (r->state == HADOOP__YARN_APPLICATION_STATE__KILLED ||
        r->final == HADOOP__FINAL_APPLICATION_STATUS__APP_KILLED)
        return EXIT_STOPPED;
    return r->final == HADOOP__FINAL_APPLICATION_STATUS__APP_SUCCEEDED ? EXIT_DONE
                                                                       : EXIT_JOB_FAILED;
}

static const char *state_of(const struct yarn_report *r)
{
    if (!yarn_app_state_is_final(r->state))
        return r->state == HADOOP__YARN_APPLICATION_STATE__RUNNING ? "STARTING" : "WAITING";
    switch (yarn_exit_code_of(r)) {
    case EXIT_DONE:
        return "SUCCEEDED";
    case EXIT_STOPPED:
        return "KILLED";
    default:
        return "FAILED";
    }
}

/* null if there is no text, or if it is not UTF-8. So a bad text does not cost the whole
 * document. */
static json_t *text_or_null(const char *s)
{
    json_t *text = s && *s ? json_string(s) : NULL;
    return text ? text : json_null();
}

/* The time since the start of the application, as the ResourceManager knows it; null before the
 * start. */
static json_t *ran_or_null(const struct yarn_report *r)
{
    int64_t until = yarn_app_state_is_final(r->state) ? r->finished_ms : clock_wall_ms();
    return r->started_ms && until >= r->started_ms ? json_integer(until - r->started_ms)
                                                   : json_null();
}

json_t *yarn_report_json(struct yarn *y, const struct yarn_report *r)
{
    bool over = yarn_app_state_is_final(r->state);
    char line[400];
    yarn_first_line(r->diagnostics, line, sizeof line);
    (void)y;
    return json_pack(
        "{s:s, s:o, s:o, s:s, s:o, s:o, s:o, s:s, s:o, s:s, s:o, s:{s:I}}", "application_id", r->id,
        "name", text_or_null(r->name), "user", text_or_null(r->user), "state", state_of(r),
        "exit_code", over ? json_integer(yarn_exit_code_of(r)) : json_null(), "message",
        text_or_null(line), "ran_ms", ran_or_null(r), "yarn_state", yarn_app_state_name(r->state),
        "queue", text_or_null(r->queue), "cluster", "yarn", "tracking_url", text_or_null(r->url),
        "times", "submitted_wall_ms", (json_int_t)r->submitted_ms);
}

int yarn_dial_master(struct yarn *y, const struct yarn_report *r, const struct conn_ops *ops,
                     void *arg, struct conn **out, struct err *e)
{
    struct tls_key key = { .len = 0 };
    struct conn *conn = NULL;
    if (!r->host[0] || r->rpc_port <= 0 || r->rpc_port > UINT16_MAX)
        return err_set(e, ENOENT, "job '%s' has no master now", r->id);
    int rc = yarn_client_key(y, r->id, &key, e);
    if (rc < 0)
        return rc;
    const struct conn_target to = { .host = r->host,
                                    .port = (uint16_t)r->rpc_port,
                                    .identity = JOB_KEY_CLIENT,
                                    .key = &key,
                                    .deadline_ms = yarn_deadline(y) };
    rc = conn_dial_tls(y->loop, &to, ops, arg, &conn, e);
    job_key_wipe(&key, sizeof key);
    if (rc == 0 && (rc = link_hello(y->c, conn)) < 0) {
        conn_close(conn);
        return err_set(e, -rc, "cannot speak to the master of '%s': %m", r->id);
    }
    if (rc == 0)
        *out = conn;
    return rc;
}

static const struct conn_ops no_ops = { 0 };

static int ask_master(struct yarn *y, const struct yarn_report *r, struct answer *out,
                      bool *out_silent, struct err *e)
{
    struct conn *conn = NULL;
    int rc = yarn_dial_master(y, r, &no_ops, NULL, &conn, e);
    if (rc == 0) {
        rc = link_ask_what(y->c, &conn, TONY__CLIENT_ASK__WHAT__STATUS, r->id, false, out, e);
        *out_silent = rc == -ETIMEDOUT;
    }
    conn_close(conn);
    return rc;
}

static int from_master(struct yarn *y, const struct yarn_report *r, json_t **out, bool *out_silent)
{
    struct answer a = { .wait_ms = SILENT_MS };
    struct err e = { 0 };
    int rc = r->state == HADOOP__YARN_APPLICATION_STATE__RUNNING
                 ? ask_master(y, r, &a, out_silent, &e)
                 : -ENOENT;
    if (rc == 0)
        rc = status_parse(buf_span(&a.json), out, &e);
    answer_done(&a);
    return rc;
}

/* Add the members that only the client knows. */
static void complete(struct yarn *y, const struct yarn_report *r, bool over, json_t *doc)
{
    AUTO(free_p)
    char *dir = y->dir ? str_printf("hdfs:%s/%s", over ? y->history : y->dir, r->id) : NULL;
    /* If this fails, the document lacks a member. */
    (void)json_object_set_new(doc, "cluster", json_string("yarn"));
    (void)json_object_set_new(doc, "queue", text_or_null(r->queue));
    (void)json_object_set_new(doc, "yarn_state", json_string(yarn_app_state_name(r->state)));
    (void)json_object_set_new(doc, "live", json_boolean(!over));
    (void)json_object_set_new(doc, "directory", text_or_null(dir));
}

/* The master does not answer: it is suspended, or its node is unreachable. */
static void add_silence(const struct yarn_report *r, json_t *doc)
{
    AUTO(free_p)
    char *text = str_printf("its master at %s:%d does not answer; this is what the ResourceManager "
                            "knows of it",
                            r->host, r->rpc_port);
    /* `tony list` shows the same state. */
    (void)json_object_set_new(doc, "state", json_string("RUNNING"));
    (void)json_object_set_new(doc, "message", text_or_null(text));
}

/* Add the roles of a job that waits for its first master, if they are known. */
static void add_roles(struct yarn *y, const char *id, json_t *doc)
{
    json_t *roles = yarn_queued_roles(y, id);
    if (roles)
        (void)json_object_set_new(doc, "roles", roles); /* on failure, the member is missing */
}

/* Try once. *out_gone: there is or was a master, but it does not answer, and the job has no
 * history. */
static int try_status(struct yarn *y, const char *id, json_t **out, bool *out_gone, struct err *e)
{
    struct yarn_report r = { 0 };
    struct err unread = { 0 };
    json_t *doc = NULL;
    int rc = yarn_report(y, id, &r, e);
    /* The ResourceManager has forgotten the job, but its history exists. */
    if (rc == -ENOENT && yarn_history(y, id, &doc, &unread) == 0) {
        *out = doc;
        return 0;
    }
    if (rc == -ENOENT && unread.num == EINVAL) { /* a newer tony wrote it */
        *e = unread;
        return -EXIT_CLUSTER;
    }
    if (rc < 0)
        return e->num == ENOENT || e->num == EINVAL ? -EXIT_MISUSE : -EXIT_CLUSTER;
    bool over = yarn_app_state_is_final(r.state);
    bool running = r.state == HADOOP__YARN_APPLICATION_STATE__RUNNING;
    bool silent = false;
    int got = over ? -ENOENT : from_master(y, &r, &doc, &silent);
    /* The master writes the history before it unregisters, so there may be one already. */
    if (got < 0 && (over || running))
        got = yarn_history(y, id, &doc, &unread);
    if (over && got == -EINVAL) { /* a newer tony wrote it */
        yarn_report_done(&r);
        *e = unread;
        return -EXIT_CLUSTER;
    }
    *out_gone = got < 0 && !silent && running && r.host[0] && str_eq(r.user, y->user);
    if (got < 0)
        doc = yarn_report_json(y, &r);
    if (got < 0 && doc && yarn_is_queued(&r) && str_eq(r.user, y->user))
        add_roles(y, id, doc);
    if (got < 0 && silent && doc)
        add_silence(&r, doc);
    over = over || json_is_integer(json_object_get(doc, "exit_code"));
    if (doc)
        complete(y, &r, over, doc);
    yarn_report_done(&r);
    if (!doc) {
        (void)err_set(e, ENOMEM, "cannot show the status of job '%s': %m", id);
        return -EXIT_CLUSTER;
    }
    *out = doc;
    return 0;
}

int yarn_status(struct yarn *y, const char *id, json_t **out, struct err *e)
{
    int64_t until = clock_mono_ms() + GONE_MS;
    json_t *doc = NULL;
    for (;;) {
        bool master_is_gone = false;
        int rc = try_status(y, id, &doc, &master_is_gone, e);
        if (rc < 0)
            return rc;
        if (!master_is_gone || clock_mono_ms() > until)
            break;
        json_decref(TAKE(doc));
        yarn_pause(y, GONE_PAUSE_MS);
    }
    *out = doc;
    return 0;
}

/* ---- lists ---- */

struct listing {
    struct yarn_join join;
    json_t *jobs;
};

static void on_apps(const Hadoop__GetApplicationsResponse *r, const struct rpc_error *e, void *arg)
{
    struct listing *l = arg;
    for (size_t i = 0; r && i < r->n_applications; i++) {
        struct yarn_report a;
        if (yarn_report_copy(r->applications[i], &a) < 0)
            continue;
        bool over = yarn_app_state_is_final(a.state);
        const char *state =
            over || a.state != HADOOP__YARN_APPLICATION_STATE__RUNNING ? state_of(&a) : "RUNNING";
        (void)json_array_append_new(
            l->jobs,
            json_pack("{s:s, s:s, s:s, s:s, s:b, s:n, s:I, s:o, s:o, s:o, s:s, s:s}",
                      "application_id", a.id, "name", a.name, "user", a.user, "state", state,
                      "live", !over, "tasks", "submitted_ms", (json_int_t)a.submitted_ms,
                      "started_ms", a.started_ms ? json_integer(a.started_ms) : json_null(),
                      "ended_ms", a.finished_ms ? json_integer(a.finished_ms) : json_null(),
                      "ran_ms", ran_or_null(&a), "cluster", "yarn", "queue", a.queue));
        yarn_report_done(&a);
    }
    yarn_join_end(&l->join, e ? &e->err : NULL);
}

int yarn_list(struct yarn *y, json_t *jobs, struct err *e)
{
    struct listing l = { .join = { .loop = y->loop, .n = 1 }, .jobs = jobs };
    const char *own = conf_get(y->conf, "tony.application.type");
    char *types[] = { (char *)"TONY", (char *)(uintptr_t)(own && *own ? own : "TONY") };
    Hadoop__GetApplicationsRequest rq = HADOOP__GET_APPLICATIONS_REQUEST__INIT;
    rq.application_types = types;
    rq.n_application_types = str_eq(types[0], types[1]) ? 1 : 2;
    rq.users = &y->user;
    rq.n_users = 1;
    rq.has_limit = true;
    rq.limit = LIST_MAX;
    if (!yarn_get_applications(y->rpc, &rq, yarn_deadline(y), on_apps, &l)) {
        (void)err_set(e, ENOMEM, "cannot ask the ResourceManager: %m");
        return -EXIT_CLUSTER;
    }
    yarn_join_wait(&l.join);
    if (!l.join.e.num)
        return 0;
    *e = l.join.e;
    return -EXIT_CLUSTER;
}

int yarn_find(struct yarn *y, const char *word, char out[APP_ID_MAX], struct err *e)
{
    int64_t number = 0, best = -1;
    if (!str_eq(word, "last") && str_i64(span_of(word), 1, UINT32_MAX, "number", &number, NULL) < 0)
        return str_copy(out, APP_ID_MAX, word)
                   ? 0
                   : (err_set(e, EINVAL, "'%.80s...' is no application id: it is too long", word),
                      -EXIT_MISUSE);
    json_t *jobs = json_array(), *job;
    int rc = yarn_list(y, jobs, e);
    size_t i;
    json_array_foreach(jobs, i, job)
    {
        struct yarn_app app;
        int64_t when = doc_int(job, "submitted_ms", 0);
        if (yarn_app_parse(span_of(doc_str(job, "application_id")), &app, NULL) < 0 ||
            (number && app.id != number) || when < best)
            continue;
        best = when;
        (void)str_copy(out, APP_ID_MAX, doc_str(job, "application_id"));
    }
    json_decref(jobs);
    if (rc == 0 && best < 0) {
        (void)err_set(e, ENOENT, "there is no job '%s' of yours on the cluster", word);
        rc = -EXIT_MISUSE;
    }
    return rc;
}
