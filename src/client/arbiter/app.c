/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arbiter as an application of its own: an ordinary tony job of one task, which ships the
 * static program `tony-arbiter`, the site files of the cluster and the site's file of tony. YARN
 * restarts the job's master, and the master restarts the task.
 * docs/decisions/0017-the-arbiter-is-a-job.md has the reasons.
 *
 * Commands find the application by its type, its user and its name.
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
#include "hadoop/yarn.h"

#define APP_TYPE "TONY-ARBITER" /* YARN allows 20 characters */
#define NAME_PREFIX "arbiter:"
#define PROGRAM "tony-arbiter"
#define CONF_DIR "arbiter-conf" /* in the working directory of the task */

enum { APPS_MAX = 1000, EXIT_NONE = 1, STOP_LIMIT_MS = 60000, STOP_PAUSE_MS = 100 };

/* ---- the application of a queue ---- */

struct search {
    struct yarn_join join;
    const char *queue, *not_id; /* not_id: an application to skip; NULL = none */
    struct yarn_report found;   /* id "" = none */
};

/* Of several applications, keep the one that was submitted first. */
static void consider(struct search *s, const Hadoop__ApplicationReport *from)
{
    struct yarn_report r;
    if (yarn_report_copy(from, &r) < 0)
        return;
    bool is_ours = str_starts(r.name, NAME_PREFIX) &&
                   arbiter_is_same_queue(r.name + strlen(NAME_PREFIX), s->queue) &&
                   !yarn_app_state_is_final(r.state) && !(s->not_id && str_eq(r.id, s->not_id));
    bool is_first = !s->found.id[0] || r.submitted_ms < s->found.submitted_ms;
    if (!is_ours || !is_first) {
        yarn_report_done(&r);
        return;
    }
    yarn_report_done(&s->found);
    s->found = r;
}

static void on_apps(const Hadoop__GetApplicationsResponse *r, const struct rpc_error *e, void *arg)
{
    struct search *s = arg;
    for (size_t i = 0; r && i < r->n_applications; i++)
        consider(s, r->applications[i]);
    yarn_join_end(&s->join, e ? &e->err : NULL);
}

/* Find the live arbiter of the queue. 0: out->id is "" if there is none; end *out with
 * yarn_report_done(). */
static int find_app_of(struct yarn *y, const char *queue, const char *not_id,
                       struct yarn_report *out, struct err *e)
{
    struct search s = { .join = { .loop = y->loop, .n = 1 }, .queue = queue, .not_id = not_id };
    Hadoop__YarnApplicationState states[] = { HADOOP__YARN_APPLICATION_STATE__NEW,
                                              HADOOP__YARN_APPLICATION_STATE__NEW_SAVING,
                                              HADOOP__YARN_APPLICATION_STATE__SUBMITTED,
                                              HADOOP__YARN_APPLICATION_STATE__ACCEPTED,
                                              HADOOP__YARN_APPLICATION_STATE__RUNNING };
    char *type = (char *)(uintptr_t)APP_TYPE;
    Hadoop__GetApplicationsRequest rq = HADOOP__GET_APPLICATIONS_REQUEST__INIT;
    rq.application_types = &type;
    rq.n_application_types = 1;
    rq.application_states = states;
    rq.n_application_states = ARRAY_LEN(states);
    rq.users = &y->user;
    rq.n_users = 1;
    rq.has_limit = true;
    rq.limit = APPS_MAX;
    if (!yarn_get_applications(y->rpc, &rq, yarn_deadline(y), on_apps, &s))
        return err_set(e, ENOMEM, "cannot ask the ResourceManager: %m");
    yarn_join_wait(&s.join);
    if (s.join.e.num) {
        yarn_report_done(&s.found);
        *e = s.join.e;
        return -e->num;
    }
    *out = s.found;
    return 0;
}

/* ---- the files that are shipped ---- */

