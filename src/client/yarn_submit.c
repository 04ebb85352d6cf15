/*
 * A checked job onto the cluster: staging, yarn.json, the submission context.
 */
#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/jobconf.h"
#include "client/submit.h"
#include "client/yarn.h"
#include "conf/conf.h"
#include "hadoop/token.h"
#include "hadoop/yarn.h"
#include "storage/jobkey.h"

enum {
    TYPE_MAX = 20, /* YARN cuts it there */
    TAGS_MAX = 10,
    TAG_MAX = 100,
    LIFETIME_MORE_S = 120, /* the master's own limit comes first */
};

#define NODE_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct submission {
    struct yarn *y;
    struct client_job *j;
    bool owned;
    struct yarn_facts facts;
    struct yarn_staging staging;
    struct yarn_app app;
    char id[APP_ID_MAX];
    char *dir; /* of this job in HDFS */
    bool made; /* dir may be there */
    struct job_key key;
    struct tls_key client_key;
    struct buf job_conf, yarn_json;
    struct job_file_at {
        const char *name;
        int64_t size, mtime_ms;
    } files[2]; /* job.conf, yarn.json: of the master's container */
    struct yarn_join join;
    struct strv texts; /* strings of the context */
};

static int no_memory(struct err *e)
{
    (void)err_set(e, ENOMEM, "cannot submit the job: %m");
    return -EXIT_CLUSTER;
}

/* ---- Docker, as TonY has it ---- */

static int docker_env(const struct client_job *j, const char *role, struct strv *out)
{
    if (!conf_bool(j->conf, "tony.docker.enabled"))
        return 0;
    AUTO(free_p) char *key = str_printf("tony.docker.%s.image", role);
    const char *image = key ? conf_get(j->conf, key) : NULL;
    if (!image || !*image)
        image = conf_get(j->conf, "tony.docker.containers.image");
    if (!image || !*image) {
        client_note("%s: Docker is enabled, but role '%s' has no image (tony.docker.%s.image); it "
                    "runs without",
                    yarn_origin(j, "tony.docker.enabled"), role, role);
        return 0;
    }
    const char *mounts = conf_get(j->conf, "tony.docker.containers.mount");
    int rc = strv_env_set(out, "YARN_CONTAINER_RUNTIME_TYPE", "docker");
    if (rc == 0)
        rc = strv_env_set(out, "YARN_CONTAINER_RUNTIME_DOCKER_IMAGE", image);
    if (rc == 0 && mounts && *mounts)
        rc = strv_env_set(out, "YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS", mounts);
    return rc;
}

/* The class path that programs of Hadoop find their jars by. */
static char *class_path(const struct yarn *y, const struct client_job *j)
{
    const char *site = site_get(y->site, "yarn.application.classpath");
    const char *own = conf_get(j->conf, "tony.application.hadoop.classpath");
    char *text = str_printf("$CLASSPATH:./*%s%s%s%s", site ? ":" : "", site ? site : "",
                            own && *own ? ":" : "", own ? own : "");
    for (char *p = text; p && *p; p++)
        if (*p == ',')
            *p = ':';
    return text;
}

/* ---- yarn.json ---- */

static int add_addresses(struct strv *out, const struct site_addresses *a)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < a->n; i++)
        rc = strv_pushf(out, strchr(a->v[i].host, ':') ? "[%s]:%u" : "%s:%u", a->v[i].host,
                        (unsigned)a->v[i].port);
    return rc;
}

static int add_resources(const struct submission *s, struct yarn_file *f)
{
    for (size_t i = 0; i < s->staging.v.n; i++) {
        const struct yarn_staged *x = &s->staging.v.v[i];
        if (!x->there || !x->for_tasks)
            continue;
        struct yarn_resource r = { .name = str_dup(x->name),
                                   .role = str_dup(x->role),
                                   .scheme = str_dup("hdfs"),
                                   .host = str_dup(s->y->hdfs.host),
                                   .file = str_dup(x->path),
                                   .port = s->y->hdfs.port,
                                   .size = x->size,
                                   .timestamp_ms = x->mtime_ms,
                                   .archive = x->archive,
                                   .visibility = YARN_PRIVATE };
        if (!r.name || !r.role || !r.scheme || !r.host || !r.file ||
            vec_push(&f->resources, r) < 0) {
            yarn_resource_done(&r);
            return -ENOMEM;
        }
    }
    return 0;
}

