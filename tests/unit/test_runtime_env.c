/* SPDX-License-Identifier: Apache-2.0 */
/* The environment that each task of a job gets, worked out by hand from the original's
 * compatibility tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "runtime/runtime.h"
#include "runtime_roles.h"
#include "torture.h"

static const char *const workers[] = { "10.0.0.1:1001", "10.0.0.2:2001" };
static const char *const servers[] = { "10.0.0.3:3001" };
static const char *const two[] = { "10.0.0.8:8001" };
static const char *const nobody[] = { "", NULL };
static const char *const half[] = { "10.0.0.1:1001", "" };

static const struct rt_role ps_worker[] = {
    { "ps", servers, 1, UNTRACKED, 0 },
    { "worker", workers, 2, TRACKED, 1 },
};
static const struct rt_role everything[] = {
    { "worker", workers, 2, TRACKED, 1 }, { "tensorboard", two, 1, SIDECAR, 1 },
    { "evaluator", one, 1, TRACKED, 1 },  { "chief", servers, 1, TRACKED, 1 },
    { "later", nobody, 2, TRACKED, 1 },
};
static const struct rt_role four_ranks[] = {
    { "chief", servers, 1, TRACKED, 2 },
    { "worker", workers, 2, TRACKED, 4 },
};
static const struct rt_role driver[] = { { "driver", one, 1, TRACKED, 1 } };
static const struct rt_role fcfs[] = { { "worker", half, 2, TRACKED, 1 } };
static const struct rt_role v6[] = { { "worker", (const char *const[]){ "[fd00::1]:77" }, 1,
                                       TRACKED, 1 } };

/* The chief's host also has two workers; two ranks in each task. */
static const char *const with_chief[] = { "10.0.0.2:2001", "10.0.0.3:3001", "10.0.0.2:2002" };
static const struct rt_role uneven_ranks[] = { { "worker", with_chief, 3, TRACKED, 2 },
                                               { "chief", servers, 1, TRACKED, 2 } };
static const struct rt_role mx[] = { { "worker", workers, 2, TRACKED, 1 },
                                     { "server", servers, 1, TRACKED, 1 },
                                     { "scheduler", one, 1, TRACKED, 1 } };
static const struct rt_role tracked_by_two[] = { { "worker", workers, 2, TRACKED, 1 },
                                                 { "tracker", one, 1, UNTRACKED, 1 } };
static const struct rt_role rays[] = { { "worker", workers, 2, UNTRACKED, 1 },
                                       { "head", one, 1, UNTRACKED, 1 },
                                       { "driver", servers, 1, TRACKED, 1 } };
static const struct rt_role dasks[] = { { "scheduler", one, 1, UNTRACKED, 1 },
                                        { "worker", workers, 2, UNTRACKED, 1 },
                                        { "client", servers, 1, TRACKED, 1 } };
static const struct rt_role dask_v6[] = { { "scheduler", (const char *const[]){ "[fd00::1]:77" }, 1,
                                            UNTRACKED, 1 },
                                          { "client", servers, 1, TRACKED, 1 } };

struct row {
    const char *name, *framework, *mode;
    const struct rt_role *roles;
    size_t n_roles;
    const char *role;
    uint32_t index, local_rank, n_tracked, restarts;
    bool chief, single_node;
    uint16_t tb_port;
    const char *spec_file;
    bool server;
    const char *want[24];   /* K=V pairs */
    const char *absent[12]; /* names K */
};

