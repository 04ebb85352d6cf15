#include <errno.h>
#include <stdlib.h>

#include "conf/conf.h"
#include "loop/loop.h"
#include "pool/pool_int.h"
#include "storage/store.h"

enum {
    TIDY_FIRST_MS = 30000, /* not while jobs wait for us to come up */
    TIDY_AGAIN_MS = 3600000,
};

/* What a thread needs to know, and what it found. */
struct tidy {
    struct pool *pool;
    char *store, *jobs;
    int64_t max_age_ms, now_ms;
    struct err e;
};

static void tidy_free(struct tidy *t)
{
    free(t->store);
    free(t->jobs);
    free(t);
}

static int tidy_work(void *arg)
{
    struct tidy *t = arg;
    return store_gc(t->store, t->jobs, t->max_age_ms, t->now_ms, &t->e);
}

static void tidy_done(void *arg, int rc)
{
    struct tidy *t = arg;
    if (rc < 0)
        log_err(LOG_WARN, "store.gc", &t->e);
    else if (rc > 0)
        log_event(LOG_INFO, "store.gc", f_int("removed", rc));
    tidy_free(t);
}

void tidy(void *arg)
{
    struct pool *p = arg;
    loop_timer_set(p->tidy, clock_mono_ms() + TIDY_AGAIN_MS);
    sweep(p);
    struct tidy *t = calloc(1, sizeof *t);
    if (!t)
        return; /* in an hour */
    t->store = str_dup(p->paths.store);
    t->jobs = str_dup(p->paths.jobs);
    t->max_age_ms = conf_int(p->conf, "tony.store.max-age");
    t->now_ms = clock_wall_ms();
    if (!t->store || !t->jobs || loop_work(p->loop, tidy_work, tidy_done, t) < 0)
        tidy_free(t);
}

void tidy_begin(struct pool *p)
{
    loop_timer_set(p->tidy, clock_mono_ms() + TIDY_FIRST_MS);
}
