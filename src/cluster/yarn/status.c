/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ResourceManager knows of applications: reports, lists, the end of a job. The history is
 * in HDFS.
 */
#include <errno.h>

#include "base/base.h"
#include "cluster/yarn/yarn.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"
#include "history/history.h"
#include "job/job.h"

enum { LIST_MAX = 10000 };

/* ---- reports ---- */

static enum cluster_phase phase_of(const struct yarn_report *r)
{
    if (yarn_app_state_is_final(r->state))
        return CLUSTER_OVER;
    if (r->state != HADOOP__YARN_APPLICATION_STATE__RUNNING)
        return CLUSTER_WAITING;
    return r->host[0] && r->rpc_port > 0 && r->rpc_port <= UINT16_MAX ? CLUSTER_RUNNING
                                                                      : CLUSTER_STARTING;
}

/* The exit code of `tony run`. */
static int exit_code_of(const struct yarn_report *r)
{
    if (r->state == HADOOP__YARN_APPLICATION_STATE__KILLED ||
        r->final == HADOOP__FINAL_APPLICATION_STATUS__APP_KILLED)
        return EXIT_STOPPED;
    return r->final == HADOOP__FINAL_APPLICATION_STATUS__APP_SUCCEEDED ? EXIT_DONE
                                                                       : EXIT_JOB_FAILED;
}

/* "queue research: the reason". The reason has no figures, which differ in every report. */
static char *why_waiting(const struct yarn_report *r)
{
    char line[200];
    yarn_waiting_text(r->diagnostics, line, sizeof line);
    return str_printf("queue %s%s%s", r->queue, line[0] ? ": " : "", line);
}

/* If a master has failed at its start, the end of its stderr is in the diagnostics. "" = none is
 * there. */
static struct span master_stderr(const struct yarn_report *r)
{
    const char *tail = strstr(r->diagnostics, "bytes of stderr");
    const char *text = tail ? strchr(tail, '\n') : NULL;
    struct span rest = span_trim(span_of(text ? text : ""));
    /* YARN's own text follows; it begins with a time in brackets */
    for (const char *p = rest.len ? strchr(rest.p, '\n') : NULL; p; p = strchr(p + 1, '\n'))
        if (p[1] == '[' || str_starts(p + 1, "For more detailed output"))
            return span_trim(span_mem(rest.p, (size_t)(p - rest.p)));
    return rest;
}

int yarn_cluster_report(const struct yarn *y, const struct yarn_report *r,
                        struct cluster_report *out)
{
    char line[400];
    struct span tail = master_stderr(r);
    yarn_first_line(r->diagnostics, line, sizeof line);
    *out = (struct cluster_report){
        .phase = phase_of(r),
        .at = { .host = str_dup(r->host), .port = (uint16_t)r->rpc_port, .attempt = r->attempt },
        .user = str_dup(r->user),
        .queue = str_dup(r->queue),
        .name = str_dup(r->name),
        .own = str_eq(r->user, y->user),
        .message = str_dup(line),
        .url = str_dup(r->url),
        .submitted_ms = r->submitted_ms,
        .started_ms = r->started_ms,
        .ended_ms = r->finished_ms
    };
    (void)str_copy(out->id, sizeof out->id, r->id);
    (void)str_copy(out->state, sizeof out->state, yarn_app_state_name(r->state));
    out->why = out->phase == CLUSTER_WAITING ? why_waiting(r) : NULL;
    out->exit_code = out->phase == CLUSTER_OVER ? exit_code_of(r) : 0;
    out->master_stderr = out->phase == CLUSTER_OVER && tail.len ? span_dup(tail) : NULL;
    if (out->at.host && out->user && out->queue && out->name && out->message && out->url &&
        (out->why || out->phase != CLUSTER_WAITING))
        return 0;
    cluster_report_done(out);
    return -ENOMEM;
}

int yarn_ops_report(struct cluster *k, const char *id, struct cluster_report *out, struct err *e)
{
    struct yarn_report r = { 0 };
    int rc = yarn_report(yarn_of(k), id, &r, e);
    if (rc == 0 && yarn_cluster_report(yarn_of(k), &r, out) < 0)
        rc = err_set(e, ENOMEM, "cannot ask the ResourceManager: %m");
    yarn_report_done(&r);
    return rc;
}