static const struct row rows[] = {
    { .name = "tensorflow worker 1 of ps and worker",
      .framework = "tensorflow",
      .mode = "GANG",
      .roles = ps_worker,
      .n_roles = 2,
      .role = "worker",
      .index = 1,
      .n_tracked = 2,
      .want = { "JOB_NAME=worker", "TASK_INDEX=1", "TASK_NUM=2", "DISTRIBUTED_MODE=GANG",
                "SESSION_ID=0", "ATTEMPT_NUMBER=0", "appid=application_1_0001",
                "JOB_ID=application_1_0001",
                "CLUSTER_SPEC={\"ps\":[\"10.0.0.3:3001\"],\"worker\":[\"10.0.0.1:1001\",\"10.0.0.2:"
                "2001\"]}",
                "TF_CONFIG={\"cluster\":{\"ps\":[\"10.0.0.3:3001\"],\"worker\":[\"10.0.0.1:1001\","
                "\"10.0.0.2:2001\"]},"
                "\"task\":{\"type\":\"worker\",\"index\":1}}",
                "TONY_RANK=1", "TONY_WORLD_SIZE=2", "TONY_MASTER_ADDR=10.0.0.1",
                "TONY_MASTER_PORT=1001", "TONY_ADDRESS=10.0.0.2:2001", "TONY_TASK=worker:1" },
      .absent = { "IS_CHIEF", "TB_PORT", "INIT_METHOD", "RANK", "MASTER_ADDR", "TONY_SPEC_FILE" } },
    { .name = "tensorflow chief with a port for TensorBoard",
      .framework = "tensorflow",
      .mode = "GANG",
      .roles = ps_worker,
      .n_roles = 2,
      .role = "worker",
      .index = 0,
      .n_tracked = 2,
      .chief = true,
      .tb_port = 6006,
      .want = { "IS_CHIEF=true", "TB_PORT=6006", "TONY_RANK=0" } },
    { .name = "tensorflow: TF_CONFIG leaves out evaluators and TensorBoard, CLUSTER_SPEC has all "
              "that are there",
      .framework = "tensorflow",
      .mode = "GANG",
      .roles = everything,
      .n_roles = 5,
      .role = "worker",
      .index = 0,
      .n_tracked = 6,
      .want = { "CLUSTER_SPEC={\"worker\":[\"10.0.0.1:1001\",\"10.0.0.2:2001\"],\"tensorboard\":["
                "\"10.0.0.8:8001\"],"
                "\"evaluator\":[\"10.0.0.9:9001\"],\"chief\":[\"10.0.0.3:3001\"]}",
                "TF_CONFIG={\"cluster\":{\"worker\":[\"10.0.0.1:1001\",\"10.0.0.2:2001\"],"
                "\"chief\":[\"10.0.0.3:3001\"]},"
                "\"task\":{\"type\":\"worker\",\"index\":0}}" } },
    { .name = "tensorflow: an evaluator sees evaluators",
      .framework = "tensorflow",
      .mode = "GANG",
      .roles = everything,
      .n_roles = 5,
      .role = "evaluator",
      .index = 0,
      .n_tracked = 6,
      .want = { "TF_CONFIG={\"cluster\":{\"worker\":[\"10.0.0.1:1001\",\"10.0.0.2:2001\"],"
                "\"evaluator\":[\"10.0.0.9:9001\"],"
                "\"chief\":[\"10.0.0.3:3001\"]},\"task\":{\"type\":\"evaluator\",\"index\":0}}" } },
    { .name = "tensorflow in FCFS knows no cluster",
      .framework = "tensorflow",
      .mode = "FCFS",
      .roles = fcfs,
      .n_roles = 1,
      .role = "worker",
      .index = 0,
      .n_tracked = 2,
      .want = { "DISTRIBUTED_MODE=FCFS", "TASK_NUM=2" },
      .absent = { "TF_CONFIG", "CLUSTER_SPEC" } },
    { .name = "pytorch worker 1 of two",
      .framework = "pytorch",
      .mode = "GANG",
      .roles = ps_worker,
      .n_roles = 2,
      .role = "worker",
      .index = 1,
      .n_tracked = 2,
      .want = { "INIT_METHOD=tcp://10.0.0.1:1001", "RANK=1", "WORLD=2", "WORLD_SIZE=2",
                "MASTER_ADDR=10.0.0.1", "MASTER_PORT=1001", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
                "GROUP_RANK=1", "GROUP_WORLD_SIZE=2", "NODE_RANK=1", "ROLE_RANK=1",
                "ROLE_WORLD_SIZE=2", "TORCHELASTIC_RESTART_COUNT=0",
                "TORCHELASTIC_RUN_ID=application_1_0001" },
      .absent = { "CLUSTER_SPEC", "TF_CONFIG", "TB_PORT" } },
    { .name = "pytorch: chief has rank 0 wherever it stands in the file",
      .framework = "pytorch",
      .mode = "GANG",
      .roles = everything,
      .n_roles = 5,
      .role = "worker",
      .index = 1,
      .n_tracked = 6,
      .want = { "INIT_METHOD=tcp://10.0.0.3:3001", "RANK=2", "WORLD=6", "WORLD_SIZE=6",
                "MASTER_PORT=3001", "GROUP_RANK=2", "GROUP_WORLD_SIZE=6", "ROLE_RANK=1",
                "ROLE_WORLD_SIZE=2" } },
    { .name = "pytorch: the evaluator comes after the workers",
      .framework = "pytorch",
      .mode = "GANG",
      .roles = everything,
      .n_roles = 5,
      .role = "evaluator",
      .index = 0,
      .n_tracked = 6,
      .want = { "RANK=3", "WORLD_SIZE=6", "ROLE_RANK=0", "ROLE_WORLD_SIZE=1" } },
    { .name = "pytorch: several ranks a task",
      .framework = "pytorch",
      .mode = "GANG",
      .roles = four_ranks,
      .n_roles = 2,
      .role = "worker",
      .index = 1,
      .local_rank = 3,
      .n_tracked = 3,
      .restarts = 2,
      .want = { "RANK=9", "WORLD_SIZE=10", "LOCAL_RANK=3", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=2",
                "GROUP_WORLD_SIZE=3", "NODE_RANK=2", "ROLE_RANK=7", "ROLE_WORLD_SIZE=8",
                "TORCHELASTIC_RESTART_COUNT=2", "ATTEMPT_NUMBER=2", "SESSION_ID=2",
                "NUM_AM_RETRIES=2", "TONY_GENERATION=3" } },
    { .name = "pytorch: an untracked task has no rank, but knows where rank 0 is",
      .framework = "pytorch",
      .mode = "GANG",
      .roles = ps_worker,
      .n_roles = 2,
      .role = "ps",
      .index = 0,
      .n_tracked = 2,
      .want = { "MASTER_ADDR=10.0.0.1", "WORLD_SIZE=2", "JOB_NAME=ps" },
      .absent = { "RANK", "LOCAL_RANK", "TONY_RANK" } },
    { .name = "pytorch: an address of version 6",
      .framework = "pytorch",
      .mode = "GANG",
      .roles = v6,
      .n_roles = 1,
      .role = "worker",
      .n_tracked = 1,
      .want = { "MASTER_ADDR=fd00::1", "MASTER_PORT=77", "INIT_METHOD=tcp://[fd00::1]:77" } },
    { .name = "standalone",
      .framework = "standalone",
      .mode = "GANG",
      .roles = v6,
      .n_roles = 1,
      .role = "worker",
      .n_tracked = 1,
      .want = { "JOB_NAME=worker", "TASK_INDEX=0", "TASK_NUM=1" },
      .absent = { "CLUSTER_SPEC", "RANK", "TB_PORT" } },
    { .name = "generic",
      .framework = "generic",
      .mode = "GANG",
      .roles = ps_worker,
      .n_roles = 2,
      .role = "ps",
      .n_tracked = 2,
      .spec_file = "/w/.tony-spec.json",
      .want = { "TONY_ROLE=ps", "TONY_INDEX=0", "TONY_WORLD_SIZE=2", "TONY_ADDRESS=10.0.0.3:3001",
                "TONY_MASTER_ADDR=10.0.0.1", "TONY_MASTER_PORT=1001",
                "TONY_SPEC_FILE=/w/.tony-spec.json", "TONY_GENERATION=1", "TONY_LOCAL_RANK=0",
                "TONY_LOCAL_WORLD_SIZE=1", "TONY_RESTART_COUNT=0",
                "TONY_APPLICATION_ID=application_1_0001" },
      .absent = { "TONY_RANK", "RANK", "TF_CONFIG" } },
    { .name = "tensorflow without roles: no cluster, which TensorFlow would refuse",
      .framework = "tensorflow",
      .mode = "GANG",
      .roles = driver,
      .n_roles = 1,
      .role = "driver",
      .n_tracked = 1,
      .chief = true,
      .single_node = true,
      .tb_port = 6006,
      .want = { "JOB_NAME=driver", "IS_CHIEF=true", "PREPROCESSING_JOB=true", "TB_PORT=6006",
                "TONY_TASK=driver:0" },
      .absent = { "TF_CONFIG", "CLUSTER_SPEC" } },
    { .name = "horovod: rank 0 of uneven hosts",
      .framework = "horovod",
      .mode = "GANG",
      .roles = uneven_workers,
      .n_roles = 2,
      .role = "worker",
      .index = 0,
      .n_tracked = 6,
      .server = true,
      .want = { "HOROVOD_CONTROLLER=gloo", "HOROVOD_CPU_OPERATIONS=gloo",
                "HOROVOD_GLOO_TIMEOUT_SECONDS=2000", "HOROVOD_GLOO_RENDEZVOUS_ADDR=10.0.0.1",
                "HOROVOD_GLOO_RENDEZVOUS_PORT=1", "HOROVOD_HOSTNAME=10.0.0.1", "HOROVOD_RANK=0",
                "HOROVOD_SIZE=6", "HOROVOD_LOCAL_RANK=0", "HOROVOD_LOCAL_SIZE=3",
                "HOROVOD_CROSS_RANK=0", "HOROVOD_CROSS_SIZE=3",
                "CLUSTER_SPEC={\"worker\":[\"10.0.0.1:1\",\"10.0.0.2:2\",\"10.0.0.1:3\",\"10.0.0.3:"
                "4\",\"10.0.0.1:5\",\"10.0.0.2:6\"],\"driver\":[\"10.0.0.9:9001\"]}" } },
    { .name = "horovod: the first task of the second host",
      .framework = "horovod",
      .mode = "GANG",
      .roles = uneven_workers,
      .n_roles = 2,
      .role = "worker",
      .index = 1,
      .n_tracked = 6,
      .server = true,
      .want = { "HOROVOD_HOSTNAME=10.0.0.2", "HOROVOD_RANK=3", "HOROVOD_SIZE=6",
                "HOROVOD_LOCAL_RANK=0", "HOROVOD_LOCAL_SIZE=2", "HOROVOD_CROSS_RANK=1",
                "HOROVOD_CROSS_SIZE=3" } },
    { .name = "horovod: the third task of the first host is alone in its place",
      .framework = "horovod",
      .mode = "GANG",
      .roles = uneven_workers,
      .n_roles = 2,
      .role = "worker",
      .index = 4,
      .n_tracked = 6,
      .server = true,
      .want = { "HOROVOD_HOSTNAME=10.0.0.1", "HOROVOD_RANK=2", "HOROVOD_LOCAL_RANK=2",
                "HOROVOD_LOCAL_SIZE=3", "HOROVOD_CROSS_RANK=0", "HOROVOD_CROSS_SIZE=1" } },
    { .name = "horovod: the last task",
      .framework = "horovod",
      .mode = "GANG",
      .roles = uneven_workers,
      .n_roles = 2,
      .role = "worker",
      .index = 5,
      .n_tracked = 6,
      .server = true,
      .want = { "HOROVOD_RANK=4", "HOROVOD_LOCAL_RANK=1", "HOROVOD_LOCAL_SIZE=2",
                "HOROVOD_CROSS_RANK=1", "HOROVOD_CROSS_SIZE=2" } },
    { .name = "horovod: the host with one task",
      .framework = "horovod",
      .mode = "GANG",
      .roles = uneven_workers,
      .n_roles = 2,
      .role = "worker",
      .index = 3,
      .n_tracked = 6,
      .server = true,
      .want = { "HOROVOD_RANK=5", "HOROVOD_LOCAL_RANK=0", "HOROVOD_LOCAL_SIZE=1",
                "HOROVOD_CROSS_RANK=2", "HOROVOD_CROSS_SIZE=3" } },
    { .name = "horovod: chief first, two ranks a task",
      .framework = "horovod",
      .mode = "GANG",
      .roles = uneven_ranks,
      .n_roles = 2,
      .role = "worker",
      .index = 1,
      .local_rank = 1,
      .n_tracked = 4,
      .server = true,
      /* hosts: .3 (the chief's two, then worker 1's two), .2 (workers 0 and 2) */
      .want = { "HOROVOD_HOSTNAME=10.0.0.3", "HOROVOD_RANK=3", "HOROVOD_SIZE=8",
                "HOROVOD_LOCAL_RANK=3", "HOROVOD_LOCAL_SIZE=4", "HOROVOD_CROSS_RANK=0",
                "HOROVOD_CROSS_SIZE=2" } },
    { .name = "horovod: a driver is no rank",
      .framework = "horovod",
      .mode = "GANG",
      .roles = uneven_workers,
      .n_roles = 2,
      .role = "driver",
      .index = 0,
      .n_tracked = 6,
      .want = { "TONY_WORLD_SIZE=6" },
      .absent = { "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_CONTROLLER" } },
    { .name = "mpi",
      .framework = "mpi",
      .mode = "GANG",
      .roles = four_ranks,
      .n_roles = 2,
      .role = "worker",
      .index = 1,
      .local_rank = 3,
      .n_tracked = 3,
      .server = true,
      .want = { "PMI_PORT=10.0.0.3:3001", "PMI_ID=9", "MPI_LOCALRANKID=3", "MPI_LOCALNRANKS=4" } },
    { .name = "mxnet worker",
      .framework = "mxnet",
      .mode = "GANG",
      .roles = mx,
      .n_roles = 3,
      .role = "worker",
      .index = 1,
      .n_tracked = 4,
      .want = { "DMLC_ROLE=worker", "DMLC_PS_ROOT_URI=10.0.0.9", "DMLC_PS_ROOT_PORT=9001",
                "DMLC_NUM_SERVER=1", "DMLC_NUM_WORKER=2", "DMLC_LOCAL=0" } },
    { .name = "jax process 0",
      .framework = "jax",
      .mode = "GANG",
      .roles = everything,
      .n_roles = 5,
      .role = "chief",
      .index = 0,
      .n_tracked = 6,
      .want = { "JAX_COORDINATOR_ADDRESS=10.0.0.3:3001",
                "JAX_COORDINATOR_BIND_ADDRESS=10.0.0.3:3001", "JAX_NUM_PROCESSES=6",
                "JAX_PROCESS_ID=0", "JAX_ENABLE_PREEMPTION_SERVICE=false" } },
    { .name = "jax process 2",
      .framework = "jax",
      .mode = "GANG",
      .roles = everything,
      .n_roles = 5,
      .role = "worker",
      .index = 1,
      .n_tracked = 6,
      .want = { "JAX_COORDINATOR_ADDRESS=10.0.0.3:3001", "JAX_PROCESS_ID=2" },
      .absent = { "JAX_COORDINATOR_BIND_ADDRESS" } },
    { .name = "jax: who is not tracked is no process",
      .framework = "jax",
      .mode = "GANG",
      .roles = everything,
      .n_roles = 5,
      .role = "tensorboard",
      .index = 0,
      .n_tracked = 6,
      .want = { "JAX_NUM_PROCESSES=6" },
      .absent = { "JAX_PROCESS_ID" } },
    { .name = "xgboost with a tracker",
      .framework = "xgboost",
      .mode = "GANG",
      .roles = tracked_by_two,
      .n_roles = 2,
      .role = "worker",
      .index = 1,
      .n_tracked = 2,
      .want = { "DMLC_TRACKER_URI=10.0.0.9", "DMLC_TRACKER_PORT=9001", "DMLC_NUM_WORKER=2",
                "DMLC_TASK_ID=1" } },
    { .name = "xgboost: the tracker itself",
      .framework = "xgboost",
      .mode = "GANG",
      .roles = tracked_by_two,
      .n_roles = 2,
      .role = "tracker",
      .index = 0,
      .n_tracked = 2,
      .want = { "DMLC_TRACKER_URI=10.0.0.9", "DMLC_TRACKER_PORT=9001", "DMLC_NUM_WORKER=2" },
      .absent = { "DMLC_TASK_ID" } },
    { .name = "xgboost: rank 0 runs the tracker",
      .framework = "xgboost",
      .mode = "GANG",
      .roles = tracked_by_two,
      .n_roles = 1,
      .role = "worker",
      .index = 1,
      .n_tracked = 2,
      .want = { "DMLC_TRACKER_URI=10.0.0.1", "DMLC_TRACKER_PORT=1001" } },
    { .name = "lightgbm: chief first",
      .framework = "lightgbm",
      .mode = "GANG",
      .roles = four_ranks,
      .n_roles = 2,
      .role = "worker",
      .index = 0,
      .n_tracked = 3,
      .want = { "LIGHTGBM_MACHINES=10.0.0.3:3001,10.0.0.1:1001,10.0.0.2:2001",
                "LIGHTGBM_NUM_MACHINES=3", "LIGHTGBM_LOCAL_LISTEN_PORT=1001" } },
    { .name = "ray worker",
      .framework = "ray",
      .mode = "GANG",
      .roles = rays,
      .n_roles = 3,
      .role = "worker",
      .index = 0,
      .n_tracked = 1,
      .want = { "RAY_ADDRESS=10.0.0.9:9001", "RAY_HEAD_HOST=10.0.0.9", "RAY_HEAD_PORT=9001",
                "TONY_HOST=10.0.0.1", "TONY_PORT=1001" } },
    { .name = "ray head",
      .framework = "ray",
      .mode = "GANG",
      .roles = rays,
      .n_roles = 3,
      .role = "head",
      .index = 0,
      .n_tracked = 1,
      .want = { "RAY_HEAD_HOST=10.0.0.9", "RAY_HEAD_PORT=9001" },
      .absent = { "RAY_ADDRESS" } },
    { .name = "dask client",
      .framework = "dask",
      .mode = "GANG",
      .roles = dasks,
      .n_roles = 3,
      .role = "client",
      .index = 0,
      .n_tracked = 1,
      .want = { "DASK_SCHEDULER_ADDRESS=tcp://10.0.0.9:9001" } },
    { .name = "dask over IPv6",
      .framework = "dask",
      .mode = "GANG",
      .roles = dask_v6,
      .n_roles = 2,
      .role = "client",
      .index = 0,
      .n_tracked = 1,
      .want = { "DASK_SCHEDULER_ADDRESS=tcp://[fd00::1]:77" } },
};

