/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LightGBM: the parameters machines, num_machines and local_listen_port. LightGBM itself reads no
 * variables: the user's program passes them on as parameters.
 */
#include "runtime/runtime_int.h"

#include <errno.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"

static int add_machines(const struct rt_input *in, struct strv *out)
{
    struct rt_walk w = { .roles = in->roles, .n = in->n_roles };
    struct rt_task t;
    AUTO(buf_done) struct buf text = { 0 };
    if (!rt_sets_growing(in))
        return 0;
    buf_adds(&text, "LIGHTGBM_MACHINES=");
    for (bool first = true; runtime_walk(&w, &t); first = false)
        buf_addf(&text, "%s%s", first ? "" : ",", t.address);
    return rt_set_pair(out, &text); /* -ENOMEM if an append failed */
}

static int env(const struct rt_input *in, struct strv *out, struct err *e)
{
    struct rt_place me;
    struct rt_host_port at;
    rt_place(in, &me);
    int rc = add_machines(in, out);
    rc |= rt_set_u32(out, "LIGHTGBM_NUM_MACHINES", me.n_groups);
    if (rt_parse_address(me.task_address, &at))
        rc |= strv_env_set(out, "LIGHTGBM_LOCAL_LISTEN_PORT", at.port);
    return rc ? err_set(e, ENOMEM, "cannot build the environment for lightgbm: %m") : 0;
}

static const struct rt_growing growing[] = { { "LIGHTGBM_MACHINES", true }, { 0 } };

const struct runtime runtime_lightgbm = {
    .name = "lightgbm",
    .env = env,
    .growing = growing,
    .addresses = RT_GROWING,
    .waits_for_spec = true,
    .needs_gang = true,
    .frees_port = true,
    .unnoticed = rt_every_role,
    .lives_with_new = rt_gang_restarts,
};
