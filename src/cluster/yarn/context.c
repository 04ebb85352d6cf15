/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the submission context, which describes a job to the ResourceManager, and sends it.
 */
#include <errno.h>
#include <signal.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/yarn/submit.h"
#include "conf/conf.h"
#include "hadoop/launch.h"
#include "hadoop/token.h"
#include "hadoop/yarn.h"

enum {
    TYPE_MAX = 20, /* YARN cuts longer application types */
    LOOK_MS = 10,  /* pause between two reports; the ResourceManager accepts a job in about 20 ms */
    ACCEPTANCE_MS = 60000, /* long enough for a restart of the ResourceManager */
};

static int no_memory(struct err *e)
{
    (void)err_set(e, ENOMEM, "cannot submit the job: %m");
    return -EXIT_CLUSTER;
}

#define COMMAND "exec ./tony-master --yarn 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"

/* ---- parts of the context ---- */

struct context { /* the message; its parts are in the arena */
    struct arena arena;
    Hadoop__ApplicationSubmissionContext msg;
    Hadoop__ContainerLaunchContext *launch;
    struct strv tags, types;
    struct buf tokens;
};

static void context_done(struct context *k)
{
    arena_done(&k->arena);
    strv_done(&k->tags);
    strv_done(&k->types);
    if (k->tokens.p)
        job_key_wipe(k->tokens.p, k->tokens.len);
    buf_done(&k->tokens);
}

/* Each of the following fills one part of the message. 0; -ENOMEM; or another -errno with e set. */

static int fill_names(struct submission *s, struct context *k, struct err *e)
{
    const struct job_spec *spec = s->j->spec;
    const char *type = conf_get(s->j->conf, "tony.application.type");
    struct yarn_id_msg *id = arena_alloc(&k->arena, sizeof *id);
    Hadoop__Priority *priority = arena_alloc(&k->arena, sizeof *priority);
    (void)e;
    type = type && *type ? type : "TONY";
    k->msg.application_type = arena_dup(&k->arena, type, MIN(strlen(type), (size_t)TYPE_MAX));
    if (!id || !priority || !k->msg.application_type)
        return -ENOMEM;
    hadoop__priority__init(priority);
    priority->has_priority = true;
    priority->priority = spec->priority;
    k->msg.application_id = yarn_app_msg(id, &s->app);
    k->msg.application_name = spec->name;
    k->msg.queue = spec->queue;
    k->msg.priority = priority;
    return 0;
}

static int fill_attempts(struct submission *s, struct context *k, struct err *e)
{
    (void)e;
    k->msg.has_max_app_attempts = true;
    k->msg.max_app_attempts = submission_max_attempts(s);
    k->msg.has_keep_containers_across_application_attempts = true;
    k->msg.keep_containers_across_application_attempts = k->msg.max_app_attempts > 1;
    k->msg.has_attempt_failures_validity_interval = true;
    k->msg.attempt_failures_validity_interval = conf_int(s->j->conf, "tony.am.attempt-window");
    return 0;
}

/* Make one amount of a resource type from "NAME=NUMBER", which yarn_role_types() has checked. */
static Hadoop__ResourceInformation *new_amount(struct arena *a, const char *type)
{
    Hadoop__ResourceInformation *x = arena_alloc(a, sizeof *x);
    const char *equals = strrchr(type, '=');
    if (!x)
        return NULL;
    hadoop__resource_information__init(x);
    (void)str_i64(span_of(equals + 1), 0, INT64_MAX, "amount", &x->value, NULL);
    x->key = arena_dup(a, type, (size_t)(equals - type));
    x->has_value = x->has_type = true;
    x->units = (char *)"";
    return x->key ? x : NULL;
}