enum { ROLES_MAX = 8, LIST_MAX = 256 };

/* The same roles in the form in which the master sends them. */
static void as_lists(const struct row *r, struct rt_role *out, char (*texts)[LIST_MAX])
{
    for (size_t i = 0; i < r->n_roles; i++) {
        char *to = texts[i];
        out[i] = r->roles[i];
        to[0] = '\0';
        for (uint32_t k = 0; k < out[i].n; k++) {
            const char *a = out[i].addresses[k];
            size_t at = strlen(to);
            snprintf(to + at, LIST_MAX - at, "%s\"%s\"", k ? "," : "", a ? a : "");
        }
        out[i].addresses = NULL;
        out[i].list = span_of(to);
    }
}

static int build(const struct row *r, bool lists, struct strv *env)
{
    struct rt_role roles[ROLES_MAX];
    char texts[ROLES_MAX][LIST_MAX];
    if (lists)
        as_lists(r, roles, texts);
    struct rt_input in = { .application_id = "application_1_0001",
                           .distributed_mode = r->mode,
                           .roles = lists ? roles : r->roles,
                           .n_roles = r->n_roles,
                           .role = r->role,
                           .index = r->index,
                           .local_rank = r->local_rank,
                           .generation = 1 + r->restarts,
                           .session = r->restarts,
                           .restart_count = r->restarts,
                           .chief = r->chief,
                           .single_node = r->single_node,
                           .n_tracked = r->n_tracked,
                           .tb_port = r->tb_port,
                           .server = r->server,
                           .spec_file = r->spec_file };
    struct err e = { 0 };
    return runtime_env(runtime_find(r->framework), &in, env, &e);
}

