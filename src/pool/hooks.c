/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls at the ends of jobs (storage/hook.h): starts a process for each request that is on disk.
 * The process locks its request, so a second process for the same request exits at once.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "pool/pool_int.h"
#include "storage/hook.h"

enum { RESTARTS_MAX = 100 }; /* of killed processes, while one pool runs */

static void on_exit_of_hook(void *arg, int code)
{
    struct pool *p = arg;
    if (code > 128 && p->n_hooks_killed++ < RESTARTS_MAX)
        hooks_start(p, NULL);
}

static int start(struct pool *p, const char *id, struct err *e)
{
    static char option[] = "--on-end";
    char limit[24];
    (void)snprintf(limit, sizeof limit, "%d", HOOK_LIMIT_MS);
    AUTO(free_p) char *program = paths_program("tony-executor");
    AUTO(free_p) char *dir = str_printf("%s/" HOOK_DIR "/%s", p->paths.pool, id);
    AUTO(free_p) char *log = str_printf("%s/%s/" HOOK_LOG, p->paths.history, id);
    AUTO(free_p) char *pool_log = fs_join(p->paths.pool, "pool.log");
    if (!program || !dir || !log || !pool_log)
        return err_set(e, ENOMEM, "cannot make the call at the end of job '%s': %m", id);
    char *const argv[] = { program, option, dir, limit, log, NULL };
    const struct spawn s = { .program = program,
                             .argv = argv,
                             .envp = environ,
                             .fd3 = -1,
                             .log = pool_log,
                             .new_session = true };
    struct child *unused;
    return child_spawn(p, &s, on_exit_of_hook, p, &unused, e);
}

void hooks_start(struct pool *p, const char *only)
{
    AUTO(free_p) char *all = fs_join(p->paths.pool, HOOK_DIR);
    DIR *d = all ? opendir(all) : NULL;
    for (struct dirent *de; d && (de = readdir(d));) {
        struct err e = { 0 };
        AUTO(free_p) char *job = paths_job(&p->paths, de->d_name);
        /* Skip a job that is still in jobs/: hooks_start() is called again when it has moved to the
         * history. */
        if (de->d_name[0] == '.' || (only && !str_eq(only, de->d_name)) || !job ||
            access(job, F_OK) == 0)
            continue;
        if (start(p, de->d_name, &e) < 0)
            log_err(LOG_WARN, "hook.start", &e);
    }
    if (d)
        (void)closedir(d);
}
