/* SPDX-License-Identifier: Apache-2.0 */
/* The main loop of an executor: its connection to the master, and the frames of the master. */
#include "executor/executor_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/title.h"
#include "base/util.h"
#include "executor/crew.h"
#include "executor/ports.h"
#include "executor/quiet.h"
#include "storage/paths.h"

enum {
    DIAL_FAST_MAX_MS = 100, /* pauses double from 1 ms up to this */
    DIAL_FAST_TRIES = 40,   /* about 4 s; a restart of the master takes less */
    DIAL_SLOW_MS = 1000,
    DIAL_SEARCH_TRIES = 8,    /* after this many refusals, search the socket of the master again */
    DIAL_AGAIN_MS = 5,        /* pause, if the master listens but is not ready */
    AWAY_DEFAULT_MS = 600000, /* used until the first Welcome */
    BEAT_DEFAULT_MS = 1000,
    OWN_BEATS_MS = 60000, /* after that, ask the keeper again to send them */
    GRACE_DEFAULT_MS = 5000,
    GREET_MS = 20000,    /* on a cluster: for Welcome on a new connection */
    FLUSH_MAX_MS = 1000, /* at exit: for the last frames, if the master does not read */
    BEAT_PHASES = 8,     /* the groups of executors that beat at the same time */
    PROTOCOL = TONY__VERSION__PROTOCOL_VERSION,
};

/* executor.log is made with the first warning, so most containers have none. It stays open until
 * another executor of the crew warns, or the process ends. Without a log directory, a warning goes
 * to standard error, which is the log of the keeper. */
void executor_warn(struct executor *x, const char *event, const struct err *e)
{
    static const struct executor *opened_by;
    static int opened = -1;
    if (opened_by != x && executor_has_keeper(x)) {
        AUTO(free_p)
        char *path = x->a.logs.dir ? str_printf("%s/executor.log", x->a.logs.dir) : NULL;
        close_p(&opened);
        opened =
            path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
        log_setup(opened >= 0 ? opened : 2, LOG_INFO, false);
        opened_by = opened >= 0 ? x : NULL;
    }
    log_event(LOG_WARN, event, f_str("container", x->cfg->container_id), f_str("why", e->msg));
}

/* ---- connection ---- */

static int away_limit_ms(const struct executor *x)
{
    return x->role && x->role->master_away_ms ? (int)x->role->master_away_ms : AWAY_DEFAULT_MS;
}

/* When the lease of this executor began (decision 0008). On a cluster, a connection may look alive
 * long after it was cut. So here the lease begins when the executor sent the last bytes that the
 * master's machine has confirmed. For the master, the lease begins when it received these bytes,
 * which is not earlier. The master starts the next attempt elsewhere only after the lease, so the
 * executor must end its task by then. */
static int64_t lease_start_ms(const struct executor *x)
{
    return x->greeted ? x->confirmed_ms : x->away_since_ms;
}

static bool lease_runs(const struct executor *x)
{
    return !x->leaving && (!x->greeted || x->cfg->remote);
}

static void renew_lease(struct executor *x)
{
    if (x->cfg->remote && x->greeted && link_confirmed(&x->link))
        x->confirmed_ms = x->sent_ms;
}

static void end_greeting(struct executor *x)
{
    if (x->greeted)
        x->away_since_ms = x->cfg->remote ? x->confirmed_ms : clock_mono_ms();
    x->greeted = false;
}

/* This container cannot be used: record the reason, and exit. */
static void give_up(struct executor *x, const struct err *e)
{
    struct exit_record *r = x->cfg->record;
    r->reason = END_LAUNCH_FAILED;
    (void)str_copy(r->detail, sizeof r->detail, e->msg);
    r->exit_code = 1;
    r->at_us = clock_mono_us();
    r->ended = 1;
    x->leaving = true;
}

/* On a cluster, another program may answer at the address of the master. So only a Welcome resets
 * the pause and ends the time without a master. */
