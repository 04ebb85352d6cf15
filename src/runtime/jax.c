/*
 * JAX: what jax.distributed.initialize() is given. It reads the coordinator's address by itself,
 * and takes the other two as arguments. The coordinator runs in process 0 and listens on the
 * address that the others use, not on all.
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
    /* else it takes TERM for news that it may look at later, and runs on until it is killed */
    rc |= rt_set_default(out, "JAX_ENABLE_PREEMPTION_SERVICE", "false");
    return rc ? err_set(e, ENOMEM, "cannot build the environment for jax: %m") : 0;
}

const struct runtime runtime_jax = {
    .name = "jax",
    .env = env,
    .waits_for_spec = true,
    .needs_gang = true,
    .unnoticed = rt_any, /* process 0 prints that another one died, and lives on */
    .lives_with_new = rt_begins_whole,
};
