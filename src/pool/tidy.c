/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "conf/conf.h"
#include "history/history.h"
#include "loop/loop.h"
#include "pool/pool_int.h"
#include "storage/gpulock.h"
#include "storage/store.h"

enum {
    TIDY_FIRST_MS = 30000, /* after the start of the pool, which must first serve waiting clients */
    TIDY_AGAIN_MS = 3600000, /* then once an hour */
};

/* The input and the result of the thread. */
struct tidy {
    struct pool *pool;
    char *store, *jobs, *history;
    int64_t max_age_ms, retention_s /* -1: keep the history for ever */, now_ms;
    int n_jobs; /* jobs that were removed from the history */
    struct err e;
};

static void tidy_free(struct tidy *t)
{
    free(t->store);
    free(t->jobs);
    free(t->history);
    free(t);
}

static int tidy_work(void *arg)
{
    struct tidy *t = arg;
    if (t->retention_s >= 0)
        t->n_jobs = history_retain(t->history, t->retention_s * 1000, t->now_ms, &t->e);
    if (t->n_jobs < 0)
        return t->n_jobs;
    return store_gc(t->store, t->jobs, t->max_age_ms, t->now_ms, &t->e);
}

static void tidy_done(void *arg, int rc)
{
    struct tidy *t = arg;
    if (rc < 0)
        log_err(LOG_WARN, "pool.tidy", &t->e);
    else if (rc > 0 || t->n_jobs > 0)
        log_event(LOG_INFO, "pool.tidy", f_int("contents", rc), f_int("jobs", t->n_jobs));
    tidy_free(t);
}

void tidy(void *arg)
{
    struct pool *p = arg;
    loop_timer_set(p->tidy, clock_mono_ms() + TIDY_AGAIN_MS);
    sweep(p);
    gpulock_refresh(gpulock_dir());
    struct tidy *t = calloc(1, sizeof *t);
    if (!t)
        return; /* the timer tries again in an hour */
    t->store = str_dup(p->paths.store);
    t->jobs = str_dup(p->paths.jobs);
    t->history = str_dup(p->paths.history);
    t->retention_s = conf_int(p->conf, "tony.history.retention-sec");
    t->max_age_ms = conf_int(p->conf, "tony.store.max-age");
    t->now_ms = clock_wall_ms();
    if (!t->store || !t->jobs || !t->history || loop_work(p->loop, tidy_work, tidy_done, t) < 0)
        tidy_free(t);
}

void tidy_begin(struct pool *p)
{
    loop_timer_set(p->tidy, clock_mono_ms() + TIDY_FIRST_MS);
}
