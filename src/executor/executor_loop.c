/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of a process that runs executors, one or a crew: its signals, and the descriptors for
 * which it waits. */
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "executor/crew.h"
#include "executor/executor_int.h"

/* ---- signals ---- */

/* The keeper has sent TERM to the crew: its records say which executors should stop. One signal may
 * stand for several. */
static void stop_asked(struct crew *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (!c->v[i].over && c->v[i].cfg->record->stop_asked)
            executor_stop_asked(&c->v[i]);
}

/* Must the crew ignore this signal? While its keeper lives, it obeys only the keeper, which uses
 * sigqueue(). Otherwise a task that calls `kill $PPID` would end the other tasks of the crew. */
static bool must_ignore(const struct crew *c, const struct signalfd_siginfo *si)
{
    if (si->ssi_code == SI_QUEUE || getppid() != c->v[0].cfg->keeper)
        return false;
    log_event(LOG_WARN, "crew.signal_ignored", f_int("signal", si->ssi_signo),
              f_int("from", si->ssi_pid), f_int("executors", (int64_t)c->n));
    return true;
}

/* scancel --signal=INT and HUP are for the tasks, but Slurm sends them to all processes of a step.
 * The kernel sends HUP if the keeper dies. */
static bool is_for_tasks(const struct crew *c, const struct signalfd_siginfo *si)
{
    const struct executor_config *cfg = c->v[0].cfg;
    return cfg->remote && (si->ssi_signo == SIGINT || si->ssi_signo == SIGHUP) &&
           getppid() == cfg->keeper;
}

static void on_signals(struct crew *c)
{
    struct signalfd_siginfo si;
    while (read(c->signal_fd, &si, sizeof si) == (ssize_t)sizeof si) {
        bool is_end = si.ssi_signo == SIGTERM || si.ssi_signo == SIGINT || si.ssi_signo == SIGHUP;
        is_end = is_end && !is_for_tasks(c, &si);
        if (si.ssi_signo == SIGCHLD)
            children_reap(c);
        /* Look at the records in any case: the kernel keeps only one pending TERM, so the TERM of
         * another process may have hidden that of the keeper. */
        else if (is_end && c->n > 1 && (must_ignore(c, &si) || si.ssi_code == SI_QUEUE))
            stop_asked(c);
        else
            for (size_t i = 0; is_end && i < c->n; i++)
                if (!c->v[i].over)
                    executor_term(&c->v[i], &si);
    }
}

