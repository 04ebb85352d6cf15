/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleaning up after finished jobs. Normally the keeper does it. If the keeper is killed after it
 * has moved its job to the history, but before it has removed working directories, control groups
 * and sockets, the pool removes them.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "loop/loop.h"
#include "pool/pool_int.h"

enum {
    LOOK_MIN_MS = 5, /* pause between two checks of a lock; it doubles up to LOOK_MAX_MS */
    LOOK_MAX_MS = 1000,
};

void sweep_sockets(const struct pool *p, const char *id)
{
    static const char *const suffixes[] = { "k", "m" };
    AUTO(free_p) char *lock = paths_job_lock(&p->paths, id);
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        AUTO(free_p) char *path = paths_socket(&p->paths, id, suffixes[i]);
        if (path)
            (void)unlink(path); /* it may be missing */
    }
    if (lock)
        (void)unlink(lock);
}

static char *ended_dir(const struct pool *p, const char *id)
{
    return str_printf("%s/ended/%s", p->paths.pool, id);
}

/* Run `tony-executor --cleanup ID`, which removes the job's working directories, control groups and
 * sockets. */
static int start_cleanup(struct pool *p, const char *id, struct err *e)
{
    AUTO(strv_done) struct strv argv = { 0 }, env = { 0 };
    AUTO(free_p) char *log = fs_join(p->paths.pool, "pool.log");
    int rc = pool_find_executor(p, e);
    if (rc < 0)
        return rc;
    if (!log || strv_push(&argv, p->executor) < 0 || strv_push(&argv, "--cleanup") < 0 ||
        strv_push(&argv, id) < 0)
        return err_set(e, ENOMEM, "cannot clean up after job '%s': %m", id);
    for (char **x = environ; rc == 0 && *x; x++)
        rc = strv_push(&env, *x);
    if (rc == 0)
        rc = strv_env_set(&env, "TONY_HOME", p->paths.home);
    if (rc < 0)
        return err_set(e, ENOMEM, "cannot clean up after job '%s': %m", id);
    struct spawn s = { .program = p->executor,
                       .argv = argv.v,
                       .envp = env.v,
                       .fd3 = -1,
                       .log = log,
                       .new_session = true };
    struct child *child;
    rc = child_spawn(p, &s, NULL, NULL, &child, e);
    return rc;
}

/* Clean up after a job. false: its keeper still holds the lock. */
static bool try_sweep(struct pool *p, const char *id)
{
    AUTO(free_p) char *lock = paths_job_lock(&p->paths, id);
    AUTO(free_p) char *ended = ended_dir(p, id);
    struct err e = { 0 };
    if (!lock || !ended)
        return true; /* no memory: a later sweep() does it */
    AUTO(close_p) int fd = lockfile_take(lock, true);
    if (fd < 0)
        return fd != -EWOULDBLOCK;
    log_event(LOG_INFO, "job.swept", f_str("job", id));
    if (access(ended, F_OK) == -1) {
        sweep_sockets(p, id);
        return true;
    }
    (void)flock(fd, LOCK_UN); /* the cleanup program takes the lock itself */
    if (start_cleanup(p, id, &e) < 0)
        log_err(LOG_WARN, "job.sweep", &e);
    return true;
}

void sweep_job(struct pool *p, const char *id)
{
    (void)try_sweep(p, id); /* false: the keeper lives and cleans up itself */
}

/* ---- keepers that still clean up after their job ---- */

struct ending {
    struct pool *pool;
    struct ending *next;
    struct conn *keeper;
    struct loop_timer *timer;
    int64_t pause_ms;
    char id[APP_ID_MAX];
};

static void ending_free(struct ending *x)
{
    struct ending **at = &x->pool->endings;
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    conn_close(x->keeper);
    loop_timer_free(x->timer);
    free(x);
}

static void on_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    (void)c;
    (void)f; /* frames after the end of the job are ignored */
    (void)arg;
}

/* The connection to the keeper is closed. If the keeper died, the kernel releases its lock a moment
 * later. If only the connection broke, the keeper holds its lock until it has finished. So check
 * the lock again and again. */
