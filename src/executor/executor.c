/* SPDX-License-Identifier: Apache-2.0 */
/* The life of one executor: its start, heartbeats and deadlines, the requests to stop it, its end.
 * executor_loop.c calls these functions for each executor of the process. */
#include "executor/executor_int.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/crew.h"
#include "executor/ports.h"
#include "executor/quiet.h"

enum {
    BEAT_DEFAULT_MS = 1000,
    GRACE_DEFAULT_MS = 5000,
    FLUSH_MAX_MS = 1000, /* at exit: time to send the last frames, if the master reads slowly */
    BEAT_PHASES = 8,     /* groups of executors; those of a group send at the same time */
};

/* executor.log is made with the first warning, so most containers have none. It stays open until
 * another executor of the crew warns, or the process ends. Without a log directory, a warning goes
 * to standard error, which is the log of the keeper. */
void executor_warn(struct executor *x, const char *event, const struct err *e)
{
    static const struct executor *opened_by;
    static int opened = -1;
    if (opened_by != x && executor_has_keeper(x)) {
        AUTO(free_p)
        char *path = x->a.logs.dir ? str_printf("%s/executor.log", x->a.logs.dir) : NULL;
        close_p(&opened);
        opened =
            path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
        log_setup(opened >= 0 ? opened : 2, LOG_INFO, false);
        opened_by = opened >= 0 ? x : NULL;
    }
    log_event(LOG_WARN, event, f_str("container", x->cfg->container_id), f_str("why", e->msg));
}

/* This container cannot be used: record the reason, and let the executor exit. */
void executor_give_up(struct executor *x, const struct err *e)
{
    struct exit_record *r = x->cfg->record;
    r->reason = END_LAUNCH_FAILED;
    (void)str_copy(r->detail, sizeof r->detail, e->msg);
    r->exit_code = 1;
    r->at_us = clock_mono_us();
    r->ended = 1;
    x->leaving = true;
}

/* ---- heartbeats ---- */

/* The pause between two heartbeats. On a cluster, heartbeats renew the lease, so the pause is at
 * most a quarter of it. */
static int64_t beat_ms(const struct executor *x)
{
    int64_t every = x->role && x->role->heartbeat_ms ? x->role->heartbeat_ms : BEAT_DEFAULT_MS;
    return x->cfg->remote ? MIN(every, (int64_t)connection_lease_ms(x) / 4) : every;
}

/*
 * The time of the next heartbeat. On one machine the executors form BEAT_PHASES groups. Those of a
 * group send at the same time, so the master reads many heartbeats in one turn of its loop. If all
 * executors sent at the same time, one timer interrupt could wake a thousand processes. On a
 * cluster each executor keeps a time of its own: groups would send to the master's machine in
 * bursts.
 */
static int64_t next_beat_ms(const struct executor *x, int64_t now)
{
    uint32_t slot = x->crew->v[0].cfg->slot; /* so all executors of a crew are in one group */
    int64_t every = beat_ms(x), phase = slot % BEAT_PHASES * every / BEAT_PHASES;
    if (x->cfg->remote)
        return MAX(x->beat_at_ms + every, now + every / 2);
    return now + every - (now + every - phase) % every;
}

void executor_begin_beats(struct executor *x)
{
    int64_t now = clock_mono_ms();
    x->beat_at_ms = x->cfg->remote ? now + beat_ms(x) : next_beat_ms(x, now);
}

static void send_beat(struct executor *x, int64_t now)
{
    Tony__Beat beat = TONY__BEAT__INIT;
    connection_renew_lease(x);
    bool quiet = quiet_renew(x, now);
    if (!quiet)
        x->beat_at_ms = next_beat_ms(x, now);
    attempt_check_memory(x);
    serve_tick(x, now);
    log_times_tick(x, now);
    if (!x->greeted || (task_metrics_due_soon(x, now) && task_metrics_tick(x, now)) || quiet)
        return;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_BEAT;
    f.beat = &beat;
    (void)executor_send(x, &f); /* after a failure the executor reconnects */
}

/* ---- requests to stop ---- */

uint32_t executor_grace_ms(const struct executor *x)
{
    return x->role ? x->role->kill_grace_ms : GRACE_DEFAULT_MS;
}

