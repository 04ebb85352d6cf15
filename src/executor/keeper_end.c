/*
 * The end of a job: it goes to the history at once, and what took room is removed after that.
 *
 * Whoever waits for the job waits for one rename. The working directories, of which there may be a
 * thousand, are moved out of the way before it, to pool/ended/<application id>/, and with them the
 * list of the job's control groups. So the directory in history/ is complete from the moment it is
 * there, and what a crash leaves to be removed is found by its name: see keeper_clear_ended().
 *
 * Killed before the job's rename: the job lies in jobs/ with its verdict, and the next keeper ends
 * it. Killed after it: pool/ended/<id> tells that something is left. Killed after that: sockets and
 * lock of a job that lies in history/ are left.
 *
 * The lock is held to the very end: while it is, nobody else removes anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/keeper_int.h"
#include "executor/keeper_start.h"
#include "executor/spare.h"

enum { LAST_WORDS_MS = 1000 };

/* ---- out of the way ---- */

static void move_into(const char *job_dir, const char *name, const char *to)
{
    AUTO(free_p) char *from = str_printf("%s/%s", job_dir, name);
    if (from)
        (void)rename(from, to); /* not there, or another file system: then it stays in the job */
}

/* pool/ended/<id> is the directory of working directories itself. */
static void move_aside(const struct keeper *k)
{
    AUTO(free_p) char *all = str_printf("%s/ended", k->paths.pool);
    AUTO(free_p) char *cgroups = str_printf("%s/cgroups", k->ended_dir);
    if (!all || !cgroups || (mkdir(all, 0700) == -1 && errno != EEXIST))
        return; /* then they are removed in their place */
    move_into(k->job_dir, "containers", k->ended_dir);
    (void)mkdir(k->ended_dir, 0700); /* where there was none: a place for the list */
    move_into(k->job_dir, "cgroups", cgroups);
}

static void remove_dirs(const char *spare_dir, const char *containers)
{
    struct err e = { 0 };
    if (spare_dir)
        spare_keep(spare_dir, containers);
    if (fs_remove_tree(AT_FDCWD, containers, &e) < 0)
        log_err(LOG_WARN, "keeper.leftover", &e); /* the history is worth more than the room */
}

/* What could not be moved, or is not to be since the job is not over: in its place. */
static void remove_in_place(struct keeper *k, bool all)
{
    AUTO(free_p) char *containers = str_printf("%s/containers", k->job_dir);
    AUTO(free_p) char *cgroups = str_printf("%s/cgroups", k->job_dir);
    if (containers && access(containers, F_OK) == 0)
        remove_dirs(k->spare_dir, containers);
    if (all || (cgroups && access(cgroups, F_OK) == 0))
        cgroup_job_remove(&k->cgroup);
    if (cgroups)
        (void)unlink(cgroups); /* names nothing any more, or lies elsewhere */
}

void keeper_clear_ended(const char *ended_dir, const char *spare_dir)
{
    if (access(ended_dir, F_OK) == -1)
        return;
    keeper_remove_cgroups(ended_dir);
    remove_dirs(spare_dir, ended_dir);
}

static int put_away(struct keeper *k, struct err *e)
{
    AUTO(free_p) char *to = paths_history(&k->paths, k->app_id);
    AUTO(free_p) char *key = str_printf("%s/key", k->job_dir);
    if (!to || !key)
        return err_set(e, ENOMEM, "cannot put the job away: %m");
    bool aborted = str_eq(k->final_state, "MASTER_FAILED");
    if (!aborted)
        move_aside(k);
    remove_in_place(k, aborted);
    if (aborted)
        return 0;
    (void)unlink(key); /* no secret of use to a job that is over */
    return rename(k->job_dir, to) == 0 ? 0
                                       : err_set(e, errno, "cannot move the job to '%s': %m", to);
}

/* Clients that wait for the move hear of it by the end of their connection, also those that nobody
 * has accepted yet. (Not by watching the directory: the end of a watch takes the kernel 10 ms.) */
static void release_watchers(struct keeper *k)
{
    close_p(&k->listen_fd);
    for (size_t i = 0; i < k->peers.n; i++)
        if (k->peers.v[i].kind == PEER_NEW)
            link_close(&k->peers.v[i].link);
}

/* ---- words ---- */

/* Not finished, but MASTER_FAILED: the pool then writes the end of the job itself. */
static void last_words(struct keeper *k, bool finished)
{
    pool_tell(k, finished);
    int64_t until = clock_mono_ms() + LAST_WORDS_MS;
    for (size_t i = 0; i < k->peers.n; i++) {
        struct link *l = &k->peers.v[i].link;
        while (link_unsent(l) && clock_mono_ms() < until) {
            struct pollfd p = { .fd = l->fd, .events = POLLOUT };
            if (poll(&p, 1, LAST_WORDS_MS) <= 0 || link_flush(l) < 0)
                break;
        }
    }
}

static int64_t cpu_ms(int who)
{
    struct rusage u;
    if (getrusage(who, &u) == -1)
        return 0;
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000 +
           (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000;
}

/* What the job cost here, for whoever asks where the time went. */
static void log_end(const struct keeper *k)
{
    log_event(LOG_INFO, "keeper.job_over", f_str("state", k->final_state),
              f_int("containers", (int64_t)k->containers.n),
              f_int("keeper_cpu_ms", cpu_ms(RUSAGE_SELF)),
              f_int("children_cpu_ms", cpu_ms(RUSAGE_CHILDREN)));
}

/* ---- the end ---- */

void keeper_unlock(struct keeper *k)
{
    (void)unlink(k->master_socket); /* a master that was killed left it */
    (void)unlink(k->socket);
    (void)unlink(k->lock_path);
    close_p(&k->lock_fd);
}

/* The pool may start the next job on them as soon as it hears of our end. */
static void release_gpus(struct keeper *k)
{
    for (uint32_t i = 0; i < k->n_gpus; i++)
        close_p(&k->gpu_fd[i]);
}

int keeper_end(struct keeper *k)
{
    struct err e = { 0 };
    bool aborted = str_eq(k->final_state, "MASTER_FAILED");
    int rc = put_away(k, &e);
    if (rc < 0)
        log_err(LOG_ERROR, "keeper.end", &e);
    else if (!aborted)
        release_watchers(k);
    log_end(k);
    release_gpus(k);
    if (aborted || rc < 0)
        keeper_unlock(k); /* the pool goes on with the job: we must not be in its way */
    last_words(k, !aborted && rc == 0);
    if (k->had_pool && !keeper_peer(k, PEER_POOL)) /* others may wait for what this job held */
        pool_start_again(k, clock_mono_ms());
    if (!aborted && rc == 0) {
        cgroup_job_remove(&k->cgroup);
        keeper_clear_ended(k->ended_dir, k->spare_dir);
        keeper_unlock(k);
    }
    return aborted ? KEEPER_ABORTED : rc < 0 ? KEEPER_FAILED : KEEPER_OK;
}
