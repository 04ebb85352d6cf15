/* SPDX-License-Identifier: Apache-2.0 */
/*
 * history_abort(): ends a job that has no master, and moves it to history/.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/util.h"
#include "conf/conf.h"
#include "history/history_int.h"
#include "storage/hook.h"
#include "storage/jobfile.h"
#include "storage/journal.h"
#include "storage/paths.h"
#include "storage/secrets.h"

/* Feed one event to the job, and add what the job decided and the event to the journal. If the job
 * refuses the event, for example because the job has ended, nothing is added. */
static int add_event(struct history_job *h, struct journal *j, const struct job_event *ev,
                     int64_t t_ms, struct replay *r, struct err *e)
{
    struct job_actions ignored = { 0 };
    AUTO(buf_done) struct buf scratch = { 0 };
    int rc = job_feed(h->job, ev, t_ms, &ignored, e);
    free(ignored.v);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = replay_add_event(j, h->job, ev, r, &scratch);
    return rc < 0 ? err_set(e, -rc, "cannot add to the journal: %m") : 0;
}

/* The reason that ev gives for the end of the job. */
static const char *reason_in(const struct job_event *ev)
{
    const char *why = ev->type == EV_STOP                ? ev->stop.why
                      : ev->type == EV_LAUNCH_FAILED_JOB ? ev->launch_failed_job.why
                                                         : NULL;
    return why ? why : "no reason was given";
}

/* Add the event ev, which ends the job. If containers were alive when the last master died, the
 * core still waits for their ends. The events after ev then tell it that a new master has started,
 * that the scheduler knows no container of the job, and that the job cannot continue. */
static int add_end(struct history_job *h, struct journal *j, struct replay *r,
                   const struct job_event *ev, struct err *e)
{
    int64_t wall = clock_wall_ms();
    int64_t t = r->n_records ? replay_resume(r, wall, clock_mono_ms()) : 0;
    bool stopped = ev->type == EV_LAUNCH_FAILED_JOB && ev->launch_failed_job.stopped;
    struct job_event events[] = {
        *ev,
        { .type = EV_MASTER_STARTED,
          .master_started = { .epoch = job_epoch(h->job) + 1, .wall_ms = wall } },
        { .type = EV_RESYNCED, .resynced = { .why = stopped ? ev->launch_failed_job.why : NULL } },
        { .type = EV_LAUNCH_FAILED_JOB,
          .launch_failed_job = { .why = reason_in(ev), .stopped = stopped } },
    };
    int rc = 0;
    if (r->n_records == 0) { /* history_load_replay() has fed EV_SUBMITTED, but not written it */
        const char *slash = strrchr(h->dir, '/');
        struct job_event first = history_submitted(h->file, slash ? slash + 1 : h->dir);
        AUTO(buf_done) struct buf scratch = { 0 };
        rc = replay_add_record(j, &first, 0, r, &scratch);
        if (rc < 0)
            return err_set(e, -rc, "cannot add to the journal: %m");
    }
    for (size_t i = 0; i < ARRAY_LEN(events) && rc == 0 && !history_decided(h->job); i++)
        rc = add_event(h, j, &events[i], t, r, e);
    return rc;
}

static int write_end(struct history_job *h, struct replay *r, const struct job_event *ev,
                     struct err *e)
{
    AUTO(free_p) char *path = fs_join(h->dir, "journal");
    if (!path)
        return err_set(e, ENOMEM, "no memory to open the journal of the job");
    struct journal j;
    int rc = journal_open(&j, path, e);
    if (rc < 0)
        return rc;
    rc = add_end(h, &j, r, ev, e);
    if (rc == 0)
        rc = journal_flush(&j, true, e);
    journal_close(&j);
    return rc;
}

static void sync_dir(const char *path)
{
    AUTO(close_p) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* if this fails, a power cut may undo the move, and the next pool repeats it */
    if (fd >= 0)
        (void)fsync(fd);
}

/* Does this error say that the disk accepts no more data, because it is full or has failed? */
static bool is_disk_error(int rc)
{
    return fs_no_room(-rc) || rc == -EROFS || rc == -EIO;
}

/* Write status.json and the summary. If one of them cannot be written, readers replay the journal
 * instead. */