void executor_term(struct executor *x, const struct signalfd_siginfo *si)
{
    /* The keeper sends the grace period with the signal. */
    uint32_t grace =
        si->ssi_code == SI_QUEUE && si->ssi_int >= 0 ? (uint32_t)si->ssi_int : executor_grace_ms(x);
    if (executor_has_keeper(x)) {
        /* If the keeper has died, no process can report the end of the container. */
        bool orphaned = getppid() != x->cfg->keeper;
        /* The keeper uses sigqueue(). A plain TERM comes from the cluster, which sends it to all
         * processes of the job. The master gets it as well, and reports why the task ended. */
        bool from_cluster =
            x->cfg->remote && !orphaned && si->ssi_signo == SIGTERM && si->ssi_code != SI_QUEUE;
        x->leaving = true;
        if (from_cluster)
            x->node_reports_end =
                x->node_reports_end || x->report_at_ms || attempt_undecided(&x->a);
        x->report_at_ms = x->node_reports_end ? 0 : x->report_at_ms;
        x->linger_until_ms = from_cluster ? clock_mono_ms() + CLUSTER_TERM_MS : 0;
        attempt_stop(x, orphaned ? 0 : grace, orphaned ? END_UNKNOWN : END_KILLED_BY_MASTER,
                     orphaned ? "its keeper has died" : "the container was stopped");
        return;
    }
    x->leaving = true;
    x->node_reports_end = x->node_reports_end || attempt_undecided(&x->a);
    attempt_node_stops(x, grace);
}

void executor_stop_asked(struct executor *x)
{
    struct exit_record *r = x->cfg->record;
    r->stop_asked = 0;
    r->stop_seen = 1;
    x->leaving = true;
    x->linger_until_ms = 0;
    attempt_stop(x, r->stop_grace_ms, END_KILLED_BY_MASTER, "the container was stopped");
}

/* ---- deadlines ---- */

static void on_time(struct executor *x)
{
    int64_t now = clock_mono_ms();
    connection_tick(x, now);
    quiet_check(x, now);
    if (x->report_at_ms && now >= x->report_at_ms) {
        x->report_at_ms = 0;
        if (x->greeted)
            attempt_report_end(x);
    }
    if (now >= x->beat_at_ms || (quiet_now(x) && now >= task_metrics_due(x)))
        send_beat(x, now);
    if (now >= task_metrics_due(x))
        (void)task_metrics_tick(x, now);
    log_watches_tick(x, now);
    task_side_tick(x, now);
    attempt_tick(x, now);
}

int64_t executor_deadline(const struct executor *x)
{
    int64_t at = MIN(MIN(attempt_deadline(&x->a), x->beat_at_ms), task_side_deadline(x));
    at = MIN(MIN(at, task_metrics_due(x)), log_watches_deadline(x));
    at = MIN(at, connection_deadline(x));
    if (x->report_at_ms)
        at = MIN(at, x->report_at_ms);
    if (x->linger_until_ms)
        at = MIN(at, x->linger_until_ms);
    if (x->cfg->remote)
        at = MIN(at, remote_call_deadline(x->cfg->remote));
    return at;
}

/* ---- begin and end ---- */

void executor_begin(struct crew *c, struct executor *x, const struct executor_config *cfg)
{
    struct err e = { 0 };
    *x = (struct executor){ .cfg = cfg,
                            .crew = c,
                            .link.fd = -1,
                            .tb_fd = -1,
                            .away_since_ms = clock_mono_ms(),
                            .beat_at_ms = INT64_MAX,
                            .watch = CGROUP_WATCH_INIT,
                            .a.logs = { .out_fd = -1, .err_fd = -1 } };
    task_side_init(&x->task);
    if (!executor_has_keeper(x))
        remote_listen(cfg->remote);
    x->port_fd = port_reserve(&x->port, &e);
    if (c->signal_fd >= 0 && x->port_fd >= 0)
        return;
    executor_warn(x, "executor.failed", &e);
    executor_give_up(x, &e);
}

/* Close the ports and files of this executor now: its process runs on for the others of the crew,
 * and new tasks may need the ports. */
static void close_all(struct executor *x)
{
    link_close(&x->link);
    close_p(&x->port_fd);
    close_p(&x->tb_fd);
    task_side_close(&x->task);
    logs_close(&x->a.logs);
    log_watches_clear(x);
    close_p(&x->watch.memory_fd);
    close_p(&x->watch.oom_fd);
}

/* End the executor. Alone, it waits at most FLUSH_MAX_MS until the master has its last frames. In a
 * crew it does not wait: others need the process, and the keeper reports the end as well. */
static void end(struct executor *x)
{
    streams_kill(x);
    int64_t until = clock_mono_ms() + (x->cfg->in_crew ? 0 : FLUSH_MAX_MS);
    while (link_unsent(&x->link) && clock_mono_ms() < until) {
        struct pollfd p = { .fd = x->link.fd, .events = POLLOUT };
        if (poll(&p, 1, FLUSH_MAX_MS) > 0 && link_flush(&x->link) < 0)
            break;
    }
    link_send_close_notify(&x->link);
    x->over = true;
    if (x->cfg->in_crew)
        close_all(x);
    x->cfg->record->clean = 1;
}

static bool goes_on(const struct executor *x)
{
    return !x->leaving || attempt_alive(&x->a) || x->report_at_ms ||
           (x->linger_until_ms && clock_mono_ms() < x->linger_until_ms);
}

bool executor_turn(struct executor *x)
{
    if (goes_on(x))
        on_time(x);
    if (goes_on(x))
        return false;
    end(x);
    return true;
}