static void remote_drop(struct executor *x, int rc)
{
    struct remote *r = x->cfg->remote;
    bool greeted = x->greeted;
    renew_lease(x);
    link_close(&x->link);
    end_greeting(x);
    if (greeted)
        x->tries = 0;
    bool hopeless = remote_lost(r, rc, greeted);
    if (x->tries == 0 || hopeless) /* log only the first failure and the last */
        executor_warn(x, "executor.disconnected", &r->why);
    x->dial_at_ms = clock_mono_ms() + remote_pause_ms(r, x->tries++);
    if (hopeless && !x->role)
        give_up(x, &r->why);
}

static void drop(struct executor *x, int rc)
{
    if (x->link.fd < 0)
        return;
    if (x->cfg->remote) {
        remote_drop(x, rc);
        return;
    }
    link_close(&x->link);
    x->greeted = false;
    x->tries = 0;
    x->away_since_ms = x->dial_at_ms = clock_mono_ms();
}

static void disconnect(struct executor *x)
{
    drop(x, -EPIPE);
}

int executor_queue(struct executor *x, Tony__Frame *f)
{
    int rc = link_queue(&x->link, f);
    if (rc < 0)
        disconnect(x);
    return rc;
}

int executor_send(struct executor *x, Tony__Frame *f)
{
    x->sent_ms = clock_mono_ms();
    int rc = link_send(&x->link, f);
    if (rc < 0)
        disconnect(x);
    return rc;
}

static void say_hello(struct executor *x)
{
    Tony__ExecutorHello hello = TONY__EXECUTOR_HELLO__INIT;
    Tony__AttemptEnded ended, *unacked[1] = { &ended };
    uint32_t ports[1] = { x->port };
    char host[80] = "127.0.0.1";
    if (x->cfg->remote)
        (void)link_host(&x->link, host, sizeof host); /* cannot fail: the link is connected */
    hello.version = PROTOCOL;
    hello.slot = x->cfg->slot;
    hello.container_id = (char *)x->cfg->container_id;
    hello.epoch_seen = x->epoch;
    hello.host = host;
    hello.ports = ports;
    hello.n_ports = 1;
    hello.tb_port = x->tb_port;
    hello.pid = getpid();
    hello.generation = x->a.generation;
    hello.attempt = x->a.number;
    hello.running = attempt_alive(&x->a) || x->report_at_ms;
    hello.reads_spec_file = true;
    x->end_in_hello = x->a.state == ATTEMPT_ENDED && !x->node_reports_end && !x->report_at_ms;
    if (x->end_in_hello) {
        attempt_message(x, &ended);
        hello.unacked = unacked;
        hello.n_unacked = 1;
    }
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_EXECUTOR_HELLO;
    f.executor_hello = &hello;
    (void)executor_send(x, &f); /* after a failure the executor reconnects */
}

/* If the socket is missing, the sockets may be in another runtime directory by now. */
static int dial_local(struct executor *x)
{
    int rc = link_dial(&x->link, x->master_socket ? x->master_socket : x->cfg->master_socket);
    if (rc != -ENOENT && (rc != -ECONNREFUSED || x->tries % DIAL_SEARCH_TRIES))
        return rc;
    char *found = paths_find_socket(x->cfg->home, x->cfg->application_id, "m");
    if (!found)
        return rc;
    free(x->master_socket);
    x->master_socket = found;
    return link_dial(&x->link, found);
}

static void dial(struct executor *x, int64_t now)
{
    struct remote *r = x->cfg->remote;
    int rc = r ? remote_dial(r, &x->link) : dial_local(x);
    if (rc == 0) {
        x->dial_at_ms = INT64_MAX;
        x->greet_by_ms = now + GREET_MS;
        if (!x->link.connecting)
            say_hello(x);
        return;
    }
    if (r) {
        remote_drop(x, rc);
        return;
    }
    unsigned n = x->tries++;
    int64_t pause = n >= DIAL_FAST_TRIES ? DIAL_SLOW_MS : n < 7 ? 1 << n : DIAL_FAST_MAX_MS;
    x->dial_at_ms =
        now + MIN(pause, (int64_t)(n >= DIAL_FAST_TRIES ? DIAL_SLOW_MS : DIAL_FAST_MAX_MS));
}

/* ---- frames of the master ---- */

static void leave(struct executor *x, uint32_t grace_ms, const char *why)
{
    x->leaving = true;
    attempt_stop(x, grace_ms, END_KILLED_BY_MASTER, why);
}

