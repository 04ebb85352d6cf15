/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes belong to which task of a crew. */
#include "executor/crew.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/proctree.h"
#include "base/util.h"
#include "base/vec.h"
#include "executor/executor_int.h"

enum { STOP_ROUNDS_MAX = 64 };

/* ---- signals ---- */

static bool has(const struct pids *list, size_t n, pid_t pid)
{
    for (size_t i = 0; i < n; i++)
        if (list->v[i] == pid)
            return true;
    return false;
}

static void add_new(struct pids *to, const struct pids *from)
{
    size_t n = to->n;
    for (size_t i = 0; i < from->n; i++)
        if (!has(to, n, from->v[i]))
            (void)vec_push(to, from->v[i]);
}

/* In a crew: the processes of the task and of its streams. Those of streams come first: a stream
 * should get the signal before the command that it has started ends. Without memory the list is
 * shorter; callers repeat it. */
static void list_own(const struct executor *x, struct pids *out)
{
    struct pids group = { 0 }, below = { 0 };
    for (unsigned i = 0; i < x->streams.n; i++) {
        (void)vec_push(out, x->streams.v[i].pid);
        proctree_below(x->streams.v[i].pid, out);
    }
    cgroup_list(&x->cfg->cgroup, &group);
    if (x->a.pid > 0 && !x->a.exited) { /* its pid is not used again before it is reaped */
        (void)vec_push(&below, x->a.pid);
        proctree_below(x->a.pid, &below);
    }
    add_new(out, &group);
    add_new(out, &below);
    vec_done(&group);
    vec_done(&below);
}

unsigned processes_signal(const struct executor *x, int sig, bool catchers)
{
    struct pids list = { 0 };
    unsigned n = 0;
    if (!x->cfg->in_crew)
        return catchers ? proctree_signal_below(getpid(), sig, true) : proctree_signal(sig, false);
    list_own(x, &list);
    for (size_t i = 0; i < list.n; i++)
        if ((!catchers || proctree_catches(list.v[i], sig)) && kill(list.v[i], sig) == 0)
            n++;
    vec_done(&list);
    return n;
}

void processes_kill(const struct executor *x, bool hard)
{
    if (x->a.in_cgroup)
        (void)cgroup_kill(&x->cfg->cgroup);
    if (!x->cfg->in_crew) {
        (void)proctree_signal(SIGKILL, hard);
        return;
    }
    unsigned before = 0;
    for (int round = 0; hard && round < STOP_ROUNDS_MAX; round++) {
        unsigned n = processes_signal(x, SIGSTOP, false);
        if (n == before)
            break;
        before = n;
    }
    (void)processes_signal(x, SIGKILL, false);
}

/* ---- children ---- */

static bool is_stream(const struct executor *x, pid_t pid)
{
    for (unsigned i = 0; i < x->streams.n; i++)
        if (x->streams.v[i].pid == pid)
            return true;
    return false;
}

/* The executor that has started this child of the process; NULL = an orphan. */
static struct executor *parent_of(const struct crew *c, pid_t pid)
{
    for (size_t i = 0; i < c->n; i++)
        if ((c->v[i].a.pid == pid && !c->v[i].a.exited) || is_stream(&c->v[i], pid))
            return &c->v[i];
    return NULL;
}

/* The executor to whose task this child belongs; it has exited, and was not reaped yet. An orphan
 * belongs to the task whose process group it is in. NULL = it has left each group. */
static struct executor *owner_of(const struct crew *c, pid_t pid)
{
    struct executor *x = parent_of(c, pid);
    if (x)
        return x;
    pid_t group = getpgid(pid);
    for (size_t i = 0; i < c->n; i++)
        if (group > 0 && c->v[i].a.pid == group && attempt_alive(&c->v[i].a))
            return &c->v[i];
    return NULL;
}

static void add_up(struct executor *x, const struct rusage *used)
{
    x->reaped_cpu_us += (uint64_t)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) * 1000000 +
                        (uint64_t)(used->ru_utime.tv_usec + used->ru_stime.tv_usec);
    x->reaped.cpu_ms = x->reaped_cpu_us / 1000;
    x->reaped.read_bytes += (uint64_t)used->ru_inblock * 512; /* as in usage_leave_out() */
    x->reaped.written_bytes += (uint64_t)used->ru_oublock * 512;
}

