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
#include "history/history_int.h"
#include "storage/jobfile.h"
#include "storage/journal.h"
#include "storage/paths.h"

/* Feed and write one event. One that the job refuses (it has ended, say) is not written. */
static int add_event(struct history_job *h, struct journal *j, const struct job_event *ev,
                     int64_t t_ms, struct err *e)
{
    struct job_actions scratch = { 0 };
    int rc = job_feed(h->job, ev, t_ms, &scratch, e);
    free(scratch.v);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    AUTO(buf_done) struct buf text = { 0 };
    rc = job_event_encode(ev, job_now(h->job), &text);
    if (rc == 0)
        rc = journal_add(j, buf_span(&text));
    return rc < 0 ? err_set(e, -rc, "cannot add to the journal: %m") : 0;
}

/* The event that ends the job; then, if containers were alive when its last master died, what tells
 * the core that they are gone. */
static int add_end(struct history_job *h, struct journal *j, const struct replay *r,
                   const struct job_event *ev, struct err *e)
{
    int64_t wall = clock_wall_ms();
    int64_t t = r->n_records ? replay_resume(r, wall, clock_mono_ms()) : 0;
    struct job_event events[] = {
        *ev,
        { .type = EV_MASTER_STARTED, .epoch = job_epoch(h->job) + 1, .wall_ms = wall },
        { .type = EV_RESYNCED },
        { .type = EV_LAUNCH_FAILED_JOB, .text = ev->text ? ev->text : "it could not be ended" },
    };
    int rc = 0;
    if (r->n_records == 0) { /* history_load has fed it already, in memory */
        const char *slash = strrchr(h->dir, '/');
        struct job_event first = history_submitted(h->file, slash ? slash + 1 : h->dir);
        AUTO(buf_done) struct buf text = { 0 };
        rc = job_event_encode(&first, 0, &text);
        if (rc == 0)
            rc = journal_add(j, buf_span(&text));
        if (rc < 0)
            return err_set(e, -rc, "cannot add to the journal: %m");
    }
    for (size_t i = 0; i < ARRAY_LEN(events) && rc == 0 && !history_decided(h->job); i++)
        rc = add_event(h, j, &events[i], t, e);
    return rc;
}

static int write_end(struct history_job *h, const struct replay *r, const struct job_event *ev,
                     struct err *e)
{
    AUTO(free_p) char *path = fs_join(h->dir, "journal");
    if (!path)
        return err_set(e, ENOMEM, "no memory");
    struct journal j;
    int rc = journal_open(&j, path, NULL, e);
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
    if (fd >= 0)
        (void)fsync(fd); /* the move is done again by the next pool if a power cut takes it back */
}

static bool no_room(int rc)
{
    return fs_no_room(-rc) || rc == -EROFS || rc == -EIO;
}

/* Write what ends the job. When the disk takes nothing more, the job still goes to history, where a
 * journal without a verdict reads as a failed job: better than one that can never end. */
static int end_job(const char *dir, const struct job_event *ev, struct err *e)
{
    AUTO(history_freep) struct history_job *h = NULL;
    struct replay r = { 0 };
    int rc = history_load_replay(dir, &h, &r, e);
    if (rc == -EBADMSG || rc == -EINVAL) { /* damaged: kept as it is, shown as DAMAGED */
        log_err(LOG_ERROR, "history.damaged", e);
        return 0;
    }
    if (rc < 0)
        return rc;
    if (!history_decided(h->job)) {
        rc = write_end(h, &r, ev, e);
        if (rc < 0 && !no_room(rc))
            return rc;
        if (rc < 0) {
            log_err(LOG_ERROR, "history.cannot_write", e);
            return 0;
        }
    }
    int64_t ended = replay_wall(&r, job_now(h->job));
    struct err why = { 0 };
    if (history_summarize(dir, h->job, h->file, h->spec, r.started_wall_ms, ended, &why) < 0)
        log_err(LOG_WARN, "history.no_summary", &why); /* the list reads the journal then */
    return 0;
}

int history_abort(const struct paths *p, const char *application_id, const struct job_event *ev,
                  struct err *e)
{
    AUTO(free_p) char *from = paths_job(p, application_id);
    AUTO(free_p) char *to = paths_history(p, application_id);
    AUTO(free_p) char *work = from ? fs_join(from, "containers") : NULL;
    if (!from || !to || !work)
        return err_set(e, ENOMEM, "no memory to end job '%s'", application_id);
    struct stat st;
    if (stat(from, &st) == -1 && errno == ENOENT && stat(to, &st) == 0)
        return 0; /* done before */
    int rc = end_job(from, ev, e);
    if (rc < 0)
        return err_wrap(e, rc, "cannot end job '%s'", application_id);
    struct err why = { 0 };
    if (fs_remove_tree(AT_FDCWD, work, &why) < 0)
        log_err(LOG_WARN, "history.working_directories", &why);
    if (rename(from, to) == -1)
        return err_set(e, errno, "cannot move job '%s' to '%s': %m", application_id, to);
    sync_dir(p->history);
    sync_dir(p->jobs);
    return 0;
}
