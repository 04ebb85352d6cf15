/* SPDX-License-Identifier: Apache-2.0 */
/* The table of frameworks, and the variables that every task gets. */
#include "runtime/runtime_int.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"

#define X(name) &runtime_##name,
static const struct runtime *const runtimes[] = { FRAMEWORKS(X) };
#undef X

const struct runtime *runtime_find(const char *framework)
{
    for (size_t i = 0; framework && i < ARRAY_LEN(runtimes); i++)
        if (str_eq(runtimes[i]->name, framework))
            return runtimes[i];
    for (size_t i = 0; framework && runtime_more && runtime_more[i]; i++)
        if (str_eq(runtime_more[i]->name, framework))
            return runtime_more[i];
    return NULL;
}

const char *const *runtime_names(size_t *out_n)
{
#define X(name) #name,
    static const char *const names[] = { FRAMEWORKS(X) };
#undef X
    *out_n = ARRAY_LEN(names);
    return names;
}

int runtime_check(const struct runtime *rt, const struct rt_role *roles, size_t n, bool gang,
                  struct err *e)
{
    if (rt->needs_gang && !gang) {
        (void)err_set(e, EINVAL,
                      "framework '%s' needs all tasks at once, which distributed-mode FCFS does "
                      "not give",
                      rt->name);
        return err_hint(e, "remove tony.application.distributed-mode, or set it to GANG");
    }
    return rt->check ? rt->check(roles, n, e) : 0;
}

bool runtime_wants_tb_port(const char *framework, const char *role, bool chief,
                           bool has_tensorboard_role)
{
    const struct runtime *rt = runtime_find(framework);
    if (rt && rt->no_tensorboard)
        return false;
    return str_eq(role, "tensorboard") || (chief && !has_tensorboard_role);
}

/* A framework without an entry in the table counts as one whose tasks can read the new address from
 * TONY_SPEC_FILE. */
bool runtime_lives_with_new(const char *framework, const char *role, bool chief, bool gang,
                            bool has_ps)
{
    if (!gang || str_eq(role, "tensorboard"))
        return true;
    const struct runtime *rt = runtime_find(framework);
    return !rt || !rt->lives_with_new || rt->lives_with_new(role, chief, has_ps);
}

bool runtime_takes_more(const char *framework, const char *role, bool chief, bool gang, bool has_ps)
{
    const struct runtime *rt = runtime_find(framework);
    if (gang && rt && rt->fixed_gang && !str_eq(role, "tensorboard"))
        return false;
    return runtime_lives_with_new(framework, role, chief, gang, has_ps);
}

bool rt_every_role(const char *role)
{
    (void)role;
    return true;
}

bool rt_gang_restarts(const char *role, bool chief, bool has_ps)
{
    (void)role;
    (void)chief;
    (void)has_ps;
    return false;
}

int rt_set_u32(struct strv *env, const char *key, uint32_t v)
{
    char text[16];
    snprintf(text, sizeof text, "%u", v);
    return strv_env_set(env, key, text);
}

int rt_set_default(struct strv *env, const char *key, const char *value)
{
    return strv_env_get(env, key) ? 0 : strv_env_set(env, key, value);
}

int rt_setf(struct strv *env, const char *key, const char *fmt, ...)
{
    char text[RT_ADDRESS_MAX + 64];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return n < 0 || (size_t)n >= sizeof text ? -ENAMETOOLONG : strv_env_set(env, key, text);
}

int rt_set_pair(struct strv *env, struct buf *pair)
{
    const char *text = buf_cstr(pair), *eq = strchr(text, '=');
    size_t len = eq ? (size_t)(eq - text) + 1 : 0;
    if (pair->failed || !len)
        return -ENOMEM;
    for (size_t i = 0; i < env->n; i++)
        if (strncmp(env->v[i], text, len) == 0) {
            char *taken = buf_steal(pair);
            if (!taken)
                return -ENOMEM;
            free(env->v[i]);
            env->v[i] = taken;
            return 0;
        }
    return strv_take(env, buf_steal(pair));
}

