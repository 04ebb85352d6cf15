/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run, submit, wait, kill.
 */
#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/job/jobconf.h"
#include "client/show/render.h"
#include "cluster/follow.h"
#include "cluster/link.h"
#include "cluster/local/job_keeper.h"
#include "cluster/local/status.h"
#include "cluster/local/submit.h"
#include "cluster/yarn/cmd.h"
#include "conf/conf.h"
#include "loop/loop.h"

static void say_submitted(const struct client *c, const struct client_job *j, const char *id)
{
    AUTO(free_p) char *dir = paths_job(&c->paths, id);
    AUTO(buf_done) struct buf roles = { 0 };
    for (size_t i = 0; i < j->spec->n_roles; i++)
        if (j->spec->roles[i].instances)
            (void)buf_addf(&roles, "%s%s %u", roles.len ? ", " : "", j->spec->roles[i].name,
                           j->spec->roles[i].instances);
    client_note("submitted %s as %s (%s); logs in %s/logs", j->spec->name, id,
                roles.len ? buf_cstr(&roles) : "a single command", dir ? dir : id);
}

/* Print the result of the job: the full status as JSON, or the verdict as text. */
static int finish(struct client *c, const char *id, struct follow_result *r)
{
    int code = r->exit_code;
    if (!r->finished) {
        follow_result_done(r);
        return code;
    }
    struct err e = { 0 };
    if (options_has(&c->o, OPT_JSON)) {
        json_t *doc = NULL;
        int rc = status_load(c, id, &doc, &e);
        int printed = rc < 0 ? client_fail(EXIT_CLUSTER, &e) : client_print_json(doc);
        code = printed ? printed : code;
    } else {
        AUTO(free_p) char *dir = paths_history(&c->paths, id);
        render_verdict(c, id, dir ? dir : c->paths.history, r->summary);
        int printed = client_flush_stdout();
        code = printed ? printed : code;
    }
    await_job_in_history(c, id);
    follow_result_done(r);
    return code;
}

/* The exit code if the job cannot be loaded. Usually the job is wrong, but its file may also lie in
 * an HDFS that does not answer. */
static int load_exit_code(const struct err *e)
{
    static const int nums[] = { ENOMEM, ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, EAGAIN };
    for (size_t i = 0; i < ARRAY_LEN(nums); i++)
        if (e->num == nums[i])
            return EXIT_CLUSTER;
    return EXIT_MISUSE;
}

/* Load the job of the command line and submit it. Returns an exit code; errors were printed.
 * *out_done: the job was for YARN, and the command is complete. */
static int submit(struct client *c, bool owned, char out_id[APP_ID_MAX], struct conn **out_pool,
                  bool *out_done)
{
    struct err e = { 0 };
    struct client_job j;
    if (client_job_load(c, &j, &e) < 0)
        return client_fail(load_exit_code(&e), &e);
    *out_done = j.yarn;
    if (j.yarn) {
        int code = owned ? yarn_cmd_run(c, &j) : yarn_cmd_submit(c, &j);
        client_job_done(&j);
        return code;
    }
    int rc = submit_job(c, &j, owned, out_id, out_pool, &e);
    if (rc == 0 && owned)
        say_submitted(c, &j, out_id);
    client_job_done(&j);
    return rc < 0 ? client_fail(-rc, &e) : EXIT_DONE;
}

int cmd_run(struct client *c)
{
    char id[APP_ID_MAX];
    struct conn *pool = NULL;
    bool done = false;
    int code = submit(c, true, id, &pool, &done);
    if (code || done)
        return code;

    struct err e = { 0 };
    struct render *render = render_new(c, id);
    struct follow_options o = { .owns_job = true, .signals = true, .render = render };
    struct follow_result r;
    int rc = follow_job(c, id, pool, &o, &r, &e);
    render_free(render);
    return rc < 0 ? client_fail(EXIT_CLUSTER, &e) : finish(c, id, &r);
}

int cmd_submit(struct client *c)
{
    char id[APP_ID_MAX];
    struct conn *pool = NULL;
    bool done = false;
    int code = submit(c, false, id, &pool, &done);
    conn_close(pool);
    if (code || done)
        return code;
    if (options_has(&c->o, OPT_JSON))
        return client_print_json(json_pack("{s:s}", "application_id", id));
    (void)printf("%s\n", id);
    return client_flush_stdout();
}

int cmd_wait(struct client *c)
{
    struct err e = { 0 };
    char id[APP_ID_MAX];
    if (find_on_yarn(c, c->o.args[0]))
        return yarn_cmd_wait(c, c->o.args[0]);
    if (find_app(c, c->o.args[0], id, &e) < 0)
        return client_fail(find_exit_code(&e), &e);
    struct follow_options o = { 0 };
    struct follow_result r = { 0 };
    int rc = follow_history(c, id, &r, &e);
    if (rc == -EBUSY)
        rc = follow_job(c, id, NULL, &o, &r, &e);
    return rc < 0 ? client_fail(EXIT_CLUSTER, &e) : finish(c, id, &r);
}

int cmd_kill(struct client *c)
{
    struct err e = { 0 };
    char id[APP_ID_MAX];
    if (find_on_yarn(c, c->o.args[0]))
        return yarn_cmd_kill(c, c->o.args[0]);
    if (find_app(c, c->o.args[0], id, &e) < 0)
        return client_fail(find_exit_code(&e), &e);

    struct follow_result r = { 0 };
    int rc = follow_history(c, id, &r, &e);
    if (rc == 0) {
        client_note("job %s is over already: %s", id, doc_str(r.summary, "state"));
        await_job_in_history(c, id);
        follow_result_done(&r);
        return EXIT_DONE;
    }
    if (rc == -EBUSY) {
        struct follow_options o = { .stop = options_has(&c->o, OPT_CHECKPOINT)
                                                ? "stopped with a checkpoint"
                                                : "killed by the user",
                                    .checkpoint = options_has(&c->o, OPT_CHECKPOINT),
                                    .return_when_stopping = options_has(&c->o, OPT_NO_WAIT) };
        rc = follow_job(c, id, NULL, &o, &r, &e);
    }
    if (rc < 0)
        return client_fail(EXIT_CLUSTER, &e);
    client_note("job %s %s", id, r.finished ? doc_str(r.summary, "state") : "is being stopped");
    if (r.finished)
        await_job_in_history(c, id);
    follow_result_done(&r);
    return EXIT_DONE;
}
