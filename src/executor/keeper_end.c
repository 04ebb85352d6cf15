/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a job. The keeper first moves the job to the history by a rename, and then removes its
 * working directories. So clients that wait for the job wait only for the rename. On one machine
 * the keeper does not wait until the master has exited: after FinishJob the master writes only to
 * files that it has opened.
 *
 * Before that rename, the keeper moves the working directories (there may be a thousand) and the
 * list of the control groups to pool/ended/<application id>/. So the directory in history/ is
 * complete when it appears there. After a crash, keeper_clear_ended() finds the rest by its name.
 *
 * If the keeper is killed
 *
 * - before the job's rename: the job is in jobs/ with its verdict, and the next keeper ends it;
 * - after it: pool/ended/<id> shows what has to be removed;
 * - after the removal: only the sockets and the lock of the job remain.
 *
 * If podman or docker has not removed a container (engine_left.h), pool/ended/<id> stays, empty,
 * and `tony-executor --cleanup` tries again.
 *
 * The keeper holds the lock to the end. While it is held, no other process removes anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/keeper_int.h"
#include "executor/keeper_start.h"
#include "executor/spare.h"
#include "storage/gpulock.h"
#include "storage/hook.h"
#include "storage/publish.h"
#include "storage/secrets.h"

enum {
    LAST_WORDS_MS = 1000,
    AWAY_LOGS_MS = 30000, /* for the logs of nodes that do not see TONY_HOME */
};

/* ---- moving aside ---- */

static void move_into(const char *job_dir, const char *name, const char *to)
{
    AUTO(free_p) char *from = str_printf("%s/%s", job_dir, name);
    if (from)
        (void)rename(from, to); /* if it fails, remove_in_place() follows */
}

void keeper_mark_ended(const struct keeper *k)
{
    AUTO(free_p) char *all = str_printf("%s/ended", k->paths.pool);
    if (all)
        (void)mkdir(all, 0700);
    (void)mkdir(k->ended_dir,
                0700); /* if it fails, no later process removes the rest; `tony status` names it */
}

/* Move jobs/<id>/containers to pool/ended/<id>, and the list of control groups into that. */
static void move_aside(const struct keeper *k)
{
    AUTO(free_p) char *all = str_printf("%s/ended", k->paths.pool);
    AUTO(free_p) char *cgroups = str_printf("%s/cgroups", k->ended_dir);
    if (!all || !cgroups || (mkdir(all, 0700) == -1 && errno != EEXIST))
        return; /* then remove_in_place() removes them */
    move_into(k->job_dir, "containers", k->ended_dir);
    (void)mkdir(k->ended_dir, 0700); /* for the list, if the job had no containers */
    move_into(k->job_dir, "cgroups", cgroups);
}

static void remove_dirs(const char *spare_dir, const char *containers)
{
    struct err e = { 0 };
    if (spare_dir)
        spare_keep(spare_dir, containers);
    if (fs_remove_tree(AT_FDCWD, containers, &e) < 0)
        log_err(LOG_WARN, "keeper.leftover", &e); /* the job ends nevertheless */
}

/* Remove working directories and cgroups where they are: moving them failed, or the job continues
 * and its directory stays. */
static void remove_in_place(struct keeper *k, bool all)
{
    AUTO(free_p) char *containers = str_printf("%s/containers", k->job_dir);
    AUTO(free_p) char *cgroups = str_printf("%s/cgroups", k->job_dir);
    if (containers && access(containers, F_OK) == 0)
        remove_dirs(k->spare_dir, containers);
    if (all || (cgroups && access(cgroups, F_OK) == 0))
        cgroup_job_remove(&k->cgroup, (struct spare_groups){ 0 });
    if (cgroups)
        (void)unlink(cgroups); /* tony has removed its groups, or has moved the list */
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
    AUTO(free_p) char *engines = str_printf("%s/engines", k->job_dir);
    if (!to || !key || !engines)
        return err_set(e, ENOMEM, "cannot move the job to the history: %m");
    bool aborted = str_eq(k->final_state, "MASTER_FAILED");
    if (left_any(k->job_dir))
        keeper_mark_ended(k);
    if (!aborted)
        move_aside(k);
    remove_in_place(k, aborted);
    if (aborted)
        return 0;
    (void)rmdir(engines); /* only a job with images has it; it stays if containers are left */
    (void)unlink(key);    /* the history needs no secret */
    secrets_remove(k->job_dir);
    return rename(k->job_dir, to) == 0 ? 0
                                       : err_set(e, errno, "cannot move the job to '%s': %m", to);
}

