/* SPDX-License-Identifier: Apache-2.0 */
/* Standalone: one task, which has no peers and starts at once. */
#include "runtime/runtime_int.h"

#include <errno.h>

#include "base/err.h"
#include "base/str.h"

static int check(const struct rt_role *roles, size_t n, struct err *e)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += str_eq(roles[i].name, "tensorboard") ? 0 : roles[i].n;
    if (total == 1)
        return 0;
    (void)err_set(e, EINVAL, "framework 'standalone' runs exactly one task, not %llu",
                  (unsigned long long)total);
    return err_hint(e, "set instances to 1, or use framework 'generic'");
}

static int env(const struct rt_input *in, struct strv *out, struct err *e)
{
    (void)in;
    (void)out;
    (void)e;
    return 0;
}

const struct runtime runtime_standalone = {
    .name = "standalone",
    .check = check,
    .env = env,
    .addresses = RT_FIRST,
    .no_tensorboard = true,
};