/* ---- the end of a job ---- */

/* The user who submitted the job, as the ResourceManager knows; if it has forgotten the job, the
 * user that the document names. */
static char *owner_of_job(struct yarn *y, const char *id, const json_t *doc)
{
    struct yarn_report r = { 0 };
    struct err e = { 0 };
    int rc = yarn_report(y, id, &r, &e);
    char *name = rc == 0 ? TAKE(r.user) : rc == -ENOENT ? str_dup(json_str(doc, "user", "")) : NULL;
    yarn_report_done(&r);
    return name;
}

/* A directory of histories may be one in which others can write, too. So believe a document only if
 * the user of the job has written it, and if it is about this job. */
static int check_author(struct yarn *y, const char *path, const char *id, const json_t *doc,
                        struct err *e)
{
    AUTO(free_p) char *author = NULL;
    AUTO(free_p) char *owner = NULL;
    int rc = yarn_owner(y, path, &author, e);
    if (rc < 0)
        return rc;
    if (!str_eq(author, y->user) && !(owner = owner_of_job(y, id, doc)))
        return err_set(e, EIO, "cannot find out which user owns job '%s'", id);
    if (owner && !str_eq(owner, author))
        rc = err_set(e, EACCES, "'%s' is ignored: user '%s' wrote it, but the job belongs to '%s'",
                     path, author, owner);
    else if (!str_eq(json_str(doc, "application_id", id), id))
        rc = err_set(e, EACCES, "'%s' is ignored: it is about another job", path);
    if (rc < 0)
        host_note(y->host, "%s", e->msg);
    return rc;
}

/* Read the status document that the master has written into the history before its exit. */
int yarn_history(struct cluster *k, const char *id, json_t **out, struct err *e)
{
    struct yarn *y = yarn_of(k);
    json_t *doc = NULL;
    if (yarn_home(y, e) < 0)
        return -e->num;
    AUTO(free_p) char *path = str_printf("%s/%s/status.json", y->history, id);
    AUTO(buf_done) struct buf text = { .max = JOB_STATUS_MAX };
    if (!path)
        return err_set(e, ENOMEM, "cannot read the history of job '%s': %m", id);
    int rc = yarn_read(y, path, JOB_STATUS_MAX, &text, e);
    if (rc == 0)
        rc = history_status_parse(buf_span(&text), &doc, e);
    if (rc == 0 && (rc = check_author(y, path, id, doc, e)) < 0)
        json_decref(TAKE(doc));
    *out = doc;
    return rc;
}

void yarn_clear_staging(struct yarn *y, const char *id)
{
    AUTO(free_p) char *dir = yarn_home(y, NULL) == 0 ? str_printf("%s/%s", y->dir, id) : NULL;
    if (dir)
        (void)yarn_remove(y, dir, NULL); /* on failure, the next client removes it */
}

int yarn_verdict(struct cluster *k, const struct cluster_report *r, json_t **out, int *out_code,
                 struct err *e)
{
    struct yarn *y = yarn_of(k);
    struct err unread = { 0 };
    json_t *doc = NULL;
    (void)e;
    if (yarn_history(k, r->id, &doc, &unread) < 0 ||
        !json_is_integer(json_object_get(doc, "exit_code"))) {
        json_decref(doc);
        doc = report_json(&cluster_yarn, r);
    }
    /* The client killed the application, but the cause is the exceeded startup timeout. */
    if (doc && y->never_started)
        (void)json_object_update_new(doc,
                                     json_pack("{s:s, s:i, s:s}", "state", "FAILED", "exit_code",
                                               EXIT_JOB_FAILED, "message", YARN_NEVER_STARTED));
    *out_code = doc ? (int)json_int(doc, "exit_code", EXIT_JOB_FAILED) : EXIT_CLUSTER;
    /* The scheduler refused the job before its first attempt: nothing has run. */
    if (str_eq(r->state, "FAILED") && r->at.attempt <= 0)
        *out_code = EXIT_MISUSE;
    if (r->own)
        yarn_clear_staging(y, r->id); /* a master that was killed has not removed it */
    *out = doc;
    return 0;
}