/* The pause between two heartbeats. On a cluster at most a quarter of the lease, which heartbeats
 * renew. */
static int64_t beat_ms(const struct executor *x)
{
    int64_t every = x->role && x->role->heartbeat_ms ? x->role->heartbeat_ms : BEAT_DEFAULT_MS;
    return x->cfg->remote ? MIN(every, (int64_t)away_limit_ms(x) / 4) : every;
}

/*
 * When to beat after `now`. On one machine, executors beat in BEAT_PHASES groups: those of a group
 * at the same time, so that the master reads many heartbeats in one turn of its loop. All at once
 * would wake a thousand processes in one timer interrupt. On a cluster they stay spread: the
 * messages would reach the master's machine in bursts.
 */
static int64_t next_beat_ms(const struct executor *x, int64_t now)
{
    uint32_t slot = x->crew->v[0].cfg->slot; /* those of a crew beat together */
    int64_t every = beat_ms(x), phase = slot % BEAT_PHASES * every / BEAT_PHASES;
    if (x->cfg->remote)
        return MAX(x->beat_at_ms + every, now + every / 2);
    return now + every - (now + every - phase) % every;
}

/* A path below `from` becomes one below `to`. Takes *path, a string of malloc(). */
static int move_path(char **path, const char *from, const char *to)
{
    size_t n = strlen(from);
    if (strncmp(*path, from, n) != 0 || (*path)[n] != '/')
        return 0;
    char *moved = str_printf("%s%s", to, *path + n);
    if (!moved)
        return -ENOMEM;
    free(*path);
    *path = moved;
    return 0;
}

/* This node does not see TONY_HOME of the job, and has a directory of its own with the same content
 * (docs/decisions/0037-nodes-without-the-home.md). */
static int move_home(Tony__Welcome *w)
{
    const char *from = getenv("TONY_SHARED_HOME"), *to = getenv("TONY_HOME");
    if (!from || !to)
        return 0;
    int rc = move_path(&w->log_dir, from, to);
    for (size_t i = 0; rc == 0 && i < w->n_mounts; i++)
        rc = move_path(&w->mounts[i]->path, from, to);
    return rc;
}

static Tony__Welcome *welcome_copy(const Tony__Welcome *w)
{
    size_t n = tony__welcome__get_packed_size(w);
    AUTO(free_p) unsigned char *bytes = malloc(n ? n : 1);
    if (!bytes)
        return NULL;
    tony__welcome__pack(w, bytes);
    Tony__Welcome *copy = tony__welcome__unpack(NULL, n, bytes);
    if (copy && move_home(copy) < 0) {
        tony__welcome__free_unpacked(copy, NULL);
        return NULL;
    }
    return copy;
}

/* Make the working directory now, while other executors still register. After Start, all tasks
 * would wait for it. */
static void prepare(struct executor *x)
{
    const Tony__Welcome *w = x->role;
    if (x->workdir || x->workdir_err.num)
        return;
    if (!executor_has_keeper(x)) {
        if (remote_prepare(x->cfg->remote, w->mounts, w->n_mounts, &x->workdir_err) == 0 &&
            !(x->workdir = str_dup(x->cfg->remote->workdir)))
            (void)err_set(&x->workdir_err, ENOMEM, "cannot prepare the working directory: %m");
        return;
    }
    if (workdir_make(x->cfg->job_dir, x->cfg->container_id, x->cfg->spare_dir, w->mounts,
                     w->n_mounts, &x->workdir, &x->workdir_err) < 0)
        free(TAKE(x->workdir)); /* attempt_start() reports workdir_err */
}

void executor_show_title(const struct executor *x)
{
    size_t n = x->crew->n;
    if (n == 1)
        title_set("tony-executor %s:%u of %s", x->role->role, x->role->index,
                  x->cfg->application_id);
    else if (x == x->crew->v)
        title_set("tony-executor %s:%u and %zu others of %s", x->role->role, x->role->index, n - 1,
                  x->cfg->application_id);
}

