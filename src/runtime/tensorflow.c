/*
 * TensorFlow: CLUSTER_SPEC and TF_CONFIG, in gang mode only (in FCFS the cluster is not known at
 * start, and in single-node mode there is none: a TF_CONFIG with a "driver" is one that TensorFlow
 * refuses). TF_CONFIG leaves out TensorBoard always and evaluators unless the task is one: neither
 * is part of the cluster for TensorFlow.
 */
#include "runtime/runtime_int.h"

#include <errno.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

static int env(const struct rt_input *in, struct strv *out, struct err *e)
{
    if (!str_eq(in->distributed_mode, "GANG") || in->single_node)
        return 0;
    struct buf text = { 0 };
    buf_adds(&text, "CLUSTER_SPEC=");
    int rc = runtime_spec_json(in->roles, in->n_roles, NULL, NULL, &text);
    if (rc == 0)
        rc = rt_set_pair(out, &text);
    if (rc == 0) {
        buf_clear(&text);
        buf_adds(&text, "TF_CONFIG={\"cluster\":");
        runtime_spec_json(in->roles, in->n_roles, "tensorboard",
                          str_eq(in->role, "evaluator") ? NULL : "evaluator", &text);
        rc = buf_addf(&text, ",\"task\":{\"type\":\"%s\",\"index\":%u}}", in->role, in->index);
    }
    if (rc == 0)
        rc = rt_set_pair(out, &text);
    buf_done(&text);
    return rc < 0 ? err_set(e, ENOMEM, "cannot build TF_CONFIG: %m") : 0;
}

static bool serves(const struct rt_role *roles, size_t n, const char *role)
{
    (void)roles;
    (void)n;
    return str_eq(role, "ps");
}

/* An evaluator is nobody's peer. Collectives end with any of their members. With parameter servers
 * it goes on without a worker, who finds his state with the servers; without a server, or the one
 * who coordinates, the state is gone. */
static bool lives_with_new(const char *role, bool chief, bool has_ps)
{
    return str_eq(role, "evaluator") || (has_ps && !chief && !str_eq(role, "ps"));
}

const struct runtime runtime_tensorflow = {
    .name = "tensorflow",
    .env = env,
    .serves = serves,
    .lives_with_new = lives_with_new,
    .waits_for_spec = true,
};
