/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes a master: see master.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "history/history.h"
#include "loop/tcp.h"
#include "master/archive.h"
#include "master/copies.h"
#include "master/master_int.h"
#include "scheduler/scheduler.h"
#include "storage/jobfile.h"
#include "storage/jobkey.h"
#include "storage/paths.h"
#include "storage/secrets.h"

static int no_memory(struct err *e)
{
    return err_set(e, ENOMEM, "no memory to start the master");
}

static int read_job(struct master *m, struct err *e)
{
    AUTO(free_p) char *path = fs_join(m->job_dir, "job.conf");
    AUTO(buf_done) struct buf text = { .max = JOB_FILE_MAX };
    int rc = path ? fs_read(AT_FDCWD, path, &text, e) : no_memory(e);
    if (rc == 0)
        rc = job_file_decode(buf_span(&text), &m->file, e);
    if (rc == 0)
        rc = job_spec_build(m->file->conf, &m->spec, e);
    return rc < 0 ? err_wrap(e, rc, "cannot read the job") : 0;
}

/* Open the journal and replay its records. The job time continues as replay_resume() says. */
static int read_journal(struct master *m, struct err *e)
{
    AUTO(free_p) char *path = fs_join(m->job_dir, "journal");
    int rc = path ? journal_open(&m->journal, path, e) : no_memory(e);
    if (rc < 0)
        return rc;
    if (m->probe) {
        m->journal.probe = m->probe->journal;
        m->journal.segment_min =
            m->probe->segment_min ? m->probe->segment_min : JOURNAL_SEGMENT_MIN;
    }
    rc = replay_file(m->job, path, &m->replay, e);
    if (rc < 0)
        return err_wrap(e, rc, "cannot replay journal '%s'", path);
    m->t0_mono_ms = clock_mono_ms();
    m->t0_job_ms = m->replay.n_records
                       ? replay_resume(&m->replay, clock_wall_ms(), m->remote ? 0 : m->t0_mono_ms)
                       : 0;
    m->last_written_ms = m->replay.last_t_ms;
    log_event(LOG_INFO, "master.replayed", f_int("records", (int64_t)m->replay.n_records),
              f_int("torn", m->replay.torn), f_int("job_ms", m->t0_job_ms));
    return 0;
}

/* A task must not run without its secrets, so a master without them does not start. Once the job
 * has its verdict the keeper removes the file, and a master that finds none has only to end the
 * job. */
static int read_secrets(struct master *m, struct err *e)
{
    bool remote = m->remote && !m->remote->shared_dirs;
    int rc = 0;
    if (m->spec->secrets.n == 0)
        return 0;
    if (!remote)
        rc = secrets_load(m->job_dir, &m->secrets, e);
    else if (m->remote->secrets.len == 0)
        rc = err_set(e, ENOENT,
                     "the file with the encrypted secrets is missing in the master's container");
    else if (buf_add(&m->secrets, m->remote->secrets.p, m->remote->secrets.len) < 0)
        rc = no_memory(e);
    if (rc == -ENOENT && history_decided(m->job))
        return 0;
    return rc < 0 ? err_wrap(e, rc, "cannot read the secrets of the job") : 0;
}

/* Has a client owned the job since its submission? Then the pool has made the file "owned".
 *
 * On YARN a client owns the job from the moment at which it reaches the master. It may never
 * do so: it may run on a gateway without a route to the nodes. */
static bool submitted_owned(const struct master *m)
{
    if (m->remote && !m->remote->shared_dirs)
        return false;
    AUTO(free_p) char *path = fs_join(m->job_dir, "owned");
    AUTO(buf_done) struct buf text = { 0 };
    return path && fs_read(AT_FDCWD, path, &text, NULL) == 0;
}

static int submit(struct master *m)
{
    struct job_event ev = history_submitted(m->file, m->application_id);
    ev.submitted.owned = submitted_owned(m);
    return master_feed(m, &ev);
}

/* Grow *array from n to `to` elements; the new ones are zero. */
static int grow(void **array, size_t size, uint32_t n, uint32_t to)
{
    char *more = realloc(*array, ((size_t)to + 1) * size);
    if (!more)
        return -ENOMEM;
    memset(more + n * size, 0, ((size_t)to + 1 - n) * size);
    *array = more;
    return 0;
}

int master_grow_slots(struct master *m)
{
    uint32_t n = m->n_slots, to = job_n_slots(m->job);
    if (to <= n && m->executors)
        return 0;
    void *executors = m->executors, *stopping = m->container_stopping,
         *expected = m->executor_expected, *asked = m->asked;
    int rc = grow(&executors, sizeof *m->executors, n, to);
    m->executors = executors;
    if (rc == 0)
        rc = grow(&stopping, sizeof *m->container_stopping, n, to);
    m->container_stopping = stopping;
    if (rc == 0)
        rc = grow(&expected, sizeof *m->executor_expected, n, to);
    m->executor_expected = expected;
    if (rc == 0)
        rc = grow(&asked, sizeof *m->asked, n, to);
    m->asked = asked;
    if (rc == 0)
        rc = locations_grow(m, n, to);
    if (rc == 0)
        m->n_slots = to;
    return rc;
}