static void on_welcome(struct executor *x, const Tony__Welcome *w)
{
    if (w->epoch < x->epoch) { /* an older master, which was replaced already */
        disconnect(x);
        x->dial_at_ms = clock_mono_ms() + DIAL_FAST_MAX_MS;
        return;
    }
    if (x->cfg->remote)
        log_event(LOG_INFO, "executor.welcome", f_int("epoch", w->epoch), f_str("role", w->role),
                  f_int("index", w->index));
    x->epoch = w->epoch;
    x->greeted = true;
    x->own_until_ms = 0;
    /* Welcome answers the ExecutorHello, so the master has received that frame */
    x->confirmed_ms = x->sent_ms;
    if (x->cfg->remote)
        remote_moved(x->cfg->remote, w->master_address);
    if (!x->role)
        x->role = welcome_copy(w);
    if (!x->role) {
        leave(x, 0, "no memory to keep what the master says about the task");
        return;
    }
    executor_show_title(x);
    x->beat_at_ms =
        x->cfg->remote ? clock_mono_ms() + beat_ms(x) : next_beat_ms(x, clock_mono_ms());
    prepare(x);
    serve_open(x);
    if (!executor_has_keeper(x))
        remote_trim();
    task_side_again(x);
    task_metrics_again(x);
    log_watches_clear(x);
    if (x->a.state == ATTEMPT_ENDED && !x->end_in_hello)
        attempt_report_end(x); /* it ended after the ExecutorHello was sent */
}

static void on_ack(struct executor *x, const Tony__AckEnded *ack)
{
    if (x->a.state == ATTEMPT_ENDED && ack->generation == x->a.generation &&
        ack->attempt == x->a.number)
        attempt_forget(&x->a);
    if (ack->finish && !x->server.s) /* a rendezvous server runs until the job is over */
        leave(x, 0, "");
}

static void on_stop(struct executor *x, const Tony__StopAttempt *s)
{
    bool known = s->reason > TONY__REASON__REASON_NONE && (int)s->reason < (int)END_COUNT;
    enum end_reason reason = known ? (enum end_reason)(int)s->reason : END_KILLED_BY_MASTER;
    if (s->generation != x->a.generation || s->attempt != x->a.number)
        return;
    if (reason == END_EXITED)
        attempt_exit(x, s->exit_code);
    else if (s->wait_ms)
        attempt_wait(x, s->wait_ms, s->grace_ms);
    else if (s->save_ms)
        attempt_save(x, s->save_ms, (int)s->save_signal, s->grace_ms, reason);
    else
        attempt_stop(x, s->grace_ms, reason, "");
}

static void on_frame(struct executor *x, const Tony__Frame *f)
{
    switch ((int)f->body_case) { /* other frames are ignored */
    case TONY__FRAME__BODY_WELCOME:
        on_welcome(x, f->welcome);
        break;
    case TONY__FRAME__BODY_START:
        if (x->greeted)
            attempt_start(x, f->start);
        if (!executor_has_keeper(x))
            remote_trim();
        break;
    case TONY__FRAME__BODY_STOP_ATTEMPT:
        on_stop(x, f->stop_attempt);
        break;
    case TONY__FRAME__BODY_ACK_ENDED:
        on_ack(x, f->ack_ended);
        break;
    case TONY__FRAME__BODY_RENEW:
        if (x->greeted)
            executor_renew(x, f->renew);
        break;
    case TONY__FRAME__BODY_PEERS:
        executor_peers(x, f->peers);
        break;
    case TONY__FRAME__BODY_FINISH_EXECUTOR:
        leave(x, f->finish_executor->grace_ms, "the job is over");
        break;
    case TONY__FRAME__BODY_READ_LOG:
        if (!executor_has_keeper(x) && x->greeted)
            remote_read_log(x, f->read_log);
        break;
    case TONY__FRAME__BODY_TAIL_LOGS:
        if (x->greeted)
            log_watches_ask(x, f->tail_logs);
        break;
    case TONY__FRAME__BODY_OWN_BEATS:
        x->own_until_ms = clock_mono_ms() + OWN_BEATS_MS;
        x->beat_at_ms = 0;
        break;
    case TONY__FRAME__BODY_MORE_LOGS:
        log_watches_more(x, f->more_logs);
        break;
    case TONY__FRAME__BODY_DIAL_STREAM:
        if (x->greeted)
            streams_dial(x, f->dial_stream);
        break;
    case TONY__FRAME__BODY_REFUSED: {
        struct err e = { 0 };
        if (f->refused->num == EAGAIN) { /* the master is still starting */
            disconnect(x);
            if (!x->cfg->remote)
                x->dial_at_ms = clock_mono_ms() + DIAL_AGAIN_MS;
            break;
        }
        (void)err_set(&e, ESTALE, "the master refuses this executor: %s", f->refused->message);
        executor_warn(x, "executor.refused", &e);
        /* With the job's grace period, as at the end of the lease: the master does not wait
         * longer than that. */
        leave(x, x->role ? x->role->kill_grace_ms : GRACE_DEFAULT_MS,
              "the master does not want this container any more");
        break;
    }
    default: /* frames of a newer version */
        break;
    }
}

