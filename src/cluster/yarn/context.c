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
#include "hadoop/token.h"
#include "hadoop/yarn.h"

enum {
    TYPE_MAX = 20, /* YARN cuts longer application types */
    LOOK_MS = 10,  /* pause between two reports; the ResourceManager accepts a job in about 20 ms */
    ACCEPTANCE_MS = 60000, /* long enough for a restart of the ResourceManager */
};

#define NODE_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static int no_memory(struct err *e)
{
    (void)err_set(e, ENOMEM, "cannot submit the job: %m");
    return -EXIT_CLUSTER;
}

/* ---- parts of the context ---- */

/* Keep a string until the end of the submission. */
static char *keep(struct submission *s, char *text)
{
    return strv_take(&s->texts, text) < 0 ? NULL : text;
}

struct context { /* the message and its parts */
    Hadoop__ApplicationSubmissionContext msg;
    Hadoop__ContainerLaunchContext launch;
    struct yarn_id_msg id;
    Hadoop__Priority priority;
    Hadoop__Resource resource;
    VEC(Hadoop__ResourceInformation) amounts;
    Hadoop__ResourceInformation **amount_ptrs;
    Hadoop__ResourceRequest request, *request_ptr;
    VEC(struct local {
        Hadoop__LocalResourceEntry entry;
        Hadoop__LocalResource value;
        Hadoop__Url url;
    })
    locals;
    Hadoop__LocalResourceEntry **local_ptrs;
    VEC(Hadoop__StringPair) env;
    Hadoop__StringPair **env_ptrs;
    Hadoop__ApplicationAcl acls[2], *acl_ptrs[2];
    char *command;
    struct strv tags, types;
    struct buf tokens;
};

static void context_done(struct context *k)
{
    vec_done(&k->amounts);
    free(k->amount_ptrs);
    vec_done(&k->locals);
    free(k->local_ptrs);
    vec_done(&k->env);
    free(k->env_ptrs);
    strv_done(&k->tags);
    strv_done(&k->types);
    if (k->tokens.p)
        job_key_wipe(k->tokens.p, k->tokens.len);
    buf_done(&k->tokens);
}

static int add_local(struct submission *s, struct context *k, const char *name, const char *path,
                     int64_t size, int64_t mtime_ms, bool archive, bool per_job)
{
    struct local l = { .entry = HADOOP__LOCAL_RESOURCE_ENTRY__INIT,
                       .value = HADOOP__LOCAL_RESOURCE__INIT,
                       .url = HADOOP__URL__INIT };
    l.entry.key = (char *)(uintptr_t)name;
    l.url.scheme = (char *)"hdfs";
    l.url.host = s->y->hdfs.host;
    l.url.has_port = true;
    l.url.port = s->y->hdfs.port;
    l.url.file = (char *)(uintptr_t)path;
    l.value.has_size = l.value.has_timestamp = l.value.has_type = l.value.has_visibility = true;
    l.value.size = size;
    l.value.timestamp = mtime_ms;
    l.value.type =
        archive ? HADOOP__LOCAL_RESOURCE_TYPE__ARCHIVE : HADOOP__LOCAL_RESOURCE_TYPE__FILE;
    l.value.visibility = per_job ? HADOOP__LOCAL_RESOURCE_VISIBILITY__APPLICATION
                                 : HADOOP__LOCAL_RESOURCE_VISIBILITY__PRIVATE;
    return vec_push(&k->locals, l);
}

static int fill_locals(struct submission *s, struct context *k)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && !s->carried && i < ARRAY_LEN(s->files); i++) {
        char *path = keep(s, fs_join(s->dir, s->files[i].name));
        rc = path ? add_local(s, k, s->files[i].name, path, s->files[i].size, s->files[i].mtime_ms,
                              false, true)
                  : -ENOMEM;
    }
    for (size_t i = 0; rc == 0 && i < s->staging.v.n; i++) {
        const struct yarn_staged *x = &s->staging.v.v[i];
        if (x->there && x->for_master)
            rc = add_local(s, k, x->name, x->path, x->size, x->mtime_ms, x->archive, false);
    }
    k->local_ptrs = calloc(k->locals.n, sizeof *k->local_ptrs);
    if (rc < 0 || !k->local_ptrs)
        return -ENOMEM;
    /* Take addresses only now: the vector does not grow any more. */
    for (size_t i = 0; i < k->locals.n; i++) {
        struct local *l = &k->locals.v[i];
        l->value.resource = &l->url;
        l->entry.value = &l->value;
        k->local_ptrs[i] = &l->entry;
    }
    k->launch.local_resources = k->local_ptrs;
    k->launch.n_local_resources = k->locals.n;
    return 0;
}

