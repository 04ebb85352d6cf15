/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XGBoost: the arguments of xgboost.collective, under the names that XGBoost gives them in the
 * environment. The tracker is XGBoost's own. A role 'tracker' runs it; without that role rank 0
 * starts it before it joins.
 */
#include "runtime/runtime_int.h"

#include <errno.h>

#include "base/err.h"
#include "base/str.h"

static int env(const struct rt_input *in, struct strv *out, struct err *e)
{
    struct rt_place me;
    struct rt_host_port at;
    rt_place(in, &me);
    int rc = 0;
    if (rt_role_named(in->roles, in->n_roles, "tracker") ? rt_task_address(in, "tracker", 0, &at)
                                                         : rt_parse_address(me.master, &at)) {
        rc |= strv_env_set(out, "DMLC_TRACKER_URI", at.host);
        rc |= strv_env_set(out, "DMLC_TRACKER_PORT", at.port);
    }
    rc |= rt_set_u32(out, "DMLC_NUM_WORKER", me.world_size);
    if (me.ranked)
        rc |= rt_set_u32(out, "DMLC_TASK_ID", me.rank);
    return rc ? err_set(e, ENOMEM, "cannot build the environment for xgboost: %m") : 0;
}

/* If a worker dies, the tracker waits for it for ever. So tony stops the tracker when the job is
 * over, instead of waiting for its end. */
static bool serves(const struct rt_role *roles, size_t n, const char *role)
{
    (void)roles;
    (void)n;
    return str_eq(role, "tracker");
}

const struct runtime runtime_xgboost = {
    .name = "xgboost",
    .env = env,
    .addresses = RT_FIRST,
    .waits_for_spec = true,
    .needs_gang = true,
    .frees_port = true,
    .serves = serves,
    .unnoticed = rt_every_role,
    .lives_with_new = rt_gang_restarts,
};
