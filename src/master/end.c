#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "history/history.h"
#include "master/archive.h"
#include "master/copies.h"
#include "master/master_int.h"
#include "scheduler/scheduler.h"

enum {
    TELL_POLL_MS = 5,
    TELL_MAX_MS = 2000,     /* a follower that reads nothing may not keep the job from ending */
    FINISH_MAX_MS = 600000, /* a resource manager may restart while we tell it */
    LINGER_MS = 3000,       /* for answers that nobody needs any more: of a node that is busy */
    BREAK_MAX_MS = 10000,   /* beyond the tasks' own grace; then the keeper ends what is left */
};

/* ---- the good end: the verdict is written and nothing of ours is alive ---- */

static bool answers_come(const struct master *m)
{
    return m->sched_ops->busy && clock_mono_ms() < m->told_ms + LINGER_MS &&
           m->sched_ops->busy(m->sched);
}

/* Done when the scheduler has our word and the followers theirs and nothing of ours is left
 * elsewhere, or when they take too long. */
static void end_look(void *arg)
{
    struct master *m = arg;
    bool ready = m->sched_told && m->cleared && clients_queued(m) == 0 && !answers_come(m);
    if (m->phase == MP_ENDING && !ready && clock_mono_ms() < m->end_by_ms) {
        loop_timer_set(m->end, clock_mono_ms() + TELL_POLL_MS);
        return;
    }
    master_exit_now(m, m->breaking_why ? MASTER_HOPELESS : MASTER_OVER);
}

static void staging_cleared(const struct err *e, void *arg)
{
    struct master *m = arg;
    if (e->num) /* the user's next client does it */
        log_err(LOG_WARN, "staging.left", e);
    m->cleared = true;
    end_look(m);
}

static void sched_has_it(void *arg)
{
    struct master *m = arg;
    m->sched_told = true;
    m->told_ms = clock_mono_ms();
    if (m->archive) {
        clients_let_go(m);
        m->end_by_ms = clock_mono_ms() + ARCHIVE_CLEAR_MS + TELL_MAX_MS;
        loop_timer_set(m->end, m->end_by_ms);
        archive_clear(m->archive, staging_cleared, m);
        return;
    }
    m->cleared = true;
    end_look(m);
}

static bool end_timer(struct master *m, int64_t by_ms, int64_t first_ms)
{
    if (!m->end)
        m->end = loop_timer_new(m->loop, end_look, m);
    if (!m->end) {
        master_exit_now(m, MASTER_CRASHED);
        return false;
    }
    m->end_by_ms = by_ms;
    loop_timer_set(m->end, first_ms);
    return true;
}

static void write_summary(struct master *m)
{
    struct err e = { 0 };
    int64_t ended = clock_wall_ms();
    int64_t started = m->replay.started_wall_ms;
    if (!started) /* this is the first master: its clock began with it */
        started = ended - master_now(m);
    if (history_summarize(m->job_dir, m->job, m->file, m->spec, started, ended, &e) < 0)
        log_err(LOG_WARN, "master.summary", &e); /* lists read the journal then */
}

static void tell_sched(struct master *m, const char *state, const char *diagnostics)
{
    struct err e = { 0 };
    int64_t by = clock_mono_ms() + (m->remote ? FINISH_MAX_MS : TELL_MAX_MS);
    if (!end_timer(m, by, by))
        return;
    if (m->sched_ops->finish(m->sched, state, diagnostics, sched_has_it, &e) < 0) {
        log_err(LOG_ERROR, "sched.finish", &e); /* the next master says it again */
        master_exit_now(m, MASTER_CRASHED);
    }
}

/* The history is where it will be looked for, or cannot be put there: then the application says so,
 * for nobody else will. */
static void history_kept(const struct err *e, void *arg)
{
    struct master *m = arg;
    struct job_verdict v;
    job_verdict(m->job, &v);
    if (!e->num) {
        tell_sched(m, job_state_name(v.state), v.message);
        return;
    }
    log_err(LOG_ERROR, "history.lost", e);
    AUTO(free_p)
    char *text = str_printf("%s (its history could not be written to '%s/%s': %s)", v.message,
                            m->remote->history_dir, m->application_id, e->msg);
    tell_sched(m, job_state_name(v.state), text ? text : v.message);
}

static void keep_history(struct master *m)
{
    AUTO(buf_done) struct buf status = { 0 };
    struct err e = { 0 };
    if (master_status_json(m, true, false, &status) < 0)
        history_kept((err_set(&e, ENOMEM, "no memory"), &e), m);
    else
        archive_end(m->archive, buf_span(&status), history_kept, m);
}

