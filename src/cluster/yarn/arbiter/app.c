/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arbiter as an application of its own on YARN, and its key in the home of its user in HDFS.
 * Commands find the application by its type, its user and its name.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "cluster/yarn/arbiter/arbiter.h"
#include "cluster/yarn/yarn.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"

enum { APPS_MAX = 1000, KEY_FILE_MAX = 4096 };

#define APP_TYPE "TONY-ARBITER" /* of its application; YARN allows 20 characters */

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
    bool is_ours = str_starts(r.name, QUEUE_APP_PREFIX) &&
                   arbiter_is_same_queue(r.name + strlen(QUEUE_APP_PREFIX), s->queue) &&
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

static int find_app(struct cluster *k, const char *queue, const char *not_id,
                    struct cluster_report *out, struct err *e)
{
    struct yarn *y = yarn_of(k);
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
    *out = (struct cluster_report){ .id = "" };
    int rc = s.found.id[0] ? yarn_cluster_report(y, &s.found, out) : 0;
    yarn_report_done(&s.found);
    return rc < 0 ? err_set(e, ENOMEM, "cannot ask the ResourceManager: %m") : 0;
}

/* ---- its job ---- */

/* The client's Hadoop configuration, as one file in which all variables are replaced. */
static int write_site(struct yarn *y, const char *dir, struct err *e)
{
    AUTO(buf_done) struct buf site = { 0 };
    AUTO(free_p) char *path = fs_join(dir, "core-site.xml");
    if (!path || site_write(y->site, &site) < 0)
        return err_set(e, ENOMEM, "cannot write the cluster's configuration: %m");
    return fs_write_atomic(AT_FDCWD, path, buf_span(&site), 0600, false, e);
}

static int prepare_app(struct cluster *k, struct queue_app *a, struct err *e)
{
    struct yarn *y = yarn_of(k);
    json_t *conf =
        json_pack("{s:s, s:s, s:s, s:i}", "tony.application.type", APP_TYPE, "tony.yarn.queue",
                  a->queue, "tony.am.memory", "128m", "tony.am.max-attempts", 1000);
    json_t *env = json_pack("{s:s, s:s, s:s}", "HADOOP_CONF_DIR", a->in_task, "HADOOP_USER_NAME",
                            y->user, "TONY_HOME", "home");
    int rc = json_object_update(a->conf, conf) == 0 && json_object_update(a->env, env) == 0
                 ? write_site(y, a->conf_dir, e)
                 : err_set(e, ENOMEM, "cannot start the arbiter: %m");
    json_decref(conf);
    json_decref(env);
    return rc;
}

/* ---- its key ---- */

static char *secret_path(struct yarn *y, struct err *e)
{
    char *path = yarn_home(y, e) == 0 ? str_printf("%s/arbiter.key", y->dir) : NULL;
    if (!path && !e->num)
        (void)err_set(e, ENOMEM, "cannot read the arbiter's key: %m");
    return path;
}

static int secret_read(struct cluster *k, struct arbiter_key *out, struct err *e)
{
    struct yarn *y = yarn_of(k);
    AUTO(free_p) char *path = secret_path(y, e);
    AUTO(buf_done) struct buf text = { .max = KEY_FILE_MAX };
    if (!path)
        return -(e->num ? e->num : EIO);
    int rc = yarn_read(y, path, KEY_FILE_MAX, &text, e);
    if (rc == 0)
        rc = arbiter_key_parse(span_trim(buf_span(&text)), out, e);
    if (text.p)
        explicit_bzero(text.p, text.len);
    return rc < 0 ? err_wrap(e, rc, "cannot read the arbiter's key '%s' in HDFS", path) : 0;
}

/* -EEXIST: another command has made one meanwhile. */
static int secret_write(struct cluster *k, const struct arbiter_key *key, struct err *e)
{
    struct yarn *y = yarn_of(k);
    AUTO(free_p) char *path = secret_path(y, e);
    char text[ARBITER_KEY_HEX];
    if (!path)
        return -(e->num ? e->num : EIO);
    arbiter_key_text(key, text);
    int rc = yarn_write(y, path, span_of(text), e);
    explicit_bzero(text, sizeof text);
    return rc < 0 ? err_wrap(e, rc, "cannot write the arbiter's key '%s' to HDFS", path) : 0;
}

static const char *const local_settings[] = { "tony.application.hdfs-conf-path",
                                              "tony.application.yarn-conf-path", NULL };

const struct queue_ops queue_yarn = {
    .what = "queue",
    .look = yarn_queue_look,
    .needs = yarn_queue_needs,
    .secret_read = secret_read,
    .secret_write = secret_write,
    .keys_setting = "tony.yarn.arbiter-keys",
    .local_settings = local_settings,
    .find_app = find_app,
    .prepare_app = prepare_app,
};
