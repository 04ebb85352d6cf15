/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run, submit, wait, kill.
 */
#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/job/jobconf.h"
#include "client/job/output.h"
#include "client/pool/pool_unit.h"
#include "client/show/render.h"
#include "client/show/why.h"
#include "conf/conf.h"

/* ---- following with a display ---- */

enum { TASKS_SHOWN = 16 };

struct shown {
    const char *id;
    struct render *render; /* NULL = nothing is shown */
    struct output output;
};

static void show_update(const char *state, const json_t *summary, void *arg)
{
    struct shown *s = arg;
    if (s->render)
        render_update(s->render, state, summary);
}

static void show_waiting(const char *state, const char *why, void *arg)
{
    struct shown *s = arg;
    if (s->render)
        render_state(s->render, state, why);
}

static void show_text(const char *text, void *arg)
{
    struct shown *s = arg;
    if (s->render)
        render_say(s->render, "%s", text);
    else
        client_note("%s", text);
}

static void show_log(const struct cluster_log_text *t, void *arg)
{
    struct shown *s = arg;
    output_add(&s->output, t);
}

static void show_tasks(const json_t *doc, void *arg)
{
    struct shown *s = arg;
    const json_t *tasks = json_object_get(doc, "tasks");
    size_t i;
    json_t *task;
    if (!s->render)
        return;
    if (doc_str(doc, "log_url")[0])
        render_say(s->render, "  %-12s %s", "master", doc_str(doc, "log_url"));
    if (json_array_size(tasks) > TASKS_SHOWN) {
        render_say(s->render, "  tony tasks %s lists the %zu tasks with their logs", s->id,
                   json_array_size(tasks));
        return;
    }
    json_array_foreach(tasks, i, task)
    {
        if (doc_str(task, "log_url")[0])
            render_say(s->render, "  %-12s %s", doc_str(task, "task"), doc_str(task, "log_url"));
    }
}

/* ---- the end ---- */

/* The task of the document that is the cause; NULL = none. */
static const json_t *cause_of(const json_t *doc)
{
    const char *cause = doc_str(json_object_get(doc, "cause"), "task");
    size_t i;
    json_t *task;
    json_array_foreach(json_object_get(doc, "tasks"), i, task)
    {
        if (cause[0] && str_eq(doc_str(task, "task"), cause))
            return task;
    }
    return NULL;
}

static void say_master_stderr(const json_t *doc)
{
    struct span rest = span_trim(span_of(doc_str(doc, "master_stderr"))), line;
    if (!rest.len)
        return;
    AUTO(buf_done) struct buf out = { 0 };
    (void)buf_adds(&out, "  last lines of the master's stderr:\n");
    while (rest.len && span_split(&rest, '\n', &line))
        (void)buf_addf(&out, "    %.*s\n", (int)line.len, line.p);
    (void)fs_write_all(2, out.p, out.len); /* if stderr fails, there is nowhere to report it */
}

/* Does the history have the job? If the status has the state of the cluster ("<cluster>_state"),
 * only the cluster knows the job: there is neither a directory nor a log of it. */
static bool is_kept(const struct cluster_ops *ops, const json_t *doc)
{
    AUTO(free_p) char *key = str_printf("%s_state", ops->name);
    return !key || !json_object_get(doc, key);
}

/* The verdict of a job, with the places of its logs and its history. */
static void say_verdict(struct client *c, struct cluster *k, const char *id, const json_t *doc)
{
    const struct cluster_ops *ops = cluster_ops_of(k);
    bool kept = is_kept(ops, doc);
    AUTO(free_p) char *dir = kept ? ops->place(k, id, true) : NULL;
    AUTO(free_p) char *logs = NULL, *cause = NULL;
    if (!ops->remote) {
        logs = dir ? fs_join(dir, "logs") : NULL;
        cause = dir ? why_log(dir, doc) : NULL;
    } else {
        const char *master = doc_str(doc, "log_url"), *log = doc_str(cause_of(doc), "log_url");
        logs =
            kept ? str_printf("tony logs %s%s%s", id, master[0] ? "; master: " : "", master) : NULL;
        cause = log[0] ? str_dup(log) : NULL;
    }
    render_verdict(c, id, logs, dir, cause, doc);
}

/* Print the result of the job: the full status as JSON, or the verdict as text. Ends *r. */
static int finish(struct client *c, struct cluster *k, const char *id, struct follow_result *r,
                  json_t *staging)
{
    int code = r->exit_code, printed = EXIT_DONE;
    struct err e = { 0 };
    json_t *doc = NULL;
    if (r->finished && options_has(&c->o, OPT_JSON)) {
        if (cluster_ops_of(k)->status(k, id, &doc, &e) < 0 ||
            !json_is_integer(json_object_get(doc, "exit_code"))) {
            json_decref(doc);
            doc = json_incref(r->summary);
        }
        if (doc && staging)
            (void)json_object_set(doc, "staging", staging);
        printed = doc ? client_print_json(doc) : client_fail(EXIT_CLUSTER, &e);
    } else if (r->finished && r->summary) {
        say_verdict(c, k, id, r->summary);
        if (code != EXIT_DONE)
            say_master_stderr(r->summary);
        printed = client_flush_stdout();
    }
    if (r->finished) {
        const char *state = doc_str(r->summary, "state");
        cluster_settle(k, id, state, str_eq(state, "KILLED"));
    }
    follow_result_done(r);
    return printed ? printed : code;
}

/* ---- run and submit ---- */

/* The exit code if the job cannot be loaded. Usually the job is wrong, but its file may also lie on
 * a cluster that does not answer. */