/* Clients wait for the move by a connection to the keeper. Close these connections, also those that
 * were not accepted yet. (inotify is no alternative: the kernel needs 10 ms to end a watch.) */
static void release_watchers(struct keeper *k)
{
    close_p(&k->listen_fd);
    for (size_t i = 0; i < k->peers.n; i++)
        if (k->peers.v[i].kind == PEER_NEW)
            link_close(&k->peers.v[i].link);
}

/* ---- the report to the pool ---- */

/* finished = false: the state is MASTER_FAILED, and the pool writes the verdict of the job. */
static void send_last_report(struct keeper *k, bool finished)
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

/* Log the CPU time of the job, for questions about performance. */
static void log_end(const struct keeper *k)
{
    log_event(LOG_INFO, "keeper.job_over", f_str("state", k->final_state),
              f_int("containers", k->n_granted), f_int("keeper_cpu_ms", cpu_ms(RUSAGE_SELF)),
              f_int("children_cpu_ms", cpu_ms(RUSAGE_CHILDREN)));
}

/* ---- the end ---- */

void keeper_unlock(struct keeper *k)
{
    close_p(&k->listen_fd);         /* so that sockets_check() does not make the socket again */
    (void)unlink(k->master_socket); /* a killed master leaves it behind */
    (void)unlink(k->socket);
    (void)unlink(k->lock_path);
    close_p(&k->lock_fd);
}

/* Call this before the report, because the pool may start the next job on these GPUs at once. */
static void release_gpus(struct keeper *k)
{
    for (uint32_t i = 0; i < k->n_gpus; i++)
        gpulock_release(&k->gpu_fd[i]);
}

/* The head keeper moves the job to the history when the keepers of the nodes have ended. */
static int end_node(struct keeper *k)
{
    log_end(k);
    /* REPLACED: a younger keeper of this node uses the same directory (scheduler/slurm/nodes.c). */
    if (!str_eq(k->final_state, "REPLACED"))
        remove_in_place(k, true);
    keeper_unlock(k);
    return str_eq(k->final_state, "MASTER_FAILED") ? KEEPER_ABORTED : KEEPER_OK;
}

/* Make the call at the end of the job, if the job wants one: by a process of its own, which has the
 * time of HOOK_LIMIT_MS. A pool that is connected starts that process itself. On Slurm it must end
 * before the allocation does; what it could not deliver then, the next pool of this home delivers.
 */
static void make_call(const struct keeper *k, bool pool)
{
    static char program[] = "tony-executor", option[] = "--" HOOK_DIR;
    bool head = k->kind == KEEPER_HEAD;
    char limit[24];
    AUTO(free_p) char *dir = str_printf("%s/" HOOK_DIR "/%s", k->paths.pool, k->app_id);
    AUTO(free_p) char *log = str_printf("%s/%s/" HOOK_LOG, k->paths.history, k->app_id);
    if (!dir || !log || access(dir, F_OK) == -1 || (!head && pool))
        return;
    (void)snprintf(limit, sizeof limit, "%d", head ? HOOK_SLURM_LIMIT_MS : HOOK_LIMIT_MS);
    char *argv[] = { program, option, dir, limit, log, NULL };
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t none;
        (void)sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        (void)setsid();
        (void)execv("/proc/self/exe", argv);
        _exit(127);
    }
    for (int status; head && pid > 0 && waitpid(pid, &status, 0) == -1 && errno == EINTR;)
        ;
}

/* On Slurm: wait until the batch script has fetched the logs of the nodes that do not see
 * TONY_HOME. It does so when their keepers have ended, and removes nodes/away-<name> then. */
static void await_logs(const struct keeper *k)
{
    AUTO(free_p) char *dir = str_printf("%s/nodes", k->job_dir);
    int64_t until = clock_mono_ms() + AWAY_LOGS_MS;
    while (dir && fs_any_named(dir, "away-") && clock_mono_ms() < until)
        (void)nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
}

