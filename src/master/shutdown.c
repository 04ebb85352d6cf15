/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a master ends.
 *
 * Regular end, master_finish(): the verdict is in the journal and no task runs. The master sends
 * the last update to the followers, stores the history (on a cluster), reports the verdict to the
 * scheduler, removes the staging directory, and exits.
 *
 * Failure, master_journal_failed(): the journal cannot be written. The master stops all containers,
 * tells followers and scheduler that the job has failed, and exits.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "history/history.h"
#include "master/archive.h"
#include "master/copies.h"
#include "master/master_int.h"
#include "scheduler/scheduler.h"
#include "storage/hook.h"
#include "storage/jobfile.h"
#include "storage/paths.h"

enum {
    HOOK_POLL_MS = 100,     /* between two looks at the process that makes the call at the end */
    POLL_MS = 5,            /* between two looks at whether the master may exit */
    REPORT_MAX_MS = 2000,   /* for followers that do not read, and for a keeper */
    FINISH_MAX_MS = 600000, /* for a ResourceManager, which may be restarting */
    LINGER_MS = 3000,       /* for late answers to this master, while the scheduler is busy() */
    STOP_MAX_MS = 10000,    /* for stopped containers to end, after the grace period of the tasks */
};

/* ---- the regular end ---- */

/* Are late answers still under way? See busy() in scheduler.h. */
static bool sched_is_busy(const struct master *m)
{
    return m->sched_ops->busy && clock_mono_ms() < m->sched_accepted_ms + LINGER_MS &&
           m->sched_ops->busy(m->sched);
}

/* Exit when the scheduler has accepted the verdict, the staging directory is removed, and followers
 * have received the last update; or when end_deadline_ms has passed. */
static void exit_if_done(void *arg)
{
    struct master *m = arg;
    bool done = m->sched_accepted && m->staging_removed && clients_unsent_bytes(m) == 0 &&
                !sched_is_busy(m);
    if (m->phase == MP_ENDING && !done && clock_mono_ms() < m->end_deadline_ms) {
        loop_timer_set(m->end_timer, clock_mono_ms() + POLL_MS);
        return;
    }
    if (m->phase == MP_ENDING && hook_child_runs(m)) {
        loop_timer_set(m->end_timer, clock_mono_ms() + HOOK_POLL_MS);
        return;
    }
    master_exit_now(m, m->journal_failed_why ? MASTER_HOPELESS : MASTER_OVER);
}

static void on_staging_removed(const struct err *e, void *arg)
{
    struct master *m = arg;
    if (e->num) /* the next client of the user removes it */
        log_err(LOG_WARN, "staging.left", e);
    m->staging_removed = true;
    exit_if_done(m);
}

static void on_sched_accepted(void *arg)
{
    struct master *m = arg;
    m->sched_accepted = true;
    m->sched_accepted_ms = clock_mono_ms();
    if (m->archive) {
        clients_disconnect_followers(m);
        m->end_deadline_ms = clock_mono_ms() + ARCHIVE_CLEAR_MS + REPORT_MAX_MS;
        loop_timer_set(m->end_timer, m->end_deadline_ms);
        archive_clear(m->archive, on_staging_removed, m);
        return;
    }
    m->staging_removed = true;
    exit_if_done(m);
}

static bool arm_end_timer(struct master *m, int64_t deadline_ms, int64_t first_ms)
{
    if (!m->end_timer)
        m->end_timer = loop_timer_new(m->loop, exit_if_done, m);
    if (!m->end_timer) {
        master_exit_now(m, MASTER_CRASHED);
        return false;
    }
    m->end_deadline_ms = deadline_ms;
    loop_timer_set(m->end_timer, first_ms);
    return true;
}

/* The job whose end is reported and stored. After a failure of the journal: the job as the journal
 * on disk describes it; NULL = that journal cannot be read. */
static const struct job *job_at_end(const struct master *m)
{
    if (m->journal_failed_why)
        return m->job_on_disk ? m->job_on_disk->job : NULL;
    return m->job;
}

static void write_summary(struct master *m)
{
    const struct job *job = job_at_end(m);
    struct err e = { 0 };
    if (!job)
        return;
    int64_t ended = clock_wall_ms();
    int64_t started = m->replay.started_wall_ms;
    if (!started) /* this is the first master: its clock began with it */
        started = ended - master_now(m);
    if (history_summarize(m->job_dir, job, m->file, m->spec, started, ended, &e) < 0)
        log_err(LOG_WARN, "master.summary", &e); /* lists read status.json then */
}

