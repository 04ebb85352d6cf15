/* Standalone: one task, nothing to find out about others, starts at once. */
#include "runtime/runtime_int.h"

#include <errno.h>

#include "base/err.h"

static int check(const struct rt_role *roles, size_t n, struct err *e)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += roles[i].n;
    if (total == 1)
        return 0;
    err_set(e, EINVAL,
            "framework 'standalone' runs exactly one instance, and this job asks for %llu",
            (unsigned long long)total);
    return err_hint(e, "set one role with instances 1, or use the framework 'generic'");
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
};