/* The pool may end after this report, without a fault. So from now on pool_gone() does not restart
 * it. If the report could not be sent, or if the pool dies before it has answered (see
 * pool_hears_end()), queued jobs may wait for a pool. Then the keeper starts one. */
static void report_end(struct keeper *k, bool finished)
{
    k->end.told_pool = keeper_peer(k, PEER_POOL) != NULL;
    send_last_report(k, finished);
    k->end.lost_pool = k->had_pool && !keeper_peer(k, PEER_POOL);
    k->end.reported = true;
    k->pool_at_ms = INT64_MAX;
}

/* Move the job to the history, and report that. */
static int finish_job(struct keeper *k, struct err *e)
{
    int rc = put_away(k, e);
    if (rc < 0)
        return rc;
    release_watchers(k);
    release_gpus(k);
    report_end(k, true);
    return 0;
}

void keeper_finish_early(struct keeper *k)
{
    struct err unused = { 0 };
    bool alone = k->n_alive == 0 && !k->look_for_orphans && !left_holds(&k->left);
    if (k->kind != KEEPER_OF_POOL || k->state != KEEPER_FINISHING || !alone || k->end.tried_early)
        return;
    k->end.tried_early = true;
    containers_drain(k); /* once more, for unknown processes */
    k->end.done_early = !k->look_for_orphans && finish_job(k, &unused) == 0;
}

/* Has a pool got the report of the end? */
static bool pool_is_there(const struct keeper *k)
{
    return k->end.told_pool && !k->end.lost_pool;
}

/* The groups that the next job may use. A pool that has ended would not remove them. */
static struct spare_groups groups_used(const struct keeper *k)
{
    return (struct spare_groups){ .n = pool_is_there(k) && k->life == 1 ? k->n_granted : 0,
                                  .limit = k->groups.mixed ? 0 : k->groups.limit };
}

/* For the next job. If this process is killed meanwhile, its rest in pool/ended/ is removed.
 * Without a pool this process makes the call at the end of the job, and that does not wait for
 * this. */
static void prepare_logs(const struct keeper *k)
{
    AUTO(free_p) char *all = str_printf("%s/ended", k->paths.pool);
    if (!all || !k->spare_dir || k->kind != KEEPER_OF_POOL || !pool_is_there(k))
        return;
    (void)mkdir(all, 0700);
    fs_spread_below(all);
    spare_make_logs(k->spare_dir, k->ended_dir, k->n_most);
}

int keeper_end(struct keeper *k)
{
    struct err e = { 0 };
    left_stop(&k->left);
    bool aborted = str_eq(k->final_state, "MASTER_FAILED");
    if (k->kind == KEEPER_OF_NODE)
        return end_node(k);
    if (k->leaves) {
        log_end(k);
        keeper_unlock(k);
        return run_end(k);
    }
    if (k->kind == KEEPER_HEAD && !aborted)
        await_logs(k);
    int rc = k->end.done_early ? 0 : aborted ? put_away(k, &e) : finish_job(k, &e);
    if (rc < 0)
        log_err(LOG_ERROR, "keeper.end", &e);
    log_end(k);
    if (aborted || rc < 0) {
        release_gpus(k);
        keeper_unlock(k); /* the pool continues with the job, and needs the lock */
        report_end(k, false);
    }
    if (k->end.lost_pool)
        pool_start_again(k, clock_mono_ms());
    if (!aborted && rc == 0) {
        AUTO(free_p) char *dir = paths_history(&k->paths, k->app_id);
        cgroup_job_remove(&k->cgroup, groups_used(k));
        keeper_clear_ended(k->ended_dir, k->spare_dir);
        prepare_logs(k);
        if (dir && left_any(dir))
            keeper_mark_ended(k);
        keeper_unlock(k);
        if (dir && k->kind == KEEPER_HEAD && publish_job(dir, k->app_id, &e) < 0)
            log_err(LOG_WARN, "keeper.publish", &e); /* TONY_HOME has the history */
        bool heard = pool_is_there(k) && pool_hears_end(k);
        make_call(k, heard);
    }
    if (aborted || rc < 0)
        return aborted ? KEEPER_ABORTED : KEEPER_FAILED;
    bool failed = k->kind == KEEPER_HEAD && !str_eq(k->final_state, "SUCCEEDED");
    return failed ? KEEPER_JOB_FAILED : KEEPER_OK;
}
