/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node sends SIGTERM to the master's container. SIGKILL follows after 250 ms (the default of
 * yarn.nodemanager.sleep-delay-before-sigkill.ms). The master asks the scheduler what has happened:
 *
 * - A user has killed the application. The cluster ends the other containers itself. The master
 *   waits TERM_WAIT_MS for tasks to report their end, and then writes the verdict.
 * - Only this container ends, because its node stops or because of preemption. The master exits
 *   without a verdict; the next master continues the job. If the cluster starts no other master,
 *   the master stops the job, as in the first case.
 */
#include <errno.h>
#include <signal.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "master/archive.h"
#include "master/copies.h"
#include "master/master_int.h"
#include "scheduler/scheduler.h"

enum {
    TERM_ASK_MS = 120, /* for the scheduler's answer */
    TERM_WAIT_MS = 50, /* for the tasks */
};

/* Report all tasks that still run as ended, so that the core reaches its verdict. */
static void on_wait_over(void *arg)
{
    struct master *m = arg;
    for (uint32_t i = 0; i < job_n_slots(m->job) && m->phase == MP_RUNNING; i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        if (v.container && v.state != SLOT_ENDED)
            (void)master_feed_end(
                m,
                &(struct job_event){ .type = EV_COMPLETED,
                                     .completed = { .slot = i,
                                                    .container = v.container,
                                                    .reason = END_KILLED_BY_MASTER,
                                                    .detail = "the application was ended" } },
                0);
    }
}

static void stop_job(struct master *m, const char *who, const char *text)
{
    (void)master_feed(m,
                      &(struct job_event){ .type = EV_STOP, .stop = { .who = who, .why = text } });
    loop_timer_set(m->termination_timer, clock_mono_ms() + TERM_WAIT_MS);
}

/* There will be no other master, so the copies and the staging directory are not needed any more.
 * Remove the directory now, since SIGKILL may come before the regular end of the job. */
static void remove_staging_early(struct master *m)
{
    if (m->copies)
        copies_stop(m->copies);
    metrics_stop_copies(m);
    if (m->archive)
        archive_clear(m->archive, NULL, NULL);
}

static void on_fate(bool over, const char *who, const char *text, void *arg)
{
    struct master *m = arg;
    if (m->phase != MP_RUNNING)
        return;
    if (!over && text) {
        log_event(LOG_WARN, "master.leaves", f_str("why", text));
        master_exit_now(m, MASTER_LEAVES);
    } else if (over) {
        log_event(LOG_WARN, "application.killed", f_str("why", text));
        remove_staging_early(m);
        stop_job(m, who ? who : "the cluster",
                 who ? "the application was killed in the cluster" : text);
    } else if (m->copies || m->sched_broken || (m->remote && m->remote->shared_dirs)) {
        /* The next master has other sources for records that the copies of the journal lack:
         * decision 0007. */
        log_event(LOG_WARN, "master.leaves", f_str("to", "the next one"));
        master_exit_now(m, MASTER_CRASHED);
    } else {
        stop_job(m, "the cluster", "the application was killed, or the master's node went down");
    }
}

static void on_term(int signo, void *arg)
{
    struct master *m = arg;
    log_event(LOG_WARN, "master.terminated", f_int("signal", signo));
    if (m->phase == MP_STARTING || m->phase == MP_JOURNAL_FAILED) {
        master_exit_now(m, MASTER_CRASHED);
        return;
    }
    if (m->phase != MP_RUNNING || m->terminating) /* the job is ending already */
        return;
    m->terminating = true;
    if (!m->sched_ops->fate || m->sched_ops->fate(m->sched, TERM_ASK_MS, on_fate, m) < 0)
        stop_job(m, "the cluster", "the application was killed, or the master's node went down");
}

/* If the application is killed, the scheduler may refuse the master's requests before the node
 * sends SIGTERM. So ask it whether the application is over. If the job is already ending, continue.
 */
bool termination_on_sched_broken(struct master *m)
{
    if (m->phase == MP_ENDING || (m->phase == MP_RUNNING && m->terminating))
        return true;
    if (m->phase != MP_RUNNING || !m->sched_ops->fate ||
        m->sched_ops->fate(m->sched, TERM_ASK_MS, on_fate, m) < 0)
        return false;
    m->terminating = m->sched_broken = true;
    return true;
}

int termination_open(struct master *m, struct err *e)
{
    m->sigterm = loop_signal_new(m->loop, SIGTERM, on_term, m);
    m->termination_timer = loop_timer_new(m->loop, on_wait_over, m);
    return m->sigterm && m->termination_timer ? 0
                                              : err_set(e, ENOMEM, "no memory to start the master");
}
