/* What a task finds in its environment; docs/environment.md is the list for users. */
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

/* FNV-1a over words: tells the few specs of one job apart. */
static uint64_t text_hash(const char *p, size_t len)
{
    uint64_t h = 0xcbf29ce484222325u, word;
    for (; len >= sizeof word; p += sizeof word, len -= sizeof word) {
        memcpy(&word, p, sizeof word);
        h = (h ^ word) * 0x100000001b3u;
        h ^= h >> 29;
    }
    for (; len; p++, len--)
        h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    return h ^ h >> 32;
}

/*
 * The spec as a file, for the generic framework, which promises it. All tasks of a gang have the
 * same, so the first to need it writes it beside the working directories, named by its content, and
 * the others find it there. On a cluster nobody shares the directory, and each attempt writes its
 * own.
 */
static int spec_file(const struct executor *x, struct span json, char **out, struct err *e)
{
    AUTO(free_p)
    char *path = x->cfg->remote ? str_printf("%s/.tony-spec.json", x->workdir)
                                : str_printf("%s/containers/.spec-%016llx.json", x->cfg->job_dir,
                                             (unsigned long long)text_hash(json.p, json.len));
    struct stat st;
    if (!path)
        return err_set(e, ENOMEM, "cannot write the cluster spec: %m");
    if (x->cfg->remote || stat(path, &st) == -1 || (size_t)st.st_size != json.len) {
        int rc = fs_write_atomic(AT_FDCWD, path, json, 0400, false, e);
        if (rc < 0)
            return rc;
    }
    *out = TAKE(path);
    return 0;
}

static int add_spec_file(struct executor *x, const struct rt_input *in, struct strv *out,
                         struct err *e)
{
    AUTO(buf_done) struct buf text = { 0 };
    const char *json = strv_env_get(out, "CLUSTER_SPEC");
    if (!json && runtime_spec_json(in->roles, in->n_roles, NULL, NULL, &text) == 0)
        json = buf_cstr(&text); /* FCFS: those that are known so far */
    AUTO(free_p) char *path = NULL;
    int rc = json ? spec_file(x, span_of(json), &path, e)
                  : err_set(e, ENOMEM, "cannot write the cluster spec: %m");
    if (rc == 0 && strv_env_set(out, "TONY_SPEC_FILE", path) < 0)
        rc = err_set(e, ENOMEM, "cannot build the environment: %m");
    free(x->spec_path);
    x->spec_path = TAKE(path);
    return rc;
}

static bool has_role(const struct rt_role *roles, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(roles[i].name, name))
            return true;
    return false;
}

static int add_runtime(struct executor *x, const Tony__Start *s, uint32_t rank, struct strv *out,
                       struct err *e)
{
    const Tony__Welcome *w = x->role;
    const struct runtime *rt = runtime_find(w->framework);
    if (!rt)
        return err_set(e, EINVAL, "framework '%s' is not known here", w->framework);
    size_t n;
    AUTO(free_p) struct rt_role *roles = executor_roles(s->spec, &n);
    if (!roles)
        return err_set(e, ENOMEM, "cannot build the environment: %m");
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
        .max_restarts = w->max_restarts,
        .session = s->session,
        .chief = w->chief,
        .single_node = w->single_node || w->preprocess,
        .n_tracked = w->n_tracked,
        .local_rank = rank,
        .server = w->server != TONY__WELCOME__SERVER__NO_SERVER,
        .tb_port = tb && rank == 0 ? x->tb_port : 0,
        .driver = s->driver[0] ? s->driver : NULL,
    };
    struct rt_slot *plan = NULL;
    int rc = s->plan[0] ? driver_plan(s->plan, &plan, &in.n_plan, e) : 0;
    in.plan = plan;
    if (rc == 0)
        rc = runtime_env(rt, &in, out, e);
    free(plan);
    if (rc == 0 && tb)
        task_side_board(x, x->tb_port);
    if (rc == 0 && rt->frees_port)
        close_p(&x->port_fd);
    return rc == 0 && rt->spec_file ? add_spec_file(x, &in, out, e) : rc;
}

/* Where to go on; without a checkpoint there is neither. */
static int add_checkpoint(const Tony__Start *s, struct strv *out)
{
    char number[24];
    snprintf(number, sizeof number, "%llu", (unsigned long long)s->checkpoint_step);
    int rc = strv_env_set(out, "TONY_CHECKPOINT", s->checkpoint);
    return rc < 0 ? rc : strv_env_set(out, "TONY_CHECKPOINT_STEP", number);
}

/* Of several ranks each would take all cores for itself. */
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
        rc = add_base(x->cfg->remote, out);
    if (rc == 0)
        rc = add_gpus(x->cfg, out); /* the user may say otherwise */
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
