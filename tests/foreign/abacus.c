/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The framework 'abacus', which is outside src/. It has one frame, which serves, and beads, which
 * count. Its ranks could also use a server of src/rendezvous; here they need only addresses.
 */
#include <errno.h>

#include "base/err.h"
#include "base/str.h"
#include "base/vec.h"
#include "runtime/runtime.h"

static int check(const struct rt_role *roles, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(roles[i].name, "frame") && roles[i].n == 1)
            return 0;
    (void)err_set(e, EINVAL, "framework 'abacus' needs one task in a role 'frame'");
    return err_hint(e, "add the role 'frame'");
}

static int env(const struct rt_input *in, struct strv *out, struct err *e)
{
    struct rt_walk w = { .roles = in->roles, .n = in->n_roles };
    struct rt_task t;
    int rc = strv_env_set(out, "ABACUS_PART", in->role);
    while (runtime_walk(&w, &t))
        if (t.index == in->index && str_eq(t.role, in->role))
            rc |= strv_env_set(out, "ABACUS_ADDRESS", t.address);
    for (size_t i = 0; i < in->n_roles; i++)
        if (str_eq(in->roles[i].name, "frame")) {
            char address[280];
            if (runtime_address(&in->roles[i], 0, address, sizeof address))
                rc |= strv_env_set(out, "ABACUS_FRAME", address);
        }
    return rc ? err_set(e, ENOMEM, "cannot build the environment for abacus: %m") : 0;
}

static bool serves(const struct rt_role *roles, size_t n, const char *role)
{
    (void)roles;
    (void)n;
    return str_eq(role, "frame");
}

static bool unnoticed(const char *role)
{
    return str_eq(role, "bead");
}

static const struct runtime abacus = {
    .name = "abacus",
    .check = check,
    .env = env,
    .waits_for_spec = true,
    .needs_gang = true,
    .serves = serves,
    .unnoticed = unnoticed,
};

const struct runtime *const runtime_more[] = { &abacus, NULL };
