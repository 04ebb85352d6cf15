/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch: the variables that init_process_group("env://") reads, those that torchrun also sets,
 * and TonY's INIT_METHOD, RANK and WORLD. A task of an untracked role belongs to no process group:
 * it gets the address of rank 0 and the sizes, but no rank.
 *
 * If there are several ranks, the executor of rank 0 serves the store at MASTER_ADDR:MASTER_PORT
 * (rendezvous/tcpstore.h). TORCHELASTIC_USE_AGENT_STORE tells rank 0 not to start a store itself.
 */
#include "runtime/runtime_int.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"

static int check(const struct rt_role *roles, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(roles[i].name, "worker") && roles[i].n > 0)
            return 0;
    err_set(e, EINVAL, "framework 'pytorch' needs a role 'worker', and this job has none");
    return err_hint(e, "name the role 'worker', or use the framework 'generic'");
}

/* Set the variables of torchrun's agent. TORCH_NCCL_ASYNC_ERROR_HANDLING and
 * TORCHELASTIC_ERROR_FILE keep the user's value. A program with torchrun's decorator @record writes
 * its last exception into TORCHELASTIC_ERROR_FILE. */
static int set_agent(const struct rt_input *in, struct strv *out)
{
    char path[PATH_MAX];
    const char *logs = strv_env_get(out, "TONY_LOG_DIR");
    int rc = strv_env_set(out, "ROLE_NAME", in->role);
    if (in->server)
        rc |= strv_env_set(out, "TORCHELASTIC_USE_AGENT_STORE", "True");
    if (!strv_env_get(out, "TORCH_NCCL_ASYNC_ERROR_HANDLING"))
        rc |= strv_env_set(out, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    if (!logs || strv_env_get(out, "TORCHELASTIC_ERROR_FILE"))
        return rc;
    (void)snprintf(path, sizeof path, in->local_rank ? "%s/error.%u.json" : "%s/error.json", logs,
                   in->local_rank);
    return rc | strv_env_set(out, "TORCHELASTIC_ERROR_FILE", path);
}

static int set_ranks(const struct rt_input *in, const struct rt_place *at, struct strv *out)
{
    int rc = 0;
    rc |= rt_set_u32(out, "RANK", at->rank);
    rc |= rt_set_u32(out, "LOCAL_RANK", in->local_rank);
    rc |= rt_set_u32(out, "LOCAL_WORLD_SIZE", at->local_size);
    rc |= rt_set_u32(out, "GROUP_RANK", at->group_rank);
    rc |= rt_set_u32(out, "NODE_RANK", at->group_rank);
    rc |= rt_set_u32(out, "ROLE_RANK", at->role_rank);
    rc |= rt_set_u32(out, "ROLE_WORLD_SIZE", at->role_size);
    return rc;
}

static int env(const struct rt_input *in, struct strv *out, struct err *e)
{
    struct rt_place at;
    rt_place(in, &at);
    int rc = 0;
    char host[256], url[300];
    const char *port;
    if (rt_split_address(at.master, host, sizeof host, &port)) {
        snprintf(url, sizeof url, "tcp://%s", at.master);
        rc |= strv_env_set(out, "INIT_METHOD", url);
        rc |= strv_env_set(out, "MASTER_ADDR", host);
        rc |= strv_env_set(out, "MASTER_PORT", port);
    }
    rc |= rt_set_u32(out, "WORLD", at.world_size);
    rc |= rt_set_u32(out, "WORLD_SIZE", at.world_size);
    rc |= rt_set_u32(out, "GROUP_WORLD_SIZE", at.n_groups);
    /* torchrun counts how often the gang was restarted, so all ranks have the same count. It
     * restarts only after failures of ranks; tony also restarts for other reasons, which
     * max_restarts does not count. The maximum must not be below the count. */
    uint32_t restarts = in->generation ? in->generation - 1 : 0;
    rc |= rt_set_u32(out, "TORCHELASTIC_RESTART_COUNT", restarts);
    rc |= rt_set_u32(out, "TORCHELASTIC_MAX_RESTARTS", MAX(restarts, in->max_restarts));
    rc |= strv_env_set(out, "TORCHELASTIC_RUN_ID", in->application_id);
    rc |= set_agent(in, out);
    if (at.ranked)
        rc |= set_ranks(in, &at, out);
    return rc ? err_set(e, ENOMEM, "cannot build the environment for pytorch: %m") : 0;
}

const struct runtime runtime_pytorch = {
    .name = "pytorch",
    .check = check,
    .env = env,
    .addresses = RT_FIRST,
    .server = "tcpstore",
    .server_from = 2, /* a single rank needs no store */
    .lives_with_new = rt_gang_restarts,
    .waits_for_spec = true,
};
