/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the typed job from the configuration, and checks it as a whole.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/spec_int.h"

int build_fail(struct build *b, const char *key, int num, const char *fmt, ...)
{
    const struct entry *x = conf_find(b->c, key);
    va_list ap;
    va_start(ap, fmt);
    int rc = err_vset(b->e, num, fmt, ap);
    va_end(ap);
    if (x && x->layer != CL_DEFAULT)
        return err_wrap(b->e, rc, "%s", x->origin);
    return b->c->job_file ? err_wrap(b->e, rc, "%s:1", b->c->job_file) : rc;
}

int build_no_memory(struct build *b)
{
    return err_set(b->e, ENOMEM, "cannot build the job: %m");
}

const char *role_key(char buf[static ROLE_KEY_MAX], const char *role, const char *suffix)
{
    /* Cannot be cut: a role's name has at most 63 characters. */
    (void)snprintf(buf, ROLE_KEY_MAX, "tony.%s.%s", role, suffix);
    return buf;
}

int64_t build_role(const struct build *b, const char *name)
{
    for (size_t i = 0; i < b->s->n_roles; i++) {
        if (strcmp(b->s->roles[i].name, name) == 0)
            return (int64_t)i;
    }
    return -1;
}

int build_role_of(struct build *b, const char *key, const char *name, uint32_t *out)
{
    int64_t at = build_role(b, name);
    if (at >= 0) {
        *out = (uint32_t)at;
        return 0;
    }
    const char *names[64];
    size_t n = MIN(b->s->n_roles, ARRAY_LEN(names));
    for (size_t i = 0; i < n; i++)
        names[i] = b->s->roles[i].name;
    const char *near = str_nearest(name, names, n);
    (void)build_fail(b, key, EINVAL, "'%s' names role '%s', which has no instances in this job",
                     key, name);
    if (near)
        return err_hint(b->e, "did you mean '%s'?", near);
    return err_hint(b->e, "set tony.%s.instances, or remove the name", name);
}

/* ---- plain values ---- */

/* The value of a key as text; NULL = unset or empty. */
static const char *text_of(const struct build *b, const char *key)
{
    const char *v = conf_get(b->c, key);
    return v && *v ? v : NULL;
}

static int copy_text(struct build *b, const char *key, char **out)
{
    const char *v = text_of(b, key);
    if (!v)
        return 0;
    *out = span_dup(span_trim(span_of(v)));
    return *out ? 0 : build_no_memory(b);
}

static int copy_lower(struct build *b, const char *key, char **out)
{
    int rc = copy_text(b, key, out);
    for (char *p = *out; rc == 0 && p && *p; p++)
        *p = (char)tolower((unsigned char)*p);
    return rc;
}

/* A time limit; -1 and 0 both mean that there is none. */
static uint64_t limit_ms(const struct build *b, const char *key)
{
    int64_t v = conf_int(b->c, key);
    return v > 0 ? (uint64_t)v : 0;
}

static int build_umask(struct build *b)
{
    static const char key[] = "tony.task.umask";
    const char *text = conf_get(b->c, key);
    uint32_t v = 0;
    b->s->umask = 022;
    if (!text || !text[0])
        return 0;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '7' || v > 0777)
            return build_fail(b, key, EINVAL, "%s is '%s', not a mask in octal such as 027", key,
                              text);
        v = v * 8 + (uint32_t)(*p - '0');
    }
    if (v > 0777)
        return build_fail(b, key, EINVAL, "%s is '%s', which is larger than 0777", key, text);
    b->s->umask = v;
    return 0;
}