static void on_time(void *arg)
{
    struct ending *x = arg;
    AUTO(free_p) char *ended = ended_dir(x->pool, x->id);
    AUTO(free_p) char *lock = paths_job_lock(&x->pool->paths, x->id);
    bool left = ended && lock && (access(ended, F_OK) == 0 || access(lock, F_OK) == 0);
    if (!left || try_sweep(x->pool, x->id)) {
        pool_prepare_in(x->pool, 0);
        ending_free(x);
        return;
    }
    x->pause_ms = MIN(2 * x->pause_ms, (int64_t)LOOK_MAX_MS);
    loop_timer_set(x->timer, clock_mono_ms() + x->pause_ms);
}

/* The keeper has finished cleaning up, or it was killed. */
static void on_close(struct conn *c, const struct err *e, void *arg)
{
    struct ending *x = arg;
    (void)c;
    (void)e;
    x->keeper = NULL;
    loop_timer_set(x->timer, clock_mono_ms());
}

void sweep_after(struct pool *p, struct conn *keeper, const char *id)
{
    static const struct conn_ops ops = { NULL, on_frame, on_close };
    struct ending *x = calloc(1, sizeof *x);
    struct loop_timer *timer = x ? loop_timer_new(p->loop, on_time, x) : NULL;
    if (!timer) {
        free(x);
        conn_close(keeper); /* the next tidy() cleans up */
        return;
    }
    *x = (struct ending){
        .pool = p, .next = p->endings, .keeper = keeper, .timer = timer, .pause_ms = LOOK_MIN_MS
    };
    (void)str_copy(x->id, sizeof x->id, id); /* always fits: an id has at most APP_ID_MAX bytes */
    p->endings = x;
    conn_set_arg(keeper, &ops, x);
}

void sweep_tell_heard(struct pool *p, const char *id)
{
    Tony__EndHeard heard = TONY__END_HEARD__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_END_HEARD;
    f.end_heard = &heard;
    for (struct ending *x = p->endings; x; x = x->next)
        if (str_eq(x->id, id) && x->keeper)
            (void)conn_send(x->keeper, &f); /* if it fails, the keeper may start another pool, which
                                               finds that this one lives */
}

void sweep_done(struct pool *p)
{
    while (p->endings)
        ending_free(p->endings);
}

/* ---- all finished jobs ---- */

static bool lives(const struct pool *p, const char *id)
{
    AUTO(free_p) char *dir = paths_job(&p->paths, id);
    return pool_job_find(p, id) || !dir || access(dir, F_OK) == 0;
}

/* Make the application id of a socket's name, such as "17.k" for job 17. false: another name. */
static bool id_of_socket(const struct pool *p, const char *name, char id[APP_ID_MAX])
{
    const char *dot = strchr(name, '.');
    int64_t number;
    if (!dot || (!str_eq(dot, ".k") && !str_eq(dot, ".m")) ||
        str_i64(span_mem(name, (size_t)(dot - name)), 1, UINT32_MAX, name, &number, NULL) < 0)
        return false;
    app_id_format(id, p->start_ms, (uint32_t)number);
    return true;
}

static bool id_of_lock(const struct pool *p, const char *name, char id[APP_ID_MAX])
{
    int64_t number;
    if (str_i64(span_of(name), 1, UINT32_MAX, name, &number, NULL) < 0)
        return false; /* the lock of the pool */
    app_id_format(id, p->start_ms, (uint32_t)number);
    return true;
}

static bool id_of_ended(const struct pool *p, const char *name, char id[APP_ID_MAX])
{
    int64_t start_ms;
    uint32_t number;
    (void)p;
    return app_id_parse(name, &start_ms, &number, NULL) == 0 && str_copy(id, APP_ID_MAX, name);
}

static void sweep_dir(struct pool *p, const char *path,
                      bool (*id_of)(const struct pool *, const char *, char[APP_ID_MAX]))
{
    DIR *d = path ? opendir(path) : NULL;
    char id[APP_ID_MAX];
    for (struct dirent *x; d && (x = readdir(d));)
        if (id_of(p, x->d_name, id) && !lives(p, id))
            sweep_job(p, id);
    if (d)
        (void)closedir(d);
}

void sweep(struct pool *p)
{
    AUTO(free_p) char *ended = fs_join(p->paths.pool, "ended");
    sweep_dir(p, p->paths.locks, id_of_lock);
    sweep_dir(p, p->paths.runtime, id_of_socket);
    sweep_dir(p, ended, id_of_ended); /* the last, because this makes locks */
}
