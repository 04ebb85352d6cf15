/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper's main loop. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "executor/crew.h"
#include "executor/keeper_int.h"
#include "executor/keeper_start.h"

enum {
    PEERS_MAX = 64,    /* the master, pools, and peers of kind PEER_NEW */
    ACCEPT_BATCH = 64, /* connections that are accepted before the others are served */
    TAKE_DOWN_GRACE_MS = 1000,
    TAKE_DOWN_PATIENCE_MS = 3000,
    NODE_GRACE_MS = 10000, /* on a cluster, tasks got the signal from the cluster as well */
    DRAIN_LOOK_MS = 10,
    EXITS_RETRY_MS = 500,
    REAP_LOOKS_A_MS = 64, /* children that reap_all() may look at for each ms of its pause */
};

/* ---- peers ---- */

struct peer *keeper_peer(struct keeper *k, enum peer_kind kind)
{
    for (size_t i = 0; i < k->peers.n; i++)
        if (k->peers.v[i].kind == kind && k->peers.v[i].link.fd >= 0)
            return &k->peers.v[i];
    return NULL;
}

/* Sending has failed. If the peer has closed the connection, frames that it sent before, such as
 * FinishJob, may still be unread: drop the output only, and handle them first. */
static void on_send_failed(struct peer *p, int rc)
{
    if (rc == -EPIPE)
        buf_done(&p->link.out);
    else
        link_close(&p->link); /* the peer reconnects; sweep_peers() removes this one */
}

void keeper_send(struct keeper *k, struct peer *p, const Tony__Frame *f)
{
    (void)k;
    int rc = link_send(&p->link, f);
    if (rc < 0)
        on_send_failed(p, rc);
}

static void sweep_peers(struct keeper *k)
{
    bool pool_left = false;
    for (size_t i = 0; i < k->peers.n;) {
        if (k->peers.v[i].link.fd >= 0) {
            i++;
            continue;
        }
        pool_left |= k->peers.v[i].kind == PEER_POOL;
        vec_remove_fast(&k->peers, i);
    }
    if (pool_left)
        pool_gone(k);
}

/* Close the oldest connection whose peer has sent no frame yet (PEER_NEW). Clients keep such
 * connections to learn the end of the job. If one is closed early, its client watches the directory
 * instead. false: there is none. */
static bool drop_silent_peer(struct keeper *k)
{
    size_t oldest = k->peers.n;
    for (size_t i = 0; i < k->peers.n; i++)
        if (k->peers.v[i].kind == PEER_NEW && !k->peers.v[i].link.connecting &&
            (oldest == k->peers.n || k->peers.v[i].arrival < k->peers.v[oldest].arrival))
            oldest = i;
    if (oldest == k->peers.n)
        return false;
    link_close(&k->peers.v[oldest].link);
    vec_remove_fast(&k->peers, oldest);
    return true;
}

/* Always accept: otherwise a new master could not connect, and poll() would return at once. */
static void accept_peers(struct keeper *k)
{
    struct link l;
    for (int n = 0; n < ACCEPT_BATCH && link_accept(k->listen_fd, &l) == 1; n++) {
        struct peer p = { .link = l, .arrival = ++k->n_arrivals };
        if ((k->peers.n >= PEERS_MAX && !drop_silent_peer(k)) || vec_push(&k->peers, p) < 0)
            link_close(&l);
    }
}

/* The vector of peers must not move while a frame is handled. So accept_peers() runs only after
 * this. */
void keeper_read_frames(struct keeper *k, struct peer *p)
{
    int fill_rc = link_fill(&p->link), rc = 0;
    const Tony__Frame *f;
    struct err e = { 0 };
    while (p->link.fd >= 0 && (rc = link_next(&p->link, &f, &e)) == 1) {
        if (p->kind == PEER_POOL || f->body_case == TONY__FRAME__BODY_POOL_HELLO)
            pool_frame(k, p, f);
        else if (p->kind == PEER_MASTER || f->body_case == TONY__FRAME__BODY_REGISTER_MASTER)
            master_frame(k, p, f);
    }
    if (rc < 0)
        log_err(LOG_WARN, "keeper.bad_frame", &e);
    if (rc < 0 || fill_rc < 0)
        link_close(&p->link);
}

/* ---- children ---- */