static int add_yarn_role(const struct submission *s, struct yarn_file *f, const char *name,
                         uint32_t gpus, struct err *e)
{
    struct yarn_role r = { .name = str_dup(name) };
    const char *label = yarn_role_label(s->j, name);
    r.label = label ? str_dup(label) : NULL;
    int rc = r.name && (!label || r.label) ? 0 : -ENOMEM;
    if (rc == 0)
        rc = yarn_role_types(s->j, name, gpus, &r.types, e);
    if (rc == 0)
        rc = docker_env(s->j, name, &r.env);
    if (rc == 0 && vec_push(&f->roles, r) == 0)
        return 0;
    yarn_role_done(&r);
    return rc < 0 ? rc : -ENOMEM;
}

static int add_all_roles(const struct submission *s, struct yarn_file *f, struct err *e)
{
    struct yarn_role all = { .name = str_dup("") };
    AUTO(free_p) char *path = class_path(s->y, s->j);
    int rc = all.name && path ? strv_env_set(&all.env, "CLASSPATH", path) : -ENOMEM;
    if (rc == 0)
        rc = vec_push(&f->roles, all);
    if (rc < 0)
        yarn_role_done(&all);
    for (size_t i = 0; rc == 0 && i < s->j->spec->n_roles; i++) {
        const struct role_spec *r = &s->j->spec->roles[i];
        if (r->instances)
            rc = add_yarn_role(s, f, r->name, r->gpus, e);
    }
    return rc;
}

static int64_t site_ms_or(struct yarn *y, const char *key, int64_t dflt)
{
    int64_t ms = dflt;
    (void)site_ms(y->site, key, 1, dflt, &ms, NULL); /* the cluster itself uses its default then */
    return ms;
}

static int write_yarn_json(struct submission *s, struct err *e)
{
    struct yarn *y = s->y;
    const char *protection = site_get(y->site, "hadoop.rpc.protection");
    const char *policy = site_get(y->site, "yarn.http.policy");
    AUTO(yarn_file_freep) struct yarn_file *f = calloc(1, sizeof *f);
    if (!f)
        return no_memory(e);
    f->user = str_dup(y->user);
    f->queue = str_dup(s->j->spec->queue);
    f->default_fs = str_dup(y->hdfs.fs);
    f->protection = str_dup(protection ? protection : "");
    f->staging = str_dup(s->dir);
    f->history = str_dup(y->history);
    f->am_expiry_ms = site_ms_or(y, "yarn.am.liveness-monitor.expiry-interval-ms", 600000);
    f->https = policy && str_eq(policy, "HTTPS_ONLY");
    int rc = f->user && f->queue && f->default_fs && f->protection && f->staging && f->history
                 ? add_addresses(&f->rm, &y->rm)
                 : -ENOMEM;
    if (rc == 0)
        rc = add_addresses(&f->scheduler, &y->scheduler);
    if (rc == 0)
        rc = add_addresses(&f->namenodes, &y->hdfs.http);
    if (rc == 0)
        rc = add_resources(s, f);
    if (rc == 0)
        rc = add_all_roles(s, f, e);
    if (rc == 0)
        rc = yarn_file_encode(f, &s->yarn_json, e);
    if (rc == -ENOMEM)
        return no_memory(e);
    return rc < 0 ? -EXIT_CLUSTER : 0;
}

/* ---- the job's own directory ---- */

static void op_done(const struct webhdfs_result *r, const struct err *e, void *arg)
{
    struct submission *s = arg;
    (void)r;
    yarn_join_end(&s->join, e);
}

struct file_stat {
    struct submission *s;
    struct job_file_at *at;
};

static void file_looked(const struct webhdfs_result *r, const struct err *e, void *arg)
{
    struct file_stat *f = arg;
    if (r) {
        f->at->size = r->stats->length;
        f->at->mtime_ms = r->stats->mtime_ms;
    }
    yarn_join_end(&f->s->join, e);
}