static int build_texts(struct build *b)
{
    struct job_spec *s = b->s;
    const struct {
        const char *key;
        char **out;
    } texts[] = {
        { "tony.application.name", &s->name },
        { "tony.yarn.queue", &s->queue },
        { "tony.application.src-dir", &s->src },
        { "tony.application.python-venv", &s->venv },
        { "tony.application.python-binary-path", &s->python_binary },
        { "tony.application.tensorboard-log-dir", &s->tensorboard_log_dir },
        { "tony.application.on-end", &s->on_end },
        { "tony.slurm.exclude", &s->slurm_exclude },
        { "tony.application.on-end-secret", &s->on_end_secret },
    };
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(texts) && rc == 0; i++)
        rc = copy_text(b, texts[i].key, texts[i].out);
    if (rc == 0)
        rc = copy_lower(b, "tony.application.framework", &s->framework);
    if (rc == 0)
        rc = copy_lower(b, "tony.cluster", &s->cluster);
    if (rc == 0)
        rc = build_umask(b);
    if (rc == 0 && !s->name)
        rc = build_fail(b, "tony.application.name", EINVAL, "the name of the job is empty");
    if (rc == 0 && strlen(s->name) > JOB_NAME_MAX)
        rc = build_fail(b, "tony.application.name", EINVAL,
                        "the name of the job has %zu bytes, and at most %d are possible",
                        strlen(s->name), JOB_NAME_MAX);
    if (rc == 0 && span_has_control(span_of(s->name)))
        rc = build_fail(b, "tony.application.name", EINVAL,
                        "the name of the job has a control character in it");
    return rc;
}

static void build_numbers(struct build *b)
{
    const struct conf *c = b->c;
    struct job_spec *s = b->s;
    const char *mode = conf_get(c, "tony.application.distributed-mode");
    s->gang = !mode || strncasecmp(span_trim(span_of(mode)).p, "FCFS", 4) != 0;
    s->addresses_in_file_only = !conf_bool(c, "tony.application.addresses-in-environment");
    s->priority = (int)conf_int(c, "tony.application.priority");
    s->weight = (uint32_t)conf_int(c, "tony.application.weight");
    s->budget = conf_real(c, "tony.application.budget");
    const char *on_boot = "tony.application.restart-on-boot";
    s->restart_on_boot = conf_get(c, on_boot) ? conf_bool(c, on_boot) : -1;
    s->fail_on_worker_failure = conf_bool(c, "tony.application.fail-on-worker-failure-enabled");
    s->app_timeout_ms = limit_ms(b, "tony.application.timeout");
    s->allocation_timeout_ms = limit_ms(b, "tony.container.allocation.timeout");
    s->registration_timeout_ms = limit_ms(b, "tony.container.registration.timeout");
    const char *newer = "tony.task.executor.execution-timeout-ms";
    const struct entry *x = conf_find(c, newer);
    s->execution_timeout_ms =
        limit_ms(b, x && x->layer > CL_DEFAULT ? newer : "tony.worker.timeout");
    s->heartbeat_ms = (uint32_t)conf_int(c, "tony.task.heartbeat-interval-ms");
    s->max_missed_heartbeats = (uint32_t)conf_int(c, "tony.task.max-missed-heartbeats");
    s->metrics_ms = (uint32_t)conf_int(c, "tony.task.metrics-interval-ms");
    s->gpu_metrics = conf_bool(c, "tony.task.gpu-metrics.enabled");
    s->streams = conf_bool(c, "tony.task.streams");
    s->requeue_at_limit = conf_bool(c, "tony.slurm.requeue-at-limit");
    s->client_away_ms = conf_int(c, "tony.client.away-limit");
    s->resize_timeout_ms = limit_ms(b, "tony.resize.timeout");
    s->kill_grace_ms = (uint32_t)conf_int(c, "tony.task.kill-grace-ms");
    s->master_away_ms = (uint32_t)conf_int(c, "tony.task.master-away-limit");
    s->stderr_lines = (uint32_t)conf_int(c, "tony.task.executor.execution.error-message-max-depth");
    s->am_retry_count = (uint32_t)conf_int(c, "tony.am.retry-count");
    s->restarts[END_PREEMPTED] = (uint32_t)conf_int(c, "tony.task.restarts.preempted");
    s->restarts[END_NODE_LOST] = (uint32_t)conf_int(c, "tony.task.restarts.node-lost");
    s->restarts[END_DISK_FAILED] = (uint32_t)conf_int(c, "tony.task.restarts.disk-failed");
    s->restarts[END_LAUNCH_FAILED] = (uint32_t)conf_int(c, "tony.task.restarts.launch-failed");
    s->node_max_failures = (uint32_t)conf_int(c, "tony.node.max-failures");
    s->node_window_ms = (uint64_t)conf_int(c, "tony.node.failure-window");
}

static int check_budget(struct build *b)
{
    const char *key = "tony.application.budget";
    if (b->s->budget > 0 || !conf_get(b->c, key))
        return 0;
    return build_fail(b, key, EINVAL, "'%s' must be more than 0", key);
}

