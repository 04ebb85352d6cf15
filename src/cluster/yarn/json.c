/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes yarn.json, which tells the job's master about the cluster (scheduler/yarn/yarnfile.h).
 */
#include <errno.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/yarn/submit.h"
#include "conf/conf.h"

enum { SITE_ATTEMPTS = 2 }; /* YARN's default */

static int out_of_memory(struct err *e)
{
    (void)err_set(e, ENOMEM, "cannot submit the job: %m");
    return -EXIT_CLUSTER;
}

/* ---- Docker, with TonY's variables ---- */

int submission_docker_env(const struct submission *s, const char *role, struct strv *out)
{
    const struct cluster_job *j = s->j;
    if (!conf_bool(j->conf, "tony.docker.enabled"))
        return 0;
    AUTO(free_p) char *key = str_printf("tony.docker.%s.image", role);
    const char *image = key ? conf_get(j->conf, key) : NULL;
    if (!image || !*image)
        image = conf_get(j->conf, "tony.docker.containers.image");
    if (!image || !*image) {
        host_note(s->y->host,
                  "%s: Docker is enabled, but role '%s' has no image (tony.docker.%s.image); it "
                  "runs without",
                  job_origin(j, "tony.docker.enabled"), role, role);
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

/* The class path with which programs find Hadoop's jars. */
char *submission_class_path(const struct yarn *y, const struct cluster_job *j)
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

/* Keep within the limit of the cluster: otherwise the ResourceManager logs a warning. In a job
 * without roles the command runs in the master's container and ends with it: no second attempt. */
int32_t submission_max_attempts(const struct submission *s)
{
    static const char *const keys[] = { "yarn.resourcemanager.am.global.max-attempts",
                                        "yarn.resourcemanager.am.max-attempts" };
    int64_t most = SITE_ATTEMPTS, wanted = conf_int(s->j->conf, "tony.am.max-attempts");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const char *v = site_get(s->y->site, keys[i]);
        if (v && str_i64(span_trim(span_of(v)), 1, INT32_MAX, keys[i], &most, NULL) == 0)
            break;
    }
    return s->j->spec->single_node ? 1 : (int32_t)MIN(wanted, most);
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
        rc = submission_docker_env(s, name, &r.env);
    if (rc == 0 && vec_push(&f->roles, r) == 0)
        return 0;
    yarn_role_done(&r);
    return rc < 0 ? rc : -ENOMEM;
}

static int add_all_roles(const struct submission *s, struct yarn_file *f, struct err *e)
{
    struct yarn_role all = { .name = str_dup("") };
    AUTO(free_p) char *path = submission_class_path(s->y, s->j);
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
    /* If the value is not valid, the cluster, too, uses its default. */
    (void)site_ms(y->site, key, 1, dflt, &ms, NULL);
    return ms;
}

int submission_yarn_json(struct submission *s, struct err *e)
{
    struct yarn *y = s->y;
    const char *protection = site_get(y->site, "hadoop.rpc.protection");
    const char *policy = site_get(y->site, "yarn.http.policy");
    AUTO(yarn_file_freep) struct yarn_file *f = calloc(1, sizeof *f);
    if (!f)
        return out_of_memory(e);
    f->user = str_dup(y->user);
    f->queue = str_dup(s->j->spec->queue);
    f->default_fs = str_dup(y->hdfs.fs);
    f->protection = str_dup(protection ? protection : "");
    f->staging = str_dup(s->dir);
    f->history = str_dup(y->history);
    f->am_expiry_ms = site_ms_or(y, "yarn.am.liveness-monitor.expiry-interval-ms", 600000);
    f->https = policy && str_eq(policy, "HTTPS_ONLY");
    f->keep_containers = submission_max_attempts(s) > 1;
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
        return out_of_memory(e);
    return rc < 0 ? -EXIT_CLUSTER : 0;
}
