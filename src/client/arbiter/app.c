/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arbiter as an application of its own: an ordinary tony job of one task, which ships the
 * static program `tony`, the site's file of tony, and what else the cluster needs
 * (prepare_app() of cluster/queue.h). The cluster restarts the job's master, and the master
 * restarts the task. docs/decisions/0017-the-arbiter-is-a-job.md has the reasons.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/arbiter/arbiter.h"
#include "client/client_int.h"
#include "client/job/jobconf.h"
#include "conf/conf.h"

/* The name under which the task runs the program `tony`, for ps(1). */
#define IN_TASK "tony-arbiter"
#define CONF_DIR "arbiter-conf" /* in the working directory of the task */

enum {
    EXIT_NONE = 1,         /* exit code of `status` and `stop` if the queue has no arbiter */
    STOP_LIMIT_MS = 60000, /* `stop` waits at most this time for the end of the arbiter */
    STOP_PAUSE_MS = 100,   /* between two checks whether it has ended */
};

/* ---- the files that are shipped ---- */

static bool is_local_setting(const struct queue_ops *ops, const char *key)
{
    const char *const *x = ops->local_settings;
    while (x && *x && !str_eq(*x, key))
        x++;
    return x && *x;
}

static int write_file(const char *dir, const char *name, struct span text, struct err *e)
{
    AUTO(free_p) char *path = fs_join(dir, name);
    return path ? fs_write_atomic(AT_FDCWD, path, text, 0600, false, e)
                : err_set(e, ENOMEM, "cannot write '%s': %m", name);
}

static int write_json(const char *dir, const char *name, json_t *doc, struct err *e)
{
    AUTO(free_p) char *text = doc ? json_dumps(doc, 0) : NULL;
    json_decref(doc);
    return text ? write_file(dir, name, span_of(text), e)
                : err_set(e, ENOMEM, "cannot write '%s': %m", name);
}

/* Write the configuration that the arbiter reads on its node. JSON is YAML. */
static int write_conf(const struct arbiter_at *at, const char *dir, struct err *e)
{
    json_t *keys = json_object();
    struct conf_entry x;
    for (size_t i = 0; conf_at(at->conf, i, &x); i++)
        if (str_starts(x.key, "tony.") && !str_eq(x.origin, "default") &&
            !is_local_setting(at->ops, x.key))
            (void)json_object_set_new(keys, x.key, json_string(x.value));
    return write_json(dir, "tony-site.yaml", json_pack("{s:o}", "conf", keys), e);
}

/* Takes conf and env. */
static json_t *job_doc(const struct arbiter_at *at, const char *policy, const char *program,
                       const char *conf_dir, json_t *conf, json_t *env)
{
    AUTO(free_p) char *name = str_printf(QUEUE_APP_PREFIX "%s", at->queue);
    AUTO(free_p)
    char *command =
        str_printf("./" IN_TASK " arbiter run --cluster %s --queue %s%s%s", at->cluster->name,
                   at->queue, policy ? " --policy " : "", policy ? policy : "");
    if (!name || !command) {
        json_decref(conf);
        json_decref(env);
        return NULL;
    }
    json_t *role = json_pack("{s:i, s:s, s:i, s:s, s:s, s:i, s:i, s:[i], s:s, s:o}", "instances", 1,
                             "memory", "128m", "vcores", 1, "command", command, "restart",
                             "on-failure", "max-restarts", -1, "restart-delay", 1000, "no-retry-on",
                             EXIT_MISUSE, "resize", "never", "env", env);
    return json_pack("{s:s, s:s, s:s, s:[s, s], s:{s:o}, s:o}", "name", name, "framework",
                     "generic", "cluster", at->cluster->name, "resources", program, conf_dir,
                     "roles", "arbiter", role, "conf", conf);
}

/* Write the job file, and what else the job ships, with the cluster's part of both. */
static int write_job_file(const struct arbiter_at *at, const char *policy, const char *program,
                          const char *conf_dir, const char *dir, struct err *e)
{
    /* The retry budgets for ends that the arbiter did not cause are as large as the keys allow. */
    json_t *conf = json_pack("{s:i, s:i, s:i}", "tony.task.restarts.preempted", 1000000,
                             "tony.task.restarts.node-lost", 1000000,
                             "tony.task.restarts.disk-failed", 1000000);
    json_t *env = json_pack("{s:s}", "TONY_CONF_DIR", CONF_DIR);
    struct queue_app app = {
        .queue = at->queue, .conf_dir = conf_dir, .in_task = CONF_DIR, .conf = conf, .env = env
    };
    int rc = at->ops->prepare_app(at->k, &app, e);
    if (rc == 0)
        return write_json(dir, "job.yaml", job_doc(at, policy, program, conf_dir, conf, env), e);
    json_decref(conf);
    json_decref(env);
    return rc;
}