/* The executors of a node and its masters share the range. */
static int build_ports(struct build *b)
{
    enum { PORTS_MIN = 16, PORT_LOWEST = 1024 };
    const char *key = "tony.port-range", *v = text_of(b, key);
    int64_t first = 0, last = 0;
    if (!v)
        return 0;
    struct err why = { 0 };
    if (str_range(span_of(v), PORT_LOWEST, UINT16_MAX, key, &first, &last, &why) < 0)
        return build_fail(b, key, EINVAL, "%s", why.msg);
    if (last - first + 1 < PORTS_MIN)
        return build_fail(b, key, EINVAL, "'%s' has %d ports; it needs %d or more", key,
                          (int)(last - first + 1), PORTS_MIN);
    b->s->port_first = (uint16_t)first;
    b->s->port_last = (uint16_t)last;
    return 0;
}

/* ---- environment and resources for all roles ---- */

static int build_env(struct build *b, const char *key, struct strv *out)
{
    const char *v = text_of(b, key);
    return v ? conf_env_parse(span_of(v), out, b->e) : 0;
}

int build_resources(struct build *b, const char *key, struct resource_spec **out, size_t *out_n)
{
    const char *v = text_of(b, key);
    struct strv items = { 0 };
    int rc = v ? conf_list_parse(span_of(v), &items) : 0;
    if (rc < 0)
        rc = build_no_memory(b);
    if (rc == 0 && items.n > 0) {
        *out = calloc(items.n, sizeof **out);
        if (!*out)
            rc = build_no_memory(b);
    }
    for (size_t i = 0; i < items.n && rc == 0; i++) {
        rc = resource_parse(span_of(items.v[i]), &(*out)[i], b->e);
        if (rc == 0)
            (*out_n)++;
        else
            rc = err_wrap(b->e, rc, "%s", conf_origin(b->c, key));
    }
    strv_done(&items);
    return rc;
}

static int build_shared(struct build *b)
{
    struct job_spec *s = b->s;
    int rc = build_env(b, "tony.containers.envs", &s->container_env);
    if (rc == 0)
        rc = build_env(b, "tony.execution.envs", &s->execution_env);
    if (rc == 0 && s->tensorboard_log_dir)
        rc = strv_env_set(&s->execution_env, "TB_LOG_DIR", s->tensorboard_log_dir);
    if (rc == 0)
        rc = build_resources(b, "tony.containers.resources", &s->resources, &s->n_resources);
    return rc == -ENOMEM ? build_no_memory(b) : rc;
}

/* ---- warnings ---- */

static int warn_entries(struct build *b)
{
    struct strv *w = &b->s->warnings;
    int rc = 0;
    for (size_t i = 0; i < b->c->n && rc == 0; i++) {
        const struct entry *x = &b->c->v[i];
        if (!x->row || x->layer == CL_DEFAULT)
            continue;
        if (x->from_xml && str_eq(x->row->name, "tony.<role>.depends-on"))
            rc = strv_pushf(w, "%s: '%s' takes effect here; TonY ignored it", x->origin, x->key);
        else if (str_eq(x->key, "tony.am.retry-count") && b->s->am_retry_count > 0 &&
                 b->s->single_node)
            rc = strv_pushf(w, "%s: '%s' has no effect on a job without roles", x->origin, x->key);
    }
    return rc < 0 ? build_no_memory(b) : 0;
}

/* Warn once for each role that has keys but no instances. Do not warn if the user has set
 * 'instances: 0' explicitly, or if the keys are in the site file, which serves jobs of all
 * kinds. */
static int warn_absent_roles(struct build *b)
{
    struct map known = { 0 };
    char name[ROLE_KEY_MAX];
    int rc = 0;
    for (size_t i = 0; i < b->s->n_roles && rc == 0; i++)
        rc = map_set(&known, b->s->roles[i].name, b, NULL);
    for (size_t i = 0; i < b->c->n && rc == 0; i++) {
        const struct entry *x = &b->c->v[i];
        char key[ROLE_KEY_MAX];
        struct span role;
        if (!x->row || x->layer < CL_JOB || !str_starts(x->row->name, "tony.<role>."))
            continue;
        (void)conf_key_find(span_of(x->key), &role);
        /* Cannot be cut: a role's name has at most 63 characters. */
        (void)snprintf(name, sizeof name, "%.*s", (int)role.len, role.p);
        if (map_has(&known, name) || conf_find(b->c, role_key(key, name, "instances")))
            continue;
        rc = map_set(&known, name, b, NULL);
        if (rc == 0)
            rc = strv_pushf(&b->s->warnings,
                            "%s: role '%s' has no instances, so its settings have no effect%s",
                            x->origin, name, b->s->single_node ? "; the command runs alone" : "");
    }
    map_done(&known, NULL);
    return rc < 0 ? build_no_memory(b) : 0;
}