static void environments(void **state)
{
    (void)state;
    for (size_t n = 0; n < 2 * ARRAY_LEN(rows); n++) {
        struct strv env = { 0 };
        size_t i = n / 2;
        assert_int_equal(build(&rows[i], n % 2, &env), 0);
        for (size_t k = 0; k < ARRAY_LEN(rows[i].want) && rows[i].want[k]; k++) {
            char key[64];
            const char *want = strchr(rows[i].want[k], '=') + 1;
            snprintf(key, sizeof key, "%.*s", (int)(want - 1 - rows[i].want[k]), rows[i].want[k]);
            const char *got = strv_env_get(&env, key);
            if (!got || strcmp(got, want) != 0)
                fail_msg("%s: %s is '%s', not '%s'", rows[i].name, key, got ? got : "(absent)",
                         want);
        }
        for (size_t k = 0; k < ARRAY_LEN(rows[i].absent) && rows[i].absent[k]; k++)
            if (strv_env_get(&env, rows[i].absent[k]))
                fail_msg("%s: %s is there", rows[i].name, rows[i].absent[k]);
        strv_done(&env);
    }
}

/* The variables that torchrun's agent would set: for the second of two ranks in one task. */
static void the_store_of_torch(void **state)
{
    (void)state;
    static const char *const want[] = { "TORCHELASTIC_USE_AGENT_STORE=True",
                                        "TORCHELASTIC_ERROR_FILE=/logs/worker-1/1/error.2.json",
                                        "TORCH_NCCL_ASYNC_ERROR_HANDLING=0",
                                        "ROLE_NAME=worker",
                                        "RANK=8",
                                        "LOCAL_RANK=2" };
    struct rt_input in = { .application_id = "application_1_0001",
                           .distributed_mode = "GANG",
                           .roles = four_ranks,
                           .n_roles = 2,
                           .role = "worker",
                           .index = 1,
                           .local_rank = 2,
                           .generation = 1,
                           .n_tracked = 3,
                           .server = true };
    AUTO(strv_done) struct strv env = { 0 }, off = { 0 };
    assert_int_equal(strv_push(&env, "TONY_LOG_DIR=/logs/worker-1/1"), 0);
    assert_int_equal(strv_push(&env, "TORCH_NCCL_ASYNC_ERROR_HANDLING=0"), 0); /* set by the user */
    assert_int_equal(runtime_env(runtime_find("pytorch"), &in, &env, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        bool found = false;
        for (size_t k = 0; k < env.n; k++)
            found = found || str_eq(env.v[k], want[i]);
        if (!found)
            fail_msg("%s is not there", want[i]);
    }
    in.server = false;
    assert_int_equal(runtime_env(runtime_find("pytorch"), &in, &off, NULL), 0);
    assert_null(strv_env_get(&off, "TORCHELASTIC_USE_AGENT_STORE"));
    assert_null(strv_env_get(&off, "TORCHELASTIC_ERROR_FILE"));
}

static void variables_of_the_user_are_replaced(void **state)
{
    (void)state;
    struct strv env = { 0 };
    assert_int_equal(strv_push(&env, "RANK=77"), 0);
    assert_int_equal(build(&rows[5], false, &env), 0);
    assert_string_equal(strv_env_get(&env, "RANK"), "1");
    strv_done(&env);
}

static int build_all(void *unused)
{
    (void)unused;
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(rows) && rc == 0; i++) {
        struct strv env = { 0 };
        rc = build(&rows[i], false, &env);
        strv_done(&env);
    }
    return rc;
}