/* Write the job file and all that it ships into the directory. */
static int write_job(const struct arbiter_at *at, const char *policy, const char *dir,
                     struct err *e)
{
    AUTO(free_p) char *program = paths_program("tony");
    AUTO(free_p) char *shipped = program ? str_printf("%s::" IN_TASK, program) : NULL;
    AUTO(free_p) char *conf_dir = fs_join(dir, CONF_DIR);
    if (!program) {
        (void)err_set(e, ENOENT, "cannot find the program 'tony' beside this one or on PATH");
        return err_hint(e, "install tony again, or use: tony arbiter run --queue %s", at->queue);
    }
    if (!shipped || !conf_dir)
        return err_set(e, ENOMEM, "cannot start the arbiter: %m");
    if (mkdir(conf_dir, 0700) == -1)
        return err_set(e, errno, "cannot make directory '%s': %m", conf_dir);
    int rc = write_conf(at, conf_dir, e);
    return rc == 0 ? write_job_file(at, policy, shipped, conf_dir, dir, e) : rc;
}

/* ---- start ---- */

/* The name becomes part of a command line and of the application's name. */
static int check_queue(const struct arbiter_at *at, struct err *e)
{
    const char *queue = at->queue;
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (queue[0] && queue[0] != '-' && !queue[strspn(queue, allowed)])
        return 0;
    return err_set(e, EINVAL, "%s '%s': the name may only have letters, digits, '.', '_' and '-'",
                   at->ops->what, queue);
}

static int refuse_second(const struct arbiter_at *at, const char *other, struct err *e)
{
    (void)err_set(e, EEXIST, "you already have an arbiter for %s '%s': %s", at->ops->what,
                  at->queue, other);
    return err_hint(e, "to end it: tony arbiter stop --queue %s", at->queue);
}

static int refuse_if_present(const struct arbiter_at *at, struct err *e)
{
    struct cluster_report other = { 0 };
    int rc = at->ops->find_app(at->k, at->queue, NULL, &other, e);
    if (rc == 0 && other.id[0])
        rc = refuse_second(at, other.id, e);
    cluster_report_done(&other);
    return rc;
}

static int kill_app(struct client *c, const struct arbiter_at *at, const char *id)
{
    struct err e = { 0 };
    struct cluster *k = NULL;
    int rc = client_open(c, at->cluster, NULL, &k, &e);
    return rc < 0 ? client_fail(-rc, &e) : client_kill(c, k, id);
}

/* Two commands of the user may each have started an arbiter. Keep the one that was submitted
 * first. */
static int yield_to_earlier(struct client *c, const struct arbiter_at *at, const char *id,
                            struct err *e)
{
    struct cluster_report this_one = { 0 }, other = { 0 };
    struct err unknown = { 0 };
    int rc = at->cluster->report(at->k, id, &this_one, &unknown);
    if (rc == 0)
        rc = at->ops->find_app(at->k, at->queue, id, &other, &unknown);
    bool is_second = rc == 0 && other.id[0] &&
                     (other.submitted_ms < this_one.submitted_ms ||
                      (other.submitted_ms == this_one.submitted_ms && strcmp(other.id, id) < 0));
    rc = 0;
    if (is_second) {
        (void)kill_app(c, at, id); /* it has printed its error */
        rc = refuse_second(at, other.id, e);
    }
    cluster_report_done(&this_one);
    cluster_report_done(&other);
    return rc;
}

static int submit(struct client *c, const struct arbiter_at *at, const char *dir,
                  char id[APP_ID_MAX], struct err *e)
{
    AUTO(free_p) char *path = fs_join(dir, "job.yaml");
    struct cluster_job j = { 0 };
    struct cluster *k = NULL;
    struct cluster_submitted job = { .id = "" };
    if (!path)
        return err_set(e, ENOMEM, "cannot start the arbiter: %m");
    c->o.args[0] = path;
    c->o.n_args = 1;
    int rc = client_job_load(c, &j, e);
    if (rc == 0)
        rc = client_submit(c, &j, false, &k, &job, e);
    (void)str_copy(id, APP_ID_MAX, job.id);
    cluster_submitted_done(&job);
    cluster_ops_close(TAKE(c->cluster)); /* it uses the configuration of the job */
    client_job_done(&j);
    c->o.args[0] = "start";
    return rc < 0 ? rc : yield_to_earlier(c, at, id, e);
}

static int make_dir(char **out, struct err *e)
{
    const char *tmp = getenv("TMPDIR");
    char *dir = str_printf("%s/tony-arbiter-XXXXXX", tmp && tmp[0] == '/' ? tmp : "/tmp");
    if (!dir || !mkdtemp(dir)) {
        int rc = err_set(e, dir ? errno : ENOMEM, "cannot make a temporary directory: %m");
        free(dir);
        return rc;
    }
    *out = dir;
    return 0;
}