static int build_all(struct build *b)
{
    int rc = build_texts(b);
    if (rc == 0) {
        build_numbers(b);
        rc = check_budget(b);
    }
    if (rc == 0)
        rc = build_ports(b);
    if (rc == 0)
        rc = build_shared(b);
    if (rc == 0)
        rc = build_secrets(b);
    if (rc == 0)
        rc = build_on_end(b);
    if (rc == 0)
        rc = build_roles(b);
    if (rc == 0)
        rc = build_caps(b);
    if (rc == 0)
        rc = build_stages(b);
    if (rc == 0)
        rc = build_groups(b);
    if (rc == 0)
        rc = build_preprocess(b);
    if (rc == 0)
        rc = build_watch(b);
    if (rc == 0)
        rc = warn_entries(b);
    return rc == 0 ? warn_absent_roles(b) : rc;
}

int job_spec_build(const struct conf *c, struct job_spec **out, struct err *e)
{
    AUTO(job_spec_freep) struct job_spec *s = calloc(1, sizeof *s);
    struct build b = { .c = c, .s = s, .e = e };
    if (!s)
        return build_no_memory(&b);
    int rc = build_all(&b);
    if (rc == 0)
        *out = TAKE(s);
    return rc;
}

static void resources_free(struct resource_spec *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        resource_done(&r[i]);
    free(r);
}

static void role_done(struct role_spec *r)
{
    free(r->name);
    free(r->command);
    free(r->resume_command);
    free(r->progress_pattern);
    free(r->docker_image);
    free(r->memory_origin);
    strv_done(&r->env);
    resources_free(r->resources, r->n_resources);
    free(r->waits_for);
    free(r->needs);
    free(r->gates);
    free(r->stops);
    free(r->ready);
    free(r->retry_on.v);
    free(r->no_retry_on.v);
}

void job_spec_free(struct job_spec *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_roles; i++)
        role_done(&s->roles[i]);
    free(s->roles);
    role_done(&s->am);
    for (size_t i = 0; i < s->n_group_timeouts; i++) {
        free(s->group_timeouts[i].members);
        free(s->group_timeouts[i].group);
    }
    free(s->group_timeouts);
    resources_free(s->resources, s->n_resources);
    strv_done(&s->container_env);
    strv_done(&s->execution_env);
    strv_done(&s->secrets);
    strv_done(&s->warnings);
    free(s->name);
    free(s->framework);
    free(s->queue);
    free(s->cluster);
    free(s->src);
    free(s->venv);
    free(s->python_binary);
    free(s->tensorboard_log_dir);
    free(s->on_end);
    free(s->slurm_exclude);
    free(s->on_end_secret);
    free(s->docker_mounts);
    free(s->checkpoint_dir);
    free(s->checkpoint_pattern);
    free(s->checkpoint_marker);
    free(s);
}

void job_spec_freep(struct job_spec **s)
{
    job_spec_free(*s);
    *s = NULL;
}

const struct role_spec *job_spec_role(const struct job_spec *s, const char *name)
{
    for (size_t i = 0; i < s->n_roles; i++) {
        if (strcmp(s->roles[i].name, name) == 0)
            return &s->roles[i];
    }
    return s->am.name && strcmp(name, s->am.name) == 0 ? &s->am : NULL;
}

char *conf_build_command(const char *executes, const char *task_params, const char *python_binary,
                         bool has_venv)
{
    AUTO(buf_done) struct buf b = { 0 };
    if (python_binary && *python_binary)
        (void)buf_addf(&b, "%s%s ", has_venv && python_binary[0] != '/' ? "venv/" : "",
                       python_binary);
    (void)buf_adds(&b, executes);
    if (task_params && *task_params)
        (void)buf_addf(&b, " %s", task_params);
    return b.failed ? NULL : buf_steal(&b);
}