/* ---- lists ---- */

struct listing {
    struct yarn_join join;
    const struct yarn *y;
    json_t *jobs;
};

static json_t *time_or_null(int64_t wall_ms)
{
    return wall_ms ? json_integer(wall_ms) : json_null();
}

static json_t *row_of(const struct yarn *y, const struct yarn_report *a)
{
    struct cluster_report r;
    if (yarn_cluster_report(y, a, &r) < 0)
        return NULL;
    /* The master has reported the end of the job, but the ResourceManager has not stored it yet.
     * For people the job has ended. */
    bool ended = a->final != HADOOP__FINAL_APPLICATION_STATUS__APP_UNDEFINED;
    if (r.phase != CLUSTER_OVER && ended) {
        r.phase = CLUSTER_OVER;
        r.exit_code = exit_code_of(a);
        r.ended_ms = r.ended_ms ? r.ended_ms : clock_wall_ms();
    }
    bool over = r.phase == CLUSTER_OVER;
    const char *state = report_state(&r);
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:b, s:n, s:I, s:o, s:o, s:o, s:s, s:s}",
                            "application_id", r.id, "name", r.name, "user", r.user, "state",
                            r.phase >= CLUSTER_STARTING && !over ? "RUNNING" : state, "live", !over,
                            "tasks", "submitted_ms", (json_int_t)r.submitted_ms, "started_ms",
                            time_or_null(r.started_ms), "ended_ms", time_or_null(r.ended_ms),
                            "ran_ms", report_ran(&r), "cluster", "yarn", "queue", r.queue);
    cluster_report_done(&r);
    return row;
}

static void on_apps(const Hadoop__GetApplicationsResponse *r, const struct rpc_error *e, void *arg)
{
    struct listing *l = arg;
    for (size_t i = 0; r && i < r->n_applications; i++) {
        struct yarn_report a;
        if (yarn_report_copy(r->applications[i], &a) < 0)
            continue;
        (void)json_array_append_new(l->jobs, row_of(l->y, &a)); /* without memory, it is missing */
        yarn_report_done(&a);
    }
    yarn_join_end(&l->join, e ? &e->err : NULL);
}

/* The jobs of this user in any order: the ResourceManager does not sort them. */
static int list_all(struct yarn *y, json_t *jobs, struct err *e)
{
    struct listing l = { .join = { .loop = y->loop, .n = 1 }, .y = y, .jobs = jobs };
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

int yarn_list(struct cluster *k, size_t max, json_t *rows, bool *out_more, struct err *e)
{
    json_t *all = json_array();
    int rc = list_all(yarn_of(k), all, e);
    if (rc == 0)
        *out_more = list_newest(all, max, rows);
    json_decref(all);
    return rc;
}

int yarn_find(struct cluster *k, const char *word, char out[APP_ID_MAX], struct err *e)
{
    int64_t number = 0, best = -1;
    if (!str_eq(word, "last") &&
        str_i64(span_of(word), 1, UINT32_MAX, "number", &number, NULL) < 0) {
        if (str_copy(out, APP_ID_MAX, word))
            return 0;
        (void)err_set(e, EINVAL, "'%.80s...' is too long for an application id", word);
        return -EXIT_MISUSE;
    }
    json_t *jobs = json_array(), *job;
    int rc = list_all(yarn_of(k), jobs, e);
    size_t i;
    json_array_foreach(jobs, i, job)
    {
        struct yarn_app app;
        int64_t when = json_int(job, "submitted_ms", 0);
        const char *id = json_str(job, "application_id", "");
        if (yarn_app_parse(span_of(id), &app, NULL) < 0 || (number && app.id != number) ||
            when < best)
            continue;
        best = when;
        (void)str_copy(out, APP_ID_MAX, id);
    }
    json_decref(jobs);
    if (rc == 0 && best < 0) {
        (void)err_set(e, ENOENT, "you have no job '%s' on the cluster", word);
        rc = -EXIT_MISUSE;
    }
    return rc;
}
