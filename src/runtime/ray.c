/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ray: a role 'head', and workers that join it. If the job has a further role, that role drives the
 * computation, and tony stops head and workers when it is over. Without a further role the command
 * of the head drives the computation. Ray's processes find the head by RAY_ADDRESS, which the head
 * itself must not have.
 */
#include "runtime/runtime_int.h"

#include <errno.h>

#include "base/err.h"
#include "base/str.h"

static int check(const struct rt_role *roles, size_t n, struct err *e)
{
    const struct rt_role *head = rt_role_named(roles, n, "head");
    if (head && head->n == 1)
        return 0;
    (void)err_set(e, EINVAL, "framework 'ray' needs one task in a role 'head', and this job has %s",
                  head ? "more" : "none");
    return err_hint(e, "give the role that runs 'ray start --head' the name 'head'");
}

static int env(const struct rt_input *in, struct strv *out, struct err *e)
{
    struct rt_host_port at;
    int rc = 0;
    if (rt_task_address(in, "head", 0, &at)) {
        rc |= strv_env_set(out, "RAY_HEAD_HOST", at.host);
        rc |= strv_env_set(out, "RAY_HEAD_PORT", at.port);
        if (!str_eq(in->role, "head"))
            rc |= rt_setf(out, "RAY_ADDRESS", "%s:%s", at.host, at.port);
    }
    return rc ? err_set(e, ENOMEM, "cannot build the environment for ray: %m") : 0;
}

static bool serves(const struct rt_role *roles, size_t n, const char *role)
{
    bool others = false;
    for (size_t i = 0; i < n; i++)
        others |= roles[i].n && !str_eq(roles[i].name, "head") &&
                  !str_eq(roles[i].name, "worker") && !str_eq(roles[i].name, "tensorboard");
    return str_eq(role, "worker") || (others && str_eq(role, "head"));
}

/* A worker can join at any time. Without the head the cluster is lost. */
static bool lives_with_new(const char *role, bool chief, bool has_ps)
{
    (void)chief;
    (void)has_ps;
    return !str_eq(role, "head");
}

const struct runtime runtime_ray = {
    .name = "ray",
    .check = check,
    .env = env,
    .addresses = RT_FIRST,
    .waits_for_spec = true,
    .serves = serves,
    .lives_with_new = lives_with_new,
};