static void write_final_status(const char *dir, const struct history_job *h, const struct replay *r)
{
    int64_t ended = replay_wall(r, job_now(h->job));
    AUTO(buf_done) struct buf status = { .max = JOB_STATUS_MAX };
    struct err e = { 0 };
    int rc = job_status_json(h->job, true, &status);
    if (rc < 0)
        (void)err_set(&e, -rc, "no memory for the status of job '%s'", dir);
    else
        rc = history_write_status(dir, buf_span(&status), &e);
    if (rc < 0)
        log_err(LOG_WARN, "history.no_status", &e);
    if (history_summarize(dir, h->job, h->file, h->spec, r->started_wall_ms, ended, &e) < 0)
        log_err(LOG_WARN, "history.no_summary", &e);
}

/* Leave the request for the call at the end of the job. If this fails, the job ends without it. */
static void leave_hook(const struct paths *p, const struct history_job *h, const char *id)
{
    if (!h->spec->on_end)
        return;
    AUTO(free_p) char *parent = fs_join(p->pool, HOOK_DIR);
    AUTO(buf_done) struct buf status = { .max = JOB_STATUS_MAX };
    AUTO(buf_done) struct buf secrets = { 0 };
    struct job_verdict v;
    struct err e = { 0 };
    job_verdict(h->job, &v);
    int rc = parent ? job_status_json(h->job, true, &status) : -ENOMEM;
    if (rc == 0 && status.len > HOOK_BODY_MAX) {
        buf_clear(&status);
        rc = job_status_json(h->job, false, &status);
    }
    if (rc < 0)
        (void)err_set(&e, -rc, "no memory for the call at the end of the job");
    if (rc == 0 && (rc = secrets_load(h->dir, &secrets, &e)) == -ENOENT)
        rc = 0;
    const struct hook_end end = { .application_id = id,
                                  .state = job_state_name(v.state),
                                  .exit_code = v.exit_code,
                                  .spec = h->spec,
                                  .secrets = buf_span(&secrets),
                                  .status = buf_span(&status) };
    if (rc == 0)
        rc = hook_leave(parent, &end, &e);
    if (rc < 0)
        log_err(LOG_WARN, "history.no_call", &e);
    secrets_wipe(&secrets);
}

/* Write the events that end the job. If the disk is full or fails, this function logs the error and
 * returns 0, so that the caller nevertheless moves the job to history/. There, a journal without a
 * verdict means a failed job. Otherwise a job on a full disk could never end. */
static int end_job(const struct paths *p, const char *id, const char *dir,
                   const struct job_event *ev, struct err *e)
{
    AUTO(history_freep) struct history_job *h = NULL;
    struct replay r = { 0 };
    int rc = history_load_replay(dir, &h, &r, e);
    if (rc == -EBADMSG || rc == -EINVAL) {
        /* leave the damaged journal as it is; `tony list` shows DAMAGED */
        log_err(LOG_ERROR, "history.damaged", e);
        return 0;
    }
    if (rc < 0)
        return rc;
    if (!history_decided(h->job)) {
        rc = write_end(h, &r, ev, e);
        if (rc < 0 && !is_disk_error(rc))
            return rc;
        if (rc < 0) {
            log_err(LOG_ERROR, "history.cannot_write", e);
            return 0;
        }
    }
    write_final_status(dir, h, &r);
    leave_hook(p, h, id);
    return 0;
}

int history_abort(const struct paths *p, const char *application_id, const struct job_event *ev,
                  struct err *e)
{
    AUTO(free_p) char *from = paths_job(p, application_id);
    AUTO(free_p) char *to = paths_history(p, application_id);
    AUTO(free_p) char *containers = from ? fs_join(from, "containers") : NULL;
    if (!from || !to || !containers)
        return err_set(e, ENOMEM, "no memory to end job '%s'", application_id);
    struct stat st;
    if (stat(from, &st) == -1 && errno == ENOENT && stat(to, &st) == 0)
        return 0; /* an earlier call has moved it */
    int rc = end_job(p, application_id, from, ev, e);
    if (rc < 0)
        return err_wrap(e, rc, "cannot end job '%s'", application_id);
    struct err why = { 0 };
    secrets_remove(from);
    if (job_file_mask(from, NULL, &why) < 0)
        log_err(LOG_WARN, "history.not_masked", &why);
    if (fs_remove_tree(AT_FDCWD, containers, &why) < 0)
        log_err(LOG_WARN, "history.working_directories", &why);
    if (rename(from, to) == -1)
        return err_set(e, errno, "cannot move job '%s' to '%s': %m", application_id, to);
    sync_dir(p->history);
    sync_dir(p->jobs);
    return 0;
}
