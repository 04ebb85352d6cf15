/* SPDX-License-Identifier: Apache-2.0 */
/*
 * history_load(): reads job.conf, replays the journal, and adds the events that the journal lacks.
 */
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

static int load_conf(struct history_job *h, struct err *e)
{
    AUTO(free_p) char *path = fs_join(h->dir, "job.conf");
    AUTO(buf_done) struct buf text = { .max = JOB_FILE_MAX };
    int rc = path ? fs_read_file(AT_FDCWD, path, &text, e)
                  : err_set(e, ENOMEM, "no memory to read the configuration of the job");
    if (rc == 0)
        rc = job_file_decode(buf_span(&text), &h->file, e);
    if (rc == 0)
        rc = job_spec_build(h->file->conf, &h->spec, e);
    return rc;
}

/* Feed an event that this file has made. It is not written to the journal. */
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
        .submitted = { .application_id = application_id, .user = f->user, .wall_ms = f->wall_ms }
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

/* Read and replay the journal. That of a waiting job is empty, or missing on Slurm. But if the
 * job's directory is missing as well, another process has just moved it to history/, and the error
 * is -ENOENT. */
static int load_journal(struct history_job *h, struct replay *r, struct err *e)
{
    AUTO(free_p) char *path = fs_join(h->dir, "journal");
    if (!path)
        return err_set(e, ENOMEM, "no memory to read the journal of the job");
    struct stat st;
    h->job = job_new(h->spec, e);
    if (!h->job)
        return -ENOMEM;
    if (stat(path, &st) == 0)
        return replay_file(h->job, path, r, e);
    if (errno != ENOENT || stat(h->dir, &st) == -1)
        return err_set(e, errno, "cannot open '%s': %m", path);
    return 0;
}

/* Feed the events that are not in the journal. If the journal is empty, no master has started: feed
 * EV_SUBMITTED. If the job is in history/ without a verdict, the disk was full when it ended: feed
 * EV_LAUNCH_FAILED_JOB. */
static int feed_missing_events(struct history_job *h, struct replay *r, struct err *e)
{
    int rc = 0;
    if (r->n_records == 0) {
        const char *slash = strrchr(h->dir, '/');
        struct job_event ev = history_submitted(h->file, slash ? slash + 1 : h->dir);
        r->submitted_wall_ms = r->anchor_wall_ms = ev.submitted.wall_ms;
        rc = feed(h, &ev, 0, e);
    }
    if (rc == 0 && !history_decided(h->job) && history_dir_is_final(h->dir)) {
        const char *why =
            "its journal ends without a verdict, since no more records could be written to it: the "
            "disk was full, or a limit on the size of files was reached (ulimit -f)";
        struct job_event ev = { .type = EV_LAUNCH_FAILED_JOB, .launch_failed_job = { .why = why } };
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
        rc = feed_missing_events(h, &r, e);
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
