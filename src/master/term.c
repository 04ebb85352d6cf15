/*
 * The cluster ends the master's container. There is a quarter of a second until SIGKILL
 * (yarn.nodemanager.sleep-delay-before-sigkill), and only the scheduler knows what is meant: if
 * somebody has killed the application, it ends the other containers by itself, nothing is waited
 * for but the tasks that are quick to tell, and the verdict is written while we can. If only our
 * node goes down, or the place is wanted for others, the next master goes on: nothing is decided
 * here.
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
    TERM_ASK_MS = 120,
    TERM_WAIT_MS = 50,
};

/* What has not ended by now is taken as ended: the verdict stands then. */
static void on_wait_over(void *arg)
{
    struct master *m = arg;
    for (uint32_t i = 0; i < job_n_slots(m->job) && m->phase == MP_RUNNING; i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        if (v.container && v.state != SLOT_ENDED)
            (void)master_feed(m, &(struct job_event){ .type = EV_COMPLETED,
                                                      .slot = i,
                                                      .container = v.container,
                                                      .reason = END_KILLED_BY_MASTER,
                                                      .text = "the application was ended" });
    }
}

static void stop(struct master *m, const char *who, const char *text)
{
    (void)master_feed(m, &(struct job_event){ .type = EV_STOP, .who = who, .text = text });
    loop_timer_set(m->term_timer, clock_mono_ms() + TERM_WAIT_MS);
}

/* No other master will come: what was staged can go while we wait for the tasks. There may be no
 * time for it later. */
static void clear_early(struct master *m)
{
    if (m->copies)
        copies_stop(m->copies);
    if (m->archive)
        archive_clear(m->archive, NULL, NULL);
}

static void on_fate(bool over, const char *who, const char *text, void *arg)
{
    struct master *m = arg;
    if (m->phase != MP_RUNNING)
        return;
    if (over) {
        log_event(LOG_WARN, "application.killed", f_str("why", text));
        clear_early(m);
        stop(m, who ? who : "the cluster",
             who ? "the application was killed in the cluster" : text);
    } else if (m->copies ||
               m->sched_gone) { /* what the copy lacks the next master learns in other ways */
        log_event(LOG_WARN, "master.leaves", f_str("to", "the next one"));
        master_exit_now(m, MASTER_CRASHED);
    } else {
        stop(m, "the cluster", "the application was killed there, or its node went down");
    }
}

static void on_term(int signo, void *arg)
{
    struct master *m = arg;
    log_event(LOG_WARN, "master.terminated", f_int("signal", signo));
    if (m->phase == MP_STARTING || m->phase == MP_BREAKING) {
        master_exit_now(m, MASTER_CRASHED);
        return;
    }
    if (m->phase != MP_RUNNING || m->terminated) /* the end is under way already */
        return;
    m->terminated = true;
    if (!m->sched_ops->fate || m->sched_ops->fate(m->sched, TERM_ASK_MS, on_fate, m) < 0)
        stop(m, "the cluster", "the application was killed there, or its node went down");
}

/* Our question to the scheduler may be refused before our node has told us to end. An end that is
 * under way goes on. */
bool term_on_broken(struct master *m)
{
    if (m->phase == MP_ENDING || (m->phase == MP_RUNNING && m->terminated))
        return true;
    if (m->phase != MP_RUNNING || !m->sched_ops->fate ||
        m->sched_ops->fate(m->sched, TERM_ASK_MS, on_fate, m) < 0)
        return false;
    m->terminated = m->sched_gone = true;
    return true;
}

int term_open(struct master *m, struct err *e)
{
    m->term = loop_signal_new(m->loop, SIGTERM, on_term, m);
    m->term_timer = loop_timer_new(m->loop, on_wait_over, m);
    return m->term && m->term_timer ? 0 : err_set(e, ENOMEM, "no memory to start the master");
}