static int fill_resource(struct submission *s, struct context *k, struct err *e)
{
    const struct role_spec *am = &s->j->spec->am;
    Hadoop__Resource *r = arena_alloc(&k->arena, sizeof *r);
    int rc = r ? yarn_role_types(s->j, "am", am->gpus, &k->types, e) : -ENOMEM;
    if (rc < 0)
        return rc;
    hadoop__resource__init(r);
    r->has_memory = r->has_virtual_cores = true;
    r->memory = (int64_t)yarn_master_memory_mib(s->j->spec);
    r->virtual_cores = (int32_t)MAX(am->vcores, 1U);
    r->resource_value_map = arena_alloc(&k->arena, (k->types.n + 1) * sizeof(void *));
    for (size_t i = 0; r->resource_value_map && i < k->types.n; i++) {
        Hadoop__ResourceInformation *x = new_amount(&k->arena, k->types.v[i]);
        if (!x)
            return -ENOMEM;
        r->resource_value_map[r->n_resource_value_map++] = x;
    }
    k->msg.resource = r;
    return r->resource_value_map ? 0 : -ENOMEM;
}

static int fill_tags(struct submission *s, struct context *k, struct err *e)
{
    int rc = yarn_tags(s->j, &k->tags, e);
    if (rc == 0 && s->resize_key.len &&
        (strv_push(&k->tags, s->resize_tag) < 0 || strv_push(&k->tags, s->size_tag) < 0))
        rc = -ENOMEM;
    k->msg.application_tags = k->tags.v;
    k->msg.n_application_tags = k->tags.n;
    return rc;
}

/* Only a resource request can give the master's container a label of its own. It takes the place of
 * msg.resource. */
static int fill_label(struct submission *s, struct context *k, struct err *e)
{
    const char *label = yarn_role_label(s->j, "am");
    const char *all = conf_get(s->j->conf, "tony.application.node-label");
    (void)e;
    if (all && *all)
        k->msg.node_label_expression = (char *)(uintptr_t)all;
    if (!label || (all && str_eq(label, all)))
        return 0;
    struct {
        Hadoop__ResourceRequest request;
        Hadoop__ResourceRequest *list[1];
    } *m = arena_alloc(&k->arena, sizeof *m);
    if (!m)
        return -ENOMEM;
    hadoop__resource_request__init(&m->request);
    m->list[0] = &m->request;
    m->request.priority = k->msg.priority;
    m->request.resource_name = (char *)"*";
    m->request.capability = k->msg.resource;
    m->request.has_num_containers = true;
    m->request.num_containers = 1;
    m->request.node_label_expression = (char *)(uintptr_t)label;
    k->msg.am_container_resource_request = m->list;
    k->msg.n_am_container_resource_request = 1;
    k->msg.resource = NULL;
    return 0;
}

/* ---- the launch context of the master's container ---- */

static int fill_env(struct submission *s, struct context *k, struct err *e)
{
    AUTO(free_p) char *path = submission_class_path(s->y, s->j);
    AUTO(strv_done) struct strv env = { 0 };
    (void)e;
    int rc = path ? strv_env_set(&env, "PATH", LAUNCH_PATH) : -ENOMEM;
    if (rc == 0)
        rc = strv_env_set(&env, "CLASSPATH", path);
    if (rc == 0)
        rc = submission_docker_env(s, "am", &env);
    if (rc == 0)
        rc = launch_add_variables(&env, &s->j->spec->container_env);
    return rc == 0 ? launch_set_env(&k->arena, k->launch, &env) : rc;
}

static struct launch_file hdfs_file(const struct submission *s, const char *name, const char *path)
{
    return (struct launch_file){ .name = name,
                                 .scheme = "hdfs",
                                 .host = s->y->hdfs.host,
                                 .port = s->y->hdfs.port,
                                 .path = path };
}