/* These keys name files of this machine; their content is in the shipped site file. */
static bool names_local_files(const char *key)
{
    return str_eq(key, "tony.application.hdfs-conf-path") ||
           str_eq(key, "tony.application.yarn-conf-path");
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
static int write_conf(struct yarn *y, const char *dir, struct err *e)
{
    AUTO(buf_done) struct buf site = { 0 };
    json_t *keys = json_object();
    struct conf_entry x;
    for (size_t i = 0; conf_at(y->conf, i, &x); i++)
        if (str_starts(x.key, "tony.") && !str_eq(x.origin, "default") && !names_local_files(x.key))
            (void)json_object_set_new(keys, x.key, json_string(x.value));
    int rc = write_json(dir, "tony-site.yaml", json_pack("{s:o}", "conf", keys), e);
    if (rc == 0 && site_write(y->site, &site) < 0)
        rc = err_set(e, ENOMEM, "cannot write the cluster's configuration: %m");
    return rc == 0 ? write_file(dir, "core-site.xml", buf_span(&site), e) : rc;
}

static json_t *job_doc(struct yarn *y, const char *queue, const char *policy, const char *program,
                       const char *conf_dir)
{
    AUTO(free_p) char *name = str_printf(NAME_PREFIX "%s", queue);
    AUTO(free_p)
    char *command = str_printf("./" PROGRAM " arbiter run --cluster yarn --queue %s%s%s", queue,
                               policy ? " --policy " : "", policy ? policy : "");
    if (!name || !command)
        return NULL;
    json_t *role =
        json_pack("{s:i, s:s, s:i, s:s, s:s, s:i, s:i, s:[i], s:s, s:{s:s, s:s, s:s, s:s}}",
                  "instances", 1, "memory", "128m", "vcores", 1, "command", command, "restart",
                  "on-failure", "max-restarts", -1, "restart-delay", 1000, "no-retry-on",
                  EXIT_MISUSE, "resize", "never", "env", "HADOOP_CONF_DIR", CONF_DIR,
                  "TONY_CONF_DIR", CONF_DIR, "HADOOP_USER_NAME", y->user, "TONY_HOME", "home");
    /* The retry budgets for ends that the arbiter did not cause are as large as the keys allow. */
    json_t *conf =
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i}", "tony.application.type", APP_TYPE,
                  "tony.yarn.queue", queue, "tony.am.memory", "128m", "tony.am.max-attempts", 1000,
                  "tony.task.restarts.preempted", 1000000, "tony.task.restarts.node-lost", 1000000,
                  "tony.task.restarts.disk-failed", 1000000);
    return json_pack("{s:s, s:s, s:s, s:[s, s], s:{s:o}, s:o}", "name", name, "framework",
                     "generic", "cluster", "yarn", "resources", program, conf_dir, "roles",
                     "arbiter", role, "conf", conf);
}

/* Write the job file and all that it ships into the directory. */
static int write_job(struct yarn *y, const char *queue, const char *policy, const char *dir,
                     struct err *e)
{
    AUTO(free_p) char *program = paths_program(PROGRAM);
    AUTO(free_p) char *conf_dir = fs_join(dir, CONF_DIR);
    if (!program) {
        (void)err_set(e, ENOENT, "the program '" PROGRAM "' is not beside tony and not in PATH");
        return err_hint(e, "install tony again, or use: tony arbiter run --queue %s", queue);
    }
    if (!conf_dir)
        return err_set(e, ENOMEM, "cannot start the arbiter: %m");
    if (mkdir(conf_dir, 0700) == -1)
        return err_set(e, errno, "cannot make directory '%s': %m", conf_dir);
    int rc = write_conf(y, conf_dir, e);
    return rc == 0 ? write_json(dir, "job.yaml", job_doc(y, queue, policy, program, conf_dir), e)
                   : rc;
}

/* ---- start ---- */

/* The name becomes part of a command line and of the application's name. */
static int check_queue(const char *queue, struct err *e)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (queue[0] && queue[0] != '-' && !queue[strspn(queue, allowed)])
        return 0;
    return err_set(e, EINVAL,
                   "queue '%s': the name may only have letters, digits, '.', '_' and '-'", queue);
}

static int refuse_second(const struct yarn_report *other, const char *queue, struct err *e)
{
    (void)err_set(e, EEXIST, "you already have an arbiter for queue '%s': %s", queue, other->id);
    return err_hint(e, "to end it: tony arbiter stop --queue %s", queue);
}

static int refuse_if_present(struct yarn *y, const char *queue, struct err *e)
{
    struct yarn_report other = { 0 };
    int rc = find_app_of(y, queue, NULL, &other, e);
    if (rc == 0 && other.id[0])
        rc = refuse_second(&other, queue, e);
    yarn_report_done(&other);
    return rc;
}

static int kill_app(struct client *c, const char *id)
{
    struct err e = { 0 };
    struct cluster *k = NULL;
    int rc = client_open(c, &cluster_yarn, NULL, &k, &e);
    return rc < 0 ? client_fail(-rc, &e) : client_kill(c, k, id);
}

/* Two commands of the user may each have started an arbiter. Keep the one that was submitted
 * first. */
static int yield_to_earlier(struct client *c, struct yarn *y, const char *queue, const char *id,
                            struct err *e)
{
    struct yarn_report this_one = { 0 }, other = { 0 };
    struct err unknown = { 0 };
    int rc = yarn_report(y, id, &this_one, &unknown);
    if (rc == 0)
        rc = find_app_of(y, queue, id, &other, &unknown);
    bool is_second = rc == 0 && other.id[0] &&
                     (other.submitted_ms < this_one.submitted_ms ||
                      (other.submitted_ms == this_one.submitted_ms && strcmp(other.id, id) < 0));
    rc = 0;
    if (is_second) {
        (void)kill_app(c, id); /* it has printed its error */
        rc = refuse_second(&other, queue, e);
    }
    yarn_report_done(&this_one);
    yarn_report_done(&other);
    return rc;
}