/* 0 to 1: the mean over all tasks. A task that has ended counts as 1, a task that reports no
 * progress as 0. */
static float job_progress(void *arg)
{
    const struct master *m = arg;
    uint32_t n = job_n_tasks(m->job);
    double sum = 0;
    for (uint32_t i = 0; i < job_n_slots(m->job); i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        if (v.spare || v.state == SLOT_ABSENT)
            continue;
        if (v.state == SLOT_ENDED || v.state == SLOT_DRAINING)
            sum += 1;
        else if (v.total > 0)
            sum += MIN((double)v.step / (double)v.total, 1.0);
    }
    return n ? (float)(sum / n) : 0;
}

/* sched_config.stored: do the copies of the journal hold all ends that the scheduler has reported?
 *
 * While the journal is blocked, records that are not written yet do not count, because a full disk
 * may last for hours. A back-end that waited for them would send no heartbeats, and the cluster
 * would take the master for dead. */
static bool ends_are_stored(void *arg)
{
    const struct master *m = arg;
    copies_hurry(m->copies);
    return m->blocked_why ? copies_stored(m->copies) : master_is_stored(m);
}

/* The same on one machine, where the next master reads the journal itself. While the journal is
 * blocked, or cannot be written any more, the keeper keeps the ends. */
static bool ends_are_written(void *arg)
{
    const struct master *m = arg;
    return m->phase == MP_RUNNING && journal_unwritten(&m->journal) == 0;
}

static int open_sched(struct master *m, const struct master_config *cfg, struct err *e)
{
    m->sched_ops = cfg->sched ? cfg->sched : sched_find(m->spec->cluster);
    if (!m->sched_ops)
        return err_set(e, EINVAL, "this tony-master cannot run jobs on cluster '%s'",
                       m->spec->cluster);
    struct sched_config sc = {
        .loop = m->loop,
        .epoch = m->epoch,
        .application_id = m->application_id,
        .job_dir = m->job_dir,
        .runtime_dir = m->paths->runtime,
        .stored = ends_are_written,
        .on_sockets = clients_listen_again,
        .on_event = master_on_sched,
        .arg = m,
    };
    if (m->remote) {
        sc.master_port = listener_port(m->listener);
        sc.page_port = m->page_port;
        sc.key = m->remote->key;
        sc.spec = m->spec;
        sc.container_id = m->remote->container_id;
        sc.progress = job_progress;
        if (!m->remote->shared_dirs)
            sc.stored = m->copies ? ends_are_stored : NULL;
        if (m->spec->app_timeout_ms)
            sc.time_left_ms = MAX((int64_t)m->spec->app_timeout_ms - m->t0_job_ms, (int64_t)1);
    }
    if (!m->remote || m->remote->shared_dirs || !m->spec->single_node)
        return m->sched_ops->open(&sc, &m->sched, e);
    const struct sched_ops *cluster_ops = m->sched_ops;
    m->sched_ops = &sched_single_node;
    return single_node_open(m, cluster_ops, &sc, &m->sched, e);
}

static int open_copies(struct master *m, struct err *e)
{
    AUTO(free_p) char *journal = fs_join(m->job_dir, "journal");
    const struct copies_config cc = {
        .loop = m->loop,
        .files = m->remote->files,
        .fs = m->remote->fs,
        .dir = m->remote->journal_dir,
        .file = journal,
        .epoch = m->epoch,
        .first_n = m->journal.first_n,
        .last_n = m->journal.next_n - 1,
        .size = (uint64_t)m->journal.size,
        .delay_ms = COPIES_DELAY_MS,
        .retry_ms = COPIES_RETRY_MS,
        .patience_ms = COPIES_PATIENCE_MS,
        .on_stored = master_on_copied,
        .arg = m,
    };
    return journal ? copies_new(&cc, &m->copies, e) : no_memory(e);
}

