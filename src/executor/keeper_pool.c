/* SPDX-License-Identifier: Apache-2.0 */
/* The connection of the pool, which connects to the keeper. If the pool dies, the keeper restarts
 * it. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/keeper_int.h"

enum {
    POOL_PAUSE_MS = 200,
    POOL_PAUSE_MAX_MS = 60000,
    POOL_DIALS_MS = 2000,  /* a pool that has not connected after this time counts as dead */
    POOL_HEARS_MS = 30000, /* a pool that has not answered the last report by then hangs, or is of
                              an earlier version */
};

void pool_tell(struct keeper *k, bool finished)
{
    Tony__KeeperState m = TONY__KEEPER_STATE__INIT;
    m.application_id = (char *)k->app_id;
    m.pid = getpid();
    m.master_pid = k->master_pid;
    m.epoch = k->epoch;
    m.master_socket = k->master_socket;
    m.memory_mib = k->memory_mib;
    m.gpus = k->gpus;
    m.n_gpus = k->n_gpus;
    m.n_containers = k->n_alive;
    m.used_memory_mib = k->used_mib;
    m.admit_heard = k->admit_heard;
    m.wants_containers = k->want.n;
    m.wants_memory_mib = k->want.memory_mib;
    m.wants_gpus = k->want.gpus;
    m.wants_vcores = k->want.vcores;
    m.wants_number = k->want.number;
    m.wants_since_ms = k->want.since_ms;
    m.min_containers = k->min_containers;
    m.max_containers = k->max_containers;
    m.ends_early_ms = k->ends_early_ms;
    m.ends_late_ms = k->ends_late_ms;
    m.cost_known = k->cost_known;
    m.cost_ms = k->cost_ms;
    m.finished = finished;
    m.state = k->final_state; /* empty while the job runs */
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_KEEPER_STATE;
    f.keeper_state = &m;
    for (size_t i = 0; i < k->peers.n; i++)
        if (k->peers.v[i].kind == PEER_POOL)
            keeper_send(k, &k->peers.v[i], &f);
}

void pool_frame(struct keeper *k, struct peer *p, const Tony__Frame *f)
{
    if (f->body_case == TONY__FRAME__BODY_POOL_HELLO) {
        p->kind = PEER_POOL;
        p->pool_number = ++k->n_pools;
        k->admit_heard = 0;
        k->had_pool = true;
        k->pool_at_ms = INT64_MAX;
        k->pool_tries = 0;
        pool_tell(k, false);
    } else if (f->body_case == TONY__FRAME__BODY_KILL_JOB) {
        keeper_abort_job(k, f->kill_job->reason);
    } else if (f->body_case == TONY__FRAME__BODY_ADMIT) {
        resize_admitted(k, p, f->admit);
    } else if (f->body_case == TONY__FRAME__BODY_SIZE_WISH) {
        resize_wish(k, f->size_wish);
    } else if (f->body_case == TONY__FRAME__BODY_END_HEARD) {
        k->end.heard = true;
    }
}

void pool_gone(struct keeper *k)
{
    if (k->had_pool && !k->end.reported && !keeper_peer(k, PEER_POOL) && k->pool_at_ms == INT64_MAX)
        k->pool_at_ms = clock_mono_ms(); /* restart it at once; further tries have growing pauses */
}

void pool_await_connection(struct keeper *k, bool heard)
{
    k->had_pool = true;
    k->pool_at_ms = clock_mono_ms() + (heard ? POOL_DIALS_MS : 0);
}

/*
 * The new pool must not be a descendant of the keeper: the keeper would kill it as an orphan, and
 * with it the keepers that it starts. So a child starts the pool and exits while the keeper is not
 * a subreaper; init becomes the parent of the pool. (If an executor dies at the same moment, init
 * gets its orphans. The keeper finds them in their control group.)
 *
 * If a pool runs already, the new one cannot get the pool's lock, and exits.
 */
static int start_pool(struct keeper *k, struct err *e)
{
    AUTO(free_p) char *program = paths_program("tony-pool"), *outside = NULL;
    if (!program)
        return err_set(e, ENOENT,
                       "cannot find the program tony-pool beside tony-executor or on PATH");
    if (k->cgroup.cpu_from && !(outside = str_printf("%s/cgroup.procs", k->cgroup.cpu_from)))
        return err_set(e, ENOMEM, "cannot start the pool: %m");
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        if (outside) /* at the end of the job the keeper kills all processes in the job's groups */
            (void)cgroup_enter(outside);
        if (fork() != 0)
            _exit(0);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        (void)setrlimit(RLIMIT_NOFILE, &k->nofile);
        execl(program, "tony-pool", (char *)NULL);
        _exit(127);
    }
    int rc = pid == -1 ? err_set(e, errno, "cannot start the pool: %m") : 0;
    while (pid > 0 && waitpid(pid, NULL, 0) == -1 && errno == EINTR)
        ;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return rc;
}

void pool_start_again(struct keeper *k, int64_t now_ms)
{
    struct err e = { 0 };
    int64_t pause = (int64_t)POOL_PAUSE_MS << MIN(k->pool_tries, 9U);
    k->pool_tries++;
    sockets_check(k);
    k->pool_at_ms = now_ms + MIN(pause, (int64_t)POOL_PAUSE_MAX_MS);
    log_event(LOG_INFO, "keeper.pool_restart", f_int("try", k->pool_tries));
    if (start_pool(k, &e) < 0)
        log_err(LOG_ERROR, "keeper.pool", &e);
}

static bool jobs_are_left(const struct keeper *k)
{
    DIR *d = opendir(k->paths.jobs);
    bool found = false;
    int64_t ms;
    uint32_t number;
    for (struct dirent *x; d && !found && (x = readdir(d));)
        found = app_id_parse(x->d_name, &ms, &number, NULL) == 0;
    if (d)
        (void)closedir(d);
    return found;
}

bool pool_hears_end(struct keeper *k)
{
    int64_t until = clock_mono_ms() + POOL_HEARS_MS, left;
    struct peer *p;
    while (!k->end.heard && (p = keeper_peer(k, PEER_POOL)) &&
           (left = until - clock_mono_ms()) > 0) {
        struct pollfd f = { .fd = p->link.fd,
                            .events = (short)(link_unsent(&p->link) ? POLLIN | POLLOUT : POLLIN) };
        if (poll(&f, 1, (int)left) <= 0)
            continue;
        if ((f.revents & POLLOUT) && link_flush(&p->link) < 0)
            link_close(&p->link);
        else if (f.revents & (POLLIN | POLLHUP | POLLERR))
            keeper_read_frames(k, p);
    }
    if (!k->end.heard && !keeper_peer(k, PEER_POOL) && jobs_are_left(k))
        pool_start_again(k, clock_mono_ms());
    return k->end.heard;
}