static void without_memory(void **state)
{
    (void)state;
    assert_true(torture(build_all, NULL) > 100);
}

/* A framework that needs a server reports it if there is none. */
static void a_missing_server_is_reported(void **state)
{
    static const char *const names[] = { "horovod", "mpi" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct rt_input in = { .application_id = "a",
                               .distributed_mode = "GANG",
                               .roles = four_ranks,
                               .n_roles = 2,
                               .role = "worker" };
        struct strv env = { 0 };
        struct err e = { 0 };
        assert_int_equal(runtime_env(runtime_find(names[i]), &in, &env, &e), -107);
        assert_non_null(strstr(e.msg, "there is no"));
        strv_done(&env);
    }
}

static void variables_of_the_user_are_not_replaced(void **state)
{
    struct rt_input in = { .application_id = "a",
                           .distributed_mode = "GANG",
                           .roles = four_ranks,
                           .n_roles = 2,
                           .role = "worker",
                           .server = true };
    struct strv env = { 0 };
    struct err e = { 0 };
    (void)state;
    assert_int_equal(strv_push(&env, "HOROVOD_GLOO_TIMEOUT_SECONDS=5"), 0);
    assert_int_equal(strv_push(&env, "JAX_ENABLE_PREEMPTION_SERVICE=true"), 0);
    assert_int_equal(runtime_env(runtime_find("horovod"), &in, &env, &e), 0);
    assert_int_equal(runtime_env(runtime_find("jax"), &in, &env, &e), 0);
    assert_string_equal(strv_env_get(&env, "HOROVOD_GLOO_TIMEOUT_SECONDS"), "5");
    assert_string_equal(strv_env_get(&env, "JAX_ENABLE_PREEMPTION_SERVICE"), "true");
    strv_done(&env);
}

