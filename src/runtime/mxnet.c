/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MXNet's parameter servers (ps-lite): the roles scheduler, server and worker, whose tasks all end
 * by themselves. The scheduler's host must be numeric: if it is a name, ps-lite waits for ever.
 */
#include "runtime/runtime_int.h"

#include <errno.h>

#include "base/err.h"
#include "base/str.h"

static uint32_t count(const struct rt_input *in, const char *role)
{
    const struct rt_role *r = rt_role_named(in->roles, in->n_roles, role);
    return r ? r->n : 0;
}

static int check(const struct rt_role *roles, size_t n, struct err *e)
{
    static const char *const needed[] = { "scheduler", "server", "worker" };
    for (size_t i = 0; i < 3; i++) {
        const struct rt_role *r = rt_role_named(roles, n, needed[i]);
        if (r && (i > 0 || r->n == 1))
            continue;
        (void)err_set(e, EINVAL, "framework 'mxnet' needs %s role '%s', and this job has %s",
                      i ? "a" : "one task in a", needed[i], r ? "more" : "none");
        return err_hint(e, "MXNet's tasks are one scheduler, servers and workers");
    }
    return 0;
}

static int env(const struct rt_input *in, struct strv *out, struct err *e)
{
    struct rt_host_port at;
    int rc = 0;
    rc |= strv_env_set(out, "DMLC_ROLE", in->role);
    if (rt_task_address(in, "scheduler", 0, &at)) {
        rc |= strv_env_set(out, "DMLC_PS_ROOT_URI", at.host);
        rc |= strv_env_set(out, "DMLC_PS_ROOT_PORT", at.port);
    }
    rc |= rt_set_u32(out, "DMLC_NUM_SERVER", count(in, "server"));
    rc |= rt_set_u32(out, "DMLC_NUM_WORKER", count(in, "worker"));
    rc |= strv_env_set(out, "DMLC_LOCAL", "0");
    return rc ? err_set(e, ENOMEM, "cannot build the environment for mxnet: %m") : 0;
}

/* Is this one of ps-lite's roles? Their tasks wait for ever for a peer that died. */
static bool is_ps_lite(const char *role)
{
    return str_eq(role, "scheduler") || str_eq(role, "server") || str_eq(role, "worker");
}

static bool lives_with_new(const char *role, bool chief, bool has_ps)
{
    (void)chief;
    (void)has_ps;
    return !is_ps_lite(role);
}

const struct runtime runtime_mxnet = {
    .name = "mxnet",
    .check = check,
    .env = env,
    .addresses = RT_FIRST,
    .waits_for_spec = true,
    .needs_gang = true,
    .unnoticed = is_ps_lite,
    .lives_with_new = lives_with_new,
};
