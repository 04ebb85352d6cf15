/* What a task finds in its environment; docs/environment.md is the list for users. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/executor_int.h"
#include "runtime/runtime.h"

extern char **environ;

enum { KIND_TRACKED = 1 };

/* What passes through from the user's own environment; all else would be state of whoever started
 * the pool. */
static bool passes(const char *variable)
{
    static const char *const names[] = {
        "PATH=", "HOME=", "USER=", "LOGNAME=", "SHELL=",
        "LANG=", "LC_",   "TZ=",   "TMPDIR=",  "LD_LIBRARY_PATH="
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_starts(variable, names[i]))
            return true;
    return false;
}

static int add_base(struct strv *out)
{
    int rc = 0;
    for (char **v = environ; *v && rc == 0; v++)
        if (passes(*v))
            rc = strv_push(out, *v);
    if (rc == 0 && !strv_env_get(out, "PATH"))
        rc = strv_env_set(out, "PATH",
                          "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    return rc;
}

static int add_pairs(struct strv *out, Tony__KeyValue *const *kv, size_t n)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = strv_env_set(out, kv[i]->key, kv[i]->value);
    return rc;
}

/* NVML counts devices in bus order, so CUDA has to as well. A task that asked for none must not
 * take somebody's. */
static int add_gpus(const struct executor_config *cfg, struct strv *out)
{
    if (cfg->gpus[0]) {
        int rc = strv_env_set(out, "CUDA_VISIBLE_DEVICES", cfg->gpus);
        return rc < 0 ? rc : strv_env_set(out, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    }
    return cfg->machine_has_gpus ? strv_env_set(out, "CUDA_VISIBLE_DEVICES", "") : 0;
}

/* The spec file lies in the working directory; only the generic framework promises it (a thousand
 * tasks would each write it). */
static int write_spec(const struct rt_input *in, const char *path, struct err *e)
{
    AUTO(buf_done) struct buf text = { 0 };
    if (runtime_spec_json(in->roles, in->n_roles, NULL, NULL, &text) < 0 ||
        buf_addc(&text, '\n') < 0)
        return err_set(e, ENOMEM, "cannot write the cluster spec: %m");
    AUTO(close_p) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd == -1)
        return err_set(e, errno, "cannot write the cluster spec '%s': %m", path);
    return fs_write_all(fd, text.p, text.len) < 0
               ? err_set(e, errno ? errno : EIO, "cannot write the cluster spec '%s': %m", path)
               : 0;
}

static bool has_role(const struct rt_role *roles, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(roles[i].name, name))
            return true;
    return false;
}

static int add_runtime(struct executor *x, const Tony__Start *s, struct strv *out, struct err *e)
{
    const Tony__Welcome *w = x->role;
    const struct runtime *rt = runtime_find(w->framework);
    if (!rt)
        return err_set(e, EINVAL, "framework '%s' is not known here", w->framework);
    size_t n = s->spec ? s->spec->n_roles : 0;
    AUTO(free_p) struct rt_role *roles = calloc(n + 1, sizeof *roles);
    AUTO(free_p) char *spec_path = str_printf("%s/.tony-spec.json", x->workdir);
    if (!roles || !spec_path)
        return err_set(e, ENOMEM, "cannot build the environment: %m");
    for (size_t i = 0; i < n; i++) {
        const Tony__SpecRole *r = s->spec->roles[i];
        roles[i] = (struct rt_role){ .name = r->name,
                                     .addresses = (const char *const *)r->addresses,
                                     .n = (uint32_t)r->n_addresses,
                                     .kind = r->kind,
                                     .ranks = r->ranks };
    }
    bool generic = str_eq(rt->name, "generic");
    bool tb = runtime_wants_tb_port(rt->name, w->role, w->chief, has_role(roles, n, "tensorboard"));
    struct rt_input in = {
        .application_id = w->application_id,
        .distributed_mode = w->distributed_mode,
        .roles = roles,
        .n_roles = n,
        .role = w->role,
        .index = w->index,
        .generation = s->generation,
        .restart_count = s->restart_count,
        .chief = w->chief,
        .n_tracked = w->n_tracked,
        .tb_port = tb ? x->tb_port : 0,
        .spec_file = generic ? spec_path : NULL,
    };
    int rc = generic ? write_spec(&in, spec_path, e) : 0;
    return rc < 0 ? rc : runtime_env(rt, &in, out, e);
}

int task_environment(struct executor *x, const Tony__Start *s, struct strv *out, struct err *e)
{
    const Tony__Welcome *w = x->role;
    char number[16];
    snprintf(number, sizeof number, "%u", s->attempt);
    int rc = vec_reserve(out, 64);
    if (rc == 0)
        rc = add_base(out);
    if (rc == 0)
        rc = add_gpus(x->cfg, out); /* the user may say otherwise */
    if (rc == 0)
        rc = add_pairs(out, w->container_env, w->n_container_env);
    if (rc == 0)
        rc = add_pairs(out, w->execution_env, w->n_execution_env);
    if (rc == 0)
        rc = strv_env_set(out, "PWD", x->workdir);
    if (rc == 0)
        rc = strv_env_set(out, "TONY_CONTAINER_ID", x->cfg->container_id);
    if (rc == 0)
        rc = strv_env_set(out, "TONY_JOB_NAME", w->job_name);
    if (rc == 0)
        rc = strv_env_set(out, "TONY_ATTEMPT", number);
    if (rc == 0)
        rc = strv_env_set(out, "TONY_LOG_DIR", x->a.logs.dir);
    if (rc == 0 && w->python[0])
        rc = strv_env_set(out, "TONY_PYTHON", w->python);
    if (rc < 0)
        return err_set(e, -rc, "cannot build the environment: %m");
    return add_runtime(x, s, out, e);
}