static int add_env(struct submission *s, struct context *k, const char *name, const char *value)
{
    Hadoop__StringPair p = HADOOP__STRING_PAIR__INIT;
    p.key = keep(s, str_dup(name));
    p.value = keep(s, yarn_env_escape(value));
    return p.key && p.value ? vec_push(&k->env, p) : -ENOMEM;
}

static int fill_env(struct submission *s, struct context *k)
{
    const struct job_spec *spec = s->j->spec;
    AUTO(free_p) char *path = submission_class_path(s->y, s->j);
    struct strv env = { 0 };
    int rc = path ? strv_env_set(&env, "PATH", NODE_PATH) : -ENOMEM;
    if (rc == 0)
        rc = strv_env_set(&env, "CLASSPATH", path);
    if (rc == 0)
        rc = submission_docker_env(s, "am", &env);
    for (size_t i = 0; rc == 0 && i < spec->container_env.n; i++) {
        struct span value = span_of(spec->container_env.v[i]), name;
        (void)span_split(&value, '=', &name);
        AUTO(free_p) char *n = span_dup(name);
        rc = n ? strv_env_set(&env, n, value.p ? value.p : "") : -ENOMEM;
    }
    for (size_t i = 0; rc == 0 && i < env.n; i++) {
        char *equals = strchr(env.v[i], '=');
        *equals = 0;
        rc = add_env(s, k, env.v[i], equals + 1);
    }
    strv_done(&env);
    k->env_ptrs = calloc(k->env.n + 1, sizeof *k->env_ptrs);
    if (rc < 0 || !k->env_ptrs)
        return -ENOMEM;
    for (size_t i = 0; i < k->env.n; i++)
        k->env_ptrs[i] = &k->env.v[i];
    k->launch.environment = k->env_ptrs;
    k->launch.n_environment = k->env.n;
    return 0;
}

static int fill_tokens(struct submission *s, struct context *k)
{
    struct credentials c = { 0 };
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
    k->launch.has_tokens = true;
    k->launch.tokens =
        (ProtobufCBinaryData){ .data = (uint8_t *)k->tokens.p, .len = k->tokens.len };
    return rc;
}

static void fill_acls(struct submission *s, struct context *k)
{
    static const struct {
        Hadoop__ApplicationAccessType type;
        const char *key;
    } rows[] = {
        { HADOOP__APPLICATION_ACCESS_TYPE__APPACCESS_VIEW_APP, "tony.application.acl-view" },
        { HADOOP__APPLICATION_ACCESS_TYPE__APPACCESS_MODIFY_APP, "tony.application.acl-modify" }
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *v = conf_get(s->j->conf, rows[i].key);
        k->acls[i] = (Hadoop__ApplicationAcl)HADOOP__APPLICATION_ACL__INIT;
        k->acls[i].has_access_type = true;
        k->acls[i].access_type = rows[i].type;
        k->acls[i].acl = (char *)(uintptr_t)(v && *v ? v : " "); /* a blank means: no other user */
        k->acl_ptrs[i] = &k->acls[i];
    }
    k->launch.application_acls = k->acl_ptrs;
    k->launch.n_application_acls = ARRAY_LEN(rows);
}

