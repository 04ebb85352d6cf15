/*
 * XGBoost: the arguments of xgboost.collective under the names that it knows them by in an
 * environment. The tracker is a program of XGBoost's own: that of a role 'tracker' if there is one,
 * else rank 0 begins one before it joins.
 */
#include "runtime/runtime_int.h"

#include <errno.h>

#include "base/err.h"
#include "base/str.h"

static int env(const struct rt_input *in, struct strv *out, struct err *e)
{
    struct rt_place me;
    struct rt_at at;
    rt_place(in, &me);
    int rc = 0;
    if (rt_role_named(in->roles, in->n_roles, "tracker") ? rt_task_at(in, "tracker", 0, &at)
                                                         : rt_address_at(me.master, &at)) {
        rc |= strv_env_set(out, "DMLC_TRACKER_URI", at.host);
        rc |= strv_env_set(out, "DMLC_TRACKER_PORT", at.port);
    }
    rc |= rt_set_u32(out, "DMLC_NUM_WORKER", me.world_size);
    if (me.ranked)
        rc |= rt_set_u32(out, "DMLC_TASK_ID", me.rank);
    return rc ? err_set(e, ENOMEM, "cannot build the environment for xgboost: %m") : 0;
}

/* It waits for its workers, and for ever for those that died. */
static bool serves(const struct rt_role *roles, size_t n, const char *role)
{
    (void)roles;
    (void)n;
    return str_eq(role, "tracker");
}

const struct runtime runtime_xgboost = {
    .name = "xgboost",
    .env = env,
    .waits_for_spec = true,
    .needs_gang = true,
    .frees_port = true,
    .serves = serves,
    .unnoticed = rt_any,
    .lives_with_new = rt_begins_whole,
};
