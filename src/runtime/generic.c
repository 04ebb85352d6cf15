/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generic: for programs that read tony's own variables. In gang mode the whole cluster spec is also
 * in CLUSTER_SPEC, unless it is too long.
 */
#include "runtime/runtime_int.h"

#include <errno.h>

#include "base/err.h"
#include "base/str.h"

static int env(const struct rt_input *in, struct strv *out, struct err *e)
{
    if (!str_eq(in->distributed_mode, "GANG"))
        return 0;
    int rc = rt_set_spec(in, "CLUSTER_SPEC", out);
    return rc < 0 ? err_set(e, ENOMEM, "cannot build CLUSTER_SPEC: %m") : 0;
}

static const struct rt_growing growing[] = { { "CLUSTER_SPEC", false }, { 0 } };

const struct runtime runtime_generic = {
    .name = "generic",
    .env = env,
    .growing = growing,
    .addresses = RT_GROWING,
    .waits_for_spec = true,
};
