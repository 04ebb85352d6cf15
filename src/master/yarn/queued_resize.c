/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes the resize that a client left while the job waited for its first master:
 * scheduler/yarn/resizefile.h describes the files.
 *
 * 1. Remove queued/ if it is empty. In most cases it is empty, and steps 2 and 3 are skipped.
 * 2. If it is not empty, rename it to taken/, list that and read the newest file.
 * 3. Give the request to the core when the master has begun its work, before it asks for
 *    containers.
 *
 * The master registers with the cluster meanwhile. If it is registered first, it waits for the
 * result, PATIENCE_MS at most. Then the job starts with the size in its job file, and a request
 * that is found later is a resize of a running job.
 *
 * A later master does the same, because the earlier one may have died at any of these steps. The
 * request counts only for a job that was never resized: the first master gives it to the core
 * before any other request. So a resize in the journal is this request or a newer one.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/frame.h"
#include "loop/loop.h"
#include "master/archive.h"
#include "master/master_int.h"
#include "proto/tony.pb-c.h"
#include "scheduler/scheduler.h"
#include "scheduler/yarn/resizefile.h"

enum {
    PATIENCE_MS = 5000,  /* the start of the tasks waits at most this time */
    RETRY_MIN_MS = 1000, /* pause after a failure; it doubles */
    RETRY_MAX_MS = 60000,
};

struct queued_resize {
    struct master *m;
    char *queued, *taken;     /* paths of the directories */
    char *path;               /* of the newest file, which has the request */
    struct loop_timer *retry; /* after a failure: retry from step 1 */
    struct loop_timer *patience;
    int64_t pause_ms;
    bool may_be_taken; /* this master or an earlier one may have renamed the directory */
    bool search_ended; /* it is known whether there is a request (frame) */
    bool impatient;    /* PATIENCE_MS have passed */
    bool registered;   /* SE_REGISTERED waits; its text is in `text` */
    char *text;        /* NULL = none */
    Tony__Frame *frame;
};

/* ---- the start of the master ---- */

static int64_t patience_ms(const struct queued_resize *q)
{
    const struct master_probe *probe = q->m->probe;
    return probe && probe->patience_ms ? probe->patience_ms : (int64_t)PATIENCE_MS;
}

/* Report SE_REGISTERED again, which queued_resize_delays() has held back. */
static void report_registered(struct queued_resize *q)
{
    struct master *m = q->m;
    loop_timer_stop(q->patience);
    if (q->registered && m->phase == MP_STARTING)
        master_on_sched(&(struct sched_event){ .type = SE_REGISTERED, .text = q->text }, m);
    q->registered = false;
}

bool queued_resize_delays(struct master *m, const struct sched_event *ev)
{
    struct queued_resize *q = m->queued_resize;
    /* Containers of an earlier master must not wait: their executors look for this one. */
    if (!q || q->search_ended || q->impatient || ev->n > 0)
        return false;
    free(q->text);
    q->text = str_dup(ev->text); /* NULL if there is no memory, as in registered() */
    if (!q->registered)
        loop_timer_set(q->patience, clock_mono_ms() + patience_ms(q));
    q->registered = true;
    return true;
}

static void on_patience(void *arg)
{
    struct queued_resize *q = arg;
    q->impatient = true;
    log_event(LOG_WARN, "resize.not_known", f_str("dir", q->queued), f_int("ms", patience_ms(q)));
    report_registered(q);
}

void queued_resize_apply(struct master *m)
{
    struct queued_resize *q = m->queued_resize;
    struct err e = { 0 };
    if (!q || !q->frame || m->phase != MP_RUNNING)
        return;
    AUTO(frame_freep) Tony__Frame *f = TAKE(q->frame);
    const Tony__ResizeJob *r = f->resize_job;
    log_event(LOG_INFO, "client.resize", f_str("who", r->who), f_str("reason", r->reason),
              f_str("file", q->path));
    int rc = job_was_resized(m->job) ? err_set(&e, EALREADY, "the job has been resized already")
                                     : clients_feed_resize(m, r, &e);
    if (rc < 0)
        log_err(rc == -EALREADY ? LOG_INFO : LOG_WARN, "resize.refused", &e);
}

/* The files have been read: there is a request, or there is none. */
static void end_search(struct queued_resize *q)
{
    q->search_ended = true;
    if (q->m->phase == MP_RUNNING)
        queued_resize_apply(q->m);
    else
        report_registered(q);
}

/* ---- the files ---- */