static void child_ended(struct keeper *k, pid_t pid, int status)
{
    struct container *c = container_by_pid(k, pid);
    if (c)
        for (; c; c = container_by_pid(k, pid)) /* each of a crew */
            container_exited(k, c, status);
    else if (left_exited(k, pid, status))
        k->look_for_orphans = k->draining.n > 0; /* containers_drain() waits for the engine */
    else if (pid == k->master_pid)
        master_died(k, status);
    else
        k->look_for_orphans = true; /* an orphan has died: its children become orphans now */
}

/* SIGCHLD names one child. If several end before the keeper reads the signal, the signal names only
 * the first, and reap_all() finds the others. The keeper pauses before that: for each waitpid(-1)
 * the kernel looks at the children that still run. Without the pause, the cost of n tasks that end
 * one by one would grow with the square of n. */
static void on_child(struct keeper *k, pid_t pid)
{
    int status;
    if (pid > 0 && waitpid(pid, &status, WNOHANG | __WALL) == pid)
        child_ended(k, pid, status);
    k->reap_at_ms = k->reaped_ms + k->n_alive / REAP_LOOKS_A_MS;
}

/* One signal may stand for those of several crews, as with SIGCHLD. */
static void on_crew(struct keeper *k, pid_t pid)
{
    if (pid > 0)
        crew_look(k, pid);
    k->crew_at_reap = true;
    k->reap_at_ms = MIN(k->reap_at_ms, k->reaped_ms + k->n_alive / REAP_LOOKS_A_MS);
}

static void reap_all(struct keeper *k)
{
    int status;
    pid_t pid;
    k->reap_at_ms = INT64_MAX;
    if (k->crew_at_reap)
        crew_look(k, 0);
    k->crew_at_reap = false;
    while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0)
        child_ended(k, pid, status);
    k->reaped_ms = clock_mono_ms();
}

/* End the job without a verdict of the master: the pool writes the verdict. */
void keeper_abort_job(struct keeper *k, const char *why)
{
    if (k->state == KEEPER_TAKING_DOWN)
        return;
    log_event(LOG_WARN, "keeper.take_down", f_str("why", why));
    if (k->state == KEEPER_RUNNING)
        (void)str_copy(k->final_state, sizeof k->final_state, "MASTER_FAILED");
    uint32_t grace_ms = k->kind == KEEPER_OF_NODE ? NODE_GRACE_MS : TAKE_DOWN_GRACE_MS;
    k->state = KEEPER_TAKING_DOWN;
    k->master_at_ms = INT64_MAX;
    k->kill_at_ms = clock_mono_ms() + grace_ms + TAKE_DOWN_PATIENCE_MS - TAKE_DOWN_GRACE_MS;
    if (k->master_pid)
        (void)kill(k->master_pid, SIGKILL);
    containers_stop_all(k, grace_ms);
}

/* The cluster sends TERM to all processes of the job. The master asks it why, and ends the job or
 * leaves. If there is no master now, the next run or a client finds out. */
static void on_cluster_term(struct keeper *k)
{
    run_told(k);
    if (!k->master_pid && k->state == KEEPER_RUNNING)
        run_leave(k);
}

static void on_signals(struct keeper *k)
{
    struct signalfd_siginfo si;
    while (read(k->signal_fd, &si, sizeof si) == (ssize_t)sizeof si) {
        if (si.ssi_signo == SIGCHLD)
            on_child(k, (pid_t)si.ssi_pid);
        if (si.ssi_signo == CREW_SIGNAL)
            on_crew(k, (pid_t)si.ssi_pid);
        if (k->kind == KEEPER_HEAD && si.ssi_signo == SIGUSR1)
            master_notice(k);
        if (k->kind == KEEPER_HEAD && si.ssi_signo == SIGTERM) {
            on_cluster_term(k);
            continue;
        }
        if (si.ssi_signo == SIGTERM)
            node_signalled(k, SIGTERM);
        /* A user of a cluster sends INT to the tasks, by scancel --signal=INT. */
        if (si.ssi_signo == SIGTERM || (si.ssi_signo == SIGINT && k->kind == KEEPER_OF_POOL))
            keeper_abort_job(k, "the keeper got a signal to end the job");
        if (si.ssi_signo == SIGHUP)
            sockets_renew(k);
    }
}

/* ---- the loop ---- */

static void on_time(struct keeper *k)
{
    int64_t now = clock_mono_ms();
    if (now >= k->reap_at_ms)
        reap_all(k);
    containers_tick(k, now);
    groups_tick(k, now);
    beats_tick(k, now);
    left_tick(&k->left, now);
    if (now >= k->master_at_ms && k->state == KEEPER_RUNNING)
        master_start(k);
    if (now >= k->pool_at_ms)
        pool_start_again(k, now);
    node_tick(k, now);
    run_tick(k, now);
    if (k->state != KEEPER_RUNNING && now >= k->kill_at_ms) {
        k->kill_at_ms = now + TAKE_DOWN_PATIENCE_MS;
        if (k->master_pid)
            (void)kill(k->master_pid, SIGKILL);
        containers_stop_all(k, 0);
    }
}

