/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/streams.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/proctree.h"
#include "base/util.h"
#include "base/vec.h"
#include "executor/executor_int.h"
#include "executor/stream_int.h"

enum {
    KILL_MS = 2000, /* a killed process is gone by then, unless the kernel holds it */
    PAUSE_MS = 1,
    STOP_AFTER_ROUNDS = 3, /* then SIGSTOP before SIGKILL, for processes that fork while they die */
};

static void refuse(struct executor *x, uint32_t id, const struct err *e)
{
    Tony__StreamRefused r = TONY__STREAM_REFUSED__INIT;
    r.id = id;
    r.num = (uint32_t)e->num;
    r.message = (char *)e->msg;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_STREAM_REFUSED;
    f.stream_refused = &r;
    (void)executor_send(x, &f); /* after a failure, the master gives the stream up by itself */
}

/* May the executor start a process for this stream? */
static int check(const struct executor *x, const Tony__DialStream *d, struct err *e)
{
    if (d->key.len == 0 || d->key.len > STREAM_KEY_MAX)
        return err_set(e, EPROTO, "the master sent a wrong key for the stream");
    if (!attempt_undecided(&x->a) || x->a.pid <= 0)
        return err_set(e, EAGAIN, "the task is not running now");
    if (x->streams.n == STREAMS_PER_TASK_MAX)
        return err_set(e, EBUSY, "the task has %d streams already", STREAMS_PER_TASK_MAX);
    return 0;
}

void streams_dial(struct executor *x, const Tony__DialStream *d)
{
    struct err e = { 0 };
    pid_t parent = getpid(), pid = 0;
    int rc = check(x, d, &e);
    if (rc == 0) {
        pid = fork();
        if (pid == 0)
            stream_run(x, d, parent);
        if (pid == -1)
            rc = err_set(&e, errno, "cannot start a process for the stream: %m%s",
                         err_fork_cause(errno));
    }
    if (rc < 0) {
        refuse(x, d->id, &e);
        return;
    }
    x->streams.v[x->streams.n].pid = pid;
    x->streams.v[x->streams.n++].id = d->id;
}

/* ---- the ends of streams ---- */

/* Kill the processes that have the mark of a stream in their environment. Returns their number. The
 * mark names the container and the stream, so no other process has it. In a crew, look only at the
 * control group of the task: reading the environments of all tasks takes long, and waits for those
 * that are in an execve(). */
static unsigned kill_marked(const struct executor *x, const char *mark)
{
    struct pids list = { 0 };
    unsigned n = x->engine ? proctree_signal_inside(mark, SIGKILL) : 0;
    if (x->cfg->in_crew)
        cgroup_list(&x->cfg->cgroup, &list);
    else
        proctree_below(getpid(), &list);
    for (size_t i = 0; i < list.n; i++)
        if (proctree_has_variable(list.v[i], mark) && kill(list.v[i], SIGKILL) == 0)
            n++;
    vec_done(&list);
    return n;
}

/* The process of a stream was killed, so its children are now children of the executor. Kill them.
 * While they die, their own children get another parent, and one search may miss those. So search
 * until two searches in a row have found none. */
static void kill_orphans_of(const struct executor *x, uint32_t id)
{
    char mark[STREAM_MARK_MAX];
    int64_t until = clock_mono_ms() + KILL_MS;
    stream_mark(x, id, mark);
    for (unsigned empty = 0; empty < 2 && clock_mono_ms() < until;) {
        empty = kill_marked(x, mark) == 0 ? empty + 1 : 0;
        (void)poll(NULL, 0, PAUSE_MS);
    }
}

bool streams_exited(struct executor *x, pid_t pid, int status)
{
    for (unsigned i = 0; i < x->streams.n; i++) {
        if (x->streams.v[i].pid != pid)
            continue;
        uint32_t id = x->streams.v[i].id;
        x->streams.v[i] = x->streams.v[--x->streams.n];
        if (WIFSIGNALED(status))
            kill_orphans_of(x, id);
        return true;
    }
    return false;
}

void streams_list(const struct executor *x, struct pids *out)
{
    for (unsigned i = 0; i < x->streams.n; i++)
        (void)vec_push(out,
                       x->streams.v[i].pid); /* without memory, it counts as a part of the task */
}

static bool is_stream(const struct executor *x, pid_t pid)
{
    for (unsigned i = 0; i < x->streams.n; i++)
        if (x->streams.v[i].pid == pid)
            return true;
    return false;
}

bool streams_only(const struct executor *x)
{
    struct pids children = { 0 };
    bool only = x->streams.n > 0;
    if (!only)
        return false;
    proctree_children(getpid(), &children);
    for (size_t i = 0; i < children.n && only; i++)
        only = children.v[i] == x->metrics.gpu_pid || is_stream(x, children.v[i]);
    vec_done(&children);
    return only;
}

/* In a crew, other children of this process belong to other tasks. So kill the processes of the
 * streams one by one, each with the processes below it. */
static void kill_in_crew(struct executor *x)
{
    int64_t until = clock_mono_ms() + KILL_MS;
    while (x->streams.n && clock_mono_ms() < until) {
        pid_t pid = x->streams.v[0].pid;
        int status;
        (void)proctree_signal_below(pid, SIGKILL, false);
        (void)kill(pid, SIGKILL);
        if (waitpid(pid, &status, WNOHANG | __WALL) != 0)
            (void)streams_exited(x, pid, SIGKILL); /* as if it was killed, for its orphans */
        else
            (void)poll(NULL, 0, PAUSE_MS);
    }
    x->streams.n = 0;
}

void streams_kill(struct executor *x)
{
    int64_t until = clock_mono_ms() + KILL_MS;
    if (x->streams.n == 0)
        return;
    if (x->cfg->in_crew) {
        kill_in_crew(x);
        return;
    }
    for (unsigned round = 0; clock_mono_ms() < until; round++) {
        pid_t pid;
        (void)proctree_signal(SIGKILL, round >= STOP_AFTER_ROUNDS);
        struct rusage used;
        while ((pid = wait4(-1, NULL, WNOHANG | __WALL, &used)) > 0)
            if (pid == x->metrics.gpu_pid)
                (void)task_metrics_reaped(x, pid, &used);
        if (pid == -1 && errno == ECHILD)
            break;
        (void)poll(NULL, 0, PAUSE_MS);
    }
    x->streams.n = 0;
}