static int fill_resource(struct submission *s, struct context *k, struct err *e)
{
    const struct role_spec *am = &s->j->spec->am;
    k->resource = (Hadoop__Resource)HADOOP__RESOURCE__INIT;
    k->resource.has_memory = k->resource.has_virtual_cores = true;
    k->resource.memory = (int64_t)yarn_master_memory_mib(s->j->spec);
    k->resource.virtual_cores = (int32_t)MAX(am->vcores, 1U);
    int rc = yarn_role_types(s->j, "am", am->gpus, &k->types, e);
    k->amount_ptrs = calloc(k->types.n + 1, sizeof *k->amount_ptrs);
    if (rc == 0)
        rc = k->amount_ptrs ? vec_reserve(&k->amounts, k->types.n + 1) : -ENOMEM;
    for (size_t i = 0; rc == 0 && i < k->types.n; i++) {
        char *equals = strrchr(k->types.v[i], '=');
        Hadoop__ResourceInformation x = HADOOP__RESOURCE_INFORMATION__INIT;
        int64_t n = 0;
        *equals = 0;
        /* Cannot fail: yarn_role_types() has checked it. */
        (void)str_i64(span_of(equals + 1), 0, INT64_MAX, "amount", &n, NULL);
        x.key = k->types.v[i];
        x.has_value = x.has_type = true;
        x.value = n;
        x.units = (char *)"";
        k->amounts.v[k->amounts.n] = x;
        k->amount_ptrs[i] = &k->amounts.v[k->amounts.n++];
    }
    k->resource.resource_value_map = k->amount_ptrs;
    k->resource.n_resource_value_map = k->amounts.n;
    return rc;
}

/* Only a resource request can give the master's container a label of its own. */
static void fill_label(struct submission *s, struct context *k)
{
    const char *label = yarn_role_label(s->j, "am");
    const char *all = conf_get(s->j->conf, "tony.application.node-label");
    if (all && *all)
        k->msg.node_label_expression = (char *)(uintptr_t)all;
    if (!label || (all && str_eq(label, all)))
        return;
    k->request = (Hadoop__ResourceRequest)HADOOP__RESOURCE_REQUEST__INIT;
    k->request.priority = &k->priority;
    k->request.resource_name = (char *)"*";
    k->request.capability = &k->resource;
    k->request.has_num_containers = true;
    k->request.num_containers = 1;
    k->request.node_label_expression = (char *)(uintptr_t)label;
    k->request_ptr = &k->request;
    k->msg.am_container_resource_request = &k->request_ptr;
    k->msg.n_am_container_resource_request = 1;
    k->msg.resource = NULL;
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

static int fill_context(struct submission *s, struct context *k, struct err *e)
{
    const struct job_spec *spec = s->j->spec;
    const char *type = conf_get(s->j->conf, "tony.application.type");
    k->msg = (Hadoop__ApplicationSubmissionContext)HADOOP__APPLICATION_SUBMISSION_CONTEXT__INIT;
    k->launch = (Hadoop__ContainerLaunchContext)HADOOP__CONTAINER_LAUNCH_CONTEXT__INIT;
    k->priority = (Hadoop__Priority)HADOOP__PRIORITY__INIT;
    k->priority.has_priority = true;
    k->priority.priority = spec->priority;
    k->msg.application_id = yarn_app_msg(&k->id, &s->app);
    k->msg.application_name = spec->name;
    k->msg.queue = spec->queue;
    k->msg.priority = &k->priority;
    k->msg.am_container_spec = &k->launch;
    k->msg.has_max_app_attempts = true;
    k->msg.max_app_attempts = submission_max_attempts(s);
    k->msg.has_keep_containers_across_application_attempts = true;
    k->msg.keep_containers_across_application_attempts = k->msg.max_app_attempts > 1;
    k->msg.has_attempt_failures_validity_interval = true;
    k->msg.attempt_failures_validity_interval = conf_int(s->j->conf, "tony.am.attempt-window");
    k->msg.application_type = keep(s, str_printf("%.*s", TYPE_MAX, type && *type ? type : "TONY"));
    k->msg.resource = &k->resource;
    k->command = (char *)"exec ./tony-master --yarn 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr";
    k->launch.command = &k->command;
    k->launch.n_command = 1;
    int rc = k->msg.application_type ? fill_resource(s, k, e) : -ENOMEM;
    if (rc == 0)
        rc = fill_tags(s, k, e);
    if (rc == 0)
        rc = fill_env(s, k);
    if (rc == 0)
        rc = fill_locals(s, k);
    if (rc == 0)
        rc = fill_tokens(s, k);
    fill_acls(s, k);
    fill_label(s, k);
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
    host_note(s->y->host, "the ResourceManager has restarted and does not know %s: submitting it again",
                s->id);
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