static int begin_put(struct submission *s, const char *name, struct span data, struct err *e)
{
    AUTO(free_p) char *path = fs_join(s->dir, name);
    /* Under its own name: nobody looks before the job is submitted. */
    const struct webhdfs_put put = {
        .path = path, .mode = 0600, .overwrite = true, .direct = true, .data = data
    };
    int rc = path ? webhdfs_put(s->y->fs, &put, op_done, s, NULL, e) : -ENOMEM;
    s->join.n += rc == 0;
    return rc;
}

static int join_end(struct submission *s, struct err *e)
{
    yarn_join_wait(&s->join);
    if (!s->join.e.num)
        return 0;
    *e = s->join.e;
    (void)err_wrap(e, -e->num, "cannot stage the job");
    return -EXIT_CLUSTER;
}

static int write_dir(struct submission *s, struct err *e)
{
    char key[JOB_KEY_HEX];
    job_key_text(&s->client_key, key);
    s->made = true;
    if (webhdfs_mkdirs(s->y->fs, s->dir, 0700, op_done, s, NULL, e) < 0)
        return -EXIT_CLUSTER;
    s->join.n++;
    int rc = join_end(s, e);
    if (rc < 0)
        return rc;
    if (begin_put(s, s->files[0].name, buf_span(&s->job_conf), e) < 0 ||
        begin_put(s, s->files[1].name, buf_span(&s->yarn_json), e) < 0 ||
        begin_put(s, JOB_KEY_CLIENT_FILE, span_of(key), e) < 0)
        rc = -EXIT_CLUSTER;
    int ended = join_end(s, e);
    job_key_wipe(key, sizeof key);
    if (rc < 0 || ended < 0)
        return -EXIT_CLUSTER;
    s->staging.bytes_sent += s->job_conf.len + s->yarn_json.len;
    struct file_stat looks[2];
    for (size_t i = 0; i < ARRAY_LEN(looks); i++) {
        AUTO(free_p) char *path = fs_join(s->dir, s->files[i].name);
        looks[i] = (struct file_stat){ s, &s->files[i] };
        if (!path || webhdfs_stat(s->y->fs, path, file_looked, &looks[i], NULL, e) < 0)
            rc = -EXIT_CLUSTER;
        else
            s->join.n++;
    }
    ended = join_end(s, e);
    return rc < 0 ? rc : ended;
}

/* ---- the submission context ---- */

/* A string that lives as long as the submission. */
static char *keep(struct submission *s, char *text)
{
    return strv_take(&s->texts, text) < 0 ? NULL : text;
}

struct context { /* the message and what it is made of */
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
    Hadoop__NewApplicationTimeout timeout, *timeout_ptr;
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
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(s->files); i++) {
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
    for (size_t i = 0; i < k->locals.n; i++) { /* only now does nothing move any more */
        struct local *l = &k->locals.v[i];
        l->value.resource = &l->url;
        l->entry.value = &l->value;
        k->local_ptrs[i] = &l->entry;
    }
    k->launch.local_resources = k->local_ptrs;
    k->launch.n_local_resources = k->locals.n;
    return 0;
}

/* The NodeManager writes export K="V": what would end or run something in there is escaped;
 * variables are meant to be replaced. */
static char *script_value(const char *v)
{
    AUTO(buf_done) struct buf b = { 0 };
    for (; *v; v++) {
        if (strchr("\\\"`", *v))
            (void)buf_addc(&b, '\\');
        (void)buf_addc(&b, *v);
    }
    return b.failed ? NULL : buf_steal(&b);
}

static int add_env(struct submission *s, struct context *k, const char *name, const char *value)
{
    Hadoop__StringPair p = HADOOP__STRING_PAIR__INIT;
    p.key = keep(s, str_dup(name));
    p.value = keep(s, script_value(value));
    return p.key && p.value ? vec_push(&k->env, p) : -ENOMEM;
}