static int fill_files(struct submission *s, struct context *k, struct err *e)
{
    size_t n_own = ARRAY_LEN(s->files), n = 0;
    struct launch_file *v = arena_alloc(&k->arena, (n_own + s->staging.v.n + 1) * sizeof *v);
    (void)e;
    for (size_t i = 0; v && i < n_own; i++) {
        if (!s->files[i].staged)
            continue;
        AUTO(free_p) char *path = fs_join(s->dir, s->files[i].name);
        const char *kept = path ? arena_dup(&k->arena, path, strlen(path)) : NULL;
        if (!kept)
            return -ENOMEM;
        v[n] = hdfs_file(s, s->files[i].name, kept);
        v[n].size = s->files[i].size;
        v[n].mtime_ms = s->files[i].mtime_ms;
        v[n++].visibility = HADOOP__LOCAL_RESOURCE_VISIBILITY__APPLICATION;
    }
    for (size_t i = 0; v && i < s->staging.v.n; i++) {
        const struct yarn_staged *x = &s->staging.v.v[i];
        if (!x->there || !x->for_master)
            continue;
        v[n] = hdfs_file(s, x->name, x->path);
        v[n].size = x->size;
        v[n].mtime_ms = x->mtime_ms;
        v[n].archive = x->archive;
        v[n++].visibility = HADOOP__LOCAL_RESOURCE_VISIBILITY__PRIVATE;
    }
    return v ? launch_set_files(&k->arena, k->launch, v, n) : -ENOMEM;
}

static int fill_tokens(struct submission *s, struct context *k, struct err *e)
{
    struct credentials c = { 0 };
    (void)e;
    int rc =
        credentials_add_secret(&c, JOB_KEY_SECRET, span_mem(s->key.bytes, sizeof s->key.bytes));
    if (rc == 0 && s->resize_key.len)
        rc = credentials_add_secret(&c, RESIZE_KEY_SECRET,
                                    span_mem(s->resize_key.bytes, s->resize_key.len));
    const struct span files[] = { buf_span(&s->job_conf), buf_span(&s->yarn_json) };
    for (size_t i = 0; rc == 0 && s->carried && i < ARRAY_LEN(files); i++) {
        AUTO(free_p) char *alias = str_printf(YARN_CARRIED_PREFIX "%s", s->files[i].name);
        rc = alias ? credentials_add_secret(&c, alias, files[i]) : -ENOMEM;
    }
    if (rc == 0)
        rc = credentials_write(&c, &k->tokens);
    credentials_done(&c);
    k->launch->has_tokens = true;
    k->launch->tokens =
        (ProtobufCBinaryData){ .data = (uint8_t *)k->tokens.p, .len = k->tokens.len };
    return rc;
}

static int fill_acls(struct submission *s, struct context *k, struct err *e)
{
    static const struct {
        Hadoop__ApplicationAccessType type;
        const char *key;
    } rows[] = {
        { HADOOP__APPLICATION_ACCESS_TYPE__APPACCESS_VIEW_APP, "tony.application.acl-view" },
        { HADOOP__APPLICATION_ACCESS_TYPE__APPACCESS_MODIFY_APP, "tony.application.acl-modify" }
    };
    struct {
        Hadoop__ApplicationAcl acls[ARRAY_LEN(rows)];
        Hadoop__ApplicationAcl *list[ARRAY_LEN(rows)];
    } *m = arena_alloc(&k->arena, sizeof *m);
    (void)e;
    for (size_t i = 0; m && i < ARRAY_LEN(rows); i++) {
        const char *v = conf_get(s->j->conf, rows[i].key);
        hadoop__application_acl__init(&m->acls[i]);
        m->acls[i].has_access_type = true;
        m->acls[i].access_type = rows[i].type;
        m->acls[i].acl = (char *)(uintptr_t)(v && *v ? v : " "); /* a blank means: no other user */
        m->list[i] = &m->acls[i];
    }
    if (!m)
        return -ENOMEM;
    k->launch->application_acls = m->list;
    k->launch->n_application_acls = ARRAY_LEN(rows);
    return 0;
}

/* In this order: fill_label() uses the priority and the resource. */
static int (*const parts[])(struct submission *s, struct context *k, struct err *e) = {
    fill_names, fill_attempts, fill_resource, fill_tags, fill_label,
    fill_env,   fill_files,    fill_tokens,   fill_acls,
};