static int submit(struct client *c, struct yarn *y, const char *queue, const char *dir,
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
    return rc < 0 ? rc : yield_to_earlier(c, y, queue, id, e);
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

static int say_started(struct client *c, const char *queue, const char *id)
{
    if (options_has(&c->o, OPT_JSON))
        return client_print_json(json_pack("{s:s, s:s}", "queue", queue, "application_id", id));
    client_note("the arbiter of queue '%s' is %s; tony logs %s shows its output", queue, id, id);
    (void)printf("%s\n", id);
    return client_flush_stdout();
}

int arbiter_start(struct client *c, const char *queue)
{
    struct err e = { 0 };
    AUTO(yarn_freep) struct yarn *y = NULL;
    AUTO(free_p) char *dir = NULL;
    char id[APP_ID_MAX] = "";
    const char *policy = options_get(&c->o, OPT_POLICY);
    struct arbiter a = { .queue = queue };
    int rc = check_queue(queue, &e);
    if (rc == 0)
        rc = arbiter_open(c, &y, &e);
    if (rc == 0) {
        policy_settings_read(y->conf, &a.settings);
        rc = arbiter_choose_policy(&a, policy, &e);
    }
    if (rc == 0)
        rc = refuse_if_present(y, queue, &e);
    if (rc == 0)
        rc = make_dir(&dir, &e);
    if (rc == 0)
        rc = write_job(y, queue, policy, dir, &e);
    if (rc == 0)
        rc = submit(c, y, queue, dir, id, &e);
    if (dir)
        (void)fs_remove_tree(AT_FDCWD, dir, NULL); /* files that remain there are never read */
    if (rc < 0)
        return client_fail(e.num == EINVAL || e.num == EEXIST ? EXIT_MISUSE : EXIT_CLUSTER, &e);
    return say_started(c, queue, id);
}

/* ---- stop and status ---- */

static int open_and_find(struct client *c, const char *queue, struct yarn_report *out)
{
    struct err e = { 0 };
    AUTO(yarn_freep) struct yarn *y = NULL;
    int rc = arbiter_open(c, &y, &e);
    if (rc == 0)
        rc = find_app_of(y, queue, NULL, out, &e);
    if (rc < 0)
        return client_fail(EXIT_CLUSTER, &e);
    if (out->id[0])
        return EXIT_DONE;
    (void)err_set(&e, ENOENT, "you have no arbiter for queue '%s'", queue);
    err_hint(&e, "to start one: tony arbiter start --queue %s", queue);
    return client_fail(EXIT_NONE, &e);
}

/* The verdict is known before the application is over. Wait for the end of the application, so that
 * the queue can get another arbiter at once. */
static int await_end(struct client *c, const char *id)
{
    struct err e = { 0 };
    AUTO(yarn_freep) struct yarn *y = NULL;
    int64_t deadline_ms = clock_mono_ms() + STOP_LIMIT_MS;
    int rc = arbiter_open(c, &y, &e);
    for (bool over = false; rc == 0 && !over;) {
        struct yarn_report r = { 0 };
        rc = yarn_report(y, id, &r, &e);
        over = rc == 0 && yarn_app_state_is_final(r.state);
        yarn_report_done(&r);
        if (rc == 0 && !over && clock_mono_ms() > deadline_ms)
            rc = err_set(&e, ETIMEDOUT, "application %s has not ended within %d s", id,
                         STOP_LIMIT_MS / 1000);
        if (rc == 0 && !over)
            host_pause(y->host, STOP_PAUSE_MS);
    }
    return rc < 0 ? client_fail(EXIT_CLUSTER, &e) : EXIT_DONE;
}

int arbiter_stop(struct client *c, const char *queue)
{
    struct yarn_report r = { 0 };
    int code = open_and_find(c, queue, &r);
    if (code == EXIT_DONE)
        code = kill_app(c, r.id);
    if (code == EXIT_DONE)
        code = await_end(c, r.id);
    yarn_report_done(&r);
    return code;
}

static int print_status(struct client *c, const char *queue, const struct yarn_report *r)
{
    const char *state = yarn_app_state_name(r->state);
    char since[32];
    if (options_has(&c->o, OPT_JSON))
        return client_print_json(json_pack("{s:s, s:s, s:s, s:I, s:i, s:s}", "queue", queue,
                                           "application_id", r->id, "state", state, "submitted_ms",
                                           (json_int_t)r->submitted_ms, "attempt", (int)r->attempt,
                                           "url", r->url ? r->url : ""));
    local_time(r->submitted_ms, since, sizeof since);
    (void)printf("the arbiter of queue '%s' is %s: %s, submitted %s\n", queue, r->id, state, since);
    (void)printf("output: tony logs %s\n", r->id);
    if (r->state != HADOOP__YARN_APPLICATION_STATE__RUNNING && r->diagnostics && r->diagnostics[0])
        (void)printf("%s\n", r->diagnostics);
    return client_flush_stdout();
}

int arbiter_status(struct client *c, const char *queue)
{
    struct yarn_report r = { 0 };
    int code = open_and_find(c, queue, &r);
    if (code == EXIT_DONE)
        code = print_status(c, queue, &r);
    yarn_report_done(&r);
    return code;
}
