/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dask: a role 'scheduler', a role 'worker', and a client in any other role. The job ends when the
 * client ends. All of Dask's own programs read DASK_SCHEDULER_ADDRESS.
 */
#include "runtime/runtime_int.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

static int check(const struct rt_role *roles, size_t n, struct err *e)
{
    const struct rt_role *s = rt_role_named(roles, n, "scheduler");
    if (s && s->n == 1)
        return 0;
    (void)err_set(e, EINVAL,
                  "framework 'dask' needs one task in a role 'scheduler', and this job has %s",
                  s ? "more" : "none");
    return err_hint(e, "give the role that runs 'dask scheduler' the name 'scheduler'");
}

static int env(const struct rt_input *in, struct strv *out, struct err *e)
{
    struct rt_host_port at;
    int rc = 0;
    if (rt_task_address(in, "scheduler", 0, &at))
        rc = rt_setf(out, "DASK_SCHEDULER_ADDRESS",
                     strchr(at.host, ':') ? "tcp://[%s]:%s" : "tcp://%s:%s", at.host, at.port);
    return rc ? err_set(e, ENOMEM, "cannot build the environment for dask: %m") : 0;
}

static bool serves(const struct rt_role *roles, size_t n, const char *role)
{
    (void)roles;
    (void)n;
    return str_eq(role, "scheduler") || str_eq(role, "worker");
}

/* A worker can join at any time. Without the scheduler all results are lost. */
static bool lives_with_new(const char *role, bool chief, bool has_ps)
{
    (void)chief;
    (void)has_ps;
    return !str_eq(role, "scheduler");
}

const struct runtime runtime_dask = {
    .name = "dask",
    .check = check,
    .env = env,
    .addresses = RT_FIRST,
    .waits_for_spec = true,
    .serves = serves,
    .lives_with_new = lives_with_new,
};