void master_finish(struct master *m)
{
    if (m->phase != MP_RUNNING)
        return;
    struct job_verdict v;
    job_verdict(m->job, &v);
    log_event(LOG_INFO, "job.ended", f_str("state", job_state_name(v.state)),
              f_str("why", v.message), f_int("ran_ms", job_now(m->job)));
    m->phase = MP_ENDING;
    if (m->copies) /* the journal goes into the history now; until it is there, another master would
                      come to the same verdict */
        copies_stop(m->copies);
    clients_tell_end(m);
    write_summary(m);
    if (m->archive)
        keep_history(m);
    else
        tell_sched(m, job_state_name(v.state), v.message);
}

/* ---- the bad end: what happens can no longer be written down ---- */

/* What followers are shown is what the journal says, not what we know beyond it: nobody could ever
 * read that again. */
static void show_what_stands(struct master *m)
{
    struct history_job *h = NULL;
    struct err e = { 0 };
    if (history_load(m->job_dir, &h, &e) < 0) {
        log_err(LOG_ERROR, "journal.unreadable", &e);
        return;
    }
    struct job_actions ignored = { 0 };
    struct job_event ev = { .type = EV_LAUNCH_FAILED_JOB, .text = m->breaking_why };
    (void)job_feed(h->job, &ev, master_now(m), &ignored, NULL); /* refused: it had ended before */
    free(ignored.v);
    m->stands = h;
}

static void break_over(void *arg)
{
    struct master *m = arg;
    if (m->phase != MP_BREAKING)
        return;
    show_what_stands(m);
    m->phase = MP_ENDING;
    clients_tell_end(m);
    loop_timer_free(m->end);
    m->end = NULL;
    if (m->remote) {
        tell_sched(m, job_state_name(JOB_FAILED), m->breaking_why);
        return;
    }
    m->sched_told = m->cleared = true; /* it learns from our exit code that another master is of no
                                          use */
    int64_t now = clock_mono_ms();
    (void)end_timer(m, now + TELL_MAX_MS, now);
}

static void stop_one(struct master *m, const char *container, uint32_t slot)
{
    struct err e = { 0 };
    m->n_to_stop += !m->to_stop[slot];
    m->to_stop[slot] = true;
    if (m->sched_ops->stop(m->sched, container, m->spec->kill_grace_ms, &e) < 0)
        log_err(LOG_ERROR, "sched.stop", &e);
}

/* Without a journal nothing may begin, and what runs would be lost to everybody: all is stopped, in
 * order, and the job fails with the reason. What was written before stays as it is. */
void master_break(struct master *m, const struct err *why)
{
    if (m->phase != MP_RUNNING && m->phase != MP_STARTING)
        return;
    log_err(LOG_ERROR, "journal.failed", why);
    free(TAKE(m->blocked_why));
    history_free(TAKE(m->stands)); /* it is looked for again when all is down */
    bool had_begun = m->phase == MP_RUNNING;
    m->phase = MP_BREAKING;
    m->breaking_why =
        m->stop_answers ? str_printf("it was to be stopped, and %s", why->msg) : str_dup(why->msg);
    if (!had_begun) {
        master_exit_now(m, MASTER_HOPELESS);
        return;
    }
    for (uint32_t i = 0; i < job_n_slots(m->job); i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        if (v.container && v.state != SLOT_ENDED)
            stop_one(m, v.container, i);
    }
    int64_t now = clock_mono_ms();
    m->end = loop_timer_new(m->loop, break_over, m);
    if (!m->end)
        master_exit_now(m, MASTER_HOPELESS);
    else
        loop_timer_set(m->end, m->n_to_stop ? now + m->spec->kill_grace_ms + BREAK_MAX_MS : now);
}

void master_break_on_sched(struct master *m, const struct sched_event *ev)
{
    for (size_t i = 0; i < ev->n && ev->containers; i++) {
        const struct sched_container *c = &ev->containers[i];
        if (c->slot >= job_n_slots(m->job))
            continue;
        if (ev->type == SE_ALLOCATED) { /* granted while we were breaking */
            stop_one(m, c->id, c->slot);
        } else if (ev->type == SE_COMPLETED && m->to_stop[c->slot]) {
            m->to_stop[c->slot] = false;
            m->n_to_stop--;
        }
    }
    if (m->n_to_stop == 0)
        loop_timer_set(m->end, clock_mono_ms());
}
