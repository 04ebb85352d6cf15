#include "history/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "history/history_int.h"
#include "history/replay.h"
#include "job/job.h"
#include "storage/jobfile.h"
#include "storage/journal.h"

enum { JOB_CONF_MAX = 32 << 20 };

static int load_conf(struct history_job *h, struct err *e)
{
    AUTO(free_p) char *path = fs_join(h->dir, "job.conf");
    AUTO(buf_done) struct buf text = { .max = JOB_CONF_MAX };
    int rc = path ? fs_read(AT_FDCWD, path, &text, e) : err_set(e, ENOMEM, "no memory");
    if (rc == 0)
        rc = job_file_decode(buf_span(&text), &h->file, e);
    if (rc == 0)
        rc = job_spec_build(h->file->conf, &h->spec, e);
    return rc;
}

/* Feed one event made up here, not written anywhere. */
static int feed(struct history_job *h, const struct job_event *ev, int64_t t_ms, struct err *e)
{
    struct job_actions scratch = { 0 };
    int rc = job_feed(h->job, ev, t_ms, &scratch, e);
    free(scratch.v);
    return rc < 0 ? rc : 0;
}

struct job_event history_submitted(const struct job_file *f, const char *application_id)
{
    return (struct job_event){
        .type = EV_SUBMITTED,
        .text = application_id,
        .who = f->user,
        .wall_ms = f->wall_ms,
    };
}

bool history_decided(const struct job *job)
{
    switch (job_state(job)) {
    case JOB_SUCCEEDED:
    case JOB_FAILED:
    case JOB_KILLED:
        return true;
    case JOB_NONE:
    case JOB_NEW:
    case JOB_WAITING:
    case JOB_RUNNING:
    case JOB_STOPPING:
    case JOB_STATE_COUNT:
        break;
    }
    return false;
}

/* The journal of a job that waits need not be there; where the directory itself is not there any
 * more, it was moved under our eyes, and the journal with it. */
static int load_journal(struct history_job *h, struct replay *r, struct err *e)
{
    AUTO(free_p) char *path = fs_join(h->dir, "journal");
    if (!path)
        return err_set(e, ENOMEM, "no memory");
    struct buf text = { 0 };
    struct stat st;
    int rc = 0;
    if (stat(path, &st) == 0)
        rc = journal_read(path, &text, e);
    else if (errno != ENOENT || stat(h->dir, &st) == -1)
        rc = err_set(e, errno, "cannot open '%s': %m", path);
    h->job = rc == 0 ? job_new(h->spec, e) : NULL;
    if (rc == 0 && !h->job)
        rc = -ENOMEM;
    if (rc == 0)
        rc = replay_journal(h->job, buf_span(&text), r, e);
    buf_done(&text);
    return rc;
}

/* What the journal does not say: that a job was submitted (no master has begun one), and the end of
 * one that lies in history without it (the disk was full). */
static int complete(struct history_job *h, struct replay *r, struct err *e)
{
    int rc = 0;
    if (r->n_records == 0) {
        const char *slash = strrchr(h->dir, '/');
        struct job_event ev = history_submitted(h->file, slash ? slash + 1 : h->dir);
        r->submitted_wall_ms = r->anchor_wall_ms = ev.wall_ms;
        rc = feed(h, &ev, 0, e);
    }
    if (rc == 0 && !history_decided(h->job) && history_dir_is_final(h->dir)) {
        struct job_event ev = {
            .type = EV_LAUNCH_FAILED_JOB,
            .text = "its journal ends without a verdict: it could not be written any more",
        };
        rc = feed(h, &ev, r->last_t_ms, e);
    }
    return rc;
}

int history_load_replay(const char *dir, struct history_job **out, struct replay *out_replay,
                        struct err *e)
{
    struct stat st;
    if (stat(dir, &st) == -1)
        return err_set(e, errno, "cannot read job '%s': %m", dir);
    AUTO(history_freep) struct history_job *h = calloc(1, sizeof *h);
    if (!h || !(h->dir = str_dup(dir)))
        return err_set(e, ENOMEM, "no memory to read job '%s'", dir);
    struct replay r = { 0 };
    int rc = load_conf(h, e);
    if (rc == 0)
        rc = load_journal(h, &r, e);
    if (rc == 0)
        rc = complete(h, &r, e);
    if (rc < 0)
        return err_wrap(e, rc, "cannot read job '%s'", dir);
    h->torn = r.torn;
    h->started_wall_ms = r.started_wall_ms;
    h->ended_wall_ms = history_decided(h->job) ? replay_wall(&r, r.last_t_ms) : 0;
    h->now_ms = replay_resume(&r, clock_wall_ms(), clock_mono_ms());
    if (out_replay)
        *out_replay = r;
    *out = TAKE(h);
    return 0;
}

int history_load(const char *dir, struct history_job **out, struct err *e)
{
    return history_load_replay(dir, out, NULL, e);
}

void history_free(struct history_job *h)
{
    if (!h)
        return;
    job_free(h->job);
    job_spec_free(h->spec);
    job_file_free(h->file);
    free(h->dir);
    free(h);
}

void history_freep(struct history_job **h)
{
    history_free(*h);
    *h = NULL;
}
