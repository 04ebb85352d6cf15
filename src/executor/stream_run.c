/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning of a stream's process: it leaves what it has of the executor, connects, and reads
 * the client's request. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/proctree.h"
#include "base/title.h"
#include "base/util.h"
#include "executor/executor_int.h"
#include "executor/stream_int.h"

enum {
    REQUEST_MS = 30000, /* for the client's request, after it was told that the stream is open */
};

void stream_mark(const struct executor *x, uint32_t id, char out[STREAM_MARK_MAX])
{
    (void)snprintf(out, STREAM_MARK_MAX, STREAM_VARIABLE "=%s:%u", x->cfg->container_id, id);
}

static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_SETMASK, &set, NULL);
    /* A write to a command that does not read, or past `ulimit -f`, fails instead. */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* TERM comes from the executor when the task is stopped, and from the kernel when the executor
 * dies. The process group is its own, so that a node manager that kills the group of the container
 * leaves this process the time to kill what it has started. */
static void leave_executor(struct stream_side *s, pid_t executor)
{
    (void)setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "tony-stream");
    title_set("tony-stream %u of %s", s->id, s->x->cfg->container_id);
    log_setup(2, LOG_INFO, false); /* the descriptor of executor.log is closed now */
    close_range(3, ~0U, 0);
    s->signal_fd = open_signals();
    if (s->signal_fd == -1 || getppid() != executor)
        _exit(1);
}

/* The environment of the task: that of its first living process, as it was started. */
static int read_environment(const struct executor *x, struct strv *out, struct err *e)
{
    pid_t pid = x->a.pid;
    for (uint32_t i = 0; x->a.ranks && i < x->a.n_ranks; i++)
        if (!x->a.ranks[i].exited) {
            pid = x->a.ranks[i].pid;
            break;
        }
    AUTO(buf_done) struct buf text = { 0 };
    if (!proctree_environment(pid, &text))
        return err_set(
            e, ESRCH,
            "the environment of the task cannot be read any more, since the task is ending");
    int rc = 0;
    struct span rest = buf_span(&text), one;
    while (rc == 0 && span_split(&rest, '\0', &one))
        if (one.len > 0 && !span_starts(one, STREAM_VARIABLE "="))
            rc = strv_take(out, span_dup(one));
    return rc == -ENOMEM ? err_set(e, ENOMEM, "cannot read the environment of the task: %m") : rc;
}

static int on_request(enum stream_type type, struct span payload, void *arg)
{
    struct stream_side *s = arg;
    if (type != SF_REQUEST || s->request)
        return -EPROTO;
    s->request = tony__stream_request__unpack(NULL, payload.len, (const unsigned char *)payload.p);
    return s->request ? -EALREADY : -EPROTO; /* -EALREADY: read no further frame here */
}

/* The client sends nothing after its request until it gets an answer. */
static int await_request(struct stream_side *s, struct err *e)
{
    int64_t until = clock_mono_ms() + REQUEST_MS;
    s->t.reader = (struct stream_reader){ .on_frame = on_request, .arg = s };
    while (!s->request) {
        struct pollfd p = { .fd = s->t.fd, .events = POLLIN };
        int64_t left = until - clock_mono_ms();
        if (left <= 0)
            return err_set(e, ETIMEDOUT, "the client sent no request");
        if (poll(&p, 1, (int)left) <= 0)
            continue;
        int rc = tunnel_read(&s->t, e);
        if (rc < 0 && rc != -EALREADY)
            return e->num ? rc : err_set(e, -rc, "cannot read the client's request: %m");
    }
    err_clear(e);
    stream_reader_done(&s->t.reader);
    s->t.reader = (struct stream_reader){ 0 };
    return 0;
}

_Noreturn void stream_run(struct executor *x, const Tony__DialStream *d, pid_t executor)
{
    struct stream_side s = { .x = x, .id = d->id };
    struct err e = { 0 };
    char mark[STREAM_MARK_MAX];
    leave_executor(&s, executor);
    if (tunnel_open(x, d, &s.t, &e) < 0)
        _exit(1); /* the master gives the stream up after a time */
    int rc = read_environment(x, &s.env, &e);
    stream_mark(x, d->id, mark);
    if (rc == 0 && strv_push(&s.env, mark) < 0)
        rc = err_set(&e, ENOMEM, "cannot read the environment of the task: %m");
    if (rc == 0)
        rc = await_request(&s, &e);
    if (rc < 0)
        tunnel_fail(&s.t, &e);
    switch ((int)s.request->kind) {
    case TONY__STREAM_REQUEST__KIND__EXEC:
        stream_exec(&s);
    case TONY__STREAM_REQUEST__KIND__CONNECT:
        stream_connect(&s);
    case TONY__STREAM_REQUEST__KIND__GET:
    case TONY__STREAM_REQUEST__KIND__PUT:
        stream_files(&s);
    default:
        (void)err_set(&e, EPROTO,
                      "the task's executor does not know this request: it is of "
                      "another version of tony than the client");
        tunnel_fail(&s.t, &e);
    }
}