/* Write the final status of the job to out, as JSON. */
static int make_status(const struct master *m, struct buf *out, struct err *e)
{
    out->max = m->probe && m->probe->status_max ? m->probe->status_max : JOB_STATUS_MAX;
    if (!job_at_end(m))
        return err_set(e, EIO,
                       "cannot make the final status of the job: its journal is unreadable");
    int rc = master_status_json(m, true, false, out);
    return rc < 0 ? err_set(e, -rc, "cannot make the final status of the job: %m") : 0;
}

/* Write status.json on this machine. On a cluster the archive writes it instead. If it cannot be
 * written, readers replay the journal. */
static void write_status(struct master *m)
{
    AUTO(buf_done) struct buf status = { 0 };
    struct err e = { 0 };
    int rc = make_status(m, &status, &e);
    if (rc == 0)
        rc = history_write_status(m->job_dir, buf_span(&status), &e);
    if (rc < 0)
        log_err(LOG_WARN, "master.status", &e);
}

/* Leave the request for the call at the end of the job. On YARN this master makes the call itself;
 * elsewhere the keeper, when it has moved the job to the history. */
static void leave_hook(struct master *m)
{
    bool here = m->remote && !m->remote->shared_dirs;
    AUTO(free_p) char *parent = fs_join(here ? m->job_dir : m->paths->pool, HOOK_DIR);
    AUTO(buf_done) struct buf status = { 0 };
    struct job_verdict v;
    struct err e = { 0 };
    if (!m->spec->on_end || !job_at_end(m))
        return;
    job_verdict(job_at_end(m), &v);
    int rc = parent ? make_status(m, &status, &e)
                    : err_set(&e, ENOMEM, "no memory for the call at the end of the job");
    if (rc == 0 && status.len > HOOK_BODY_MAX) {
        buf_clear(&status);
        rc = master_status_json(m, false, false, &status);
    }
    const struct hook_end end = { .application_id = m->application_id,
                                  .state = job_state_name(v.state),
                                  .exit_code = v.exit_code,
                                  .spec = m->spec,
                                  .secrets = buf_span(&m->secrets),
                                  .status = buf_span(&status) };
    if (rc == 0)
        rc = hook_leave(parent, &end, &e);
    if (rc < 0)
        log_err(LOG_WARN, "master.no_call", &e);
    if (rc == 0 && here)
        hook_child_start(m, parent);
}

/* The keeper moves job.conf to the history. The archive of a cluster masks the file itself. */
static void mask_conf(struct master *m)
{
    struct err e = { 0 };
    if (job_file_mask(m->job_dir, m->file, &e) < 0)
        log_err(LOG_WARN, "history.not_masked", &e);
}

static void tell_sched(struct master *m, const char *state, const char *diagnostics)
{
    struct err e = { 0 };
    int64_t by = clock_mono_ms() + (m->remote ? FINISH_MAX_MS : REPORT_MAX_MS);
    if (!arm_end_timer(m, by, by))
        return;
    if (m->sched_ops->finish(m->sched, state, diagnostics, on_sched_accepted, &e) < 0) {
        log_err(LOG_ERROR, "sched.finish", &e); /* the next master repeats it */
        master_exit_now(m, MASTER_CRASHED);
    }
}

/* archive_end() has stored the history, or has failed. If it failed, add the reason to the
 * diagnostics of the application, where users look. */