static void on_link(struct executor *x)
{
    int fill_rc = link_fill(&x->link);
    const Tony__Frame *f;
    struct err e = { 0 };
    int rc = 0;
    while (x->link.fd >= 0 && (rc = link_next(&x->link, &f, &e)) == 1)
        on_frame(x, f);
    if (rc < 0)
        executor_warn(x, "executor.bad_frame", &e);
    if (rc < 0 || fill_rc < 0)
        drop(x, rc < 0 ? rc : fill_rc);
}

/* ---- the loop ---- */

static void on_term(struct executor *x, const struct signalfd_siginfo *si)
{
    /* The keeper sends the grace period with the signal. */
    uint32_t grace = si->ssi_code == SI_QUEUE && si->ssi_int >= 0 ? (uint32_t)si->ssi_int
                     : x->role                                    ? x->role->kill_grace_ms
                                                                  : GRACE_DEFAULT_MS;
    if (executor_has_keeper(x)) {
        /* If the keeper has died, no process can report the end of the container. */
        bool orphaned = getppid() != x->cfg->keeper;
        x->leaving = true;
        /* A cluster sends TERM to all processes of the job. The master gets it, too, and says why.
         */
        bool of_keeper = orphaned || si->ssi_signo != SIGTERM || si->ssi_code == SI_QUEUE;
        if (x->cfg->remote && !of_keeper)
            x->node_reports_end =
                x->node_reports_end || x->report_at_ms || attempt_undecided(&x->a);
        x->report_at_ms = x->node_reports_end ? 0 : x->report_at_ms;
        x->linger_until_ms = x->cfg->remote && !of_keeper ? clock_mono_ms() + CLUSTER_TERM_MS : 0;
        attempt_stop(x, orphaned ? 0 : grace, orphaned ? END_UNKNOWN : END_KILLED_BY_MASTER,
                     orphaned ? "its keeper has died" : "the container was stopped");
        return;
    }
    x->leaving = true;
    x->node_reports_end = x->node_reports_end || attempt_undecided(&x->a);
    attempt_node_stops(x, grace);
}

/* The keeper has sent TERM to the crew: its records say which executors should stop. One signal may
 * stand for several. */
static void stop_asked(struct crew *c)
{
    for (size_t i = 0; i < c->n; i++) {
        struct executor *x = &c->v[i];
        struct exit_record *r = x->cfg->record;
        if (x->over || !r->stop_asked)
            continue;
        r->stop_asked = 0;
        r->stop_seen = 1;
        x->leaving = true;
        x->linger_until_ms = 0;
        attempt_stop(x, r->stop_grace_ms, END_KILLED_BY_MASTER, "the container was stopped");
    }
}

static void on_signals(struct crew *c)
{
    struct signalfd_siginfo si;
    while (read(c->signal_fd, &si, sizeof si) == (ssize_t)sizeof si) {
        bool is_end = si.ssi_signo == SIGTERM || si.ssi_signo == SIGINT || si.ssi_signo == SIGHUP;
        if (si.ssi_signo == SIGCHLD)
            children_reap(c);
        else if (is_end && c->n > 1 && si.ssi_code == SI_QUEUE)
            stop_asked(c);
        else
            for (size_t i = 0; is_end && i < c->n; i++)
                if (!c->v[i].over)
                    on_term(&c->v[i], &si);
    }
}