static int fill_env(struct submission *s, struct context *k)
{
    const struct job_spec *spec = s->j->spec;
    AUTO(free_p) char *path = class_path(s->y, s->j);
    struct strv env = { 0 };
    int rc = path ? strv_env_set(&env, "PATH", NODE_PATH) : -ENOMEM;
    if (rc == 0)
        rc = strv_env_set(&env, "CLASSPATH", path);
    if (rc == 0)
        rc = docker_env(s->j, "am", &env);
    for (size_t i = 0; rc == 0 && i < spec->container_env.n; i++) {
        struct span value = span_of(spec->container_env.v[i]), name;
        (void)span_split(&value, '=', &name);
        AUTO(free_p) char *n = span_dup(name);
        rc = n ? strv_env_set(&env, n, value.p ? value.p : "") : -ENOMEM;
    }
    if (rc == 0 && s->owned)
        rc = strv_env_set(&env, "TONY_OWNED", "1");
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
        k->acls[i].acl = (char *)(uintptr_t)(v && *v ? v : " "); /* a blank: nobody */
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
    k->resource.memory = (int64_t)yarn_master_memory_mib(s->j);
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
        (void)str_i64(span_of(equals + 1), 0, INT64_MAX, "amount", &n, NULL); /* it was checked */
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

/* With a label of its own the master's container is asked for by a request. */
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
    const char *key = "tony.application.tags", *text = conf_get(s->j->conf, key);
    int rc = text ? conf_list_parse(span_of(text), &k->tags) : 0;
    if (rc == 0 && k->tags.n > TAGS_MAX)
        return err_set(e, EINVAL, "%s: '%s' has %zu tags, and YARN takes %d",
                       yarn_origin(s->j, key), key, k->tags.n, TAGS_MAX);
    for (size_t i = 0; rc == 0 && i < k->tags.n; i++) {
        char *tag = k->tags.v[i];
        bool ascii = strlen(tag) <= TAG_MAX;
        for (char *p = tag; *p; p++) {
            ascii = ascii && *p >= 0x20 && *p < 0x7f;
            if (*p >= 'A' && *p <= 'Z')
                *p = (char)(*p - 'A' + 'a'); /* searches are for lower case */
        }
        if (!ascii)
            return err_set(e, EINVAL, "%s: tag '%s' is not ASCII of at most %d characters",
                           yarn_origin(s->j, key), tag, TAG_MAX);
    }
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
    k->msg.max_app_attempts = 1;
    k->msg.application_type = keep(s, str_printf("%.*s", TYPE_MAX, type && *type ? type : "TONY"));
    k->msg.resource = &k->resource;
    k->command = (char *)"exec ./tony-master --yarn 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr";
    k->launch.command = &k->command;
    k->launch.n_command = 1;
    if (spec->app_timeout_ms) {
        k->timeout = (Hadoop__NewApplicationTimeout)HADOOP__NEW_APPLICATION_TIMEOUT__INIT;
        k->timeout.has_application_timeout_type = k->timeout.has_timeout = true;
        k->timeout.application_timeout_type =
            HADOOP__APPLICATION_TIMEOUT_TYPE__APP_TIMEOUT_LIFETIME;
        k->timeout.timeout = (int64_t)(spec->app_timeout_ms / 1000) + LIFETIME_MORE_S;
        k->timeout_ptr = &k->timeout;
        k->msg.application_timeouts = &k->timeout_ptr;
        k->msg.n_application_timeouts = 1;
    }
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
        /* What the service refuses for its own reasons is about the job. */
        if (e->kind == RPC_FAULT_APPLICATION || e->kind == RPC_FAULT_INVALID_RESOURCE)
            err.num = EINVAL;
    }
    yarn_join_end(&s->join, &err);
}

static int send_context(struct submission *s, struct context *k, struct err *e)
{
    Hadoop__SubmitApplicationRequest rq = HADOOP__SUBMIT_APPLICATION_REQUEST__INIT;
    rq.application_submission_context = &k->msg;
    if (s->owned)
        submit_hold_signals();
    if (!yarn_submit_application(s->y->rpc, &rq, yarn_deadline(s->y), accepted, s))
        return no_memory(e);
    s->join.n++;
    yarn_join_wait(&s->join);
    if (!s->join.e.num)
        return 0;
    *e = s->join.e;
    return -yarn_exit_code(e);
}

