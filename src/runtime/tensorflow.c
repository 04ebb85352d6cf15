/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TensorFlow: CLUSTER_SPEC and TF_CONFIG, in gang mode only. In FCFS the cluster is not known when
 * a task starts. A job without roles has no cluster: TensorFlow refuses a TF_CONFIG with a
 * "driver".
 *
 * TF_CONFIG never has the role tensorboard, and has the role evaluator only in an evaluator:
 * neither is part of TensorFlow's cluster. Without TF_CONFIG each worker would train alone, without
 * an error.
 */
#include "runtime/runtime_int.h"

#include <errno.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"

static int env(const struct rt_input *in, struct strv *out, struct err *e)
{
    if (!str_eq(in->distributed_mode, "GANG") || in->single_node)
        return 0;
    AUTO(buf_done) struct buf text = { 0 };
    int rc = rt_set_spec(in, "CLUSTER_SPEC", out);
    if (rc == 0 && rt_sets_growing(in)) {
        buf_adds(&text, "TF_CONFIG={\"cluster\":");
        runtime_spec_json(in->roles, in->n_roles, "tensorboard",
                          str_eq(in->role, "evaluator") ? NULL : "evaluator", &text);
        rc = buf_addf(&text, ",\"task\":{\"type\":\"%s\",\"index\":%u}}", in->role, in->index);
        if (rc == 0)
            rc = rt_set_pair(out, &text);
    }
    return rc < 0 ? err_set(e, ENOMEM, "cannot build TF_CONFIG: %m") : 0;
}

static bool serves(const struct rt_role *roles, size_t n, const char *role)
{
    (void)roles;
    (void)n;
    return str_eq(role, "ps");
}

/* An evaluator can be replaced: no task waits for it. With parameter servers a worker can be
 * replaced: it finds the state at the servers. A lost server or chief cannot be replaced: its state
 * is lost. Without parameter servers no worker can be replaced: collectives fail when one member
 * dies. */
static bool lives_with_new(const char *role, bool chief, bool has_ps)
{
    return str_eq(role, "evaluator") || (has_ps && !chief && !str_eq(role, "ps"));
}

static const struct rt_growing growing[] = { { "CLUSTER_SPEC", true },
                                             { "TF_CONFIG", true },
                                             { 0 } };

const struct runtime runtime_tensorflow = {
    .name = "tensorflow",
    .env = env,
    .growing = growing,
    .addresses = RT_GROWING,
    .serves = serves,
    .lives_with_new = lives_with_new,
    .fixed_gang = true, /* TF_CONFIG is read once */
    .waits_for_spec = true,
};