static int say_started(struct client *c, const struct arbiter_at *at, const char *id)
{
    if (options_has(&c->o, OPT_JSON))
        return client_print_json(json_pack("{s:s, s:s}", "queue", at->queue, "application_id", id));
    client_note("the arbiter of %s '%s' is %s; tony logs %s shows its output", at->ops->what,
                at->queue, id, id);
    (void)printf("%s\n", id);
    return client_flush_stdout();
}

int arbiter_start(struct client *c, struct arbiter_at *at)
{
    struct err e = { 0 };
    AUTO(free_p) char *dir = NULL;
    char id[APP_ID_MAX] = "";
    const char *policy = options_get(&c->o, OPT_POLICY);
    struct arbiter a = { .queue = at->queue };
    int rc = check_queue(at, &e);
    if (rc == 0)
        rc = arbiter_open(c, at, &e);
    if (rc == 0) {
        policy_settings_read(at->conf, &a.settings);
        rc = arbiter_choose_policy(&a, policy, &e);
    }
    if (rc == 0)
        rc = refuse_if_present(at, &e);
    if (rc == 0)
        rc = make_dir(&dir, &e);
    if (rc == 0)
        rc = write_job(at, policy, dir, &e);
    if (rc == 0)
        rc = submit(c, at, dir, id, &e);
    arbiter_close(at);
    if (dir)
        (void)fs_remove_tree(AT_FDCWD, dir, NULL); /* files that remain there are never read */
    if (rc < 0)
        return client_fail(e.num == EINVAL || e.num == EEXIST ? EXIT_MISUSE : EXIT_CLUSTER, &e);
    return say_started(c, at, id);
}

/* ---- stop and status ---- */

static int open_and_find(struct client *c, struct arbiter_at *at, struct cluster_report *out)
{
    struct err e = { 0 };
    int rc = arbiter_open(c, at, &e);
    if (rc == 0)
        rc = at->ops->find_app(at->k, at->queue, NULL, out, &e);
    arbiter_close(at);
    if (rc < 0)
        return client_fail(EXIT_CLUSTER, &e);
    if (out->id[0])
        return EXIT_DONE;
    (void)err_set(&e, ENOENT, "you have no arbiter for %s '%s'", at->ops->what, at->queue);
    err_hint(&e, "to start one: tony arbiter start --queue %s", at->queue);
    return client_fail(EXIT_NONE, &e);
}

/* The verdict is known before the application is over. Wait for the end of the application, so that
 * the queue can get another arbiter at once. */
static int await_end(struct client *c, struct arbiter_at *at, const char *id)
{
    struct err e = { 0 };
    int64_t deadline_ms = clock_mono_ms() + STOP_LIMIT_MS;
    int rc = arbiter_open(c, at, &e);
    for (bool over = false; rc == 0 && !over;) {
        struct cluster_report r = { 0 };
        rc = at->cluster->report(at->k, id, &r, &e);
        over = rc == 0 && r.phase == CLUSTER_OVER;
        cluster_report_done(&r);
        if (rc == 0 && !over && clock_mono_ms() > deadline_ms)
            rc = err_set(&e, ETIMEDOUT, "application %s has not ended within %d s", id,
                         STOP_LIMIT_MS / 1000);
        if (rc == 0 && !over)
            host_pause(&c->host, STOP_PAUSE_MS);
    }
    arbiter_close(at);
    return rc < 0 ? client_fail(EXIT_CLUSTER, &e) : EXIT_DONE;
}

int arbiter_stop(struct client *c, struct arbiter_at *at)
{
    struct cluster_report r = { 0 };
    int code = open_and_find(c, at, &r);
    if (code == EXIT_DONE)
        code = kill_app(c, at, r.id);
    if (code == EXIT_DONE)
        code = await_end(c, at, r.id);
    cluster_report_done(&r);
    return code;
}

static int print_status(struct client *c, const struct arbiter_at *at,
                        const struct cluster_report *r)
{
    char since[32];
    if (options_has(&c->o, OPT_JSON))
        return client_print_json(json_pack("{s:s, s:s, s:s, s:I, s:i, s:s}", "queue", at->queue,
                                           "application_id", r->id, "state", r->state,
                                           "submitted_ms", (json_int_t)r->submitted_ms, "attempt",
                                           (int)r->at.attempt, "url", r->url ? r->url : ""));
    local_time(r->submitted_ms, since, sizeof since);
    (void)printf("the arbiter of %s '%s' is %s: %s, submitted %s\n", at->ops->what, at->queue,
                 r->id, r->state, since);
    (void)printf("output: tony logs %s\n", r->id);
    if ((r->phase == CLUSTER_WAITING || r->phase == CLUSTER_UNKNOWN) && r->message && r->message[0])
        (void)printf("%s\n", r->message);
    return client_flush_stdout();
}

int arbiter_status(struct client *c, struct arbiter_at *at)
{
    struct cluster_report r = { 0 };
    int code = open_and_find(c, at, &r);
    if (code == EXIT_DONE)
        code = print_status(c, at, &r);
    cluster_report_done(&r);
    return code;
}