static int timeout_ms(const struct keeper *k)
{
    if (k->to_launch.at < k->to_launch.n)
        return 0;
    int64_t at = MIN(MIN(k->next_kill_ms, k->master_at_ms), k->pool_at_ms), now = clock_mono_ms();
    at = MIN(MIN(at, k->reap_at_ms), node_deadline(k));
    at = MIN(MIN(at, k->beats.at_ms), MIN(k->groups.at_ms, run_deadline(k)));
    if (!k->look_for_orphans)
        at = MIN(at, left_deadline(&k->left));
    if (k->state != KEEPER_RUNNING)
        at = MIN(at, k->kill_at_ms);
    if (k->look_for_orphans)
        at = MIN(at, now + DRAIN_LOOK_MS);
    if (k->exits_failed)
        at = MIN(at, now + EXITS_RETRY_MS);
    return at == INT64_MAX ? -1 : (int)MIN(MAX(at - now, (int64_t)0), (int64_t)60000);
}

/* The events to wait for at the connection of a peer. A connection that is being made becomes
 * writable. */
static short events_for(const struct peer *peer)
{
    bool writes = link_unsent(&peer->link) || peer->link.connecting;
    return (short)(writes ? POLLIN | POLLOUT : POLLIN);
}

static void serve_peer(struct keeper *k, struct peer *peer, short events)
{
    if (!events)
        return;
    if (peer->link.connecting) {
        node_connected(k, peer);
        return;
    }
    int rc = events & POLLOUT ? link_flush(&peer->link) : 0;
    if (rc < 0)
        on_send_failed(peer, rc);
    if (events & (POLLIN | POLLHUP | POLLERR) && peer->link.fd >= 0)
        keeper_read_frames(k, peer);
}

static void wait_for_something(struct keeper *k)
{
    enum { SIGNALS, LISTENER, FIRST_PEER };
    struct pollfd p[FIRST_PEER + PEERS_MAX] = {
        [SIGNALS] = { .fd = k->signal_fd, .events = POLLIN },
        [LISTENER] = { .fd = k->listen_fd, .events = POLLIN },
    };

    if (k->exits_failed)
        exits_write(k);
    size_t n = k->peers.n;
    for (size_t i = 0; i < n; i++)
        p[FIRST_PEER + i] =
            (struct pollfd){ .fd = k->peers.v[i].link.fd, .events = events_for(&k->peers.v[i]) };
    if (poll(p, FIRST_PEER + n, timeout_ms(k)) <= 0)
        return;
    if (p[SIGNALS].revents)
        on_signals(k);
    for (size_t i = 0; i < n; i++)
        serve_peer(k, &k->peers.v[i], p[FIRST_PEER + i].revents);
    if (p[LISTENER].revents)
        accept_peers(k);
    sweep_peers(k);
}

static bool is_over(const struct keeper *k)
{
    return k->state != KEEPER_RUNNING && k->n_alive == 0 && k->master_pid == 0 &&
           !k->look_for_orphans && !left_holds(&k->left);
}

static void run(struct keeper *k)
{
    bool last_look = false;
    for (;;) {
        on_time(k);
        containers_launch_some(k);
        if (k->look_for_orphans)
            containers_drain(k);
        if (!k->look_for_orphans)
            (void)left_remove(k);
        if (!k->exits_failed)
            exits_write(k);
        master_tell_ends(k);
        keeper_finish_early(k);
        if (is_over(k)) {
            if (last_look)
                return;
            last_look = k->look_for_orphans = true; /* search once more for unknown processes */
            continue;
        }
        last_look = false;
        wait_for_something(k);
    }
}

/* ---- the program ---- */

int keeper_main(int argc, char **argv)
{
    static struct keeper k;
    struct err e = { 0 };
    int rc = keeper_start(&k, argc, argv, &e);
    if (rc != 0) {
        log_err(LOG_ERROR, "keeper.start", &e);
        return rc;
    }
    run(&k);
    rc = keeper_end(&k);
    for (size_t i = 0; i < k.peers.n; i++)
        link_close(&k.peers.v[i].link);
    vec_done(&k.peers);
    table_free(&k);
    keeper_start_done(&k);
    return rc;
}