void history_kept(const struct err *e, void *arg)
{
    struct master *m = arg;
    struct job_verdict v = { .state = JOB_FAILED, .message = m->journal_failed_why };
    if (job_at_end(m))
        job_verdict(job_at_end(m), &v);
    if (hook_child_delays(m, e))
        return;
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

/* Store the history in HDFS. If the final status cannot be made, because it is larger than
 * JOB_STATUS_MAX or memory is short, store the other files: the journal has the same data. */
static void keep_history(struct master *m)
{
    AUTO(buf_done) struct buf status = { 0 }, text = { .max = JOB_STATUS_MAX };
    struct err e = { 0 };
    int rc = make_status(m, &status, &e);
    if (rc == 0 && (rc = history_status_text(buf_span(&status), &text)) < 0)
        rc = err_set(&e, -rc, "cannot make the file of the final status: %m");
    if (rc < 0) {
        log_err(LOG_WARN, "master.status", &e);
        buf_clear(&text);
    }
    archive_end(m->archive, buf_span(&text), history_kept, m);
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
    /* The archive stores the journal in the history now. If this master dies before that, the next
     * master replays the copies and reaches the same verdict. */
    if (m->copies)
        copies_stop(m->copies);
    metrics_finish(m);
    clients_send_final_update(m);
    loop_send_queued(m->loop); /* a client prints the verdict meanwhile */
    if (!m->archive)
        write_status(m);
    write_summary(m);
    leave_hook(m);
    if (!m->archive)
        mask_conf(m);
    if (m->archive)
        keep_history(m);
    else
        tell_sched(m, job_state_name(v.state), v.message);
}

/* ---- the journal cannot be written ---- */

/* From now on followers see the job as the journal on disk describes it, with the verdict FAILED.
 * Later readers of the journal find the same state, so events that could not be written are not
 * shown. */
static void load_job_on_disk(struct master *m)
{
    struct history_job *h = NULL;
    struct err e = { 0 };
    if (history_load(m->job_dir, &h, &e) < 0) {
        log_err(LOG_ERROR, "journal.unreadable", &e);
        return;
    }
    struct job_actions ignored = { 0 };
    struct job_event ev = { .type = EV_LAUNCH_FAILED_JOB,
                            .launch_failed_job = { .why = m->journal_failed_why } };
    (void)job_feed(h->job, &ev, master_now(m), &ignored, NULL); /* 1 = it has a verdict already */
    free(ignored.v);
    m->job_on_disk = h;
}

/* All containers have ended, or STOP_MAX_MS is over. The scheduler kills those that still run. */
static void on_containers_stopped(void *arg)
{
    struct master *m = arg;
    if (m->phase != MP_JOURNAL_FAILED)
        return;
    load_job_on_disk(m);
    m->phase = MP_ENDING;
    clients_send_final_update(m);
    loop_timer_free(m->end_timer);
    m->end_timer = NULL;
    if (m->copies)
        copies_stop(m->copies);
    metrics_finish(m);
    if (m->archive) {
        write_summary(m);
        keep_history(m);
        return;
    }
    /* The keeper needs no report: the exit code MASTER_HOPELESS tells it to fail the job. */
    m->sched_accepted = m->staging_removed = true;
    int64_t now = clock_mono_ms();
    (void)arm_end_timer(m, now + REPORT_MAX_MS, now);
}

static void stop_container(struct master *m, const char *container, uint32_t slot)
{
    struct err e = { 0 };
    m->n_containers_stopping += !m->container_stopping[slot];
    m->container_stopping[slot] = true;
    if (m->sched_ops->stop(m->sched, container, m->spec->kill_grace_ms, &e) < 0)
        log_err(LOG_ERROR, "sched.stop", &e);
}

/* Without a journal the master may start nothing, and the results of tasks would be lost. So the
 * master stops all containers, and the job fails with the error as its reason. */
void master_journal_failed(struct master *m, const struct err *why)
{
    if (m->phase != MP_RUNNING && m->phase != MP_STARTING)
        return;
    log_err(LOG_ERROR, "journal.failed", why);
    free(TAKE(m->blocked_why));
    history_free(TAKE(m->job_on_disk)); /* on_containers_stopped() loads it again */
    bool was_running = m->phase == MP_RUNNING;
    m->phase = MP_JOURNAL_FAILED;
    m->journal_failed_why = m->stop_answers_due
                                ? str_printf("a client asked to stop the job, but %s", why->msg)
                                : str_dup(why->msg);
    if (!was_running) {
        master_exit_now(m, MASTER_HOPELESS);
        return;
    }
    for (uint32_t i = 0; i < job_n_slots(m->job); i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        if (v.container && v.state != SLOT_ENDED)
            stop_container(m, v.container, i);
    }
    int64_t now = clock_mono_ms();
    m->end_timer = loop_timer_new(m->loop, on_containers_stopped, m);
    if (!m->end_timer)
        master_exit_now(m, MASTER_HOPELESS);
    else
        loop_timer_set(m->end_timer,
                       m->n_containers_stopping ? now + m->spec->kill_grace_ms + STOP_MAX_MS : now);
}

void journal_failed_on_sched(struct master *m, const struct sched_event *ev)
{
    for (size_t i = 0; i < ev->n && ev->containers; i++) {
        const struct sched_container *c = &ev->containers[i];
        if (c->slot >= job_n_slots(m->job))
            continue;
        uint32_t slot = job_slot_now(m->job, c->slot); /* a task may have a spare's container */
        if (ev->type == SE_ALLOCATED) { /* granted before the scheduler got the stop requests */
            stop_container(m, c->id, slot);
        } else if (ev->type == SE_COMPLETED && m->container_stopping[slot]) {
            m->container_stopping[slot] = false;
            m->n_containers_stopping--;
        }
    }
    if (m->n_containers_stopping == 0)
        loop_timer_set(m->end_timer, clock_mono_ms());
}
