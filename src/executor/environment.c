/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the environment of a task; docs/environment.md lists it for users. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/driver.h"
#include "executor/executor_int.h"
#include "executor/ports.h"
#include "runtime/runtime.h"

extern char **environ;

/* Does the task get this variable of the executor's environment? Other variables come from the
 * process that started the pool, so they would differ between runs. */
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

static int add_base(const struct remote *remote, struct strv *out)
{
    int rc = remote ? remote_environment(remote, out) : 0;
    for (char **v = environ; !remote && *v && rc == 0; v++)
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

/* NVML numbers devices in bus order, so CUDA must, too. A task that requested no GPU must not see
 * those of other tasks. */
static int add_gpus(const struct executor_config *cfg, struct strv *out)
{
    if (cfg->gpus[0]) {
        int rc = strv_env_set(out, "CUDA_VISIBLE_DEVICES", cfg->gpus);
        return rc < 0 ? rc : strv_env_set(out, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    }
    return cfg->machine_has_gpus ? strv_env_set(out, "CUDA_VISIBLE_DEVICES", "") : 0;
}

static bool has_role(const struct rt_role *roles, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(roles[i].name, name))
            return true;
    return false;
}

/* The address under which other tasks know this one. NULL on a cluster: there only the cluster spec
 * has the host. */
static const char *own_address(const struct executor *x, char *out, size_t n)
{
    (void)snprintf(out, n, "127.0.0.1:%u", x->port);
    return x->cfg->remote ? NULL : out;
}

/* The longest environment in bytes. Linux limits arguments and environment together to a quarter of
 * the stack limit, at least 128 KiB and at most 6 MiB. The arguments are subtracted. */
static size_t environment_max(const struct executor *x)
{
    enum { LEAST = 128 << 10, MOST = 6 << 20, RESERVE = 16 << 10 };
    struct rlimit stack = { .rlim_cur = RLIM_INFINITY };
    (void)getrlimit(RLIMIT_STACK, &stack);
    uint64_t max = stack.rlim_cur == RLIM_INFINITY ? MOST : (uint64_t)stack.rlim_cur / 4;
    max = MAX(MIN(max, (uint64_t)MOST), (uint64_t)LEAST);
    const Tony__Welcome *w = x->role;
    uint64_t arguments = RESERVE + 2 * MAX(strlen(w->command), strlen(w->resume_command));
    return max > arguments ? (size_t)(max - arguments) : 1;
}

static int set_runtime(struct executor *x, const struct runtime *rt, const Tony__Start *s,
                       struct rt_input *in, const struct spec *spec, struct strv *out,
                       struct err *e)
{
    bool tb = runtime_wants_tb_port(rt->name, in->role, in->chief,
                                    has_role(spec->roles, spec->n_roles, "tensorboard"));
    struct rt_slot *plan = NULL;
    if (tb && x->tb_fd < 0) {
        x->tb_fd = port_reserve(&x->tb_port, e);
        if (x->tb_fd < 0)
            return x->tb_fd;
    }
    in->tb_port = tb && in->local_rank == 0 ? x->tb_port : 0;
    in->roles = spec->roles;
    in->n_roles = spec->n_roles;
    in->first_addresses_only = spec->firsts;
    in->spec = spec->text;
    in->spec_file = x->spec_path;
    in->total_max = environment_max(x);
    int rc = s->plan[0] ? driver_plan(s->plan, &plan, &in->n_plan, e) : 0;
    in->plan = plan;
    if (rc == 0)
        rc = runtime_env(rt, in, out, e);
    free(plan);
    if (rc == 0 && tb)
        task_side_board(x, x->tb_port);
    if (rc == 0 && rt->frees_port)
        close_p(&x->port_fd);
    return rc;
}

static int add_runtime(struct executor *x, const Tony__Start *s, uint32_t rank, struct strv *out,
                       struct err *e)
{
    const Tony__Welcome *w = x->role;
    const struct runtime *rt = runtime_find(w->framework);
    char address[32];
    if (!rt)
        return err_set(e, EINVAL, "this tony-executor does not know framework '%s'", w->framework);
    struct rt_input in = {
        .application_id = w->application_id,
        .distributed_mode = w->distributed_mode,
        .role = w->role,
        .index = w->index,
        .generation = s->generation,
        .restart_count = s->restart_count,
        .max_restarts = w->max_restarts,
        .session = s->session,
        .chief = w->chief,
        .single_node = w->single_node || w->preprocess,
        .n_tracked = s->n_tracked ? s->n_tracked : w->n_tracked,
        .local_rank = rank,
        .server = w->server != TONY__WELCOME__SERVER__NO_SERVER,
        .driver = s->driver[0] ? s->driver : NULL,
        .file_only = w->file_only,
        .address = own_address(x, address, sizeof address),
    };
    AUTO(spec_done) struct spec spec = { 0 };
    bool all = (x->cfg->remote && !in.address) || runtime_needs_all(rt, &in, s->spec_bytes);
    int rc = spec_open(x, s, all, &spec, e);
    if (rc == 0)
        rc = spec_file_ready(x, s, &spec, e);
    return rc < 0 ? rc : set_runtime(x, rt, s, &in, &spec, out, e);
}

/* Set the checkpoint from which the task resumes. Call it only if there is one. */
static int add_checkpoint(const Tony__Start *s, struct strv *out)
{
    char number[24];
    snprintf(number, sizeof number, "%llu", (unsigned long long)s->checkpoint_step);
    int rc = strv_env_set(out, "TONY_CHECKPOINT", s->checkpoint);
    return rc < 0 ? rc : strv_env_set(out, "TONY_CHECKPOINT_STEP", number);
}

/* Several ranks share the cores of the container: without this, each would start a thread for every
 * core. */
static int add_threads(const Tony__Welcome *w, struct strv *out)
{
    char number[16];
    if (w->ranks < 2 || strv_env_get(out, "OMP_NUM_THREADS"))
        return 0;
    snprintf(number, sizeof number, "%u", MAX(w->vcores / w->ranks, 1u));
    return strv_env_set(out, "OMP_NUM_THREADS", number);
}

int task_environment(struct executor *x, const Tony__Start *s, uint32_t rank, struct strv *out,
                     struct err *e)
{
    const Tony__Welcome *w = x->role;
    char number[16];
    snprintf(number, sizeof number, "%u", s->attempt);
    int rc = vec_reserve(out, 64);
    if (rc == 0)
        rc = add_base(executor_has_keeper(x) ? NULL : x->cfg->remote, out);
    if (rc == 0)
        rc = add_gpus(x->cfg, out); /* first, so that variables of the job override it */
    if (rc == 0)
        rc = add_pairs(out, w->container_env, w->n_container_env);
    if (rc == 0 && s->model_params[0])
        rc = strv_env_set(out, "MODEL_PARAMS", s->model_params);
    if (rc == 0)
        rc = add_pairs(out, w->execution_env, w->n_execution_env);
    if (rc == 0)
        rc = add_threads(w, out);
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
    if (rc == 0 && x->task.name[0])
        rc = strv_env_set(out, "TONY_TASK_SOCKET", x->task.name);
    if (rc == 0 && s->checkpoint[0])
        rc = add_checkpoint(s, out);
    if (rc == 0 && w->python[0])
        rc = strv_env_set(out, "TONY_PYTHON", w->python);
    if (rc < 0)
        return err_set(e, -rc, "cannot build the environment: %m");
    return add_runtime(x, s, rank, out, e);
}
