/*
 * run, submit, wait and kill on YARN.
 */
#include <errno.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/follow.h"
#include "client/jobconf.h"
#include "client/render.h"
#include "client/yarn.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"
#include "loop/loop.h"

static int fail(int rc, const struct err *e)
{
    return client_fail(rc < 0 ? -rc : EXIT_CLUSTER, e);
}

static void say_submitted(struct yarn *y, const struct client_job *j, const char *id)
{
    client_note("submitted %s as %s to queue %s", j->spec->name, id, j->spec->queue);
    if (y->web)
        client_note("http://%s/cluster/app/%s", y->web, id);
}

/* The log of the task that is the cause, out of the tasks of the document. */
static const char *cause_log(const json_t *doc)
{
    const char *cause = doc_str(json_object_get(doc, "cause"), "task");
    size_t i;
    json_t *task;
    json_array_foreach(
        json_object_get(doc, "tasks"), i,
        task) if (cause[0] && str_eq(doc_str(task, "task"), cause)) return doc_str(task, "log_url");
    return "";
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
    (void)fs_write_all(2, out.p, out.len); /* nowhere else to say it */
}

static int finish(struct yarn *y, const char *id, struct follow_result *r, const json_t *staging)
{
    struct client *c = y->c;
    int code = r->exit_code;
    if (r->finished && options_has(&c->o, OPT_JSON)) {
        struct err e = { 0 };
        json_t *doc = NULL;
        if (yarn_status(y, id, &doc, &e) < 0 ||
            !json_is_integer(json_object_get(doc, "exit_code"))) {
            json_decref(doc);
            doc = json_incref(r->summary);
        }
        if (doc && staging)
            (void)json_object_set(doc, "staging", (json_t *)(uintptr_t)staging);
        int printed = client_print_json(doc);
        code = printed ? printed : code;
    } else if (r->finished && r->summary) {
        const char *log = cause_log(r->summary), *master = doc_str(r->summary, "log_url");
        AUTO(free_p) char *history = str_printf("hdfs:%s/%s", y->history, id);
        AUTO(free_p)
        char *logs = str_printf("tony logs %s%s%s", id, master[0] ? "; master: " : "", master);
        render_verdict_at(c, id, logs, history, log[0] ? log : NULL, r->summary);
        if (code != EXIT_DONE)
            say_master_stderr(r->summary);
        int printed = client_flush_stdout();
        code = printed ? printed : code;
    }
    follow_result_done(r);
    return code;
}

int yarn_cmd_run(struct client *c, struct client_job *j)
{
    struct err e = { 0 };
    AUTO(yarn_freep) struct yarn *y = NULL;
    struct yarn_job job = { .id = "" };
    int rc = yarn_open(c, j->conf, &y, &e);
    if (rc == 0)
        rc = yarn_submit(y, j, true, &job, &e);
    if (rc < 0)
        return fail(rc, &e);
    say_submitted(y, j, job.id);
    struct render *render = render_new(c, job.id);
    struct follow_options o = { .own = true, .signals = true, .render = render };
    struct follow_result r;
    rc = yarn_follow(y, job.id, &job.key, &o, &r, &e);
    render_free(render);
    int code = rc < 0 ? fail(rc, &e) : finish(y, job.id, &r, job.staging);
    yarn_job_done(&job);
    return code;
}

/* The ResourceManager takes a job first and judges it a moment later. */
static int await_acceptance(struct yarn *y, const char *id, struct err *e)
{
    for (;;) {
        struct yarn_report r = { 0 };
        if (yarn_report(y, id, &r, e) < 0)
            return -EXIT_CLUSTER;
        bool waits = r.state < HADOOP__YARN_APPLICATION_STATE__ACCEPTED;
        bool refused = r.state == HADOOP__YARN_APPLICATION_STATE__FAILED && r.attempt <= 0;
        char line[300];
        yarn_first_line(r.diagnostics, line, sizeof line);
        yarn_report_done(&r);
        if (refused) {
            (void)err_set(e, EINVAL, "the cluster refused the job: %s", line);
            return -EXIT_MISUSE;
        }
        if (!waits)
            return 0;
    }
}

int yarn_cmd_submit(struct client *c, struct client_job *j)
{
    struct err e = { 0 };
    AUTO(yarn_freep) struct yarn *y = NULL;
    struct yarn_job job = { .id = "" };
    int rc = yarn_open(c, j->conf, &y, &e);
    if (rc == 0)
        rc = yarn_submit(y, j, false, &job, &e);
    if (rc == 0)
        rc = await_acceptance(y, job.id, &e);
    int code = EXIT_DONE;
    if (rc < 0) {
        code = fail(rc, &e);
    } else if (options_has(&c->o, OPT_JSON)) {
        code = client_print_json(
            json_pack("{s:s, s:O}", "application_id", job.id, "staging", job.staging));
    } else {
        (void)printf("%s\n", job.id);
        code = client_flush_stdout();
    }
    yarn_job_done(&job);
    return code;
}

int yarn_cmd_wait(struct client *c, const char *word)
{
    struct err e = { 0 };
    AUTO(yarn_freep) struct yarn *y = NULL;
    char id[APP_ID_MAX];
    struct follow_options o = { 0 };
    struct follow_result r = { 0 };
    int rc = yarn_open(c, NULL, &y, &e);
    if (rc == 0)
        rc = yarn_find(y, word, id, &e);
    if (rc == 0)
        rc = yarn_follow(y, id, NULL, &o, &r, &e);
    return rc < 0 ? fail(rc, &e) : finish(y, id, &r, NULL);
}

int yarn_cmd_kill(struct client *c, const char *word)
{
    struct err e = { 0 };
    AUTO(yarn_freep) struct yarn *y = NULL;
    char id[APP_ID_MAX];
    struct yarn_report now = { 0 };
    int rc = yarn_open(c, NULL, &y, &e);
    if (rc == 0)
        rc = yarn_find(y, word, id, &e);
    if (rc == 0 && yarn_report(y, id, &now, &e) < 0)
        rc = e.num == ENOENT || e.num == EINVAL ? -EXIT_MISUSE : -EXIT_CLUSTER;
    if (rc < 0)
        return fail(rc, &e);
    if (yarn_app_state_is_final(now.state)) {
        client_note("job %s is over already: %s", id, yarn_app_state_name(now.state));
        yarn_report_done(&now);
        return EXIT_DONE;
    }
    yarn_report_done(&now);
    struct follow_options o = { .stop = "killed by the user",
                                .told = options_has(&c->o, OPT_NO_WAIT) };
    struct follow_result r;
    rc = yarn_follow(y, id, NULL, &o, &r, &e);
    if (rc < 0)
        return fail(rc, &e);
    client_note("job %s %s", id, r.finished ? doc_str(r.summary, "state") : "is being stopped");
    follow_result_done(&r);
    return EXIT_DONE;
}
