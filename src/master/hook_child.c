/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On YARN the master's container is the only place that outlives the verdict. So a child of the
 * master makes the call at the end of the job (storage/hook.h), while the master stores the history
 * and reports the verdict. Clients that follow the job know its verdict before.
 *
 * YARN starts no other master after the report. So the master waits for the call before it, for at
 * most HOOK_YARN_BEFORE_MS: if it is killed meanwhile, the next master makes the call. Afterwards
 * it waits until the child has ended, for at most HOOK_YARN_LIMIT_MS.
 */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/util.h"
#include "master/master_int.h"
#include "storage/hook.h"

extern char **environ;

enum { LOOK_MS = 20 };

struct hook_child {
    pid_t pid; /* 0 = it has ended */
    int64_t report_by_ms;
    struct loop_timer *timer;
    struct err kept; /* the argument of history_kept() */
};

static void on_look(void *arg)
{
    struct master *m = arg;
    history_kept(&m->hook_child->kept, m);
}

static int spawn(const char *dir, pid_t *out)
{
    static char program[] = "tony-master", option[] = "--on-end";
    char limit[24];
    (void)snprintf(limit, sizeof limit, "%d", HOOK_YARN_LIMIT_MS);
    char *argv[] = { program, option, (char *)(uintptr_t)dir, limit, NULL };
    posix_spawnattr_t attr;
    sigset_t none, all;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    if (posix_spawnattr_init(&attr) != 0)
        return -ENOMEM;
    (void)posix_spawnattr_setsigmask(&attr, &none);
    (void)posix_spawnattr_setsigdefault(&attr, &all);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int num = posix_spawn(out, "/proc/self/exe", NULL, &attr, argv, environ);
    (void)posix_spawnattr_destroy(&attr);
    return -num;
}

void hook_child_start(struct master *m, const char *parent)
{
    AUTO(free_p) char *dir = fs_join(parent, m->application_id);
    struct hook_child *h = calloc(1, sizeof *h);
    struct err e = { 0 };
    if (h)
        h->timer = loop_timer_new(m->loop, on_look, m);
    int rc = dir && h && h->timer ? spawn(dir, &h->pid) : -ENOMEM;
    if (rc < 0) {
        (void)err_set(&e, -rc, "cannot start the call at the end of the job: %m");
        log_err(LOG_WARN, "master.no_call", &e);
        if (h)
            loop_timer_free(h->timer);
        free(h);
        return;
    }
    h->report_by_ms = clock_mono_ms() + HOOK_YARN_BEFORE_MS;
    m->hook_child = h;
}

bool hook_child_runs(struct master *m)
{
    struct hook_child *h = m->hook_child;
    int status;
    if (!h || h->pid == 0)
        return false;
    pid_t got = waitpid(h->pid, &status, WNOHANG);
    if (got == 0)
        return true;
    h->pid = 0;
    return false;
}

bool hook_child_delays(struct master *m, const struct err *e)
{
    struct hook_child *h = m->hook_child;
    int64_t now = clock_mono_ms();
    if (!hook_child_runs(m) || now >= h->report_by_ms)
        return false;
    h->kept = *e; /* they may be the same */
    loop_timer_set(h->timer, now + LOOK_MS);
    return true;
}

void hook_child_close(struct master *m)
{
    struct hook_child *h = TAKE(m->hook_child);
    if (!h)
        return;
    loop_timer_free(h->timer);
    free(h);
}