static int signals_open(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    /* as for INT: see is_for_tasks() */
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGXFSZ); /* a write beyond `ulimit -f` fails with EFBIG then */
    sigprocmask(SIG_SETMASK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* ---- what the executors wait for ---- */

static size_t add_calls(const struct executor *x, struct pollfd *out)
{
    return x->cfg->remote ? remote_poll(x->cfg->remote, out) : 0;
}

static void calls_ready(struct executor *x, const struct pollfd *p, size_t n)
{
    struct link line;
    if (n && remote_called(x->cfg->remote, p, n, &line))
        connection_taken(x, &line);
}

static size_t add_one(struct pollfd *out, int fd, short events)
{
    *out = (struct pollfd){ .fd = fd, .events = events };
    return 1;
}

static size_t add_server(const struct executor *x, struct pollfd *out)
{
    return x->server.s ? add_one(out, serve_fd(x), POLLIN) : 0;
}

static void server_ready(struct executor *x, const struct pollfd *p, size_t n)
{
    if (n && p->revents && x->server.s)
        serve_turn(x);
}

static size_t add_metrics(const struct executor *x, struct pollfd *out)
{
    return add_one(out, task_metrics_fd(x), POLLIN);
}

static void metrics_ready(struct executor *x, const struct pollfd *p, size_t n)
{
    (void)n;
    if (p->revents)
        task_metrics_ready(x);
}

/* The first executor of a crew asks for all. */
static size_t add_signals(const struct executor *x, struct pollfd *out)
{
    return x == x->crew->v ? add_one(out, x->crew->signal_fd, POLLIN) : 0;
}

static void signals_ready(struct executor *x, const struct pollfd *p, size_t n)
{
    if (n && p->revents)
        on_signals(x->crew);
}

static size_t add_link(const struct executor *x, struct pollfd *out)
{
    bool writes = link_unsent(&x->link) || x->link.connecting;
    return add_one(out, x->link.fd, writes ? POLLIN | POLLOUT : POLLIN);
}

static void link_ready(struct executor *x, const struct pollfd *p, size_t n)
{
    (void)n;
    connection_ready(x, p);
}

/* The sources of events, in the order in which they are handled. add() writes the descriptors to
 * wait for; ready() gets them back with their events. */
static const struct source {
    size_t (*add)(const struct executor *x, struct pollfd *out);
    void (*ready)(struct executor *x, const struct pollfd *p, size_t n);
    bool after_timeout; /* call ready() also if no descriptor is ready */
} sources[] = {
    { add_calls, calls_ready, .after_timeout = true },
    { add_server, server_ready },
    { add_metrics, metrics_ready },
    /* Before the signals, so that lines which the task sent before its end are reported before the
     * end. */
    { task_side_poll, task_side_ready },
    { add_signals, signals_ready },
    { add_link, link_ready },
};

static int64_t crew_deadline(const struct crew *c)
{
    int64_t at = INT64_MAX;
    for (size_t i = 0; i < c->n; i++)
        if (!c->v[i].over)
            at = MIN(at, executor_deadline(&c->v[i]));
    return at;
}

static void wait_for_something(struct crew *c)
{
    enum { EACH = ARRAY_LEN(sources) + REMOTE_POLL_MAX + TASK_POLL_MAX };
    static struct pollfd p[EACH * CREW_MAX];
    size_t n = 0, first[ARRAY_LEN(sources)][CREW_MAX + 1];
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        for (size_t k = 0; k < c->n; k++) {
            first[i][k] = n;
            if (!c->v[k].over || sources[i].add == add_signals)
                n += sources[i].add(&c->v[k], p + n);
        }
        first[i][c->n] = n;
    }
    int64_t at = crew_deadline(c), left = at == INT64_MAX ? -1 : at - clock_mono_ms();
    struct timespec t = { .tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000 };
    if (left < 0 && at != INT64_MAX)
        t = (struct timespec){ 0 };
    int n_ready = ppoll(p, n, at == INT64_MAX ? NULL : &t, NULL);
    for (size_t i = 0; i < ARRAY_LEN(sources) && n_ready >= 0; i++)
        for (size_t k = 0; k < c->n; k++) {
            size_t from = first[i][k], to = first[i][k + 1];
            if (n_ready > 0 ? to > from || sources[i].after_timeout : sources[i].after_timeout)
                sources[i].ready(&c->v[k], p + from, to - from);
        }
}

/* ---- the loop ---- */

/* Exit with the exit code of the task. So the scheduler knows the exit code even if the master
 * never got the executor's report. The record has that of each executor of a crew. */
static _Noreturn void leave_process(const struct crew *c)
{
    const struct exit_record *r = c->v[0].cfg->record;
    _exit(c->n > 1 || !r->ended ? 0 : r->signal ? 128 + r->signal : r->exit_code);
}

void executors_run(const struct executor_config *cfgs, size_t n)
{
    static struct executor members[CREW_MAX];
    struct crew crew = { .v = members, .n = n, .signal_fd = -1 };
    bool forked = cfgs[0].keeper != 0;
    if (forked || !cfgs[0].remote) {
        /* HUP, not KILL: the executor must kill the processes of its task before it exits. */
        prctl(PR_SET_PDEATHSIG, SIGHUP);
        if (getppid() != cfgs[0].keeper)
            _exit(1);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "tony-executor");
    crew.signal_fd = signals_open();
    for (size_t i = 0; i < n; i++)
        executor_begin(&crew, &members[i], &cfgs[i]);
    for (;;) {
        size_t n_left = 0;
        bool some_ended = false;
        for (size_t i = 0; i < n; i++) {
            bool ended = !members[i].over && executor_turn(&members[i]);
            some_ended |= ended;
            n_left += !members[i].over;
        }
        if (n_left == 0)
            leave_process(&crew);
        if (some_ended && getppid() == cfgs[0].keeper)
            (void)kill(cfgs[0].keeper, CREW_SIGNAL);
        wait_for_something(&crew);
    }
}
