/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/conf.h"
#include "history/history.h"
#include "loop/loop.h"
#include "pool/pool_int.h"
#include "storage/gpulock.h"
#include "storage/programs.h"
#include "storage/store.h"

enum {
    TIDY_FIRST_MS = 30000, /* after the start of the pool, which must first serve waiting clients */
    TIDY_AGAIN_MS = 3600000, /* then once an hour */
    NICE_MAX = 19,           /* other programs come first, also on a login node */
};

/* The task of a thread of the pool, and its result. */
struct tidy {
    struct paths paths; /* of TONY_HOME */
    int64_t max_age_ms, retention_s /* -1: keep the history for ever */, now_ms;
    int n_contents, n_programs, n_jobs; /* removed from store/, programs/ and history/ */
    struct err e;
};

static int tidy_work(void *arg)
{
    struct tidy *t = arg;
    int rc = 0;
    if (t->retention_s >= 0)
        rc = t->n_jobs = history_retain(t->paths.history, t->retention_s * 1000, t->now_ms, &t->e);
    if (rc >= 0)
        rc = t->n_contents =
            store_gc(t->paths.store, t->paths.jobs, t->max_age_ms, t->now_ms, &t->e);
    if (rc >= 0)
        rc = t->n_programs = programs_gc(&t->paths, t->max_age_ms, t->now_ms, &t->e);
    return rc < 0 ? rc : 0;
}

static void log_result(const struct tidy *t, int rc)
{
    if (rc < 0)
        log_err(LOG_WARN, "pool.tidy", &t->e);
    else if (t->n_contents || t->n_programs || t->n_jobs)
        log_event(LOG_INFO, "pool.tidy", f_int("contents", t->n_contents),
                  f_int("programs", t->n_programs), f_int("jobs", t->n_jobs));
}

static void tidy_free(struct tidy *t)
{
    paths_done(&t->paths);
    free(t);
}

static void tidy_done(void *arg, int rc)
{
    struct tidy *t = arg;
    log_result(t, rc);
    tidy_free(t);
}

static void fill(struct tidy *t, const struct conf *conf)
{
    t->retention_s = conf_int(conf, "tony.history.retention-sec");
    t->max_age_ms = conf_int(conf, "tony.store.max-age");
    t->now_ms = clock_wall_ms();
}

void tidy(void *arg)
{
    struct pool *p = arg;
    loop_timer_set(p->tidy, clock_mono_ms() + TIDY_AGAIN_MS);
    sweep(p);
    gpulock_refresh(gpulock_dir());
    struct tidy *t = calloc(1, sizeof *t);
    struct err unused; /* the timer tries again in an hour */
    if (!t)
        return;
    fill(t, p->conf);
    if (paths_open(&t->paths, &unused) < 0 || loop_work(p->loop, tidy_work, tidy_done, t) < 0)
        tidy_free(t);
}

void tidy_begin(struct pool *p)
{
    loop_timer_set(p->tidy, clock_mono_ms() + TIDY_FIRST_MS);
}

int tidy_once(const struct conf *conf, struct err *e)
{
    struct tidy t = { 0 };
    int rc = paths_open(&t.paths, e);
    if (rc < 0)
        return rc;
    pid_t pid = fork(); /* the caller does not wait, and gets no zombie */
    if (pid > 0) {
        paths_done(&t.paths);
        return 0;
    }
    fill(&t, conf);
    (void)setpriority(PRIO_PROCESS, 0, NICE_MAX);
    AUTO(free_p) char *stamp = fs_join(t.paths.pool, PATHS_TIDIED);
    AUTO(close_p) int fd = stamp ? open(stamp, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    bool is_locked = fd != -1 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd != -1 && !is_locked && errno == EWOULDBLOCK) { /* another process does it now */
        paths_done(&t.paths);
        return 0;
    }
    rc = tidy_work(&t);
    if (fd != -1)
        (void)futimens(fd, NULL); /* only now: the work may take long, and be killed */
    *e = t.e;
    paths_done(&t.paths);
    return rc;
}