/* Open what a master on a cluster needs before it listens. */
static int open_remote(struct master *m, struct err *e)
{
    const struct master_remote *r = m->remote;
    struct archive_config ac = {
        .loop = m->loop,
        .files = r->files,
        .fs = r->fs,
        .history_dir = r->files ? r->history_dir : NULL,
        .staging_dir = r->files ? r->staging_dir : NULL,
        .application_id = m->application_id,
        .job_dir = m->job_dir,
        .shared = r->history_is_shared,
        .max_ms = r->archive_ms ? r->archive_ms : ARCHIVE_MAX_MS,
    };
    job_key_client(r->key, &m->client_key);
    int rc = locations_open(m, e);
    if (rc == 0 && r->shared_dirs)
        return termination_open(m, e);
    if (rc == 0)
        rc = archive_new(&ac, &m->archive, e);
    if (rc == 0)
        rc = page_open(m, e);
    if (rc == 0 && r->journal_dir && r->files)
        rc = open_copies(m, e);
    if (rc == 0 && r->staging_dir && r->files && !m->spec->single_node)
        rc = queued_resize_open(m, e);
    return rc == 0 ? termination_open(m, e) : rc;
}

static int open_all(struct master *m, const struct master_config *cfg, struct err *e)
{
    int rc = read_job(m, e);
    if (rc == 0 && m->remote && !m->remote->shared_dirs && m->spec->single_node)
        single_node_open_log();
    if (rc == 0 && !(m->job = job_new(m->spec, e)))
        rc = no_memory(e);
    if (rc == 0)
        rc = read_journal(m, e);
    if (rc == 0)
        rc = read_secrets(m, e);
    if (rc < 0)
        return rc;

    rc = master_grow_slots(m) < 0 ? no_memory(e) : welcome_build(m, e);
    if (rc == 0)
        rc = master_timers_open(m, e);
    if (rc == 0)
        rc = cluster_spec_open(m, e);
    if (rc == 0 && m->replay.n_records == 0)
        rc = submit(m);
    if (rc == 0)
        rc = metrics_open(m, e);
    if (rc == 0 && m->remote)
        rc = open_remote(m, e);
    if (rc == 0)
        rc = clients_listen(m, e);
    if (rc == 0)
        rc = open_sched(m, cfg, e);
    if (rc == 0)
        loop_on_flush(m->loop, master_flush, m);
    return rc < 0 && !e->num ? err_set(e, -rc, "cannot start the master: %m") : rc;
}

int master_open(const struct master_config *cfg, struct master **out, struct err *e)
{
    struct master *m = calloc(1, sizeof *m);
    if (!m)
        return no_memory(e);
    m->loop = cfg->loop;
    m->paths = cfg->paths;
    m->probe = cfg->probe;
    m->remote = cfg->remote;
    m->epoch = cfg->epoch;
    m->phase = MP_STARTING;
    m->exit_code = MASTER_CRASHED;
    m->journal.fd = -1;
    m->application_id = str_dup(cfg->application_id);
    m->job_dir = paths_job(cfg->paths, cfg->application_id);
    m->log_dir = m->job_dir ? fs_join(m->job_dir, "logs") : NULL;
    struct err why = { 0 };
    int rc = m->application_id && m->log_dir ? open_all(m, cfg, &why) : no_memory(&why);
    if (rc < 0) {
        master_close(m);
        if (e)
            *e = why;
        return rc;
    }
    *out = m;
    return 0;
}

void master_close(struct master *m)
{
    if (!m)
        return;
    m->phase = MP_EXITING;
    loop_on_flush(m->loop, NULL, NULL);
    peers_close(m);
    metrics_close(m);
    streams_close(m);
    listener_close(m->listener);
    page_close(m);
    archive_free(m->archive);
    copies_free(m->copies);
    queued_resize_close(m);
    driver_plan_clear(m);
    reconnect_close(m);
    loop_signal_free(m->sigterm);
    loop_timer_free(m->termination_timer);
    if (m->sched)
        m->sched_ops->close(m->sched);
    loop_timer_free(m->deadline_timer);
    loop_timer_free(m->stall_timer);
    loop_timer_free(m->notify_timer);
    loop_timer_free(m->outlook_timer);
    loop_timer_free(m->end_timer);
    master_drop_actions(m);
    free(m->actions.v);
    free(m->delayed_actions.v);
    welcome_done(m);
    secrets_wipe(&m->secrets);
    hook_child_close(m);
    cluster_spec_close(m);
    locations_close(m);
    wished_nodes_forget(m);
    vec_done(&m->log_questions);
    vec_done(&m->log_watches); /* peers_close() has ended them */
    job_key_wipe(&m->client_key, sizeof m->client_key);
    if (m->journal.fd >= 0)
        journal_close(&m->journal);
    buf_done(&m->scratch);
    job_free(m->job);
    job_spec_free(m->spec);
    job_file_free(m->file);
    free(m->executors);
    free(m->container_stopping);
    free(m->executor_expected);
    free(m->asked);
    free(m->journal_failed_why);
    free(m->blocked_why);
    history_free(m->job_on_disk);
    free(m->application_id);
    free(m->job_dir);
    free(m->log_dir);
    free(m->host);
    free(m);
}