static void start_over_later(struct queued_resize *q, const struct err *e)
{
    if (!q->pause_ms)
        log_err(LOG_WARN, "resize.unread", e);
    q->pause_ms = q->pause_ms ? MIN(2 * q->pause_ms, (int64_t)RETRY_MAX_MS) : RETRY_MIN_MS;
    loop_timer_set(q->retry, clock_mono_ms() + q->pause_ms);
}

/* The file is invalid. The job keeps the size in its job file. No client was told that the
 * request was accepted. */
static void refuse_file(struct queued_resize *q, struct err *e)
{
    (void)err_wrap(e, -e->num, "cannot use the request for a resize in '%s'",
                   q->path ? q->path : q->taken);
    log_err(LOG_WARN, "resize.refused", e);
    end_search(q);
}

static void on_read(const struct files_result *r, const struct err *e, void *arg)
{
    struct queued_resize *q = arg;
    struct err why = *e;
    if (!r && e->num != ENOENT)
        start_over_later(q, e);
    else if (!r || resize_file_decode(r->data, q->m->application_id, &q->frame, &why) < 0)
        refuse_file(q, &why);
    else
        end_search(q);
}

static void on_listed(const struct files_result *r, const struct err *e, void *arg)
{
    struct queued_resize *q = arg;
    const struct files_ops *files = q->m->remote->files;
    struct err why = { 0 };
    int64_t bytes = 0;
    uint32_t newest = r ? resize_file_newest(q->taken, r->stats, r->n_stats, &bytes) : 0;
    if (!r && e->num != ENOENT) {
        start_over_later(q, e);
        return;
    }
    if (!newest) {
        end_search(q);
        return;
    }
    free(q->path);
    q->path = str_printf("%s/%u", q->taken, newest);
    if (bytes > RESIZE_FILE_MAX) {
        (void)err_set(&why, EBADMSG, "it has %lld bytes; the limit is %d", (long long)bytes,
                      RESIZE_FILE_MAX);
        refuse_file(q, &why);
        return;
    }
    int rc = q->path ? files->get(q->m->remote->fs, q->path, on_read, q, &why)
                     : err_set(&why, ENOMEM, "no memory to read it");
    if (rc < 0)
        start_over_later(q, &why);
}

static void list_taken(struct queued_resize *q)
{
    const struct master_remote *r = q->m->remote;
    struct err e = { 0 };
    if (r->files->list(r->fs, q->taken, on_listed, q, &e) < 0)
        start_over_later(q, &e);
}

/* ENOENT: another master of this job has renamed it. */
static void on_renamed(const struct files_result *r, const struct err *e, void *arg)
{
    struct queued_resize *q = arg;
    (void)r;
    if (e->num && e->num != ENOENT)
        start_over_later(q, e);
    else
        list_taken(q);
}

static void on_removed(const struct files_result *r, const struct err *e, void *arg)
{
    struct queued_resize *q = arg;
    const struct master_remote *remote = q->m->remote;
    struct err why = *e;
    (void)r;
    if (e->num == ENOTEMPTY) {
        q->may_be_taken = true;
        if (remote->files->rename(remote->fs, q->queued, q->taken, on_renamed, q, &why) < 0)
            start_over_later(q, &why);
    } else if (e->num) {
        start_over_later(q, e);
    } else if (q->may_be_taken && !job_was_resized(q->m->job)) {
        list_taken(q);
    } else {
        end_search(q);
    }
}

static void search(void *arg)
{
    struct queued_resize *q = arg;
    const struct master_remote *r = q->m->remote;
    struct err e = { 0 };
    if (r->files->rmdir(r->fs, q->queued, on_removed, q, &e) < 0)
        start_over_later(q, &e);
}

int queued_resize_open(struct master *m, struct err *e)
{
    struct queued_resize *q = calloc(1, sizeof *q);
    m->queued_resize = q;
    if (q) {
        q->m = m;
        q->may_be_taken = m->epoch > 1;
        q->queued = fs_join(m->remote->staging_dir, RESIZE_QUEUED_DIR);
        q->taken = fs_join(m->remote->staging_dir, RESIZE_TAKEN_DIR);
        q->retry = loop_timer_new(m->loop, search, q);
        q->patience = loop_timer_new(m->loop, on_patience, q);
    }
    if (!q || !q->queued || !q->taken || !q->retry || !q->patience)
        return err_set(e, ENOMEM, "no memory to look for a resize of the job");
    search(q);
    return 0;
}

void queued_resize_close(struct master *m)
{
    struct queued_resize *q = TAKE(m->queued_resize);
    if (!q)
        return;
    loop_timer_free(q->retry);
    loop_timer_free(q->patience);
    frame_free(q->frame);
    free(q->queued);
    free(q->taken);
    free(q->path);
    free(q->text);
    free(q);
}