static int fill_context(struct submission *s, struct context *k, struct err *e)
{
    hadoop__application_submission_context__init(&k->msg);
    k->launch = launch_new(&k->arena, COMMAND);
    k->msg.am_container_spec = k->launch;
    int rc = k->launch ? 0 : -ENOMEM;
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(parts); i++)
        rc = parts[i](s, k, e);
    return rc;
}

static void accepted(const Hadoop__SubmitApplicationResponse *r, const struct rpc_error *e,
                     void *arg)
{
    struct submission *s = arg;
    struct err err = { 0 };
    (void)r;
    if (e) {
        err = e->err;
        /* These two faults mean that the job is wrong. */
        if (e->kind == RPC_FAULT_APPLICATION || e->kind == RPC_FAULT_INVALID_RESOURCE)
            err.num = EINVAL;
    }
    yarn_join_end(&s->join, &err);
}

static int send_context(struct submission *s, struct context *k, struct err *e)
{
    Hadoop__SubmitApplicationRequest rq = HADOOP__SUBMIT_APPLICATION_REQUEST__INIT;
    rq.application_submission_context = &k->msg;
    if (!yarn_submit_application(s->y->rpc, &rq, yarn_deadline(s->y), accepted, s))
        return no_memory(e);
    s->join.n++;
    yarn_join_wait(&s->join);
    if (!s->join.e.num)
        return 0;
    *e = s->join.e;
    return -yarn_exit_code(e);
}

/* Has the user sent a signal? Signals are blocked here; cluster_follow() handles them later. */
static bool interrupted(void)
{
    sigset_t set;
    return sigpending(&set) == 0 &&
           (sigismember(&set, SIGINT) == 1 || sigismember(&set, SIGTERM) == 1 ||
            sigismember(&set, SIGHUP) == 1);
}

static int send_again(struct submission *s, struct context *k, struct err *e)
{
    host_note(s->y->host,
              "the ResourceManager has restarted and does not know %s: submitting it again", s->id);
    return send_context(s, k, e);
}

/* Wait until the ResourceManager has accepted the job. It answers a submission before it has stored
 * and checked the job: if it restarts in between, it does not know the job, and the job is
 * submitted again. If it does not answer within ACCEPTANCE_MS, the job counts as submitted;
 * cluster_follow() continues to ask. */
static int await_acceptance(struct submission *s, struct context *k, struct err *e)
{
    int64_t until = clock_mono_ms() + ACCEPTANCE_MS;
    for (int rc = 0; clock_mono_ms() < until && !interrupted(); host_pause(s->y->host, LOOK_MS)) {
        struct yarn_report r = { 0 };
        struct err unread = { 0 };
        int asked = yarn_report(s->y, s->id, &r, &unread);
        Hadoop__YarnApplicationState state = r.state;
        bool refused = state == HADOOP__YARN_APPLICATION_STATE__FAILED && r.attempt <= 0;
        char line[300];
        yarn_first_line(r.diagnostics, line, sizeof line);
        yarn_report_done(&r);
        if (asked == 0 && refused) {
            (void)err_set(e, EINVAL, "the cluster refused the job: %s", line);
            return -EXIT_MISUSE;
        }
        if (asked == 0 && state >= HADOOP__YARN_APPLICATION_STATE__ACCEPTED)
            return 0;
        if (asked == -ENOENT && (rc = send_again(s, k, e)) < 0)
            return rc;
    }
    return 0;
}

int submission_send(struct submission *s, struct err *e)
{
    struct context k = { 0 };
    int rc = fill_context(s, &k, e);
    if (rc == -ENOMEM)
        rc = no_memory(e);
    else if (rc < 0)
        rc = -yarn_exit_code(e);
    if (rc == 0 && s->owned)
        signals_hold();
    if (rc == 0)
        rc = send_context(s, &k, e);
    if (rc == 0)
        rc = await_acceptance(s, &k, e);
    context_done(&k);
    return rc;
}