static void send_beat(struct executor *x, int64_t now)
{
    Tony__Beat beat = TONY__BEAT__INIT;
    renew_lease(x);
    bool quiet = quiet_renew(x, now);
    if (!quiet)
        x->beat_at_ms = next_beat_ms(x, now);
    attempt_check_memory(x);
    serve_tick(x, now);
    log_times_tick(x, now);
    if (!x->greeted || (task_metrics_due_soon(x, now) && task_metrics_tick(x, now)) || quiet)
        return;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_BEAT;
    f.beat = &beat;
    (void)executor_send(x, &f); /* after a failure the executor reconnects */
}

static void on_time(struct executor *x)
{
    int64_t now = clock_mono_ms();
    if (x->link.fd < 0 && now >= x->dial_at_ms)
        dial(x, now);
    if (lease_runs(x) && now - lease_start_ms(x) >= away_limit_ms(x))
        renew_lease(x); /* this process may have been suspended: check the lease first */
    if (lease_runs(x) && now - lease_start_ms(x) >= away_limit_ms(x)) {
        struct err e = { 0 };
        (void)err_set(&e, ETIMEDOUT, "there was no master for %d s", away_limit_ms(x) / 1000);
        executor_warn(x, "executor.master_away", &e);
        x->leaving = true;
        if (x->cfg->remote && !x->role)
            give_up(x, &e);
        attempt_stop(x, x->role ? x->role->kill_grace_ms : 0, END_UNKNOWN, e.msg);
    }
    if (x->cfg->remote && x->link.fd >= 0 && !x->greeted && now >= x->greet_by_ms)
        drop(x, -ETIMEDOUT);
    quiet_check(x, now);
    if (x->report_at_ms && now >= x->report_at_ms) {
        x->report_at_ms = 0;
        if (x->greeted)
            attempt_report_end(x);
    }
    if (now >= x->beat_at_ms || (quiet_now(x) && now >= task_metrics_due(x)))
        send_beat(x, now);
    if (now >= task_metrics_due(x))
        (void)task_metrics_tick(x, now);
    log_watches_tick(x, now);
    task_side_tick(x, now);
    attempt_tick(x, now);
}

static int64_t next_deadline(const struct executor *x)
{
    int64_t at = MIN(MIN(attempt_deadline(&x->a), x->beat_at_ms), task_side_deadline(x));
    at = MIN(MIN(at, task_metrics_due(x)), log_watches_deadline(x));
    if (x->link.fd < 0)
        at = MIN(at, x->dial_at_ms);
    if (x->report_at_ms)
        at = MIN(at, x->report_at_ms);
    if (x->linger_until_ms)
        at = MIN(at, x->linger_until_ms);
    if (lease_runs(x))
        at = MIN(at, lease_start_ms(x) + away_limit_ms(x));
    if (x->cfg->remote && x->link.fd >= 0 && !x->greeted)
        at = MIN(at, x->greet_by_ms);
    if (x->cfg->remote)
        at = MIN(at, remote_call_deadline(x->cfg->remote));
    return at;
}

/* A master that knows the key of this executor has connected. Replace the present connection by
 * this one. The epoch in the Welcome of that master tells whether it is newer. */
static void on_call(struct executor *x, const struct link *line)
{
    renew_lease(x);
    link_close(&x->link);
    x->link = *line;
    x->link.why = &x->cfg->remote->why;
    end_greeting(x);
    x->dial_at_ms = INT64_MAX;
    x->greet_by_ms = clock_mono_ms() + GREET_MS;
    say_hello(x);
}

/* A TCP connection was established, or has failed. */
static void on_connected(struct executor *x)
{
    int rc = link_connected(&x->link);
    if (rc == 0)
        say_hello(x);
    else if (rc != -EINPROGRESS)
        drop(x, rc);
}

/* ---- what the executor waits for ---- */

static size_t add_calls(const struct executor *x, struct pollfd *out)
{
    return x->cfg->remote ? remote_poll(x->cfg->remote, out) : 0;
}