/* A user's driver may number the ranks in any way; tony computes the local ranks on each host. */
static void a_plan_of_the_user(void **state)
{
    static const struct rt_slot plan[] = {
        { "10.0.0.2", 0, 6, 0, 2, 0, 3 }, { "10.0.0.2", 1, 6, 1, 2, 0, 2 },
        { "10.0.0.1", 5, 6, 0, 3, 1, 3 }, { "10.0.0.1", 4, 6, 1, 3, 1, 2 },
        { "10.0.0.1", 3, 6, 2, 3, 0, 1 },
    };
    struct rt_input in = { .application_id = "a",
                           .distributed_mode = "GANG",
                           .roles = uneven_workers,
                           .n_roles = 2,
                           .role = "worker",
                           .index = 2,
                           .driver = "10.0.0.9:4444",
                           .plan = plan,
                           .n_plan = ARRAY_LEN(plan) };
    struct strv env = { 0 };
    struct err e = { 0 };
    (void)state;
    assert_int_equal(runtime_env(runtime_find("horovod"), &in, &env, &e), 0);
    assert_string_equal(strv_env_get(&env, "HOROVOD_RANK"), "4");
    assert_string_equal(strv_env_get(&env, "HOROVOD_LOCAL_RANK"), "1");
    assert_string_equal(strv_env_get(&env, "HOROVOD_CROSS_RANK"), "1");
    strv_done(&env);
    in.index = 3; /* on a host that the plan lacks */
    assert_int_equal(runtime_env(runtime_find("horovod"), &in, &env, &e), -2);
    assert_non_null(strstr(e.msg, "'10.0.0.3'"));
    strv_done(&env);
    in = (struct rt_input){ .application_id = "a",
                            .distributed_mode = "GANG",
                            .roles = uneven_workers,
                            .n_roles = 2,
                            .role = "driver" };
    assert_int_equal(strv_push(&env, "PWD=/work"), 0);
    assert_int_equal(runtime_env(runtime_find("horovod"), &in, &env, &e), 0);
    assert_string_equal(strv_env_get(&env, "CLUSTER_WORKER_LIST"),
                        "10.0.0.1:3,10.0.0.2:2,10.0.0.3:1");
    assert_string_equal(strv_env_get(&env, "DRIVER_OUTPUT_PATH"), "/work");
    strv_done(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_server_is_reported),
        cmocka_unit_test(variables_of_the_user_are_not_replaced),
        cmocka_unit_test(a_plan_of_the_user),
        cmocka_unit_test(environments),
        cmocka_unit_test(the_store_of_torch),
        cmocka_unit_test(variables_of_the_user_are_replaced),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
