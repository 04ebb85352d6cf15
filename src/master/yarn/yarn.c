/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tony-master --yarn: the master in its container on a YARN cluster (docs/decisions/0006-yarn.md).
 * If something is missing in the container, the master says so in one sentence on stderr and exits.
 * YARN shows the end of stderr in the diagnostics of the application.
 */
#include "master/yarn/yarn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "hadoop/webhdfs.h"
#include "loop/loop.h"
#include "master/archive.h"
#include "master/copies.h"
#include "scheduler/yarn/yarnfile.h"

static int open_hdfs(const struct master_home *h, struct loop *loop, struct webhdfs **out,
                     struct err *e)
{
    struct webhdfs_config cfg = {
        .namenodes = (const char *const *)h->yarn->namenodes.v,
        .n_namenodes = h->yarn->namenodes.n,
        .user = h->yarn->user,
    };
    return webhdfs_new(loop, &cfg, out, e);
}

/* ---- the files of the earlier masters ---- */

struct fetching {
    struct loop *loop;
    unsigned n_under_way;
    struct fetched {
        struct fetching *f;
        struct copies_found found;
        struct err why;
    } journal, metrics;
};

static void on_fetched(const struct copies_found *found, const struct err *e, void *arg)
{
    struct fetched *x = arg;
    x->found = *found;
    x->why = *e;
    if (--x->f->n_under_way == 0)
        loop_stop(x->f->loop);
}

static int begin_fetch(struct fetched *x, enum copies_kind kind, const struct master_home *h,
                       struct webhdfs *hdfs, const char *dir, const char *name, struct err *e)
{
    AUTO(free_p) char *job = paths_job(&h->paths, h->application_id);
    AUTO(free_p) char *path = job ? fs_join(job, name) : NULL;
    int rc = path ? copies_fetch(kind, &hdfs_files, hdfs, dir, path, on_fetched, x, e)
                  : err_set(e, ENOMEM, "no memory to start the master");
    x->f->n_under_way += rc == 0;
    return rc;
}

/* Without the journal the master would not know its containers, so it must read the journal first.
 * The WebHDFS client retries for a while. If that fails, the master exits, and YARN may start
 * another one. The job does not depend on the metrics. */
static int fetch_files(const struct master_home *h, struct loop *loop, struct webhdfs *hdfs,
                       const struct master_remote *r, struct err *e)
{
    struct fetching f = { .loop = loop, .journal.f = &f, .metrics.f = &f };
    int64_t start_ms = clock_mono_ms();
    int rc = begin_fetch(&f.journal, COPIES_JOURNAL, h, hdfs, r->journal_dir, "journal", e);
    if (rc < 0)
        return rc;
    (void)begin_fetch(&f.metrics, COPIES_METRICS, h, hdfs, r->metrics_dir, "metrics",
                      &f.metrics.why);
    rc = loop_run(loop);
    if (f.metrics.why.num)
        log_err(LOG_WARN, "metrics.not_fetched", &f.metrics.why);
    if (rc == 0 && f.journal.why.num) {
        *e = f.journal.why;
        rc = err_wrap(e, -e->num, "cannot read the journal of the master before this one");
    }
    log_event(LOG_INFO, "master.second", f_int("epoch", h->epoch),
              f_int("files", f.journal.found.n_files),
              f_int("bytes", (int64_t)f.journal.found.size),
              f_int("metrics_bytes", (int64_t)f.metrics.found.size),
              f_int("ms", clock_mono_ms() - start_ms));
    return rc;
}

static enum master_exit run(struct master_home *h, struct err *e)
{
    struct webhdfs *hdfs = NULL;
    struct master *m = NULL;
    struct loop *loop = loop_new(e);
    enum master_exit code = MASTER_CRASHED;
    int rc = loop ? open_hdfs(h, loop, &hdfs, e) : -ENOMEM;
    const char *staging = h->yarn->staging;
    bool copies = h->yarn->keep_containers && staging && *staging;
    AUTO(free_p) char *journal_dir = copies ? fs_join(staging, "journal") : NULL;
    AUTO(free_p) char *metrics_dir = copies ? fs_join(staging, "metrics") : NULL;
    if (rc == 0 && copies && (!journal_dir || !metrics_dir))
        rc = err_set(e, ENOMEM, "no memory to start the master");
    struct master_remote remote = {
        .key = &h->key,
        .resize_key = h->resize_key,
        .secrets = buf_span(&h->secrets),
        .container_id = h->container_id,
        .node = h->node,
        .log_url = h->log_url,
        .files = &hdfs_files,
        .fs = hdfs,
        .history_dir = h->yarn->history && *h->yarn->history ? h->yarn->history : NULL,
        .history_is_shared = h->history_is_shared,
        .staging_dir = staging && *staging ? staging : NULL,
        .journal_dir = journal_dir,
        .metrics_dir = metrics_dir,
    };
    if (rc == 0 && h->epoch > 1 && copies)
        rc = fetch_files(h, loop, hdfs, &remote, e);
    struct master_config cfg = {
        .loop = loop,
        .paths = &h->paths,
        .application_id = h->application_id,
        .epoch = h->epoch,
        .remote = &remote,
    };
    if (rc == 0)
        rc = master_open(&cfg, &m, e);
    if (rc == 0) {
        rc = loop_run(loop);
        code = rc < 0 ? MASTER_CRASHED : master_exit_code(m);
        if (rc < 0)
            err_set(e, -rc, "the event loop failed: %m");
        else
            loop_flush(loop);
    }
    master_close(m);
    webhdfs_free(hdfs);
    loop_free(loop);
    return code;
}

int master_yarn_main(void)
{
    struct master_home h;
    struct err e = { 0 };
    enum master_exit code = MASTER_CRASHED;
    (void)unsetenv("TONY_HOME"); /* all paths are below the container's directory */
    /* In a job without roles the task writes to the same two files. */
    for (int fd = 1; fd <= 2; fd++)
        (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_APPEND);
    if (master_home_open(&h, &e) == 0)
        code = run(&h, &e);
    if (e.num)
        fprintf(stderr, "tony-master: %s%s%s\n", e.msg, *e.hint ? ": " : "", e.hint);
    master_home_done(&h);
    return (int)code;
}