static void calls_ready(struct executor *x, const struct pollfd *p, size_t n)
{
    struct link line;
    if (n && remote_called(x->cfg->remote, p, n, &line))
        on_call(x, &line);
}

static size_t add_one(struct pollfd *out, int fd, short events)
{
    *out = (struct pollfd){ .fd = fd, .events = events };
    return 1;
}

static size_t add_server(const struct executor *x, struct pollfd *out)
{
    return x->server.s ? add_one(out, serve_fd(x), POLLIN) : 0;
}

static void server_ready(struct executor *x, const struct pollfd *p, size_t n)
{
    if (n && p->revents && x->server.s)
        serve_turn(x);
}

static size_t add_metrics(const struct executor *x, struct pollfd *out)
{
    return add_one(out, task_metrics_fd(x), POLLIN);
}

static void metrics_ready(struct executor *x, const struct pollfd *p, size_t n)
{
    (void)n;
    if (p->revents)
        task_metrics_ready(x);
}

/* The first executor of a crew asks for all. */
static size_t add_signals(const struct executor *x, struct pollfd *out)
{
    return x == x->crew->v ? add_one(out, x->crew->signal_fd, POLLIN) : 0;
}

static void signals_ready(struct executor *x, const struct pollfd *p, size_t n)
{
    if (n && p->revents)
        on_signals(x->crew);
}

static size_t add_link(const struct executor *x, struct pollfd *out)
{
    bool writes = link_unsent(&x->link) || x->link.connecting;
    return add_one(out, x->link.fd, writes ? POLLIN | POLLOUT : POLLIN);
}

static void link_ready(struct executor *x, const struct pollfd *p, size_t n)
{
    (void)n;
    if (p->revents && x->link.connecting && x->link.fd == p->fd) {
        on_connected(x);
        return;
    }
    if (p->revents & POLLOUT && link_flush(&x->link) < 0)
        disconnect(x);
    if (p->revents & (POLLIN | POLLHUP | POLLERR) && x->link.fd == p->fd)
        on_link(x);
}

/* The sources of events, in the order in which they are handled. add() writes the descriptors to
 * wait for; ready() gets them back with their events. */
static const struct source {
    size_t (*add)(const struct executor *x, struct pollfd *out);
    void (*ready)(struct executor *x, const struct pollfd *p, size_t n);
    bool after_timeout; /* call ready() also if no descriptor is ready */
} sources[] = {
    { add_calls, calls_ready, .after_timeout = true },
    { add_server, server_ready },
    { add_metrics, metrics_ready },
    /* Before the signals, so that lines which the task sent before its end are reported before the
     * end. */
    { task_side_poll, task_side_ready },
    { add_signals, signals_ready },
    { add_link, link_ready },
};

static int64_t crew_deadline(const struct crew *c)
{
    int64_t at = INT64_MAX;
    for (size_t i = 0; i < c->n; i++)
        if (!c->v[i].over)
            at = MIN(at, next_deadline(&c->v[i]));
    return at;
}

static void wait_for_something(struct crew *c)
{
    enum { EACH = ARRAY_LEN(sources) + REMOTE_POLL_MAX + TASK_POLL_MAX };
    static struct pollfd p[EACH * CREW_MAX];
    size_t n = 0, first[ARRAY_LEN(sources)][CREW_MAX + 1];
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        for (size_t k = 0; k < c->n; k++) {
            first[i][k] = n;
            if (!c->v[k].over || sources[i].add == add_signals)
                n += sources[i].add(&c->v[k], p + n);
        }
        first[i][c->n] = n;
    }
    int64_t at = crew_deadline(c), left = at == INT64_MAX ? -1 : at - clock_mono_ms();
    struct timespec t = { .tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000 };
    if (left < 0 && at != INT64_MAX)
        t = (struct timespec){ 0 };
    int n_ready = ppoll(p, n, at == INT64_MAX ? NULL : &t, NULL);
    for (size_t i = 0; i < ARRAY_LEN(sources) && n_ready >= 0; i++)
        for (size_t k = 0; k < c->n; k++) {
            size_t from = first[i][k], to = first[i][k + 1];
            if (n_ready > 0 ? to > from || sources[i].after_timeout : sources[i].after_timeout)
                sources[i].ready(&c->v[k], p + from, to - from);
        }
}