/* ---- all of it ---- */

static int say_notes(const struct strv *notes)
{
    for (size_t i = 0; i < notes->n; i++)
        client_note("%s", notes->v[i]);
    return 0;
}

/* All that is asked, and all that can be refused; nothing was sent yet. */
static int prepare(struct submission *s, struct err *e)
{
    struct strv notes = { 0 };
    int rc = yarn_home(s->y, e);
    if (rc == 0)
        rc = yarn_stage_collect(&s->staging, e);
    struct yarn_ask *ask = NULL;
    if (rc == 0)
        rc = yarn_ask_begin(s->y, s->j, &s->staging.join, &s->facts, &s->app, &ask, e);
    if (rc == 0) {
        yarn_stage_ask(&s->staging);
        yarn_join_wait(&s->staging.join);
        rc = yarn_ask_finish(ask, e);
    }
    if (rc == 0 && yarn_check(&s->facts, s->j, &notes, e) < 0)
        rc = -yarn_exit_code(e);
    if (rc == 0)
        rc = yarn_stage_answer(&s->staging, e);
    if (rc == 0)
        rc = say_notes(&notes);
    yarn_ask_free(ask);
    strv_done(&notes);
    return rc;
}

static int stage(struct submission *s, struct err *e)
{
    int rc = yarn_stage_send(&s->staging, e);
    if (rc < 0)
        return rc;
    say_notes(&s->staging.notes);
    char id[YARN_ID_TEXT_MAX];
    (void)str_copy(s->id, sizeof s->id, yarn_app_text(&s->app, id));
    s->dir = str_printf("%s/%s", s->y->dir, s->id);
    if (!s->dir)
        return no_memory(e);
    if (job_key_new(&s->key, e) < 0)
        return -EXIT_CLUSTER;
    job_key_client(&s->key, &s->client_key);
    if (submit_encode(s->y->c, s->j, &s->job_conf, e) < 0)
        return e->num == EILSEQ ? -EXIT_MISUSE : -EXIT_CLUSTER;
    rc = write_yarn_json(s, e);
    return rc == 0 ? write_dir(s, e) : rc;
}

static int hand_over(struct submission *s, struct err *e)
{
    struct context k = { 0 };
    int rc = fill_context(s, &k, e);
    if (rc == -ENOMEM)
        rc = no_memory(e);
    else if (rc < 0)
        rc = -yarn_exit_code(e);
    else
        rc = send_context(s, &k, e);
    context_done(&k);
    return rc;
}

int yarn_submit(struct yarn *y, struct client_job *j, bool owned, struct yarn_job *out,
                struct err *e)
{
    struct submission s = {
        .y = y,
        .j = j,
        .owned = owned,
        .join = { .loop = y->loop },
        .files = { { .name = "job.conf" }, { .name = "yarn.json" } },
    };
    s.staging.y = y;
    s.staging.j = j;
    s.staging.join.loop = y->loop;
    int rc = 0;
    if (client_open_paths(y->c, e) < 0)
        rc = -EXIT_CLUSTER;
    if (rc == 0)
        rc = prepare(&s, e);
    if (rc == 0)
        rc = stage(&s, e);
    if (rc == 0)
        rc = hand_over(&s, e);
    if (rc == 0) {
        (void)str_copy(out->id, sizeof out->id, s.id);
        out->key = s.client_key;
        out->staging = yarn_stage_json(&s.staging);
        yarn_sweep(&s.staging, s.id);
    } else if (s.made) {
        (void)yarn_remove(y, s.dir, NULL); /* else the next client does it */
    }
    yarn_facts_done(&s.facts);
    yarn_stage_done(&s.staging);
    free(s.dir);
    buf_done(&s.job_conf);
    buf_done(&s.yarn_json);
    strv_done(&s.texts);
    job_key_wipe(&s.key, sizeof s.key);
    job_key_wipe(&s.client_key, sizeof s.client_key);
    return rc;
}

void yarn_job_done(struct yarn_job *j)
{
    json_decref(j->staging);
    job_key_wipe(&j->key, sizeof j->key);
    *j = (struct yarn_job){ 0 };
}
