/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection of one executor to the master: connecting, reconnecting, sending, and the lease,
 * which is the time for which the executor runs its task without a master (decision 0008).
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "executor/executor_int.h"
#include "storage/paths.h"

enum {
    DIAL_FAST_MAX_MS = 100, /* pauses double from 1 ms up to this */
    DIAL_FAST_TRIES = 40,   /* about 4 s; a restart of the master takes less */
    DIAL_SLOW_MS = 1000,
    DIAL_SEARCH_TRIES = 8,    /* after this many refusals, search the socket of the master again */
    AWAY_DEFAULT_MS = 600000, /* used until the first Welcome */
    GREET_MS = 20000,         /* on a cluster: for Welcome on a new connection */
    PROTOCOL = TONY__VERSION__PROTOCOL_VERSION,
};

/* ---- the lease ---- */

int connection_lease_ms(const struct executor *x)
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

void connection_renew_lease(struct executor *x)
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

/* ---- the end of a connection ---- */

/* On a cluster, another program may answer at the address of the master. So only a Welcome resets
 * the pause and ends the time without a master. */
static void remote_drop(struct executor *x, int rc)
{
    struct remote *r = x->cfg->remote;
    bool greeted = x->greeted;
    connection_renew_lease(x);
    link_close(&x->link);
    end_greeting(x);
    if (greeted)
        x->tries = 0;
    bool hopeless = remote_lost(r, rc, greeted);
    if (x->tries == 0 || hopeless) /* log only the first failure and the last */
        executor_warn(x, "executor.disconnected", &r->why);
    x->dial_at_ms = clock_mono_ms() + remote_pause_ms(r, x->tries++);
    if (hopeless && !x->role)
        executor_give_up(x, &r->why);
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

void connection_lost(struct executor *x)
{
    drop(x, -EPIPE);
}

/* ---- sending ---- */

int executor_queue(struct executor *x, Tony__Frame *f)
{
    int rc = link_queue(&x->link, f);
    if (rc < 0)
        connection_lost(x);
    return rc;
}

int executor_send(struct executor *x, Tony__Frame *f)
{
    x->sent_ms = clock_mono_ms();
    int rc = link_send(&x->link, f);
    if (rc < 0)
        connection_lost(x);
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

/* ---- connecting ---- */

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

/* A master that knows the key of this executor has connected. Replace the present connection by
 * this one. The epoch in the Welcome of that master tells whether it is newer. */
void connection_taken(struct executor *x, const struct link *line)
{
    connection_renew_lease(x);
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

/* ---- events ---- */

static void on_link(struct executor *x)
{
    int fill_rc = link_fill(&x->link);
    const Tony__Frame *f;
    struct err e = { 0 };
    int rc = 0;
    while (x->link.fd >= 0 && (rc = link_next(&x->link, &f, &e)) == 1)
        executor_frame(x, f);
    if (rc < 0)
        executor_warn(x, "executor.bad_frame", &e);
    if (rc < 0 || fill_rc < 0)
        drop(x, rc < 0 ? rc : fill_rc);
}

void connection_ready(struct executor *x, const struct pollfd *p)
{
    if (p->revents && x->link.connecting && x->link.fd == p->fd) {
        on_connected(x);
        return;
    }
    if (p->revents & POLLOUT && link_flush(&x->link) < 0)
        connection_lost(x);
    if (p->revents & (POLLIN | POLLHUP | POLLERR) && x->link.fd == p->fd)
        on_link(x);
}

void connection_tick(struct executor *x, int64_t now)
{
    if (x->link.fd < 0 && now >= x->dial_at_ms)
        dial(x, now);
    if (lease_runs(x) && now - lease_start_ms(x) >= connection_lease_ms(x))
        connection_renew_lease(x); /* this process may have been suspended: check the lease first */
    if (lease_runs(x) && now - lease_start_ms(x) >= connection_lease_ms(x)) {
        struct err e = { 0 };
        (void)err_set(&e, ETIMEDOUT, "there was no master for %d s", connection_lease_ms(x) / 1000);
        executor_warn(x, "executor.master_away", &e);
        x->leaving = true;
        if (x->cfg->remote && !x->role)
            executor_give_up(x, &e);
        attempt_stop(x, x->role ? x->role->kill_grace_ms : 0, END_UNKNOWN, e.msg);
    }
    if (x->cfg->remote && x->link.fd >= 0 && !x->greeted && now >= x->greet_by_ms)
        drop(x, -ETIMEDOUT);
}

int64_t connection_deadline(const struct executor *x)
{
    int64_t at = INT64_MAX;
    if (x->link.fd < 0)
        at = MIN(at, x->dial_at_ms);
    if (lease_runs(x))
        at = MIN(at, lease_start_ms(x) + connection_lease_ms(x));
    if (x->cfg->remote && x->link.fd >= 0 && !x->greeted)
        at = MIN(at, x->greet_by_ms);
    return at;
}
