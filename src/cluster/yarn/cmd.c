/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run, submit, wait and kill on YARN.
 */
#include <errno.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/job/jobconf.h"
#include "client/show/render.h"
#include "cluster/follow.h"
#include "cluster/yarn/yarn.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"
#include "history/history.h"
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

/* The URL of the log of the task that is the cause, from the tasks of the document. */
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
    (void)fs_write_all(2, out.p, out.len); /* if stderr fails, there is nowhere to report it */
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
        /* If only the ResourceManager knows the job, there is no history and there are no logs. */
        bool kept = !json_object_get(r->summary, "yarn_state");
        AUTO(free_p) char *history = kept ? str_printf("hdfs:%s/%s", y->history, id) : NULL;
        AUTO(free_p)
        char *logs =
            kept ? str_printf("tony logs %s%s%s", id, master[0] ? "; master: " : "", master) : NULL;
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
    struct follow_options o = { .owns_job = true, .signals = true, .render = render };
    struct follow_result r;
    rc = yarn_follow(y, job.id, &job.key, &o, &r, &e);
    render_free(render);
    int code = rc < 0 ? fail(rc, &e) : finish(y, job.id, &r, job.staging);
    yarn_job_done(&job);
    return code;
}

int yarn_cmd_submit(struct client *c, struct client_job *j)
{
    struct err e = { 0 };
    AUTO(yarn_freep) struct yarn *y = NULL;
    struct yarn_job job = { .id = "" };
    int rc = yarn_open(c, j->conf, &y, &e);
    if (rc == 0)
        rc = yarn_submit(y, j, false, &job, &e);
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
    struct follow_options o = { .stop = options_has(&c->o, OPT_CHECKPOINT)
                                            ? "stopped with a checkpoint"
                                            : "killed by the user",
                                .checkpoint = options_has(&c->o, OPT_CHECKPOINT),
                                .return_when_stopping = options_has(&c->o, OPT_NO_WAIT) };
    struct follow_result r;
    rc = yarn_follow(y, id, NULL, &o, &r, &e);
    if (rc < 0)
        return fail(rc, &e);
    client_note("job %s %s", id, r.finished ? doc_str(r.summary, "state") : "is being stopped");
    follow_result_done(&r);
    return EXIT_DONE;
}

int yarn_cmd_load(struct client *c, const char *word, json_t **out)
{
    struct err e = { 0 };
    AUTO(yarn_freep) struct yarn *y = NULL;
    char id[APP_ID_MAX];
    int rc = yarn_open(c, NULL, &y, &e);
    if (rc == 0)
        rc = yarn_find(y, word, id, &e);
    if (rc == 0)
        rc = yarn_status(y, id, out, &e);
    return rc < 0 ? fail(rc, &e) : EXIT_DONE;
}

/* ---- list: jobs of the cluster and of this machine ---- */

static int add_local(struct client *c, json_t *jobs, struct err *e)
{
    struct history_rows rows = { 0 };
    if (client_look_paths(c, e) < 0 || history_list(&c->paths, 0, &rows, e) < 0)
        return -EXIT_CLUSTER;
    for (size_t i = 0; i < rows.n; i++) {
        json_t *job = list_row_json(&rows.v[i]);
        (void)json_object_set_new(job, "cluster", json_string("local"));
        (void)json_array_append_new(jobs, job);
    }
    history_rows_done(&rows);
    return 0;
}

static int newest_first(const void *a, const void *b)
{
    json_t *const *x = a, *const *y = b;
    int64_t p = doc_int(*x, "submitted_ms", 0), q = doc_int(*y, "submitted_ms", 0);
    return p < q ? 1 : p > q ? -1 : 0;
}

static void print_jobs(const json_t *jobs)
{
    struct table t = { .n_cols = 6 };
    size_t i;
    json_t *job;
    table_add(&t, "APPLICATION", "NAME", "STATE", "CLUSTER", "SUBMITTED", "RAN", NULL);
    json_array_foreach(jobs, i, job)
    {
        char submitted[32], ran[32] = "";
        int64_t ran_ms = doc_int(job, "ran_ms", -1);
        local_time(doc_int(job, "submitted_ms", 0), submitted, sizeof submitted);
        if (ran_ms >= 0)
            (void)str_duration(ran_ms, ran, sizeof ran);
        table_add(&t, doc_str(job, "application_id"), doc_str(job, "name"), doc_str(job, "state"),
                  doc_str(job, "cluster"), submitted, ran, NULL);
    }
    table_print(&t);
}