static int load_exit_code(const struct err *e)
{
    static const int nums[] = { ENOMEM, ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, EAGAIN };
    for (size_t i = 0; i < ARRAY_LEN(nums); i++)
        if (e->num == nums[i])
            return EXIT_CLUSTER;
    return EXIT_MISUSE;
}

int client_submit(struct client *c, struct cluster_job *j, bool owned, struct cluster **out_k,
                  struct cluster_submitted *out, struct err *e)
{
    int rc = client_open(c, j->cluster, j->conf, out_k, e);
    if (rc == 0)
        rc = j->cluster->stage(*out_k, j, e);
    if (rc == 0)
        rc = j->cluster->submit(*out_k, j, owned, out, e);
    struct err why = { 0 };
    if (rc == 0 && !j->cluster->remote && j->spec->restart_on_boot > 0 &&
        pool_unit_for_job(c, &why) < 0)
        client_note("the pool will not start with the machine: %s", why.msg);
    if (rc == 0)
        cluster_remember(*out_k, out->id, owned); /* an owner follows the job meanwhile */
    return rc;
}

/* Follow the submitted job until it has ended or this client stops, and show what happens. */
static int follow_shown(struct client *c, struct cluster *k, const struct cluster_submitted *s,
                        const struct output_wish *wish, struct follow_result *out, struct err *e)
{
    for (size_t i = 0; i < s->said.n && !wish->quiet; i++)
        client_note("%s", s->said.v[i]);
    struct shown shown = { .id = s->id, .render = wish->quiet ? NULL : render_new(c, s->id) };
    output_open(&shown.output, c, shown.render);
    struct follow_options o = { .owns_job = true,
                                .signals = true,
                                .update = show_update,
                                .waits = show_waiting,
                                .say = show_text,
                                .tasks = show_tasks,
                                .output = wish->which,
                                .chosen = wish->chosen,
                                .n_chosen = wish->n_chosen,
                                .log = show_log,
                                .arg = &shown };
    int rc = cluster_follow(k, s->id, &o, out, e);
    if (rc == 0 && out->finished)
        output_rest(&shown.output, k, s->id, wish, out->summary);
    output_close(&shown.output);
    return rc;
}

int cmd_run(struct client *c)
{
    struct err e = { 0 };
    struct cluster_job j;
    struct cluster *k = NULL;
    struct cluster_submitted s = { .id = "" };
    struct follow_result r = { 0 };
    struct output_wish wish;
    if (output_wish(c, &wish, &e) < 0)
        return client_fail(EXIT_MISUSE, &e);
    if (client_job_load(c, &j, &e) < 0)
        return client_fail(load_exit_code(&e), &e);
    if (output_check(&wish, j.spec, &e) < 0) {
        client_job_done(&j);
        return client_fail(EXIT_MISUSE, &e);
    }
    int rc = client_submit(c, &j, true, &k, &s, &e);
    if (rc == 0)
        rc = follow_shown(c, k, &s, &wish, &r, &e);
    int code = rc < 0 ? client_fail(-rc, &e) : finish(c, k, s.id, &r, s.staging);
    cluster_submitted_done(&s);
    cluster_ops_close(TAKE(c->cluster)); /* it uses the configuration of the job */
    client_job_done(&j);
    return code;
}

int cmd_submit(struct client *c)
{
    struct err e = { 0 };
    struct cluster_job j;
    struct cluster *k = NULL;
    struct cluster_submitted s = { .id = "" };
    if (client_job_load(c, &j, &e) < 0)
        return client_fail(load_exit_code(&e), &e);
    int rc = client_submit(c, &j, false, &k, &s, &e), code = EXIT_DONE;
    if (rc < 0) {
        code = client_fail(-rc, &e);
    } else if (options_has(&c->o, OPT_JSON)) {
        code = client_print_json(
            json_pack("{s:s, s:O*}", "application_id", s.id, "staging", s.staging));
    } else {
        (void)printf("%s\n", s.id);
        code = client_flush_stdout();
    }
    cluster_submitted_done(&s);
    cluster_ops_close(TAKE(c->cluster));
    client_job_done(&j);
    return code;
}

/* ---- wait and kill ---- */

int client_wait_one(struct client *c, struct cluster *k, const char *id)
{
    struct err e = { 0 };
    struct follow_options o = { 0 };
    struct follow_result r = { 0 };
    int rc = cluster_follow(k, id, &o, &r, &e);
    return rc < 0 ? client_fail(-rc, &e) : finish(c, k, id, &r, NULL);
}

int cmd_wait(struct client *c)
{
    struct err e = { 0 };
    char id[APP_ID_MAX];
    struct cluster *k = NULL;
    if (c->o.n_args > 1 || options_has(&c->o, OPT_ANY) || options_has(&c->o, OPT_ALL))
        return client_wait_several(c);
    int rc = client_find(c, c->o.args[0], &k, id, &e);
    return rc < 0 ? client_fail(-rc, &e) : client_wait_one(c, k, id);
}

int client_kill(struct client *c, struct cluster *k, const char *id)
{
    struct err e = { 0 };
    struct cluster_stopped s;
    int rc = cluster_stop(k, id, options_has(&c->o, OPT_CHECKPOINT),
                          options_has(&c->o, OPT_NO_WAIT), &s, &e);
    if (rc < 0)
        return client_fail(-rc, &e);
    if (s.was_over)
        client_note("job %s is over already: %s", id, s.state);
    else
        client_note("job %s %s", id, s.finished ? s.state : "is being stopped");
    return EXIT_DONE;
}

int cmd_kill(struct client *c)
{
    struct err e = { 0 };
    char id[APP_ID_MAX];
    struct cluster *k = NULL;
    int rc = client_find(c, c->o.args[0], &k, id, &e);
    return rc < 0 ? client_fail(-rc, &e) : client_kill(c, k, id);
}