static void reaped(struct executor *x, pid_t pid, int status, const struct rusage *used,
                   int64_t now_us)
{
    if (streams_exited(x, pid, status)) {
        if (!x->cfg->in_crew)
            task_metrics_leave_out(x, used);
        return;
    }
    if (task_metrics_reaped(x, pid, used))
        return;
    if (x->cfg->in_crew)
        add_up(x, used);
    attempt_reaped(x, pid, status, used, now_us);
}

/* Reap the next child that has exited. *out_x: its executor, which can only be found before the
 * child is reaped. Returns what wait4() returns. */
static pid_t reap_one(const struct crew *c, struct executor **out_x, int *status,
                      struct rusage *used)
{
    siginfo_t si = { 0 };
    *out_x = &c->v[0];
    if (c->n == 1)
        return wait4(-1, status, WNOHANG | __WALL, used);
    if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT | __WALL) == -1 || si.si_pid == 0)
        return 0;
    *out_x = owner_of(c, si.si_pid);
    return wait4(si.si_pid, status, WNOHANG | __WALL, used);
}

/* ---- are processes of a task left? ---- */

/* The orphans among the children of this process. Only this process takes children out of the list
 * of the kernel, by reaping them, so none is missed. */
static void list_orphans(const struct crew *c, struct pids *out)
{
    size_t kept = 0;
    proctree_children(getpid(), out);
    for (size_t i = 0; i < out->n; i++)
        if (!parent_of(c, out->v[i]))
            out->v[kept++] = out->v[i];
    out->n = kept;
}

/* Is the process in the group? This is also true while it exits, until it has closed its files. */
static bool is_in_group(pid_t pid, const struct cgroup *g)
{
    char path[64];
    AUTO(buf_done) struct buf text = { 0 };
    const char *parent = g->path, *at = strrchr(g->path, '/');
    while (at && at > parent && at[-1] != '/')
        at--; /* the last two parts: the job and the container */
    (void)snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    return at && fs_read(AT_FDCWD, path, &text, NULL) == 0 && strstr(buf_cstr(&text), at);
}

/* In a crew: the first process of the task was reaped. Is another process of the task alive? Each
 * such process is an orphan or a descendant of one, so without orphans there is none. */
static bool is_left(const struct executor *x, const struct pids *orphans)
{
    struct pids own = { 0 }, apart = { 0 };
    bool left = false;
    for (size_t i = 0; i < orphans->n && !left; i++)
        left = is_in_group(orphans->v[i], &x->cfg->cgroup);
    if (left || orphans->n == 0)
        return left;
    cgroup_list(&x->cfg->cgroup, &own);
    for (unsigned i = 0; i < x->streams.n; i++) /* the group also has the descendants of streams */
        proctree_below(x->streams.v[i].pid, &apart);
    for (size_t i = 0; i < own.n && !left; i++)
        left = !has(&apart, apart.n, own.v[i]);
    vec_done(&own);
    vec_done(&apart);
    return left;
}

static void look_in_crew(struct crew *c)
{
    struct pids orphans = { 0 };
    bool listed = false;
    for (size_t i = 0; i < c->n; i++) {
        struct executor *x = &c->v[i];
        if (!attempt_alive(&x->a) || !x->a.exited)
            continue;
        if (!listed)
            list_orphans(c, &orphans);
        listed = true;
        attempt_look(x, is_left(x, &orphans));
    }
    vec_done(&orphans);
}

/* A process with one executor is the parent of the task's orphans. So if the first process has
 * exited and there is no child, no process of the task is alive. */
void children_reap(struct crew *c)
{
    struct executor *x = NULL;
    struct rusage used;
    int status;
    pid_t pid;
    /* Read the clock before a process is reaped. Another task may see the process vanish from /proc
     * and fail because of that. The end of that task must have the later time. */
    int64_t now_us = clock_mono_us();
    do {
        pid = reap_one(c, &x, &status, &used);
        if (pid > 0 && x)
            reaped(x, pid, status, &used, now_us);
    } while (pid > 0 || (pid == -1 && errno == EINTR));
    if (c->n > 1) {
        look_in_crew(c);
        return;
    }
    x = &c->v[0];
    attempt_look(x, pid == 0 && (!attempt_alive(&x->a) || !x->a.exited ||
                                 (task_metrics_others_left(x) && !streams_only(x))));
}