int yarn_cmd_list(struct client *c, size_t n)
{
    struct err e = { 0 };
    AUTO(yarn_freep) struct yarn *y = NULL;
    json_t *all = json_array(), *jobs = json_array();
    int rc = yarn_open(c, NULL, &y, &e);
    if (rc == 0)
        rc = yarn_list(y, all, &e);
    bool no_cluster = rc < 0 && !options_has(&c->o, OPT_CLUSTER);
    if (no_cluster) /* show the jobs of this machine nevertheless */
        client_note("the cluster's jobs are not known: %s", e.msg);
    if (!options_has(&c->o, OPT_CLUSTER))
        rc = add_local(c, all, &e);
    size_t total = json_array_size(all);
    AUTO(free_p) json_t **v = calloc(total + 1, sizeof *v);
    for (size_t i = 0; v && i < total; i++)
        v[i] = json_array_get(all, i);
    if (v)
        qsort(v, total, sizeof *v, newest_first);
    for (size_t i = 0; v && i < total && (!n || i < n); i++)
        (void)json_array_append(jobs, v[i]);
    json_decref(all);
    if (rc < 0) {
        json_decref(jobs);
        return fail(rc, &e);
    }
    int code = EXIT_DONE;
    if (options_has(&c->o, OPT_JSON)) {
        code = client_print_json(json_pack("{s:O}", "jobs", jobs));
    } else {
        if (total > 0)
            print_jobs(jobs);
        else if (!no_cluster)
            client_note("no jobs of yours on the cluster");
        code = client_flush_stdout();
        if (n && total > n)
            client_note("there are more: --all shows them");
    }
    json_decref(jobs);
    return no_cluster && code == EXIT_DONE ? EXIT_CLUSTER : code;
}

/* ---- plan: the resources of the cluster ---- */

static json_t *capacity(const struct yarn_facts *f)
{
    int64_t memory = 0, vcores = 0, gpus = 0;
    for (size_t i = 0; i < f->nodes.n; i++) {
        const struct yarn_node *n = &f->nodes.v[i];
        memory += n->memory_mib;
        vcores += n->vcores;
        for (size_t k = 0; k < n->types.n; k++)
            if (str_eq(n->types.v[k].name, "yarn.io/gpu"))
                gpus += n->types.v[k].n;
    }
    return json_pack("{s:I, s:I, s:I, s:i}", "memory_mib", (json_int_t)memory, "vcores",
                     (json_int_t)vcores, "gpus", (json_int_t)gpus, "nodes", (int)f->nodes.n);
}

int yarn_plan(struct client *c, const struct client_job *j, json_t **out, struct err *e)
{
    AUTO(yarn_freep) struct yarn *y = NULL;
    struct yarn_facts f = { 0 };
    struct yarn_ask *ask = NULL;
    struct strv notes = { 0 };
    int rc = yarn_open(c, j->conf, &y, e);
    struct yarn_join join = { .loop = c->loop };
    if (rc == 0)
        rc = yarn_ask_begin(y, j, &join, &f, NULL, &ask, e);
    if (rc == 0) {
        yarn_join_wait(&join);
        rc = yarn_ask_finish(ask, e);
    }
    if (rc == 0) {
        *out = capacity(&f);
        if (yarn_check(&f, j, &notes, e) < 0)
            rc = -yarn_exit_code(e);
    }
    for (size_t i = 0; i < notes.n; i++)
        client_note("%s", notes.v[i]);
    strv_done(&notes);
    yarn_ask_free(ask);
    yarn_facts_done(&f);
    return rc;
}

/* ---- a job file in HDFS ---- */

int yarn_job_file(struct client *c, const char *url, struct buf *out, struct err *e)
{
    AUTO(yarn_freep) struct yarn *y = NULL;
    int rc = yarn_open(c, NULL, &y, e);
    if (rc == 0)
        rc = yarn_home(y, e);
    AUTO(free_p) char *path = rc == 0 ? yarn_path_of(y, url, e) : NULL;
    if (!path)
        return -e->num;
    return yarn_read(y, path, out->max, out, e);
}