int rt_set_spec(const struct rt_input *in, const char *name, struct strv *env)
{
    AUTO(buf_done) struct buf text = { 0 };
    if (!rt_sets_growing(in))
        return 0;
    (void)buf_reserve(&text, in->spec.len + strlen(name) + 2);
    int rc = buf_addf(&text, "%s=", name);
    if (rc == 0)
        rc = in->spec.p ? buf_add(&text, in->spec.p, in->spec.len)
                        : runtime_spec_json(in->roles, in->n_roles, NULL, NULL, &text);
    return rc < 0 ? rc : rt_set_pair(env, &text);
}

/* The variables that TonY gives to every task. */
static int set_compatible(const struct rt_input *in, struct strv *env)
{
    int rc = 0;
    rc |= strv_env_set(env, "JOB_NAME", in->role);
    rc |= rt_set_u32(env, "TASK_INDEX", in->index);
    rc |= rt_set_u32(env, "TASK_NUM", in->n_tracked);
    rc |= strv_env_set(env, "DISTRIBUTED_MODE", in->distributed_mode);
    rc |= rt_set_u32(env, "SESSION_ID", in->session);
    /* not set in the first session: scripts only test whether the variable exists */
    if (in->session)
        rc |= rt_set_u32(env, "NUM_AM_RETRIES", in->session);
    rc |= rt_set_u32(env, "ATTEMPT_NUMBER", in->restart_count);
    rc |= strv_env_set(env, "appid", in->application_id);
    rc |= strv_env_set(env, "JOB_ID", in->application_id);
    if (in->chief)
        rc |= strv_env_set(env, "IS_CHIEF", "true");
    if (in->single_node)
        rc |= strv_env_set(env, "PREPROCESSING_JOB", "true"); /* TonY's name for such a job */
    if (in->tb_port)
        rc |= rt_set_u32(env, "TB_PORT", in->tb_port);
    return rc;
}

/* The variables TONY_..., the same for every framework. */
static int set_tony(const struct rt_input *in, const struct rt_place *at, struct strv *env)
{
    char task[128];
    snprintf(task, sizeof task, "%s:%u", in->role, in->index);
    int rc = 0;
    rc |= strv_env_set(env, "TONY_APPLICATION_ID", in->application_id);
    rc |= strv_env_set(env, "TONY_TASK", task);
    rc |= strv_env_set(env, "TONY_ROLE", in->role);
    rc |= rt_set_u32(env, "TONY_INDEX", in->index);
    rc |= rt_set_u32(env, "TONY_GENERATION", in->generation);
    rc |= rt_set_u32(env, "TONY_RESTART_COUNT", in->restart_count);
    rc |= rt_set_u32(env, "TONY_LOCAL_RANK", in->local_rank);
    rc |= rt_set_u32(env, "TONY_LOCAL_WORLD_SIZE", at->local_size);
    rc |= rt_set_u32(env, "TONY_WORLD_SIZE", at->world_size);
    if (at->ranked)
        rc |= rt_set_u32(env, "TONY_RANK", at->rank);
    char host[256];
    const char *port;
    if (at->task_address)
        rc |= strv_env_set(env, "TONY_ADDRESS", at->task_address);
    if (rt_split_address(at->task_address, host, sizeof host, &port)) {
        rc |= strv_env_set(env, "TONY_HOST", host);
        rc |= strv_env_set(env, "TONY_PORT", port);
    }
    if (rt_split_address(at->master, host, sizeof host, &port)) {
        rc |= strv_env_set(env, "TONY_MASTER_ADDR", host);
        rc |= strv_env_set(env, "TONY_MASTER_PORT", port);
    }
    if (in->spec_file)
        rc |= strv_env_set(env, "TONY_SPEC_FILE", in->spec_file);
    return rc;
}

int runtime_env(const struct runtime *rt, const struct rt_input *in, struct strv *env,
                struct err *e)
{
    struct rt_place at;
    rt_place(in, &at);
    if (set_compatible(in, env) || set_tony(in, &at, env))
        return err_set(e, ENOMEM, "cannot build the environment of task '%s:%u': %m", in->role,
                       in->index);
    int rc = rt->env(in, env, e);
    return rc < 0 ? rc : rt_limit_growing(rt, in, env, e);
}
