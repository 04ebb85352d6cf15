/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new master on a cluster connects to the executors of the master before it. The executors know
 * only the address of the old master, which may have run on another node.
 *
 * Each executor listens at one of JOB_KEY_PORTS ports that are derived from its key
 * (storage/jobkey.h). The master tries these ports in turn, and repeats that with growing pauses,
 * until the executor answers or is no longer needed. The executor may begin to listen later than
 * the master begins to try.
 *
 * If the machine refuses the connections to all ports, it is reachable and no executor listens
 * there. The executor listens before it registers, so it runs no task that the journal does not
 * have. See decision 0008, "A first start may be missing in the journal".
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "loop/tcp.h"
#include "master/master_int.h"
#include "scheduler/scheduler.h"
#include "storage/jobkey.h"

enum {
    DIAL_TIMEOUT_MS = 3000, /* for one port of one executor */
    PAUSE_MIN_MS = 50,      /* between two rounds through the ports; doubles each time */
    PAUSE_MAX_MS = 2000,
};

struct reconnect {
    struct master *m;
    uint32_t slot;
    char *container, host[TCP_HOST_MAX + 1], identity[TLS_IDENTITY_MAX];
    uint16_t ports[JOB_KEY_PORTS];
    unsigned next_port, n_rounds;
    unsigned n_refused; /* ports of this round at which no process listens */
    bool gone_reported; /* the core knows that no executor listens */
    struct conn *conn;
    struct loop_timer *timer;
    struct reconnect *next;
};

static void reconnect_free(struct reconnect *r)
{
    conn_close(r->conn);
    loop_timer_free(r->timer);
    free(r->container);
    free(r);
}

void reconnect_close(struct master *m)
{
    while (m->reconnects) {
        struct reconnect *r = m->reconnects;
        m->reconnects = r->next;
        reconnect_free(r);
    }
}

static void reconnect_remove(struct reconnect *r)
{
    for (struct reconnect **at = &r->m->reconnects; *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    reconnect_free(r);
}

/* Does the slot still have this container, and is its executor not connected yet? */
static bool is_wanted(const struct reconnect *r)
{
    const struct master *m = r->m;
    struct slot_view v;
    if (m->phase != MP_RUNNING || m->executors[r->slot])
        return false;
    job_slot(m->job, r->slot, &v);
    return v.state != SLOT_ENDED && v.container && str_eq(v.container, r->container);
}

/* All ports of a round were tried. If no process listens there, and the slot waits because the
 * journal may lack its first start, there are two cases: the start was never carried out, or its
 * executor is dead. Tell the core that the executor has closed its connection: the slot then waits
 * JOB_LEFT_MS instead of the lease. A slot with an attempt waits for the lease: the address may
 * belong to another machine by now. */
static void end_round(struct reconnect *r)
{
    bool nobody = r->n_refused == JOB_KEY_PORTS;
    struct slot_view v;

    r->n_refused = 0;
    job_slot(r->m->job, r->slot, &v);
    bool waits = v.state == SLOT_REPLACING || v.state == SLOT_LEAVING;
    if (!nobody || r->gone_reported || !waits || v.attempt || !is_wanted(r))
        return;
    r->gone_reported = true;
    (void)master_feed(r->m, &(struct job_event){
                                .type = EV_EXECUTOR_GONE,
                                .executor_gone = { .slot = r->slot, .container = r->container } });
}

/* Connect to the next port; after the last one, pause and take the first one. A timer calls it, so
 * that no connection is opened within a callback of the one that failed. */
static void try_next_port(struct reconnect *r)
{
    int64_t pause = 0;
    if (++r->next_port == JOB_KEY_PORTS) {
        r->next_port = 0;
        pause = MIN((int64_t)PAUSE_MIN_MS << MIN(r->n_rounds, 16u), (int64_t)PAUSE_MAX_MS);
        r->n_rounds++;
        end_round(r);
    }
    loop_timer_set(r->timer, clock_mono_ms() + pause);
}

static void on_open(struct conn *conn, void *arg)
{
    struct reconnect *r = arg;
    struct master *m = r->m;
    r->conn = NULL;
    /* The executor sends ExecutorHello, as on a connection that it has opened itself. */
    peer_new(m, conn);
    reconnect_remove(r);
}

static void on_frame(struct conn *conn, const Tony__Frame *f, void *arg)
{
    (void)conn;
    (void)f;
    (void)arg;
}

static void on_close(struct conn *conn, const struct err *e, void *arg)
{
    struct reconnect *r = arg;
    (void)conn;
    r->conn = NULL;
    r->n_refused += e->num == ECONNREFUSED;
    if (r->n_rounds == 0 && e->num != ECONNREFUSED && e->num != EACCES)
        log_err(LOG_DEBUG, "call.failed", e);
    try_next_port(r);
}

static const struct conn_ops dial_ops = { .on_open = on_open,
                                          .on_frame = on_frame,
                                          .on_close = on_close };

static void on_timer(void *arg)
{
    struct reconnect *r = arg;
    struct tls_key key;
    if (!is_wanted(r)) {
        reconnect_remove(r);
        return;
    }
    job_key_container(r->m->remote->key, r->container, &key);
    const struct conn_target to = { .host = r->host,
                                    .port = r->ports[r->next_port],
                                    .identity = r->identity,
                                    .key = &key,
                                    .deadline_ms = clock_mono_ms() + DIAL_TIMEOUT_MS };
    if (conn_dial_tls(r->m->loop, &to, &dial_ops, r, &r->conn, NULL) < 0)
        try_next_port(r);
    job_key_wipe(&key, sizeof key);
}

/* Is a connection to the executor of this container being made? The cluster may list two
 * containers of a slot: an older one that is about to end, and the present one. Connecting to
 * the older one must not prevent connecting to the present one. on_timer() ends the attempts
 * that are not needed. */
static bool is_dialling(const struct master *m, uint32_t slot, const char *container)
{
    for (const struct reconnect *r = m->reconnects; r; r = r->next)
        if (r->slot == slot && str_eq(r->container, container))
            return true;
    return false;
}

void reconnect_executor(struct master *m, uint32_t slot, const char *container, const char *node)
{
    struct tls_key key;
    uint16_t port;
    if (!m->remote || m->remote->shared_dirs || m->epoch < 2 || !node ||
        is_dialling(m, slot, container))
        return;
    struct reconnect *r = calloc(1, sizeof *r);
    if (r) {
        *r = (struct reconnect){ .m = m, .slot = slot, .container = str_dup(container) };
        r->timer = loop_timer_new(m->loop, on_timer, r);
    }
    if (!r || !r->container || !r->timer || !job_key_identity(r->container, r->identity) ||
        tcp_split(node, 1, r->host, &port, NULL) < 0) {
        log_event(LOG_ERROR, "call.impossible", f_str("container", container));
        if (r)
            reconnect_free(r);
        return; /* the slot gets no heartbeats, so the core treats its executor as silent */
    }
    job_key_container(m->remote->key, r->container, &key);
    const struct job_ports among = { m->spec->port_first, m->spec->port_last };
    job_key_ports(&key, among, r->ports);
    job_key_wipe(&key, sizeof key);
    r->next = m->reconnects;
    m->reconnects = r;
    loop_timer_set(r->timer, clock_mono_ms());
}
