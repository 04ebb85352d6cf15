/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JAX: the arguments of jax.distributed.initialize(). That function reads the coordinator's address
 * from the environment itself; the program passes the other two. The coordinator runs in process 0.
 * It listens only on the address that the other processes use.
 */
#include "runtime/runtime_int.h"

#include <errno.h>

#include "base/err.h"

static int env(const struct rt_input *in, struct strv *out, struct err *e)
{
    struct rt_place at;
    rt_place(in, &at);
    int rc = 0;
    if (at.master) {
        rc |= strv_env_set(out, "JAX_COORDINATOR_ADDRESS", at.master);
        if (at.ranked && at.rank == 0)
            rc |= rt_set_default(out, "JAX_COORDINATOR_BIND_ADDRESS", at.master);
    }
    rc |= rt_set_u32(out, "JAX_NUM_PROCESSES", at.world_size);
    if (at.ranked)
        rc |= rt_set_u32(out, "JAX_PROCESS_ID", at.rank);
    /* With the preemption service JAX handles SIGTERM itself, and the process runs until SIGKILL.
     */
    rc |= rt_set_default(out, "JAX_ENABLE_PREEMPTION_SERVICE", "false");
    return rc ? err_set(e, ENOMEM, "cannot build the environment for jax: %m") : 0;
}

const struct runtime runtime_jax = {
    .name = "jax",
    .env = env,
    .addresses = RT_FIRST,
    .waits_for_spec = true,
    .needs_gang = true,
    .unnoticed = rt_every_role, /* process 0 prints that another process died, and runs on */
    .lives_with_new = rt_gang_restarts,
};