/* Close what the next tasks of this machine may need; the crew runs on. */
static void close_all(struct executor *x)
{
    link_close(&x->link);
    close_p(&x->port_fd);
    close_p(&x->tb_fd);
    task_side_close(&x->task);
    logs_close(&x->a.logs);
    log_watches_clear(x);
    close_p(&x->watch.memory_fd);
    close_p(&x->watch.oom_fd);
}

/* The executor ends. In a crew it does not wait for a master that does not read: the keeper reports
 * the end. */
static void end(struct executor *x)
{
    streams_kill(x);
    int64_t until = clock_mono_ms() + (x->cfg->in_crew ? 0 : FLUSH_MAX_MS);
    while (link_unsent(&x->link) && clock_mono_ms() < until) {
        struct pollfd p = { .fd = x->link.fd, .events = POLLOUT };
        if (poll(&p, 1, FLUSH_MAX_MS) > 0 && link_flush(&x->link) < 0)
            break;
    }
    link_send_close_notify(&x->link);
    x->over = true;
    if (x->cfg->in_crew)
        close_all(x);
    x->cfg->record->clean = 1;
}

/* Exit with the exit code of the task. So the scheduler knows the exit code even if the master
 * never got the executor's report. The record has that of each executor of a crew. */
static _Noreturn void leave_process(const struct crew *c)
{
    const struct exit_record *r = c->v[0].cfg->record;
    _exit(c->n > 1 || !r->ended ? 0 : r->signal ? 128 + r->signal : r->exit_code);
}

static int signals_open(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGXFSZ); /* a write beyond `ulimit -f` fails with EFBIG then */
    sigprocmask(SIG_SETMASK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool goes_on(const struct executor *x)
{
    return !x->leaving || attempt_alive(&x->a) || x->report_at_ms ||
           (x->linger_until_ms && clock_mono_ms() < x->linger_until_ms);
}

static void begin(struct crew *c, struct executor *x, const struct executor_config *cfg)
{
    struct err e = { 0 };
    *x = (struct executor){ .cfg = cfg,
                            .crew = c,
                            .link.fd = -1,
                            .tb_fd = -1,
                            .away_since_ms = clock_mono_ms(),
                            .beat_at_ms = INT64_MAX,
                            .watch = CGROUP_WATCH_INIT,
                            .a.logs = { .out_fd = -1, .err_fd = -1 } };
    task_side_init(&x->task);
    if (!executor_has_keeper(x))
        remote_listen(cfg->remote);
    x->port_fd = port_reserve(&x->port, &e);
    if (c->signal_fd >= 0 && x->port_fd >= 0)
        return;
    executor_warn(x, "executor.failed", &e);
    give_up(x, &e);
}

/* One turn of an executor. true: it has ended. */
static bool turn(struct executor *x)
{
    if (goes_on(x))
        on_time(x);
    if (goes_on(x))
        return false;
    end(x);
    return true;
}

void executors_run(const struct executor_config *cfgs, size_t n)
{
    static struct executor members[CREW_MAX];
    struct crew crew = { .v = members, .n = n, .signal_fd = -1 };
    bool forked = cfgs[0].keeper != 0;
    if (forked || !cfgs[0].remote) {
        /* HUP, not KILL: the executor must kill the processes of its task before it exits. */
        prctl(PR_SET_PDEATHSIG, SIGHUP);
        if (getppid() != cfgs[0].keeper)
            _exit(1);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "tony-executor");
    crew.signal_fd = signals_open();
    for (size_t i = 0; i < n; i++)
        begin(&crew, &members[i], &cfgs[i]);
    for (;;) {
        size_t n_left = 0;
        bool some_ended = false;
        for (size_t i = 0; i < n; i++) {
            bool ended = !members[i].over && turn(&members[i]);
            some_ended |= ended;
            n_left += !members[i].over;
        }
        if (n_left == 0)
            leave_process(&crew);
        if (some_ended && getppid() == cfgs[0].keeper)
            (void)kill(cfgs[0].keeper, CREW_SIGNAL);
        wait_for_something(&crew);
    }
}
